"""Offers in CSV, as people write them and as ``stepfare offers -o csv`` does. Pure.

People write a row for each place and machine type, on-demand and spot side by side. Columns are those of
:data:`COLUMNS` (all of them; a blank cell is "not known" or "not sold", never zero) and, optionally,
:data:`OPTIONAL_COLUMNS`. A row becomes up to two offers: without a zone, spot is sold at the median of the zones where
that is known. ``machines_cap`` holds for each market on its own; ``interruptions_per_hour`` and ``interruption_band``
are about spot.

The program writes a row for each offer with all of its fields (:data:`REQUIRED_COLUMNS` and the two after it), which is
read back without loss, so that a book can be carried by hand, edited and imported. Derived columns are ignored. A file
is refused whole, with all problems listed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial

from pricing.book_check import did_you_mean
from pricing.machines import Accelerator, Machine, make_undescribed_machine
from pricing.money import UsdPerHour
from pricing.offers import Offer, OfferKey, remove_rounding_excess
from pricing.places import Market
from pricing.problems import InvalidInputError, Problem
from pricing.risk import BANDS

COLUMNS = (
    "cloud",
    "region",
    "instance_type",
    "accelerator",
    "accelerator_count",
    "accelerator_memory_gib",
    "vcpus",
    "memory_gib",
    "on_demand_usd_per_hour",
    "spot_usd_per_hour",
    "interruption_band",
    "zones",
    "source",
    "as_of",
    "price_basis",
    "spot_median_usd_per_hour",
    "spot_as_of",
)
OPTIONAL_COLUMNS = ("machines_cap", "interruptions_per_hour", "zone")

REQUIRED_COLUMNS = (
    "cloud",
    "region",
    "instance_type",
    "market",
    "accelerator",
    "accelerator_count",
    "usd_per_hour",
    "source",
)
OPTIONAL_RECORD_COLUMNS = (
    "zone",
    "as_of",
    "not_before",
    "price_basis",
    "interruption_band",
    "band_as_of",
    "preempted_share",
    "interruptions_per_hour",
    "machines_cap",
    "weak",
)
DERIVED_COLUMNS = ("usd_per_accelerator_hour", "age_days", "provisionable")

WEAK_UNDATED = "undated"
WEAK_AZURE_SPOT = "spot in 8 US regions only and far older than on-demand"
WEAK_SAVINGS = "spot from the advisor's savings, older than the on-demand price they apply to"
WEAK_LIST_ALL = "listed for every region: does not show that the region has the machine"


@dataclass(frozen=True)
class OfferRows:
    """The content of a file: offers, the machines that its rows describe, and where each offer was read."""

    offers: tuple[Offer, ...]
    machines: tuple[Machine, ...]
    places: Mapping[OfferKey, str]


@dataclass
class RowReader:
    """Read one file's rows and collect what is wrong; cell methods return None where a cell is blank or bad."""

    name: str
    columns: Mapping[str, int]
    known_machines: Mapping[tuple[str, str], Machine]
    accelerators: Mapping[str, Accelerator]
    where: str = ""
    row: Sequence[str] = ()
    problems: list[Problem] = field(default_factory=list)
    offers: dict[OfferKey, Offer] = field(default_factory=dict)
    places: dict[OfferKey, str] = field(default_factory=dict)
    machines: dict[tuple[str, str], Machine] = field(default_factory=dict)

    def wrong(self, column: str, what: str, remedy: str = "") -> None:
        self.problems.append(Problem(self.where, column, what, remedy))

    def cell(self, column: str) -> str:
        index = self.columns.get(column)
        return "" if index is None else self.row[index].strip()

    def needed(self, column: str) -> str:
        text = self.cell(column)
        if not text:
            self.wrong(column, "is blank")
        return text

    def price(self, column: str) -> UsdPerHour | None:
        text = self.cell(column)
        if not text:
            return None
        try:
            price = UsdPerHour.parse(text)
        except ValueError as error:
            self.wrong(column, str(error))
            return None
        if price.nanos <= 0:
            self.wrong(column, f"the price {text} is not above 0", "leave blank what is not sold")
            return None
        return price

    def whole(self, column: str, least: int) -> int | None:
        text = self.cell(column)
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 12) or int(text) < least:
            self.wrong(column, f"{text!r} is not a whole number of {least} or more")
            return None
        return int(text)

    def number(self, column: str) -> float | None:
        text = self.cell(column)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= 0):
            self.wrong(column, f"{text!r} is not a number of 0 or more")
            return None
        return value

    def day(self, column: str) -> tuple[date | None, bool]:
        """Return the date (None: undated) and whether it is only "on or after" (``2025-11-18/..``)."""
        text = self.cell(column)
        if not text or text.startswith("undated"):
            return None, False
        try:
            return date.fromisoformat(text.removesuffix("/..")), text.endswith("/..")
        except ValueError:
            remedy = "2026-11-21, 2026-11-21/.. for on or after, or undated"
            self.wrong(column, f"{text!r} is not a date", remedy)
            return None, False

    def band(self) -> str | None:
        band = self.cell("interruption_band") or None
        if band is not None and band not in BANDS:
            self.wrong("interruption_band", f"{band!r} is not one of {', '.join(BANDS)}")
        return band

    def subject(self) -> tuple[str, str, str, str]:
        """Return cloud, region, machine type and source; the machine is read along."""
        names = ("cloud", "region", "instance_type", "source")
        cloud, region, instance_type, source = (self.needed(column) for column in names)
        self.read_machine(cloud, instance_type)
        return cloud, region, instance_type, source

    def all(self, lines: Iterable[tuple[int, Sequence[str]]]) -> OfferRows:
        """Read every row below the header. InvalidInputError lists every problem."""
        for number, row in lines:
            if not any(cell.strip() for cell in row):
                continue
            self.where = f"{self.name}:{number}"
            if len(row) != len(self.columns):
                self.wrong("", f"{len(row)} cells under {len(self.columns)} columns")
                continue
            self.row = row
            self.read()
        if not self.problems and not self.offers:
            self.problems.append(Problem(self.name, "", "holds no offers"))
        if self.problems:
            raise InvalidInputError(self.problems)
        return OfferRows(tuple(self.offers.values()), tuple(self.machines.values()), self.places)

    def read(self) -> None:
        """Read one row into up to two offers."""
        before = len(self.problems)
        cloud, region, instance_type, source = self.subject()
        on_demand = self.price("on_demand_usd_per_hour")
        cheapest = self.price("spot_usd_per_hour")
        median = self.price("spot_median_usd_per_hour")
        zone = self.cell("zone") or None
        cap = self.whole("machines_cap", 0)
        rate = self.number("interruptions_per_hour")
        as_of, not_before = self.day("as_of")
        spot_as_of, spot_not_before = self.day("spot_as_of")
        band = self.band()
        if rate is not None and cheapest is None:
            self.wrong("interruptions_per_hour", "is for the spot offer, and the row has no spot price")
        if len(self.problems) > before:
            return
        if on_demand is None and cheapest is None:
            self.wrong("on_demand_usd_per_hour", "neither an on-demand nor a spot price")
            return
        basis = self.cell("price_basis") or "list"
        listed_source, _, spot_source = source.partition("; spot ")
        make = partial(Offer, cloud=cloud, region=region, zone=zone, instance_type=instance_type, machines_cap=cap)
        if on_demand is not None:
            self.add(
                make(
                    market=Market.ON_DEMAND,
                    usd_per_hour=on_demand,
                    source=listed_source,
                    as_of=as_of,
                    not_before=not_before,
                    price_basis="list" if basis in _SPOT_ONLY_BASES else basis,
                    weak=_join(basis == "list-all-regions" and WEAK_LIST_ALL, as_of is None and WEAK_UNDATED),
                )
            )
        if cheapest is not None:
            by_median = zone is None and median is not None
            self.add(
                make(
                    market=Market.SPOT,
                    usd_per_hour=remove_rounding_excess(median if by_median and median else cheapest, on_demand),
                    source=spot_source or source,
                    as_of=spot_as_of,
                    not_before=spot_not_before,
                    interruptions_per_hour=rate,
                    interruption_band=band,
                    band_as_of=spot_as_of if band else None,
                    price_basis="az-spot-median" if by_median else basis,
                    weak=_join(
                        spot_source.startswith("SkyPilot catalog v6 azure") and WEAK_AZURE_SPOT,
                        basis == "advisor-savings" and WEAK_SAVINGS,
                        basis == "list-all-regions" and WEAK_LIST_ALL,
                        spot_as_of is None and WEAK_UNDATED,
                    ),
                )
            )

    def add(self, offer: Offer) -> None:
        first = self.places.get(offer.key)
        if first is not None:
            what = f"{offer.region_id} {offer.instance_type} ({offer.market.value}) is already at {first}"
            self.wrong("instance_type", what, "one row for each place and machine type")
            return
        self.offers[offer.key] = offer
        self.places[offer.key] = self.where

    def read_machine(self, cloud: str, instance_type: str) -> None:
        accelerator = self.needed("accelerator")
        self.needed("accelerator_count")
        count = self.whole("accelerator_count", 1)
        memory = self.whole("accelerator_memory_gib", 1)
        vcpus = self.whole("vcpus", 1)
        memory_gib = self.number("memory_gib")
        model = self.accelerators.get(accelerator)
        if model is None:
            if accelerator:
                near = did_you_mean(accelerator, self.accelerators)
                self.wrong("accelerator", f"unknown accelerator {accelerator!r}", near)
            return
        if count is None:
            return
        key = (cloud, instance_type)
        known = self.known_machines.get(key) or self.machines.get(key)
        if known is not None:
            if (known.accelerator, known.accelerator_count) != (accelerator, count):
                what = f"{cloud} {instance_type} has {known.accelerator_count} x {known.accelerator}"
                self.wrong("accelerator_count", f"{what}, not {count} x {accelerator}")
            return
        machine = make_undescribed_machine(
            cloud, instance_type, model, count, self.cell("source"), self.cell("as_of") or "undated"
        )
        self.machines[key] = replace(
            machine, accelerator_memory_gib=memory or model.memory_gib, vcpus=vcpus, memory_gib=memory_gib
        )


