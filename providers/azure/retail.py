"""Client of the public Retail Prices API: no account, one plain GET a page.

Source: "Azure Retail Prices overview" (Microsoft Learn).
"""

from __future__ import annotations

import time
from functools import partial

import requests
from requests.adapters import HTTPAdapter
from urllib3.exceptions import ProtocolError

from providers.azure.calls import PRICES, AzureCalls, Page, Row, query
from providers.errors import NotReachedError, ProviderError, TransientError, UnreadableError

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
