"""Calls that the adapter of Google Cloud makes, by the file that grants them."""

from __future__ import annotations

from providers.gcp import permissions
from providers.gcp.permissions import ApiCall


def calls_of(role: str) -> tuple[ApiCall, ...]:
    return tuple(call for call in vars(permissions).values() if isinstance(call, ApiCall) and call.role == role)
