"""Decide what a running gang needs next, from what its ranks, its cloud and the clock report. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pricing.units import format_count
from router.agent import protocol
from router.faults.fault import (
    Fault,
    FaultAction,
    FaultKind,
    describe_fault,
    find_telling_line,
    is_by_signal,
    stated_fault,
)
from router.state.records import Attempt, NodeRecord, NoticeRecord, Phase

# A training that reports no steps counts as resumed after this many seconds.
RESUMES_WITHIN_S = 120.0
# The seconds that coordinator and agent take to report a checkpoint, beyond the time of the order.
REPORTING_S = 3.0


class ReleaseReason(StrEnum):
    """Why a gang is released; the value is stored as the attempt's ``reason``."""

    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    LOST = "lost"
    MOVED = "moved"
    STANDSTILL = protocol.STANDSTILL
    GIVEN_UP = "given_up"


class NotReleasedError(Exception):
    """Some machines may still exist and cost money; the message says what was tried.

    A later call resumes the release.
    """


# A job that does not resume: the reason of its attempt where nobody asked for that, and the word of the journal.
GIVEN_UP, GAVE_UP = ReleaseReason.GIVEN_UP.value, "given up"
_UNDISTURBED_PHASES = (Phase.READY, Phase.RESUMING, Phase.RUNNING)
# The process that provisioned the next gang was told to stop: the next process provisions it.
POSTPONED = "put_off"
# After these the job resumes, elsewhere or later in the same place, because the fault was not its own.
RESUMABLE_REASONS = frozenset(
    {
        ReleaseReason.INTERRUPTED.value,
        ReleaseReason.LOST.value,
        ReleaseReason.MOVED.value,
        ReleaseReason.STANDSTILL.value,
        FaultKind.MACHINE_FAULT.value,
        FaultKind.SHORT.value,
        FaultKind.QUOTA.value,
        FaultKind.PRICE.value,
        FaultKind.NOT_SOLD_HERE.value,
        FaultKind.NOT_ENABLED_HERE.value,
        FaultKind.THROTTLED.value,
        FaultKind.TRANSIENT.value,
        FaultKind.OURS.value,
        "crashed",
        POSTPONED,
    }
)


@dataclass(frozen=True, slots=True)
class PhaseChange:
    """The attempt enters another phase; ``text`` says so to a person."""

    phase: Phase
    text: str


@dataclass(frozen=True, slots=True)
class ReleaseDecision:
    """The gang is to be released; ``message`` says why, ``ranks`` names the ranks that caused it."""

    reason: ReleaseReason
    message: str
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GangStatus:
    """One observation of an attempt.

    ``lost``: ranks that were silent for too long. ``up_s``: seconds since all ranks met. ``ordered_s``: seconds since
    the order to save, None without one. ``saved``: the step that was saved for it. ``refused``: why it was not saved,
    "" while that is open. ``last_move``: a training that stands still again is given up.
    """

    attempt: Attempt
    nodes: Sequence[NodeRecord]
    notices: Sequence[NoticeRecord] = ()
    lost: Sequence[int] = ()
    up_s: float = 0.0
    ordered_s: float | None = None
    saved: int | None = None
    refused: str = ""
    last_move: bool = False


def next_transition(status: GangStatus) -> PhaseChange | ReleaseDecision | None:
    """Return the next transition of a gang that is up; None if it needs none."""
    attempt = status.attempt
    if not attempt.phase.is_up:
        return None
    if attempt.result:
        return _transition_after_result(status)
    if status.lost:
        ranks = ", ".join(map(str, status.lost))
        reason = ReleaseReason.INTERRUPTED if _preempted_ranks(status) else ReleaseReason.LOST
        return ReleaseDecision(reason, f"rank {ranks} was lost", (*sorted({*_preempted_ranks(status), *status.lost}),))
    if attempt.phase in _UNDISTURBED_PHASES and _preempted_ranks(status):
        # The notice came while the gang was being provisioned: nobody was told to save, and there is nothing to save
        # yet.
        return ReleaseDecision(ReleaseReason.INTERRUPTED, _reason_text(status), _preempted_ranks(status))
    match attempt.phase:
        case Phase.READY if _have_all_started(status.nodes):
            if attempt.resumes and attempt.first_step:
                return PhaseChange(Phase.RESUMING, f"{attempt.id} resumes after step {attempt.first_step}")
            return PhaseChange(Phase.RUNNING, f"{attempt.id} runs on {format_count(attempt.machines, 'machine')}")
        case Phase.RESUMING if _has_resumed(status):
            return PhaseChange(Phase.RUNNING, f"{attempt.id} runs on {format_count(attempt.machines, 'machine')}")
        case Phase.NOTICED:
            return PhaseChange(Phase.CHECKPOINTING, f"{attempt.id}: {_reason_text(status)}; every rank is told to save")
        case Phase.CHECKPOINTING:
            return _transition_while_saving(status)
        case Phase.MIGRATING:
            # The decision was made before: only the release is missing.
            return ReleaseDecision(_release_reason(status), attempt.message or _reason_text(status))
    return None


