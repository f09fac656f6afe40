"""Estimate what a step of a job costs on each of several gangs, by the planner's candidates and costs, without a plan.

A gang's figures are those of the whole job in one run on the cheapest offer that can serve it. Design note
costs-and-estimates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

from pricing.book import PriceBook
from pricing.book_check import did_you_mean
from pricing.money import ZERO, Usd, UsdPerHour, divide_half_even
from pricing.places import Market
from router.jobs.experience import Experience
from router.jobs.gang import GangOption
from router.jobs.gang_layout import GangLayout, gang_layout
from router.jobs.goodput import billed_share, run_share, useful_share
from router.jobs.limits import Limits
from router.jobs.quantities import LONGEST_RUN
from router.jobs.spec import Job
from router.jobs.speed import SpeedEvidence, UnknownSpeed
from router.planning.document.cost_terms import cost_terms_of
from router.planning.document.costing import day_of, lines_of, moves_of
from router.planning.document.plan_usage import COST_TERMS, JobCostTerms
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.candidates import CandidateFinder
from router.planning.find.dropped_listings import DroppedListing
from router.planning.find.gang_offers import join_doubts
from router.planning.find.gang_rates import TOO_SLOW
from router.planning.find.listings import OfferListing
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.run_costs import compute_usd
from router.planning.problem.schedule import ScheduledRun

#: Standard deviations that hold the middle 80 % of a normal distribution.
DEVIATIONS: Final = 1.2815515655446004
_MILLION: Final = 1_000_000
_LEAST_RATE: Final = 1e-9
_LEAST: Final = 0.2  # no run takes less than this share of its expected time, as for speeds
# How far an offer came before it was dropped, the farthest first: that reason says most.
_FARTHEST_FIRST: Final = (
    "too risky",
    TOO_SLOW,
    "egress cap of a cloud",
    "egress cap",
    "egress unknown",
    "speed",
    "advisory",
    "core",
    "placement",
    "limit",
    "capacity",
    "fabric",
    "max price",
    "market",
    "residency",
    "cloud",
    "shape",
    "size",
)


@dataclass(frozen=True, slots=True)
class Span:
    """A figure with the interval that holds it four times in five; ``high`` is None where nothing bounds it."""

    expected: float
    low: float
    high: float | None


@dataclass(frozen=True, slots=True)
class UsdSpan:
    """An amount with the interval that holds it four times in five; ``high`` is None where nothing bounds it."""

    expected: Usd
    low: Usd
    high: Usd | None


@dataclass(frozen=True, slots=True)
class EstimatedPart:
    """Machines of one offer in a gang, with the price of one of them."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: Market
    machines: int
    usd_per_hour: UsdPerHour
    provisionable: bool
    price_as_of: str
    price_source: str


@dataclass(frozen=True, slots=True)
class GangAnswer:
    """The figures of a gang on the cheapest offer that can serve it.

    ``steps_per_hour`` and ``tokens_per_s`` count checkpoints, interruptions and waits for machines, the figures whose
    names begin with ``nominal`` are of the time while it runs, a ``running_share`` of all. ``terms`` are of the
    whole job and add up to ``cost_usd``, ``step_terms`` of a step, to ``usd_per_step``. Token figures are None where
    the job does not say how many tokens a step has.
    """

    parts: tuple[EstimatedPart, ...]
    accelerators_per_machine: int
    usd_per_hour: UsdPerHour
    nominal_steps_per_hour: float
    steps_per_hour: Span
    tokens_per_s: Span | None
    speed_basis: str
    speed_evidence: SpeedEvidence
    relative_error: float
    risk_basis: str
    weak: str
    steps: int
    cost_usd: Usd
    terms: JobCostTerms
    usd_per_step: UsdSpan
    step_terms: JobCostTerms
    usd_per_million_tokens: UsdSpan | None

    @property
    def running_share(self) -> float:
        """Return the share of the time in which it makes steps: the rest are waits, starts, saves and work lost."""
        return min(1.0, self.steps_per_hour.expected / self.nominal_steps_per_hour)

    @property
    def is_long(self) -> bool:
        """Return whether all steps need longer than a plan may run."""
        return self.steps > self.steps_per_hour.expected * (LONGEST_RUN / timedelta(hours=1))

    @property
    def nominal_tokens_per_s(self) -> float | None:
        """Return the tokens a second while it runs; None where the job does not say how many a step has."""
        tokens = self.tokens_per_s
        return None if tokens is None else tokens.expected / self.running_share

    @property
    def machines(self) -> int:
        """Return the number of machines of all parts."""
        return sum(part.machines for part in self.parts)

    @property
    def place(self) -> str:
        """Return cloud, region and zone, where that is known, of the last part."""
        part = self.parts[-1]
        return f"{part.cloud}/{part.zone or part.region}"


