"""A stand-in for AWS on one address: EC2, Price List, Service Quotas, STS and SQS, and the public files.

moto answers what it knows (zones, instance types, identity, queues), rendered once and kept as bytes; a layer of our
own in front of it answers the rest, and deals out faults (see ``aws_service_faults``). Services are told apart by
the credential scope of the signature, as moto does. GET /_calls counts calls by action.
"""

from __future__ import annotations

import io
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import cache
from typing import Any
from urllib.parse import parse_qsl
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.test import run_wsgi_app

from tests.support import aws_service_pages as pages
from tests.support.aws_service_answers import Ec2, quotas
from tests.support.aws_service_faults import CHANGES, Answer, AwsFaults, refusal, spoil
from tests.support.aws_service_world import World, first_regions

_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")
_OFFERS = "/offers/v1.0/aws/AmazonEC2/current/"
_JSON = "application/x-amz-json-1.1"


@dataclass(frozen=True)
class Call:
    """A request, understood. ``place`` is the region it is about."""

    service: str
    action: str
    place: str
    parameters: Mapping[str, Any]
    body: bytes


def make_app(
    *,
    regions: int | list[str] = 3,
    off: Sequence[str] = (),
    now: str | None = None,
    history_rows: int = 3_000,
    history_days: float = 30.0,
    csv_noise: int = 7,
    latency_s: float = 0.0,
    faults: Sequence[Mapping[str, Any]] = (),
) -> WSGIApplication:
    """``now`` (ISO, with a zone; None: the real time) dates prices and answers. ``off`` are regions that the account
    has not switched on, in addition to ``regions``. ``csv_noise``: other lines a machine in the public price list."""
    names = first_regions(regions) if isinstance(regions, int) else tuple(regions)
    at = datetime.fromisoformat(now) if now else datetime.now(UTC)
    dealt = AwsFaults(faults)
    new = dealt.with_new_types(names)
    world = World(names, tuple(off), at, history_rows, history_days, new)
    return Service(world, dealt, latency_s, csv_noise, fixed=now is not None)


