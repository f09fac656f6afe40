"""Find what limits a job's speed: communication, memory, data or compute; stated, or derived from its workload.

A job whose speed is estimated has the type of the largest term of its step, and the plan keeps to it; measured points
alone give a type that is advice. Formulas and thresholds: design note costs-and-estimates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from pricing.machines import Accelerator, Machine
from router.jobs.spec import Data, Job
from router.jobs.speed import StepTimes, memory_need_gib, states_place, step_times

# From these shares on a job is bound by what they are the share of.
_EXCHANGE_SHARE = 0.25  # of the seconds of a step
_MEMORY_SHARE = 0.85  # of an accelerator's memory
_READING_SHARE = 0.25  # of the run time
_READ_GIB_PER_S = 1.0  # assumed for a gang, as the default of `checkpoint.write_gib_per_s`
_NAMED = 0.005  # smaller shares of a step are not named

_RULES: frozenset[PlacementType] = frozenset({"communication", "memory", "data"})

# The terms of a step, and which type each makes the job where it is the largest kind.
_KINDS: Mapping[str, PlacementType] = {
    "compute": "compute",
    "pipeline bubble": "compute",
    "tensor parallelism": "communication",
    "experts": "communication",
    "exchange of gradients": "communication",
    "reading data": "data",
}


@dataclass(frozen=True, slots=True)
class TimedGang:
    """A gang that the job's rules allow; ``steps_per_hour`` is None where it cannot be timed or does not fit."""

    machine: Machine
    accelerators: int
    accelerator: Accelerator
    steps_per_hour: float | None


def find_placement_type(job: Job, timed: Iterable[TimedGang]) -> JobPlacementType:
    """Return the job's type: as stated, else derived over the gangs that it allows, those too small included."""
    if job.placement is not None:
        return JobPlacementType(job.name, job.placement, "stated", "the job file says so", used=job.placement in _RULES)
    timed = tuple(timed)
    gangs = list({(g.machine.cloud, g.machine.instance_type, g.accelerators): g for g in timed}.values())
    return _type_of_step(job, gangs) or _type_of_shares(job, gangs, [g for g in timed if g.steps_per_hour is not None])


def _type_of_step(job: Job, gangs: Sequence[TimedGang]) -> JobPlacementType | None:
    """Return the type of the largest kind of term in an estimated step; None where no speed is estimated."""
    model = job.workload.transformer
    if model is None or states_place(job.workload):
        return None
    measured = {point.accelerator for point in job.workload.profile}
    estimated = [gang for gang in gangs if gang.machine.accelerator not in measured]
    steps = [
        (gang, found)
        for gang in estimated
        if isinstance(
            found := step_times(
                model, gang.machine, gang.accelerators // gang.machine.accelerator_count, gang.accelerator
            ),
            StepTimes,
        )
    ]
    if not steps:
        return None
    shares = [_shares_of_step(job, times) for _, times in steps]
    terms = {name: median(each[name] for each in shares) for name in _KINDS}
    kinds: dict[PlacementType, float] = {
        kind: median(sum(each[name] for name, own in _KINDS.items() if own == kind) for each in shares)
        for kind in ("compute", "communication", "data")
    }
    kind = max(kinds, key=lambda name: kinds[name])
    term = max((name for name, own in _KINDS.items() if own == kind), key=lambda name: terms[name])
    others = [f"{name} {share:.0%}" for name, share in terms.items() if name != term and share >= _NAMED]
    words = f"its largest term is {term}, {terms[term]:.0%} of a step"
    words += f" ({', '.join(others)})" if others else ""
    need = median(memory_need_gib(model, gang.accelerators) / gang.accelerator.memory_gib for gang, _ in steps)
    words += f"; it needs {need:.0%} of the accelerators' memory"
    if kind == "compute" and need >= _MEMORY_SHARE:
        kind = "memory"
    return JobPlacementType(job.name, kind, "derived", words, term, round(terms[term], 6), kind in _RULES)


