"""Read the inputs of plans and quotes, build one request of a plan for the pure core, and store what it was made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.book import PriceBook
from pricing.problems import InvalidInputError, Problem
from pricing.units import format_count
from router.app.learned import RunReader, read_no_runs
from router.config.book_check import check_against_book, check_limits_against_book
from router.config.job_files import JobSource, LoadedJobs, LoadedLimits, load_jobs, load_limits, teams_without_jobs
from router.controller.plans import (
    BudgetSource,
    budget_sources,
    store_limits,
    store_made_limits,
    with_known_copies,
)
from router.jobs.experience import learn
from router.jobs.job_json import job_json
from router.jobs.limits import Limit, Limits
from router.jobs.spec import Job, Placement
from router.planning.document.inputs import LimitSource
from router.planning.document.plan_terms import PlanTerms
from router.planning.planner import PlanRequest
from router.prices.allowance_store import LATEST, AllowanceStore, load_allowances
from router.prices.books import load_book
from router.prices.data_folders import allowances_folder
from router.prices.read_limits import MergedLimits, merge_read_limits
from router.state.records import ANY, Shortage
from router.state.store import StateStore

if TYPE_CHECKING:
    from router.state.data_copies import DataCopy


def load_inputs(
    paths: Sequence[JobSource],
    limits_source: Path | Limits | None,
    now: datetime,
    book: PriceBook,
    *,
    own_deadlines: bool = True,
) -> tuple[LoadedJobs, Limits]:
    """Return jobs and limits, checked against the book.

    Limits that are no file were checked before. InvalidInputError has every problem of both. Without ``own_deadlines``
    the deadlines of the jobs do not count, and may have passed.
    """
    problems: list[Problem] = []
    jobs, limits = LoadedJobs((), ()), LoadedLimits(Limits.none(), None)
    try:
        if isinstance(limits_source, Limits):
            limits = LoadedLimits(limits_source, None)
        elif limits_source is not None:
            limits = load_limits(limits_source)
            check_limits_against_book(limits, book)
    except InvalidInputError as error:
        problems += error.problems
    try:
        jobs = load_jobs(paths, now, own_deadlines=own_deadlines)
        check_against_book(jobs, book)
    except InvalidInputError as error:
        problems += error.problems
    if problems:
        raise InvalidInputError(problems)
    return jobs, limits.limits


def read_inputs(
    sources: Sequence[JobSource],
    limits_source: Path | Limits | None,
    quotas: str | None,
    now: datetime,
    book: PriceBook,
    *,
    own_deadlines: bool = True,
) -> tuple[LoadedJobs, MergedLimits]:
    """Return jobs and limits as :func:`load_inputs`, with the reading of quotas that the option or the limits name."""
    loaded, in_file = load_inputs(sources, limits_source, now, book, own_deadlines=own_deadlines)
    limits_file = None if isinstance(limits_source, Limits) else limits_source
    return loaded, with_read_quotas(in_file, quotas, limits_file, book, now, running_placements(loaded, book))


def recent_book(book: PriceBook, max_age: timedelta | None, now: datetime) -> PriceBook:
    """Return the book with the offers that are no older than that. InvalidInputError where none is left."""
    if max_age is None:
        return book
    offers = tuple(o for o in book.offers if o.as_of is not None and now.date() - o.as_of <= max_age)
    if not offers:
        raise InvalidInputError.single(
            f"every price of the book is older than {max_age.days} days or undated",
            field="--max-age",
            remedy="raise it, or fetch a newer book",
        )
    return book if len(offers) == len(book.offers) else book.with_offers(offers)


@dataclass(frozen=True, slots=True)
class PlanOptions(PlanTerms):
    """The terms of a plan, and the choice of its prices, limits and earlier runs.

    ``max_age`` None takes prices of any age; ``quotas`` None takes the reading that the limits file names, if any.
    ``runs`` reads the earlier runs to learn from; by default none.
    """

    max_age: timedelta | None = None
    quotas: str | None = None
    runs: RunReader = read_no_runs


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A request, and what was left out of it: offers older than ``max_age``, jobs without steps left.

    ``budgets``: those of teams that are not the limits file's alone; ``idle``: budgets of the limits file whose teams
    have no job. ``file_limits`` are the limits of file and readings, without what the state adds; ``doubts`` are
    warnings about the readings.
    """

    request: PlanRequest
    offers_too_old: int
    finished: tuple[str, ...]
    budgets: tuple[BudgetSource, ...] = ()
    idle: tuple[Problem, ...] = ()
    file_limits: Limits | None = None
    doubts: tuple[str, ...] = ()


