"""Read from the state what earlier runs measured, and remember which of it a person told to ignore."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from pricing.book import PriceBook
from pricing.pool_experience import LossReason
from router.agent import protocol
from router.controller.history.lifecycle import ReleaseReason
from router.controller.history.measured_speeds import measure_speed
from router.faults.classify import fault_of_refusal
from router.faults.fault import FaultKind
from router.jobs.experience import LONGEST_MEMORY, PoolRun, RunRecords, SpeedRun, job_signature
from router.jobs.job_json import read_job
from router.state.records import Attempt, NodeRecord, NoticeRecord
from router.state.store import StateStore

_KEY = "forgotten runs"
_INTERRUPTED = frozenset({ReleaseReason.INTERRUPTED.value, ReleaseReason.LOST.value})
_HOUR = timedelta(hours=1)
_IN_WORDS = {FaultKind.PRICE: LossReason.PRICE, FaultKind.SHORT: LossReason.CAPACITY}
#: A machine that was lost so long about what was announced was lost by that.
_ANNOUNCED_WITHIN = timedelta(hours=1)


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
        tuple(sorted(speeds, key=lambda run: run.attempt)), tuple(sorted(pools, key=lambda run: run.attempt))
    )


def pool_name(run: PoolRun) -> str:
    """Return a pool as people name it: ``aws/us-east-1a/p5.48xlarge/spot``, ``azure/eastus/1/.../spot``.

    The region is left out where the zone's name begins with it.
    """
    zone = run.zone or ""
    region = "" if zone.startswith(run.region) else run.region
    return "/".join(part for part in (run.cloud, region, zone, run.instance_type, run.market) if part)


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
    """Return whether the attempt ended because machines were preempted or lost."""
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
    """Return the signatures of jobs by their digest; none of a job that this version cannot read."""
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
