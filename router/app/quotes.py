"""Reads what quotes are made from and hands the pure core one job after the other, on several processors if it pays."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.problems import InvalidInputError
from router.app.inputs import inputs, young
from router.config.fit_files import read_fit
from router.jobs.quantities import Moment
from router.planning.candidates import CandidateFinder
from router.prices.history_parts import list_parts
from router.prices.history_risk import LONGEST_GAP
from router.prices.home import history_folder, weather_fit_file
from router.quotes.quote import BudgetQuote, Quote, Refused
from router.quotes.request import Ask, Trade
from router.spot.availability.observed import Sighting, sighting
from router.spot.live.foresight_cache import nothing_watched
from router.spot.live.selection import run_policy
from router.spot.policies.interface import QUOTED_RULE, Pool
from router.spot.policies.our_policy import QUOTED, quoted_policy_for
from router.spot.venues import Venue

WATCHED = timedelta(days=31)
_WORTH_ANOTHER_PROCESS = 4  # jobs for each: fewer are done before it has started
Answer = Quote | BudgetQuote | Refused


@dataclass(frozen=True, slots=True)
class QuoteOptions:
    """As on the command line. ``by`` None: each job's own deadline; ``budget``: ask how far it goes instead."""

    by: Moment | None = None
    budget: Usd | None = None
    advisory: bool = False
    max_age: timedelta | None = None
    processes: int | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be answered, and with what."""

    asks: tuple[Ask | Refused, ...]
    trade: Trade
    budget: Usd | None
    processes: int


def asked(
    paths: Sequence[str],
    book_name: str,
    limits_file: Path | None,
    now: datetime,
    options: QuoteOptions,
    load: Callable[[str], PriceBook],
) -> Asked:
    """Everything read and checked. InvalidInputError with every problem. A job without any deadline is refused."""
    book = load(book_name)
    loaded, limits = inputs(paths, limits_file, now, book, own_deadlines=options.by is None)
    offers = young(book, options.max_age, now)
    book = book if len(offers) == len(book.offers) else book.with_offers(offers)
    finder = CandidateFinder(book, limits, now, advisory=options.advisory)
    fit = read_fit(weather_fit_file())
    trade = Trade(
        finder,
        book,
        limits,
        now,
        WatchedPools(history_folder(), now),
        quoted_policy_for,
        QUOTED,
        fit=fit if fit is not None and fit.is_fresh(now) else None,
        run_policy=run_policy(QUOTED_RULE),
    )
    asks: list[Ask | Refused] = []
    for job, document in loaded:
        moment = options.by or job.deadline
        if moment is None:
            asks.append(Refused(job.name, "has no deadline to quote for", "give it one, or --by +36h"))
            continue
        asks.append(Ask(job, moment.at(now), (str(Path(document.file).absolute()),)))
    return Asked(tuple(asks), trade, options.budget, options.processes or _processors())


def answers(asked: Asked) -> Iterator[Answer]:
    """One for each job, in order, as they are done."""
    processes = min(asked.processes, len(asked.asks) // _WORTH_ANOTHER_PROCESS)
    if processes < 2 or "fork" not in multiprocessing.get_all_start_methods():
        yield from (_answer(asked, ask) for ask in asked.asks)
        return
    _shared.append(asked)
    try:
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            yield from pool.imap(_answer_shared, range(len(asked.asks)))
    finally:
        _shared.clear()


# A forked process finds here what it would take longer to be sent.
_shared: list[Asked] = []


def _answer_shared(index: int) -> Answer:
    return _answer(_shared[0], _shared[0].asks[index])


def _answer(asked: Asked, ask: Ask | Refused) -> Answer:
    if isinstance(ask, Refused):
        return ask
    # Imported by name of what is needed: the one for budgets is seldom.
    from router.quotes.budget_quote import make_budget_quote
    from router.quotes.make_quote import make_quote

    if asked.budget is not None:
        return make_budget_quote(ask, asked.budget, asked.trade)
    return make_quote(ask, asked.trade)


class WatchedPools:
    """What the price history saw of pools lately; each pool is asked for once. InvalidInputError for a file of it that
    cannot be read."""

    def __init__(self, folder: Path, now: datetime) -> None:
        self._folder, self._now = folder, now
        self._any = bool(list_parts(folder, now - WATCHED, now))
        self._known: dict[Pool, Sighting | None] = {}

    def __call__(self, venues: Sequence[Venue]) -> Mapping[str, Sighting]:
        pools = {_pool(v): v.pool[0] for v in venues if not v.sure and len(v.pool) == 1}
        return {pools[pool]: found for pool, found in self.of(pools).items()}

    def of(self, pools: Collection[Pool]) -> Mapping[Pool, Sighting]:
        """Those of which anything was seen."""
        if not self._any:
            return {}
        from router.prices.pool_availability import looks

        new = set(pools) - self._known.keys()
        if new:
            seen = looks(self._folder, new, self._now - WATCHED, self._now)
            self._known |= {pool: sighting(seen.get(pool, ()), LONGEST_GAP) for pool in new}
        return {pool: found for pool in pools if (found := self._known[pool]) is not None}


class PoolsOfNow:
    """The same for who runs for weeks: read anew every hour, as of its beginning. What cannot be read is said once an
    hour, and taken as not seen: a job that has to go on does not wait for a history."""

    def __init__(self, folder: Path, clock: Callable[[], datetime], tell: Callable[[str], None]) -> None:
        self._folder, self._clock, self._tell = folder, clock, tell
        self._hour: datetime | None = None
        self._read: Callable[[Collection[Pool]], Mapping[Pool, Sighting]] = nothing_watched

    def __call__(self, pools: Collection[Pool]) -> Mapping[Pool, Sighting]:
        hour = self._clock().replace(minute=0, second=0, microsecond=0)
        try:
            if hour != self._hour:
                self._hour, self._read = hour, nothing_watched
                self._read = WatchedPools(self._folder, hour).of
            return self._read(pools)
        except InvalidInputError as error:
            self._read = nothing_watched
            self._tell(f"spot pools are taken as never watched: {error}")
            return {}


def _pool(v: Venue) -> Pool:
    offer = v.candidate.offer
    return offer.cloud, offer.region, offer.zone or "", offer.instance_type


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
