"""A plan laid out for checking: lines of one gang and time joined to stretches, stretches chained to runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from pricing.book import PriceBook
from pricing.places import Market, RegionId
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan import Line, Plan
from tests.support.schedules import held_by_type

HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Stretch:
    """The lines of one gang over one stretch of time (two where there is an on-demand core)."""

    lines: tuple[Line, ...]

    @property
    def head(self) -> Line:
        return self.lines[0]

    @property
    def region(self) -> RegionId:
        return RegionId(self.head.cloud, self.head.region)

    @property
    def held(self) -> Fraction:
        """Hours held, as a share of the slot where it is one."""
        return exact_hours(self.head.end - self.head.start) * Fraction(self.head.share)

    @property
    def accelerators(self) -> int:
        return sum(line.accelerators for line in self.lines)

    @property
    def offers(self) -> tuple[tuple[str, str, str | None, str, str, int], ...]:
        """What is held: place, machine, market and number of each part."""
        return tuple(
            sorted(
                ((x.cloud, x.region, x.zone, x.instance_type, x.market, x.machines) for x in self.lines),
                key=str,
            )
        )

    @property
    def billed_per_reserved(self) -> float:
        """Hours billed for an hour of productive time reserved: b g(α)/g."""
        line = self.head
        return line.billed_share * line.on_time_steps_per_hour / line.steps_per_hour

    def startup_hours(self, startup: timedelta) -> float:
        """Start-up that is paid: all or nothing in an order, unless it goes on beyond the horizon; in an outlook, where
        a share of a slot takes a share of a start, what the hours billed leave beside the steps."""
        line = self.head
        if not line.startup:
            return 0.0
        if line.kind == "order":
            return min(startup / HOUR, float(line.hours))
        steps = sum(part.steps for part in self.lines)
        return float(line.hours) - steps / line.on_time_steps_per_hour * self.billed_per_reserved

    def worked_hours(self, startup: timedelta) -> float:
        """Productive hours W from the hours billed: R + b g(α)/g W."""
        return (float(self.head.hours) - self.startup_hours(startup)) / self.billed_per_reserved


@dataclass(frozen=True)
class View:
    plan: Plan
    jobs: tuple[Job, ...]
    book: PriceBook
    limits: Limits
    advisory: bool
    slot: timedelta | None

    @property
    def now(self) -> datetime:
        return self.plan.horizon_start

    def planned_deadline(self, job: Job) -> datetime | None:
        """The moment by which the plan says that it must be done: its deadline, or the later one of a late job."""
        summary = next((each for each in self.plan.jobs if each.job == job.name), None)
        if summary is not None and summary.late is not None:
            return summary.late.planned_deadline
        return job.deadline.at(self.now) if job.deadline is not None else None

    def is_late(self, job: Job) -> bool:
        """Whether some line of the job ends after its own deadline."""
        lines = self.lines_of(job)
        return job.deadline is not None and any(line.end > job.deadline.at(self.now) for line in lines)

    def job(self, name: str) -> Job | None:
        return next((job for job in self.jobs if job.name == name), None)

    def lines_of(self, job: Job) -> tuple[Line, ...]:
        return tuple(line for line in self.plan.lines if line.job == job.name)

    def stretches(self, job: Job) -> tuple[Stretch, ...]:
        """In order of time."""
        groups: dict[tuple[datetime, datetime, str], list[Line]] = {}
        for line in self.lines_of(job):
            groups.setdefault((line.start, line.end, line.gang), []).append(line)
        return tuple(Stretch(tuple(sorted(group, key=lambda line: -line.steps))) for _, group in sorted(groups.items()))

    def runs(self, job: Job) -> tuple[tuple[Stretch, ...], ...]:
        """Maximal chains of adjoining stretches on one candidate, in order of time."""
        runs: list[list[Stretch]] = []
        for stretch in self.stretches(job):
            before = next((run for run in runs if _adjoins(run[-1], stretch)), None)
            if before is None:
                runs.append([stretch])
            else:
                before.append(stretch)
        return tuple(tuple(run) for run in runs)

    def stays(self, job: Job, run: Sequence[Stretch]) -> bool:
        """Whether the run goes on from where the job stands now, so that no start is paid."""
        place = job.status.running if job.status is not None else None
        line = max(run[0].lines, key=lambda part: part.market == Market.SPOT)  # of a core and a rest the spot rest
        held: dict[str, int] = {}
        for part in run[0].lines:
            held[part.instance_type] = held.get(part.instance_type, 0) + part.accelerators
        return (
            place is not None
            and line.start == self.now
            and (place.cloud, place.region, str(place.market)) == (line.cloud, line.region, line.market)
            and held_by_type(place) == held
            and (
                place.zone == line.zone
                or (None in (place.zone, line.zone) and not self._sold_in_zone(line, place.zone))
            )
        )

    def _sold_in_zone(self, line: Line, zone: str | None) -> bool:
        wanted = (line.cloud, line.region, zone, line.instance_type, line.market)
        return any((o.cloud, o.region, o.zone, o.instance_type, o.market.value) == wanted for o in self.book.offers)


def _adjoins(before: Stretch, after: Stretch) -> bool:
    return before.offers == after.offers and before.head.end == after.head.start


def exact_hours(duration: timedelta) -> Fraction:
    """A duration in hours, exactly."""
    return Fraction(duration // timedelta(microseconds=1), 3_600_000_000)


def starting_time(job: Job) -> timedelta:
    """The time that each start bills before the first step: the start-up, and waiting for the last of the gang."""
    return job.startup if job.idle is None else job.startup + job.idle
