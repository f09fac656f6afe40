"""Read the inputs of quotes and make one quote for each job, on several processors if that is faster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.places import Market
from pricing.problems import InvalidInputError
from router.app.learned import RunReader, read_no_runs
from router.app.plan import read_inputs, recent_book
from router.config.job_files import JobSource, JobText
from router.config.plan_files import read_fit
from router.jobs.experience import Experience, learn
from router.jobs.limits import Limits
from router.jobs.quantities import Moment
from router.jobs.run_policy import RunPolicy
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.document.restricted_limits import restrict_limits
from router.planning.find.candidates import CandidateFinder
from router.planning.planner import PlanRequest
from router.prices.books import load_book
from router.prices.data_folders import hazard_fit_file, history_folder
from router.prices.history_sql import list_parts
from router.prices.pool_availability import LONGEST_GAP, read_observations
from router.prices.read_limits import MergedLimits
from router.quotes.quote import BudgetQuote, LimitsPlan, Quote, Refused, Somewhere
from router.quotes.request import MarketInputs, QuoteRequest
from router.spot.availability.observed import PoolObservation, summarise_observations
from router.spot.live.selection import default_run_policy
from router.spot.policies import QUOTED_RULE
from router.spot.policies.interface import SpotPoolKey
from router.spot.policies.our_policy import QUOTED_DESCRIPTION, quoted_policy_for
from router.spot.policies.registry import find_no_observations
from router.spot.venues import QuoteOption

WATCHED = timedelta(days=31)


_WORTH_ANOTHER_PROCESS = 4  # jobs for each process: fewer are done before it has started


QuoteAnswer = Quote | BudgetQuote | Refused


@dataclass(frozen=True, slots=True)
class QuoteOptions:
    """The options of quotes, as on the command line.

    ``by`` None: each job's own deadline; ``budget``: ask how far it goes instead; ``quotas`` None: the reading that the
    limits file names, if any. ``runs`` reads the earlier runs to learn from; by default none. ``limits_plan`` is the
    plan that the limits are of.
    """

    by: Moment | None = None
    budget: Usd | None = None
    advisory: bool = False
    max_age: timedelta | None = None
    processes: int | None = None
    quotas: str | None = None
    runs: RunReader = read_no_runs
    limits_plan: LimitsPlan | None = None


@dataclass(frozen=True, slots=True)
class QuoteBatch:
    """The quotes to make, and their inputs.

    ``read`` has the limits that were read from clouds, ``experience`` what was learned of earlier runs.
    """

    asks: tuple[QuoteRequest | Refused, ...]
    market_inputs: MarketInputs
    budget: Usd | None
    processes: int
    read: MergedLimits
    experience: Experience | None = None


def prepare_quotes(
    paths: Sequence[JobSource],
    book_name: str,
    limits_source: Path | Limits | None,
    now: datetime,
    options: QuoteOptions,
    load: Callable[[str], PriceBook],
) -> QuoteBatch:
    """Read and check everything, and return the quotes to make.

    InvalidInputError with every problem. A job without any deadline is refused.
    """
    book = load(book_name)
    loaded, read = read_inputs(paths, limits_source, options.quotas, now, book, own_deadlines=options.by is None)
    limits = read.limits
    book = recent_book(book, options.max_age, now)
    experience = learn(options.runs(book), loaded.jobs, book, now)
    finder = CandidateFinder(book, limits, now, advisory=options.advisory, experience=experience)
    fit = read_fit(hazard_fit_file())
    market_inputs = MarketInputs(
        finder,
        book,
        limits,
        now,
        WatchedPools(history_folder(), now),
        quoted_policy_for,
        QUOTED_DESCRIPTION,
        fit=fit if fit is not None and fit.is_fresh(now) else None,
        run_policy=default_run_policy(QUOTED_RULE),
    )
    asks: list[QuoteRequest | Refused] = []
    given = limits_source is not None or bool(read.sources)
    for job, document in loaded:
        moment = options.by or job.deadline
        if moment is None:
            asks.append(Refused(job.name, "has no deadline to quote for", "give it one, or --by +36h"))
            continue
        files = () if any(isinstance(path, JobText) for path in paths) else (str(Path(document.file).absolute()),)
        stated = restrict_limits(limits, job.team) if given else None
        asks.append(QuoteRequest(job, moment.at(now), files, stated, options.limits_plan))
    return QuoteBatch(tuple(asks), market_inputs, options.budget, options.processes or _processors(), read, experience)


def make_quotes(batch: QuoteBatch) -> Iterator[QuoteAnswer]:
    """Yield one answer for each job, in order, as they are done."""
    processes = min(batch.processes, len(batch.asks) // _WORTH_ANOTHER_PROCESS)
    if processes < 2 or "fork" not in multiprocessing.get_all_start_methods():
        yield from (_answer(batch, ask) for ask in batch.asks)
        return
    _shared.append(batch)
    try:
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            yield from pool.imap(_answer_shared, range(len(batch.asks)))
    finally:
        _shared.clear()


# A forked process reads its input here, because sending it would take longer.
_shared: list[QuoteBatch] = []


def _answer_shared(index: int) -> QuoteAnswer:
    return _answer(_shared[0], _shared[0].asks[index])


def _answer(batch: QuoteBatch, ask: QuoteRequest | Refused) -> QuoteAnswer:
    if isinstance(ask, Refused):
        return ask
    # These are imported where they are needed, because a budget is seldom asked for.
    from router.quotes.budget_quote import make_budget_quote
    from router.quotes.make_quote import make_quote

    if batch.budget is not None:
        return make_budget_quote(ask, batch.budget, batch.market_inputs)
    return make_quote(ask, batch.market_inputs)


class WatchedPools:
    """The price history's recent observations of pools; each pool is read once.

    InvalidInputError for a file of the history that cannot be read.
    """

    def __init__(self, folder: Path, now: datetime) -> None:
        self._folder, self._now = folder, now
        self._any = bool(list_parts(folder, now - WATCHED, now))
        self._known: dict[SpotPoolKey, PoolObservation | None] = {}

    def __call__(self, venues: Sequence[QuoteOption]) -> Mapping[str, PoolObservation]:
        pools = {_pool(v): v.pool[0] for v in venues if not v.sure and len(v.pool) == 1}
        return {pools[pool]: found for pool, found in self.of(pools).items()}

    def of(self, pools: Collection[SpotPoolKey]) -> Mapping[SpotPoolKey, PoolObservation]:
        """Return the pools that were observed at all."""
        if not self._any:
            return {}
        new_pools = set(pools) - self._known.keys()
        if new_pools:
            new_looks = read_observations(self._folder, new_pools, self._now - WATCHED, self._now)
            self._known |= {pool: summarise_observations(new_looks.get(pool, ()), LONGEST_GAP) for pool in new_pools}
        return {pool: found for pool in pools if (found := self._known[pool]) is not None}


class HourlyWatchedPools:
    """Observations of pools for a process that runs for weeks: read again every hour, as of its beginning.

    A history that cannot be read is reported once an hour, and its pools count as not observed: a job that has to
    continue does not wait for a history.
    """

    def __init__(self, folder: Path, clock: Callable[[], datetime], tell: Callable[[str], None]) -> None:
        self._folder, self._clock, self._report = folder, clock, tell
        self._hour: datetime | None = None
        self._read: Callable[[Collection[SpotPoolKey]], Mapping[SpotPoolKey, PoolObservation]] = find_no_observations

    def __call__(self, pools: Collection[SpotPoolKey]) -> Mapping[SpotPoolKey, PoolObservation]:
        hour = self._clock().replace(minute=0, second=0, microsecond=0)
        try:
            if hour != self._hour:
                self._hour, self._read = hour, find_no_observations
                self._read = WatchedPools(self._folder, hour).of
            return self._read(pools)
        except InvalidInputError as error:
            self._read = find_no_observations
            self._report(f"spot pools are taken as never watched: {error}")
            return {}


def _pool(v: QuoteOption) -> SpotPoolKey:
    offer = v.candidate.offer
    return offer.cloud, offer.region, offer.zone or "", offer.instance_type


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class QuotedPlanRequest:
    """A plan request for a quoted job; ``is_confined`` where the job may use fewer gangs or markets than it says."""

    request: PlanRequest
    is_confined: bool


def plan_request_of(
    quote: Quote,
    ceiling: Usd,
    book_name: str,
    limits_source: Path | Limits | None,
    now: datetime,
    held: Callable[[Limits], Limits] = lambda limits: limits,
    quotas: str | None = None,
    runs: RunReader = read_no_runs,
    document: str | None = None,
) -> QuotedPlanRequest:
    """Return a plan request for the quoted job, on today's prices; ``quotas``, ``runs`` are as in QuoteOptions.

    The ceiling lowers the job's own budget, never raises it; ``held`` adds the budgets that the state knows. The job
    may use the gangs and markets of the quote alone, and so no reservation that the quote does not count on. With a
    ``document`` the job is read from it, and no file is read.
    InvalidInputError where the job's file is gone, or the job is not the one that was quoted.
    """
    book = load_book(book_name)
    sources: Sequence[JobSource] = quote.files if document is None else (JobText(document, quote.job),)
    loaded, read = read_inputs(sources, limits_source, quotas, now, book, own_deadlines=False)
    job = next((j for j in loaded.jobs if j.name == quote.job), None)
    where = ", ".join(quote.files if document is None else ())
    if job is None:
        raise InvalidInputError.single(f"holds no job {quote.job} any more", where=where, remedy="quote again")
    if job.digest != quote.job_digest:
        raise InvalidInputError.single(
            f"job {quote.job} was changed since it was quoted", where=where, remedy="quote again"
        )
    capped = keep_to_places(cap_job(job, quote.deadline, ceiling), quote.places)
    reserved = any(place.market == Market.RESERVED.value for place in quote.places)
    limits = read.limits if reserved else read.limits.model_copy(update={"reservations": ()})
    request = PlanRequest(
        jobs=(capped,),
        book=book,
        limits=held(limits),
        now=now,
        limit_sources=read.sources,
        experience=learn(runs(book), (capped,), book, now),
    )
    return QuotedPlanRequest(request, (capped.gang, capped.market, limits) != (job.gang, job.market, read.limits))


def cap_job(job: Job, deadline: datetime, ceiling: Usd) -> Job:
    """Return the job with this deadline, which has to hold, and with no larger budget than the ceiling."""
    budget = ceiling if job.budget is None else min(ceiling, job.budget)
    return job.model_copy(update={"deadline": Moment(absolute=deadline), "late": "never", "budget": budget})


def keep_to_places(job: Job, places: Sequence[Somewhere]) -> Job:
    """Return the job with the gangs and markets of a quote's places: an accepted quote is planned as it was quoted."""
    quoted = {(place.accelerator, place.accelerators) for place in places}
    options = tuple(option for option in job.gang.options if (option.accelerator, option.count) in quoted)
    if options and not job.gang.mixed:
        job = job.model_copy(update={"gang": job.gang.model_copy(update={"options": options})})
    if places and not any(place.market == Market.SPOT.value for place in places):
        job = job.model_copy(update={"market": job.market.model_copy(update={"spot": "never"})})
    return job


def with_quoted_policy(plan: Plan, policy: RunPolicy | None) -> Plan:
    """Return the plan with the quote's policy on its lines."""
    return replace(plan, lines=tuple(replace(line, policy=policy) for line in plan.lines))