def _shares_of_step(job: Job, times: StepTimes) -> dict[str, float]:
    """Return the terms of a step as shares of their sum."""
    reading = 0.0
    if job.data is not None and job.steps_left:
        reading = _gib_to_read(job, job.data) / _READ_GIB_PER_S / job.steps_left
    seconds = {
        "compute": times.compute - times.bubble,
        "pipeline bubble": times.bubble,
        "tensor parallelism": times.tensor,
        "experts": times.experts,
        "exchange of gradients": times.gradients,
        "reading data": reading,
    }
    whole = sum(seconds.values())
    return {name: part / whole for name, part in seconds.items()}


def _type_of_shares(job: Job, gangs: Sequence[TimedGang], timed: Sequence[TimedGang]) -> JobPlacementType:
    """Return the type whose share is most above its threshold, of what is known beside measured points; advice."""
    found: list[tuple[float, PlacementType, str]] = []
    words: list[str] = []
    for name, share, threshold, what in (
        ("data", _reading_share(job, timed), _READING_SHARE, "reading its data takes {:.0%} of the run time"),
        ("memory", _memory_share(job, gangs), _MEMORY_SHARE, "it needs {:.0%} of the accelerators' memory"),
        ("communication", _exchange_share(job, gangs), _EXCHANGE_SHARE, "exchange is {:.0%} of a step"),
    ):
        if share is None:
            continue
        words.append(what.format(share))
        if share >= threshold:
            found.append((share / threshold, name, words[-1]))  # type: ignore[arg-type]
    if found:
        _, kind, why = max(found, key=lambda row: row[0])
        return JobPlacementType(job.name, kind, "derived", why)
    why = "; ".join(words) if words else "nothing says how much it exchanges, holds in memory or reads"
    return JobPlacementType(job.name, "compute", "derived", why)


def _exchange_share(job: Job, gangs: Sequence[TimedGang]) -> float | None:
    """Return the median share of exchange in a step, compute and exchange taken one after the other."""
    model = job.workload.transformer
    if model is None:
        return None
    times = (step_times(model, g.machine, g.accelerators // g.machine.accelerator_count, g.accelerator) for g in gangs)
    shares = [t.exchange / (t.compute + t.exchange) for t in times if isinstance(t, StepTimes)]
    return median(shares) if shares else None


def _memory_share(job: Job, gangs: Sequence[TimedGang]) -> float | None:
    """Return the median need of memory as a share of what an accelerator has; above 1 where it does not fit."""
    model = job.workload.transformer
    if model is None or not gangs:
        return None
    return median(memory_need_gib(model, gang.accelerators) / gang.accelerator.memory_gib for gang in gangs)


def _reading_share(job: Job, timed: Sequence[TimedGang]) -> float | None:
    """Return the hours of copying or streaming the data as a share of the median run time."""
    if job.data is None or not timed:
        return None
    hours = _gib_to_read(job, job.data) / _READ_GIB_PER_S / 3600
    return hours / median(job.steps_left / gang.steps_per_hour for gang in timed if gang.steps_per_hour)


def _gib_to_read(job: Job, data: Data) -> float:
    if data.mode == "copy":
        return data.gib
    return data.gib * data.passes * job.steps_left / job.steps


PlacementType = Literal["communication", "memory", "data", "compute", "none"]


@dataclass(frozen=True, slots=True)
class JobPlacementType:
    """The type of a job by what limits its speed, and why; ``none`` where the job file says so.

    ``term`` is the largest term of its estimated step and ``term_share`` its share, where the speed is estimated.
    ``used`` tells whether the type ruled gangs out, or would have; a derived type that is not is advice.
    """

    job: str
    type: PlacementType
    basis: Literal["stated", "derived"]
    why: str
    term: str = ""
    term_share: float | None = None
    used: bool = False
