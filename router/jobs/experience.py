"""Learn from earlier runs: speeds of a job by gang, and interruptions by pool, older ones counted less. Pure.

Design note learning. Runs are facts about attempts; what is learned of them at one moment is an :class:`Experience`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, TypeVar

from pricing.book import PriceBook
from pricing.hazard import HazardShape, operational_time
from pricing.machines import Machine
from pricing.offers import Offer
from pricing.places import Market
from pricing.pool_experience import LossReason, PoolExperience, PoolLosses, memory_weight
from pricing.risk import GangRisk, RiskTable
from pricing.units import to_digits
from router.jobs.measured_speed import (
    RELATIVE_ERROR,
    FabricRun,
    MeasuredSpeed,
    correct_workload,
    learn_fabrics,
    with_measured_network,
)
from router.jobs.spec import Job

HALF_LIFE = timedelta(days=30)
#: Runs older than this count for less than 2 % and are left out.
LONGEST_MEMORY = 6 * HALF_LIFE
_PRIOR_RUNS = 2.0  # the usual spread between runs weighs as much as so many of them
_MOST_NAMED = 5
_GANG = ("cloud", "instance_type", "accelerator", "accelerators", "machines", "fabric")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SpeedRun:
    """The speed that one attempt's gang was measured at. ``signature`` is that of its job (:func:`job_signature`)."""

    attempt: str
    job: str
    signature: str
    cloud: str
    instance_type: str
    accelerator: str
    accelerators: int
    machines: int
    fabric: str | None
    steps_per_hour: float
    at: datetime


@dataclass(frozen=True, slots=True)
class PoolRun:
    """The hours in which one attempt held its gang in one pool, and whether it lost machines at the end.

    ``reason``: why, as far as it is recorded; None where it is not, and where it lost none.
    """

    attempt: str
    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: str
    machines: int
    hours: float
    interrupted: bool
    at: datetime
    reason: LossReason | None = None

    @property
    def lost_capacity(self) -> bool:
        """Return whether the pool took the gang back: a loss without a recorded reason counts so."""
        return self.interrupted and self.reason in (None, LossReason.CAPACITY)


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The runs that a state remembers, in order of attempts."""

    speeds: tuple[SpeedRun, ...] = ()
    pools: tuple[PoolRun, ...] = ()
    fabrics: tuple[FabricRun, ...] = ()


@dataclass(frozen=True, slots=True)
class LearnedSpeed:
    """The speed of a planned job's gang by earlier runs.

    ``steps_per_hour`` is their geometric mean, ``spread`` the relative standard deviation from run to run, ``weight``
    how many runs of today they are worth. ``attempts`` names the newest.
    """

    job: str
    cloud: str
    instance_type: str
    accelerator: str
    accelerators: int
    machines: int
    fabric: str | None
    steps_per_hour: float
    spread: float
    weight: float
    runs: int
    first_at: datetime
    last_at: datetime
    attempts: tuple[str, ...]

    @property
    def basis(self) -> str:
        """Return how it is known, in words."""
        runs = "1 earlier run" if self.runs == 1 else f"{self.runs:,} earlier runs"
        return f"{runs}, last {self.last_at.astimezone(UTC):%Y-%m-%d}"

    def measured(self, book: PriceBook) -> MeasuredSpeed | None:
        """Return it as a measure that corrects a workload; None where the book does not know the machine."""
        machine = book.machine(self.cloud, self.instance_type)
        if machine is None:
            return None
        return MeasuredSpeed(machine, self.machines, self.steps_per_hour, self.spread, self.weight, self.basis)


@dataclass(frozen=True)
class Experience:
    """The evidence of earlier runs about some jobs and pools at one moment; rows are sorted."""

    speeds: tuple[LearnedSpeed, ...] = ()
    pools: tuple[PoolExperience, ...] = ()
    fabrics: tuple[FabricRun, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 (hex) of all rows."""
        content = {"speeds": [asdict(row) for row in self.speeds], "pools": [asdict(row) for row in self.pools]}
        content |= {"fabrics": [asdict(row) for row in self.fabrics]} if self.fabrics else {}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), default=_time_text)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _speeds_by_job(self) -> Mapping[str, tuple[LearnedSpeed, ...]]:
        return {name: tuple(rows) for name, rows in _grouped(self.speeds, lambda row: row.job).items()}

    @cached_property
    def _fabrics_by_place(self) -> Mapping[tuple[str, str, str], list[FabricRun]]:
        return _grouped(self.fabrics, lambda run: (run.cloud, run.region, run.instance_type))

    @cached_property
    def _tables(self) -> dict[str, RiskTable]:
        return {}

    def risk(self, book: PriceBook) -> RiskTable:
        """Return the risk of gangs by the book and by what was counted in pools."""
        table = self._tables.get(book.digest)
        if table is None:
            table = self._tables[book.digest] = book.risk.with_records(self.pools)
        return table

    def job(self, job: Job, book: PriceBook) -> Job:
        """Return the job with the speeds of its earlier runs; as it is where there are none."""
        rows = [row.measured(book) for row in self._speeds_by_job.get(job.name, ())]
        known = [row for row in rows if row is not None]
        return job.model_copy(update={"workload": correct_workload(job.workload, known, book)}) if known else job

    def machine(self, machine: Machine, region: str, zone: str | None) -> Machine:
        """Return the machine with the network that gangs measured in the place."""
        found = self._fabrics_by_place.get((machine.cloud, region, machine.instance_type))
        return machine if found is None else with_measured_network(machine, zone, found)

    def gang_risk(self, offer: Offer, machine: Machine, machines: int, book: PriceBook) -> GangRisk:
        """Return the risk of a gang by the book and by what was counted in its pool and in those like it."""
        return self.risk(book).gang(offer, machine, machines)


