"""HTTP below the SDKs: addresses, the rule for calls without TLS, time limits, the plain facts of an SDK exception."""

from __future__ import annotations

import ipaddress
import re
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter

from providers.errors import ProviderError
from providers.gcp.errors import FailureKind, GcpFailure, classify_exception, parse_error_body
from providers.gcp.permissions import API_OF, ENDPOINTS, ApiCall
from providers.session import Settings

_POOL = 16
_CODE = re.compile(r"\w{1,64}")


class ConnectTimeoutAdapter(HTTPAdapter):
    """Limit the time to connect apart from the time to answer."""

    def __init__(self, connect_s: float) -> None:
        super().__init__(pool_connections=_POOL, pool_maxsize=_POOL, max_retries=0)
        self._connect_s = connect_s

    def send(
        self, request: Any, stream: bool = False, timeout: Any = None, *args: Any, **kwargs: Any
    ) -> requests.Response:
        if isinstance(timeout, int | float):
            timeout = (min(self._connect_s, timeout), timeout)
        return super().send(request, stream, timeout, *args, **kwargs)


def describe_failure(error: Exception, call: ApiCall, subject: str) -> GcpFailure:
    """Return an exception of the SDKs as plain facts. Its text is dropped, since it may repeat what was sent."""
    answer = getattr(error, "response", None)
    if isinstance(answer, requests.Response):
        codes, message = parse_error_body(answer.text)
        return GcpFailure(
            FailureKind.ANSWER,
            subject,
            answer.status_code,
            codes,
            message,
            answer.headers.get("Retry-After", ""),
            answer.headers.get("Date", ""),
            call.permission,
            API_OF[call.service],
            call.role,
        )
    chain = _chain(error)
    names = {kind.__name__ for link in chain for kind in type(link).__mro__}
    kind = FailureKind.BROKEN_CONNECTION if getattr(error, "retryable", False) else classify_exception(names)
    word = next((a["error"] for link in chain for a in link.args if isinstance(a, dict) and "error" in a), "")
    code = word if isinstance(word, str) and _CODE.fullmatch(word) else type(chain[-1]).__name__
    return GcpFailure(kind, subject, codes=(code,), permission=call.permission)


def _chain(error: BaseException) -> list[BaseException]:
    """Return an exception and those it was made from, the outermost first."""
    chain = [error]
    while len(chain) < 6:
        inner = (getattr(chain[-1], "reason", None), *chain[-1].args)
        cause = next((link for link in inner if isinstance(link, BaseException)), None)
        if cause is None:
            break
        chain.append(cause)
    return chain


def find_endpoint(cloud: str, service: str, settings: Settings) -> str:
    """Return the address of ``compute`` or ``billing``: that of the settings, else Google's own.

    ProviderError for plain http to anything but this machine: a token must not travel unencrypted.
    """
    url = settings.endpoints.get(service, ENDPOINTS[service]).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return url
    if parts.scheme == "http" and is_loopback(parts.hostname or ""):
        return url
    raise ProviderError(
        cloud,
        f"the endpoint of {service} must start with https:// (http:// is taken for this machine's own services only)",
        remedy=f"correct endpoints: {service} in the clouds file",
    )


def is_anonymous(url: str) -> bool:
    """Return whether calls go out without any identity: to plain http, hence to this machine only."""
    return url.startswith("http://")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