def describe_end(nodes: Sequence[NodeRecord], result: str) -> str:
    """Describe in words how the training ended: the first rank that failed says why."""
    for node in _by_time_of_end(nodes):
        if node.ended_reason not in ("", protocol.FINISHED, protocol.STOPPED):
            code = "" if node.exit_code is None else f" with exit code {node.exit_code}"
            line = find_telling_line(node.ended_message)
            return f"rank {node.rank} {node.ended_reason}{code}{': ' if line else ''}{line}"
    return result


def describe_release(attempt: Attempt, reason: ReleaseReason, why: str) -> str:
    """Return what is said when a gang whose training ended is released; ``why`` it ended is named if it failed."""
    if reason is ReleaseReason.FINISHED:
        return f"{attempt.id} finished, releasing its machines"
    return f"{attempt.id} failed, releasing its machines: {why or attempt.result}"


def confirmed_step(attempt: Attempt, nodes: Sequence[NodeRecord]) -> int:
    """Return the last step that is confirmed as saved; work up to it is never repeated."""
    return max([attempt.first_step, *(node.saved_step for node in nodes if node.saved_step is not None)])


def last_step(attempt: Attempt, nodes: Sequence[NodeRecord]) -> int:
    """Return the last step that was done, as far as any rank reported."""
    return max([confirmed_step(attempt, nodes), *(node.step for node in nodes if node.step is not None)])


def confirmed_manifest(attempt: Attempt, nodes: Sequence[NodeRecord]) -> str:
    """Return the location of the manifest of :func:`confirmed_step`, "" where nothing was saved."""
    saved = [(node.saved_step, node.saved_manifest) for node in nodes if node.saved_step is not None]
    step, manifest = max(saved, default=(-1, ""), key=lambda pair: pair[0])
    return (manifest or "") if step > attempt.first_step else attempt.first_manifest


def is_transient(attempt: Attempt, nodes: Sequence[NodeRecord]) -> bool:
    """Return whether a training that crashed need not end the same way in the next attempt.

    So it is if it made progress. Else its last lines decide, and where they state nothing, whether a signal ended it.
    """
    if attempt.result != protocol.CRASHED:
        return False
    if confirmed_step(attempt, nodes) > attempt.first_step:
        return True
    fault = _crash_fault(nodes)
    if fault is not None:
        return fault.action is not FaultAction.STOP_WITH_REMEDY
    return any(is_by_signal(node.exit_code) for node in nodes if node.ended_reason == protocol.CRASHED)


def _crash_fault(nodes: Sequence[NodeRecord], evidence: str = "") -> Fault | None:
    crashed = [node.ended_message for node in _by_time_of_end(nodes) if node.ended_reason == protocol.CRASHED]
    return stated_fault(crashed, evidence=evidence)


def _by_time_of_end(nodes: Sequence[NodeRecord]) -> list[NodeRecord]:
    return sorted(nodes, key=lambda node: (node.heard_at is None, node.heard_at, node.rank))


def _transition_after_result(status: GangStatus) -> ReleaseDecision | None:
    attempt = status.attempt
    if attempt.result == protocol.FINISHED:
        return ReleaseDecision(ReleaseReason.FINISHED, describe_end(status.nodes, attempt.result))
    # After a crash the other ranks are told to stop, and report that. A silent rank lost its machine, and the rest
    # crashed because of that.
    silent = {node.rank for node in status.nodes if not node.ended_reason}
    if attempt.result == protocol.CRASHED and silent and not _preempted_ranks(status):
        if not silent <= set(status.lost):
            return None
        ranks = ", ".join(map(str, sorted(silent)))
        return ReleaseDecision(
            ReleaseReason.LOST,
            f"rank {ranks} was lost; {describe_end(status.nodes, attempt.result)}",
            (*sorted(silent),),
        )
    fault = None
    if attempt.result == protocol.CRASHED and not _preempted_ranks(status):
        sick = _sick_ranks(status)
        fault = _crash_fault(status.nodes, "\n".join(notice.what for notice in _health_notices(status)))
        if _is_machine_fault(fault):
            # The crash is the machine's: the job resumes elsewhere, and its pool is avoided.
            what = f"the machine of rank {', '.join(map(str, sick))} is not healthy; " if sick else ""
            return ReleaseDecision(ReleaseReason.LOST, f"{what}{describe_end(status.nodes, attempt.result)}", sick)
    if attempt.result == protocol.STOPPED and not _preempted_ranks(status):
        # Nobody ordered the stop: the machine was shut down without a notice that reached us.
        down = tuple(node.rank for node in status.nodes if node.ended_reason == protocol.STOPPED)
        return ReleaseDecision(
            ReleaseReason.LOST, f"rank {', '.join(map(str, down))} was told to end by its machine", down
        )
    if attempt.order_reason == protocol.STANDSTILL and not _preempted_ranks(status):
        return _standstill_decision(status, describe_end(status.nodes, attempt.result))
    # The training of a preempted machine may end in any way.
    reason = ReleaseReason.INTERRUPTED if _preempted_ranks(status) else ReleaseReason.FAILED
    advice = "" if fault is None else f" ({describe_fault(fault)}{': ' if fault.remedy else ''}{fault.remedy})"
    return ReleaseDecision(reason, f"{describe_end(status.nodes, attempt.result)}{advice}", _preempted_ranks(status))