def job_signature(job: Job) -> str:
    """Return the digest of what a job's speed depends on, whatever it is called, and however long it is.

    It covers the transformer's shape, else the profile; the command with its image or code (not the commit) and engine;
    and whether data are streamed. Fields at their default do not count, so that later fields change no signature.
    """
    shape: Any = job.workload.transformer or job.workload
    content: dict[str, Any] = {"shape": shape.model_dump(mode="json", exclude_defaults=True)}
    if job.run is not None:
        code = job.run.code
        content["run"] = {
            "command": job.run.command,
            "engine": job.run.engine,
            "image": job.run.image,
            "code": None if code is None else code.git or code.archive,
        }
    if job.data is not None:
        content["data"] = job.data.mode
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def learn(records: RunRecords, jobs: Sequence[Job], book: PriceBook, now: datetime) -> Experience | None:
    """Return what the runs up to ``now`` say of these jobs, and of pools whose accelerators they may use.

    A job learns from runs of the same signature; by gang, those of its own name go before others. None where no run
    says anything.
    """
    speeds = [row for job in jobs for row in learn_speeds(job, records.speeds, now)]
    wanted = {option.accelerator for job in jobs for option in job.gang.options}
    rows = learn_pools((run for run in records.pools if _accelerator_of(run, book) in wanted), now)
    fabrics = learn_fabrics((run for run in records.fabrics if _accelerator_of(run, book) in wanted), now)
    if not speeds and not rows and not fabrics:
        return None
    return Experience(
        tuple(sorted(speeds, key=lambda s: (s.job, s.accelerator, s.accelerators, s.machines, s.fabric or ""))),
        rows,
        fabrics,
    )


def learn_pools(runs: Iterable[PoolRun], now: datetime) -> tuple[PoolExperience, ...]:
    """Return the hours and interruptions of each pool and size of gang by the runs up to ``now``, sorted.

    Losses for other reasons than capacity end a life without an interruption; :func:`count_losses` has them.
    """
    counted = [run for run in runs if _counts(run.at, now)]
    alike = _grouped(counted, lambda r: (r.cloud, r.region, r.zone, r.instance_type, r.market, r.machines))
    rows = (_pool_row(each, now) for each in alike.values())
    return tuple(sorted(rows, key=lambda p: (p.cloud, p.region, p.zone or "", p.instance_type, p.market, p.machines)))


