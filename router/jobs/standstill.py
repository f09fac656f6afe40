"""Decide from times and steps alone whether a training stands still, and say what is done about it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, field_validator

from router.jobs.fields import Positive, RefusedError, Spec, Tally
from router.jobs.quantities import Duration, format_duration

# A training that reports no step may take this much longer than its start-up.
FIRST_STEP_MARGIN = timedelta(minutes=15)
# Steps that come ever later must not move the limit with them: a measured step counts as so many planned ones at most.
MOST_PLANNED_STEPS = 4.0


class Standstill(Spec):
    """When a training counts as standing still, and what is done then."""

    step_times: Positive = Field(default=10.0, description="It stands still when no step comes for so many step times.")
    at_least: Duration = Field(
        default=timedelta(minutes=10),
        description="And for at least this long, which no evaluation between two steps may take.",
    )
    action: Literal["name", "replace"] = Field(
        default="replace",
        description="`name`: it is only said. `replace`: stacks are kept, it saves and stops, and goes on elsewhere.",
    )
    moves: Annotated[Tally, Field(le=100)] = Field(
        default=2, description="How often it is replaced at most; the next standstill fails the job."
    )

    @field_validator("at_least")
    @classmethod
    def _check_at_least(cls, value: timedelta) -> timedelta:
        if value < timedelta(minutes=1):
            raise RefusedError("is too short to tell", "write at least 1m")
        return value


@dataclass(frozen=True, slots=True)
class TrainingSigns:
    """The last signs of a gang's training, in the times of one clock.

    ``began``: all ranks met. ``heard``: every rank that trains was heard since then. ``step``: the last one reported,
    None without one. ``progress``: when that step came; before the first one, when it last printed or saved something.
    ``step_seconds``: how long a step takes as the training reports.
    """

    began: datetime
    heard: datetime
    step: int | None = None
    progress: datetime | None = None
    step_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TrainingTerms:
    """The pace of a job, as its file and its placement state it; None is not known.

    ``start``: from the meeting of the ranks to the first step. ``save``: how long it may pause for a checkpoint.
    ``planned_step_seconds``: a step in the place that was planned. ``steps``: of the whole job.
    """

    start: timedelta
    save: timedelta = timedelta(0)
    planned_step_seconds: float | None = None
    steps: int | None = None


@dataclass(frozen=True, slots=True)
class StandstillFinding:
    """A training stood still ``lasts`` when its gang was last heard; ``limit`` is what it may.

    ``step`` is the last one, None where none was reported. ``is_certain``: it showed no other sign of life either.
    """

    step: int | None
    lasts: timedelta
    limit: timedelta
    is_certain: bool = True

    @property
    def text(self) -> str:
        lasts, limit = format_duration(_whole_minutes(self.lasts)), format_duration(_whole_minutes(self.limit))
        if self.step is None:
            return f"reports no step, {lasts} after all ranks met ({limit} were expected at most)"
        return f"stands still: no step after {self.step:,} for {lasts} ({limit} at most)"


def step_time(planned_s: float | None, measured_s: float | None) -> float | None:
    """Return how long a step takes, in seconds: as planned or measured, the longer; None where neither is known.

    What was measured counts up to :data:`MOST_PLANNED_STEPS` times what was planned.
    """
    if not planned_s or not measured_s:
        return planned_s or measured_s or None
    return min(max(planned_s, measured_s), MOST_PLANNED_STEPS * planned_s)


def find_standstill(signs: TrainingSigns, terms: TrainingTerms, rule: Standstill) -> StandstillFinding | None:
    """Return what stands still; None where the training goes on, or nobody can tell yet.

    The time ends when the gang was last heard: what nobody could report is no standstill.
    """
    if signs.step is None:
        lasts, limit = signs.heard - signs.began, terms.start + FIRST_STEP_MARGIN
        quiet = signs.heard - max(signs.began, signs.progress or signs.began)
        certain = quiet >= max(rule.at_least, FIRST_STEP_MARGIN)
        return StandstillFinding(None, lasts, limit, certain) if lasts > limit else None
    if terms.steps is not None and signs.step >= terms.steps:
        return None  # All steps are done; what follows reports none.
    seconds = step_time(terms.planned_step_seconds, signs.step_seconds) or 0.0
    limit = max(rule.at_least, timedelta(seconds=rule.step_times * seconds)) + terms.save
    lasts = signs.heard - max(signs.began, signs.progress or signs.began)
    return StandstillFinding(signs.step, lasts, limit) if lasts > limit else None


def _whole_minutes(value: timedelta) -> timedelta:
    return timedelta(minutes=max(1, round(value / timedelta(minutes=1))))
