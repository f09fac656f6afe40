"""Values from the rows (CSV cells) of the embedded tables: a field is the cell of its name, read by the field's type.

The tables are the package's own and are checked by tests, so a bad cell raises ValueError without a place. A blank cell
is unknown.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import TypeVar, get_type_hints

from pricing.egress import Tariff, Tier
from pricing.money import UsdPerGb, UsdPerHour
from pricing.offers import Offer
from pricing.places import Market
from pricing.units import gb_to_bytes

Row = Mapping[str, str]
T = TypeVar("T")
UNDATED = "undated"
# The bands of the embedded offers equal the advisor file of this day, whatever day their prices were read.
EMBEDDED_BANDS_OF = date(2025, 6, 28)
_READERS: Mapping[object, Callable[[str], object]] = {
    str: str,
    int: int,
    float: float,
    Fraction: Fraction,
    bool: lambda cell: cell == "yes",
    str | None: lambda cell: cell or None,
    int | None: lambda cell: int(cell) if cell else None,
    float | None: lambda cell: float(cell) if cell else None,
}


def read_table(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of ``tables/<name>.csv``."""
    text = resources.files("pricing").joinpath(f"tables/{name}.csv").read_text(encoding="utf-8")
    rows = csv.reader(text.splitlines())
    header = next(rows)
    return (dict(zip(header, row, strict=True)) for row in rows)


def parse_rows(kind: Callable[..., T], rows: Iterable[Row], **derived: Callable[[Row], object]) -> tuple[T, ...]:
    """Return a ``kind`` (a dataclass) for each row; ``derived`` makes, by name, the fields that are no single cell."""
    hints = get_type_hints(kind)
    readers = {name: _READERS[hint] for name, hint in hints.items() if name not in derived}

    def parse(row: Row) -> T:
        cells = {name: read(row[name]) for name, read in readers.items()}
        return kind(**cells, **{name: derive(row) for name, derive in derived.items()})

    return tuple(map(parse, rows))


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