@dataclass(frozen=True, slots=True)
class GangRefusal:
    """The reason why a gang has no answer; ``dropped`` counts the offers of the market by the code of their reason."""

    code: str
    reason: str
    dropped: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class GangEstimate:
    """A gang that was asked for in one market, with its answer or why there is none.

    ``layout`` is None for jobs without a transformer's shape; where the speed is measured it is what `auto` or the job
    file would choose, not what was measured.
    """

    option: GangOption
    market: Market
    answer: GangAnswer | None
    refusal: GangRefusal | None
    layout: GangLayout | None

    @property
    def name(self) -> str:
        """Return the gang and its market in words."""
        return f"{self.option} {self.market.value.replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class JobEstimate:
    """All gangs of one job, those with an answer first, cheapest first; then the others as they were asked for."""

    job: Job
    steps_left: int
    tokens_per_step: int | None
    book_digest: str
    book_as_of: date
    rows: tuple[GangEstimate, ...]

    @property
    def best(self) -> GangEstimate | None:
        """Return the gang on which a step costs least; None where no gang has an answer."""
        return self.rows[0] if self.rows and self.rows[0].answer is not None else None


@dataclass(frozen=True)
class EstimateInputs:
    """The circumstances of an estimate: prices, limits, moment, and what earlier runs showed."""

    book: PriceBook
    now: datetime
    advisory: bool = False
    experience: Experience = field(default_factory=Experience)
    limits: Limits = field(default_factory=Limits.none)

    @cached_property
    def finder(self) -> CandidateFinder:
        """Return the planner's finder of candidates in these circumstances."""
        return self._finder(refuses_long=True)

    @cached_property
    def finder_of_long(self) -> CandidateFinder:
        """Return a finder that also finds gangs which need longer than a plan may run."""
        return self._finder(refuses_long=False)

    def _finder(self, *, refuses_long: bool) -> CandidateFinder:
        return CandidateFinder(
            self.book,
            self.limits,
            self.now,
            advisory=self.advisory,
            experience=self.experience,
            refuses_long=refuses_long,
        )


def estimate_gangs(
    job: Job, options: Sequence[GangOption], markets: Sequence[Market], inputs: EstimateInputs
) -> JobEstimate:
    """Return an estimate for each gang in each market; the job's deadline and its own gangs do not count."""
    open_ended, book = job.model_copy(update={"deadline": None}), inputs.book
    rows = [row for option in options for row in _option_rows(open_ended, option, markets, inputs)]
    rows.sort(key=_order)
    shape = job.workload.transformer
    return JobEstimate(
        job=job,
        steps_left=job.steps_left,
        tokens_per_step=None if shape is None else shape.tokens_per_step,
        book_digest=book.digest,
        book_as_of=book.as_of.date(),
        rows=tuple(rows),
    )


def _order(row: GangEstimate) -> tuple[bool, bool, int]:
    """Return where a row stands: the cheapest first, gangs that need longer than a plan behind those that do not."""
    answer = row.answer
    return (True, True, 0) if answer is None else (False, answer.is_long, answer.usd_per_step.expected.nanos)


def _option_rows(job: Job, option: GangOption, markets: Sequence[Market], inputs: EstimateInputs) -> list[GangEstimate]:
    book = inputs.book
    if book.accelerator(option.accelerator) is None:
        known = {accelerator.name for accelerator in book.accelerators}
        hint = did_you_mean(option.accelerator, known)
        reason = f"no accelerator of the price book is called {option.accelerator!r}" + (f"; {hint}" if hint else "")
        return [GangEstimate(option, market, None, GangRefusal("unknown", reason), None) for market in markets]
    machines = job.gang.machines if option in job.gang.options else None  # another gang has no stated shape
    gang = job.gang.model_copy(update={"options": (option,), "machines": machines})
    job = job.model_copy(update={"gang": gang})
    candidates, dropped = inputs.finder.find(job)
    long = {drop.listing.offer.market for drop in dropped if drop.code == TOO_SLOW}
    long -= {candidate.market for candidate in candidates}
    if long:
        found, dropped = inputs.finder_of_long.find(job)
        candidates = (*candidates, *(candidate for candidate in found if candidate.market in long))
    problem = costing_problem(job, candidates, inputs)
    rows = []
    for market in markets:
        own = [candidate for candidate in candidates if candidate.market is market]
        if own:
            rows.append(_answered(job, option, market, own, problem))
        else:
            refused = [drop for drop in dropped if drop.listing.offer.market is market]
            refusal = _refusal(option, market, refused, book)
            rows.append(GangEstimate(option, market, None, refusal, _refused_layout(job, refused)))
    return rows


