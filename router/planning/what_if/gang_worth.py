"""Recompute the spot gang that a plan chose for a job, under one change at a time: what each change is worth. Pure.

The gang is looked at alone: it stays, and other jobs are held fixed. Its cost is that of the whole job on it, begun
when the plan begins the job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from pricing.hazard import Hazard
from pricing.money import Usd
from pricing.places import Market
from pricing.problems import InvalidInputError
from pricing.risk import TOLD_HOURS
from router.jobs.quantities import Moment
from router.jobs.spec import LEAST_CONFIDENCE, MOST_CONFIDENCE, Job
from router.planning.document.plan import JobSummary, Line, Plan
from router.planning.document.plan_facts import main_placement
from router.planning.estimate.gang_estimates import EstimateInputs, costing_problem, whole_run, whole_usd
from router.planning.find.candidate import Candidate
from router.planning.find.dropped_listings import DroppedListing
from router.planning.find.gang_rates import GuardTerms
from router.planning.planner import PlanRequest
from router.planning.what_if.what_if import Change, ConfidenceChange, DeadlineChange, InterruptionChange

_HOUR: Final = timedelta(hours=1)
_POINT: Final = 0.01
ChangeKind = Literal["none", "deadline", "confidence", "interruptions"]
_Parts = tuple[tuple[str, str, str, str, str, int], ...]


@dataclass(frozen=True, slots=True)
class GangFigures:
    """The figures of a gang that does the whole job.

    ``cost_usd`` is expected, moves included. ``reserved_until`` is the end of the time reserved, in which it is done
    with the probability ``on_time_probability``. ``fallback_probability`` is how often it ends on demand, None where
    the job has no fallback. ``interruptions_per_hour`` is the mean of a gang's first eight hours.
    """

    cost_usd: Usd
    reserved_until: datetime
    on_time_probability: float
    fallback_probability: float | None
    interruptions_per_hour: float


@dataclass(frozen=True, slots=True)
class GangCase:
    """The gang under one change; without ``figures`` it is ``refused`` for a reason in words.

    ``value`` is what is changed to: ``+1h`` or ``-1h``, a confidence, ``low`` or ``high``; "" without a change.
    """

    kind: ChangeKind
    value: str
    figures: GangFigures | None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class GangWorth:
    """A job on its spot gang as planned, and under each change; ``gang`` names the place, ``start`` is the job's.

    ``confidence`` is what the job asks. ``shared``: the plan gives a part of the job to other gangs.
    """

    job: str
    gang: str
    start: datetime
    confidence: float
    shared: bool
    planned: GangCase
    changed: tuple[GangCase, ...]


def spot_gang(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of one period of the spot gang that does most steps of a job; none without a spot gang."""
    periods: dict[str, list[Line]] = {}
    for line in lines:
        periods.setdefault(line.gang, []).append(line)
    steps: Counter[_Parts] = Counter()
    for gang in periods.values():
        steps[_parts_of_lines(gang)] += sum(line.steps for line in gang)
    spot = [gang for gang in periods.values() if any(line.market == Market.SPOT.value for line in gang)]
    return max(spot, key=lambda gang: steps[_parts_of_lines(gang)], default=[])


def gang_worth(request: PlanRequest, plan: Plan, name: str) -> GangWorth | None:
    """Return what changes are worth to a job of the plan on its spot gang.

    None where it has no such gang, or starts over when it is interrupted: then nothing guards its deadline. The request
    is that of the plan; other jobs need not be in it.
    """
    own = [line for line in plan.lines if line.job == name]
    gang = spot_gang(own)
    job = next(job for job in request.jobs if job.name == name)
    if not gang or job.checkpoint is None:
        return None
    start = min(line.start for line in own)
    summary = next(summary for summary in plan.jobs if summary.job == name)
    job = _as_planned(job, summary, start, request.now)
    here = _PlannedGang(replace(request, jobs=(job,), previous=None), start, _parts_of_lines(gang))
    planned, hazard = here.evaluate("none", "", None)
    return GangWorth(
        job=name,
        gang=str(main_placement(gang, name)),
        start=start,
        confidence=job.confidence,
        shared=any(not _is_same_place(line, gang) for line in own),
        planned=planned,
        changed=() if planned.figures is None else tuple(_changed_cases(here, hazard)),
    )


