"""Table from HTTP answers and broken calls to provider errors: no account is involved, so there are few codes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from providers.errors import (
    CredentialsError,
    NotForSaleError,
    NotReachedError,
    PermissionDeniedError,
    ProviderError,
    ThrottledError,
    TransientError,
)

_BY_STATUS: Mapping[int, type[ProviderError]] = MappingProxyType(
    {
        401: CredentialsError,
        403: PermissionDeniedError,  # S3 answers this for an object that is not public, or not there.
        404: NotForSaleError,
        408: TransientError,
        410: NotForSaleError,
        429: ThrottledError,
        500: TransientError,
        502: TransientError,
        503: ThrottledError,  # S3 sends this as "slow down".
        504: TransientError,
    }
)


def status_error(cloud: str, status: int, service: str, retry_after_s: float | None) -> ProviderError:
    """Return the error for an HTTP status other than 200 from ``service``."""
    what = f"the {service} answers with HTTP status {status}"
    kind = _BY_STATUS.get(status, TransientError if status >= 500 else ProviderError)
    if kind is ThrottledError:
        return ThrottledError(cloud, what, retry_after_s=retry_after_s, code=str(status))
    return kind(cloud, what, code=str(status))


def connection_error(cloud: str, kind: str, service: str, *, connected: bool) -> ProviderError:
    """Return the error for a call without an answer.

    ``kind`` is the name of what the HTTP library raised, ``connected`` whether there was a connection.
    """
    if connected:
        return TransientError(cloud, f"the connection to the {service} broke", code=kind)
    return NotReachedError(cloud, f"the {service} cannot be connected to", code=kind)
