"""Index one plan for comparison with another: placements, rates, and the use of limits over time. Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final, TypeVar

from pricing.money import Usd
from router.planning.document.inputs import LimitAmount
from router.planning.document.plan import JobSummary, Line, Plan, describe_mix
from router.planning.document.plan_usage import TeamUsage

T = TypeVar("T")

#: Words of the note on a job that may come to cost more than its budget.
EXPECTED_ONLY: Final = "holds for the expected cost"


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """The place and gang on which most of a job runs; a job that is left out has none.

    ``mix`` tells the machines of a gang of two types, of which ``instance_type`` names one; "" for any other.
    ``markets`` tells the same of a gang that is bought in two markets; it makes no other placement.
    """

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: str
    accelerators: int
    mix: str = ""
    markets: str = field(default="", compare=False)

    def __str__(self) -> str:
        zone = f"/{self.zone}" if self.zone else ""
        machines = self.mix or self.instance_type
        return f"{self.cloud}/{self.region}{zone} {machines} {self.markets or f'{self.market} x{self.accelerators}'}"


def main_placement(lines: Sequence[Line], job: str) -> JobPlacement | None:
    """Return the place of the line with the most accelerator-time (all parts of a gang counted), orders first."""
    own = [x for x in lines if x.job == job]
    if not own:
        return None
    best = max(own, key=lambda x: (x.kind == "order", x.hours, x.market == "spot", x.gang))
    gang = [x for x in own if x.gang == best.gang]
    mix = describe_mix((x.machines, x.instance_type) for x in gang)
    count = sum(x.accelerators for x in gang)
    markets = _describe_markets(gang)
    return JobPlacement(best.cloud, best.region, best.zone, best.instance_type, best.market, count, mix, markets)


def _describe_markets(gang: Sequence[Line]) -> str:
    """Return accelerators by market as ``spot x24 + on_demand x8``; "" where all are of one market."""
    by_market: dict[str, int] = {}
    for line in sorted(gang, key=lambda x: (-x.accelerators, x.market)):
        by_market[line.market] = by_market.get(line.market, 0) + line.accelerators
    return " + ".join(f"{market} x{count}" for market, count in by_market.items()) if len(by_market) > 1 else ""


@dataclass(frozen=True, slots=True)
class LimitHold:
    """A gang's use of one limit from ``start`` to ``end``; beyond the horizon it is its share of the time."""

    job: str
    limit: str
    start: datetime
    end: datetime
    amount: float