def _transition_while_saving(status: GangStatus) -> ReleaseDecision | None:
    attempt = status.attempt
    stands = attempt.order_reason == protocol.STANDSTILL
    if status.saved is not None:
        if stands:
            return _standstill_decision(status, f"step {status.saved} is saved")
        return ReleaseDecision(
            _release_reason(status), f"{_reason_text(status)}; step {status.saved} is saved", _preempted_ranks(status)
        )
    over = status.ordered_s is None or status.ordered_s > attempt.order_seconds + REPORTING_S
    if status.refused or over:
        why = status.refused or f"nothing was saved within {attempt.order_seconds:.0f} s"
        step = confirmed_step(attempt, status.nodes)
        if stands:
            return _standstill_decision(status, f"{why}: step {step} is what counts")
        return ReleaseDecision(
            _release_reason(status),
            f"{_reason_text(status)}; {why}: step {step} is what counts",
            _preempted_ranks(status),
        )
    return None


def _standstill_decision(status: GangStatus, saved: str) -> ReleaseDecision:
    """Return that the gang leaves because its training stands still; the pools of all its machines are avoided."""
    text = f"the training stood still; {saved}"
    if status.last_move:
        return ReleaseDecision(
            ReleaseReason.GIVEN_UP, f"{text}; it was moved as often as the job allows (`standstill`)"
        )
    return ReleaseDecision(ReleaseReason.STANDSTILL, text, tuple(node.rank for node in status.nodes))


def _release_reason(status: GangStatus) -> ReleaseReason:
    if status.attempt.phase is Phase.MIGRATING and status.attempt.reason in set(ReleaseReason):
        return ReleaseReason(status.attempt.reason)
    return ReleaseReason.INTERRUPTED if _preempted_ranks(status) else ReleaseReason.MOVED


def _preempted_ranks(status: GangStatus) -> tuple[int, ...]:
    return tuple(sorted({notice.rank for notice in status.notices if notice.kind == protocol.INTERRUPTION}))


def _sick_ranks(status: GangStatus) -> tuple[int, ...]:
    reported = {n.rank for n in _health_notices(status) if _is_machine_fault(stated_fault((), evidence=n.what))}
    said = {node.rank for node in status.nodes if _is_machine_fault(stated_fault([node.ended_message]))}
    return tuple(sorted(reported | said))


def _is_machine_fault(fault: Fault | None) -> bool:
    return fault is not None and fault.kind is FaultKind.MACHINE_FAULT


def _health_notices(status: GangStatus) -> list[NoticeRecord]:
    return [notice for notice in status.notices if notice.kind == protocol.HEALTH]


def _reason_text(status: GangStatus) -> str:
    for notice in status.notices:
        if notice.kind == protocol.INTERRUPTION:
            left = "" if notice.seconds is None else f" in {notice.seconds:.0f} s"
            return f"rank {notice.rank} is preempted{left}"
    return status.attempt.order_reason or "it goes elsewhere"


def _have_all_started(nodes: Sequence[NodeRecord]) -> bool:
    """Return whether all ranks run or have ended; a rank may be done before the last one begins."""
    return all(node.agent in (protocol.RUNNING, protocol.ENDED) for node in nodes)


def _has_resumed(status: GangStatus) -> bool:
    steps = [node.step for node in status.nodes if node.step is not None]
    return max(steps, default=-1) > status.attempt.first_step or (not steps and status.up_s > RESUMES_WITHIN_S)