def costing_problem(job: Job, candidates: tuple[Candidate, ...], inputs: EstimateInputs) -> PlacementProblem:
    """Return the problem that costing reads: one job, without slots and limits that are shared."""
    found = {job.name: candidates}
    return PlacementProblem(
        jobs=(job,),
        now=inputs.now,
        book=inputs.book,
        limits=inputs.limits,
        slots=(),
        candidates=found,
        all_candidates=found,
        use={},
        shared={},
        binding=frozenset(),
    )


def _answered(
    job: Job,
    option: GangOption,
    market: Market,
    candidates: Sequence[Candidate],
    problem: PlacementProblem,
) -> GangEstimate:
    """Return the row of the candidate on which the whole job costs least, moves included."""
    runs = {candidate.key: whole_run(job, candidate, problem) for candidate in candidates}
    chosen = min(candidates, key=lambda candidate: (whole_usd(problem, runs[candidate.key]), candidate.key))
    layout = _layout(job, chosen.parts[-1].listing, chosen.machines)
    return GangEstimate(option, market, _answer(job, runs[chosen.key], problem), None, layout)


def whole_run(job: Job, candidate: Candidate, problem: PlacementProblem) -> ScheduledRun:
    """Return the run that does all steps of the job on one candidate: one start, none where the job runs there now."""
    steps = steps_to_do(job, running=candidate.running)
    hours = steps / candidate.on_time_steps_per_hour
    startups = 0.0 if candidate.running else 1.0
    productive = timedelta(microseconds=round(hours * 3_600_000_000))
    return ScheduledRun(
        job=job.name,
        candidate=candidate,
        order=True,
        start=problem.now,
        end=problem.now + productive + startups * candidate.startup,
        share=1.0,
        startups=startups,
        productive=productive,
        steps=steps,
    )


def whole_usd(problem: PlacementProblem, run: ScheduledRun) -> Usd:
    """Return what the run is expected to cost, moves included."""
    moves = moves_of(problem, {run.job: (run,)})
    return Usd.total([compute_usd((run,)), *(move.cost_usd for move in moves)])


def _words_of_length(hours: float) -> str:
    """Return that no plan is so long; nothing where a plan may be."""
    days = hours / 24
    if days <= LONGEST_RUN.days:
        return ""
    return f"{days:,.0f} days of run time: no plan runs a job for more than {LONGEST_RUN.days}"


def _answer(job: Job, run: ScheduledRun, problem: PlacementProblem) -> GangAnswer:
    candidate = run.candidate
    lines = lines_of(problem, (run,))
    terms = cost_terms_of({run.job: job}, {run.job: (run,)}, lines, moves_of(problem, {run.job: (run,)}))[0]
    spread = _Spread.of(candidate)
    shape = job.workload.transformer
    tokens = None if shape is None else shape.tokens_per_step
    idle = UsdPerHour(sum(line.usd_per_hour.nanos for line in lines)).over((job.idle or timedelta(0)) * run.startups)
    usd = _usd_span(terms, idle, spread, run.steps)
    rate = candidate.steps_per_hour
    steps = Span(rate, rate / spread.slowest if math.isfinite(spread.slowest) else 0.0, rate / spread.fastest)
    return GangAnswer(
        parts=tuple(
            EstimatedPart(
                part.offer.cloud,
                part.offer.region,
                part.offer.zone,
                part.offer.instance_type,
                part.offer.market,
                part.machines,
                part.offer.usd_per_hour,
                part.offer.provisionable,
                day_of(part.offer),
                part.offer.source,
            )
            for part in candidate.parts
        ),
        accelerators_per_machine=candidate.parts[-1].machine.accelerator_count,
        usd_per_hour=candidate.usd_per_hour,
        nominal_steps_per_hour=candidate.risk.nominal_steps_per_hour,
        steps_per_hour=steps,
        tokens_per_s=None if tokens is None else _scaled(steps, tokens / 3600),
        speed_basis=candidate.speed_basis,
        speed_evidence=candidate.speed_evidence,
        relative_error=candidate.risk.relative_error,
        risk_basis=candidate.risk_basis,
        weak=join_doubts((candidate.weak, _words_of_length(run.steps / rate))),
        steps=run.steps,
        cost_usd=terms.together_usd,
        terms=terms,
        usd_per_step=usd,
        step_terms=_step_terms(terms, usd.expected),
        usd_per_million_tokens=None if tokens is None else _per_million(usd, tokens),
    )


