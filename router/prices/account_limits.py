"""Conversion of quotas and reserved capacity to a limits file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pricing.book import PriceBook
from pricing.places import RegionId
from providers.protocol import AccountAllowances, CapacityReservation, Quota
from router.jobs.quantities import Moment


def build_limits_file(allowances_by_cloud: Mapping[str, AccountAllowances], book: PriceBook) -> dict[str, Any]:
    """Build a limits file: a limit for each quota, a reservation with its dates for each that has machines free.

    A reservation that the cloud bills by the hour has the on-demand price of ``book``. One that was paid at once has no
    price, which makes it unknown: the cloud does not state it. Names are made unique by counting.
    """
    names: set[str] = set()
    quotas = [q for allowances in allowances_by_cloud.values() for q in allowances.quotas]
    reservations = [h for allowances in allowances_by_cloud.values() for h in allowances.held]
    return {
        "limits": [_named(limit_fields(quota), names) for quota in sorted(quotas, key=_quota_key)],
        "reservations": [
            _named(reservation_fields(one, book), names)
            for one in sorted(reservations, key=_reservation_key)
            if one.free
        ],
    }


def _quota_key(quota: Quota) -> tuple[str, ...]:
    return (quota.cloud, quota.region or "", quota.name, quota.market or "")


def _reservation_key(reservation: CapacityReservation) -> tuple[str, ...]:
    return (reservation.cloud, reservation.region, reservation.zone or "", reservation.name)


def limit_fields(quota: Quota) -> dict[str, Any]:
    """Return a quota as an entry of a limits file; its name may be taken by another."""
    fields = {
        "name": f"{quota.cloud} {quota.region or 'everywhere'} {quota.name}",
        "cloud": quota.cloud,
        "region": quota.region,
        "family": list(quota.families),
        "accelerator": quota.accelerator,
        "market": quota.market.value if quota.market is not None else None,
        "amount": quota.amount,
        "unit": quota.unit.value,
    }
    return {name: value for name, value in fields.items() if value not in (None, [])}


def reservation_fields(reservation: CapacityReservation, book: PriceBook) -> dict[str, Any]:
    """Return what is free of a reservation as an entry of a limits file; its name may be taken by another."""
    place = RegionId(reservation.cloud, reservation.region)
    price = None if reservation.prepaid else book.on_demand(place, reservation.zone, reservation.instance_type)
    fields = {
        "name": reservation.name,
        "cloud": reservation.cloud,
        "region": reservation.region,
        "zone": reservation.zone,
        "instance_type": reservation.instance_type,
        "machines": reservation.free,
        "usd_per_hour": None if price is None else str(price),
        "from": None if reservation.start is None else _format_moment(reservation.start),
        "until": None if reservation.end is None else _format_moment(reservation.end),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _format_moment(moment: datetime) -> str:
    return str(Moment(absolute=moment.astimezone(UTC)))


def _named(fields: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {**fields, "name": _unique(fields["name"], names)}


def _unique(name: str, names: set[str]) -> str:
    candidates: Iterable[str] = (name if i == 1 else f"{name} ({i})" for i in range(1, len(names) + 2))
    chosen = next(candidate for candidate in candidates if candidate not in names)
    names.add(chosen)
    return chosen
