"""Prices: the book in use, stored books, offers, health of each cloud, history of offers and of spot pools.

Prices belong to no team: whoever may read prices sees all of them. They need no state, so that the commands about
prices ask by :class:`PriceSources` alone. Records of interruptions in a book are of nobody in particular; those of
attempts are of the state, and only the command, which reads the state itself, adds them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.book import PriceBook
from pricing.book_check import did_you_mean
from pricing.offers import Offer, is_stale
from pricing.places import SIMULATED_CLOUDS, Market, RegionId
from pricing.pool_experience import PoolExperience, PoolLosses
from pricing.problems import InvalidInputError, Problem
from pricing.risk import GangRisk, RiskTable
from router.access.identity import Identity, Permission, local_operator
from router.jobs.fields import suggest
from router.prices import history
from router.prices.books import EMBEDDED, LATEST, SANDBOX, load_book, load_by_digest
from router.prices.bookstore import BookStore, StoredBook
from router.prices.data_folders import books_folder, history_folder
from router.prices.history_stats import SeriesStats, compute_statistics, read_buckets, read_price_steps
from router.prices.pool_availability import read_exposures
from router.prices.refresh_record import RefreshRecord, read_records
from router.render.history_text import HistoryView
from router.render.offers_text import OfferFilters, OfferRow, OfferSelection, OfferSortKey, select_offers, unknown_names
from router.render.pool_risk_view import PoolRisk
from router.render.prices_view import (
    BookRow,
    CloudHealth,
    HistoryReport,
    PricesReport,
    RegionPrices,
    SeriesPicture,
)

if TYPE_CHECKING:
    from router.app.queries.context import QueryContext

_DIGEST = re.compile(r"[0-9a-fA-F]{8,64}")
LONGEST_HISTORY = timedelta(days=366)
# Intervals in which the picture of a history shows whether machines were found.
STOCK_INTERVALS = 120


@dataclass(frozen=True, slots=True)
class PriceSources:
    """The stored books, the folder of the price history, and who asks."""

    books: BookStore
    history: Path
    identity: Identity

    def require(self) -> None:
        """Raise AccessDeniedError unless who asks may read prices."""
        self.identity.require(Permission.READ_PRICES)


def sources_of(context: QueryContext) -> PriceSources:
    """Return the sources of a console."""
    home = context.settings.folder
    return PriceSources(BookStore(books_folder(home)), history_folder(home), context.identity)


def local_sources(who: str, history_dir: Path | None = None) -> PriceSources:
    """Return the sources of whoever runs a command."""
    return PriceSources(BookStore(books_folder()), history_dir or history_folder(), local_operator(who))


def list_books(sources: PriceSources) -> tuple[BookRow, ...]:
    """Return the stored books, newest first, those of the sandbox among them."""
    sources.require()
    store, sandbox = sources.books, sources.books.sandbox
    latest = {LATEST: store.latest(), SANDBOX: sandbox.latest()}
    named = [(LATEST, book) for book in store.all()] + [(SANDBOX, book) for book in sandbox.all()]
    ordered = sorted(named, key=lambda named_book: named_book[1].file, reverse=True)
    return tuple(BookRow(name, book, book == latest[name]) for name, book in ordered)


def find_book(sources: PriceSources, name: str = LATEST) -> PriceBook:
    """Return the book ``latest``, ``sandbox``, ``embedded`` or of a digest; never a file of the server.

    InvalidInputError for any other name.
    """
    sources.require()
    store = sources.books
    if name in (LATEST, SANDBOX, EMBEDDED):
        stored = _pointed(store, name)
        return _load_current(store.folder, name, None if stored is None else stored.digest)
    if not _DIGEST.fullmatch(name):
        remedy = "write latest, sandbox, embedded, or eight digits or more of a digest"
        raise InvalidInputError.single("is no price book", field="book", remedy=remedy)
    return load_by_digest(store, name).sold_only()


def history_books(sources: PriceSources) -> tuple[PriceBook, ...]:
    """Return the books that tell which machines of a history have an accelerator: of real and of simulated clouds."""
    latest = find_book(sources)
    return (latest, find_book(sources, SANDBOX)) if sources.books.sandbox.latest() is not None else (latest,)


def book_version(sources: PriceSources, name: str = LATEST) -> str:
    """Return text that changes when a book's name points to another one, or a cloud was refreshed."""
    sources.require()
    stored = _pointed(sources.books, name)
    refreshed = max((record.at.isoformat() for record in read_records(sources.books).values()), default="")
    return f"{'' if stored is None else stored.digest} {refreshed}"


