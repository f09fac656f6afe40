"""Price catalogue of Compute Engine: from SKUs to hourly rates of the parts of machines.

A SKU counts when its whole description is one of the forms below: commitments, reservations, sole tenancy, calendar
mode and flex-start ("DWS") have words of their own and so never match. Rates are exact, in nano-dollars an hour for one
vCPU, one GiB, one accelerator or one slice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fractions import Fraction
from typing import Any

from pricing.money import NANOS
from pricing.places import Market
from providers.gcp.series import SKU_ACCELERATORS, SKU_SLICES
from providers.protocol import DroppedRow


class BilledPart(StrEnum):
    """The part of a machine that is priced; its value is the word in reasons."""

    VCPU = "vCPU"
    RAM = "RAM"
    GPU = "GPU"
    LOCAL_SSD = "local SSD"
    SLICE = "GPU slice"


@dataclass(frozen=True, slots=True, order=True)
class BilledComponent:
    """A priced part of a machine.

    ``of``: the family of vCPUs, memory and its own Local SSD, the accelerator otherwise, "" for any family.
    """

    part: BilledPart
    of: str


Key = tuple[BilledComponent, Market, str]

# Google's own machine prices take a month as 730 hours: only then do eight H100, 208 vCPUs, 1,872 GiB and 6,000 GiB of
# Local SSD at $0.08 a month add up to the published $88.49 of a3-highgpu-8g.
_HOURS_A_MONTH = 730
_GIB_IN_GB = Fraction(2**30, 10**9)
_UNITS: Mapping[BilledPart, Mapping[str, Fraction]] = {
    BilledPart.VCPU: {"h": Fraction(1)},
    BilledPart.GPU: {"h": Fraction(1)},
    BilledPart.SLICE: {"h": Fraction(1)},
    BilledPart.RAM: {"GiBy.h": Fraction(1), "GBy.h": _GIB_IN_GB},
    BilledPart.LOCAL_SSD: {"GiBy.h": Fraction(1), "GiBy.mo": Fraction(1, _HOURS_A_MONTH), "GBy.h": _GIB_IN_GB},
}

_SPOT = r"(?P<spot>(?:Spot )?Preemptible )?"
_ATTACHED = r"(?P<attached> attached to (?:Spot )?Preemptible VMs?)?"
_INSTANCE = re.compile(
    rf"{_SPOT}(?P<family>[AG]\d\w*(?: (?:Ultra|Mega|Plus))?) ?Instance (?P<part>Core|Ram|Local SSD) running in .+",
    re.IGNORECASE,
)
_GPU = re.compile(rf"{_SPOT}(?P<gpu>{'|'.join(map(re.escape, SKU_ACCELERATORS))}){_ATTACHED} running in .+")
_SLICE = re.compile(
    rf"{_SPOT}A\d\w* Nvidia (?P<gpu>{'|'.join(SKU_SLICES)}) \(1 gpu slice\){_ATTACHED} running in .+", re.IGNORECASE
)
_LOCAL_SSD = re.compile(rf"SSD backed Local Storage{_ATTACHED}(?: (?:running )?in .+)?")
_PARTS = {"core": BilledPart.VCPU, "ram": BilledPart.RAM, "local ssd": BilledPart.LOCAL_SSD}


def parse_component(description: str) -> tuple[BilledComponent, bool] | None:
    """Return what a SKU prices, and whether its name says Spot; None when it prices no part of a machine."""
    if found := _INSTANCE.fullmatch(description):
        family = found["family"].lower().replace(" ", "")
        return BilledComponent(_PARTS[found["part"].lower()], family), bool(found["spot"])
    if found := _GPU.fullmatch(description):
        return BilledComponent(BilledPart.GPU, SKU_ACCELERATORS[found["gpu"]]), bool(found["spot"] or found["attached"])
    if found := _SLICE.fullmatch(description):
        return BilledComponent(BilledPart.SLICE, SKU_SLICES[found["gpu"].upper()]), bool(
            found["spot"] or found["attached"]
        )
    if found := _LOCAL_SSD.fullmatch(description):
        return BilledComponent(BilledPart.LOCAL_SSD, ""), bool(found["attached"])
    return None


class SkuTable:
    """Rates by component, market and region, filled page by page; unusable SKUs are stored with the reason."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._rates: dict[Key, Fraction] = {}
        self._faults: dict[Key, str] = {}
        self._dropped: dict[str, list[DroppedRow]] = {}
        self._own_local_ssd: set[str] = set()
        self.rows_read = 0

    def add(self, skus: Iterable[Mapping[str, Any]]) -> None:
        """Add one page; order does not matter. A SKU that does not say what it is for is dropped."""
        for sku in skus:
            self.rows_read += 1
            try:
                usage, description = sku["category"]["usageType"], str(sku["description"])
                regions = [str(region) for region in sku["serviceRegions"]]
            except (KeyError, TypeError):
                self._drop("", sku, "a SKU that cannot be read")
                continue
            priced = parse_component(description) if usage in ("OnDemand", "Preemptible") else None
            if priced is None:
                continue
            component, named_spot = priced
            # The name decides: slices and Local SSD of Spot machines have been filed under "OnDemand".
            market = Market.SPOT if named_spot or usage == "Preemptible" else Market.ON_DEMAND
            rate = _rate(sku, component.part, self._now)
            if component.part is BilledPart.LOCAL_SSD and component.of:
                self._own_local_ssd.add(component.of)
            for region in regions:
                self._enter((component, market, region), rate, sku)

    def rate(self, component: BilledComponent, market: Market, region: str) -> Fraction | str:
        """Return nano-dollars an hour for one unit, or why there is no such price."""
        key = (component, market, region)
        if key in self._faults:
            return self._faults[key]
        found = self._rates.get(key)
        return found if found is not None else f"no price for its {component.part} in the region"

    def faulty(self, component: BilledComponent, market: Market, region: str) -> bool:
        """Return whether the catalogue has the price and it cannot be used."""
        return (component, market, region) in self._faults

    def has_own_local_ssd(self, family: str) -> bool:
        """Return whether a family's Local SSD has SKUs of its own anywhere."""
        return family in self._own_local_ssd

    def dropped(self, region: str) -> Sequence[DroppedRow]:
        """Return SKUs of the region, or of no known one, that could not be used."""
        return (*self._dropped.get(region, ()), *self._dropped.get("", ()))

    def _enter(self, key: Key, rate: Fraction | str, sku: Mapping[str, Any]) -> None:
        part, region = key[0].part, key[2]
        if isinstance(rate, str):
            self._faults[key] = f"the price of its {part} {rate}"
            self._drop(region, sku, f"a price that {rate}")
        elif key in self._rates and self._rates[key] != rate:
            self._faults[key] = f"two prices for its {part} in the region"
            self._drop(region, sku, "a second price for the same thing")
        else:
            self._rates[key] = rate

    def _drop(self, region: str, sku: object, why: str) -> None:
        known: Mapping[str, Any] = sku if isinstance(sku, Mapping) else {}
        name = f"SKU {known.get('skuId', '?')} {known.get('description', '')}".strip()
        self._dropped.setdefault(region, []).append(DroppedRow(name, why))


