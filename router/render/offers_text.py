"""Offers as a table that fits the screen, a wide table, JSON or CSV. Pure functions."""

from __future__ import annotations

import heapq
import json
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from enum import StrEnum
from functools import cache
from operator import itemgetter

from pricing.book import PriceBook
from pricing.machines import Machine
from pricing.money import UsdPerHour, divide_half_even
from pricing.offers import Offer
from pricing.places import Market
from router.files.csv_text import records_csv
from router.render.tables import PLAIN, WIDTH, Screen


class OfferSortKey(StrEnum):
    """Sort key of offers, cheapest first."""

    ACCELERATOR_HOUR = "accelerator-hour"
    HOUR = "hour"


@dataclass(frozen=True, slots=True)
class OfferFilters:
    """Filters of offers; an empty tuple or None lets all pass."""

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    markets: tuple[Market, ...] = ()
    instance_types: tuple[str, ...] = ()
    provisionable: bool = False
    max_age: timedelta | None = None


@dataclass(frozen=True, slots=True)
class OfferRow:
    """An offer with values computed from its machine and today's date."""

    offer: Offer
    machine: Machine
    usd_per_accelerator_hour: UsdPerHour
    age_days: int | None

    @property
    def age(self) -> str:
        """Return the age: ``3d``, ``<=368d`` if the date is "on or after", ``?`` if undated."""
        if self.age_days is None:
            return "?"
        return f"{'<=' if self.offer.not_before else ''}{self.age_days}d"


@dataclass(frozen=True, slots=True)
class OfferSelection:
    """Selected offers: ``rows`` to show, the number ``matching`` the filters, and the number only ``too_old``."""

    rows: tuple[OfferRow, ...]
    matching: int
    too_old: int


def select_offers(
    book: PriceBook, filters: OfferFilters, sort: OfferSortKey, today: date, rows: int = 0
) -> OfferSelection:
    """Return the offers that pass the filters, cheapest first (ties by key): the first ``rows``, or all for 0.

    An undated offer fails any maximum age. The age of an "on or after" date is counted from that day, so it is never
    too low.
    """
    passes = None if replace(filters, max_age=None) == OfferFilters() else _OfferFilter(book, filters)
    machines = {(m.cloud, m.instance_type): m for m in book.machines}
    oldest = None if filters.max_age is None else today - filters.max_age
    by_hour = sort is OfferSortKey.HOUR
    divided = cache(divide_half_even)
    matches: list[tuple[int, Offer]] = []
    too_old = 0
    for offer in book.offers:  # with 150,000 offers, values that depend on less than the offer are looked up
        if passes is not None and not passes(offer):
            continue
        if oldest is not None and (offer.as_of is None or offer.as_of < oldest):
            too_old += 1
            continue
        nanos = offer.usd_per_hour.nanos
        count = machines[(offer.cloud, offer.instance_type)].accelerator_count
        matches.append((nanos if by_hour else divided(nanos, count), offer))
    # Offers of a book are ordered by key, and both ways of sorting are stable.
    cheapest = heapq.nsmallest(rows, matches, key=itemgetter(0)) if rows else sorted(matches, key=itemgetter(0))
    shown = tuple(_build_row(offer, machines[(offer.cloud, offer.instance_type)], today) for _, offer in cheapest)
    return OfferSelection(shown, len(matches), too_old)


def _build_row(offer: Offer, machine: Machine, today: date) -> OfferRow:
    per_accelerator = UsdPerHour(divide_half_even(offer.usd_per_hour.nanos, machine.accelerator_count))
    return OfferRow(offer, machine, per_accelerator, offer.age_days(today))