@dataclass
class RecordReader(RowReader):
    def read(self) -> None:
        """Read one row into one offer."""
        before = len(self.problems)
        cloud, region, instance_type, source = self.subject()
        market = self.needed("market")
        if market and market not in set(Market):
            self.wrong("market", f"{market!r} is not one of {', '.join(Market)}", did_you_mean(market, Market))
        self.needed("usd_per_hour")
        price = self.price("usd_per_hour")
        cap, rate = self.whole("machines_cap", 0), self.number("interruptions_per_hour")
        band = self.band()
        as_of, open_ended = self.day("as_of")
        band_as_of, _ = self.day("band_as_of")
        share = self.number("preempted_share")
        not_before = self.cell("not_before").lower()
        if not_before not in {"", "true", "false"}:
            self.wrong("not_before", f"{not_before!r} is neither true nor false")
        if len(self.problems) > before or price is None:
            return
        self.add(
            Offer(
                cloud=cloud,
                region=region,
                zone=self.cell("zone") or None,
                instance_type=instance_type,
                market=Market(market),
                usd_per_hour=price,
                source=source,
                as_of=as_of,
                not_before=open_ended or not_before == "true",
                machines_cap=cap,
                interruptions_per_hour=rate,
                interruption_band=band,
                band_as_of=band_as_of,
                preempted_share=share,
                price_basis=self.cell("price_basis") or "list",
                weak=self.cell("weak"),
            )
        )


