"""Compare what plans predicted with what was measured: steps an hour, dollars a step, interruptions. Pure.

All is compared over the steps that were done and saved: the hours, dollars and interruptions that the plan expects of
these steps, beside those that they took. So jobs add up, but for their steps, which are of different sizes.

Hours are those in which machines run after an order's first start: work, saves, work lost, and the starts after
interruptions. Waits for machines are in neither side, nor what a plan reserves to hold a deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from router.planning.document.plan import Line, Plan

ALL_JOBS = "all jobs"


@dataclass(frozen=True, slots=True)
class StepFigures:
    """The hours, dollars and interruptions that steps of a job take; interruptions are None where not known."""

    steps: int
    hours: float
    usd: float
    interruptions: float | None

    def for_steps(self, steps: int) -> StepFigures:
        """Return the same for another number of steps, in proportion."""
        part = steps / self.steps
        interruptions = None if self.interruptions is None else self.interruptions * part
        return StepFigures(steps, self.hours * part, self.usd * part, interruptions)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Predicted and measured figures of a job for the same saved steps, over ``plans`` plans."""

    job: str
    plans: int
    predicted: StepFigures
    measured: StepFigures

    @property
    def steps(self) -> int | None:
        """The saved steps; None in the sum of jobs, for steps of different jobs do not add up."""
        return None if self.job == ALL_JOBS else self.measured.steps

    @property
    def speed_error(self) -> float:
        """Return by which share the gangs were slower (below 0) or faster than predicted."""
        return self.predicted.hours / self.measured.hours - 1

    @property
    def cost_error(self) -> float:
        """Return by which share a step was dearer (above 0) or cheaper than predicted."""
        return self.measured.usd / self.predicted.usd - 1 if self.predicted.usd else 0.0


@dataclass(frozen=True, slots=True)
class PlanAccuracy:
    """The rows of jobs with their sum, and of orders that ended but are in no row how many, by the reason."""

    rows: tuple[Accuracy, ...]
    left_out: Mapping[str, int]


def predict(plan: Plan, job: str) -> StepFigures | None:
    """Return what the plan expects of the job's orders; None where it orders no steps of it."""
    lines = [line for line in plan.lines if line.job == job]
    ordered = [line for line in lines if line.orderable]
    steps = sum(line.steps for line in ordered)
    if not steps:
        return None
    hours = sum(line.steps / line.steps_per_hour * line.billed_share for line in ordered if line.steps)
    hours += sum(float(line.fallback.hours) for line in ordered if line.fallback is not None)
    usd = sum(_usd(line) for line in ordered)
    share = steps / sum(line.steps for line in lines)
    restarts = _restarts(plan, job, lines)
    return StepFigures(steps, hours, usd, None if restarts is None else restarts * share)


def _usd(line: Line) -> float:
    amount = line.amortised_usd
    return (line.cost_usd if amount is None else amount).dollars()


def _restarts(plan: Plan, job: str, lines: Sequence[Line]) -> float | None:
    """Return the interruptions that the plan expects, from what it pays for start-ups after them and for its own."""
    terms = next((t for t in plan.usage.cost_terms if t.job == job), None)
    starts = len({(line.gang, line.start) for line in lines if line.startup})
    if terms is None or not starts or not terms.startups_usd.nanos:
        return None
    return terms.restarts_usd.nanos / terms.startups_usd.nanos * starts


def compare(job: str, predicted: StepFigures, measured: StepFigures) -> Accuracy | None:
    """Return both figures for the steps that were saved; None where none were, or no time passed."""
    if measured.steps <= 0 or measured.hours <= 0:
        return None
    return Accuracy(job, 1, predicted.for_steps(measured.steps), measured)


def sum_accuracy(rows: Iterable[Accuracy]) -> tuple[Accuracy, ...]:
    """Return one row for each job, by name, and their sum at the end; nothing where there is no row."""
    by_job: dict[str, list[Accuracy]] = {}
    for row in rows:
        by_job.setdefault(row.job, []).append(row)
    if not by_job:
        return ()
    jobs = [_added(name, found) for name, found in sorted(by_job.items())]
    return (*jobs, _added(ALL_JOBS, jobs))


def _added(name: str, rows: Sequence[Accuracy]) -> Accuracy:
    predicted, measured = _sum([row.predicted for row in rows]), _sum([row.measured for row in rows])
    return Accuracy(name, sum(row.plans for row in rows), predicted, measured)


def _sum(figures: Sequence[StepFigures]) -> StepFigures:
    known = [each.interruptions for each in figures if each.interruptions is not None]
    return StepFigures(
        steps=sum(each.steps for each in figures),
        hours=sum(each.hours for each in figures),
        usd=sum(each.usd for each in figures),
        interruptions=sum(known) if len(known) == len(figures) else None,
    )