class _OfferFilter:
    """Filter of offers that evaluates regions and machine types once, not for each offer."""

    def __init__(self, book: PriceBook, filters: OfferFilters) -> None:
        self._filters = filters
        regions = {name.lower() for name in filters.regions}
        self._regions = {
            (r.id.cloud, r.id.region)
            for r in book.regions
            if _matches_any(filters.clouds, r.id.cloud)
            and (not regions or r.id.region.lower() in regions or str(r.id).lower() in regions)
        }
        self._machines = {
            (m.cloud, m.instance_type)
            for m in book.machines
            if _matches_any(filters.accelerators, m.accelerator)
            and _matches_any(filters.instance_types, m.instance_type)
        }

    def __call__(self, offer: Offer) -> bool:
        cloud = offer.cloud
        return (
            (cloud, offer.region) in self._regions
            and (cloud, offer.instance_type) in self._machines
            and (not self._filters.markets or offer.market in self._filters.markets)
            and (not self._filters.provisionable or offer.provisionable)
        )


def _matches_any(wanted: Iterable[str], name: str) -> bool:
    wanted = [w.lower() for w in wanted]
    return not wanted or name.lower() in wanted


def unknown_names(book: PriceBook, filters: OfferFilters) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Return the filter values that the book does not know, as (option, value, known values)."""
    known = {
        "cloud": (filters.clouds, {r.id.cloud for r in book.regions}),
        "region": (filters.regions, {name for r in book.regions for name in (r.id.region, str(r.id))}),
        "accelerator": (filters.accelerators, {a.name for a in book.accelerators}),
        "instance-type": (filters.instance_types, {m.instance_type for m in book.machines}),
    }
    return tuple(
        (option, value, tuple(sorted(names)))
        for option, (values, names) in known.items()
        for value in values
        if value.lower() not in {name.lower() for name in names}
    )


def format_price(price: UsdPerHour) -> str:
    """Return a price with four decimals below ten dollars and two above; json and csv carry exact figures."""
    step = 100_000 if price.nanos < 10_000_000_000 else 10_000_000
    rounded = divide_half_even(price.nanos, step)
    return f"{rounded / 10_000:.4f}" if step == 100_000 else f"{rounded / 100:.2f}"


def distinct_sources(shown: Sequence[OfferRow]) -> tuple[str, ...]:
    """Return the distinct sources in order of appearance; the table refers to them by number."""
    return tuple(dict.fromkeys(s.offer.source for s in shown))


def offer_record(shown: OfferRow) -> dict[str, str | int | float | bool | None]:
    """Return the record of an offer for JSON and CSV; money is an exact decimal string, unknown values are null."""
    offer, machine = shown.offer, shown.machine
    return {
        "cloud": offer.cloud,
        "region": offer.region,
        "zone": offer.zone,
        "instance_type": offer.instance_type,
        "market": offer.market.value,
        "accelerator": machine.accelerator,
        "accelerator_count": machine.accelerator_count,
        "usd_per_hour": str(offer.usd_per_hour),
        "usd_per_accelerator_hour": str(shown.usd_per_accelerator_hour),
        "as_of": None if offer.as_of is None else offer.as_of.isoformat(),
        "not_before": offer.not_before,
        "age_days": shown.age_days,
        "source": offer.source,
        "price_basis": offer.price_basis,
        "interruption_band": offer.interruption_band,
        "band_as_of": None if offer.band_as_of is None else offer.band_as_of.isoformat(),
        "preempted_share": offer.preempted_share,
        "interruptions_per_hour": offer.interruptions_per_hour,
        "machines_cap": offer.machines_cap,
        "provisionable": offer.provisionable,
        "weak": offer.weak,
    }


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
            "BAND OF": "" if s.offer.band_as_of is None else s.offer.band_as_of.isoformat(),
            "PREEMPTED": "" if s.offer.preempted_share is None else f"{s.offer.preempted_share:.0%}",
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
    records = ({k: str(v).lower() if isinstance(v, bool) else v for k, v in offer_record(s).items()} for s in shown)
    return records_csv(RECORD_FIELDS, records)


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
    "band_as_of",
    "preempted_share",
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