def plan_request(
    paths: Sequence[str],
    book_name: str,
    limits_file: Path | None,
    now: datetime,
    options: PlanOptions,
    shortages: Sequence[Shortage] = (),
    held: Callable[[Limits], Limits] = lambda limits: limits,
    copies: Sequence[DataCopy] = (),
) -> PreparedPlan:
    """Read and check everything, and return the request.

    Pools in ``shortages`` are taken to have no more machines than jobs run on there. ``held`` adds the budgets that the
    state knows (:meth:`router.controller.plans.BudgetConstraints.limits`); data lie in the regions of ``copies``, too.
    InvalidInputError with every problem of the book, or else of jobs and limits.
    """
    book = load_book(book_name)
    loaded, read = read_inputs(paths, limits_file, options.quotas, now, book)
    limits = held(read.limits)
    recent = recent_book(book, options.max_age, now)
    jobs = tuple(with_known_copies(job, copies) for job in loaded.jobs if job.steps_left > 0)
    request = PlanRequest(
        jobs=jobs,
        book=recent,
        limits=without_short_pools(limits, shortages, running_placements(loaded, book)),
        now=now,
        limit_sources=read.sources,
        experience=learn(options.runs(book), jobs, book, now),
        **options.terms(),
    )
    finished = tuple(sorted(job.name for job in loaded.jobs if job.steps_left == 0))
    idle: tuple[Problem, ...] = ()
    if limits_file is not None:
        idle = teams_without_jobs(load_limits(limits_file), {job.team for job in loaded.jobs})
    given = limits_file is not None or bool(read.sources)
    return PreparedPlan(
        request,
        offers_too_old=len(book.offers) - len(recent.offers),
        finished=finished,
        budgets=budget_sources(read.limits, limits),
        idle=idle,
        file_limits=read.limits if given else None,
        doubts=read.warnings,
    )


def without_short_pools(
    limits: Limits, shortages: Sequence[Shortage], running: Sequence[tuple[Placement, int]] = ()
) -> Limits:
    """Return the limits with no stock for every pool that is remembered as short.

    Only the machines that jobs run on there stay (``running``: places with their numbers of machines).
    """
    short = {}
    for s in sorted(shortages, key=lambda s: s.until):
        pool = (s.cloud, s.region, s.instance_type, s.market)
        whole_region = s.instance_type == ANY
        running_machines = sum(
            machines
            for place, machines in running
            if (place.cloud, place.region, place.market) == (s.cloud, s.region, s.market)
            and (whole_region or place.instance_type == s.instance_type)
            and (s.zone is None or place.zone in (None, s.zone))
        )
        where = "/".join(filter(None, (s.cloud, s.region, s.zone)))
        short[*pool, s.zone] = Limit(
            name=f"short until {s.until.astimezone(UTC):%d %H:%MZ}: {where} {s.instance_type} {s.market.value}",
            cloud=s.cloud,
            region=s.region,
            zone=s.zone,
            instance_type=None if whole_region else s.instance_type,
            market=s.market,
            amount=running_machines,
            unit="machines",
            kind="stock",
        )
    return limits.model_copy(update={"limits": (*limits.limits, *short.values())}) if short else limits


NO_QUOTAS = "none"


def with_read_quotas(
    limits: Limits,
    name: str | None,
    limits_file: Path | None,
    book: PriceBook,
    now: datetime,
    running: Sequence[tuple[Placement, int]],
) -> MergedLimits:
    """Return the limits with those that were read; as they are where no reading is asked for.

    ``name`` is that of the reading: ``latest``, a file, ``none``, or None for what the limits file says.
    InvalidInputError where the reading is missing or damaged.
    """
    if name is None and limits.quotas is not None:
        folder = Path() if limits_file is None else limits_file.parent
        name = limits.quotas if limits.quotas in (LATEST, NO_QUOTAS) else str(folder / limits.quotas)
    if name is None or name == NO_QUOTAS:
        return MergedLimits(limits.model_copy(update={"quotas": None}), (), ())
    reading = load_allowances(name, AllowanceStore(allowances_folder()))
    return merge_read_limits(limits, reading, book, now, running)


def running_placements(loaded: LoadedJobs, book: PriceBook) -> tuple[tuple[Placement, int], ...]:
    """Return where jobs run at this moment, and on how many machines; a gang of two machine types is two placements."""
    placements = []
    for job in loaded.jobs:
        place = job.status.running if job.status is not None else None
        for name, accelerators in place.accelerators_by_type.items() if place is not None else ():
            machine = book.machine(place.cloud, name) if place is not None else None
            if place is not None and machine is not None:
                alone = {"instance_type": name, "accelerators": accelerators, "mixed_with": None}
                placements.append((place.model_copy(update=alone), -(-accelerators // machine.accelerator_count)))
    return tuple(placements)


def describe_sources(sources: Sequence[LimitSource], now: datetime) -> tuple[str, ...]:
    """Return a sentence a reading: how many limits came from it, how old it is, and which the file makes smaller."""
    groups: dict[tuple[str, datetime], list[LimitSource]] = {}
    for source in sources:
        groups.setdefault((source.source, source.read_at), []).append(source)
    lines = []
    for (name, read_at), found in sorted(groups.items()):
        words = (
            f"{format_count(len(found), 'limit')} from the {name}, read {read_at:%Y-%m-%d %H:%MZ}, {_age(now, read_at)}"
        )
        shared = [one for one in found if one.in_file is not None]
        for one in shared:
            binds = "limits file" if one.binds_by_file else "reading"
            words += f"; {one.limit}: {one.read:,} read, {one.in_file:,} in the limits file, the {binds} binds"
        lines.append(words)
    return tuple(lines)


def _age(now: datetime, read_at: datetime) -> str:
    hours = (now - read_at).total_seconds() / 3600
    if hours < 0:
        return "after the moment of the plan"
    return f"{hours:.0f} hours before" if hours >= 1 else "less than an hour before"


def store_plan_inputs(
    store: StateStore, jobs: Sequence[Job], digest: str, limits: Limits | None, moment: datetime
) -> None:
    """Store the specifications of jobs by their digests, and the limits of the plan of that digest."""
    store.plans.put_jobs({job.digest: job_json(job) for job in jobs}, moment)
    store_made_limits(store, digest, Limits.none() if limits is None else limits)
    if limits is not None:
        store_limits(store, digest, limits)
