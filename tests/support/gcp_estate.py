"""A Google Cloud project with machines in it: the calls of Compute Engine that find and end them, as
google-cloud-compute 1.56 makes them. Machines take ``polls`` looks at their operation to be gone."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.wrappers import Request, Response

from providers.gcp import permissions
from providers.gcp.permissions import ApiCall
from tests.support.service import in_thread


def calls_of(role: str) -> tuple[ApiCall, ...]:
    return tuple(call for call in vars(permissions).values() if isinstance(call, ApiCall) and call.role == role)


Row = dict[str, Any]
PROJECT = "a-project"
URL = "https://www.googleapis.com/compute/v1"
ZONES = ("us-central1-a", "us-central1-b", "europe-west4-a")
_ROOT = rf"/compute/v1/projects/{PROJECT}"
# Aggregated: the kind of thing, and what its scopes are.
_SCOPES = {"instances": "zones", "disks": "zones", "subnetworks": "regions", "resourcePolicies": "regions"}
_PAGE = 2


class Project:
    """A WSGI app. ``things``: by path (``projects/.../instances/x``), as the API gives them. ``refusals``: "METHOD
    path" by its beginning -> (status, reason); ``silent``: scopes that do not answer; ``failing``: the code with which
    operations end, by the name of what they are about."""

    def __init__(self) -> None:
        self.things: dict[str, Row] = {}
        self.refusals: dict[str, tuple[int, str]] = {}
        self.times: dict[str, int] = {}
        self.silent: set[str] = set()
        self.failing: dict[str, str] = {}
        self.polls = 1
        self.calls: list[str] = []
        self.queries: list[Mapping[str, str]] = []
        self._operations: dict[str, tuple[str, int]] = {}
        self._lock = threading.RLock()
        self._ids = 0

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        with self._lock:
            response = self._answer(request)
        return response(environ, start_response)

    def add(self, path: str, **fields: Any) -> str:
        """Something at ``projects/PROJECT/path``; its path with the project."""
        with self._lock:
            self._ids += 1
            full = f"projects/{PROJECT}/{path}"
            parts = path.split("/")
            place = {parts[0][:-1]: f"{URL}/projects/{PROJECT}/{parts[0]}/{parts[1]}"} if len(parts) == 4 else {}
            self.things[full] = {
                "id": str(7_000_000_000_000_000_000 + self._ids),
                "name": parts[-1],
                "selfLink": f"{URL}/{full}",
                "creationTimestamp": "2026-11-21T09:00:00.000-08:00",
                **place,
                **fields,
            }
            return full

    def machine(self, name: str, labels: Mapping[str, str], zone: str = ZONES[0], **fields: Any) -> str:
        """An instance and its boot disk; its path."""
        disk = self.add(f"zones/{zone}/disks/{name}", labels=dict(labels), sizeGb="200")
        boot = {"source": f"{URL}/{disk}", "autoDelete": True, "boot": True}
        kind = f"{URL}/projects/{PROJECT}/zones/{zone}/machineTypes/a3-highgpu-8g"
        return self.add(
            f"zones/{zone}/instances/{name}",
            **{"labels": dict(labels), "status": "RUNNING", "machineType": kind, "disks": [boot], **fields},
        )

    def machines(self) -> set[str]:
        with self._lock:
            return {path for path in self.things if "/instances/" in path}

    def remove(self, path: str) -> None:
        """Ends a thing, and the disks that go with it."""
        row = self.things.pop(path, {})
        for disk in row.get("disks", ()):
            if disk["autoDelete"]:
                self.things.pop(disk["source"].removeprefix(f"{URL}/"), None)

    def _answer(self, request: Request) -> Response:
        method, path = request.method, request.path
        self.calls.append(f"{method} {path.removeprefix(_ROOT)}")
        self.queries.append(request.args.to_dict())
        for start, (status, reason) in self.refusals.items():
            if self.calls[-1].startswith(start) and self.times.get(start, 1) > 0:
                if start in self.times:
                    self.times[start] -= 1
                return _refused(status, reason)
        if found := re.fullmatch(rf"{_ROOT}/aggregated/(\w+)", path):
            return self._aggregated(request, found[1])
        if found := re.fullmatch(rf"{_ROOT}/global/(networks|firewalls)", path):
            return self._page(request, [row for p, row in self._under(f"global/{found[1]}/")])
        if found := re.fullmatch(rf"{_ROOT}/zones/([^/]+)/operations/([^/]+)", path):
            return self._operation(found[2])
        if found := re.fullmatch(rf"{_ROOT}/(zones/[^/]+/(?:instances|disks))/([^/]+)", path):
            return self._single(method, f"projects/{PROJECT}/{found[1]}/", found[2])
        return _refused(404, "notFound")

    def _under(self, folder: str) -> list[tuple[str, Row]]:
        return sorted((path, row) for path, row in self.things.items() if f"{PROJECT}/{folder}" in path)

    def _aggregated(self, request: Request, kind: str) -> Response:
        """A scope a page entry; a filter on a label is kept to, a page holds two scopes."""
        scopes = _SCOPES[kind]
        names = sorted({zone.rpartition("-")[0] if scopes == "regions" else zone for zone in ZONES})
        begin = int(request.args.get("pageToken") or 0)
        label = re.fullmatch(r"labels\.(\w+):\*", request.args.get("filter", ""))
        items: dict[str, Row] = {}
        for name in names[begin : begin + _PAGE]:
            rows = [row for _, row in self._under(f"{scopes}/{name}/{kind}/")]
            rows = [row for row in rows if label is None or label[1] in row.get("labels", {})]
            items[f"{scopes}/{name}"] = {kind: rows} if rows else {"warning": {"code": "NO_RESULTS_ON_PAGE"}}
            if name in self.silent:
                items[f"{scopes}/{name}"] = {"warning": {"code": "UNREACHABLE"}}
        following = {"nextPageToken": str(begin + _PAGE)} if begin + _PAGE < len(names) else {}
        return _json({"items": items, **following})

    def _page(self, request: Request, rows: Sequence[Row]) -> Response:
        begin = int(request.args.get("pageToken") or 0)
        following = {"nextPageToken": str(begin + _PAGE)} if begin + _PAGE < len(rows) else {}
        return _json({"items": list(rows[begin : begin + _PAGE]), **following})

    def _single(self, method: str, folder: str, name: str) -> Response:
        path = next(
            (p for p, row in self.things.items() if p.startswith(folder) and name in (row["name"], row["id"])), ""
        )
        if not path:
            return _refused(404, "notFound")
        if method == "GET":
            return _json(self.things[path])
        operation = f"operation-{len(self._operations)}"
        self._operations[operation] = (path, self.polls)
        return _json(self._state(operation))

    def _operation(self, name: str) -> Response:
        path, polls = self._operations[name]
        self._operations[name] = (path, polls - 1)
        return _json(self._state(name))

    def _state(self, name: str) -> Row:
        path, polls = self._operations[name]
        row: Row = {"id": "1", "name": name, "operationType": "delete", "status": "RUNNING"}
        thing = path.rpartition("/")[2]
        if polls > 0:
            if path in self.things and "status" in self.things[path]:
                self.things[path]["status"] = "STOPPING"
            return row
        if thing in self.failing:
            errors = [{"code": self.failing[thing], "message": "no"}]
            return {**row, "status": "DONE", "error": {"errors": errors}, "httpErrorStatusCode": 400}
        self.remove(path)
        return {**row, "status": "DONE"}


def labels_of(attempt: str, state: str, rank: int | None = None) -> dict[str, str]:
    labels = {"stepfare_attempt": attempt, "stepfare_state": state, "team": "research"}
    return labels if rank is None else {**labels, "stepfare_rank": str(rank)}


def _json(content: object) -> Response:
    return Response(json.dumps(content), mimetype="application/json")


def _refused(status: int, reason: str) -> Response:
    error = {"code": status, "message": "refused", "errors": [{"reason": reason, "domain": "global"}]}
    return Response(json.dumps({"error": error}), status, mimetype="application/json")


@contextmanager
def project() -> Iterator[tuple[Project, str]]:
    """An empty project, served while the block runs."""
    app = Project()
    served: WSGIApplication = app
    with in_thread(served) as url:
        yield app, url