def _pointed(store: BookStore, name: str) -> StoredBook | None:
    return store.sandbox.latest() if name == SANDBOX else store.latest() if name == LATEST else None


@lru_cache(maxsize=3)
def _load_current(folder: Path, name: str, digest: str | None) -> PriceBook:
    """Return a book by name, kept until the name points to another digest."""
    del digest  # A part of the key alone.
    return load_book(name, BookStore(folder))


def report_prices(sources: PriceSources, now: datetime, name: str = LATEST) -> PricesReport:
    """Return the book in use: its age, the cheapest offer of each accelerator and market, and each cloud's health."""
    book = find_book(sources, name)
    offers = select_offers(book, OfferFilters(), OfferSortKey.ACCELERATOR_HOUR, now.date()).rows
    cheapest: dict[tuple[str, Market], OfferRow] = {}
    orderable: dict[tuple[str, Market], OfferRow] = {}
    for row in offers:
        key = row.machine.accelerator, row.offer.market
        cheapest.setdefault(key, row)
        if row.offer.provisionable:
            orderable.setdefault(key, row)
    stored = _pointed(sources.books, name)
    used = EMBEDDED if name == LATEST and stored is None else name
    summary = history.summarize(sources.history) if used == EMBEDDED else None
    span = None if summary is None or summary.first is None or summary.last is None else (summary.first, summary.last)
    return PricesReport(
        name=used,
        book=book,
        now=now,
        cheapest=tuple(cheapest[key] for key in sorted(cheapest)),
        orderable=tuple(orderable[key] for key in sorted(orderable)),
        clouds=list_clouds(sources, name),
        books=list_books(sources),
        history=span,
    )


def list_clouds(sources: PriceSources, name: str = LATEST) -> tuple[CloudHealth, ...]:
    """Return each cloud of a book: its rows and their age, and how its last refresh ended."""
    book = find_book(sources, name)
    simulated = any(offer.cloud in SIMULATED_CLOUDS for offer in book.offers)
    records = {
        cloud: record
        for cloud, record in read_records(sources.books).items()
        if (cloud in SIMULATED_CLOUDS) == simulated
    }
    offers: dict[str, list[Offer]] = defaultdict(list)
    for offer in book.offers:
        offers[offer.cloud].append(offer)
    return tuple(_health(cloud, offers.get(cloud, []), records.get(cloud)) for cloud in sorted({*offers, *records}))


def _health(cloud: str, offers: list[Offer], record: RefreshRecord | None) -> CloudHealth:
    dates = [offer.as_of for offer in offers if offer.as_of is not None]
    return CloudHealth(
        cloud=cloud,
        offers=len(offers),
        weak=sum(bool(offer.weak) for offer in offers),
        stale=sum(is_stale(offer) for offer in offers),
        undated=len(offers) - len(dates),
        newest=max(dates, default=None),
        oldest=min(dates, default=None),
        record=record,
    )


def list_regions(
    sources: PriceSources, accelerator: str, now: datetime, name: str = LATEST
) -> tuple[RegionPrices, ...]:
    """Return the regions that sell an accelerator with the cheapest offer of each market, the cheapest region first.

    InvalidInputError for an accelerator that the book does not know.
    """
    book = find_book(sources, name)
    by_region: dict[RegionId, dict[Market, OfferRow]] = {}
    for row in find_offers(sources, now, OfferFilters(accelerators=(accelerator,)), 0, name).rows:
        by_region.setdefault(row.offer.region_id, {}).setdefault(row.offer.market, row)
    return tuple(RegionPrices(region, book.region(region), rows) for region, rows in by_region.items())


def find_offers(
    sources: PriceSources, now: datetime, filters: OfferFilters, limit: int, name: str = LATEST
) -> OfferSelection:
    """Return the offers of a book that pass the filters, cheapest accelerator-hour first; 0 is all.

    InvalidInputError for names that the book does not know.
    """
    return list_offers(find_book(sources, name), filters, OfferSortKey.ACCELERATOR_HOUR, now.date(), limit)


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """The series to read; an empty tuple lets all pass. ``limit`` 0 is all; ``buckets`` 0 reads no trend."""

    since: datetime
    until: datetime
    which: history.Selection = history.EVERYTHING
    accelerators: tuple[str, ...] = ()
    limit: int = 0
    buckets: int = 0


