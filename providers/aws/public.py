"""Public files of AWS over plain HTTP: the price list by region, and the Spot Advisor."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeVar

import requests

from providers.aws.errors import from_code, from_exception, parse_server_time
from providers.caller import parse_http_date, parse_retry_after
from providers.errors import NotForSaleError, ProviderError
from providers.session import Session

T = TypeVar("T")

PRICE_LIST = "https://pricing.us-east-1.amazonaws.com"
SPOT_ADVISOR = "https://spot-bid-advisor.s3.amazonaws.com"
_OFFERS = "/offers/v1.0/aws/AmazonEC2/current"
_INDEX = f"{_OFFERS}/region_index.json"
_ADVICE = "/spot-advisor-data.json"
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class AdvisorDocument:
    """The Spot Advisor's document, and the day it was written (None: not stated)."""

    document: Any
    written: date | None


class PublicFiles:
    """Fetch the public files; safe for threads.

    The Spot Advisor is fetched once; after a failure the next caller tries again.
    """

    def __init__(self, cloud: str, session: Session) -> None:
        self._cloud = cloud
        self._caller = session.caller
        self._timeouts = (session.settings.connect_timeout_s, session.settings.read_timeout_s)
        endpoints = session.settings.endpoints
        self._lists = endpoints.get("price_list", PRICE_LIST).rstrip("/")
        self._advisor = endpoints.get("spot_advisor", SPOT_ADVISOR).rstrip("/")
        self._lock = threading.Lock()
        self._advised: AdvisorDocument | None = None

    def index(self) -> Mapping[str, Any]:
        """Return the price list's region_index.json."""

        def read(response: requests.Response) -> Mapping[str, Any]:
            answer: Mapping[str, Any] = response.json()
            return answer

        return self._get("price list", "the price list's index of regions", self._lists + _INDEX, read)

    def prices(self, region: str, read: Callable[[Iterable[bytes]], T]) -> T:
        """Return what ``read`` makes of the stream of one region's price list.

        A retry reads it again from the start. NotForSaleError where there is none for that region.
        """
        url = f"{self._lists}{_OFFERS}/{region}/index.csv"
        return self._get(
            "price list", f"the price list of {region}", url, lambda response: read(self._stream(response))
        )

    def advice(self) -> AdvisorDocument:
        """Return the Spot Advisor file."""

        def read(response: requests.Response) -> AdvisorDocument:
            written = parse_http_date(response.headers.get("Last-Modified"))
            return AdvisorDocument(response.json(), written.date() if written else None)

        with self._lock:
            if self._advised is None:
                url = self._advisor + _ADVICE
                self._advised = self._get("spot advisor", "the Spot Advisor file", url, read)
            return self._advised

    def probe_price_list(self) -> float:
        """Return the seconds in which the price list answers."""
        return self._probe("price list", "the price list's index of regions", self._lists + _INDEX)

    def probe_advisor(self) -> float:
        """Return the seconds in which the Spot Advisor answers."""
        return self._probe("spot advisor", "the Spot Advisor file", self._advisor + _ADVICE)

    def _probe(self, service: str, what: str, url: str) -> float:
        return self._get(service, what, url, lambda response: response.elapsed.total_seconds(), method="HEAD")

    def _get(
        self, service: str, what: str, url: str, read: Callable[[requests.Response], T], *, method: str = "GET"
    ) -> T:
        def ask() -> T:
            with requests.request(method, url, timeout=self._timeouts, stream=True) as response:
                date = parse_server_time(response.headers.get("Date"), response.headers.get("Age"))
                if date is not None:
                    self._caller.heard(date)
                if response.status_code != 200:
                    raise self._refused(what, response)
                return read(response)

        return self._caller.call(service, ask, lambda error: from_exception(self._cloud, what, _chain(error)))

    def _refused(self, what: str, response: requests.Response) -> ProviderError:
        status = response.status_code
        # The object stores behind these files answer 403 for a missing file.
        if status in (403, 404):
            return NotForSaleError(self._cloud, f"{what} is not published", code=str(status))
        wait = parse_retry_after(response.headers.get("Retry-After"))
        code = "SlowDown" if status in (429, 503) else str(status)
        return from_code(self._cloud, what, code, status=status, retry_after_s=wait)

    def _stream(self, response: requests.Response) -> Iterator[bytes]:
        for chunk in response.iter_content(_CHUNK):
            self._caller.check()
            yield chunk


def _chain(error: BaseException) -> Iterator[str]:
    """Yield class names of an exception, of what it wraps, and of what it was raised from."""
    current: BaseException | None = error
    while current is not None:
        yield type(current).__name__
        inner = getattr(current, "reason", None) or (current.args[0] if current.args else None)
        current = inner if isinstance(inner, BaseException) else current.__cause__ or current.__context__
