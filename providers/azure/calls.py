"""Common parts of calls to Azure's services: addresses, pages, answer times and the cloud's clock."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ProtocolError

from providers.azure.errors import error_for
from providers.caller import parse_http_date, parse_retry_after
from providers.errors import NotReachedError, ProviderError, TransientError, UnreadableError
from providers.session import Session

Row = dict[str, Any]
Page = tuple[list[Row], str]
Translate = Callable[[Exception], ProviderError]

PRICES, MANAGEMENT = "prices", "management"
_PUBLIC = {PRICES: "https://prices.azure.com", MANAGEMENT: "https://management.azure.com"}
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_PORTS = {"https": 443, "http": 80}
_LATEST_ANSWERS = 20


class AzureCalls:
    """Make calls to Azure's services; safe for threads.

    ProviderError when an endpoint is not a known one, or would carry a token in the clear.
    """

    def __init__(self, cloud: str, session: Session) -> None:
        self.cloud = cloud
        self.settings = session.settings
        self._caller = session.caller
        self._bases = _bases(cloud, session.settings.endpoints)
        self._lock = threading.Lock()
        self._took: list[float] = []

    def base(self, service: str) -> str:
        """Return the address of a service, without a slash at its end."""
        return self._bases[service]

    def is_local(self, service: str) -> bool:
        """Return whether the service is one on this machine, without encryption."""
        return self._bases[service].startswith("http://")

    @property
    def fastest_s(self) -> float | None:
        """Return the seconds of the fastest of the latest answers."""
        with self._lock:
            return min(self._took, default=None)

    def note(self, date: str, begin: float) -> None:
        """Record the answer to a call that began at ``begin``."""
        with self._lock:
            self._took = [*self._took[1 - _LATEST_ANSWERS :], time.monotonic() - begin]
        moment = parse_http_date(date)
        if moment is not None:
            self._caller.heard(moment)

    def once(self, service: str, ask: Callable[[], Any], translate: Translate) -> Any:
        """Make one call, retried as the caller of the session does."""
        return self._caller.call(service, ask, translate)

    def follow(self, service: str, start: str, ask: Callable[[str], Page], translate: Translate) -> list[Row]:
        """Return the rows of all pages from ``start`` on; a page that failed is asked for again by itself."""
        rows: list[Row] = []
        seen: set[str] = set()
        link = start
        while True:
            page, following = self._caller.call(service, partial(ask, link), translate)
            rows.extend(page)
            if not following:
                return rows
            seen.add(link)
            # A circle would never end, and a link to another host would send the token there.
            if following in seen or _place(following) != _place(self._bases[service]):
                raise UnreadableError(self.cloud, f"{service}: the link to the next page leads astray")
            link = following

    def read_page(self, subject: str, content: bytes, rows: str, link: str) -> Page:
        """Parse a JSON page. Numbers with decimals stay text: a price must not pass through a float."""
        try:
            page = json.loads(content, parse_float=str)
        except ValueError:
            raise UnreadableError(self.cloud, f"{subject}: not JSON") from None
        if not isinstance(page, dict) or not isinstance(page.get(rows), list):
            raise UnreadableError(self.cloud, f"{subject}: no list of {rows} in it")
        return page[rows], str(page.get(link) or "")

    def refused(
        self,
        subject: str,
        status: int,
        headers: Mapping[str, str],
        code: str = "",
        message: str = "",
        permission: str = "",
        role: str = "role.json",
    ) -> ProviderError:
        """Return the provider error for an answer that is not 200."""
        wait = parse_retry_after(headers.get("Retry-After"), headers.get("Date"))
        return error_for(
            self.cloud, subject, status, code, message, permission=permission, retry_after_s=wait, role=role
        )


def query(parts: Mapping[str, str]) -> str:
    """Return a query string; the SDK would send blanks and quotes as they are."""
    return urlencode(parts, quote_via=quote)


def _bases(cloud: str, endpoints: Mapping[str, str]) -> dict[str, str]:
    for name, url in endpoints.items():
        parts = urlsplit(url)
        if name not in _PUBLIC:
            raise ProviderError(cloud, f"no such endpoint: {name}", remedy=f"there are {', '.join(_PUBLIC)}")
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
            raise ProviderError(cloud, f"the endpoint {name} is not https", remedy="plain http only to this machine")
    return {name: endpoints.get(name, url).rstrip("/") for name, url in _PUBLIC.items()}


def _place(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port; the Retail Prices API writes :443 into its links."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


_VERSION = "2023-01-01-preview"
_CONNECTIONS = 16
# All sizes with accelerators are of an N family; without this filter a region has some thousand rows more.
_ACCELERATED = "Standard_N"


class RetailPrices:
    """Fetch public prices; safe for threads."""

    def __init__(self, calls: AzureCalls) -> None:
        self._calls = calls
        self._web = requests.Session()
        for scheme in ("https://", "http://"):
            self._web.mount(scheme, HTTPAdapter(pool_maxsize=_CONNECTIONS, max_retries=0))

    def prices(self, region: str, size: str = _ACCELERATED) -> list[Row]:
        """Return all pay-as-you-go and spot rows of a region whose machine's name contains ``size``."""
        clauses = (
            "serviceName eq 'Virtual Machines'",
            f"armRegionName eq '{region}'",
            "priceType eq 'Consumption'",
            f"contains(armSkuName, '{size}')",
        )
        parts = {"api-version": _VERSION, "$filter": " and ".join(clauses)}
        subject = f"prices of {region}"
        start = f"{self._calls.base(PRICES)}/api/retail/prices?{query(parts)}"
        return self._calls.follow(PRICES, start, partial(self._page, subject), partial(self._error, subject))

    def _page(self, subject: str, url: str) -> Page:
        settings = self._calls.settings
        begin = time.monotonic()
        answer = self._web.get(
            url, timeout=(settings.connect_timeout_s, settings.read_timeout_s), allow_redirects=False
        )
        self._calls.note(answer.headers.get("Date", ""), begin)
        if answer.status_code != 200:
            raise self._calls.refused(subject, answer.status_code, answer.headers)
        return self._calls.read_page(subject, answer.content, "Items", "NextPageLink")

    def _error(self, subject: str, error: Exception) -> ProviderError:
        cloud = self._calls.cloud
        if isinstance(error, requests.Timeout) and not isinstance(error, requests.ConnectTimeout):
            return TransientError(cloud, f"{subject}: no answer in time")
        if isinstance(error, requests.ConnectionError):
            if error.args and isinstance(error.args[0], ProtocolError):
                return TransientError(cloud, f"{subject}: the connection broke")
            return NotReachedError(cloud, f"{subject}: no connection to {self._calls.base(PRICES)}")
        return UnreadableError(cloud, f"{subject}: {type(error).__name__}")
