"""Client for public catalogues and a public market. The one module here that uses a network.

Addresses and query forms are ``gpuhunt``'s, taken from the library, so that they move with it.
"""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

import requests

from providers.caller import parse_http_date, parse_retry_after
from providers.errors import ProviderError, UnreadableError
from providers.neoclouds import errors
from providers.session import Session

T = TypeVar("T")

CATALOGUE = "catalogue"
MARKET = "market"
MOST_HOSTS = 3000

_VERSION = re.compile(r"\d{8}(?:-\d+)?")
_LARGEST_CATALOGUE = 200_000_000


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A body, the server's own time (None: not stated) and how long the answer took."""

    body: bytes
    server_time: datetime | None
    seconds: float


class CatalogueClient:
    """Fetch one cloud's data from the services that know it; safe for threads.

    ``name`` is what ``gpuhunt`` calls the cloud.
    """

    def __init__(self, cloud: str, name: str, session: Session) -> None:
        self._cloud = cloud
        self._name = name
        self._session = session

    def version(self) -> tuple[str, HttpAnswer]:
        """Return the newest catalogue's version, which begins with its date (``20261121-873``)."""
        return self._call(CATALOGUE, self._ask_version)

    def catalogue(self, version: str) -> str:
        """Return the CSV of that version; UnreadableError when the archive is broken or holds something else."""
        return self._call(CATALOGUE, lambda: self._ask_catalogue(version))

    def hosts(self, accelerators: Sequence[str]) -> tuple[Any, HttpAnswer]:
        """Return the market's answer to the query for free hosts with these accelerators, in its own names.

        The answer is JSON with its fractions as Decimal, at most :data:`MOST_HOSTS` hosts. UnreadableError when it is
        no JSON.
        """
        return self._call(MARKET, lambda: self._ask_hosts(accelerators))

    def _call(self, service: str, ask: Callable[[], T]) -> T:
        return self._session.caller.call(service, ask, lambda error: self._translate(error, service))

    def _ask_version(self) -> tuple[str, HttpAnswer]:
        answer = self._http("GET", f"{self._base()}/{self._name}/version", CATALOGUE)
        version = answer.body[:80].decode("ascii", errors="replace").strip()
        if not _VERSION.fullmatch(version):
            raise UnreadableError(self._cloud, "the catalogue's version is no date")
        return version, answer

    def _ask_catalogue(self, version: str) -> str:
        answer = self._http("GET", f"{self._base()}/{self._name}/{version}/catalog.zip", CATALOGUE)
        try:
            with zipfile.ZipFile(io.BytesIO(answer.body)) as archive:
                member = archive.getinfo(f"{self._name}.csv")
                if member.file_size > _LARGEST_CATALOGUE:
                    raise UnreadableError(self._cloud, "the catalogue is far larger than any")
                return archive.read(member).decode("utf-8-sig")
        except (zipfile.BadZipFile, EOFError, KeyError, NotImplementedError, UnicodeDecodeError, zlib.error):
            raise UnreadableError(self._cloud, "the catalogue is no archive of one CSV") from None

    def _ask_hosts(self, accelerators: Sequence[str]) -> tuple[Any, HttpAnswer]:
        from gpuhunt import QueryFilter
        from gpuhunt.providers.vastai import VastAIProvider, bundles_url

        query = dict(VastAIProvider().make_filters(QueryFilter()))
        query["gpu_name"] = {"in": sorted(accelerators)}
        query["limit"] = MOST_HOSTS
        url = self._session.settings.endpoints.get(MARKET) or bundles_url
        answer = self._http("POST", url, MARKET, query)
        try:
            return json.loads(answer.body, parse_float=Decimal), answer
        except ValueError:
            raise UnreadableError(self._cloud, "the market's answer is no JSON") from None

    def _base(self) -> str:
        configured = self._session.settings.endpoints.get(CATALOGUE)
        if configured:
            return configured.rstrip("/")
        from gpuhunt._internal.catalog import CATALOG_URL

        return str(CATALOG_URL)

    def _http(self, method: str, url: str, service: str, body: object = None) -> HttpAnswer:
        settings = self._session.settings
        timeouts = (settings.connect_timeout_s, settings.read_timeout_s)
        began = time.monotonic()
        response = requests.request(method, url, json=body, timeout=timeouts)
        seconds = time.monotonic() - began
        server_time = parse_http_date(response.headers.get("Date"))
        if response.status_code != 200:
            wait = parse_retry_after(response.headers.get("Retry-After"), response.headers.get("Date"))
            raise errors.status_error(self._cloud, response.status_code, service, wait)
        return HttpAnswer(response.content, server_time, seconds)

    def _translate(self, error: Exception, service: str) -> ProviderError:
        kind = type(error).__name__
        if isinstance(error, requests.ConnectTimeout):
            return errors.connection_error(self._cloud, kind, service, connected=False)
        if isinstance(error, requests.ConnectionError):
            # A refused connection and an unknown host come as "retries exceeded"; a broken connection does not.
            reached = "MaxRetryError" not in {type(argument).__name__ for argument in error.args}
            return errors.connection_error(self._cloud, kind, service, connected=reached)
        if isinstance(error, requests.RequestException):
            return errors.connection_error(self._cloud, kind, service, connected=True)
        return ProviderError(self._cloud, f"the {service} could not be asked", code=kind)
