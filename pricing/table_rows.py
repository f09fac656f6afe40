"""Values from the rows (CSV cells) of the embedded tables. Pure: text in, values out; blank is unknown.

The tables are the package's own and are checked by tests, so a bad cell raises ValueError without a place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache

from pricing.egress import Tariff, Tier
from pricing.machines import Accelerator, Machine
from pricing.money import UsdPerGb, UsdPerHour
from pricing.offers import Offer
from pricing.places import Market, Region, RegionId
from pricing.risk import RiskPrior, RiskSignal
from pricing.units import gb_to_bytes

Row = Mapping[str, str]
UNDATED = "undated"
# The bands of the embedded offers equal the advisor file of this day, whatever day their prices were read.
EMBEDDED_BANDS_OF = date(2025, 6, 28)


def _float(cell: str) -> float | None:
    return float(cell) if cell else None


def _int(cell: str) -> int | None:
    return int(cell) if cell else None


_date = cache(date.fromisoformat)
_rate = cache(UsdPerHour.parse)


def parse_offers(rows: Iterable[Row]) -> tuple[Offer, ...]:
    """Parse ``offers.csv``: one row per offer (place, type and market)."""
    markets = {market.value: market for market in Market}
    return tuple(
        Offer(
            cloud=row["cloud"],
            region=row["region"],
            zone=None,
            instance_type=row["instance_type"],
            market=markets[row["market"]],
            usd_per_hour=_rate(row["usd_per_hour"]),
            source=row["source"],
            as_of=_date(row["as_of"]) if row["as_of"] else None,
            not_before=row["not_before"] == "yes",
            interruption_band=row["interruption_band"] or None,
            band_as_of=EMBEDDED_BANDS_OF if row["interruption_band"] else None,
            price_basis=row["price_basis"],
            weak=row["weak"],
        )
        for row in rows
    )


def parse_machines(rows: Iterable[Row]) -> tuple[Machine, ...]:
    """Parse ``machines.csv``."""
    return tuple(
        Machine(
            cloud=row["cloud"],
            instance_type=row["instance_type"],
            accelerator=row["accelerator"],
            accelerator_count=int(row["accelerator_count"]),
            accelerator_memory_gib=int(row["accelerator_memory_gib"]),
            vcpus=_int(row["vcpus"]),
            memory_gib=_float(row["memory_gib"]),
            intra_node_interconnect=row["intra_node_interconnect"] or None,
            intra_node_gb_per_s=_float(row["intra_node_gb_per_s"]),
            inter_node_gbps=_float(row["inter_node_gbps"]),
            fabric=row["fabric"] or None,
            local_nvme_gib=_int(row["local_nvme_gib"]),
            source=row["source"],
            as_of=row["as_of"],
            checked=row["checked"] == "yes",
        )
        for row in rows
    )


def parse_accelerators(rows: Iterable[Row]) -> tuple[Accelerator, ...]:
    """Parse ``accelerators.csv``."""
    return tuple(
        Accelerator(
            name=row["accelerator"],
            memory_gib=int(row["memory_gib"]),
            memory_bandwidth_gb_per_s=float(row["memory_bandwidth_gb_per_s"]),
            bf16_dense_tflops=float(row["bf16_dense_tflops"]),
            fp8_dense_tflops=_float(row["fp8_dense_tflops"]),
            tdp_w=_int(row["tdp_w"]),
            generation=row["generation"],
            source=row["source"],
            as_of=row["as_of"],
            checked=row["checked"] == "yes",
        )
        for row in rows
    )


def parse_regions(rows: Iterable[Row]) -> tuple[Region, ...]:
    """Parse ``regions.csv``."""
    return tuple(
        Region(
            id=RegionId(row["cloud"], row["region"]),
            country=row["country"] or None,
            continent=row["continent"],
            geo=row["geo"],
            residency_group=row["residency_group"] or None,
            city=row["city"],
            latitude=_float(row["latitude"]),
            longitude=_float(row["longitude"]),
            grid_carbon_gco2_per_kwh=_int(row["grid_carbon_gco2_per_kwh"]),
            source=row["source"],
            as_of=row["as_of"],
        )
        for row in rows
    )


def parse_tariffs(rows: Iterable[Row]) -> tuple[Tariff, ...]:
    """Parse ``egress.csv``: one row per tier; rows of one meter become one tariff.

    A tariff carries all its tiers' sources and reasons for doubt, and the oldest of their dates.
    """
    meters: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        meter = (row["cloud"], row["scope"], row["from_group"], row["to_group"])
        meters.setdefault(meter, []).append(row)
    return tuple(
        Tariff(
            *meter,
            tiers=tuple(sorted((_tier(row) for row in group), key=lambda tier: tier.from_bytes)),
            source="; ".join(dict.fromkeys(row["source"] for row in group)),
            as_of=UNDATED if any(r["as_of"] == UNDATED for r in group) else min(r["as_of"] for r in group),
            weak="; ".join(dict.fromkeys(row["weak"] for row in group if row["weak"])),
        )
        for meter, group in meters.items()
    )


def _tier(row: Row) -> Tier:
    end = row["tier_to_gb"]
    return Tier(
        from_bytes=gb_to_bytes(float(row["tier_from_gb"])),
        to_bytes=gb_to_bytes(float(end)) if end else None,
        price=UsdPerGb.parse(row["usd_per_gb"]),
    )


def parse_priors(rows: Iterable[Row]) -> tuple[RiskPrior, ...]:
    """Parse ``interruption_priors.csv``."""
    return tuple(
        RiskPrior(
            cloud=row["cloud"],
            accelerator=row["accelerator"],
            market=row["market"],
            shape=row["shape"],
            level=float(row["level"]),
            low=float(row["low"]),
            high=float(row["high"]),
            recovery_hours=float(row["recovery_hours"]),
            refusal_probability=float(row["refusal_probability"]),
            source=row["source"],
            as_of=row["as_of"],
            weak=row["weak"],
        )
        for row in rows
    )


def parse_signals(rows: Iterable[Row]) -> tuple[RiskSignal, ...]:
    """Parse ``interruption_signals.csv``."""
    return tuple(
        RiskSignal(
            cloud=row["cloud"],
            band=row["band"],
            shape=row["shape"],
            level=float(row["level"]),
            low=float(row["low"]),
            high=float(row["high"]),
            memory_months=float(row["memory_months"]),
            source=row["source"],
            as_of=row["as_of"],
        )
        for row in rows
    )
