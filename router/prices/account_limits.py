"""Quotas and held capacity in the words of a limits file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pricing.book import PriceBook
from pricing.places import RegionId
from providers.protocol import Allowances, Held, Quota
from router.jobs.quantities import Moment


def as_limits(found: Mapping[str, Allowances], book: PriceBook) -> dict[str, Any]:
    """A limits file: a limit for each quota, a reservation with its dates for each that has machines free.

    A reservation that the cloud bills by the hour has the on-demand price of ``book``, one that was paid at once has
    none, which makes it unknown: the cloud does not tell it. Names are made unique by counting.
    """
    names: set[str] = set()
    quotas = [q for allowances in found.values() for q in allowances.quotas]
    held = [h for allowances in found.values() for h in allowances.held]
    return {
        "limits": [_limit(quota, names) for quota in sorted(quotas, key=_quota_key)],
        "reservations": [_reservation(one, names, book) for one in sorted(held, key=_held_key) if one.free],
    }


def _quota_key(quota: Quota) -> tuple[str, ...]:
    return (quota.cloud, quota.region or "", quota.name, quota.market or "")


def _held_key(held: Held) -> tuple[str, ...]:
    return (held.cloud, held.region, held.zone or "", held.name)


def _limit(quota: Quota, names: set[str]) -> dict[str, Any]:
    fields = {
        "name": _unique(f"{quota.cloud} {quota.region or 'everywhere'} {quota.name}", names),
        "cloud": quota.cloud,
        "region": quota.region,
        "family": list(quota.families),
        "accelerator": quota.accelerator,
        "market": quota.market.value if quota.market is not None else None,
        "amount": quota.amount,
        "unit": quota.unit.value,
    }
    return {name: value for name, value in fields.items() if value not in (None, [])}


def _reservation(held: Held, names: set[str], book: PriceBook) -> dict[str, Any]:
    billed = None if held.prepaid else book.on_demand(RegionId(held.cloud, held.region), held.zone, held.instance_type)
    fields = {
        "name": _unique(held.name, names),
        "cloud": held.cloud,
        "region": held.region,
        "zone": held.zone,
        "instance_type": held.instance_type,
        "machines": held.free,
        "usd_per_hour": None if billed is None else str(billed),
        "from": None if held.start is None else _written(held.start),
        "until": None if held.end is None else _written(held.end),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _written(moment: datetime) -> str:
    return str(Moment(absolute=moment.astimezone(UTC)))


def _unique(name: str, names: set[str]) -> str:
    candidates: Iterable[str] = (name if i == 1 else f"{name} ({i})" for i in range(1, len(names) + 2))
    chosen = next(candidate for candidate in candidates if candidate not in names)
    names.add(chosen)
    return chosen