@dataclass(frozen=True, slots=True)
class HistoryAnswer:
    """Series of a history, cheapest last price first; ``series_count`` without the limit, ``which`` was read."""

    view: HistoryView
    series_count: int
    which: history.Selection


def read_history(
    sources: PriceSources, request: HistoryRequest, books: Callable[[], Iterable[PriceBook]], option: str = "--"
) -> HistoryAnswer:
    """Return the history of prices and stock, a row per place, machine, market and source.

    ``books`` returns the books that tell which machines have an accelerator; ``option`` begins the names of fields in
    errors. InvalidInputError.
    """
    sources.require()
    types = select_types(request.which.instance_types, request.accelerators, books, option)
    which = replace(request.which, instance_types=types)
    found = compute_statistics(sources.history, which, request.since, request.until)
    series = found[: request.limit] if request.limit else found
    view = HistoryView(request.since, request.until, series, {})
    if series and request.buckets:
        narrow = narrow_selection(which, series)
        trends = read_buckets(sources.history, narrow, request.since, request.until, request.buckets)
        view = replace(view, trends=trends)
    return HistoryAnswer(view, len(found), which)


def report_history(
    sources: PriceSources, request: HistoryRequest, books: Callable[[], Iterable[PriceBook]]
) -> HistoryReport:
    """Return a history with what its picture needs: every price, stock by interval, and how often pools ran dry."""
    if not timedelta(0) < request.until - request.since <= LONGEST_HISTORY:
        raise InvalidInputError.single("is no length of up to 366 days", field="since", remedy="write 30d or 12h")
    answer = read_history(sources, replace(request, buckets=STOCK_INTERVALS), books, "")
    view = answer.view
    if not view.series:
        summary = history.summarize(sources.history)
        return HistoryReport(view.since, view.until, (), 0, summary.rows, summary.first, summary.last)
    narrow = narrow_selection(answer.which, view.series)
    steps = read_price_steps(sources.history, narrow, view.since, view.until)
    exposures = read_exposures(sources.history, view.since, view.until, which=narrow)
    sizes = {
        (machine.cloud, machine.instance_type): machine.accelerator_count
        for book in books()
        for machine in book.machines
    }
    pictures = tuple(
        SeriesPicture(
            stats=series,
            accelerators=sizes.get((series.cloud, series.instance_type)),
            steps=tuple(steps.get(series.name, ())),
            stock=view.trends[series.name].available if series.name in view.trends else (),
            exposure=exposures.get(series.name[:5]) if series.market is Market.SPOT else None,
        )
        for series in view.series
    )
    return HistoryReport(view.since, view.until, pictures, answer.series_count, None, None, None)


def narrow_selection(which: history.Selection, series: tuple[SeriesStats, ...]) -> history.Selection:
    """Return the selection limited to the shown series, so that less is read."""
    return replace(
        which,
        clouds=tuple(sorted({s.cloud for s in series})),
        regions=tuple(sorted({f"{s.cloud}/{s.region}" for s in series})),
        instance_types=tuple(sorted({s.instance_type for s in series})),
    )


def select_types(
    given: tuple[str, ...],
    accelerators: tuple[str, ...],
    books: Callable[[], Iterable[PriceBook]],
    option: str = "--",
) -> tuple[str, ...]:
    """Return the machine types chosen by name and accelerator; those that fit both if both are given."""
    if not accelerators:
        return given
    machines = [machine for book in books() for machine in book.machines]
    known = {machine.accelerator for machine in machines}
    wanted = {name.lower() for name in accelerators}
    unknown = [name for name in accelerators if name.lower() not in {k.lower() for k in known}]
    if unknown:
        what, remedy = f"unknown accelerator {unknown[0]!r}", did_you_mean(unknown[0], known)
        raise InvalidInputError.single(what, field=f"{option}accelerator", remedy=remedy)
    types = {machine.instance_type for machine in machines if machine.accelerator.lower() in wanted}
    matching = types & set(given) if given else types
    if not matching:
        what = f"none of these machines has {' or '.join(accelerators)}"
        raise InvalidInputError.single(what, field=f"{option}instance-type", remedy="leave one out")
    return tuple(sorted(matching))


def list_offers(
    book: PriceBook, filters: OfferFilters, sort: OfferSortKey, today: date, rows: int, *, prefix: str = ""
) -> OfferSelection:
    """Return the offers that pass, cheapest first; ``rows`` 0 is all.

    InvalidInputError for names that the book does not know, which are probably mistyped; ``prefix`` stands before the
    names of fields.
    """
    problems = [
        Problem(
            "",
            f"{prefix}{option}",
            f"unknown {option.replace('-', ' ')} {value!r}",
            suggest(value, known) or "leave it out to see all of them",
        )
        for option, value, known in unknown_names(book, filters)
    ]
    if problems:
        raise InvalidInputError(problems)
    return select_offers(book, filters, sort, today, rows)


