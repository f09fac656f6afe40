"""Default script of the sandbox: a small cloud of two regions whose spot prices move by day."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from providers.sandbox.script import Script

_EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
_STEP = timedelta(hours=3)
_BEFORE, _AFTER = timedelta(days=8), timedelta(days=2)
_REGIONS: tuple[dict[str, Any], ...] = (
    {
        "name": "sandbox-east",
        "country": "US",
        "continent": "NA",
        "geo": "NA",
        "residency_group": "US",
        "city": "Springfield",
        "zones": ["sandbox-east-a", "sandbox-east-b"],
    },
    {
        "name": "sandbox-north",
        "country": "SE",
        "continent": "EU",
        "geo": "EU",
        "residency_group": "EU",
        "city": "Ankeborg",
        "zones": ["sandbox-north-a", "sandbox-north-b"],
    },
)
_SHAPE = {"accelerators": 8, "vcpus": 192, "memory_gib": 2048, "intra_node_interconnect": "nvlink-switch"}
_MACHINES: tuple[dict[str, Any], ...] = (
    {
        "type": "h100.8x",
        "accelerator": "H100",
        **_SHAPE,
        "intra_node_gb_per_s": 900,
        "inter_node_gbps": 3200,
        "fabric": "infiniband",
        "local_nvme_gib": 28000,
    },
    {
        "type": "a100.8x",
        "accelerator": "A100-80GB",
        **_SHAPE,
        "intra_node_gb_per_s": 600,
        "inter_node_gbps": 1600,
        "fabric": "infiniband",
        "local_nvme_gib": 7600,
    },
)
# Prices in hundredths of a dollar: on demand, and the middle of the spot price.
_CENTS = {"h100.8x": (4_400, 1_900), "a100.8x": (2_150, 980)}
_PRICE_PERCENT = {"sandbox-east": 100, "sandbox-north": 106}


def make_default_script(now: datetime) -> Script:
    """Return the default script, with the same prices at the same moments whenever it is asked.

    Only how far back it reaches depends on ``now``.
    """
    return Script.model_validate(
        {
            "regions": _REGIONS,
            "machines": _MACHINES,
            "prices": list(_prices(now)),
            "stock": list(_stock(now)),
            "quotas": [
                {"name": "accelerators on demand", "amount": 128, "market": "on_demand"},
                {"name": "accelerators on spot", "amount": 256, "market": "spot"},
            ],
        }
    )


def _moments(now: datetime) -> Iterator[datetime]:
    first = (now - _BEFORE - _EPOCH) // _STEP
    last = (now + _AFTER - _EPOCH) // _STEP
    return (_EPOCH + number * _STEP for number in range(first, last + 1))


def _pseudo_random(*words: object) -> int:
    """Return a whole number from 0 to 999 that looks random and is always the same for the same words."""
    return zlib.crc32("/".join(map(str, words)).encode()) % 1000


def _places() -> Iterator[tuple[str, str, str]]:
    for region in _REGIONS:
        for machine in _MACHINES:
            for zone in region["zones"]:
                yield region["name"], zone, machine["type"]


def _prices(now: datetime) -> Iterator[dict[str, Any]]:
    for region in _REGIONS:
        for name, (listed, _) in _CENTS.items():
            cents = listed * _PRICE_PERCENT[region["name"]]
            steps = [{"at": _EPOCH, "usd": Decimal(cents).scaleb(-4)}]
            yield {"machine": name, "region": region["name"], "steps": steps}
    for region_name, zone, name in _places():
        middle = _CENTS[name][1] * _PRICE_PERCENT[region_name]  # In ten-thousandths of a dollar.
        steps = [
            {"at": at, "usd": Decimal(middle * (850 + 300 * _pseudo_random(zone, name, at) // 1000) // 1000).scaleb(-4)}
            for at in _moments(now)
        ]
        yield {"machine": name, "region": region_name, "zone": zone, "market": "spot", "steps": steps}


def _stock(now: datetime) -> Iterator[dict[str, Any]]:
    for region_name, zone, name in _places():
        steps = [
            {"at": at, "machines": max(0, _pseudo_random("stock", zone, name, at) // 60 - 2)} for at in _moments(now)
        ]
        yield {"machine": name, "region": region_name, "zone": zone, "market": "spot", "steps": steps}
