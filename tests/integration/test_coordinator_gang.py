"""The packed node agent as real processes, before the real coordinator with its database."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from router.controller.workspace.bootstrap import CoordinatorEndpoint, pack_agent
from router.state.records import Phase
from tests.support.agents import agents
from tests.support.coordinations import TOKEN, Scene, scene
from tests.support.coordinator import Coordinator
from tests.support.narrowed import present
from tests.support.repository import ROOT

SECRET = "secret-canary-77b1e0"
SLOW = "for i in 1 2 3 4 5 6 7 8; do echo step $i; sleep 0.15; done"
# Lines, as many as the first argument says, then bytes that are not text; more than one piece of each.
OUTPUT = f"""output() {{ {sys.executable} -c '
import sys, time
for i in range(int(sys.argv[1])):
    sys.stdout.buffer.write(b"%05d " % i + b"x" * 9000 + b"\\n"); sys.stdout.flush(); time.sleep(0.03)
sys.stdout.buffer.write(b"\\xff\\x00" * 60000)
' $1; }}; output """
STEPS = "".join(f"step {i}\n" for i in range(1, 9))


def _is_whole(output: str, count: int) -> None:
    lines, _, rest = output.partition("\ufffd")
    assert lines == "".join(f"{i:05d} {'x' * 9000}\n" for i in range(count))
    assert rest == "\x00" + "\ufffd\x00" * 59_999


def _agents_are(*states: str) -> Callable[[Scene], bool]:
    return lambda gang: tuple(node.agent for node in gang.records) == states


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_gang_meets_runs_and_finishes(tmp_path: Path, nodes: int) -> None:
    command = "echo rank $NODE_RANK of $NNODES at $MASTER_ADDR"
    with scene(tmp_path, nodes) as gang, gang.serving(), agents(tmp_path / "a", gang.told, command) as ranks:
        assert [rank.end() for rank in ranks] == [0] * nodes
        assert gang.attempt.result == "finished"
        assert gang.attempt.met_at is not None
        for rank, node in enumerate(gang.records):
            assert gang.log(rank) == f"rank {rank} of {nodes} at 127.0.0.1\n" == ranks[rank].log()
            assert (node.agent, node.ended_reason, node.exit_code) == ("ended", "finished", 0)
            assert node.log_offset == node.log_size == len(gang.log(rank))
        assert len(gang.journal("hello")) == len(gang.journal("ended")) == nodes
        assert gang.journal("met") == [{"ranks": nodes}]


def test_one_rank_crashes_and_the_rest_are_stopped(tmp_path: Path) -> None:
    command = 'if [ "$NODE_RANK" = 2 ]; then echo broken; exit 7; fi; exec sleep 60'
    with scene(tmp_path, 4) as gang, gang.serving(), agents(tmp_path / "a", gang.told, command) as ranks:
        assert [rank.end() for rank in ranks] == [143, 143, 1, 143]
        assert gang.attempt.result == "crashed"
        assert [node.ended_reason for node in gang.records] == ["stopped", "stopped", "crashed", "stopped"]
        assert gang.log(2) == "broken\n"
        first = gang.journal("ended")[0]
        assert (first["rank"], first["exit_code"], first["result"]) == (2, 7, "crashed")


def test_a_machine_that_is_taken_ends_its_gang(tmp_path: Path) -> None:
    """The agent gets a SIGTERM that nobody ordered."""
    with scene(tmp_path, 2) as gang, gang.serving(), agents(tmp_path / "a", gang.told, "exec sleep 60") as ranks:
        gang.wait(_agents_are("running", "running"))
        ranks[1].process.terminate()
        assert [rank.end() for rank in ranks] == [143, 143]
        assert gang.attempt.result == "stopped"
        assert [note["ordered"] for note in gang.journal("ended")] == [False, True]


@pytest.mark.parametrize(("phase", "ended"), [(Phase.RELEASING, "stopped"), (Phase.FAILED, "")])
def test_a_release_stops_the_gang(tmp_path: Path, phase: Phase, ended: str) -> None:
    command = "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    with scene(tmp_path, 2) as gang, gang.serving(), agents(tmp_path / "a", gang.told, command) as ranks:
        gang.wait(lambda g: all("ready" in g.log(rank) for rank in range(2)))
        gang.phase(phase)
        assert [rank.end() for rank in ranks] == [143, 143]
        assert [node.ended_reason for node in gang.records] == [ended, ended]
        assert gang.attempt.result == ended
        assert all(rank.log().startswith("ready\n") and rank.log().endswith("saved\n") for rank in ranks)


def test_a_killed_agent_falls_silent_and_a_second_life_is_refused(tmp_path: Path) -> None:
    with scene(tmp_path, 2, write_seconds=0) as gang, gang.serving():
        with agents(tmp_path / "a", gang.told, "exec sleep 60") as ranks:
            gang.wait(_agents_are("running", "running"))
            ranks[0].process.kill()
            ranks[0].end()
            time.sleep(0.3)
            silent = gang.records[0].heard_at
            before = present(gang.records[1].heard_at)
            gang.wait(lambda g: (g.records[1].heard_at or before) > before)
            assert gang.records[0].heard_at == silent
            with agents(tmp_path / "b", gang.told, "echo started", only=[0]) as again:
                assert again[0].end() == 5
                assert again[0].log() == ""
                assert "refused: rank_taken" in again[0].log("agent.log")
            assert gang.attempt.result == ""
            gang.phase(Phase.RELEASING)
            assert ranks[1].end() == 143
        assert [node.ended_reason for node in gang.records] == ["", "stopped"]


def test_a_wrong_token_starts_nothing(tmp_path: Path) -> None:
    with scene(tmp_path, 1) as gang, gang.serving():
        told = Coordinator(1, "another-token", url=gang.url)
        with agents(tmp_path / "a", told, "echo started") as ranks:
            assert ranks[0].end() == 5
        assert "refused: token" in ranks[0].log("agent.log")
        assert gang.records[0].incarnation == ""


def test_a_gang_goes_on_through_restarts_of_the_coordinator(tmp_path: Path) -> None:
    with scene(tmp_path, 4) as gang:
        with gang.serving():
            pass
        with agents(tmp_path / "a", gang.told, SLOW, only=[0, 1]) as first:
            with gang.serving():
                gang.wait(lambda g: len(g.journal("hello")) == 2)
            with agents(tmp_path / "b", gang.told, SLOW, only=[2, 3]) as second:
                with gang.serving():
                    gang.wait(lambda g: g.attempt.met_at is not None)
                time.sleep(0.2)
                with gang.serving():
                    gang.wait(lambda g: "step 2" in g.log(0))
                met_at = gang.attempt.met_at
                time.sleep(0.3)
                with gang.serving():
                    assert [rank.end() for rank in (*first, *second)] == [0, 0, 0, 0]
        assert gang.attempt.result == "finished"
        assert gang.attempt.met_at == met_at
        assert [gang.log(rank) for rank in range(4)] == [STEPS] * 4
        assert len(gang.journal("met")) == 1


def test_output_arrives_whole_however_often_the_coordinator_goes_away(tmp_path: Path) -> None:
    """Also of bytes that are not text, and longer than a piece. Pieces whose answer was lost come twice."""
    with scene(tmp_path, 1) as gang:
        with gang.serving():
            pass
        with agents(tmp_path / "a", gang.told, f"{OUTPUT} 40") as ranks:
            dice = random.Random(7)
            while ranks[0].process.poll() is None:
                with gang.serving():
                    time.sleep(dice.uniform(0.05, 0.5))
            assert ranks[0].end() == 0
        _is_whole(gang.log(0), 40)
        assert gang.attempt.result == "finished"


@pytest.mark.slow
def test_a_coordinator_that_is_killed_at_any_moment_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with scene(tmp_path, 3) as gang:
        with gang.serving():
            pass
        command = [sys.executable, "-m", "tests.support.coordinations", str(tmp_path), str(gang.port)]
        dice = random.Random(11)
        with agents(tmp_path / "a", gang.told, f"{OUTPUT} 200", farewell_seconds=60) as ranks:
            with gang.serving():
                gang.wait(_agents_are("running", "running", "running"))
            for _ in range(8):
                with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as coordinator:
                    try:
                        assert coordinator.stdout is not None
                        assert coordinator.stdout.readline() == b"listening\n"
                        time.sleep(dice.uniform(0.02, 0.4))
                    finally:
                        coordinator.kill()
            with gang.serving():
                assert [rank.end(60) for rank in ranks] == [0, 0, 0]
        for rank in range(3):
            _is_whole(gang.log(rank), 200)
        assert gang.attempt.result == "finished"
        assert {node.ended_reason for node in gang.records} == {"finished"}


@pytest.mark.parametrize("engine", ["ray", "slurm"])
def test_agents_whose_leader_finishes_are_stopped(tmp_path: Path, engine: str) -> None:
    """The engine's programs are not needed for that: the agents run a plain command, the attempt has the engine."""
    command = 'if [ "$NODE_RANK" = 0 ]; then echo done; exit 0; fi; exec sleep 60'
    with scene(tmp_path, 3, engine=engine) as gang, gang.serving():
        with agents(tmp_path / "a", gang.told, command) as ranks:
            assert [rank.end() for rank in ranks] == [0, 143, 143]
        assert gang.attempt.result == "finished"


def test_no_token_and_no_secret_is_kept_or_said(tmp_path: Path) -> None:
    command = f"echo {TOKEN} $KEY; echo {TOKEN[:8]}; exec sleep 60"
    environment = {"secret": {"KEY": SECRET}}
    with scene(tmp_path, 2) as gang, gang.serving():
        with agents(tmp_path / "a", gang.told, command, environment=environment) as ranks:
            gang.wait(lambda g: bool(g.log(0) and g.log(1)))
            gang.phase(Phase.RELEASING)
            assert [rank.end() for rank in ranks] == [143, 143]
        kept = [path for path in tmp_path.rglob("*") if path.is_file() and "a" not in path.relative_to(tmp_path).parts]
        assert {path.name for path in kept} >= {"state.db", "rank-0.log", "rank-1.log"}
        for path in kept:
            content = path.read_bytes()
            assert TOKEN.encode() not in content, path
            assert SECRET.encode() not in content, path
        assert [gang.log(rank)[:8] for rank in range(2)] == ["*** ***\n"] * 2
        assert TOKEN not in json.dumps([gang.say(rank, "hello") for rank in range(3)])


def test_the_agent_that_machines_fetch_is_the_one_they_expect(tmp_path: Path) -> None:
    import hashlib
    import urllib.request

    agent = pack_agent()
    with scene(tmp_path, 1) as gang, gang.serving(agent):
        at = CoordinatorEndpoint(gang.url, hashlib.sha256(agent).hexdigest())
        with urllib.request.urlopen(at.agent_url) as answer:
            assert answer.read() == agent


def test_two_attempts_do_not_mix(tmp_path: Path) -> None:
    from tests.support.coordinations import gang_records

    with scene(tmp_path, 1) as gang, gang.serving():
        attempt, nodes = gang_records(1, name="attempt-2", token="token-canary-of-two")
        gang.store.attempts.add(replace(attempt, phase=Phase.READY), nodes)
        two = Coordinator(1, "token-canary-of-two", attempt="attempt-2", url=gang.url)
        with agents(tmp_path / "a", gang.told, "exit 3") as one, agents(tmp_path / "b", two, "echo two") as other:
            assert (one[0].end(), other[0].end()) == (1, 0)
        found = present(gang.store.attempts.get("attempt-2"))
        assert (gang.attempt.result, found.result) == ("crashed", "finished")
        assert (tmp_path / "logs" / "attempt-2" / "rank-0.log").read_text() == "two\n"


def test_ranks_that_speak_at_the_same_moment(tmp_path: Path) -> None:
    with scene(tmp_path, 24) as gang, ThreadPoolExecutor(24) as threads:
        for _ in range(3):
            list(threads.map(lambda rank: gang.say(rank, "hello"), range(24)))
        assert all(answer["go"] for _, answer in threads.map(lambda rank: gang.say(rank, "hello"), range(24)))
        assert gang.journal("met") == [{"ranks": 24}]
        assert sorted(str(note["host"]) for note in gang.journal("hello")) == sorted(f"host-{n}" for n in range(24))
        sent = [(rank, offset) for rank in range(24) for offset in (0, 5)] * 2
        list(threads.map(lambda one: gang.say(one[0], "logs", offset=one[1]), sorted(sent, key=lambda one: one[1])))
        list(threads.map(lambda one: gang.say(one[0], "heartbeat" if one[1] else "ended"), sent))
        assert gang.attempt.result == "finished"
        assert len(gang.journal("ended")) == 24
        assert {node.ended_reason for node in gang.records} == {"finished"}
        assert all(node.log_size == len(gang.log(node.rank)) for node in gang.records)