def report_pool_risks(
    sources: PriceSources, filters: OfferFilters, today: date, name: str = LATEST
) -> tuple[PoolRisk, ...]:
    """Return the risks of the spot pools of a book that pass the filters, the calmest first.

    AccessDeniedError unless who asks may read prices; InvalidInputError as :func:`list_pool_risks`.
    """
    book = find_book(sources, name)
    return list_pool_risks(book, book.risk, filters, today)


def list_pool_risks(
    book: PriceBook,
    table: RiskTable,
    filters: OfferFilters,
    today: date,
    prefix: str = "",
    losses: Sequence[PoolLosses] = (),
) -> tuple[PoolRisk, ...]:
    """Return the risks of the spot pools that pass the filters, the calmest first; of equal ones by place.

    InvalidInputError for names that the book does not know; ``prefix`` stands before the names of fields.
    """
    selected = list_offers(book, filters, OfferSortKey.HOUR, today, 0, prefix=prefix)
    spot = sorted((row.offer for row in selected.rows if row.offer.market is Market.SPOT), key=lambda o: o.key)
    return tuple(sorted(compute_pool_risks(book, table, spot, losses), key=lambda risk: (risk.median, risk.offer.key)))


def find_pool_risks(
    book: PriceBook, table: RiskTable, pool: str, losses: Sequence[PoolLosses] = ()
) -> tuple[PoolRisk, ...]:
    """Return the risk of the pool ``cloud/region/machine-type``, or of each of its zones.

    Written ``cloud/zone/type`` or ``cloud/region/zone/type`` it is that of one zone. InvalidInputError where no such
    pool is sold.
    """
    words = [word.strip().lower() for word in pool.split("/")]
    if len(words) not in (3, 4) or not all(words):
        what = f"{pool!r} is no pool"
        raise InvalidInputError.single(what, field="POOL", remedy="write aws/us-east-1/p5.48xlarge, or its zone")
    spot = [offer for offer in book.offers if offer.market is Market.SPOT]
    found = [offer for offer in spot if words in _names(offer)]
    if not found:
        known = {f"{o.cloud}/{o.region}/{o.instance_type}" for o in spot}
        remedy = did_you_mean(pool, known) or "stepfare prices risk lists those of the book"
        raise InvalidInputError.single(f"no spot pool {pool!r} is in the book", field="POOL", remedy=remedy)
    return compute_pool_risks(book, table, found, losses)


def compute_pool_risks(
    book: PriceBook, table: RiskTable, offers: Iterable[Offer], losses: Sequence[PoolLosses] = ()
) -> tuple[PoolRisk, ...]:
    """Return the risk of one machine of each offer, in order; an offer that no prior covers is left out.

    Offers of one machine type with the same signals and records have the same risk, which is computed once.
    """
    records: dict[tuple[str, str, str], list[PoolExperience]] = defaultdict(list)
    for record in table.records:
        records[record.cloud, record.region, record.instance_type].append(record)
    known: dict[tuple[object, ...], GangRisk | None] = {}
    found = []
    for offer in offers:
        machine = book.machine(offer.cloud, offer.instance_type)
        if machine is None:
            continue
        near = records.get((offer.cloud, offer.region, offer.instance_type), ())
        own = tuple(record for record in near if record.concerns(offer))
        stated = (offer.interruptions_per_hour, offer.source, offer.as_of)
        signals = (offer.interruption_band, offer.band_as_of, offer.preempted_share)
        key = (offer.cloud, offer.instance_type, signals, stated if stated[0] is not None else None, own)
        if key not in known:
            try:
                known[key] = table.gang(offer, machine, 1)
            except LookupError:
                known[key] = None
        risk = known[key]
        if risk is not None:
            found.append(PoolRisk(offer, machine, risk, own, tuple(row for row in losses if row.concerns(offer))))
    return tuple(found)


def _names(offer: Offer) -> list[list[str]]:
    """Return the ways to name the pool of an offer, in small letters."""
    places = [[offer.region], [offer.zone], [offer.region, offer.zone]] if offer.zone else [[offer.region]]
    return [[word.lower() for word in (offer.cloud, *place, offer.instance_type) if word] for place in places]
