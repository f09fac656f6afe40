"""Offers as ``stepfare offers -o csv`` writes them: one row an offer, every field of it. Pure.

A written file can be read back without loss, so that a book can be carried by hand, edited and imported. Derived
columns (price per accelerator, age, ``provisionable``) are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pricing.book_check import did_you_mean
from pricing.machines import Accelerator, Machine
from pricing.offer_csv import OfferRows, RowReader
from pricing.offers import Offer
from pricing.places import Market
from pricing.problems import InvalidInputError, Problem
from pricing.risk import BANDS

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


def has_record_header(header: Iterable[str]) -> bool:
    """Return whether a file with this header holds such rows."""
    return {"market", "usd_per_hour"} <= {cell.strip() for cell in header}


@dataclass
class _RecordReader(RowReader):
    def read(self) -> None:
        """Read one row into one offer."""
        before = len(self.problems)
        cloud, region, instance_type, source = (
            self.needed(column) for column in ("cloud", "region", "instance_type", "source")
        )
        self.read_machine(cloud, instance_type)
        market = self.needed("market")
        if market and market not in set(Market):
            self.wrong("market", f"{market!r} is not one of {', '.join(Market)}", did_you_mean(market, Market))
        self.needed("usd_per_hour")
        price = self.price("usd_per_hour")
        cap, rate = self.whole("machines_cap", 0), self.number("interruptions_per_hour")
        band = self.cell("interruption_band") or None
        if band is not None and band not in BANDS:
            self.wrong("interruption_band", f"{band!r} is not one of {', '.join(BANDS)}")
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


def read_records(
    name: str,
    rows: Iterable[tuple[int, Sequence[str]]],
    known_machines: Mapping[tuple[str, str], Machine],
    accelerators: Mapping[str, Accelerator],
) -> OfferRows:
    """Read the offers in ``rows`` (line number and cells, header first). InvalidInputError lists every problem."""
    lines = iter(rows)
    number, header = next(lines, (1, ()))
    cells = [cell.strip() for cell in header]
    where = f"{name}:{number}"
    problems = [Problem(where, column, "missing column") for column in REQUIRED_COLUMNS if column not in cells]
    known = (*REQUIRED_COLUMNS, *OPTIONAL_RECORD_COLUMNS, *DERIVED_COLUMNS)
    problems += [
        Problem(where, cell or "(blank)", "unknown column", did_you_mean(cell, known))
        for cell in cells
        if cell not in known
    ]
    if problems:
        raise InvalidInputError(problems)
    return _RecordReader(name, {cell: i for i, cell in enumerate(cells)}, known_machines, accelerators).all(lines)
