"""An AWS account with machines in it: moto's EC2 and tagging API over HTTP, tagged as the module tags, with refusals
that a test asks for."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import boto3
import requests
from moto.ec2.models import ec2_backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from tests.support.aws_service_faults import error
from tests.support.service import in_thread

ACCOUNT, HOME = "123456789012", "us-east-1"
IMAGE = "ami-12c6146b"
_SCOPE = re.compile(r"Credential=[^/]+/\d{8}/(?P<region>[^/]+)/(?P<service>[^/]+)/aws4_request")


class Estate:
    """A WSGI app in front of moto. ``refusals``: by "ACTION REGION" (a beginning will do), the code that is answered;
    ``times`` limits how often (None: always). ``calls`` lists "ACTION REGION" as they came."""

    def __init__(self) -> None:
        self._moto: WSGIApplication = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self.refusals: dict[str, str] = {}
        self.times: dict[str, int] = {}
        self.calls: list[str] = []
        self.bodies: list[Mapping[str, Sequence[str]]] = []
        self.url = ""
        self._looks: int | None = None

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
        if scope is not None:
            form = parse_qs(body.decode(errors="replace"))
            action = environ.get("HTTP_X_AMZ_TARGET", "").partition(".")[2] or form.get("Action", [""])[0]
            code = self._meet(f"{action} {scope['region']}", form)
            self._let_go(action)
            if code:
                answer = error(str(scope["service"]), 403, code, "no")
                start_response(f"{answer.status} -", [("Content-Type", answer.content_type)])
                return [answer.body]
        with self._lock:  # moto's memory is no place for many threads
            environ = {**environ, "wsgi.input": io.BytesIO(body)}
            return list(self._moto(environ, start_response))

    def _meet(self, call: str, form: Mapping[str, Sequence[str]]) -> str:
        with self._lock:
            self.calls.append(call)
            self.bodies.append(form)
            for start, code in self.refusals.items():
                if call.startswith(start) and self.times.get(start, 1) > 0:
                    if start in self.times:
                        self.times[start] -= 1
                    return code
        return ""

    def _let_go(self, action: str) -> None:
        """moto leaves a gateway's address with it for good; EC2 lets it go some time after the gateway was deleted:
        here at the third look."""
        if action == "DeleteNatGateway":
            self._looks = 0
        elif action == "DescribeAddresses" and self._looks is not None:
            self._looks += 1
            if self._looks == 3:
                for address in ec2_backends[ACCOUNT][HOME].addresses:
                    address.association_id, address.eni = None, None

    def ec2(self, region: str = HOME) -> Any:
        """The real SDK, as somebody else would use it."""
        keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x"}
        return boto3.client("ec2", region, endpoint_url=self.url, **keys)

    def machines(
        self, attempt: str, state: str, ranks: Iterable[int], *, region: str = HOME, spot: bool = True
    ) -> list[str]:
        """Machines of an attempt; their ids in the order of ``ranks``."""
        return [self.machine(tags_of(attempt, state, rank), region=region, spot=spot) for rank in ranks]

    def machine(self, tags: Mapping[str, str], *, region: str = HOME, spot: bool = True) -> str:
        """One machine with these tags on it and on its disk."""
        market = {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}}
        rows = [{"Key": key, "Value": value} for key, value in tags.items()]
        specs = [{"ResourceType": kind, "Tags": rows} for kind in ("instance", "volume")] if rows else []
        made = self.ec2(region).run_instances(
            ImageId=IMAGE,
            MinCount=1,
            MaxCount=1,
            InstanceType="p5.48xlarge",
            TagSpecifications=specs,
            **(market if spot else {}),
        )
        return str(made["Instances"][0]["InstanceId"])

    def running(self, *regions: str) -> set[str]:
        alive = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        return {
            instance["InstanceId"]
            for region in regions or (HOME,)
            for page in self.ec2(region).get_paginator("describe_instances").paginate(Filters=alive)
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        }


def tags_of(attempt: str, state: str, rank: int | None = None) -> dict[str, str]:
    """As terraform/modules/aws writes them; without a rank, those of what is not a machine."""
    tags = {"stepfare_attempt": attempt, "stepfare_state": state, "stepfare_job": "llama", "team": "research"}
    return tags if rank is None else {**tags, "stepfare_rank": str(rank), "Name": f"{attempt}-{rank}"}


def specification(kind: str, attempt: str, state: str) -> list[dict[str, Any]]:
    """``TagSpecifications`` of a creating call."""
    tags = [{"Key": key, "Value": value} for key, value in tags_of(attempt, state).items()]
    return [{"ResourceType": kind, "Tags": tags}]


@contextmanager
def estate() -> Iterator[Estate]:
    """An empty account, served while the block runs. moto has one memory in a process, so one at a time."""
    app = Estate()
    with in_thread(app) as url:
        app.url = url
        requests.post(f"{url}/moto-api/reset", timeout=30).raise_for_status()
        yield app
        requests.post(f"{url}/moto-api/reset", timeout=30).raise_for_status()
