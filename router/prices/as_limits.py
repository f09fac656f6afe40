"""Quotas and held capacity in the words of a limits file. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from providers.protocol import Allowances, Held, Quota


def as_limits(found: Mapping[str, Allowances]) -> dict[str, Any]:
    """A limits file: a limit for each quota, a reservation for each that still has machines free.

    A reservation's price is left out: the planner then takes the on-demand price of its machine. Names are made
    unique by counting.
    """
    names: set[str] = set()
    quotas = [q for allowances in found.values() for q in allowances.quotas]
    held = [h for allowances in found.values() for h in allowances.held]
    return {
        "limits": [_limit(quota, names) for quota in sorted(quotas, key=_quota_key)],
        "reservations": [_reservation(one, names) for one in sorted(held, key=_held_key) if one.free],
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


def _reservation(held: Held, names: set[str]) -> dict[str, Any]:
    fields = {
        "name": _unique(held.name, names),
        "cloud": held.cloud,
        "region": held.region,
        "zone": held.zone,
        "instance_type": held.instance_type,
        "machines": held.free,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _unique(name: str, names: set[str]) -> str:
    candidates: Iterable[str] = (name if i == 1 else f"{name} ({i})" for i in range(1, len(names) + 2))
    chosen = next(candidate for candidate in candidates if candidate not in names)
    names.add(chosen)
    return chosen