@dataclass(frozen=True, slots=True)
class _Spread:
    """The ends of the intervals as factors of the expected wall time and of the expected billed time.

    The error of the speed and that of the interruption rate are taken as independent: their deviations add up in
    squares on each side. Infinite where at the upper rate the job is never done.
    """

    fastest: float
    slowest: float
    least_billed: float
    most_billed: float

    @classmethod
    def of(cls, candidate: Candidate) -> _Spread:
        """Return the spread of a candidate's times."""
        risk = candidate.risk
        quick, slow = (float(run_share(risk.relative_error, sign * DEVIATIONS)) for sign in (-1, 1))
        wall, billed = [], []
        gang = candidate.gang_risk
        for level in gang.hazard.interval:
            # The rate of the run, as it would be at the edge of what is known of the hazard's level.
            edge = level / gang.hazard.mean if gang.hazard.mean > 0 else 1.0
            other = replace(risk, interruptions_per_hour=max(risk.interruptions_per_hour * edge, _LEAST_RATE))
            useful = useful_share(other)
            wall.append(useful_share(risk) / useful if useful > 0 else math.inf)
            billed.append(wall[-1] * billed_share(other) / billed_share(risk))
        low_wall, high_wall = wall
        low_billed, high_billed = billed
        return cls(
            fastest=max(_LEAST, 1 - _together(1 - quick, 1 - low_wall)),
            slowest=1 + _together(slow - 1, high_wall - 1),
            least_billed=max(_LEAST, 1 - _together(1 - quick, 1 - low_billed)),
            most_billed=1 + _together(slow - 1, high_billed - 1),
        )


def _together(first: float, second: float) -> float:
    """Return the deviation of two independent ones together."""
    return math.hypot(max(first, 0.0), max(second, 0.0))


def _usd_span(terms: JobCostTerms, idle: Usd, spread: _Spread, steps: int) -> UsdSpan:
    """Return the cost of a step with its interval: starts (of which ``idle``) and moves cost the same at any speed."""
    fixed = terms.startups_usd + idle + terms.moves_usd + terms.stream_usd
    running = terms.together_usd - fixed

    def at(factor: float) -> Usd:
        return Usd(divide_half_even(fixed.nanos + round(running.nanos * Fraction(factor)), steps))

    expected = Usd(divide_half_even(terms.together_usd.nanos, steps))
    high = at(spread.most_billed) if math.isfinite(spread.most_billed) else None
    return UsdSpan(expected, at(spread.least_billed), high)


def _step_terms(terms: JobCostTerms, usd_per_step: Usd) -> JobCostTerms:
    """Return the cost of a step by the terms of the whole job; they add up to it."""
    weights = [getattr(terms, name).nanos for name in COST_TERMS]
    amounts = usd_per_step.split(weights) if any(weights) else (ZERO,) * len(weights)
    changed: dict[str, Any] = dict(zip(COST_TERMS, amounts, strict=True))
    return replace(terms, **changed)


def _per_million(usd: UsdSpan, tokens: int) -> UsdSpan:
    def each(amount: Usd) -> Usd:
        return Usd(divide_half_even(amount.nanos * _MILLION, tokens))

    return UsdSpan(each(usd.expected), each(usd.low), None if usd.high is None else each(usd.high))


def _scaled(span: Span, factor: float) -> Span:
    high = None if span.high is None else span.high * factor
    return Span(span.expected * factor, span.low * factor, high)


def _refusal(option: GangOption, market: Market, refused: Sequence[DroppedListing], book: PriceBook) -> GangRefusal:
    """Return the reason of the offer that came farthest; how many were dropped for which reason stands beside it."""
    if not refused:
        words = market.value.replace("_", "-")
        sold, why = book.explain_absence(option.accelerator, (market,))
        what = f"the price book has no {words} offer of {option.accelerator}{why and f': {why}'}"
        return GangRefusal("no price" if sold else "not sold", what)
    counts = Counter(drop.code for drop in refused)
    ranks = {code: rank for rank, code in enumerate(_FARTHEST_FIRST)}
    first = min(refused, key=lambda drop: (ranks.get(drop.code, len(ranks)), drop.listing.name))
    return GangRefusal(first.code, first.reason, tuple(sorted(counts.items())))


def _refused_layout(job: Job, refused: Sequence[DroppedListing]) -> GangLayout | None:
    """Return the layout that needs least memory, of an offer without a speed; None where none came so far."""
    slow = [drop for drop in refused if drop.code == "speed"]
    if not slow:
        return None
    first = min(slow, key=lambda drop: drop.listing.name)
    return _layout(job, first.listing, first.accelerators // first.listing.machine.accelerator_count)


def _layout(job: Job, listing: OfferListing, machines: int) -> GangLayout | None:
    """Return the layout of the job on machines of a listing; None without a shape, or where none can be timed."""
    shape = job.workload.transformer
    if shape is None:
        return None
    found = gang_layout(shape, listing.machine, machines, listing.accelerator)
    return None if isinstance(found, UnknownSpeed) else found
