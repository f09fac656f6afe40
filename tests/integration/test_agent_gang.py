"""Four agents as real processes: they meet, run, and say how it went; one that fails takes the others along."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from router.agent.protocol import CHOSEN_PORTS
from tests.support.agents import agents
from tests.support.coordinator import Coordinator

TOKEN = "token-of-the-attempt-5f3a"
SHOW = """python3 -c '
import json, os
names = "MASTER_ADDR MASTER_PORT NODE_RANK NNODES WORLD_SIZE RANK LOCAL_RANK PET_NNODES COLOUR SKYPILOT_NODE_RANK"
names += " SKYPILOT_NODE_IPS SKYPILOT_NUM_NODES SKYPILOT_NUM_GPUS_PER_NODE"
print(json.dumps({name: os.environ.get(name) for name in names.split()}))
'
"""


@pytest.mark.parametrize(("engine", "processes"), [("command", 1), ("torchrun", 8)])
def test_four_ranks_meet_run_and_end(tmp_path: Path, engine: str, processes: int) -> None:
    environment = {"plain": {"COLOUR": "blue"}}
    with (
        Coordinator(4, TOKEN).running() as coordinator,
        agents(
            tmp_path, coordinator, SHOW, engine=engine, processes_per_node=processes, environment=environment
        ) as ranks,
    ):
        assert [rank.end() for rank in ranks] == [0, 0, 0, 0]
    told = [json.loads(coordinator.text(rank)) for rank in range(4)]
    assert [json.loads(rank.log()) for rank in ranks] == told
    one = processes == 1
    assert told == [
        {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": told[0]["MASTER_PORT"],
            "NODE_RANK": str(rank),
            "NNODES": "4",
            "WORLD_SIZE": str(4 * processes),
            "RANK": str(rank) if one else None,
            "LOCAL_RANK": "0" if one else None,
            "PET_NNODES": None if one else "4",
            "COLOUR": "blue",
            "SKYPILOT_NODE_RANK": str(rank),
            "SKYPILOT_NODE_IPS": "\n".join(["127.0.0.1"] * 4),
            "SKYPILOT_NUM_NODES": "4",
            "SKYPILOT_NUM_GPUS_PER_NODE": str(processes),
        }
        for rank in range(4)
    ]
    assert int(told[0]["MASTER_PORT"]) in CHOSEN_PORTS
    for rank in range(4):
        (ended,) = coordinator.messages("ended", rank)
        assert (ended["state"], ended["reason"], ended["exit_code"], ended["signal"]) == ("ended", "finished", 0, None)
    assert coordinator.problems == []


def test_nobody_starts_before_all_are_there(tmp_path: Path) -> None:
    with (
        Coordinator(2, TOKEN).running() as coordinator,
        agents(tmp_path, coordinator, "echo started", only=[0], gang_seconds=0.5) as ranks,
    ):
        assert ranks[0].end() == 3
        (ended,) = coordinator.messages("ended", 0)
        assert (ended["state"], ended["reason"]) == ("failed", "no_gang")
        assert "did not meet within 0.5 s" in ended["message"]
        assert ranks[0].log() == ""


def test_one_rank_fails_and_the_rest_are_stopped(tmp_path: Path) -> None:
    # By then the others run: one that is stopped before has no signal to tell of.
    command = 'if [ "$NODE_RANK" = 2 ]; then sleep 1; echo broken; exit 7; fi; exec sleep 60'
    with Coordinator(4, TOKEN).running() as coordinator, agents(tmp_path, coordinator, command) as ranks:
        assert [rank.end() for rank in ranks] == [143, 143, 1, 143]
    (failed,) = coordinator.messages("ended", 2)
    assert (failed["state"], failed["reason"], failed["exit_code"], failed["signal"]) == ("failed", "crashed", 7, None)
    assert coordinator.text(2) == failed["last_lines"] == "broken\n"
    for rank in (0, 1, 3):
        (ended,) = coordinator.messages("ended", rank)
        assert (ended["state"], ended["reason"], ended["signal"]) == ("ended", "stopped", signal.SIGTERM)
        assert "last_lines" not in ended


@pytest.mark.parametrize(("preflight", "code"), [("off", 0), ("warn", 0), ("require", 7)])
def test_a_machine_is_checked_before_it_says_hello(tmp_path: Path, preflight: str, code: int) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\n[ $# = 2 ] && echo 'NVIDIA H100 80GB HBM3, 580.1'\n")
    (tools / "nvidia-smi").chmod(0o755)
    more: dict[str, Any] = {"preflight": preflight, "accelerator": "H100", "gpus": True, "processes_per_node": 8}
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path, coordinator, "echo trained", path=str(tools), **more) as ranks,
    ):
        assert ranks[0].end() == code
        (ended,) = coordinator.messages("ended")
        if code:
            assert (ended["state"], ended["reason"]) == ("failed", "unfit")
            assert ended["message"] == "gpus: 1 of 8 accelerators are there"
            assert coordinator.messages("hello") == []
            assert ranks[0].log() == ""
            return
        checks = coordinator.messages("hello")[0]["preflight"]
        assert [check["name"] for check in checks] == ([] if preflight == "off" else ["gpus", "disk", "clock"])
        assert ranks[0].log() == "trained\n"


def test_a_killed_training_process_is_reported_with_its_signal(tmp_path: Path) -> None:
    with Coordinator(1, TOKEN).running() as coordinator, agents(tmp_path, coordinator, "kill -9 $$") as ranks:
        assert ranks[0].end() == 1
    (ended,) = coordinator.messages("ended")
    assert (ended["state"], ended["exit_code"], ended["signal"]) == ("failed", None, signal.SIGKILL)


def test_also_when_a_shell_stands_between(tmp_path: Path) -> None:
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path, coordinator, "sh -c 'kill -9 $$'; exit $?") as r,
    ):
        assert r[0].end() == 1
    (ended,) = coordinator.messages("ended")
    assert (ended["exit_code"], ended["signal"]) == (137, signal.SIGKILL)


@pytest.mark.parametrize("wrong", ["token", "rank_taken", "attempt_unknown"])
def test_a_rank_that_is_refused_starts_nothing(tmp_path: Path, wrong: str) -> None:
    theirs = Coordinator(1, TOKEN)
    with theirs.running():
        told: dict[str, Any] = {"attempt": "attempt-2"} if wrong == "attempt_unknown" else {}
        if wrong == "rank_taken":
            theirs.answer(
                "/v1/attempts/attempt-1/ranks/0/hello",
                f"Bearer {TOKEN}",
                json.dumps({"nodes": 1, "incarnation": "other", "address": "10.0.0.1", "master_port": 1}).encode(),
            )
        ours = Coordinator(1, "another-token" if wrong == "token" else TOKEN, url=theirs.url)
        with agents(tmp_path, ours, "echo started", **told) as ranks:
            assert ranks[0].end() == 5
        assert ranks[0].log() == ""
        assert f"refused: {wrong}" in ranks[0].log("agent.log")


def test_a_configuration_that_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path, coordinator, "true", grace_seconds=-1) as ranks,
    ):
        assert ranks[0].end() == 2
    assert (ranks[0].folder / "stderr").read_text() == "stepfare: grace_seconds: not between 0 and 10,000,000\n"
    assert coordinator.heard == []
