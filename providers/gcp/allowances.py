"""Parser of the project's quotas and reservations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pricing.places import Market
from pricing.units import parse_utc
from providers.protocol import CapacityReservation, Quota, QuotaUnit

_METRIC = re.compile(r"(?P<kind>PREEMPTIBLE_|COMMITTED_)?NVIDIA_(?P<model>[A-Z0-9_]+)_GPUS")
_MARKETS = {None: Market.ON_DEMAND, "PREEMPTIBLE_": Market.SPOT, "COMMITTED_": Market.RESERVED}
_MODELS = {
    "T4": "T4",
    "V100": "V100-16GB",
    "L4": "L4",
    "A100": "A100-40GB",
    "A100_80GB": "A100-80GB",
    "H100": "H100",
    "H100_MEGA": "H100",
    "H200": "H200",
    "B200": "B200",
    "RTX_PRO_6000": "RTX-PRO-6000",
}
_ALL_REGIONS = "GPUS_ALL_REGIONS"


def read_quotas(cloud: str, region: str | None, rows: Iterable[Mapping[str, Any]]) -> list[Quota]:
    """Return accelerator quotas among ``quotas`` of regions.list, or (region None) of projects.get.

    Google counts A3 High and A3 Mega apart; both have H100 and belong to one family, so their quotas are added into one
    that is never too strict. When a job exceeds one of the two, Google refuses the start.
    """
    found: dict[tuple[str | None, Market | None], tuple[list[str], int, int]] = {}
    for row in rows:
        metric = str(row.get("metric", ""))
        amount, used = int(row.get("limit", 0)), int(row.get("usage", 0))
        if metric == _ALL_REGIONS and region is None:
            key: tuple[str | None, Market | None] = (None, None)
        else:
            match = _METRIC.fullmatch(metric)
            if match is None or match["model"] not in _MODELS:
                continue
            key = (_MODELS[match["model"]], _MARKETS[match["kind"]])
        names, total, in_use = found.get(key, ([], 0, 0))
        found[key] = ([*names, metric], total + amount, in_use + used)
    return [
        Quota(cloud, "+".join(sorted(names)), region, (), accelerator, market, amount, used, QuotaUnit.ACCELERATORS)
        for (accelerator, market), (names, amount, used) in found.items()
    ]


def find_uncounted_accelerators(quotas: Iterable[Quota]) -> tuple[str, ...]:
    """Return accelerators for which Compute Engine states no quota.

    The Cloud Quotas API holds the quotas of newer ones.
    """
    return tuple(sorted(set(_MODELS.values()) - {quota.accelerator for quota in quotas}))


def read_reservations(
    cloud: str, rows: Iterable[Mapping[str, Any]], regions: Sequence[str]
) -> list[CapacityReservation]:
    """Return reservations of accelerator-optimized machines that are ready, in these regions (empty: all)."""
    found = []
    for row in rows:
        specific = row.get("specificReservation", {})
        machine_type = last_segment(specific.get("instanceProperties", {}).get("machineType", ""))
        zone = last_segment(row.get("zone", ""))
        if row.get("status") != "READY" or not re.match(r"[ag]\d", machine_type) or not zone:
            continue
        region = region_of(zone)
        if regions and region not in regions:
            continue
        count, in_use = int(specific.get("count", 0)), int(specific.get("inUseCount", 0))
        found.append(
            CapacityReservation(
                cloud,
                str(row.get("name", "")),
                region,
                zone,
                machine_type,
                count,
                max(0, count - in_use),
                parse_utc(row.get("creationTimestamp")),
                parse_utc(row.get("deleteAtTime")),
                automatic=not row.get("specificReservationRequired", False),
            )
        )
    return sorted(found, key=lambda h: (h.region, h.zone or "", h.name))


def last_segment(url: str) -> str:
    """Return the name at the end of a resource's address."""
    return url.rsplit("/", 1)[-1]


def region_of(zone: str) -> str:
    """Return ``us-central1`` of ``us-central1-a``."""
    return zone.rpartition("-")[0]
