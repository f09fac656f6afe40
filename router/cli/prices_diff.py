"""Command ``stepfare prices diff``: compare two price books."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from pricing.offers import Offer
from router.cli import console
from router.prices.book_diff import BookDiff, PriceChange, diff_books
from router.prices.books import load_book
from router.render.offers_rows import format_price
from router.render.tables import MARKETS, PLAIN, Screen, format_table, format_timestamp

SCHEMA_VERSION = 1
T = TypeVar("T")
DEFAULT_ROWS = 20


class BookDiffFormat(StrEnum):
    """Output format of a price diff."""

    TABLE = "table"
    JSON = "json"


def diff(
    before: Annotated[str, typer.Argument(metavar="A", help="The older book.")],
    after: Annotated[str, typer.Argument(metavar="B", help="The newer book.")] = "latest",
    cloud: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this cloud; repeatable.")] = None,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Rows to show of each kind; 0 is all.")] = DEFAULT_ROWS,
    output: Annotated[BookDiffFormat, typer.Option("--output", "-o", help="Format.")] = BookDiffFormat.TABLE,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file.")] = None,
) -> None:
    """Compare two price books: the largest price changes first, then added and removed offers.

    A and B are latest, sandbox, embedded, a digest of `stepfare prices list`, or a .parquet or .csv file.

    \b
    stepfare prices diff embedded latest
    stepfare prices diff 3f2a90c1 latest --cloud aws -o json
    """
    found = diff_books(load_book(before), load_book(after), cloud or ())
    console.write(
        as_json(found) if output is BookDiffFormat.JSON else as_text(found, limit, console.screen(file=out)), out
    )


def as_text(found: BookDiff, limit: int, screen: Screen = PLAIN) -> str:
    """Return changed offers with both prices and the change in percent; ``+`` marks added, ``-`` removed offers."""
    rows: list[tuple[str, ...]] = []
    rows += [
        ("~", *_place(c.after), format_price(c.before.usd_per_hour), format_price(c.after.usd_per_hour), _percent(c))
        for c in _first(found.changed, limit)
    ]
    rows += [("+", *_place(o), "", format_price(o.usd_per_hour), "") for o in _first(found.added, limit)]
    rows += [("-", *_place(o), format_price(o.usd_per_hour), "", "") for o in _first(found.removed, limit)]
    header = ("", "PLACE", "MACHINE", "MARKET", "BEFORE $/H", "AFTER $/H", "CHANGE")
    widths = {"PLACE": 24, "MACHINE": 18}
    table = format_table(header, rows, frozenset(header[4:]), widths, screen) + "\n\n" if rows else ""
    lists: tuple[tuple[object, ...], ...] = (found.changed, found.added, found.removed)
    hidden = sum(len(rows) - limit for rows in lists if limit and len(rows) > limit)
    more = f"; {hidden} not shown, --limit 0 shows all" if hidden else ""
    return (
        f"{table}{len(found.changed)} changed, {len(found.added)} came, {len(found.removed)} went, "
        f"{found.same} as before{more}\n"
        f"from {found.before.digest[:12]} of {format_timestamp(found.before.as_of)} "
        f"to {found.after.digest[:12]} of {format_timestamp(found.after.as_of)}\n"
    )


def _first(rows: tuple[T, ...], limit: int) -> tuple[T, ...]:
    return rows[:limit] if limit else rows


def _place(offer: Offer) -> tuple[str, str, str]:
    place = f"{offer.region_id}/{offer.zone}" if offer.zone else str(offer.region_id)
    return place, offer.instance_type, MARKETS[offer.market.value]


def _percent(change: PriceChange) -> str:
    return f"{(float(change.ratio) - 1) * 100:+.1f}%"


def as_json(found: BookDiff) -> str:
    """Return the whole diff as JSON, prices as exact decimal strings."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "before": _book(found.before.digest, found.before.as_of.isoformat()),
        "after": _book(found.after.digest, found.after.as_of.isoformat()),
        "changed": [
            {**_offer(c.after), "usd_per_hour_before": str(c.before.usd_per_hour), "ratio": round(float(c.ratio), 6)}
            for c in found.changed
        ],
        "added": [_offer(offer) for offer in found.added],
        "removed": [_offer(offer) for offer in found.removed],
        "same": found.same,
    }
    return json.dumps(document, indent=2) + "\n"


def _book(digest: str, as_of: str) -> dict[str, str]:
    return {"digest": digest, "as_of": as_of}


def _offer(offer: Offer) -> dict[str, Any]:
    return {
        "cloud": offer.cloud,
        "region": offer.region,
        "zone": offer.zone,
        "instance_type": offer.instance_type,
        "market": offer.market.value,
        "usd_per_hour": str(offer.usd_per_hour),
    }
