"""What the stand-in for AWS sells: regions, zones and instance types of moto's data, prices made up and repeatable.

moto carries EC2's own answers about instance types and where they are sold. Regions that it has no offerings for are
given those of another region; when more regions are wanted than there are, some are invented (eu-lab-1 ...).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, cached_property
from zlib import crc32

from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES

# US cents an hour for one GPU, about what they cost.
CENTS = {
    "T4": 35, "V100": 306, "A10G": 90, "L4": 70, "L40S": 160, "RTX PRO Server 6000": 300, "A100": 340, "H100": 688,
    "H200": 790, "B200": 1180, "B300": 1420,
}  # fmt: skip
LIST_SCALE = 100_000  # list prices have five decimals
SPOT_SCALE = 10_000  # spot prices have four
NEW_KNOWN, NEW_UNKNOWN = "g9e.2xlarge", "p7.48xlarge"  # of the fault "new_type": an L40S, and a GPU nobody knows
NOT_ON_DEMAND = frozenset({"p5e.48xlarge"})  # sold as capacity blocks only

_OFFERINGS = INSTANCE_TYPE_OFFERINGS["availability-zone-id"]
_ZONES = RegionsAndZonesBackend.zones
_ELSEWHERE = ("cn-", "us-gov-")


def _number(*parts: object) -> int:
    return crc32("|".join(map(str, parts)).encode())


def gpu_of(name: str) -> tuple[str, int]:
    """GPU name and count; "" where the type has none, or a part of one."""
    if name == NEW_KNOWN:
        return "L40S", 1
    if name == NEW_UNKNOWN:
        return "R200", 8
    gpus = INSTANCE_TYPES.get(name, {}).get("GpuInfo", {}).get("Gpus", ())
    if len(gpus) != 1 or not gpus[0].get("Count"):
        return "", 0
    return str(gpus[0]["Name"]), int(gpus[0]["Count"])


@cache
def all_regions() -> tuple[str, ...]:
    """Of ordinary accounts; those that sell most GPUs come first."""
    counts = {region: sum(gpu_of(row["InstanceType"])[0] != "" for row in rows) for region, rows in _OFFERINGS.items()}
    real = (region for region in _ZONES if not region.startswith(_ELSEWHERE))
    return tuple(sorted(real, key=lambda region: (-counts.get(region, 0), region)))


def first_regions(count: int) -> tuple[str, ...]:
    """So many regions, invented ones last."""
    real = all_regions()[:count]
    return (*real, *(f"eu-lab-{index}" for index in range(1, count - len(real) + 1)))


@dataclass(frozen=True)
class World:
    """One account's view at ``now``. ``history_rows`` are spread evenly over the regions, and in each over its zones,
    types and ``history_days``. ``new_types`` names the regions that sell two types which came out today."""

    regions: tuple[str, ...]
    off: tuple[str, ...]
    now: datetime
    history_rows: int
    history_days: float
    new_types: frozenset[str] = frozenset()

    def zones(self, region: str) -> Mapping[str, str]:
        """Zone name to zone id."""
        if region in _ZONES:
            return {zone.name: zone.zone_id for zone in _ZONES[region]}
        short = region.replace("-", "")
        return {f"{region}{letter}": f"{short}-az{index}" for index, letter in enumerate("abc", start=1)}

    @cached_property
    def _sold(self) -> dict[str, tuple[tuple[str, str], ...]]:
        return {}

    def sold(self, region: str) -> Sequence[tuple[str, str]]:
        """Instance type and zone id, sorted."""
        if region not in self._sold:
            names = sorted(self.zones(region).values())
            rows = _OFFERINGS.get(region) or self._borrowed(region, names)
            pairs = {(row["InstanceType"], row["Location"]) for row in rows if row["Location"] in names}
            if region in self.new_types:
                pairs |= {(name, names[0]) for name in (NEW_KNOWN, NEW_UNKNOWN)}
            self._sold[region] = tuple(sorted(pairs))
        return self._sold[region]

    def sold_with_gpus(self, region: str) -> Sequence[tuple[str, str]]:
        """Those with whole GPUs that have a price here."""
        return [pair for pair in self.sold(region) if gpu_of(pair[0])[0] in CENTS]

    def list_price(self, region: str, name: str) -> int:
        """In 1/100,000 US dollars an hour."""
        gpu, count = gpu_of(name)
        dear = 100 + _number(region) % 25
        return CENTS.get(gpu, 20) * max(count, 1) * (LIST_SCALE // 100) * dear // 100 + _number(name) % 997

    def history(self, region: str) -> Sequence[tuple[str, str, str, str, str]]:
        """Moment, type, zone name, zone id, price; newest first."""
        if region not in self._histories:
            self._histories[region] = sorted(self._make_history(region), reverse=True)
        return self._histories[region]

    @cached_property
    def _selling(self) -> Sequence[str]:
        return [region for region in self.regions if self.sold_with_gpus(region)]

    @cached_property
    def _histories(self) -> dict[str, Sequence[tuple[str, str, str, str, str]]]:
        return {}

    def _make_history(self, region: str) -> Iterator[tuple[str, str, str, str, str]]:
        names = {zone_id: name for name, zone_id in self.zones(region).items()}
        pairs = self.sold_with_gpus(region)
        if region not in self._selling:
            return
        index = self._selling.index(region)
        rows = self.history_rows // len(self._selling) + (index < self.history_rows % len(self._selling))
        rows = max(rows, len(pairs))
        step = timedelta(days=self.history_days) / -(-rows // len(pairs))
        for row in range(rows):
            name, zone_id = pairs[row % len(pairs)]
            turn = row // len(pairs)
            at = self.now - turn * step - timedelta(seconds=60 + _number(name, zone_id) % 600)
            share = 35 + _number(region, zone_id, name) % 30 + _number(zone_id, name, turn) % 5
            price = self.list_price(region, name) * share // 100 // (LIST_SCALE // SPOT_SCALE)
            text = f"{price // SPOT_SCALE}.{price % SPOT_SCALE:04d}00"
            yield f"{at:%Y-%m-%dT%H:%M:%S}.000Z", name, names[zone_id], zone_id, text

    def _borrowed(self, region: str, names: Sequence[str]) -> list[dict[str, str]]:
        template = all_regions()[_number(region) % 12]
        theirs = dict(zip(sorted(self.zones(template).values()), names, strict=False))
        return [
            {"InstanceType": row["InstanceType"], "Location": theirs[row["Location"]]}
            for row in _OFFERINGS[template]
            if row["Location"] in theirs
        ]


def score(region: str, zone_id: str, name: str, machines: int) -> int:
    """1 to 10; never better for more machines."""
    return max(1, 1 + _number(region, zone_id, name) % 10 - machines // 8)


def advice(region: str, name: str) -> dict[str, int]:
    """Interruption band and saving, as the Spot Advisor writes them."""
    return {"s": 20 + _number("s", region, name) % 50, "r": _number("r", region, name) % 5}


def decimal(price: int, scale: int, digits: int) -> str:
    """A price in 1/scale, written out with so many decimals."""
    places = len(str(scale)) - 1
    return f"{price // scale}.{price % scale:0{places}d}".ljust(len(str(price // scale)) + 1 + digits, "0")
