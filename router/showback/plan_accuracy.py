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
class JobPrediction:
    """A plan's expectation of a job's orders; interruptions are None where not known."""

    steps: int
    hours: float
    usd: float
    interruptions: float | None


@dataclass(frozen=True, slots=True)
class JobMeasurement:
    """The measured outcome of a job's orders: saved steps, and the hours, dollars and interruptions that they took."""

    steps: int
    hours: float
    usd: float
    interruptions: int


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Predicted and measured figures of a job for the same steps, over ``plans`` plans.

    ``steps`` is None in the sum of jobs: steps of different jobs do not add up.
    """

    job: str
    plans: int
    steps: int | None
    predicted_hours: float
    hours: float
    predicted_usd: float
    usd: float
    predicted_interruptions: float | None
    interruptions: int

    @property
    def speed_error(self) -> float:
        """Return by which share the gangs were slower (below 0) or faster than predicted."""
        return self.predicted_hours / self.hours - 1

    @property
    def cost_error(self) -> float:
        """Return by which share a step was dearer (above 0) or cheaper than predicted."""
        return self.usd / self.predicted_usd - 1 if self.predicted_usd else 0.0


@dataclass(frozen=True, slots=True)
class PlanAccuracy:
    """The rows of jobs with their sum, and of orders that ended but are in no row how many, by the reason."""

    rows: tuple[Accuracy, ...]
    left_out: Mapping[str, int]


def predict(plan: Plan, job: str) -> JobPrediction | None:
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
    return JobPrediction(steps, hours, usd, None if restarts is None else restarts * share)


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


def compare(job: str, predicted: JobPrediction, measured: JobMeasurement) -> Accuracy | None:
    """Return both figures for the steps that were saved; None where none were, or no time passed."""
    if measured.steps <= 0 or measured.hours <= 0:
        return None
    part = measured.steps / predicted.steps
    return Accuracy(
        job=job,
        plans=1,
        steps=measured.steps,
        predicted_hours=predicted.hours * part,
        hours=measured.hours,
        predicted_usd=predicted.usd * part,
        usd=measured.usd,
        predicted_interruptions=None if predicted.interruptions is None else predicted.interruptions * part,
        interruptions=measured.interruptions,
    )


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
    predicted = [row.predicted_interruptions for row in rows if row.predicted_interruptions is not None]
    return Accuracy(
        job=name,
        plans=sum(row.plans for row in rows),
        steps=None if name == ALL_JOBS else sum(row.steps for row in rows if row.steps is not None),
        predicted_hours=sum(row.predicted_hours for row in rows),
        hours=sum(row.hours for row in rows),
        predicted_usd=sum(row.predicted_usd for row in rows),
        usd=sum(row.usd for row in rows),
        predicted_interruptions=sum(predicted) if len(predicted) == len(rows) else None,
        interruptions=sum(row.interruptions for row in rows),
    )
