"""Compute Engine and the Cloud Billing catalogue on this machine: a WSGI app in the real wire formats.

Faults are worded as the real services word them: Compute Engine answers ``error.errors[].reason``, the catalogue
google.rpc ``status`` and ``details`` (https://cloud.google.com/apis/design/errors). Both forms are in every answer.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn, cast
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from werkzeug.wrappers import Request, Response

from pricing.book_file import embedded_book
from providers.caller import Caller
from providers.gcp.provider import GcpProvider
from providers.registry import open_provider
from providers.session import Session, Settings
from tests.support.gcp_service_data import (
    COMPUTE_URL,
    PROJECT,
    Row,
    accelerator_types,
    machine_types,
    new_types,
    preemption_records,
    quotas,
    region_names,
    sku_rows,
    unit_price,
)
from tests.support.service import CALL_LIMIT_S, READ_LIMIT_S, Fault, Faults, in_thread

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
SMALL: dict[str, Any] = {"regions": ["us-central1"], "cpu_types": 5, "skus": 300}


def session_at(url: str, *, attempts: int = 3, read_timeout_s: float = READ_LIMIT_S, **settings: Any) -> Session:
    """A session whose two endpoints are ``url``."""
    merged: dict[str, Any] = {
        "endpoints": {"compute": url, "billing": url},
        "options": {"project": PROJECT},
        "read_timeout_s": read_timeout_s,
        **settings,
    }
    return Session(Settings(**merged), embedded_book(), NOW, Caller("gcp", CALL_LIMIT_S, attempts=attempts))


def provider_at(url: str, **settings: Any) -> GcpProvider:
    return cast(GcpProvider, open_provider("gcp", session_at(url, **settings)))


@contextmanager
def serving(*faults: dict[str, Any], attempts: int = 3, **options: Any) -> Iterator[tuple[GcpProvider, GcpService]]:
    """A provider on a small service with these faults."""
    app = cast(GcpService, make_app(**{**SMALL, "faults": list(faults), **options}))
    with in_thread(app) as url:
        yield provider_at(url, attempts=attempts), app


# kind: HTTP status, errors[].reason, status, details[].reason, message
ANSWERS = {
    "throttle": (429, "rateLimitExceeded", "RESOURCE_EXHAUSTED", "RATE_LIMIT_EXCEEDED", "Rate Limit Exceeded"),
    "error500": (503, "backendError", "UNAVAILABLE", "", "Backend Error"),
    "expired_token": (401, "authError", "UNAUTHENTICATED", "", "Invalid Credentials"),
    "forbidden": (403, "forbidden", "PERMISSION_DENIED", "IAM_PERMISSION_DENIED", "Required permission is missing"),
    "api_off": (403, "accessNotConfigured", "PERMISSION_DENIED", "SERVICE_DISABLED", "API has not been used"),
    "region_off": (
        403,
        "forbidden",
        "PERMISSION_DENIED",
        "",
        "Permission denied on 'locations/x' (or it may not exist).",
    ),
    "invalid": (400, "invalid", "INVALID_ARGUMENT", "", "Invalid value for field 'machineType'"),
    "not_found": (404, "notFound", "NOT_FOUND", "", "Machine type is not found"),
}


def answer(fault: Fault) -> Response | None:
    """An error answer, or None where the right one is spoilt instead."""
    if fault["kind"] not in ANSWERS:
        return None
    status, reason, word, detail, message = ANSWERS[fault["kind"]]
    error: dict[str, Any] = {
        "code": status,
        "message": message,
        "errors": [{"message": message, "domain": "global", "reason": reason}],
        "status": word,
    }
    if detail:
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        error["details"] = [{"@type": kind, "reason": detail, "domain": "googleapis.com"}]
    response = Response(json.dumps({"error": error}), status, mimetype="application/json")
    if "retry_after" in fault:
        response.headers["Retry-After"] = f"{fault['retry_after']:g}"
    return response


def spoil(fault: Fault, response: Response, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    if fault["kind"] == "bad_json":
        body = response.get_data()
        response.set_data(body[: len(body) // 2] + b'"}}')
    elif fault["kind"] == "half_page":
        return _cut(response, environ, start_response)
    elif fault["kind"] == "drop_connection":
        _hang_up(environ)
    return response(environ, start_response)


def _cut(response: Response, environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
    """Promises the whole body, sends half of it and hangs up."""
    body = response.get_data()
    response.headers["Content-Length"] = str(len(body))
    start_response(response.status, list(response.headers))
    yield body[: len(body) // 2]
    _hang_up(environ)


def _hang_up(environ: WSGIEnvironment) -> NoReturn:
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionResetError  # which the server takes for a client that went away


Handler = Callable[["GcpService", Request, "re.Match[str]"], bytes]
_PROJECT_PATH = r"/compute/v1/projects/[^/]+"
_DATA_FAULTS = ("price_zero", "duplicate", "currency", "new_type", "odd_share")
_LEAN = re.compile(r"skus\((.*)\)")


def make_app(
    *,
    regions: int | list[str] = 40,
    zones: int = 3,
    cpu_types: int = 400,
    skus: int = 30_000,
    latency_s: float = 0.0,
    faults: list[Row] | None = None,
    now: str | None = None,
    filters: bool = True,
    page_size: int = 500,
    sku_page_size: int = 5000,
) -> WSGIApplication:
    """``now`` sets the clock of answers (else this machine's); ``filters`` False ignores filters and field masks, as
    a service may; the page sizes are the largest that are given. Data faults match a SKU's description, a region in
    it or a zone, or a machine type of which shares are asked; the others ``ACTION METHOD PATH?QUERY TYPES``."""
    return GcpService(regions, zones, cpu_types, skus, latency_s, faults or [], now, filters, page_size, sku_page_size)


class GcpService:
    """See :func:`make_app`. ``seen`` lists every call as (method, path)."""

    def __init__(
        self,
        regions: int | list[str],
        zones: int,
        cpu_types: int,
        skus: int,
        latency_s: float,
        faults: list[Row],
        now: str | None,
        filters: bool,
        page_size: int,
        sku_page_size: int,
    ) -> None:
        self.regions = region_names(regions)
        self.zones = {f"{r}-{'abcdefgh'[n]}": (r, n) for r in self.regions for n in range(zones)}
        self.cpu_types, self.sku_total, self.latency_s = cpu_types, skus, latency_s
        self.data_faults = [f for f in faults if f["kind"] in _DATA_FAULTS]
        self.faults = Faults([fault for fault in faults if fault["kind"] not in _DATA_FAULTS])
        self.began, self.now = time.monotonic(), None if now is None else datetime.fromisoformat(now)
        self.filters, self.page_size, self.sku_page_size = filters, page_size, sku_page_size
        self.seen: list[tuple[str, str]] = []
        self.bodies: list[Any] = []
        self.calls: dict[str, int] = {}
        self.preempted: list[Row] = []
        self._skus: list[Row] | None = None
        self._rendered: dict[tuple[object, ...], bytes] = {}

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        if request.path == "/_calls":
            return Response(json.dumps(self.calls), mimetype="application/json")(environ, start_response)
        action, handler, match = next(
            ((name, handler, found) for name, path, handler in ROUTES if (found := re.fullmatch(path, request.path))),
            ("unknown", _unknown, re.match("", "")),
        )
        assert match is not None
        self.calls[action] = self.calls.get(action, 0) + 1
        self.seen.append((request.method, request.path))
        if request.method == "POST":
            self.bodies.append(json.loads(request.get_data()))
        if self.latency_s:
            time.sleep(self.latency_s)
        kinds = " ".join(json.loads(request.get_data()).get("types", ())) if request.method == "POST" else ""
        fault = self.faults.first(f"{action} {request.method} {request.full_path} {kinds}")
        response = None if fault is None else answer(fault)
        if response is None:
            try:
                response = Response(handler(self, request, match), mimetype="application/json")
            except LookupError as error:
                response = not_found(str(error.args[0]))
        ahead = timedelta(seconds=fault.get("seconds", 600) if fault is not None and fault["kind"] == "clock" else 0)
        if self.now is not None:
            response.date = self.now + timedelta(seconds=time.monotonic() - self.began) + ahead
        elif ahead:
            response.date = datetime.now(UTC) + ahead
        return response(environ, start_response) if fault is None else spoil(fault, response, environ, start_response)

    def once(self, key: tuple[object, ...], render: Callable[[], object]) -> bytes:
        """Pages are made once, so that a big service answers at the speed of its socket."""
        if key not in self._rendered:
            self._rendered[key] = json.dumps(render(), separators=(",", ":")).encode()
        return self._rendered[key]

    def region_of(self, zone: str) -> tuple[str, int]:
        if zone not in self.zones:
            raise LookupError(f"The resource 'projects/{PROJECT}/zones/{zone}' was not found")
        return self.zones[zone]

    @property
    def all_skus(self) -> list[Row]:
        if self._skus is None:
            self._skus = [row for sku in sku_rows(self.regions, self.sku_total) for row in self._spoilt(sku)]
        return self._skus

    def _spoilt(self, sku: Row) -> list[Row]:
        rows = [sku]
        for fault in self.data_faults:
            if fault["match"] not in sku["description"] and fault["match"] not in sku["serviceRegions"]:
                continue
            tier = sku["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]
            price = tier["unitPrice"]
            nanos = int(price["units"]) * 10**9 + price["nanos"]
            if fault["kind"] == "price_zero":
                tier["unitPrice"] = unit_price(0)
            elif fault["kind"] == "currency":
                tier["unitPrice"] = unit_price(nanos, "EUR")
            elif fault["kind"] == "duplicate":
                twin = json.loads(json.dumps(sku))
                other = twin["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]
                other["unitPrice"] = unit_price(nanos + int(fault.get("more", 1)))
                rows.append({**twin, "skuId": f"{sku['skuId'][:-1]}X"})
        return rows


def _paged(
    service: GcpService, request: Request, key: tuple[object, ...], rows: Callable[[], list[Row]], kind: str
) -> bytes:
    size = min(request.args.get("maxResults", 500, type=int), service.page_size)
    begin = int((request.args.get("pageToken") or "p0")[1:])

    def render() -> Row:
        found = rows()
        page: Row = {"kind": kind, "id": "projects/a", "items": found[begin : begin + size], "selfLink": request.path}
        return {**page, "nextPageToken": f"p{begin + size}"} if begin + size < len(found) else page

    return service.once((*key, begin, size), render)


def _regions(service: GcpService, request: Request, _: re.Match[str]) -> bytes:
    def rows() -> list[Row]:
        zones = {name: [z for z, (r, _) in service.zones.items() if r == name] for name in service.regions}
        return [
            {
                "kind": "compute#region",
                "id": str(1000 + n),
                "name": name,
                "status": "UP",
                "zones": [f"{COMPUTE_URL}/projects/{PROJECT}/zones/{zone}" for zone in zones[name]],
                "quotas": quotas(name),
            }
            for n, name in enumerate(service.regions)
        ]

    return _paged(service, request, ("regions",), rows, "compute#regionList")


def _machine_types(service: GcpService, request: Request, match: re.Match[str]) -> bytes:
    zone = match["zone"]
    region, index = service.region_of(zone)
    wanted = request.args.get("filter", "") if service.filters else ""
    pattern = re.fullmatch(r'name eq "(.*)"', wanted)

    def rows() -> list[Row]:
        found = machine_types(region, zone, index, service.cpu_types)
        if any(f["kind"] == "new_type" and f["match"] in zone for f in service.data_faults):
            found += new_types(zone)
        return [row for row in found if pattern is None or re.fullmatch(pattern[1], row["name"])]

    return _paged(service, request, ("types", zone, wanted), rows, "compute#machineTypeList")


def _aggregated(
    service: GcpService, request: Request, name: str, by_zone: Callable[[str, str, int], list[Row]]
) -> bytes:
    """One entry a zone, most of them empty but for a warning, as the real lists are; paged by zones."""
    size = min(request.args.get("maxResults", 500, type=int), service.page_size)
    begin = int((request.args.get("pageToken") or "p0")[1:])

    def render() -> Row:
        zones = sorted(service.zones)
        empty = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results for scope on this page."}}
        items = {}
        for zone in zones[begin : begin + size]:
            found = by_zone(zone, *service.zones[zone])
            items[f"zones/{zone}"] = {name: found} if found else empty
        page: Row = {"kind": f"compute#{name}AggregatedList", "id": "projects/a", "items": items}
        return {**page, "nextPageToken": f"p{begin + size}"} if begin + size < len(zones) else page

    return service.once(("aggregated", name, begin, size, len(service.preempted)), render)


def _accelerator_types(service: GcpService, request: Request, _: re.Match[str]) -> bytes:
    return _aggregated(service, request, "acceleratorTypes", lambda zone, r, n: accelerator_types(r, zone, n))


def _reservations(service: GcpService, request: Request, _: re.Match[str]) -> bytes:
    def by_zone(zone: str, region: str, index: int) -> list[Row]:
        if index:
            return []
        properties = {"machineType": "a3-highgpu-8g", "minCpuPlatform": ""}
        return [
            {
                "kind": "compute#reservation",
                "id": "77",
                "name": f"gang-{n}",
                "zone": f"{COMPUTE_URL}/projects/{PROJECT}/zones/{zone}",
                "status": status,
                "creationTimestamp": "2026-10-01T00:00:00.000-07:00",
                "specificReservation": {"count": "4", "inUseCount": "1", "instanceProperties": properties},
            }
            for n, status in enumerate(("READY", "DELETING"))
        ]

    return _aggregated(service, request, "reservations", by_zone)


def _operations(service: GcpService, request: Request, _: re.Match[str]) -> bytes:
    return _aggregated(
        service, request, "operations", lambda zone, r, n: [o for o in service.preempted if o["zone"].endswith(zone)]
    )


def _project(service: GcpService, request: Request, _: re.Match[str]) -> bytes:
    rows = [{"metric": "GPUS_ALL_REGIONS", "limit": 128.0, "usage": 16.0}, {"metric": "NETWORKS", "limit": 5.0}]
    return service.once(("project",), lambda: {"kind": "compute#project", "name": PROJECT, "quotas": rows})


def _capacity(service: GcpService, request: Request, match: re.Match[str]) -> bytes:
    body = json.loads(request.get_data())
    machine_type = body["instanceFlexibilityPolicy"]["instanceSelections"]["wanted"]["machineTypes"][0]
    score = round(1 / (1 + int(body["size"]) / 8), 4)
    shard = {"zone": f"{match['region']}-b", "machineType": machine_type, "instanceCount": body["size"]}
    scores = {"obtainability": score, "estimatedUptime": "3600s"}
    return json.dumps({"recommendations": [{"scores": scores, "shards": [shard]}]}).encode()


def _history(service: GcpService, request: Request, match: re.Match[str]) -> bytes:
    """Prices by the month, in Pacific days, the newest open to today; or shares of preempted machines, by the day."""
    body = json.loads(request.get_data())
    machine_type = body["instanceProperties"]["machineType"]
    if body["types"] == ["PREEMPTION"]:
        return _shares(service, body["locationPolicy"]["location"], machine_type)

    def render() -> Row:
        starts = [f"2026-{month:02d}-01T08:00:00Z" for month in (8, 9, 10, 11)]
        ends = [*starts[1:], "2026-11-22T08:00:00Z"]
        base = 1_000_000_000 + sum(machine_type.encode()) * 10**6
        records = [
            {"interval": {"startTime": start, "endTime": end}, "listPrice": unit_price(base + n)}
            for n, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]
        return {"machineType": machine_type, "location": f"regions/{match['region']}", "priceHistory": records}

    return service.once(("history", match["region"], machine_type), render)


def _shares(service: GcpService, location: str, machine_type: str) -> bytes:
    zone = location.removeprefix("zones/")
    service.region_of(zone)

    def render() -> Row:
        records = preemption_records(zone, machine_type)
        for fault in service.data_faults:
            if fault["kind"] == "odd_share" and fault["match"] in f"{zone} {machine_type}":
                records[0] = {**records[0], "preemptionRate": 1.5}
        return {"machineType": machine_type, "location": location, "preemptionHistory": records}

    return service.once(("shares", zone, machine_type), render)


def _sku_list(service: GcpService, request: Request, _: re.Match[str]) -> bytes:
    size = min(request.args.get("pageSize", 5000, type=int), service.sku_page_size)
    begin = int((request.args.get("pageToken") or "p0")[1:])
    lean = service.filters and bool(_LEAN.search(request.args.get("fields", "")))

    def render() -> Row:
        page = service.all_skus[begin : begin + size]
        rows = [_lean(row) for row in page] if lean else page
        token = f"p{begin + size}" if begin + size < len(service.all_skus) else ""
        return {"skus": rows, "nextPageToken": token}

    return service.once(("skus", begin, size, lean), render)


def _lean(sku: Row) -> Row:
    info = sku["pricingInfo"][0]
    expression = {name: info["pricingExpression"][name] for name in ("usageUnit", "tieredRates")}
    return {
        **{name: sku[name] for name in ("skuId", "description", "serviceRegions")},
        "category": {"usageType": sku["category"]["usageType"]},
        "pricingInfo": [{"effectiveTime": info["effectiveTime"], "pricingExpression": expression}],
    }


def _unknown(service: GcpService, request: Request, _: re.Match[str]) -> bytes:
    raise LookupError(f"no such method: {request.path}")


def not_found(message: str) -> Response:
    error = {
        "code": 404,
        "message": message,
        "errors": [{"message": message, "domain": "global", "reason": "notFound"}],
    }
    return Response(json.dumps({"error": error}), 404, mimetype="application/json")


ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("regions.list", rf"{_PROJECT_PATH}/regions", _regions),
    ("machineTypes.list", rf"{_PROJECT_PATH}/zones/(?P<zone>[^/]+)/machineTypes", _machine_types),
    ("acceleratorTypes.aggregatedList", rf"{_PROJECT_PATH}/aggregated/acceleratorTypes", _accelerator_types),
    ("reservations.aggregatedList", rf"{_PROJECT_PATH}/aggregated/reservations", _reservations),
    ("globalOperations.aggregatedList", rf"{_PROJECT_PATH}/aggregated/operations", _operations),
    ("projects.get", _PROJECT_PATH, _project),
    ("advice.capacity", rf"{_PROJECT_PATH}/regions/(?P<region>[^/]+)/advice/capacity", _capacity),
    ("advice.capacityHistory", rf"{_PROJECT_PATH}/regions/(?P<region>[^/]+)/advice/capacityHistory", _history),
    ("services.skus.list", r"/v1/services/6F81-5844-456A/skus", _sku_list),
)
