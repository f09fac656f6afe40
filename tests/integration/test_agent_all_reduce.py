"""Agents measure an all-reduce over their gang before it trains, and say what it gave."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import agents
from tests.support.coordinator import Coordinator
from tests.support.repository import ROOT

TOKEN = "token-of-the-attempt-5f3a"
STAND_IN = str(ROOT / "tests" / "support" / "torch_stand_in")
COMMAND = 'echo "trained with $(ls "$STEPFARE_CONTROL" | grep -c all-reduce)"'


def _environment(**plain: str) -> dict[str, Any]:
    return {"plain": {"PYTHONPATH": STAND_IN, **plain}}


def _measured(folder: Path, nodes: int = 2, **more: Any) -> tuple[list[int], Coordinator, list[str]]:
    with Coordinator(nodes, TOKEN).running() as coordinator, agents(folder, coordinator, COMMAND, **more) as ranks:
        codes = [rank.end() for rank in ranks]
    return codes, coordinator, [rank.log("agent.log") for rank in ranks]


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "processes"), [(2, 1), (3, 2)])
def test_the_bus_bandwidth_is_that_of_nccl_tests(tmp_path: Path, nodes: int, processes: int) -> None:
    environment = _environment(STAND_IN_GB_PER_S="0.05")
    more: dict[str, Any] = {"preflight": "require", "assumed_gb_per_s": 0.06, "processes_per_node": processes}
    codes, coordinator, notes = _measured(tmp_path, nodes, environment=environment, **more)
    assert codes == [0] * nodes, notes
    (said,) = coordinator.messages("measured")
    # An exchange of n ranks that takes bytes x 2(n-1)/n over the rate; a busy machine adds to that time.
    assert 0.03 <= said["gb_per_s"] <= 0.05
    assert (said["name"], said["problem"], said["assumed_gb_per_s"]) == ("all-reduce", "", 0.06)
    assert [coordinator.text(rank) for rank in range(nodes)] == ["trained with 1\n"] * nodes
    assert coordinator.problems == []


@pytest.mark.parametrize(("preflight", "code"), [("warn", 0), ("require", 7)])
def test_less_than_half_of_the_plan_is_said_or_ends_the_gang(tmp_path: Path, preflight: str, code: int) -> None:
    environment = _environment(STAND_IN_GB_PER_S="0.1")
    codes, coordinator, _ = _measured(tmp_path, preflight=preflight, assumed_gb_per_s=1.0, environment=environment)
    (said,) = coordinator.messages("measured")
    assert "less than half of the 1 GB/s that the plan assumes" in said["problem"]
    assert said["gb_per_s"] <= 0.1
    # Rank 0 is the one that knows; the other is stopped while it waits.
    assert codes == ([code, 143] if code else [0, 0])
    if code:
        (ended,) = coordinator.messages("ended", 0)
        assert (ended["reason"], ended["message"]) == ("unfit", f"all-reduce: {said['problem']}")
        assert [coordinator.text(rank) for rank in range(2)] == ["", ""]


def test_an_all_reduce_that_fails_is_a_fault_of_the_machines(tmp_path: Path) -> None:
    environment = _environment(STAND_IN_FAILS="yes")
    codes, coordinator, _ = _measured(tmp_path, preflight="require", assumed_gb_per_s=1.0, environment=environment)
    (said,) = coordinator.messages("measured")
    assert said["gb_per_s"] is None
    assert "failed over 2 machines: exit code 1: RuntimeError: NCCL error" in said["problem"]
    assert codes[0] == 7


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch is installed")
def test_without_torch_nothing_is_measured_and_it_is_said(tmp_path: Path) -> None:
    codes, coordinator, _ = _measured(tmp_path, preflight="require", assumed_gb_per_s=1.0)
    (said,) = coordinator.messages("measured")
    assert (said["gb_per_s"], said["problem"]) == (None, "")
    assert said["what"] == "not measured: the job's image has no torch"
    assert codes == [0, 0]


def test_torch_without_gpus_on_machines_with_gpus_measures_nothing(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\n[ $# = 2 ] && echo 'NVIDIA H100 80GB HBM3, 580.1'\n")
    (tools / "nvidia-smi").chmod(0o755)
    more: dict[str, Any] = {"preflight": "require", "gpus": True, "path": str(tools), "assumed_gb_per_s": 400.0}
    codes, coordinator, _ = _measured(tmp_path, environment=_environment(), **more)
    (said,) = coordinator.messages("measured")
    assert said["what"] == "not measured: torch in the job's image sees no GPUs"
    assert codes == [0, 0]


@pytest.mark.parametrize(("nodes", "preflight"), [(1, "require"), (2, "off")])
def test_one_machine_or_no_checks_measure_nothing(tmp_path: Path, nodes: int, preflight: str) -> None:
    codes, coordinator, _ = _measured(tmp_path, nodes, preflight=preflight, environment=_environment())
    assert coordinator.messages("measured") == []
    assert codes == [0] * nodes
    assert "measures" not in coordinator.messages("hello")[0]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_real_torch_measures_over_gloo(tmp_path: Path) -> None:
    codes, coordinator, notes = _measured(tmp_path, preflight="require")
    (said,) = coordinator.messages("measured")
    assert said["gb_per_s"] > 0, notes
    assert codes == [0, 0]
