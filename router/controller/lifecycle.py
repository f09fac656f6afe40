"""What a gang that is up needs next, from what its ranks, its cloud and the clock say. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from router.agent import states
from router.state.records import Attempt, NodeRecord, NoticeRecord, Phase

# A training that says no steps is taken to have resumed after so long, in seconds.
RESUMES_WITHIN_S = 120.0
# What a coordinator and an agent take to say that a checkpoint is there, beyond the time that the order gave.
SAYING_S = 3.0
# A shell reports a process that a signal ended with 128 and its number.
_BY_SIGNAL = 128


class Reason(StrEnum):
    """Why a gang is left; the value is what the attempt's ``reason`` says."""

    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    LOST = "lost"
    MOVED = "moved"


# Of an attempt whose job does not go on: its reason where nobody asked for that, and the word of the journal.
GIVEN_UP, GAVE_UP = "given_up", "given up"
_UNDISTURBED = (Phase.READY, Phase.RESUMING, Phase.RUNNING)
# Whoever made the next gang was told to stop: the next one makes it.
PUT_OFF = "put_off"
# After these the job goes on elsewhere, or in the same place later: it was not its own fault.
GOES_ON = frozenset({
    Reason.INTERRUPTED.value, Reason.LOST.value, Reason.MOVED.value, "unhealthy", "short", "quota", "price",
    "throttled", "crashed", "here", PUT_OFF,
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Turn:
    """The attempt is in another phase now; ``text`` says so to a person."""

    phase: Phase
    text: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The gang is to be released; ``message`` says why, ``ranks`` whose machines it was."""

    reason: Reason
    message: str
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at an attempt. ``lost``: ranks that were silent for too long; ``up_s``: seconds since all ranks met;
    ``ordered_s``: seconds since the order to save, None without one; ``saved``: the step that was saved for it;
    ``refused``: why it was not, "" while that is open."""

    attempt: Attempt
    nodes: Sequence[NodeRecord]
    notices: Sequence[NoticeRecord] = ()
    lost: Sequence[int] = ()
    up_s: float = 0.0
    ordered_s: float | None = None
    saved: int | None = None
    refused: str = ""


def next_step(seen: Seen) -> Turn | Leave | None:
    """What is to be done about a gang that is up; None: nothing."""
    attempt = seen.attempt
    if not attempt.phase.is_up:
        return None
    if attempt.result:
        return _ended(seen)
    if seen.lost:
        ranks = ", ".join(map(str, seen.lost))
        reason = Reason.INTERRUPTED if _taken(seen) else Reason.LOST
        return Leave(reason, f"rank {ranks} was lost", (*sorted({*_taken(seen), *seen.lost}),))
    if attempt.phase in _UNDISTURBED and _taken(seen):
        # It was said while the gang was being made, so nobody was told to save: there is nothing yet.
        return Leave(Reason.INTERRUPTED, _why(seen), _taken(seen))
    match attempt.phase:
        case Phase.READY if _all_began(seen.nodes):
            if attempt.resumes and attempt.first_step:
                return Turn(Phase.RESUMING, f"{attempt.id} resumes after step {attempt.first_step}")
            return Turn(Phase.RUNNING, f"{attempt.id} runs on {attempt.machines} machines")
        case Phase.RESUMING if _resumed(seen):
            return Turn(Phase.RUNNING, f"{attempt.id} runs on {attempt.machines} machines")
        case Phase.NOTICED:
            return Turn(Phase.CHECKPOINTING, f"{attempt.id}: {_why(seen)}; every rank is told to save")
        case Phase.CHECKPOINTING:
            return _saving(seen)
        case Phase.MIGRATING:
            # Decided before: only its release is missing.
            return Leave(_leaving(seen), attempt.message or _why(seen))
    return None


def how_it_ended(nodes: Sequence[NodeRecord], result: str) -> str:
    """The training's end in words: the first rank that failed says why."""
    for node in nodes:
        if node.ended_reason not in ("", states.FINISHED, states.STOPPED):
            code = "" if node.exit_code is None else f" with exit code {node.exit_code}"
            return f"rank {node.rank} {node.ended_reason}{code} {node.ended_message}".rstrip()
    return result


def kept_step(attempt: Attempt, nodes: Sequence[NodeRecord]) -> int:
    """The last step that is confirmed to be saved: nothing before it is ever done again."""
    return max([attempt.first_step, *(node.saved_step for node in nodes if node.saved_step is not None)])


def last_step(attempt: Attempt, nodes: Sequence[NodeRecord]) -> int:
    """The last step that was done, as far as anybody said."""
    return max([kept_step(attempt, nodes), *(node.step for node in nodes if node.step is not None)])


def manifest_of(attempt: Attempt, nodes: Sequence[NodeRecord]) -> str:
    """Where the manifest of :func:`kept_step` is, "" where nothing was saved."""
    saved = [(node.saved_step, node.saved_manifest) for node in nodes if node.saved_step is not None]
    step, manifest = max(saved, default=(-1, ""), key=lambda pair: pair[0])
    return (manifest or "") if step > attempt.first_step else attempt.first_manifest


def is_transient(attempt: Attempt, nodes: Sequence[NodeRecord]) -> bool:
    """Whether a training that crashed may be tried again: it had come further than where it began, or a signal ended
    it, so that the next life need not end the same way."""
    if attempt.result != states.CRASHED:
        return False
    crashed = [node.exit_code for node in nodes if node.ended_reason == states.CRASHED]
    by_signal = any(code is None or code > _BY_SIGNAL for code in crashed)
    return by_signal or kept_step(attempt, nodes) > attempt.first_step


def _ended(seen: Seen) -> Leave | None:
    attempt = seen.attempt
    if attempt.result == states.FINISHED:
        return Leave(Reason.FINISHED, how_it_ended(seen.nodes, attempt.result))
    # The others are told to stop, and say so. One that does not took its machine's end along, and the rest crashed of
    # that.
    mute = {node.rank for node in seen.nodes if not node.ended_reason}
    if attempt.result == states.CRASHED and mute and not _taken(seen):
        if not mute <= set(seen.lost):
            return None
        ranks = ", ".join(map(str, sorted(mute)))
        return Leave(
            Reason.LOST, f"rank {ranks} was lost; {how_it_ended(seen.nodes, attempt.result)}", (*sorted(mute),)
        )
    if attempt.result == states.STOPPED and not _taken(seen):
        # Nobody here told it to: the machine was shut down, without a notice that anybody heard.
        down = tuple(node.rank for node in seen.nodes if node.ended_reason == states.STOPPED)
        return Leave(Reason.LOST, f"rank {', '.join(map(str, down))} was told to end by its machine", down)
    # A machine that is taken back ends its training as it likes.
    reason = Reason.INTERRUPTED if _taken(seen) else Reason.FAILED
    return Leave(reason, how_it_ended(seen.nodes, attempt.result), _taken(seen))


def _saving(seen: Seen) -> Leave | None:
    attempt = seen.attempt
    if seen.saved is not None:
        return Leave(_leaving(seen), f"{_why(seen)}; step {seen.saved} is saved", _taken(seen))
    over = seen.ordered_s is None or seen.ordered_s > attempt.order_seconds + SAYING_S
    if seen.refused or over:
        why = seen.refused or f"nothing was saved within {attempt.order_seconds:.0f} s"
        kept = kept_step(attempt, seen.nodes)
        return Leave(_leaving(seen), f"{_why(seen)}; {why}: step {kept} is what counts", _taken(seen))
    return None


def _leaving(seen: Seen) -> Reason:
    if seen.attempt.phase is Phase.MIGRATING and seen.attempt.reason in set(Reason):
        return Reason(seen.attempt.reason)
    return Reason.INTERRUPTED if _taken(seen) else Reason.MOVED


def _taken(seen: Seen) -> tuple[int, ...]:
    """Ranks whose machine is taken back, as their cloud said."""
    return tuple(sorted({notice.rank for notice in seen.notices if notice.kind == states.INTERRUPTION}))


def _why(seen: Seen) -> str:
    for notice in seen.notices:
        if notice.kind == states.INTERRUPTION:
            left = "" if notice.seconds is None else f" in {notice.seconds:.0f} s"
            return f"rank {notice.rank} is taken back{left}"
    return seen.attempt.order_reason or "it goes elsewhere"


def _all_began(nodes: Sequence[NodeRecord]) -> bool:
    """A rank may be done before the last one begins."""
    return all(node.agent in (states.RUNNING, states.ENDED) for node in nodes)


def _resumed(seen: Seen) -> bool:
    steps = [node.step for node in seen.nodes if node.step is not None]
    return max(steps, default=-1) > seen.attempt.first_step or (not steps and seen.up_s > RESUMES_WITHIN_S)