_SPOT_ONLY_BASES = frozenset({"az-spot-min", "az-spot-median", "advisor-savings"})


def _join(*reasons: str | bool) -> str:
    return "; ".join(reason for reason in reasons if isinstance(reason, str))


def read_rows(
    name: str,
    rows: Iterable[tuple[int, Sequence[str]]],
    known_machines: Mapping[tuple[str, str], Machine],
    accelerators: Mapping[str, Accelerator],
) -> OfferRows:
    """Read the offers in ``rows`` (line number and cells, header first). InvalidInputError lists every problem.

    ``machines`` of the result are those that are not in ``known_machines``; their network is unknown.
    """
    lines = iter(rows)
    number, header = next(lines, (1, ()))
    cells = [cell.strip() for cell in header]
    kind, check = (
        (RecordReader, _check_records) if {"market", "usd_per_hour"} <= set(cells) else (RowReader, _check_rows)
    )
    problems = check(f"{name}:{number}", cells)
    if problems:
        raise InvalidInputError(problems)
    return kind(name, {cell: i for i, cell in enumerate(cells)}, known_machines, accelerators).all(lines)


def _check_rows(where: str, header: list[str]) -> list[Problem]:
    if not any(header):
        raise InvalidInputError.single("is empty: not even a header row", where=where)
    problems = [
        Problem(where, name or "(blank)", "unknown column", did_you_mean(name, (*COLUMNS, *OPTIONAL_COLUMNS)))
        for name in header
        if name not in COLUMNS and name not in OPTIONAL_COLUMNS
    ]
    problems += [
        Problem(where, name, "column is there twice") for name in sorted(set(header)) if header.count(name) > 1
    ]
    problems += [
        Problem(where, name, "missing column", "blank cells are allowed, missing columns are not")
        for name in COLUMNS
        if name not in header
    ]
    return problems


def _check_records(where: str, header: list[str]) -> list[Problem]:
    known = (*REQUIRED_COLUMNS, *OPTIONAL_RECORD_COLUMNS, *DERIVED_COLUMNS)
    problems = [Problem(where, column, "missing column") for column in REQUIRED_COLUMNS if column not in header]
    problems += [
        Problem(where, cell or "(blank)", "unknown column", did_you_mean(cell, known))
        for cell in header
        if cell not in known
    ]
    return problems