def _rate(sku: Mapping[str, Any], part: BilledPart, now: datetime) -> Fraction | str:
    """Return nano-dollars an hour for one unit, or what is wrong with the price, to follow "the price"."""
    try:
        expression = _in_force(sku["pricingInfo"], now)["pricingExpression"]
        unit = _UNITS[part].get(expression["usageUnit"])
        tiers = expression["tieredRates"]
        if len(tiers) != 1:
            return "has several tiers"
        price = tiers[0]["unitPrice"]
        nanos = int(price.get("units") or 0) * NANOS + int(price.get("nanos") or 0)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        return "cannot be read"
    if price.get("currencyCode") != "USD":
        return "is not in USD"
    if unit is None:
        return "is for an unknown unit"
    if nanos <= 0:
        return "is not above 0"
    return nanos * unit


def _in_force(timeline: Sequence[Mapping[str, Any]], now: datetime) -> Mapping[str, Any]:
    """Return the entry in force: usually the only one, else the latest that has begun.

    A price change may be announced ahead.
    """
    if len(timeline) == 1:
        return timeline[0]
    begun = [(datetime.fromisoformat(entry["effectiveTime"]), i) for i, entry in enumerate(timeline)]
    return timeline[max(pair for pair in begun if pair[0] <= now)[1]]
