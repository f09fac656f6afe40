"""Define a measured speed of a job, and refuse measurements that cannot be true."""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from router.jobs.fields import Count, NotNegative, Positive, RefusedError, Spec, Text, as_number, show_value

_MOST_STEPS_PER_HOUR = 3.6e9  # a step of a microsecond: no kernel is launched faster
_UNITS_DIFFER = 100.0  # between two speeds for each accelerator of one kind; milliseconds for seconds are 1000
_SUPERLINEAR = 2.0  # beyond in proportion; caches and larger kernels explain less
_DEVIATIONS = 4.0  # of the errors of two points, beyond which they contradict each other
_PLACEMENT = re.compile(r"(\d{1,6})\s*[x×]\s*(\d{1,6})")


def parse_placement(value: object) -> str:
    """Return ``MACHINESxACCELERATORS``, such as ``2x8``; RefusedError for another form."""
    match = _PLACEMENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or not int(match[1]) or not int(match[2]):
        raise RefusedError(
            f"{show_value(value)} is no placement", "write machines x accelerators of each, e.g. 2x8, in quotes"
        )
    return f"{int(match[1])}x{int(match[2])}"


Machines = Annotated[str, BeforeValidator(parse_placement)]


class ProfilePoint(Spec):
    """A measured speed: ``count`` accelerators did ``steps_per_hour``, with this relative error (standard deviation).

    ``fabric`` is the network between the machines, where there were several.
    """

    words: ClassVar[frozenset[str]] = frozenset(
        {"accelerators", "seconds_per_step", "tokens_per_second", "tokens_per_step", "batch_per_accelerator"}
    )
    accelerator: Text = Field(examples=["H100"])
    count: Count = Field(description="Accelerators in the whole gang.")
    steps_per_hour: Positive
    fabric: Literal["rdma", "ethernet"] | None = None
    relative_error: Annotated[NotNegative, Field(lt=1)] = 0.05
    source: str = Field(default="", description="Where the figure comes from.")
    batch: Positive | None = Field(
        default=None, description="Samples (of a transformer: sequences) of the steps that were measured, in all."
    )
    placement: Machines | None = Field(
        default=None, description="Machines x accelerators of each.", examples=["1x8", "2x8"]
    )
    precision: Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"] | None = None
    date: datetime.date | None = Field(default=None, description="When it was measured.", examples=["2026-11-24"])

    @property
    def stated_machines(self) -> int | None:
        """Return the number of machines; None where the placement is not stated."""
        return None if self.placement is None else int(self.placement.partition("x")[0])

    @model_validator(mode="after")
    def _placed(self) -> ProfilePoint:
        if self.placement is not None:
            machines, _, each = self.placement.partition("x")
            if int(machines) * int(each) != self.count:
                product = int(machines) * int(each)
                raise RefusedError(
                    f"{self.placement} are {product} accelerators, not {self.count}",
                    "machines x accelerators of each machine",
                    at=("placement",),
                )
        return self

    @model_validator(mode="before")
    @classmethod
    def _from_other_units(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        value = dict(value)
        if "accelerators" in value:
            name, colon, count = str(value.pop("accelerators")).partition(":")
            if not (name and colon and count.isdecimal()) or "accelerator" in value:
                raise RefusedError(
                    "one accelerator and its count are needed", "write e.g. H100:8", at=("accelerators",)
                )
            value |= {"accelerator": name, "count": int(count)}
        if "batch_per_accelerator" in value:
            if "batch" in value:
                raise RefusedError(
                    "batch and batch_per_accelerator are both given", "keep one of them", at=("batch_per_accelerator",)
                )
            each = _positive(value.pop("batch_per_accelerator"), "batch_per_accelerator")
            count = value.get("count")
            value["batch"] = each * (count if isinstance(count, int) else 1)
        given = [key for key in ("steps_per_hour", "seconds_per_step", "tokens_per_second") if key in value]
        if len(given) != 1:
            what = f"{given[0]} and {given[1]} are both given" if given else "no speed is given"
            remedy = "give one of steps_per_hour, seconds_per_step, tokens_per_second (with tokens_per_step)"
            raise RefusedError(what, remedy, at=tuple(given[1:2]))
        tokens = value.pop("tokens_per_step", None)
        if given[0] == "seconds_per_step":
            value["steps_per_hour"] = 3600 / _positive(value.pop("seconds_per_step"), "seconds_per_step")
        elif given[0] == "tokens_per_second":
            if tokens is None:
                raise RefusedError(
                    "how many tokens are a step is not said",
                    "add tokens_per_step beside it",
                    at=("tokens_per_second",),
                )
            speed = _positive(value.pop("tokens_per_second"), "tokens_per_second")
            value["steps_per_hour"] = 3600 * speed / _positive(tokens, "tokens_per_step")
        return value


class LearnedPoint(ProfilePoint):
    """A point that runs of the job taught, and no file stated."""


def _positive(value: object, word: str) -> float:
    try:
        number = as_number(value)
    except RefusedError as error:
        raise RefusedError(error.what, error.remedy, at=(word,)) from None
    if number <= 0:
        raise RefusedError(f"{show_value(value)} is not more than 0", at=(word,))
    return number


@dataclass(frozen=True, slots=True)
class PointFinding:
    """A point that cannot be true: its position in the profile, what is wrong, and what to do."""

    index: int
    what: str
    remedy: str


def wrong_points(points: Sequence[ProfilePoint]) -> Iterator[PointFinding]:
    """Yield points that are impossible alone or contradict an earlier one, on any hardware."""
    for index, point in enumerate(points):
        if point.steps_per_hour > _MOST_STEPS_PER_HOUR:
            what = f"a step of {3600 / point.steps_per_hour:.2g} s is impossible"
            yield PointFinding(index, what, "steps_per_hour counts steps, seconds_per_step is in seconds")
    for (first, one), (second, other) in itertools.combinations(enumerate(points), 2):
        if one.accelerator == other.accelerator and (one.fabric or "rdma") == (other.fabric or "rdma"):
            found = _contradiction(one, other, first)
            if found is not None:
                yield PointFinding(second, *found)


def _contradiction(point: ProfilePoint, other: ProfilePoint, first: int) -> tuple[str, str] | None:
    """Return how the point contradicts the one at ``first``, and what to do; None where both may be true."""
    if not (_placed(point) or _placed(other)):
        return None  # Earlier files, which state neither, are read as ever.
    size = (point.batch / other.batch) if point.batch is not None and other.batch is not None else 1.0
    # Samples an hour where both batches are known, steps of one unknown size otherwise.
    ratio = point.steps_per_hour * size / other.steps_per_hour
    each = ratio * other.count / point.count
    if not 1 / _UNITS_DIFFER <= each <= _UNITS_DIFFER:
        times = max(each, 1 / each)
        what = f"for each accelerator {times:.3g} times {'slower' if each > 1 else 'faster'} than entry {first + 1}"
        return what, "check the units: seconds_per_step is in seconds, tokens_per_second of the whole gang"
    if point.precision != other.precision or not _placed(point) or not _placed(other):
        return None  # They may have been measured in different ways.
    error = math.hypot(point.relative_error, other.relative_error)
    same = point.placement == other.placement or None in (point.placement, other.placement)
    if point.count == other.count and same and size == 1.0 and abs(math.log(ratio)) > _DEVIATIONS * error:
        what = f"{point.accelerator}:{point.count} is {math.exp(abs(math.log(ratio))):.2f} times as fast in one of them"
        return f"contradicts entry {first + 1}: {what}", "keep the one that was measured as the job will run"
    if size == 1.0 and point.count != other.count:
        more, fewer = (point, other) if point.count > other.count else (other, point)
        gain = more.steps_per_hour / fewer.steps_per_hour / (more.count / fewer.count)
        if gain > _SUPERLINEAR:
            what = f"{more.count} accelerators are {gain:.2g} times faster than in proportion to {fewer.count}"
            return f"contradicts entry {first + 1}: {what}", "check that both state the batch of all accelerators"
    return None


def _placed(point: ProfilePoint) -> bool:
    return point.batch is not None or point.placement is not None
