"""A local service that speaks the Retail Prices API and the part of Azure Resource Manager that is read.

``GET /_calls`` tells how often each action was called. Answers are rendered once and kept as bytes.
"""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from typing import Any, NoReturn
from urllib.parse import parse_qs, unquote
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from pricing.book_file import embedded_book
from tests.support import azure_service_rows as rows
from tests.support.service import Fault, Faults

# Faults that answer instead of the service, and those that change what it answers.
INSTEAD = frozenset(
    {
        "throttle", "error500", "error503", "expired_token", "forbidden", "region_off", "unregistered", "not_found",
        "drop_connection",
    }
)  # fmt: skip
# The Retail Prices API knows no accounts.
OF_ACCOUNTS = frozenset({"expired_token", "forbidden", "region_off", "unregistered", "not_found"})
BODY = frozenset({"half_page", "bad_json", "not_a_page", "astray", "circle"})
ROWS = frozenset(
    {"price_zero", "duplicate", "currency", "new_type", "future", "odd_row", "odd_rate", "two_rates", "empty"}
)
HEADERS = frozenset({"clock"})


# (status, code, message) as Azure Resource Manager words them: "Troubleshoot common Azure deployment errors" and
# "Understand how Azure Resource Manager throttles requests", Microsoft Learn.
ARM_ERRORS: Mapping[str, tuple[str, str, str]] = {
    "throttle": ("429 Too Many Requests", "TooManyRequests", "The request was throttled."),
    "error500": ("500 Internal Server Error", "InternalServerError", "Encountered internal server error."),
    "error503": ("503 Service Unavailable", "ServiceUnavailable", "The service is temporarily unavailable."),
    "expired_token": (
        "401 Unauthorized",
        "ExpiredAuthenticationToken",
        "The access token expiry UTC time '11/21/2026 5:00:00 PM' is earlier than current UTC time.",
    ),
    "forbidden": (
        "403 Forbidden",
        "AuthorizationFailed",
        "The client 'someone' does not have authorization to perform action over scope '/subscriptions/...'.",
    ),
    "region_off": (
        "400 Bad Request",
        "LocationNotAvailableForResourceType",
        "The provided location is not available for resource type 'Microsoft.Compute/skus'.",
    ),
    "unregistered": (
        "409 Conflict",
        "MissingSubscriptionRegistration",
        "The subscription is not registered to use namespace 'Microsoft.Compute'.",
    ),
    "not_found": (
        "404 Not Found",
        "SubscriptionNotFound",
        "The subscription 'x' could not be found.",
    ),
}


SUBSCRIPTION = "00000000-0000-0000-0000-0000000000aa"
RETAIL = "RetailPrices"
GRAPH, GRAPH_PATH = "Microsoft.ResourceGraph/resources/read", "/providers/Microsoft.ResourceGraph/resources"
_ASKED_PLACES = re.compile(r"location in~ \(([^)]*)\)")
_ARM = f"/subscriptions/{SUBSCRIPTION}"
_COMPUTE = r"(?P<rg>/resourceGroups/[^/]+)?/providers/Microsoft\.Compute"
# Path -> the action that Azure asks of the caller: "Azure permissions for Compute" and "for Management and
# governance", Microsoft Learn.
ACTIONS = (
    (r"/locations", "Microsoft.Resources/subscriptions/locations/read"),
    (_COMPUTE + r"/skus", "Microsoft.Compute/skus/read"),
    (_COMPUTE + r"/locations/(?P<region>\w+)/usages", "Microsoft.Compute/locations/usages/read"),
    (_COMPUTE + r"/capacityReservationGroups(/(?P<group>[^/]+))?", "Microsoft.Compute/capacityReservationGroups/read"),
    (
        _COMPUTE + r"/capacityReservationGroups/(?P<group>[^/]+)/capacityReservations",
        "Microsoft.Compute/capacityReservationGroups/capacityReservations/read",
    ),
)
_CLAUSE = re.compile(r"(?:(\w+) eq '([^']*)'|contains\((\w+), '([^']*)'\))")
_COLUMNS = {"priceType": "type"}