def count_losses(runs: Iterable[PoolRun], now: datetime) -> tuple[PoolLosses, ...]:
    """Return how often gangs of each pool were lost for each reason by the runs up to ``now``, sorted."""
    lost = [run for run in runs if run.interrupted and _counts(run.at, now)]
    alike = _grouped(lost, lambda r: (r.cloud, r.region, r.zone, r.instance_type, r.market, r.reason))
    rows = (_loss_row(each, now) for each in alike.values())
    return tuple(
        sorted(rows, key=lambda p: (p.cloud, p.region, p.zone or "", p.instance_type, p.market, p.reason or ""))
    )


def _accelerator_of(run: PoolRun | FabricRun, book: PriceBook) -> str | None:
    machine = book.machine(run.cloud, run.instance_type)
    return None if machine is None else machine.accelerator


def learn_speeds(job: Job, runs: Iterable[SpeedRun], now: datetime) -> list[LearnedSpeed]:
    """Return the speeds of a job's gangs by the runs up to ``now`` of its signature, its own name first."""
    signature = job_signature(job)
    alike = [run for run in runs if run.signature == signature and _counts(run.at, now)]
    rows = []
    for found in _grouped(alike, lambda r: (r.accelerator, r.accelerators, r.machines, r.fabric)).values():
        own = [run for run in found if run.job == job.name]
        rows.append(_speed_row(job.name, own or found, now))
    return rows


def _speed_row(job: str, runs: Sequence[SpeedRun], now: datetime) -> LearnedSpeed:
    ordered = sorted(runs, key=lambda run: (run.at, run.attempt))
    weights = [_weight(run.at, now) for run in ordered]
    total = sum(weights)
    logs = [math.log(run.steps_per_hour) for run in ordered]
    mean = sum(w * x for w, x in zip(weights, logs, strict=True)) / total
    squares = sum(w * (x - mean) ** 2 for w, x in zip(weights, logs, strict=True))
    newest = ordered[-1]
    return LearnedSpeed(
        job=job,
        **{name: getattr(newest, name) for name in _GANG},
        steps_per_hour=to_digits(math.exp(mean)),
        spread=to_digits(math.sqrt((_PRIOR_RUNS * RELATIVE_ERROR**2 + squares) / (_PRIOR_RUNS + max(0.0, total - 1)))),
        weight=to_digits(total),
        runs=len(ordered),
        first_at=ordered[0].at,
        last_at=newest.at,
        attempts=tuple(run.attempt for run in ordered[: -_MOST_NAMED - 1 : -1]),
    )


def _pool_row(runs: Sequence[PoolRun], now: datetime) -> PoolExperience:
    weights = [memory_weight(run.at, now) for run in runs]
    lived = [operational_time(HazardShape.FALLING, run.hours) for run in runs]
    return PoolExperience(
        *_pool_of(runs[0]),
        machines=runs[0].machines,
        hours=to_digits(sum(w * run.hours for w, run in zip(weights, runs, strict=True))),
        exposure=to_digits(sum(w * x for w, x in zip(weights, lived, strict=True))),
        interruptions=to_digits(sum(w for w, run in zip(weights, runs, strict=True) if run.lost_capacity)),
        runs=len(runs),
        first_at=min(run.at for run in runs),
        last_at=max(run.at for run in runs),
    )


def _loss_row(runs: Sequence[PoolRun], now: datetime) -> PoolLosses:
    losses = to_digits(sum(memory_weight(run.at, now) for run in runs))
    return PoolLosses(*_pool_of(runs[0]), runs[0].reason, losses)


def _pool_of(run: PoolRun) -> tuple[str, str, str | None, str, Market]:
    return (run.cloud, run.region, run.zone, run.instance_type, Market(run.market))


def _counts(at: datetime, now: datetime) -> bool:
    return timedelta(0) <= now - at <= LONGEST_MEMORY


def _weight(at: datetime, now: datetime) -> float:
    return float(2.0 ** (-((now - at) / HALF_LIFE)))


def _grouped(rows: Iterable[T], key: Callable[[T], Any]) -> dict[Any, list[T]]:
    groups: dict[Any, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def _time_text(value: object) -> str:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else str(value)