class Service:
    def __init__(self, world: World, faults: AwsFaults, latency_s: float, csv_noise: int, *, fixed: bool) -> None:
        self._world = world
        self._faults = faults
        self._latency_s = latency_s
        self._noise = csv_noise
        self._fixed = fixed
        self._began = time.monotonic()
        self._rendered: dict[tuple[Any, ...], Answer] = {}
        self._lock = threading.Lock()
        self._ec2 = Ec2(world)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        call = self._understand(environ)
        if call.action == "_calls":
            body = json.dumps(self._faults.calls).encode()
            return self._send(Answer(body, "application/json"), [], environ, start_response)
        met = self._faults.meet(call.action, call.place)
        if self._latency_s:
            time.sleep(self._latency_s)
        echoed = environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "") + environ.get("HTTP_AUTHORIZATION", "")
        answer = next((found for fault in met if (found := refusal(fault, call.service, echoed))), None)
        if answer is None:
            changes = frozenset(fault["kind"] for fault in met) & CHANGES
            answer = self._answer(call, changes, environ)
            for fault in met:
                answer = spoil(fault, answer)
        return self._send(answer, met, environ, start_response)

    def _understand(self, environ: WSGIEnvironment) -> Call:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
        path = environ["PATH_INFO"]
        if scope is None:
            parts = path.removeprefix(_OFFERS).split("/")
            return Call("files", parts[-1], parts[0] if len(parts) == 2 else "", {}, body)
        service, place = str(scope["service"]), str(scope["region"])
        target = environ.get("HTTP_X_AMZ_TARGET")
        if target:
            parameters = json.loads(body or b"{}")
            fields = {row["Field"]: row["Value"] for row in parameters.get("Filters", ())}
            return Call(service, target.partition(".")[2], fields.get("regionCode", place), parameters, body)
        form = dict(parse_qsl(body.decode()))
        return Call(service, form.get("Action", ""), place, form, body)

    def _answer(self, call: Call, changes: frozenset[str], environ: WSGIEnvironment) -> Answer:
        makers: Mapping[str, Callable[[], Answer]] = {
            "region_index.json": lambda: _json(pages.region_index(self._world.regions)),
            "index.csv": lambda: self._price_list(call.place, changes),
            "spot-advisor-data.json": lambda: self._advisor(),
            "GetProducts": lambda: self._products(call, changes),
            "ListServiceQuotas": lambda: _page("Quotas", quotas(call.place), call.parameters, 100),
        }
        if call.action in makers:
            key = (call.action, call.place, changes, json.dumps(call.parameters, sort_keys=True))
            return self._keep(key, makers[call.action])
        if call.service == "ec2":
            own = self._ec2.answer(call.action, call.place, call.parameters, changes)
            if own is not None:
                return own
        if call.service == "files":
            return Answer(b"not here", "text/plain", 404)
        if call.service == "ec2":
            with _moto_lock:
                return _kept(_moto_said, (call.place, call.body), lambda: self._from_moto(call, environ))
        return self._from_moto(call, environ)

    def _keep(self, key: tuple[Any, ...], make: Callable[[], Answer]) -> Answer:
        with self._lock:
            return _kept(self._rendered, key, make)

    def _price_list(self, region: str, changes: frozenset[str]) -> Answer:
        if region not in self._world.regions:
            return Answer(b"<Error><Code>AccessDenied</Code></Error>", "application/xml", 403)
        published = (self._world.now - timedelta(days=1)).date().isoformat()
        return Answer(pages.price_list(self._world, region, published, self._noise, changes), "text/csv")

    def _advisor(self) -> Answer:
        written = format_datetime(self._world.now - timedelta(days=2), usegmt=True)
        return replace(_json(pages.spot_advisor(self._world)), headers={"Last-Modified": written})

    def _products(self, call: Call, changes: frozenset[str]) -> Answer:
        known = call.place in self._world.regions
        texts = pages.products(self._world, call.place, changes) if known else []
        fields = {row["Field"]: row["Value"] for row in call.parameters.get("Filters", ())}
        for field in fields.keys() & {"instanceFamily", "instanceType"}:
            texts = [text for text in texts if f'"{field}": "{fields[field]}"' in text]
        return _page("PriceList", texts, call.parameters, 100)

    def _from_moto(self, call: Call, environ: WSGIEnvironment) -> Answer:
        body, new = self._ec2.without_new_types(call.action, call.body)
        copy = {**environ, "wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        if call.place.startswith("eu-lab-"):  # instance types are the same everywhere
            signed = environ["HTTP_AUTHORIZATION"]
            copy["HTTP_AUTHORIZATION"] = signed.replace(f"/{call.place}/", "/us-east-1/")
        parts, status, headers = run_wsgi_app(_moto(), copy, buffered=True)
        content = self._ec2.with_new_types(b"".join(parts), new)
        kept = {name: headers[name] for name in ("x-amzn-query-error",) if name in headers}
        return Answer(content, headers.get("Content-Type", "text/xml"), int(status.split()[0]), kept)

    def _send(
        self, answer: Answer, met: Sequence[Mapping[str, Any]], environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        headers = [("Content-Type", answer.content_type), *answer.headers.items()]
        headers.append(("Content-Length", str(len(answer.body) if answer.promised is None else answer.promised)))
        shift = sum(float(fault.get("offset_s", 600)) for fault in met if fault["kind"] == "clock")
        if self._fixed or shift:
            passed = timedelta(seconds=time.monotonic() - self._began)
            now = self._world.now + passed if self._fixed else datetime.now(UTC)
            headers.append(("Date", format_datetime(now + timedelta(seconds=shift), usegmt=True)))
        start_response(f"{answer.status} -", headers)
        head = environ["REQUEST_METHOD"] == "HEAD"
        if answer.promised is not None:
            return _dropped(answer.body, environ["werkzeug.socket"])
        return [] if head else [answer.body]


# Zones and instance types, which nothing here changes: one memory for all services of a test run.
_moto_said: dict[tuple[Any, ...], Answer] = {}
_moto_lock = threading.Lock()


def _kept(answers: dict[tuple[Any, ...], Answer], key: tuple[Any, ...], make: Callable[[], Answer]) -> Answer:
    if key not in answers:
        answers[key] = make()
    return answers[key]


@cache
def _moto() -> WSGIApplication:
    """One for all: making it takes most of a second, and what moto holds is one for all anyway."""
    app: WSGIApplication = DomainDispatcherApplication(create_backend_app)
    return app


def _dropped(body: bytes, connection: socket.socket) -> Iterable[bytes]:
    yield body
    connection.shutdown(socket.SHUT_RDWR)


def _json(body: bytes) -> Answer:
    return Answer(body, "application/json")


def _page(key: str, rows: Sequence[Any], parameters: Mapping[str, Any], most: int) -> Answer:
    start = int(parameters.get("NextToken") or 0)
    size = min(int(parameters.get("MaxResults") or most), most)
    following = pages.token(start, size, len(rows))
    content = {key: list(rows[start : start + size]), **({"NextToken": following} if following else {})}
    return Answer(json.dumps(content).encode(), _JSON)
