"""Errors that a script can request, by the words it uses."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from providers.errors import (
    CredentialsError,
    NoCapacityError,
    NotForSaleError,
    NotReachedError,
    PermissionDeniedError,
    ProviderError,
    QuotaError,
    RegionOffError,
    ThrottledError,
    TransientError,
    UnreadableError,
)

KINDS: Mapping[str, type[ProviderError]] = MappingProxyType(
    {
        "credentials": CredentialsError,
        "no_capacity": NoCapacityError,
        "not_for_sale": NotForSaleError,
        "not_reached": NotReachedError,
        "permission": PermissionDeniedError,
        "quota": QuotaError,
        "region_off": RegionOffError,
        "throttled": ThrottledError,
        "transient": TransientError,
        "unreadable": UnreadableError,
    }
)


def make_scripted_error(cloud: str, kind: str, call: str, retry_after_s: float | None) -> ProviderError:
    """Return the error of that kind (a key of :data:`KINDS`) for a call."""
    what = f"the script fails {call}"
    if kind == "throttled":
        return ThrottledError(cloud, what, retry_after_s=retry_after_s, code=kind)
    if kind == "permission":
        return PermissionDeniedError(cloud, what, permission=f"{cloud}:{call}", code=kind)
    return KINDS[kind](cloud, what, code=kind)
