"""The metadata services of three clouds on one loopback port, as their documentation has them, for as many machines as
a test wants: each has a base URL of its own. What is announced to a machine is said by methods of :class:`Machine`."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

AWS_TOKEN, AWS_TTL = "X-aws-ec2-metadata-token", "X-aws-ec2-metadata-token-ttl-seconds"
SPOT, REBALANCE = "spot/instance-action", "events/recommendations/rebalance"
SCHEDULED = "events/maintenance/scheduled"
ROLE = "gang-role"


class Machine:
    """One machine as its services see it. ``ahead``: how far their clock is ahead of this machine's."""

    def __init__(self, name: str = "vm0") -> None:
        self.name = name
        self.ahead = timedelta(0)
        self.token_seconds = 21600
        self.asked: Counter[str] = Counter()
        self.acknowledged: list[str] = []
        # Answers instead of those of the service: (status, headers), one each.
        self.faults: list[tuple[int, dict[str, str]]] = []
        self.silent_seconds = 0.0
        self.dated, self.flavored = True, True
        self._tokens: dict[str, float] = {}
        self._texts: dict[str, str] = {}
        self._values = {"preempted": "FALSE", "maintenance-event": "NONE"}
        self._etags = {"preempted": 1, "maintenance-event": 1}
        self._changed = threading.Condition()
        self._incarnation = 1
        self._events: list[dict[str, Any]] = []

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    # EC2
    def interrupt(self, seconds: float = 120.0, *, action: str = "terminate", key: str = "action") -> None:
        """A spot interruption; mocks in use write another ``key``."""
        moment = (self.now() + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.put(SPOT, json.dumps({key: action, "time": moment}))

    def recommend_rebalance(self) -> None:
        self.put(REBALANCE, json.dumps({"noticeTime": self.now().strftime("%Y-%m-%dT%H:%M:%SZ")}))

    def schedule(self, seconds: float, *, state: str = "active", code: str = "system-reboot") -> None:
        moment = (self.now() + timedelta(seconds=seconds)).strftime("%d %b %Y %H:%M:%S GMT")
        event = {
            "NotBefore": moment,
            "Code": code,
            "Description": "scheduled reboot",
            "State": state,
            "NotAfter": moment,
            "EventId": "instance-event-0d59937288b749b32",
        }
        self.put(SCHEDULED, json.dumps([event]))

    def put(self, path: str, text: str) -> None:
        self._texts[path] = text

    def forget_tokens(self) -> None:
        self._tokens.clear()

    # Compute Engine
    def set(self, key: str, value: str) -> None:
        with self._changed:
            self._values[key] = value
            self._etags[key] += 1
            self._changed.notify_all()

    def preempt(self) -> None:
        self.set("preempted", "TRUE")

    # Azure
    def event(
        self,
        id_: str = "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
        *,
        kind: str = "Preempt",
        seconds: float = 30.0,
        status: str = "Scheduled",
        resources: tuple[str, ...] | None = None,
    ) -> None:
        """A scheduled event; one of that id before is replaced."""
        moment = "" if status == "Started" else format_datetime(self.now() + timedelta(seconds=seconds), usegmt=True)
        event = {
            "EventId": id_, "EventStatus": status, "EventType": kind, "ResourceType": "VirtualMachine",
            "Resources": list(resources or (self.name,)), "NotBefore": moment, "Description": "",
            "EventSource": "Platform", "DurationInSeconds": -1,
        }  # fmt: skip
        self._events = [*(e for e in self._events if e["EventId"] != id_), event]
        self._incarnation += 1

    # What the services answer: (status, headers, text).
    def answer(self, method: str, path: str, query: dict[str, list[str]], headers: Any, body: bytes) -> Any:
        self.asked[f"{method} {path}"] += 1
        time.sleep(self.silent_seconds)
        if self.faults:
            return (*self.faults.pop(0), "")
        if path.startswith("/latest/"):
            return self._ec2(method, path.removeprefix("/latest/"), headers)
        if path.startswith("/computeMetadata/v1/"):
            return self._compute_engine(path.removeprefix("/computeMetadata/v1/"), query, headers)
        if path.startswith("/metadata/"):
            return self._azure(method, path.removeprefix("/metadata/"), query, headers, body)
        return 404, {}, ""

    def _ec2(self, method: str, path: str, headers: Any) -> Any:
        if method == "PUT" and path == "api/token":
            if not headers.get(AWS_TTL):
                return 400, {}, ""
            token = secrets.token_urlsafe(16)
            self._tokens[token] = time.monotonic() + self.token_seconds
            return 200, {AWS_TTL: str(self.token_seconds)}, token
        if time.monotonic() >= self._tokens.get(headers.get(AWS_TOKEN, ""), 0.0):
            return 401, {}, ""
        credentials = {
            "Code": "Success",
            "Type": "AWS-HMAC",
            "AccessKeyId": "ASIA-1",
            "SecretAccessKey": "s",
            "Token": "t",
            "LastUpdated": "2026-11-21T18:00:00Z",
            "Expiration": "2126-11-22T00:00:00Z",
        }
        known = {
            "iam/security-credentials/": ROLE,
            f"iam/security-credentials/{ROLE}": json.dumps(credentials),
            "placement/availability-zone/": "us-east-1a",
            "instance-id": "i-0123456789abcdef0",
            **self._texts,
        }
        found = known.get(path.removeprefix("meta-data/"))
        return (404, {}, "") if found is None else (200, {}, found)

    def _compute_engine(self, path: str, query: dict[str, list[str]], headers: Any) -> Any:
        if headers.get("Metadata-Flavor") != "Google":
            return 403, {}, ""
        key = path.removeprefix("instance/")
        if key == "service-accounts/default/token":
            return 200, {"Metadata-Flavor": "Google"}, json.dumps({"access_token": "ya29.t", "expires_in": 3599})
        if key not in self._values:
            return 404, {}, ""
        with self._changed:
            if query.get("wait_for_change") == ["true"]:
                # Without an etag it waits for the next change, as the real one does.
                known = query.get("last_etag", [str(self._etags[key])])[0]
                self._changed.wait_for(
                    lambda: str(self._etags[key]) != known, float(query.get("timeout_sec", ["60"])[0])
                )
            flavor = {"Metadata-Flavor": "Google"} if self.flavored else {}
            return 200, {**flavor, "ETag": str(self._etags[key])}, self._values[key]

    def _azure(self, method: str, path: str, query: dict[str, list[str]], headers: Any, body: bytes) -> Any:
        if headers.get("Metadata") != "true" or "api-version" not in query:
            return 400, {}, ""
        if path == "instance/compute/name" and query.get("format") == ["text"]:
            return 200, {}, self.name
        if path == "identity/oauth2/token" and query.get("resource") == ["https://management.azure.com/"]:
            return 200, {}, json.dumps({"access_token": "arm-token", "expires_on": "1796000000"})
        if path != "scheduledevents":
            return 404, {}, ""
        if method == "POST":
            self.acknowledged += [request["EventId"] for request in json.loads(body)["StartRequests"]]
            return 200, {}, ""
        return 200, {}, json.dumps({"DocumentIncarnation": self._incarnation, "Events": self._events})


class MetadataService:
    """``machines`` by the beginning of their paths; "" is the machine of the plain URL."""

    def __init__(self) -> None:
        self.url = ""
        self.machines: dict[str, Machine] = {}
        self.machine = self.add("")[1]

    def add(self, name: str) -> tuple[str, Machine]:
        """(base URL, machine); ``name`` is also its name."""
        machine = self.machines[name] = Machine(name or "vm0")
        return f"{self.url}/machines/{name}" if name else self.url, machine

    @contextmanager
    def running(self, address: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[MetadataService]:
        """Serves while the block runs."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._take()

            def do_PUT(self) -> None:
                self._take()

            def do_POST(self) -> None:
                self._take()

            def _take(self) -> None:
                url = urlsplit(self.path)
                name, path = "", url.path
                if path.startswith("/machines/"):
                    _, _, name, rest = path.split("/", 3)
                    path = f"/{rest}"
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                machine = outer.machines[name]
                status, headers, text = machine.answer(self.command, path, parse_qs(url.query), self.headers, body)
                data = text.encode()
                self.send_response_only(status)
                if machine.dated:
                    self.send_header("Date", format_datetime(machine.now(), usegmt=True))
                kind = "application/json; charset=utf-8" if text.startswith(("{", "[")) else "application/text"
                for key, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                try:
                    self.wfile.write(data)
                except OSError:
                    return

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

            def handle_error(self, *_: Any) -> None:
                """A client that left while it waited."""

        server = Server(address, Handler)
        self.url = f"http://{address[0]}:{server.server_port}"
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
