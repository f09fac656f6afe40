"""Diagnosis of Google Cloud for ``doctor``: every call once, in its cheapest form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from providers.errors import NotForSaleError, ProviderError
from providers.gcp import permissions
from providers.gcp.permissions import ApiCall
from providers.protocol import CallCheck, Diagnosis
from providers.session import Session

if TYPE_CHECKING:
    from providers.gcp.client import GcpClient, GoogleIdentity

# Any project can ask about this place and machine type.
_ZONE, _REGION, _MACHINE_TYPE = "us-central1-a", "us-central1", "g2-standard-4"


def diagnose_account(client: GcpClient, identity: GoogleIdentity, session: Session) -> Diagnosis:
    """Return the diagnosis. Never raises."""
    checks = tuple(_check(call, ask) for call, ask in _trials(client).items())
    return Diagnosis(
        identity=f"{identity.name}, project {identity.project}",
        identity_error=None,
        checks=checks,
        clock_ahead=session.caller.clock_ahead(session.now),
        latency=client.fastest,
        sources=_sources({check.needed_for for check in checks if check.error is None}),
    )


def _trials(client: GcpClient) -> dict[ApiCall, Callable[[], object]]:
    return {
        permissions.REGIONS: partial(client.try_list, permissions.REGIONS),
        permissions.MACHINE_TYPES: partial(client.try_list, permissions.MACHINE_TYPES, zone=_ZONE),
        permissions.SKUS: client.try_skus,
        permissions.HISTORY: partial(client.capacity_history, _REGION, _MACHINE_TYPE),
        permissions.ADVICE: partial(client.capacity, _REGION, _MACHINE_TYPE, 1),
        permissions.PROJECT: client.project,
        permissions.RESERVATIONS: partial(client.try_list, permissions.RESERVATIONS),
        permissions.OPERATIONS: partial(client.try_list, permissions.OPERATIONS),
        permissions.ACCELERATOR_TYPES: partial(client.try_list, permissions.ACCELERATOR_TYPES),
    }


def _check(call: ApiCall, ask: Callable[[], object]) -> CallCheck:
    error: ProviderError | None = None
    try:
        ask()
    except NotForSaleError:
        pass  # The call was permitted.
    except ProviderError as met:
        error = met
    return CallCheck(call.permission or call.method, call.needed_for, error)


def _sources(works: set[str]) -> tuple[str, ...]:
    needed = (permissions.REGIONS, permissions.MACHINE_TYPES, permissions.SKUS)
    if not all(call.needed_for in works for call in needed):
        return ("nothing: regions, machine types and prices are all needed",)
    found = ["on-demand and Spot prices of every zone, from the Cloud Billing catalogue"]
    if permissions.HISTORY.needed_for in works:
        found.append("Spot prices of the past year, and the share of stopped Spot machines that were preempted")
    return tuple(found)