@dataclass(frozen=True)
class PlanFacts:
    """A plan with its parts by name."""

    plan: Plan

    @cached_property
    def jobs(self) -> Mapping[str, JobSummary]:
        """Return the summaries by job."""
        return {job.job: job for job in self.plan.jobs}

    @cached_property
    def lines(self) -> Mapping[str, tuple[Line, ...]]:
        """Return the lines by job; a job that is left out is absent."""
        return _grouped((line.job, line) for line in self.plan.lines)

    @cached_property
    def placements(self) -> Mapping[str, JobPlacement]:
        """Return the main placement by job."""
        found = {job: main_placement(lines, job) for job, lines in self.lines.items()}
        return {job: place for job, place in found.items() if place is not None}

    @cached_property
    def limits(self) -> Mapping[str, LimitAmount]:
        """Return the limits by name."""
        return {limit.name: limit for limit in self.plan.inputs.limits}

    @cached_property
    def teams(self) -> Mapping[str, TeamUsage]:
        """Return the known budgets of the jobs' teams, by team."""
        own = {job.team for job in self.plan.jobs}
        return {t.team: t for t in self.plan.usage.teams if t.team in own}

    @cached_property
    def team_costs(self) -> Mapping[str, Usd]:
        """Return the cost of all jobs by team."""
        return {
            team: Usd.total(job.cost_usd for job in jobs)
            for team, jobs in _grouped((job.team, job) for job in self.plan.jobs).items()
        }

    @cached_property
    def move_costs(self) -> Mapping[str, Usd]:
        """Return the cost of moving data by job; a job that moves none is absent."""
        return {
            job: Usd.total(move.cost_usd for move in moves)
            for job, moves in _grouped((move.job, move) for move in self.plan.moves).items()
        }

    @cached_property
    def holds_by_job(self) -> Mapping[str, tuple[LimitHold, ...]]:
        """Return the use of limits by job."""
        return _grouped((hold.job, hold) for hold in self._holds)

    @cached_property
    def holds_by_limit(self) -> Mapping[str, tuple[LimitHold, ...]]:
        """Return the use of limits by limit."""
        return _grouped((hold.limit, hold) for hold in self._holds)

    @cached_property
    def _holds(self) -> tuple[LimitHold, ...]:
        use = _grouped((taken.gang, taken) for taken in self.plan.inputs.use)
        gangs = {line.gang: line for line in self.plan.lines}
        return tuple(
            LimitHold(line.job, taken.limit, line.start, line.end, taken.amount * line.share)
            for gang, line in gangs.items()
            for taken in use.get(gang, ())
        )

    def peak_use(self, limit: str, start: datetime, end: datetime, without: str = "") -> float:
        """Return the most that jobs other than ``without`` take of a limit at one instant between two times."""
        times, levels = self._timelines.get(limit, ((), ()))
        own = [hold for hold in self.holds_by_job.get(without, ()) if hold.limit == limit]
        edges = {edge for hold in own for edge in (hold.start, hold.end) if start < edge < end}
        peak = 0.0
        for begin, until in pairwise(sorted({start, end, *edges})):
            found = levels[max(0, bisect_right(times, begin) - 1) : bisect_left(times, until)]
            peak = max(peak, max(found, default=0.0) - sum(h.amount for h in own if h.start <= begin < h.end))
        return peak

    @cached_property
    def _timelines(self) -> Mapping[str, tuple[tuple[datetime, ...], tuple[float, ...]]]:
        """Return the use of each limit over time: from each of the times on it is the level beside it."""
        timelines = {}
        for limit, holds in self.holds_by_limit.items():
            steps: dict[datetime, float] = {}
            for hold in holds:
                steps[hold.start] = steps.get(hold.start, 0.0) + hold.amount
                steps[hold.end] = steps.get(hold.end, 0.0) - hold.amount
            times = tuple(sorted(steps))
            timelines[limit] = (times, tuple(accumulate(steps[time] for time in times)))
        return timelines

    def job_use(self, limit: str, start: datetime, end: datetime, job: str) -> float:
        """Return the most that one job takes of a limit at one instant between two times."""
        own = [hold for hold in self.holds_by_job.get(job, ()) if hold.limit == limit]
        return max((hold.amount for hold in own if hold.start < end and hold.end > start), default=0.0)

    def nanos_per_hour(self, job: str, place: JobPlacement) -> int | None:
        """Return the price of the job's gang there in nano-dollars an hour; None where the plan does not show it.

        Its own lines count first, then its alternatives, then what a machine there costs another job.
        """
        own = [line for line in self.lines.get(job, ()) if _is_at(line, place)]
        if own and self.placements[job] == place:
            # A job may run on gangs of several sizes at one place; the place is that of one size.
            gang = next((line.gang for line in own if line.accelerators == place.accelerators), own[0].gang)
            return sum(line.usd_per_hour.nanos for line in self.lines[job] if line.gang == gang)
        summary = self.jobs.get(job)
        for other in () if summary is None else summary.alternatives:
            known = JobPlacement(
                other.cloud,
                other.region,
                other.zone,
                other.instance_type,
                other.market,
                other.accelerators,
                other.mix,
            )
            if known == place:
                return other.usd_per_hour.nanos
        if place.mix:
            return None
        each = self._nanos_per_accelerator.get(
            (place.cloud, place.region, place.zone, place.instance_type, place.market)
        )
        return None if each is None else each * place.accelerators

    @cached_property
    def _nanos_per_accelerator(self) -> Mapping[tuple[str, str, str | None, str, str], int]:
        return {
            (line.cloud, line.region, line.zone, line.instance_type, line.market): line.usd_per_hour.nanos
            // line.accelerators
            for line in self.plan.lines
        }


def _is_at(line: Line, place: JobPlacement) -> bool:
    return (line.cloud, line.region, line.zone, line.instance_type, line.market) == (
        place.cloud,
        place.region,
        place.zone,
        place.instance_type,
        place.market,
    )


def _grouped(pairs: Iterable[tuple[str, T]]) -> dict[str, tuple[T, ...]]:
    found: dict[str, list[T]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}