def _as_planned(job: Job, summary: JobSummary, start: datetime, now: datetime) -> Job:
    """Return the job with the start that the plan gives it, and with the deadline that it was planned with."""
    changes: dict[str, object] = {}
    if start > now:
        changes["earliest_start"] = Moment(absolute=start)
    if summary.late is not None:
        changes["deadline"] = Moment(absolute=summary.late.planned_deadline)
    return job.model_copy(update=changes)


def _changed_cases(here: _PlannedGang, hazard: Hazard | None) -> Iterator[GangCase]:
    job = here.request.jobs[0]
    if job.deadline is not None:
        for value, by in (("+1h", _HOUR), ("-1h", -_HOUR)):
            yield here.evaluate("deadline", value, DeadlineChange(job.name, by))[0]
        for by_points in (_POINT, -_POINT):
            confidence = min(max(round(job.confidence + by_points, 6), LEAST_CONFIDENCE), MOST_CONFIDENCE)
            if confidence != job.confidence:
                yield here.evaluate("confidence", f"{confidence:g}", ConfidenceChange(job.name, confidence))[0]
    for end in (InterruptionChange("low"), InterruptionChange("high")):
        case, changed = here.evaluate("interruptions", end.end, end)
        if changed == hazard:
            case = GangCase("interruptions", end.end, None, "the rate is stated, and taken as it is")
        yield case


@dataclass(frozen=True)
class _PlannedGang:
    """A request for one job alone as it was planned, its start, and the machines of its gang."""

    request: PlanRequest
    start: datetime
    parts: _Parts

    def evaluate(self, kind: ChangeKind, value: str, change: Change | None) -> tuple[GangCase, Hazard | None]:
        """Return the gang under a change, and its hazard where it can be had at all."""
        try:
            request = self.request if change is None else change.apply(self.request)
        except InvalidInputError as error:
            return GangCase(kind, value, None, error.problems[0].what), None
        job = request.jobs[0]
        found, dropped = request.finder().find(job)
        for candidate in found:
            if candidate.guard is not None and _parts_of(candidate) == self.parts:
                figures = self._figures(job, candidate, candidate.guard)
                late = None if job.deadline is None else figures.reserved_until - job.deadline.at(request.now)
                if late is not None and late > timedelta(0):
                    return GangCase(kind, value, None, f"too late by {late / _HOUR:,.1f} h"), None
                return GangCase(kind, value, figures), candidate.gang_risk.hazard
        return GangCase(kind, value, None, self._refusal(dropped)), None

    def _figures(self, job: Job, candidate: Candidate, guard: GuardTerms) -> GangFigures:
        inputs = EstimateInputs(self.request.book, self.request.now, limits=self.request.limits)
        problem = costing_problem(job, (candidate,), inputs)
        run = whole_run(job, candidate, problem)
        end = self.start + (run.end - run.start)
        return GangFigures(
            cost_usd=whole_usd(problem, replace(run, start=self.start, end=end)),
            reserved_until=end,
            on_time_probability=guard.on_time_probability,
            fallback_probability=None if candidate.fallback is None else guard.probability,
            interruptions_per_hour=candidate.gang_risk.per_hour_over(TOLD_HOURS),
        )

    def _refusal(self, dropped: Sequence[DroppedListing]) -> str:
        """Return why the gang was dropped."""
        places = {part[:-1] for part in self.parts}
        for drop in dropped:
            o = drop.listing.offer
            if (o.cloud, o.region, o.zone or "", o.instance_type, o.market.value) in places:
                return drop.reason
        return "its machines are not among the job's offers"


def _is_same_place(line: Line, gang: Sequence[Line]) -> bool:
    return _parts_of_lines([line])[0] in _parts_of_lines(gang)


def _parts_of_lines(gang: Sequence[Line]) -> _Parts:
    return tuple(sorted((x.cloud, x.region, x.zone or "", x.instance_type, x.market, x.machines) for x in gang))


def _parts_of(candidate: Candidate) -> _Parts:
    offers = [(part.offer, part.machines) for part in candidate.parts]
    return tuple(sorted((o.cloud, o.region, o.zone or "", o.instance_type, o.market.value, n) for o, n in offers))
