"""Parser of quotas (Service Quotas ListServiceQuotas) and reservations (EC2 DescribeCapacityReservations). Pure.

EC2's quotas for machines count vCPUs of a class, and the class is in the quota's name: "Running On-Demand P instances",
"All P4, P3 and P2 Spot Instance Requests", "All G and VT Spot Instance Requests".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from pricing.places import Market
from pricing.units import parse_utc
from providers.protocol import CapacityReservation, Quota, QuotaUnit

_NAMES: Mapping[Market, re.Pattern[str]] = {
    Market.ON_DEMAND: re.compile(r"Running On-Demand (?P<classes>.+) instances"),
    Market.SPOT: re.compile(r"All (?P<classes>.+) Spot Instance Requests"),
}
_CLASS = re.compile(r"[A-Z]+\d*")
_SEPARATOR = re.compile(r", | and ")
_FAMILY = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d+)")
# Families whose class differs from their letters: gr6 counts as G.
_CLASS_OF_LETTERS = {"gr": "g"}
_HELD_STATES = frozenset({"active", "scheduled"})
# EC2 begins to terminate the machines of a capacity block this long before its end.
BLOCK_CLOSES = timedelta(minutes=30)
_LINUX = frozenset({"Linux/UNIX", ""})
# Families with GPUs: a reservation counts even when the book does not know its type yet.
_GPU_LETTERS = frozenset({"g", "gr", "p"})


def read_quotas(
    cloud: str, region: str, rows: Iterable[Mapping[str, Any]], families: frozenset[str]
) -> tuple[Quota, ...]:
    """Return the quotas that apply to any of ``families``; EC2 does not say here how much is used."""
    quotas = []
    for row in rows:
        name, value = row.get("QuotaName", ""), row.get("Value")
        for market, pattern in _NAMES.items():
            match = pattern.fullmatch(name)
            covered = _covered(match["classes"], families) if match else ()
            if covered and value is not None and value >= 0:
                quotas.append(
                    Quota(
                        cloud=cloud,
                        name=name,
                        region=region,
                        families=covered,
                        accelerator=None,
                        market=market,
                        amount=int(value),
                        used=None,
                        unit=QuotaUnit.VCPUS,
                    )
                )
    return tuple(sorted(quotas, key=lambda quota: quota.name))


def _covered(classes: str, families: frozenset[str]) -> tuple[str, ...]:
    """Return the families in the classes of a quota's name.

    P is every p family, P5 is p5, p5e and p5en.
    """
    wanted = {token.lower() for token in _SEPARATOR.split(classes) if _CLASS.fullmatch(token)}
    found = set()
    for family in families:
        match = _FAMILY.match(family)
        if match is not None:
            letters = _CLASS_OF_LETTERS.get(match["letters"], match["letters"])
            if wanted & {letters, letters + match["generation"]}:
                found.add(family)
    return tuple(sorted(found))


def read_reservations(cloud: str, region: str, rows: Iterable[Mapping[str, Any]]) -> tuple[CapacityReservation, ...]:
    """Return reservations and capacity blocks, active or scheduled, of machines with GPUs for Linux."""
    reservations = []
    for row in rows:
        instance_type = row.get("InstanceType", "")
        if row.get("State") not in _HELD_STATES or row.get("InstancePlatform", "") not in _LINUX:
            continue
        family = _FAMILY.match(instance_type)
        if family is None or family["letters"] not in _GPU_LETTERS:
            continue
        # EC2 does not count machines of a scheduled reservation as available yet.
        scheduled = row.get("State") == "scheduled"
        block = row.get("ReservationType") == "capacity-block"
        end = parse_utc(row.get("EndDate"))
        reservations.append(
            CapacityReservation(
                cloud=cloud,
                name=row["CapacityReservationId"],
                region=region,
                zone=row.get("AvailabilityZoneId"),
                instance_type=instance_type,
                machines=row.get("TotalInstanceCount", 0),
                free=row.get("TotalInstanceCount" if scheduled else "AvailableInstanceCount", 0),
                start=parse_utc(row.get("StartDate")),
                end=end - BLOCK_CLOSES if end is not None and block else end,
                prepaid=block,
            )
        )
    return tuple(sorted(reservations, key=lambda reservation: reservation.name))
