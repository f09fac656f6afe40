"""Refresh of the price book: ask the clouds, merge their answers into the older book, store it and the history.

Simulated clouds have a book of their own, so that no plan on real ones meets a price that no cloud asks. Nothing is
stored until every answer has come, so that stopping midway leaves the old book.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from pricing.book import PriceBook
from pricing.book_file import embedded_book
from pricing.history import merge_points, price_point
from pricing.offers import Offer, OfferKey
from pricing.places import SIMULATED_CLOUDS, Market
from pricing.pool_experience import ExperienceKind
from pricing.problems import InvalidInputError
from providers.caller import Caller
from providers.collector import CloudOutcome, CloudSource, FetchProgress, fetch_clouds
from providers.errors import ProviderError
from providers.protocol import FetchResult, Scope
from providers.registry import open_provider, open_public_provider
from providers.session import Session
from router.prices import history
from router.prices.books import LATEST, SANDBOX
from router.prices.bookstore import BookStore, StoredBook
from router.prices.cloud_settings import LoadedClouds
from router.prices.merge import CloudCounts, GateLimits, MergedBook, drop_unsold, extend_tables, merge_books
from router.prices.pool_availability import read_pool_records
from router.prices.refresh_record import write_records
from router.prices.report import (
    BookReport,
    DroppedRowGroup,
    RefreshReport,
    build_cloud_report,
    group_dropped_rows,
    is_without_account,
)

# The period of history over which interruptions are counted.
RISK_WINDOW = timedelta(days=60)
# Clouds refuse signatures and tokens that are five minutes off.
CLOCK_TOLERANCE = timedelta(minutes=3)
_USUAL = GateLimits()


@dataclass(frozen=True, slots=True)
class RefreshOptions:
    """The options of a refresh.

    ``clouds`` as for :meth:`LoadedClouds.asked`. ``whole`` refuses a book in which anything is older; ``history_days``
    is how far back a first refresh asks for price history (0: none is stored).
    """

    clouds: tuple[str, ...] = ()
    time_limit_s: float = 300.0
    gates: GateLimits = _USUAL
    whole: bool = False
    history_days: float = 7.0


def refresh(
    options: RefreshOptions,
    clouds: LoadedClouds,
    store: BookStore,
    history_folder: Path,
    now: datetime,
    on_progress: Callable[[FetchProgress], None],
) -> RefreshReport:
    """Ask, merge, store, and record how it ended. InvalidInputError when the store cannot be read or written."""
    report = _refresh(options, clouds, store, history_folder, now.replace(microsecond=0), on_progress)
    try:
        with store.lock():
            write_records(store, report)
    except (InvalidInputError, OSError) as error:  # The new prices count without the record too.
        warnings = (*report.warnings, f"how the refresh ended could not be recorded: {error}")
        return replace(report, warnings=warnings)
    return report


def _refresh(
    options: RefreshOptions,
    clouds: LoadedClouds,
    store: BookStore,
    history_folder: Path,
    now: datetime,
    on_progress: Callable[[FetchProgress], None],
) -> RefreshReport:
    asked = clouds.asked(options.clouds)
    words = load_all_tables(store)
    begin = time.monotonic()
    sources, unopened = _open(asked, clouds, words, options, history_folder, now)
    outcomes = {**fetch_clouds(sources, options.time_limit_s, on_progress), **unopened}
    left_s = max(1.0, options.time_limit_s - (time.monotonic() - begin))
    public = _public_sources(outcomes, clouds, words, now, left_s)
    for cloud, outcome in fetch_clouds(public, left_s, on_progress).items():
        outcomes[cloud] = replace(outcome, no_account=outcomes[cloud].error)
    sources = {**sources, **public}
    outcomes = {
        cloud: replace(outcome, results={s: drop_unsold(h, words) for s, h in outcome.results.items()})
        for cloud, outcome in outcomes.items()
    }
    results = {cloud: tuple(outcome.results.values()) for cloud, outcome in outcomes.items() if outcome.results}
    shelves = _shelves(store, asked)
    with ExitStack() as locks:
        for shelf in shelves:
            locks.enter_context(shelf.store.lock())
        # The book is read again, because another refresh may have stored one meanwhile.
        merges = [_merge_shelf(shelf, results, options, now) for shelf in shelves]
        counts = {cloud: count for merge_ in merges for cloud, count in merge_.merged.counts.items()}
        held = [one for merge_ in merges for one in merge_.merged.held]
        reports = tuple(
            build_cloud_report(
                outcome,
                asked[cloud],
                counts.get(cloud, CloudCounts()),
                tuple(one for one in held if one.cloud == cloud),
                sources[cloud].caller if cloud in sources else None,
            )
            for cloud, outcome in sorted(outcomes.items())
        )
        warnings = (*(w for merge_ in merges for w in merge_.warnings), *_wrong_clocks(sources, now))
        untouched = tuple(BookReport(m.shelf.name, None, m.before.digest, len(m.before.offers)) for m in merges)
        report = RefreshReport(now, untouched, 0, reports, warnings)
        if options.whole and not report.complete:
            return report
        books, added = [], 0
        for merge_, before in zip(merges, untouched, strict=True):
            if not any(part.offers for parts in merge_.results.values() for part in parts):
                books.append(before)
                continue
            book = merge_.merged.book
            if options.history_days:
                try:
                    added += _append_history(history_folder, merge_.results, merge_.before, book, now)
                    book = _with_pool_records(book, history_folder, now)
                except (InvalidInputError, OSError, ValueError) as error:  # The new prices count without it too.
                    warnings += (f"the price history could not be stored: {error}",)
            stored = merge_.shelf.store.commit(book)
            books.append(replace(before, stored=stored, offers=stored.offers))
    return replace(report, books=tuple(books), history_added=added, warnings=warnings)


@dataclass(frozen=True)
class _Shelf:
    """The store of one group of clouds' books: real clouds, or simulated ones."""

    name: str
    store: BookStore
    clouds: frozenset[str]


