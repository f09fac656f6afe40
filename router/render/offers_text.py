"""Offers as a table that fits the screen, a wide table, JSON or CSV. Pure functions."""

from __future__ import annotations

import heapq
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
from router.render.record_table import RecordTable, TableColumn, attribute_columns, json_document
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


def _matches_any(names: Iterable[str], name: str) -> bool:
    names = [w.lower() for w in names]
    return not names or name.lower() in names


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


_MARKETS = {Market.ON_DEMAND: "on-dem", Market.SPOT: "spot", Market.RESERVED: "reserved"}


def _clip_start(text: str, width: int) -> str:
    # Names share their beginning, and differ in sizes and numbers at the end.
    return text if len(text) <= width else f"…{text[len(text) - width + 1 :]}"


def _offer_table(sources: Sequence[str] = ()) -> RecordTable[OfferRow]:
    """Return the table of offers; the narrow one refers to sources by number. Money is exact text in JSON and CSV."""
    return RecordTable(
        (
            *attribute_columns("cloud", "region", "zone", of="offer"),
            TableColumn("", lambda s: f"{s.offer.cloud}/{s.offer.zone or s.offer.region}", "PLACE", least=14),
            TableColumn("instance_type", lambda s: s.offer.instance_type, "MACHINE", least=13),
            TableColumn("", lambda s: f"{s.machine.accelerator_count}x{s.machine.accelerator}", "GPUS"),
            TableColumn("market", lambda s: s.offer.market.value, "MARKET", _MARKETS.__getitem__),
            *attribute_columns("accelerator", "accelerator_count", of="machine"),
            TableColumn("", _price_of_one, "$/GPU-H", right=True),
            TableColumn("usd_per_hour", lambda s: s.offer.usd_per_hour, "$/H", format_price, right=True),
            TableColumn("usd_per_accelerator_hour", lambda s: s.usd_per_accelerator_hour),
            *attribute_columns("as_of", "not_before", of="offer"),
            *attribute_columns("age_days"),
            TableColumn("", lambda s: s.age, "AGE", right=True),
            TableColumn("", lambda s: sources.index(s.offer.source) + 1, "SRC", right=True, wide=False),
            *attribute_columns("source", "price_basis", of="offer"),
            TableColumn("interruption_band", lambda s: s.offer.interruption_band, "BAND", wide=True),
            TableColumn("band_as_of", lambda s: s.offer.band_as_of, "BAND OF", wide=True),
            TableColumn("preempted_share", lambda s: s.offer.preempted_share, "PREEMPTED", "{:.0%}".format, wide=True),
            TableColumn("interruptions_per_hour", lambda s: s.offer.interruptions_per_hour),
            TableColumn("machines_cap", lambda s: s.offer.machines_cap, "CAP", right=True, wide=True),
            TableColumn(
                "provisionable",
                lambda s: s.offer.provisionable,
                "ORDERS",
                lambda can: "yes" if can else "shown only",
                wide=True,
            ),
            TableColumn("", lambda s: s.offer.price_basis, "BASIS", wide=True),
            TableColumn("", lambda s: s.offer.source, "SOURCE", wide=True),
            TableColumn("weak", lambda s: s.offer.weak, "WEAK BECAUSE", wide=True),
        ),
        _clip_start,
    )


def _price_of_one(shown: OfferRow) -> str:
    return ("~" if shown.offer.weak else "") + format_price(shown.usd_per_accelerator_hour)


OFFERS = _offer_table()


def table(shown: Sequence[OfferRow], screen: Screen = PLAIN) -> str:
    """Return a table that fits the screen; sources are numbered below, weak prices carry ``~``."""
    sources = distinct_sources(shown)
    legend = ["~ weak price: -o wide says why; AGE ? is undated, <= is at most that old"]
    legend += [line for i, source in enumerate(sources, start=1) for line in _numbered(i, source)]
    return "\n".join([_offer_table(sources).text(shown, screen), "", *legend]) + "\n"


def wide(shown: Sequence[OfferRow], screen: Screen = PLAIN) -> str:
    """Return a table of all fields, as wide as needed."""
    return (OFFERS.text(shown, screen, wide=True) if shown else "") + "\n"


def as_json(shown: Sequence[OfferRow], book: PriceBook, now: datetime) -> str:
    """Return a JSON object with ``schema_version``, the book's digest and the offers."""
    named = {"digest": book.digest, "as_of": book.as_of.isoformat()}
    document = {"book": named, "now": now.isoformat(), "offers": OFFERS.records(shown)}
    return json_document(document, ascii_only=False)


def as_csv(shown: Sequence[OfferRow]) -> str:
    """Return CSV with one row per offer and the fields of the JSON records; unknown values are blank."""
    return OFFERS.csv(shown)


def _numbered(number: int, source: str) -> list[str]:
    """Return ``[1] source``, wrapped to 80 columns."""
    head = f"[{number}] "
    return textwrap.wrap(source, WIDTH, initial_indent=head, subsequent_indent=" " * len(head))
