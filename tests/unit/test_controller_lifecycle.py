"""What a gang needs next, from what its ranks, its cloud and the clock say."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from router.agent import protocol
from router.controller.history.lifecycle import (
    REPORTING_S,
    RESUMES_WITHIN_S,
    GangStatus,
    PhaseChange,
    ReleaseDecision,
    ReleaseReason,
    confirmed_manifest,
    confirmed_step,
    describe_end,
    is_transient,
    last_step,
    next_transition,
)
from router.state.records import NodeRecord, NoticeRecord, Phase
from tests.support.state_values import NOW, attempt, node

ORDER: dict[str, Any] = {"order_id": "n1", "order_reason": "interruption", "order_seconds": 28.0, "ordered_at": NOW}
TAKEN = NoticeRecord("a1", 1, "n1", protocol.INTERRUPTION, "aws", 30.0, "terminate", NOW)
HINT = NoticeRecord("a1", 0, "n2", protocol.REBALANCE, "aws", None, "", NOW)


def gang(*agents: str, **changes: Any) -> list[NodeRecord]:
    return [node(rank=rank, agent=agent, heard_at=NOW, **changes) for rank, agent in enumerate(agents)]


BOTH = gang(protocol.RUNNING, protocol.RUNNING)


@pytest.mark.parametrize(
    ("agents", "phase"),
    [
        ((protocol.RUNNING, protocol.RUNNING), Phase.RUNNING),
        # One rank may be done before the other begins.
        ((protocol.ENDED, protocol.RUNNING), Phase.RUNNING),
        ((protocol.WAITING, protocol.RUNNING), None),
        (("", protocol.RUNNING), None),
    ],
)
def test_a_gang_runs_when_all_of_its_ranks_have_begun(agents: tuple[str, ...], phase: Phase | None) -> None:
    step = next_transition(GangStatus(attempt(phase=Phase.READY), gang(*agents)))
    assert (step.phase if isinstance(step, PhaseChange) else step) == phase


def test_a_gang_of_one_machine_runs_on_one_machine() -> None:
    step = next_transition(GangStatus(attempt(phase=Phase.READY, machines=1), gang(protocol.RUNNING)))
    assert step == PhaseChange(Phase.RUNNING, "a1 runs on 1 machine")


def test_one_that_goes_on_from_a_checkpoint_resumes_until_it_is_past_it() -> None:
    one = attempt(phase=Phase.READY, resumes="a0", first_step=40)
    assert next_transition(GangStatus(one, BOTH)) == PhaseChange(Phase.RESUMING, "a1 resumes after step 40")
    resuming = attempt(phase=Phase.RESUMING, resumes="a0", first_step=40)
    assert next_transition(GangStatus(resuming, gang(protocol.RUNNING, protocol.RUNNING, step=40))) is None
    step = next_transition(GangStatus(resuming, gang(protocol.RUNNING, protocol.RUNNING, step=41)))
    assert isinstance(step, PhaseChange)
    assert step.phase is Phase.RUNNING


def test_a_training_that_says_no_steps_is_taken_to_have_resumed_after_a_while() -> None:
    resuming = attempt(phase=Phase.RESUMING, resumes="a0", first_step=40)
    assert next_transition(GangStatus(resuming, BOTH, up_s=RESUMES_WITHIN_S)) is None
    assert isinstance(next_transition(GangStatus(resuming, BOTH, up_s=RESUMES_WITHIN_S + 1)), PhaseChange)


def test_what_begins_anew_does_not_resume() -> None:
    step = next_transition(GangStatus(attempt(phase=Phase.READY, resumes="a0", first_step=0), BOTH))
    assert isinstance(step, PhaseChange)
    assert step.phase is Phase.RUNNING


def test_a_notice_is_saved_for_and_then_left_for() -> None:
    noticed = attempt(phase=Phase.NOTICED, **ORDER)
    assert next_transition(GangStatus(noticed, BOTH, [TAKEN], ordered_s=0.1)) == PhaseChange(
        Phase.CHECKPOINTING, "a1: rank 1 is preempted in 30 s; every rank is told to save"
    )
    saving = attempt(phase=Phase.CHECKPOINTING, **ORDER)
    assert next_transition(GangStatus(saving, BOTH, [TAKEN], ordered_s=5.0)) is None
    leave = next_transition(GangStatus(saving, BOTH, [TAKEN], ordered_s=5.0, saved=17))
    assert leave == ReleaseDecision(ReleaseReason.INTERRUPTED, "rank 1 is preempted in 30 s; step 17 is saved", (1,))


def test_a_checkpoint_that_does_not_come_in_time_is_not_waited_for() -> None:
    saving = attempt(phase=Phase.CHECKPOINTING, **ORDER)
    nodes = gang(protocol.RUNNING, protocol.RUNNING, saved_step=12, step=20)
    assert next_transition(GangStatus(saving, nodes, [TAKEN], ordered_s=28.0 + REPORTING_S)) is None
    leave = next_transition(GangStatus(saving, nodes, [TAKEN], ordered_s=28.1 + REPORTING_S))
    assert isinstance(leave, ReleaseDecision)
    assert leave.reason is ReleaseReason.INTERRUPTED
    assert "step 12 is what counts" in leave.message
    refused = next_transition(GangStatus(saving, nodes, [TAKEN], ordered_s=2.0, refused="rank 0: disk full"))
    assert isinstance(refused, ReleaseDecision)
    assert "disk full" in refused.message


@pytest.mark.parametrize("phase", [p for p in Phase if p.is_up and p is not Phase.MIGRATING])
def test_a_rank_that_is_silent_loses_the_gang_in_any_phase(phase: Phase) -> None:
    one = attempt(phase=phase, **ORDER)
    assert next_transition(GangStatus(one, BOTH, lost=[0])) == ReleaseDecision(
        ReleaseReason.LOST, "rank 0 was lost", (0,)
    )
    assert next_transition(GangStatus(one, BOTH, [TAKEN], lost=[0])) == ReleaseDecision(
        ReleaseReason.INTERRUPTED, "rank 0 was lost", (0, 1)
    )


@pytest.mark.parametrize("phase", [p for p in Phase if not p.is_up])
def test_what_another_is_at_work_on_is_left_alone(phase: Phase) -> None:
    assert next_transition(GangStatus(attempt(phase=phase, result=protocol.CRASHED), BOTH, [TAKEN], lost=[0])) is None


def test_a_crash_beside_a_machine_that_is_gone_is_the_machines_fault() -> None:
    crashed = attempt(phase=Phase.RUNNING, result=protocol.CRASHED)
    nodes = [node(rank=0), node(rank=1, ended_reason=protocol.CRASHED, exit_code=1)]
    assert next_transition(GangStatus(crashed, nodes)) is None, "rank 0 was told to stop, and may still say so"
    assert next_transition(GangStatus(crashed, nodes, lost=[0])) == ReleaseDecision(
        ReleaseReason.LOST, "rank 0 was lost; rank 1 crashed with exit code 1", (0,)
    )
    nodes[0] = node(rank=0, ended_reason=protocol.STOPPED)
    assert next_transition(GangStatus(crashed, nodes)) == ReleaseDecision(
        ReleaseReason.FAILED, "rank 1 crashed with exit code 1", ()
    )


def test_a_machine_that_is_shut_down_without_a_notice_is_lost_and_no_failure_of_the_job() -> None:
    stopped = attempt(phase=Phase.RUNNING, result=protocol.STOPPED)
    nodes = [node(rank=0), node(rank=1, ended_reason=protocol.STOPPED)]
    assert next_transition(GangStatus(stopped, nodes)) == ReleaseDecision(
        ReleaseReason.LOST, "rank 1 was told to end by its machine", (1,)
    )
    told = next_transition(GangStatus(stopped, nodes, [TAKEN]))
    assert isinstance(told, ReleaseDecision)
    assert told.reason is ReleaseReason.INTERRUPTED


@pytest.mark.parametrize("phase", [p for p in Phase if p.is_up])
def test_a_training_that_ended_is_over_in_any_phase(phase: Phase) -> None:
    done = attempt(phase=phase, result=protocol.FINISHED)
    assert next_transition(GangStatus(done, BOTH)) == ReleaseDecision(ReleaseReason.FINISHED, "finished")
    # Even where a machine was about to be taken.
    assert next_transition(GangStatus(done, BOTH, [TAKEN])) == ReleaseDecision(ReleaseReason.FINISHED, "finished")


def test_a_training_that_crashed_is_its_own_fault_unless_a_machine_was_taken() -> None:
    crashed = attempt(phase=Phase.RUNNING, result=protocol.CRASHED)
    nodes = [node(rank=0, ended_reason=protocol.CRASHED, exit_code=3)]
    assert next_transition(GangStatus(crashed, nodes)) == ReleaseDecision(
        ReleaseReason.FAILED, "rank 0 crashed with exit code 3", ()
    )
    taken = next_transition(GangStatus(crashed, nodes, [TAKEN]))
    assert isinstance(taken, ReleaseDecision)
    assert (taken.reason, taken.ranks) == (ReleaseReason.INTERRUPTED, (1,))


def test_a_notice_that_came_while_the_gang_was_made_is_heeded_when_it_is_up() -> None:
    leave = next_transition(GangStatus(attempt(phase=Phase.READY), BOTH, [TAKEN]))
    assert leave == ReleaseDecision(ReleaseReason.INTERRUPTED, "rank 1 is preempted in 30 s", (1,))


def test_a_hint_alone_changes_nothing_here() -> None:
    assert next_transition(GangStatus(attempt(phase=Phase.RUNNING), BOTH, [HINT])) is None


def test_what_was_decided_before_is_gone_on_with() -> None:
    one = attempt(phase=Phase.MIGRATING, reason="lost", message="rank 0 was lost")
    assert next_transition(GangStatus(one, BOTH)) == ReleaseDecision(ReleaseReason.LOST, "rank 0 was lost", ())


def test_what_is_kept_is_the_newest_confirmed_step() -> None:
    one = attempt(first_step=10, first_manifest="m10")
    assert (confirmed_step(one, BOTH), last_step(one, BOTH), confirmed_manifest(one, BOTH)) == (10, 10, "m10")
    nodes = [node(rank=0, saved_step=30, saved_manifest="m30", step=37), node(rank=1, saved_step=20, step=36)]
    assert (confirmed_step(one, nodes), last_step(one, nodes), confirmed_manifest(one, nodes)) == (30, 37, "m30")
    # A step that was saved was done, whatever the last progress said.
    assert last_step(one, [node(saved_step=50, step=40)]) == 50
    # An older one than where it began is none of its own.
    assert confirmed_manifest(one, [node(saved_step=9, saved_manifest="m9")]) == "m10"


@pytest.mark.parametrize(
    ("how", "transient"),
    [
        ({"exit_code": 1}, False),
        ({"exit_code": 1, "saved_step": 5}, True),
        ({"exit_code": 137}, True),
        ({"exit_code": None}, True),
    ],
)
def test_a_crash_may_pass_when_something_was_saved_or_a_signal_ended_it(how: dict[str, Any], transient: bool) -> None:
    one = attempt(result=protocol.CRASHED)
    assert is_transient(one, [node(ended_reason=protocol.CRASHED, **how)]) is transient
    assert not is_transient(attempt(result=protocol.NO_CODE), [node(ended_reason=protocol.NO_CODE, **how)])


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        ([protocol.FINISHED, protocol.FINISHED], "the result"),
        ([protocol.FINISHED, ""], "the result"),
        ([protocol.STOPPED, protocol.CRASHED], "rank 1 crashed with exit code 3: no such file"),
        ([protocol.CRASHED, protocol.CRASHED], "rank 0 crashed with exit code 3: no such file"),
        ([protocol.STOPPED, protocol.STOPPED], "the result"),
        ([], "the result"),
    ],
)
def test_the_first_rank_that_failed_says_why(reasons: list[str], said: str) -> None:
    nodes = [
        node(rank=rank, ended_reason=reason, exit_code=3, ended_message="no such file")
        for rank, reason in enumerate(reasons)
    ]
    assert describe_end(nodes, "the result") == said


def test_a_rank_that_never_started_has_no_exit_code() -> None:
    assert describe_end([node(ended_reason=protocol.NO_CODE, ended_message="")], "x") == "rank 0 no_code"


def test_the_time_of_a_notice_is_said_where_it_is_known() -> None:
    open_end = NoticeRecord("a1", 0, "n3", protocol.INTERRUPTION, "gcp", None, "", NOW + timedelta(seconds=1))
    step = next_transition(GangStatus(attempt(phase=Phase.NOTICED, **ORDER), BOTH, [open_end]))
    assert isinstance(step, PhaseChange)
    assert "rank 0 is preempted;" in step.text


def sick(what: str) -> NoticeRecord:
    return NoticeRecord("a1", 1, "gpu-1", protocol.HEALTH, "gpu", None, what, NOW)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("Xid 79 on 0000:86:00: pid=1, GPU has fallen off the bus.", ReleaseReason.LOST),
        ("NVIDIA A100 00000000:3B:00.0: 4 uncorrectable memory errors", ReleaseReason.LOST),
        ("SXid 20034 on 0000:c4:00.0: Fatal, Link 33 LTSSM Fault Up", ReleaseReason.LOST),
        ("NVIDIA A100 00000000:3B:00.0: slowed down by heat (hw_thermal_slowdown)", ReleaseReason.FAILED),
    ],
)
def test_a_crash_is_the_machines_where_its_hardware_says_so(what: str, reason: ReleaseReason) -> None:
    ended = gang(protocol.ENDED, protocol.ENDED, ended_reason=protocol.CRASHED, exit_code=1)
    status = GangStatus(attempt(phase=Phase.RUNNING, result=protocol.CRASHED), ended, (sick(what),))
    step = next_transition(status)
    assert isinstance(step, ReleaseDecision)
    assert step.reason is reason
    assert step.ranks == ((1,) if reason is ReleaseReason.LOST else ())


ECC = "step 40\nRuntimeError: CUDA error: uncorrectable ECC error encountered\ntorchrun: 1 worker failed"
PEER = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error"
KEY = "Traceback (most recent call last):\n  File \"train.py\", line 3\nKeyError: 'tokens'\n\nSending process 9 SIGTERM"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."


def crashed_ranks(*texts: str) -> list[NodeRecord]:
    """Ranks that crashed with these last lines, the last one first."""
    return [
        node(
            rank=rank,
            ended_reason=protocol.CRASHED,
            exit_code=1,
            ended_message=text,
            heard_at=NOW - timedelta(seconds=rank),
        )
        for rank, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("texts", "reason", "ranks", "message"),
    [
        ([ECC], ReleaseReason.LOST, (0,), "uncorrectable ECC error"),
        (
            [PEER, ECC],
            ReleaseReason.LOST,
            (1,),
            "the machine of rank 1 is not healthy; rank 1 crashed with exit code 1",
        ),
        ([ECC, PEER], ReleaseReason.LOST, (0,), "the machine of rank 0 is not healthy"),
        ([PEER, KEY], ReleaseReason.FAILED, (), "the job itself fails"),
        ([ECC, KEY], ReleaseReason.FAILED, (), "the job itself fails"),
        ([KEY], ReleaseReason.FAILED, (), "rank 0 crashed with exit code 1: KeyError: 'tokens' (the job itself fails)"),
        ([OOM], ReleaseReason.FAILED, (), "fails: a smaller batch, another layout, or machines with more memory)"),
        ([PEER], ReleaseReason.FAILED, (), "a passing failure"),
        (["step 4"], ReleaseReason.FAILED, (), "rank 0 crashed with exit code 1: step 4"),
    ],
)
def test_the_last_lines_of_the_rank_that_failed_first_decide(
    texts: list[str], reason: ReleaseReason, ranks: tuple[int, ...], message: str
) -> None:
    status = GangStatus(attempt(phase=Phase.RUNNING, result=protocol.CRASHED), crashed_ranks(*texts))
    step = next_transition(status)
    assert isinstance(step, ReleaseDecision)
    assert (step.reason, step.ranks) == (reason, ranks)
    assert message in step.message


@pytest.mark.parametrize(
    ("texts", "transient"), [([PEER], True), ([KEY], False), ([PEER, KEY], False), (["step 4"], False), ([OOM], False)]
)
def test_a_crash_may_pass_unless_its_last_lines_blame_the_job(texts: list[str], transient: bool) -> None:
    assert is_transient(attempt(result=protocol.CRASHED), crashed_ranks(*texts)) is transient
    # What made progress is tried again: the same failure without progress ends the job.
    saved = [replace(one, saved_step=5) for one in crashed_ranks(*texts)]
    assert is_transient(attempt(result=protocol.CRASHED), saved)
