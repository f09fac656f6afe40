"""Who has been silent for too long, how a training ended in words, and what one look at an attempt changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from router.agent import states
from router.running.following import Silence, how_it_ended, pass_over, settle
from router.running.site import Site
from router.state.records import Attempt, NodeRecord, Phase
from tests.support.bare_site import bare_site
from tests.support.state_values import NOW, attempt, node

LIMIT = 60.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock that Silence goes by, to be moved."""
    now = [1000.0]
    monkeypatch.setattr("router.running.following.time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def gang(*agents: str, heard: int = 0) -> list[NodeRecord]:
    at = NOW + timedelta(seconds=heard)
    return [node(rank=rank, agent=agent, heard_at=at) for rank, agent in enumerate(agents)]


def test_silence_begins_when_it_is_first_looked_at(clock: list[float]) -> None:
    """Whoever begins to watch does not know how long it has been quiet before."""
    silence, one = Silence(LIMIT), attempt()
    old = gang(states.RUNNING, heard=-100_000)
    assert silence.lost(one, old) == []
    clock[0] += LIMIT
    assert silence.lost(one, old) == []
    clock[0] += 0.001
    assert silence.lost(one, old) == [0]
    assert silence.lost(one, old) == [0]


def test_whoever_calls_is_not_lost(clock: list[float]) -> None:
    silence, one = Silence(LIMIT), attempt()
    for second in range(0, 600, 50):
        assert silence.lost(one, gang(states.RUNNING, heard=second)) == []
        clock[0] += 50
    clock[0] += 11
    assert silence.lost(one, gang(states.RUNNING, heard=550)) == [0]
    assert silence.lost(one, gang(states.RUNNING, heard=551)) == []


def test_the_times_that_were_written_down_do_not_matter_only_that_they_change(clock: list[float]) -> None:
    """A sandbox's clock runs sixty times as fast, and a clock may be set back."""
    silence, one = Silence(LIMIT), attempt()
    assert silence.lost(one, gang(states.RUNNING)) == []
    clock[0] += 50
    assert silence.lost(one, gang(states.RUNNING, heard=-3600)) == []
    clock[0] += 50
    assert silence.lost(one, gang(states.RUNNING, heard=-3600 + 10**6)) == []
    clock[0] += 61
    assert silence.lost(one, gang(states.RUNNING, heard=-3600 + 10**6)) == [0]


def test_a_rank_that_ended_is_not_lost(clock: list[float]) -> None:
    silence, one = Silence(LIMIT), attempt()
    nodes = gang(states.RUNNING, states.ENDED, states.FAILED, states.WAITING, states.STARTING, "")
    assert silence.lost(one, nodes) == []
    clock[0] += 2 * LIMIT
    assert silence.lost(one, nodes) == [0, 3, 4, 5]


def test_a_rank_that_never_called_is_lost_too(clock: list[float]) -> None:
    silence, one = Silence(LIMIT), attempt()
    nodes = [replace(nod, heard_at=None) for nod in gang("", states.RUNNING)]
    assert silence.lost(one, nodes) == []
    clock[0] += 2 * LIMIT
    assert silence.lost(one, nodes) == [0, 1]


def test_gangs_and_ranks_are_silent_on_their_own(clock: list[float]) -> None:
    silence = Silence(LIMIT)
    first, second = gang(states.RUNNING, states.RUNNING), gang(states.RUNNING)
    assert silence.lost(attempt("a1"), first) == []
    clock[0] += 40
    assert silence.lost(attempt("a2"), second) == []
    clock[0] += 40
    spoke = [first[0], replace(first[1], heard_at=NOW + timedelta(seconds=9))]
    assert silence.lost(attempt("a1"), spoke) == [0]
    assert silence.lost(attempt("a2"), second) == []


@pytest.mark.parametrize(
    ("reasons", "said"),
    [
        ([states.FINISHED, states.FINISHED], "the result"),
        ([states.FINISHED, ""], "the result"),
        ([states.STOPPED, states.CRASHED], "rank 1 crashed with exit code 3 no such file"),
        ([states.CRASHED, states.CRASHED], "rank 0 crashed with exit code 3 no such file"),
        ([states.STOPPED, states.STOPPED], "the result"),
        ([], "the result"),
    ],
)
def test_the_first_rank_that_failed_says_why(reasons: list[str], said: str) -> None:
    nodes = [
        node(rank=rank, ended_reason=reason, exit_code=3, ended_message="no such file")
        for rank, reason in enumerate(reasons)
    ]
    assert how_it_ended(nodes, "the result") == said


def test_a_rank_that_never_started_has_no_exit_code() -> None:
    assert how_it_ended([node(ended_reason=states.NO_CODE, ended_message="")], "x") == "rank 0 no_code"


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def site(tmp_path: Path, told: list[str]) -> Iterator[Site]:
    with bare_site(tmp_path, told) as made:
        yield made


def kept(site: Site, *agents: str, **changes: object) -> Attempt:
    """In the state; nothing was ever made of it, so that releasing needs no Terraform."""
    one = replace(attempt("a1", machines=len(agents)), **changes)  # type: ignore[arg-type]
    site.store.add_attempt(one, gang(*agents))
    return one


@pytest.mark.parametrize(
    ("agents", "phase"),
    [
        ((states.RUNNING, states.RUNNING), Phase.RUNNING),
        # One rank may be done before the other begins.
        ((states.ENDED, states.RUNNING), Phase.RUNNING),
        ((states.WAITING, states.RUNNING), Phase.READY),
        (("", states.RUNNING), Phase.READY),
    ],
)
def test_a_gang_runs_when_all_of_its_ranks_have_begun(site: Site, agents: tuple[str, ...], phase: Phase) -> None:
    one = kept(site, *agents, phase=Phase.READY)
    assert settle(site, one, Silence(LIMIT)).phase is phase
    pass_over(site, [one], Silence(LIMIT), lambda: nullcontext())
    now = site.store.attempt("a1")
    assert now is not None
    assert now.phase is phase


@pytest.mark.parametrize(
    ("result", "phase", "reason"),
    [(states.FINISHED, Phase.FINISHED, "finished"), (states.CRASHED, Phase.FAILED, "failed")],
)
def test_one_that_ended_is_released(site: Site, told: list[str], result: str, phase: Phase, reason: str) -> None:
    one = kept(site, states.ENDED, phase=Phase.RUNNING, result=result)
    entered: list[int] = []

    def locked() -> nullcontext[None]:
        entered.append(1)
        return nullcontext()

    pass_over(site, [one], Silence(LIMIT), locked)
    now = site.store.attempt("a1")
    assert now is not None
    assert (now.phase, now.reason) == (phase, reason)
    assert len(entered) == 1
    assert "releasing its machines" in told[0]


def test_one_whose_rank_was_lost_is_released(site: Site, clock: list[float]) -> None:
    one = kept(site, states.RUNNING, states.RUNNING, phase=Phase.RUNNING)
    silence = Silence(LIMIT)
    pass_over(site, [one], silence, lambda: nullcontext())
    clock[0] += LIMIT / 2
    site.store.set_node("a1", 0, heard_at=NOW + timedelta(seconds=30))
    pass_over(site, [one], silence, lambda: nullcontext())
    clock[0] += LIMIT / 2 + 1
    pass_over(site, [one], silence, lambda: nullcontext())
    now = site.store.attempt("a1")
    assert now is not None
    assert (now.phase, now.reason, now.message) == (Phase.FAILED, "unhealthy", "rank 1 was lost")


def test_one_that_calls_again_while_the_lock_is_waited_for_is_not_released(site: Site, clock: list[float]) -> None:
    one = kept(site, states.RUNNING, phase=Phase.RUNNING)
    silence = Silence(LIMIT)
    pass_over(site, [one], silence, lambda: nullcontext())
    clock[0] += LIMIT + 1

    def locked() -> nullcontext[None]:
        site.store.set_node("a1", 0, heard_at=NOW + timedelta(seconds=30))
        return nullcontext()

    pass_over(site, [one], silence, locked)
    now = site.store.attempt("a1")
    assert now is not None
    assert now.phase is Phase.RUNNING


@pytest.mark.parametrize("phase", [Phase.PLANNED, Phase.PROVISIONING, Phase.RELEASING, Phase.FINISHED, Phase.FAILED])
def test_what_another_is_at_work_on_is_left_alone(site: Site, clock: list[float], phase: Phase) -> None:
    one = kept(site, states.RUNNING, phase=phase)
    silence = Silence(LIMIT)

    def locked() -> nullcontext[None]:
        raise AssertionError("nothing to change")

    for _ in range(3):
        pass_over(site, [one], silence, locked)
        clock[0] += 2 * LIMIT
