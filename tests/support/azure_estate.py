"""An Azure subscription with machines in it: the part of Resource Manager that finds and ends them. Lists of machines
write the name of their resource group in capitals, as the real ones do; what is ended is there, ``Deleting``, for
``polls`` more requests."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from werkzeug.wrappers import Request, Response

from tests.support.service import in_thread

Row = dict[str, Any]
SUBSCRIPTION = "00000000-0000-0000-0000-0000000000aa"
_ROOT = f"/subscriptions/{SUBSCRIPTION}"
_GROUP = re.compile(rf"{_ROOT}/resourcegroups/([^/]+)", re.IGNORECASE)
_MACHINES = "/providers/Microsoft.Compute/virtualMachines"
_SETS = "/providers/Microsoft.Compute/virtualMachineScaleSets"
_PAGE = 2


class Subscription:
    """A WSGI app. ``things``: by id in small letters. ``refusals``: "METHOD path" by its beginning, in small letters ->
    (status, code)."""

    def __init__(self) -> None:
        self.things: dict[str, Row] = {}
        self.refusals: dict[str, tuple[int, str]] = {}
        self.times: dict[str, int] = {}
        self.polls = 0
        self.calls: list[str] = []
        self.queries: list[Mapping[str, str]] = []
        self._going: dict[str, int] = {}
        self._lock = threading.RLock()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        with self._lock:
            response = self._answer(request)
        return response(environ, start_response)

    def group(self, name: str, tags: Mapping[str, str], location: str = "eastus") -> str:
        """A resource group; its id."""
        return self._add(f"{_ROOT}/resourceGroups/{name}", tags, location=location)

    def machine(self, group: str, name: str, tags: Mapping[str, str], location: str = "eastus", **more: Any) -> str:
        """A machine of its own; its id."""
        properties = {"hardwareProfile": {"vmSize": "Standard_NC40ads_H100_v5"}}
        id_ = f"{_ROOT}/resourceGroups/{group}{_MACHINES}/{name}"
        return self._add(id_, tags, properties, location=location, zones=["2"], **more)

    def scale_set(self, group: str, name: str, tags: Mapping[str, str], machines: int) -> list[str]:
        """A scale set; the ids of its machines."""
        id_ = self._add(
            f"{_ROOT}/resourceGroups/{group}{_SETS}/{name}",
            tags,
            location="eastus",
            sku={"name": "Standard_ND96isr_H100_v5", "capacity": machines},
        )
        members = [f"{id_}/virtualMachines/{number}" for number in range(machines)]
        for number, member in enumerate(members):
            self._add(member, {}, instanceId=str(number))
        return members

    def machines(self) -> set[str]:
        with self._lock:
            return {row["id"] for id_, row in self.things.items() if "/virtualmachines/" in id_}

    def remove(self, id_: str) -> None:
        """Ends a thing with all that is in it."""
        with self._lock:
            for one in [one for one in self.things if f"{one}/".startswith(f"{id_.lower()}/")]:
                del self.things[one]

    def _add(
        self, id_: str, tags: Mapping[str, str], properties: Mapping[str, Any] | None = None, **fields: Any
    ) -> str:
        state = {"provisioningState": "Succeeded", "timeCreated": "2026-11-21T17:00:00.1234567+00:00"}
        row = {"id": id_, "name": id_.rpartition("/")[2], "tags": dict(tags)}
        self.things[id_.lower()] = {**row, **fields, "properties": {**state, **(properties or {})}}
        return id_

    def _answer(self, request: Request) -> Response:
        method, path = request.method, request.path.lower()
        self.calls.append(f"{method} {path.removeprefix(_ROOT)}")
        self.queries.append(request.args.to_dict())
        if not request.headers.get("Authorization", "").startswith("Bearer ") or "api-version" not in request.args:
            return _refused(401, "AuthenticationFailed")
        for start, (status, code) in self.refusals.items():
            if self.calls[-1].startswith(start) and self.times.get(start, 1) > 0:
                if start in self.times:
                    self.times[start] -= 1
                return _refused(status, code)
        self._pass()
        if method == "GET" and path == f"{_ROOT}/resourcegroups":
            return self._listed(request, [row for id_, row in self._sorted() if _GROUP.fullmatch(id_)])
        for kind in (_MACHINES, _SETS):
            if method == "GET" and path == f"{_ROOT}{kind}".lower():
                rows = [row for id_, row in self._sorted() if id_.split("/")[5:] and id_.count("/") == 8]
                rows = [_shouted(row) for row in rows if f"{kind}/".lower() in row["id"].lower()]
                return self._listed(request, rows)
        if method == "GET" and path.endswith("/virtualmachines"):
            return self._listed(request, [row for id_, row in self._sorted() if id_.startswith(f"{path}/")])
        return self._single(method, path)

    def _single(self, method: str, path: str) -> Response:
        if path not in self.things:
            code = "ResourceGroupNotFound" if _GROUP.fullmatch(path) else "ResourceNotFound"
            return (
                Response(status=204) if method == "DELETE" and code != "ResourceGroupNotFound" else _refused(404, code)
            )
        if method == "DELETE":
            if self.polls:
                self._going[path] = self.polls
                self.things[path]["properties"]["provisioningState"] = "Deleting"
            else:
                self.remove(path)
            return Response(status=202, headers={"Location": "https://management.azure.com/nowhere"})
        return _json(self.things[path])

    def _pass(self) -> None:
        for id_ in list(self._going):
            self._going[id_] -= 1
            if self._going[id_] < 0:
                del self._going[id_]
                self.remove(id_)

    def _sorted(self) -> list[tuple[str, Row]]:
        return sorted(self.things.items())

    def _listed(self, request: Request, rows: list[Row]) -> Response:
        begin = int(request.args.get("$skiptoken") or 0)
        page: Row = {"value": rows[begin : begin + _PAGE]}
        if begin + _PAGE < len(rows):
            page["nextLink"] = f"{request.base_url}?api-version=x&$skiptoken={begin + _PAGE}"
        return _json(page)


def tags_of(attempt: str, state: str, rank: int | None = None) -> dict[str, str]:
    tags = {"stepfare_attempt": attempt, "stepfare_state": state, "team": "research"}
    return tags if rank is None else {**tags, "stepfare_rank": str(rank)}


def _shouted(row: Row) -> Row:
    return {**row, "id": re.sub(r"(?<=/resourceGroups/)[^/]+", lambda name: name[0].upper(), row["id"])}


def _json(content: object) -> Response:
    return Response(json.dumps(content), mimetype="application/json")


def _refused(status: int, code: str) -> Response:
    return Response(json.dumps({"error": {"code": code, "message": "no"}}), status, mimetype="application/json")


@contextmanager
def subscription() -> Iterator[tuple[Subscription, str]]:
    """An empty subscription, served while the block runs."""
    app = Subscription()
    with in_thread(app) as url:
        yield app, url