def make_app(
    *,
    regions: int | Sequence[str] = 40,
    price_rows: int = 2000,
    sku_rows: int = 1200,
    price_page: int = 1000,
    sku_page: int = 500,
    graph_page: int = 1000,
    latency_s: float = 0.0,
    now: str | None = None,
    faults: Sequence[Mapping[str, Any]] = (),
) -> WSGIApplication:
    """``regions``: their names, or how many of the price book's; ``price_rows`` and ``sku_rows`` of each, most of
    them without accelerators; ``now`` sets the clock (ISO 8601), else it is the true time."""
    known = sorted(r.id.region for r in embedded_book().regions if r.id.cloud == "azure")
    names = known[:regions] if isinstance(regions, int) else list(regions)
    begin = time.monotonic()
    sizes = {"price_rows": price_rows, "sku_rows": sku_rows, "price_page": price_page, "sku_page": sku_page}
    sizes["graph_page"] = graph_page
    clock = None if now is None else datetime.fromisoformat(now) - timedelta(seconds=begin)
    assert {fault["kind"] for fault in faults} <= INSTEAD | BODY | ROWS | HEADERS
    return _Service(names, sizes, latency_s, clock, Faults(faults))


class _Service:
    def __init__(
        self, names: list[str], sizes: Mapping[str, int], latency_s: float, clock: datetime | None, faults: Faults
    ) -> None:
        self._names = names
        self._sizes = sizes
        self._latency_s = latency_s
        self._clock = clock
        self._faults = faults
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._pages: dict[tuple[str, ...], bytes] = {}

    def __call__(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path, query = environ["PATH_INFO"], parse_qs(environ.get("QUERY_STRING", ""))
        if path == "/_calls":
            with self._lock:
                calls = json.dumps(self._calls).encode()
            return self._send(environ, start, "200 OK", calls)
        action, parts = _action(path)
        with self._lock:
            self._calls[action] += 1
        time.sleep(self._latency_s)
        asked = unquote(environ.get("QUERY_STRING", ""))
        region = parts.get("region") or next(iter(re.findall(r"(?:armRegionName|location) eq '(\w+)'", asked)), "")
        faults = self._faults.met_by(f"{action} {path} {asked} {region}")
        if action == RETAIL:
            faults = [fault for fault in faults if fault["kind"] not in OF_ACCOUNTS]
        if any(fault["kind"] in INSTEAD for fault in faults):
            return self._instead(environ, start, action, faults)
        if action != RETAIL and not environ.get("HTTP_AUTHORIZATION", "").startswith("Bearer "):
            body = _error_body("AuthenticationFailed", "Authentication failed.")
            return self._send(environ, start, "401 Unauthorized", body)
        here = f"http://{environ['HTTP_HOST']}"
        changes = tuple(fault["kind"] for fault in faults if fault["kind"] in ROWS)
        if action == GRAPH:
            sent = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return self._send(environ, start, *self._graph(json.loads(sent), changes), faults)
        status, body = self._answer(action, parts, query, region, here, changes)
        return self._send(environ, start, status, body, faults)

    def _answer(
        self,
        action: str,
        parts: Mapping[str, str],
        query: Mapping[str, list[str]],
        region: str,
        here: str,
        changes: tuple[str, ...],
    ) -> tuple[str, bytes]:
        if action == "unknown":
            return "404 Not Found", _error_body("ResourceNotFound", "no such path")
        if action == RETAIL:
            return self._prices(query, here, changes)
        if region and region not in self._names:
            return "200 OK", b'{"value":[]}'
        if action == "Microsoft.Compute/skus/read":
            return "200 OK", self._skus(region, query, here, changes)
        key = (action, region, parts.get("group", ""))
        if key not in self._pages:
            self._pages[key] = _dumps(self._small(action, parts, region))
        return "200 OK", self._pages[key]

    def _small(self, action: str, parts: Mapping[str, str], region: str) -> Any:
        group = parts.get("group", "")
        if action.endswith("subscriptions/locations/read"):
            physical = {"regionType": "Physical", "regionCategory": "Recommended"}
            places = [{"name": name, "displayName": name, "metadata": physical} for name in self._names]
            return {"value": [*places, {"name": "europe", "metadata": {"regionType": "Logical"}}]}
        if action.endswith("usages/read"):
            return {"value": list(rows.usage_rows(self._names.index(region)))}
        groups = rows.group_rows(SUBSCRIPTION, self._names)
        if not group:
            return {"value": groups}
        found = next(g for g in groups if g["name"] == group)
        if action.endswith("capacityReservations/read"):
            return {"value": rows.reservation_rows(group, found["location"])}
        return {**found, "properties": {**found["properties"], "instanceView": rows.instance_view(group)}}

    def _prices(self, query: Mapping[str, list[str]], here: str, changes: tuple[str, ...]) -> tuple[str, bytes]:
        wanted = query.get("$filter", [""])[0]
        skip, size = int(query.get("$skip", ["0"])[0]), self._sizes["price_page"]
        key = (RETAIL, wanted, str(skip), here, *changes)
        if key not in self._pages:
            clauses = _clauses(wanted)
            if clauses is None:
                return "400 Bad Request", b'{"Error":{"Code":"BadRequest","Message":"Invalid OData parameters"}}'
            found = [row for row in self._price_rows(clauses, changes) if _fits(row, clauses)]
            rest = f"$filter={wanted}&$skip={skip + size}".replace(" ", "%20").replace("'", "%27")
            version = query.get("api-version", [""])[0]
            link = f"{here}/api/retail/prices?api-version={version}&{rest}" if skip + size < len(found) else None
            page = found[skip : skip + size]
            head = {"BillingCurrency": "USD", "CustomerEntityId": "Default", "CustomerEntityType": "Retail"}
            self._pages[key] = _dumps({**head, "Items": page, "NextPageLink": link, "Count": len(page)})
        return "200 OK", self._pages[key]

    def _price_rows(self, clauses: Sequence[tuple[str, str, bool]], changes: tuple[str, ...]) -> list[Any]:
        region = next((value for name, value, _ in clauses if name == "armRegionName"), "")
        if region not in self._names:
            return []
        number = self._names.index(region)
        found = list(rows.gpu_price_rows(region, number))
        found.extend(rows.other_price_rows(region, number, max(0, self._sizes["price_rows"] - len(found))))
        return _changed(found, region, number, changes)

    def _graph(self, asked: Mapping[str, Any], changes: tuple[str, ...]) -> tuple[str, bytes]:
        """Eviction rates, a page at a time; only of the whole tenant, and with further pages only for rows with ids."""
        query, options = str(asked["query"]), asked.get("options", {})
        if "microsoft.compute/skuspotevictionrate/location" not in query or "project id, skuName" not in query:
            return "400 Bad Request", _error_body("BadRequest", "Query is invalid.")
        places = _ASKED_PLACES.search(query)
        wanted = re.findall(r"'(\w+)'", places[1]) if places else self._names
        found: list[Any] = []
        if "empty" not in changes and not asked.get("subscriptions"):
            found = [row for name in wanted if name in self._names for row in self._rate_rows(name, changes)]
        skip, size = int(options.get("$skipToken", "0")), min(options.get("$top", 100), self._sizes["graph_page"])
        page = found[skip : skip + size]
        more = {"$skipToken": str(skip + size)} if skip + size < len(found) else {}
        head = {"totalRecords": len(found), "count": len(page), "facets": [], "resultTruncated": "false"}
        return "200 OK", _dumps({**head, "data": page, **more})

    def _rate_rows(self, name: str, changes: tuple[str, ...]) -> list[Any]:
        found: list[Any] = list(rows.eviction_rows(SUBSCRIPTION, name, self._names.index(name)))
        if "odd_rate" in changes:
            found[1] = {**found[1], "evictionRate": "often"}
        if "two_rates" in changes:
            found.append({**found[1], "evictionRate": "20+"})
        if "odd_row" in changes:
            found += ["not an object", {**found[0], "location": None}]
        return found

    def _skus(self, region: str, query: Mapping[str, list[str]], here: str, changes: tuple[str, ...]) -> bytes:
        skip, size = int(query.get("$skiptoken", ["0"])[0]), self._sizes["sku_page"]
        key = ("skus", region, str(skip), here, *changes)
        if key not in self._pages:
            number = self._names.index(region)
            new = [len(rows.SIZES)] if "new_type" in changes else []
            listed = [size for size in range(len(rows.SIZES)) if rows.is_listed(size, number)]
            texts = [_dumps(rows.gpu_sku(size, region, number)) for size in [*listed, *new]]
            texts.extend(self._other_skus(region, self._sizes["sku_rows"] - len(texts)))
            link = f"{here}{_ARM}/providers/Microsoft.Compute/skus?api-version=2021-07-01"
            link += f"&$filter=location%20eq%20%27{region}%27&$skiptoken={skip + size}"
            tail = json.dumps(link).encode() if skip + size < len(texts) else b"null"
            page = b",".join(texts[skip : skip + size])
            self._pages[key] = b'{"value":[' + page + b'],"nextLink":' + tail + b"}"
        return self._pages[key]

    def _other_skus(self, region: str, count: int) -> list[bytes]:
        key = ("others", str(count))
        if key not in self._pages:
            self._pages[key] = b"\n".join(_dumps(row) for row in rows.other_skus("@here@", count))
        return self._pages[key].replace(b"@here@", region.encode()).splitlines()

    def _instead(
        self, environ: WSGIEnvironment, start: StartResponse, action: str, faults: Sequence[Fault]
    ) -> Iterable[bytes]:
        fault = next(fault for fault in faults if fault["kind"] in INSTEAD)
        if fault["kind"] == "drop_connection":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError
        status, code, message = ARM_ERRORS[fault["kind"]]
        extra = [("Retry-After", f"{fault['retry_after']:g}")] if "retry_after" in fault else []
        body = b"<html>refused</html>" if action == RETAIL else _error_body(code, message)
        return self._send(environ, start, status, body, faults, extra)

    def _send(
        self,
        environ: WSGIEnvironment,
        start: StartResponse,
        status: str,
        body: bytes,
        faults: Sequence[Fault] = (),
        extra: Sequence[tuple[str, str]] = (),
    ) -> Iterable[bytes]:
        body = _spoilt(body, {fault["kind"] for fault in faults}, environ)
        headers = [("Content-Type", "application/json; charset=utf-8"), ("Content-Length", str(len(body))), *extra]
        shift = sum(fault.get("seconds", 600.0) for fault in faults if fault["kind"] == "clock")
        half = any(fault["kind"] == "half_page" for fault in faults)
        if shift or self._clock is not None or half:
            moment = datetime.now(UTC) if self._clock is None else self._clock + timedelta(seconds=time.monotonic())
            date = format_datetime(moment + timedelta(seconds=shift), usegmt=True)
            _by_hand(environ, status, [("Date", date), *headers], body[: len(body) // 2] if half else body)
        start(status, headers)
        return [body]


def _action(path: str) -> tuple[str, Mapping[str, str]]:
    if path == "/api/retail/prices":
        return RETAIL, {}
    if path == GRAPH_PATH:
        return GRAPH, {}
    if path.startswith(_ARM):
        for pattern, action in ACTIONS:
            match = re.fullmatch(pattern, path.removeprefix(_ARM))
            if match is not None:
                return action, {key: value for key, value in match.groupdict().items() if value}
    return "unknown", {}


def _dumps(value: Any) -> bytes:
    text = json.dumps(value, separators=(",", ":"), default=lambda d: f"@{d}@" if isinstance(d, Decimal) else str(d))
    return re.sub(r'"@([0-9.E+-]+)@"', r"\1", text).encode()


def _clauses(text: str) -> list[tuple[str, str, bool]] | None:
    """(column, value, contains); None for a filter that is not understood, as the true service answers 400."""
    clauses = []
    for part in text.split(" and "):
        match = _CLAUSE.fullmatch(part.strip())
        if match is None:
            return None
        name, value = match[1] or match[3], match[2] or match[4]
        clauses.append((_COLUMNS.get(name, name), value, match[1] is None))
    return clauses


def _fits(row: Any, clauses: Sequence[tuple[str, str, bool]]) -> bool:
    if not isinstance(row, dict):
        return True
    return all(value in row[name] if contains else row[name] == value for name, value, contains in clauses)


def _changed(found: list[Any], region: str, number: int, changes: tuple[str, ...]) -> list[Any]:
    """Faults of the rows, each on the pay-as-you-go row of one size."""
    at = next(i for i, row in enumerate(found) if row["armSkuName"] == "Standard_ND96isr_H100_v5")
    row = found[at]
    if "price_zero" in changes:
        found[at] = {**row, "retailPrice": Decimal(0), "unitPrice": Decimal(0)}
    if "currency" in changes:
        found[at] = {**row, "currencyCode": "EUR"}
    if "duplicate" in changes:
        found.insert(at + 1, {**row, "retailPrice": row["retailPrice"] + 1})
    if "future" in changes:
        found[at] = {**row, "effectiveStartDate": "2027-01-01T00:00:00Z"}
    if "odd_row" in changes:
        found.insert(at, "not an object")
    if "new_type" in changes:
        found.insert(0, rows.price_row(len(rows.SIZES), region, number))
    return found


def _spoilt(body: bytes, kinds: set[str], environ: WSGIEnvironment) -> bytes:
    if "bad_json" in kinds:
        return body[: len(body) // 2]
    if "not_a_page" in kinds:
        return b'{"message":"maintenance"}'
    if kinds & {"astray", "circle"}:
        page = json.loads(body, parse_float=Decimal)
        here = f"http://{environ['HTTP_HOST']}{environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        if "data" in page:  # The same token for ever is a circle; a token leads nowhere else.
            return _dumps({**page, "$skipToken": "0"})
        page["NextPageLink" if "Items" in page else "nextLink"] = (
            "https://elsewhere.example/page" if "astray" in kinds else here
        )
        return _dumps(page)
    return body


def _error_body(code: str, message: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": message}}).encode()


def _by_hand(environ: WSGIEnvironment, status: str, headers: Sequence[tuple[str, str]], body: bytes) -> NoReturn:
    """The server puts a Date of its own before any other, and waits for the rest of a body that is short."""
    head = "".join(f"{name}: {value}\r\n" for name, value in (*headers, ("Connection", "close")))
    environ["werkzeug.socket"].sendall(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body)
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError
