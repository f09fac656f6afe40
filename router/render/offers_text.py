"""Offers as a table that fits the screen, a wide table, JSON or CSV. Pure functions."""

from __future__ import annotations

import csv
import io
import json
import textwrap
from collections.abc import Sequence
from datetime import datetime

from pricing.book import PriceBook
from pricing.places import Market
from router.render.offers_rows import OfferRow, distinct_sources, format_price, offer_record
from router.render.tables import PLAIN, WIDTH, Screen

SCHEMA_VERSION = 1
_MARKETS = {Market.ON_DEMAND: "on-dem", Market.SPOT: "spot", Market.RESERVED: "reserved"}
# Columns that shrink when a row is too wide, with their least width.
_SHRINKABLE = {"MACHINE": 13, "PLACE": 14}


def table(shown: Sequence[OfferRow], screen: Screen = PLAIN) -> str:
    """Return a table that fits the screen; sources are numbered below, weak prices carry ``~``."""
    sources = distinct_sources(shown)
    number = {source: str(i) for i, source in enumerate(sources, start=1)}
    rows = [
        {
            "PLACE": _place(s),
            "MACHINE": s.offer.instance_type,
            "GPUS": f"{s.machine.accelerator_count}x{s.machine.accelerator}",
            "MARKET": _MARKETS[s.offer.market],
            "$/GPU-H": ("~" if s.offer.weak else "") + format_price(s.usd_per_accelerator_hour),
            "$/H": format_price(s.offer.usd_per_hour),
            "AGE": s.age,
            "SRC": number[s.offer.source],
        }
        for s in shown
    ]
    legend = ["~ weak price: -o wide says why; AGE ? is undated, <= is at most that old"]
    legend += [line for i, source in enumerate(sources, start=1) for line in _numbered(i, source)]
    return "\n".join([*_lines(rows, screen.width, screen), "", *legend]) + "\n"


def wide(shown: Sequence[OfferRow], screen: Screen = PLAIN) -> str:
    """Return a table of all fields, as wide as needed."""
    rows = [
        {
            "PLACE": _place(s),
            "MACHINE": s.offer.instance_type,
            "GPUS": f"{s.machine.accelerator_count}x{s.machine.accelerator}",
            "MARKET": _MARKETS[s.offer.market],
            "$/GPU-H": ("~" if s.offer.weak else "") + format_price(s.usd_per_accelerator_hour),
            "$/H": format_price(s.offer.usd_per_hour),
            "AGE": s.age,
            "BAND": s.offer.interruption_band or "",
            "CAP": "" if s.offer.machines_cap is None else str(s.offer.machines_cap),
            "ORDERS": "yes" if s.offer.provisionable else "shown only",
            "BASIS": s.offer.price_basis,
            "SOURCE": s.offer.source,
            "WEAK BECAUSE": s.offer.weak,
        }
        for s in shown
    ]
    return "\n".join(_lines(rows, None, screen)) + "\n"


def as_json(shown: Sequence[OfferRow], book: PriceBook, now: datetime) -> str:
    """Return a JSON object with ``schema_version``, the book's digest and the offers."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "book": {"digest": book.digest, "as_of": book.as_of.isoformat()},
        "now": now.isoformat(),
        "offers": [offer_record(s) for s in shown],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def as_csv(shown: Sequence[OfferRow]) -> str:
    """Return CSV with one row per offer and the fields of the JSON records; unknown values are blank."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, RECORD_FIELDS, lineterminator="\n")
    writer.writeheader()
    for s in shown:
        writer.writerow({k: str(v).lower() if isinstance(v, bool) else v for k, v in offer_record(s).items()})
    return stream.getvalue()


RECORD_FIELDS = (
    "cloud",
    "region",
    "zone",
    "instance_type",
    "market",
    "accelerator",
    "accelerator_count",
    "usd_per_hour",
    "usd_per_accelerator_hour",
    "as_of",
    "not_before",
    "age_days",
    "source",
    "price_basis",
    "interruption_band",
    "interruptions_per_hour",
    "machines_cap",
    "provisionable",
    "weak",
)


def _place(shown: OfferRow) -> str:
    offer = shown.offer
    return f"{offer.cloud}/{offer.zone or offer.region}"


def _numbered(number: int, source: str) -> list[str]:
    """Return ``[1] source``, wrapped to 80 columns."""
    head = f"[{number}] "
    return textwrap.wrap(source, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))


def _lines(rows: Sequence[dict[str, str]], limit: int | None, screen: Screen) -> list[str]:
    if not rows:
        return []
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]}
    for name, least in _SHRINKABLE.items():
        over = 0 if limit is None else sum(widths.values()) + len(widths) - 1 - limit
        widths[name] -= max(0, min(over, widths[name] - least))
    header = {name: name for name in widths}
    heading, *lines = (
        " ".join(_cell(name, row[name], width) for name, width in widths.items()).rstrip() for row in (header, *rows)
    )
    return [screen.heading(heading), *lines]


def _cell(name: str, text: str, width: int) -> str:
    if len(text) > width:  # names share their beginning, and differ in sizes and numbers at the end
        text = f"…{text[len(text) - width + 1 :]}"
    return text.rjust(width) if name in {"$/GPU-H", "$/H", "AGE", "SRC", "CAP"} else text.ljust(width)
