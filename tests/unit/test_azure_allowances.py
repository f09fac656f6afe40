"""Quotas, reservations and identities, from payloads as the SDK's models write them."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pricing.book_file import embedded_book
from pricing.places import Market
from providers.azure.client import parse_identity
from providers.azure.parse.allowances import family_key, place_of, read_quotas, read_reservations, region_of
from providers.protocol import CapacityReservation, QuotaUnit

BOOK = embedded_book()
H100 = "Standard_ND96isr_H100_v5"
MACHINE = BOOK.machine("azure", H100)
GROUP = {
    "id": "/subscriptions/s/resourceGroups/ML-Team/providers/Microsoft.Compute/capacityReservationGroups/pool",
    "name": "pool",
    "location": "East US",
}


def usage(name: str, limit: object = 192, used: object = 96) -> dict[str, Any]:
    return {"unit": "Count", "currentValue": used, "limit": limit, "name": {"value": name, "localizedValue": name}}


def test_quotas_name_the_machines_of_their_family() -> None:
    assert MACHINE is not None
    families = {family_key("standardNDSH100v5Family"): [MACHINE]}
    usages = [
        usage("cores"),
        usage("lowPriorityCores", 64, 0),
        usage("virtualMachines", 25000),
        usage("StandardNDSH100v5Family"),
        usage("standardDSv5Family"),
    ]
    found = {q.name: q for q in read_quotas("azure", "eastus", usages, families)}
    assert set(found) == {"cores", "lowPriorityCores", "virtualMachines", "StandardNDSH100v5Family"}
    family = found["StandardNDSH100v5Family"]
    assert (family.families, family.market, family.amount, family.used, family.unit) == (
        (H100,),
        Market.ON_DEMAND,
        192,
        96,
        QuotaUnit.VCPUS,
    )
    assert family.families == (MACHINE.family,), "as limits.yaml writes it"
    assert (found["lowPriorityCores"].market, found["lowPriorityCores"].families) == (Market.SPOT, ())
    assert (found["cores"].market, found["virtualMachines"].market) == (Market.ON_DEMAND, None)
    assert found["virtualMachines"].unit is QuotaUnit.MACHINES


def test_a_limit_that_is_none_or_unreadable_is_no_quota() -> None:
    usages = [usage("cores", -1), usage("cores", None), usage("cores", "96"), {"name": None}, "nonsense"]
    assert read_quotas("azure", "eastus", usages, {}) == ()
    assert [q.used for q in read_quotas("azure", "eastus", [usage("cores", 8, None)], {})] == [None]


def reservation(name: str, size: str = H100, machines: int = 8, **properties: object) -> dict[str, Any]:
    return {
        "name": name,
        "location": "eastus",
        "sku": {"name": size, "capacity": machines},
        "zones": ["2"],
        "properties": {"provisioningState": "Succeeded", **properties},
    }


def view(**use: object) -> dict[str, Any]:
    return {"properties": {"instanceView": {"capacityReservations": [{"name": "a", **use}]}}}


def test_what_is_held_and_free() -> None:
    running = {"virtualMachinesAllocated": [{"id": "vm0"}, {"id": "vm1"}], "currentCapacity": 6}
    (found,) = read_reservations("azure", GROUP, [reservation("a")], view(utilizationInfo=running))
    assert found == CapacityReservation("azure", "pool/a", "eastus", "2", H100, 6, 4, None, None)
    shared = {"usedReservedCountBySubscription": {"s1": 3, "s2": 7}}
    assert read_reservations("azure", GROUP, [reservation("a")], view(utilizationInfo=shared))[0].free == 0
    assert read_reservations("azure", GROUP, [reservation("a")], {})[0].free == 8


def test_a_block_has_an_end() -> None:
    schedule = {"start": "2026-11-25", "end": "2026-12-09"}
    (found,) = read_reservations("azure", GROUP, [reservation("a", scheduleProfile=schedule)], {})
    assert (found.start, found.end) == (datetime(2026, 11, 25, tzinfo=UTC), datetime(2026, 12, 9, tzinfo=UTC))


@pytest.mark.parametrize(
    "row",
    [
        reservation("a", "Standard_D8s_v5"),
        reservation("a", provisioningState="Failed"),
        {**reservation("a"), "sku": {"name": H100}},
        "nonsense",
    ],
)
def test_what_is_not_held(row: object) -> None:
    assert read_reservations("azure", GROUP, [row], {}) == ()


def test_capacity_that_is_only_asked_for_is_not_held() -> None:
    for state, held in (("Pending", 0), ("Declined", 0), ("Committed", 1), ("Live", 1)):
        said = view(reservationStateInfo={"reservationState": state})
        assert len(read_reservations("azure", GROUP, [reservation("a")], said)) == held


def test_where_a_group_is() -> None:
    assert place_of(GROUP) == ("ML-Team", "pool")
    assert region_of(GROUP) == "eastus"
    assert place_of({"id": "odd", "name": "x"}) == ("", "x")


def token(claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"head.{body}.signature"


def test_who_a_token_speaks_for() -> None:
    claims = {"tid": "contoso-tenant", "upn": "ada@contoso.com", "oid": "1", "appid": "2", "nonce": 3}
    assert parse_identity(token(claims), "sub") == "ada@contoso.com, tenant contoso-tenant, subscription sub"
    assert parse_identity(token({"appid": "robot"}), "sub") == "robot, subscription sub"
    for opaque in ("nobody", "a.b.c", token([1]), "..", token({"upn": "x" * 999})):
        assert parse_identity(opaque, "sub") == "subscription sub"