@dataclass(frozen=True)
class _Merge:
    """The merged fetch results of one shelf; nothing is stored yet."""

    shelf: _Shelf
    before: PriceBook
    results: Mapping[str, Sequence[FetchResult]]
    merged: MergedBook
    warnings: tuple[str, ...]


def _shelves(store: BookStore, clouds: Iterable[str]) -> list[_Shelf]:
    simulated = SIMULATED_CLOUDS & frozenset(clouds)
    real = frozenset(clouds) - simulated
    shelves = [_Shelf(LATEST, store, real)] if real or not simulated else []
    return [*shelves, _Shelf(SANDBOX, store.sandbox, simulated)] if simulated else shelves


def _merge_shelf(
    shelf: _Shelf, results: Mapping[str, Sequence[FetchResult]], options: RefreshOptions, now: datetime
) -> _Merge:
    before, _, warnings = load_base_book(shelf.store, simulated=shelf.name == SANDBOX)
    own = {cloud: parts for cloud, parts in results.items() if cloud in shelf.clouds}
    merged = merge_books(before, embedded_book(), own, now, options.gates, asked_clouds=shelf.clouds)
    return _Merge(shelf, before, own, merged, warnings)


def load_base_book(store: BookStore, *, simulated: bool = False) -> tuple[PriceBook, PriceBook, tuple[str, ...]]:
    """Return the book to build on, the tables, and warnings about damaged books.

    The book is the latest that can be read, else the embedded one; of the ``simulated`` cloud, whose ``store`` is its
    own, the first has no offer. The tables are those of this version of the program with what earlier refreshes added
    to them.
    """
    tables = embedded_book()
    latest, warnings = store.newest_sound()
    if latest is None:
        return tables.with_offers(()) if simulated else tables, tables, warnings
    latest = latest if simulated else latest.sold_only()
    return latest, extend_tables(tables, None, latest), warnings


def load_all_tables(store: BookStore) -> PriceBook:
    """Return the tables of this version of the program with what earlier refreshes of any cloud added to them."""
    _, words, _ = load_base_book(store)
    sandbox, _ = store.sandbox.newest_sound()
    return words if sandbox is None else extend_tables(words, None, sandbox)


def _open(
    names: Mapping[str, bool],
    clouds: LoadedClouds,
    words: PriceBook,
    options: RefreshOptions,
    history_folder: Path,
    now: datetime,
) -> tuple[dict[str, CloudSource], dict[str, CloudOutcome]]:
    since = _history_since(history_folder, now, options.history_days)
    sources: dict[str, CloudSource] = {}
    unopened: dict[str, CloudOutcome] = {}
    for cloud in names:
        caller = Caller(cloud, options.time_limit_s)
        try:
            provider = open_provider(cloud, Session(clouds.settings(cloud), words, now, caller))
        except ProviderError as error:
            unopened[cloud] = CloudOutcome(cloud, error=error)
            continue
        sources[cloud] = CloudSource(provider, caller, since)
    return sources, unopened


def _public_sources(
    outcomes: Mapping[str, CloudOutcome], clouds: LoadedClouds, words: PriceBook, now: datetime, limit_s: float
) -> dict[str, CloudSource]:
    """Return sources of public prices for clouds that say nothing without an account, when there is none."""
    sources: dict[str, CloudSource] = {}
    for cloud, outcome in outcomes.items():
        if outcome.error is None or not is_without_account(outcome.error):
            continue
        caller = Caller(cloud, limit_s)
        provider = open_public_provider(cloud, Session(clouds.settings(cloud), words, now, caller))
        if provider is not None:
            sources[cloud] = CloudSource(provider, caller, lambda _: None)
    return sources


