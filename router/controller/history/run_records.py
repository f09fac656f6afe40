"""Records of runs: how fast gangs train, how often pools were interrupted, and runs that a person told to ignore."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from pricing.book import PriceBook
from pricing.pool_experience import LossReason
from router.agent import protocol
from router.controller.history.attempt_history import AttemptHistory
from router.controller.history.lifecycle import ReleaseReason
from router.faults.fault import FaultKind, fault_of_refusal
from router.jobs.experience import (
    LONGEST_MEMORY,
    Experience,
    PoolRun,
    RunRecords,
    SpeedRun,
    job_signature,
    learn_pools,
    learn_speeds,
)
from router.jobs.job_json import read_job
from router.jobs.measured_speed import FabricRun, MeasuredSpeed, correct_workload, learn_fabrics
from router.jobs.spec import Job
from router.state.records import Attempt, NodeRecord, NoticeRecord
from router.state.store import StateStore

_KEY = "forgotten runs"
_FABRIC_DETAILS = tuple(f.name for f in fields(FabricRun) if f.name not in ("attempt", "at"))
_INTERRUPTED = frozenset({ReleaseReason.INTERRUPTED.value, ReleaseReason.LOST.value})
_HOUR = timedelta(hours=1)
_IN_WORDS = {FaultKind.PRICE: LossReason.PRICE, FaultKind.SHORT: LossReason.CAPACITY}
#: A machine that was lost so long about what was announced was lost by that.
_ANNOUNCED_WITHIN = timedelta(hours=1)
# A gang is measured over this long at least, and over so many steps: what comes before its first step counts as well.
_LEAST_TIME = timedelta(hours=1)
# Where the training's own time of a step agrees with the clock, this is enough.
_LEAST_TIME_AGREED = timedelta(minutes=10)
_LEAST_STEPS = 10
_LEAST_SHARE = 0.5  # of its time a gang spends in steps, else its own time of a step is not believed


@dataclass(frozen=True, slots=True)
class ForgottenRuns:
    """Runs that do not count: those of a job, an attempt or a pool (:func:`pool_name`) that ended up to ``before``."""

    name: str
    before: datetime
    who: str


def read_runs(store: StateStore, book: PriceBook, now: datetime) -> RunRecords:
    """Return the speeds and interruptions of attempts up to ``now`` that the state knows and nobody told to ignore.

    Gangs on machines of several types or places are left out, and so are speeds of jobs whose file is not stored.
    """
    attempts, nodes, notices = store.overview.runs(now - LONGEST_MEMORY, now)
    forgotten = {mark.name: mark.before for mark in forgotten_runs(store)}
    signatures = _signatures(store, attempts)
    speeds: list[SpeedRun] = []
    pools: list[PoolRun] = []
    for attempt in attempts:
        machines = nodes.get(attempt.id, [])
        ended = attempt.gone_at or max((n.heard_at for n in machines if n.heard_at is not None), default=None)
        if ended is None or ended > now or _is_forgotten(forgotten, attempt.id, ended):
            continue
        speed = _speed_run(attempt, machines, ended, signatures, book)
        if speed is not None and not _is_forgotten(forgotten, attempt.job, ended):
            speeds.append(speed)
        stay = _pool_run(attempt, machines, ended, notices.get(attempt.id, ()))
        if stay is not None and not _is_forgotten(forgotten, pool_name(stay), ended):
            pools.append(stay)
    return RunRecords(
        tuple(sorted(speeds, key=lambda run: run.attempt)),
        tuple(sorted(pools, key=lambda run: run.attempt)),
        tuple(run for run in read_fabrics(store) if run.at <= now),
    )


def read_fabrics(store: StateStore) -> tuple[FabricRun, ...]:
    """Return the all-reduces that gangs of one machine type in one place measured, except those told to ignore."""
    forgotten = {mark.name: mark.before for mark in forgotten_runs(store)}
    runs = []
    for entry in store.overview.notes((protocol.MEASURED,)):
        details: dict[str, Any] = {name: entry.details.get(name) for name in _FABRIC_DETAILS}
        if details["gb_per_s"] is None or details["instance_type"] is None:
            continue
        run = FabricRun(attempt=entry.attempt, at=entry.at, **details)
        if not any(_is_forgotten(forgotten, name, run.at) for name in (run.attempt, pool_name(run))):
            runs.append(run)
    return tuple(runs)


def pool_name(run: PoolRun | FabricRun) -> str:
    """Return a pool as people name it: ``aws/us-east-1a/p5.48xlarge/spot``, ``azure/eastus/1/.../spot``.

    The region is left out where the zone's name begins with it, and the market of what holds for all.
    """
    zone = run.zone or ""
    region = "" if zone.startswith(run.region) else run.region
    market = run.market if isinstance(run, PoolRun) else ""
    return "/".join(part for part in (run.cloud, region, zone, run.instance_type, market) if part)


def forgotten_runs(store: StateStore) -> tuple[ForgottenRuns, ...]:
    """Return what was told to be ignored, by name."""
    rows = json.loads(store.values.get(_KEY) or "[]")
    marks = [ForgottenRuns(row["name"], datetime.fromisoformat(row["before"]), row["who"]) for row in rows]
    return tuple(sorted(marks, key=lambda mark: mark.name))


def forget_runs(store: StateStore, mark: ForgottenRuns) -> None:
    """Ignore runs from now on. Nothing is deleted: :func:`recall_runs` makes them count again."""
    others = [m for m in forgotten_runs(store) if m.name != mark.name]
    _write(store, [*others, mark])


def recall_runs(store: StateStore, name: str) -> bool:
    """Make the runs of that name count again; return whether they were ignored."""
    marks = forgotten_runs(store)
    kept = [mark for mark in marks if mark.name != name]
    if len(kept) < len(marks):
        _write(store, kept)
    return len(kept) < len(marks)


def _write(store: StateStore, marks: Sequence[ForgottenRuns]) -> None:
    rows = [{**asdict(mark), "before": mark.before.astimezone(UTC).isoformat()} for mark in marks]
    store.values.set(_KEY, json.dumps(sorted(rows, key=lambda row: row["name"])))


def is_interrupted(attempt: Attempt) -> bool:
    return attempt.phase.is_over and attempt.reason in _INTERRUPTED


def loss_reason(attempt: Attempt, notices: Sequence[NoticeRecord], ended: datetime) -> LossReason | None:
    """Return why an attempt that ended lost machines, by the notices to them; None where none says, or it lost none.

    A notice of preemption says nothing of the reason unless it has the cloud's word for it. Maintenance and unhealthy
    accelerators explain a loss about their time that no preemption announced; whoever leaves an unhealthy machine has
    lost it too, but who moves away from maintenance has not.
    """
    if not attempt.phase.is_over:
        return None
    near = [n for n in notices if abs(ended - n.heard_at - timedelta(seconds=n.seconds or 0.0)) <= _ANNOUNCED_WITHIN]
    kinds = {notice.kind for notice in near}
    if is_interrupted(attempt):
        preempted = [notice for notice in near if notice.kind == protocol.INTERRUPTION]
        for notice in preempted:
            reason = _IN_WORDS.get(fault_of_refusal(notice.what).kind)
            if reason is not None:
                return reason
        # Without time left, a cloud only reports that the machine goes down, whatever the reason.
        if any(notice.seconds != 0 for notice in preempted):
            return None
        if protocol.MAINTENANCE in kinds:
            return LossReason.MAINTENANCE
    left = is_interrupted(attempt) or attempt.reason == ReleaseReason.MOVED
    return LossReason.HOST if left and protocol.HEALTH in kinds else None


def _is_forgotten(forgotten: Mapping[str, datetime], name: str, ended: datetime) -> bool:
    return name in forgotten and ended <= forgotten[name]


def _signatures(store: StateStore, attempts: Sequence[Attempt]) -> dict[str, str]:
    texts = store.plans.jobs(a.job_digest for a in attempts if a.met_at is not None)
    return {digest: job_signature(job) for digest, text in texts.items() if (job := read_job(text)) is not None}


def _speed_run(
    attempt: Attempt, nodes: Sequence[NodeRecord], ended: datetime, signatures: Mapping[str, str], book: PriceBook
) -> SpeedRun | None:
    signature = signatures.get(attempt.job_digest)
    measured = measure_speed(attempt, nodes, book) if signature is not None else None
    if signature is None or measured is None:
        return None
    return SpeedRun(
        attempt=attempt.id,
        job=attempt.job,
        signature=signature,
        cloud=attempt.cloud,
        instance_type=measured.machine.instance_type,
        accelerator=measured.machine.accelerator,
        accelerators=measured.accelerators,
        machines=measured.machines,
        fabric=measured.fabric,
        steps_per_hour=measured.steps_per_hour,
        at=ended,
    )


def _pool_run(
    attempt: Attempt, nodes: Sequence[NodeRecord], ended: datetime, notices: Sequence[NoticeRecord]
) -> PoolRun | None:
    pools = {(node.zone, node.instance_type, node.market) for node in nodes}
    begun = min((node.made_at for node in nodes if node.made_at is not None), default=attempt.made_at)
    if len(pools) != 1 or begun is None or ended <= begun:
        return None
    zone, instance_type, market = pools.pop()
    reason = loss_reason(attempt, notices, ended)
    return PoolRun(
        attempt=attempt.id,
        cloud=attempt.cloud,
        region=attempt.region,
        zone=zone,
        instance_type=instance_type,
        market=market.value,
        machines=len(nodes),
        hours=(ended - begun) / _HOUR,
        interrupted=is_interrupted(attempt) or reason is not None,
        at=ended,
        reason=reason,
    )


def job_as_measured(job: Job, chain: AttemptHistory, book: PriceBook, earlier: Sequence[MeasuredSpeed] = ()) -> Job:
    """Return the job with the speeds of its own gangs, the newest gang's first, and then those of ``earlier`` runs.

    Unchanged where nothing was measured, or where the book does not know the machines.
    """
    lives = zip(reversed(chain.attempts), reversed(chain.nodes), strict=True)
    own = [measure_speed(attempt, nodes, book) for attempt, nodes in lives]
    workload = correct_workload(job.workload, [*(each for each in own if each is not None), *earlier], book)
    return job if workload is job.workload else job.model_copy(update={"workload": workload})


def measure_speed(attempt: Attempt, nodes: Sequence[NodeRecord], book: PriceBook) -> MeasuredSpeed | None:
    """Return the speed of an attempt; None where it ran too shortly, or on machines of several types.

    It is that of the slowest rank, for a gang trains as fast as that. The training's own time of a step counts where it
    explains at least half of the time since all ranks met; else steps by that time, start and saves included: a clock
    that runs fast, or one slow step, is no measure.
    """
    heard = max((node.heard_at for node in nodes if node.heard_at is not None), default=None)
    types = {node.instance_type for node in nodes}
    if attempt.met_at is None or heard is None or len(types) != 1:
        return None
    machine = book.machine(attempt.cloud, types.pop())
    elapsed = min(heard, attempt.gone_at or heard) - attempt.met_at
    done = max((node.step for node in nodes if node.step is not None), default=0) - attempt.first_step
    if machine is None or done < _LEAST_STEPS or elapsed < _LEAST_TIME_AGREED:
        return None
    by_clock = elapsed.total_seconds() / done
    reported = max((node.step_seconds for node in nodes if node.step_seconds), default=None)
    if reported is not None and _LEAST_SHARE * by_clock <= reported <= by_clock:
        return MeasuredSpeed(machine, len(nodes), 3600 / reported)
    return None if elapsed < _LEAST_TIME else MeasuredSpeed(machine, len(nodes), 3600 / by_clock)


class EarlierRuns:
    """Provides the speeds and interruption rates that ``plan --learned latest`` would use at the last full hour.

    Reading thousands of attempts takes half a second, and one hour more changes little: what a job's own gangs do now
    is measured at each call all the same (:func:`job_as_measured`).
    """

    def __init__(self, store: StateStore, clock: Callable[[], datetime]) -> None:
        self._store, self._clock = store, clock
        self._hour: datetime | None = None
        self._runs: Mapping[str, list[SpeedRun]] = {}
        self._pools = Experience()
        self._known: dict[tuple[str, str], tuple[MeasuredSpeed, ...]] = {}

    def speeds(self, job: Job, book: PriceBook) -> tuple[MeasuredSpeed, ...]:
        """Return the measured speeds of the job's gangs in earlier runs; ``job`` is as it is stored."""
        hour = self._read(book)
        key = (job.name, job_signature(job))
        if key not in self._known:
            rows = (row.measured(book) for row in learn_speeds(job, self._runs.get(key[1], ()), hour))
            self._known[key] = tuple(row for row in rows if row is not None)
        return self._known[key]

    def pools(self, book: PriceBook) -> Experience:
        """Return what was counted in pools, without speeds."""
        self._read(book)
        return self._pools

    def _read(self, book: PriceBook) -> datetime:
        hour = self._clock().replace(minute=0, second=0, microsecond=0)
        if hour != self._hour:
            records = read_runs(self._store, book, hour)
            runs: dict[str, list[SpeedRun]] = {}
            for run in records.speeds:
                runs.setdefault(run.signature, []).append(run)
            self._runs, self._known = runs, {}
            self._pools = Experience((), learn_pools(records.pools, hour), learn_fabrics(records.fabrics, hour))
            self._hour = hour
        return hour
