"""A local service for what the small clouds are read from: gpuhunt's published catalogues and Vast's offers.

The layout is that of gpuhunt's own reader (``gpuhunt/_internal/catalog.py``: ``{base}/{provider}/version`` and
``{base}/{provider}/{version}/catalog.zip`` holding ``{provider}.csv``), the CSV is written by gpuhunt's own writer
(``gpuhunt._internal.storage.dump``), and what a machine is called where follows gpuhunt's collectors
(``gpuhunt/providers/*.py``). The offers' fields are those that ``gpuhunt/providers/vastai.py`` reads. All prices are
made up.
"""

from __future__ import annotations

import io
import json
import socket
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from wsgiref.types import WSGIApplication

from gpuhunt import CatalogItem
from gpuhunt._internal import storage
from werkzeug.wrappers import Request, Response

from tests.support.neocloud_rows import NEW_ROWS, catalogue_items, market_offers
from tests.support.service import Fault, Faults

VERSION = "20261121-873"
PROVIDERS = ("gcp", "lambdalabs", "nebius", "runpod", "vastai", "verda")


def make_app(
    regions: int | list[str] = 3,
    extra_types: int = 0,
    hosts: int = 120,
    latency_s: float = 0.0,
    faults: Sequence[dict[str, Any]] = (),
    version: str = VERSION,
) -> WSGIApplication:
    """``regions`` of each catalogue, ``extra_types`` of machines added to each, ``hosts`` on the market.

    Faults match on ``METHOD path`` and, where they alter rows, on a catalogue's name, a region or a machine.
    """
    return _Service(regions, extra_types, hosts, latency_s, faults, version)


class _Service:
    def __init__(
        self,
        regions: int | list[str],
        extra_types: int,
        hosts: int,
        latency_s: float,
        faults: Sequence[dict[str, Any]],
        version: str,
    ) -> None:
        self._latency_s = latency_s
        self._faults = Faults([fault for fault in faults if fault["kind"] not in ALTERING])
        self._version = version
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._bodies: dict[str, bytes] = {}
        altering = [fault for fault in faults if fault["kind"] in ALTERING]
        for provider in PROVIDERS:
            items = list(catalogue_items(provider, regions, extra_types))
            self._bodies[f"/v3/{provider}/version"] = f"{version}\n".encode()
            text = csv_of(items, [f for f in altering if _of_catalogue(f, provider, items)])
            self._bodies[f"/v3/{provider}/{version}/catalog.zip"] = zip_of(provider, text)
        self._market = _altered_market(market_offers(hosts), altering)

    def __call__(self, environ: Any, start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        if request.path == "/_calls":
            with self._lock:
                body = json.dumps(dict(sorted(self._calls.items())))
            return Response(body, mimetype="application/json")(environ, start_response)
        if self._latency_s:
            time.sleep(self._latency_s)
        action = f"{request.method} {request.path}"
        with self._lock:
            self._calls[action] += 1
        fault = self._faults.first(action)
        response = self._answer(request)
        if fault is not None and fault["kind"] in {"drop_connection", "clock"}:
            if fault["kind"] == "clock":
                environ["werkzeug.socket"].sendall(_dated_ahead(response))
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        elif fault is not None:
            response = spoilt(response, fault)
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        if request.path == "/api/v0/bundles/" and request.method == "POST":
            return self._answer_query(request.get_json())
        body = self._bodies.get(request.path)
        if body is None or request.method != "GET":
            return Response("<Error><Code>AccessDenied</Code></Error>", status=403, mimetype="application/xml")
        return Response(body, mimetype="application/octet-stream")

    def _answer_query(self, query: dict[str, Any]) -> Response:
        """The conditions that gpuhunt's query uses: equality and membership, and a limit."""
        found = []
        for offer in self._market:
            conditions = [(n, c) for n, c in query.items() if isinstance(c, dict) and n in offer]
            if all(offer[n] == c["eq"] for n, c in conditions if "eq" in c) and all(
                offer[n] in c["in"] for n, c in conditions if "in" in c
            ):
                found.append(offer)
        body = json.dumps({"offers": found[: query.get("limit", 64)]})
        return Response(body, mimetype="application/json")


ALTERING = frozenset({"price_zero", "duplicate", "currency", "new_type", "region_off"})


def spoilt(response: Response, fault: Fault) -> Response:
    kind = fault["kind"]
    wait = {"Retry-After": str(fault["retry_after"])} if "retry_after" in fault else {}
    if kind == "throttle":
        return Response("<Error><Code>SlowDown</Code></Error>", status=503, headers=wait)
    if kind in {"error500", "expired_token", "forbidden"}:
        return Response(status={"error500": 500, "expired_token": 401, "forbidden": 403}[kind])
    body = response.get_data()
    if kind == "half_page":  # the length is promised, the connection ends before
        return Response(body[: len(body) // 2], headers={"Content-Length": str(len(body))})
    if kind == "bad_json":
        response.set_data(body[: len(body) // 2])
        return response
    raise ValueError(f"no such fault: {kind}")


def _dated_ahead(response: Response) -> bytes:
    """A whole answer ten minutes ahead; written by hand, because the server puts its own date on every other."""
    date = format_datetime(datetime.now(UTC) + timedelta(minutes=10), usegmt=True)
    body = response.get_data()
    head = f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def csv_of(items: Sequence[CatalogItem], faults: Sequence[dict[str, Any]] = ()) -> str:
    """The catalogue as gpuhunt writes it, with rows altered by ``faults``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalogue.csv"
        storage.dump(items, str(path))
        lines = path.read_text(encoding="utf-8").splitlines()
    for fault in faults:
        lines = _altered(lines, fault)
    return "\n".join(lines) + "\n"


def zip_of(provider: str, text: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(f"{provider}.csv", (2026, 11, 21, 1, 0, 0)), text)
    return stream.getvalue()


def _of_catalogue(fault: dict[str, Any], provider: str, items: Sequence[CatalogItem]) -> bool:
    match = fault["match"]
    return match in provider or any(match in (item.instance_name, item.location) for item in items)


def _altered(lines: list[str], fault: dict[str, Any]) -> list[str]:
    """The first matching row with accelerators is altered, ``times`` of them; ``region_off`` drops all of a place."""
    kind, match = fault["kind"], fault["match"]
    header, *rows = lines
    if kind == "region_off":
        return [header, *(row for row in rows if row.split(",")[1] != match)]
    if kind == "new_type":
        name, location, *rest = rows[0].split(",")
        return [header, *rows, ",".join([f"new-{name}", location, *rest]), *NEW_ROWS]
    changed, left = [header], fault.get("times", 1)
    anywhere = not any(match in row.split(",")[:2] for row in rows)
    for row in rows:
        cells = row.split(",")
        if left and (anywhere or match in cells[:2]) and cells[5] != "0":
            left -= 1
            other = {"price_zero": "0.0", "currency": "EUR 1.99", "duplicate": str(float(cells[2]) + 1)}[kind]
            altered = ",".join([*cells[:2], other, *cells[3:]])
            changed += [row, altered] if kind == "duplicate" else [altered]
        else:
            changed.append(row)
    return changed


def _altered_market(offers: list[dict[str, Any]], faults: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    for fault in faults:
        if fault["match"] in "vastai bundles":
            for offer in offers[: fault.get("times", 1)]:
                if fault["kind"] == "price_zero":
                    offer["dph_base"] = 0
                elif fault["kind"] == "currency":
                    offer["dph_base"] = "EUR 1.99"
                elif fault["kind"] == "new_type":
                    offer["gpu_name"], offer["gpu_ram"] = "H100 SXM", 204800
    return offers