def _history_since(folder: Path, now: datetime, days: float) -> Callable[[Scope], datetime | None]:
    """Return, by scope, the moment to ask from: the end of a region's history.

    It is at most ``days`` back where the region has no history.
    """
    if not days:
        return lambda _: None
    last = history.latest_by_region(folder, history.Selection(markets=(Market.SPOT,)))

    def since(scope: Scope) -> datetime:
        ends = [
            at for region, at in last.items() if region.cloud == scope.cloud and scope.region in ("", region.region)
        ]
        return min(ends) if ends else now - timedelta(days=days)

    return since


def _wrong_clocks(sources: Mapping[str, CloudSource], now: datetime) -> Iterator[str]:
    for cloud, source in sources.items():
        ahead = source.caller.clock_ahead(now)
        if ahead is not None and abs(ahead) > CLOCK_TOLERANCE:
            minutes = round(abs(ahead) / timedelta(minutes=1))
            side = "ahead of" if ahead > timedelta(0) else "behind"
            yield f"this machine's clock is {minutes} min {side} that of {cloud}; tokens and signatures may be refused"


def _append_history(
    folder: Path, results: Mapping[str, Sequence[FetchResult]], before: PriceBook, book: PriceBook, now: datetime
) -> int:
    points = [point for parts in results.values() for part in parts for point in part.points]
    priced = (p for p in points if p.usd_per_hour is not None)
    priced_keys = {(p.cloud, p.region, p.zone or "", p.instance_type, p.market.value) for p in priced}
    old = {offer.key: offer for offer in before.offers}
    points += [price_point(o, now) for o in _changed_offers(book.offers, old, results) if o.key not in priced_keys]
    return history.append(folder, merge_points(points)).written


def _changed_offers(
    offers: Iterable[Offer], old: Mapping[OfferKey, Offer], results: Mapping[str, Sequence[FetchResult]]
) -> Iterable[Offer]:
    fetched = {o.key for parts in results.values() for part in parts for o in part.offers}
    for offer in offers:
        before = old.get(offer.key)
        if offer.key in fetched and (before is None or before.usd_per_hour != offer.usd_per_hour):
            yield offer


def _with_pool_records(book: PriceBook, history_folder: Path, now: datetime) -> PriceBook:
    """Return the book with what the stored history shows of interruptions, in place of what an older one showed."""
    others = (record for record in book.records if record.kind is not ExperienceKind.AVAILABILITY)
    records = read_pool_records(history_folder, book, now, RISK_WINDOW)
    return replace(book, records=(*others, *records), in_order=True)


@dataclass(frozen=True)
class OfferImport:
    """The result of an import: the new latest book, what the merge changed, and rows that were dropped."""

    stored: StoredBook
    merged: MergedBook
    dropped: tuple[DroppedRowGroup, ...]


def import_book(
    results: Mapping[str, FetchResult], store: BookStore, now: datetime, gates: GateLimits, *, replacing: bool
) -> OfferImport:
    """Put offers, by cloud, into the latest book.

    Offers that the file does not name stay as they are; ``replacing`` removes those of the regions and markets that it
    covers. InvalidInputError when it holds no offers that could be used, or some of a simulated cloud, or what the
    book's own check refuses.
    """
    words = load_all_tables(store)
    results = {cloud: drop_unsold(result, words) for cloud, result in results.items()}
    if not any(result.offers for result in results.values()):
        raise InvalidInputError.single("holds no offers that could be used")
    simulated = sorted(SIMULATED_CLOUDS & results.keys())
    if simulated:
        raise InvalidInputError.single(
            f"holds prices of {', '.join(simulated)}, a simulated cloud, which shares no book with real ones",
            remedy="take those rows out, or name the file itself as --book",
        )
    parts = {cloud: (replace(h, covered=_covered(h) if replacing else frozenset()),) for cloud, h in results.items()}
    now = now.replace(microsecond=0)
    with store.lock():
        before, _, _ = load_base_book(store)
        merged = merge_books(before, embedded_book(), parts, now, gates, asked_clouds=())
        stored = store.commit(merged.book)
    rows = [row for result in results.values() for row in result.dropped]
    return OfferImport(stored, merged, group_dropped_rows(rows))


def _covered(result: FetchResult) -> frozenset[tuple[str, Market]]:
    """Return what the file's form covers, else each region and market that it has rows of."""
    return result.covered or frozenset((offer.region, offer.market) for offer in result.offers)
