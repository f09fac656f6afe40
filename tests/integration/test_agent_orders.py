"""Agents that wait for orders: heard at once, whatever the heartbeat, and what a machine does while nobody answers."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from router.agent.helper.stepfare_checkpoint import Checkpoints
from router.coordinator.saves import save_answers
from router.state.records import Phase
from tests.support.agents import Rank, agents
from tests.support.busy import in_time, on_a_busy_machine
from tests.support.coordinations import ATTEMPT, Scene, scene
from tests.support.coordinator import Coordinator
from tests.support.metadata_service import MetadataService
from tests.support.narrowed import present

TOKEN = "token-canary-77e1"
# So that nothing is heard by heartbeats.
RARELY: dict[str, Any] = {"heartbeat_seconds": 600.0}
TRAINING = """
import os, pathlib, sys, time
import stepfare_checkpoint
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
root = pathlib.Path(sys.argv[1])
root.mkdir(exist_ok=True)
def agree(flag):
    global turn
    turn += 1
    (root / f"said-{turn}-{rank}").write_text(str(int(flag)))
    said = [root / f"said-{turn}-{other}" for other in range(world)]
    while not all(path.exists() and path.read_text() for path in said):
        time.sleep(0.002)
    return any(path.read_text() == "1" for path in said)
turn = 0
checkpoints = stepfare_checkpoint.Checkpoints(root / "saved", rank=rank, world=world, agree=agree, keep=50)
checkpoints.catch_sigterm()
step = 0
# All end after the same step: one that goes on would wait for the others.
while not agree((root / "enough").exists()):
    step += 1
    time.sleep(0.02)
    request = checkpoints.wanted(step)
    if request:
        checkpoints.save(step, lambda place: (place / "state").write_text(str(step)))
    checkpoints.progress(step, 10_000)
    if request and request.ends:
        break
"""


def _training(tmp_path: Path) -> tuple[str, Path]:
    """(command, its folder)."""
    program = tmp_path / "training.py"
    program.write_text(TRAINING)
    root = tmp_path / "run"
    return f"exec {shlex.join([sys.executable, str(program), str(root)])}", root


def _announce(rank: Rank, name: str, seconds: float = 30.0) -> None:
    new = rank.folder / "new"
    new.write_text(json.dumps({"kind": "interruption", "seconds": seconds, "id": name}))
    new.rename(rank.folder / "notice.json")


def _until(is_so: Callable[[], object], seconds: float = 20.0) -> float:
    """Seconds until that is so; fails the test otherwise."""
    began = time.monotonic()
    while not is_so():
        assert in_time(began, seconds)
        time.sleep(0.01)
    return time.monotonic() - began


def _running(gang: Scene, root: Path) -> None:
    gang.wait(lambda g: g.attempt.met_at is not None)
    gang.phase(Phase.RUNNING)
    _until(lambda: (root / "said-10-0").exists())


def test_what_one_machine_is_told_the_training_of_all_hears_at_once(tmp_path: Path) -> None:
    command, root = _training(tmp_path)
    with (
        scene(tmp_path, 3) as gang,
        gang.serving(),
        agents(tmp_path / "a", gang.told, command, metadata="files", **RARELY) as ranks,
    ):
        _running(gang, root)
        _announce(ranks[2], "drill-1")
        took = _until(lambda: len(save_answers(gang.store, ATTEMPT, "drill-1").ranks) == 3)
        found = save_answers(gang.store, ATTEMPT, "drill-1")
        assert gang.attempt.phase is Phase.NOTICED
        for rank in ranks:
            asked = json.loads((rank.folder / "control" / "request.json").read_text())
            assert (asked["id"], asked["reason"]) == ("drill-1", "interruption")
            assert 20.0 < asked["seconds"] <= 28.0
        # The order was heard, answered, and is asked for no more.
        time.sleep(1.0)
        (root / "enough").touch()
        assert [rank.end() for rank in ranks] == [0, 0, 0]
        # A rank may have saved, for the one that was told, before it heard of it by itself.
        answered = [entry["rank"] for entry in gang.journal("saved") if entry["id"]]
        assert (len(answered), set(answered)) == (3, {0, 1, 2})
        manifests = {entry["saved_manifest"] for entry in gang.journal("saved")}
    assert took < on_a_busy_machine(5.0)
    good = present(Checkpoints(root / "saved", attempt="look").newest())
    assert good.step == found.step
    assert str(good.manifest) in manifests
    assert len(good.files) == 3
    assert len(list((root / "saved").glob("*.manifest.json"))) == 1


def test_a_release_is_heard_at_once(tmp_path: Path) -> None:
    command, root = _training(tmp_path)
    with scene(tmp_path, 2) as gang, gang.serving(), agents(tmp_path / "a", gang.told, command, **RARELY) as ranks:
        _running(gang, root)
        began = time.monotonic()
        gang.phase(Phase.RELEASING)
        assert [rank.end() for rank in ranks] == [143, 143]
        assert in_time(began, 8.0)
    assert Checkpoints(root / "saved", attempt="look").newest() is not None


def test_one_that_waits_for_the_others_hears_it_too(tmp_path: Path) -> None:
    with (
        scene(tmp_path, 2, retry_seconds=15.0) as gang,
        gang.serving(),
        agents(tmp_path / "a", gang.told, "true", only=[1], **RARELY) as (rank,),
    ):
        gang.wait(lambda g: g.records[1].agent == "waiting")
        began = time.monotonic()
        gang.phase(Phase.RELEASING)
        assert rank.end() == 143
        assert in_time(began, 5.0)


def test_a_coordinator_that_does_not_know_the_question_orders_by_heartbeats(tmp_path: Path) -> None:
    command, _ = _training(tmp_path)
    with (
        Coordinator(1, TOKEN, knows_orders=False).running() as coordinator,
        agents(tmp_path / "a", coordinator, command) as (rank,),
    ):
        coordinator.wait(lambda c: any("step" in beat for beat in c.messages("heartbeat")))
        coordinator.checkpoint = {"id": "c-1", "seconds": 60.0}
        coordinator.wait(lambda c: bool(c.messages("saved")))
        coordinator.stops = {0}
        assert rank.end() == 143
    assert coordinator.problems == []


def test_a_coordinator_that_is_over_ends_the_training(tmp_path: Path) -> None:
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path / "a", coordinator, "exec sleep 60", **RARELY) as (rank,),
    ):
        coordinator.wait(lambda c: bool(c.messages("hello")))
        time.sleep(0.5)
        coordinator.over = True
        assert rank.end() == 143


@pytest.mark.slow
def test_while_nobody_answers_a_notice_is_saved_and_told_later(tmp_path: Path) -> None:
    """A heartbeat of 50 ms is missed 80 times and more: ten minutes are 60 of them at the usual pace."""
    command, root = _training(tmp_path)
    with (
        Coordinator(2, TOKEN).running() as coordinator,
        agents(tmp_path / "a", coordinator, command, metadata="files") as ranks,
    ):
        coordinator.wait(lambda c: any(beat.get("step", 0) > 5 for beat in c.messages("heartbeat")))
        with coordinator.away():
            _announce(ranks[1], "n-1")
            took = _until(lambda: list((root / "saved").glob("*.manifest.json")))
            time.sleep(4.0)
            assert [rank.process.poll() for rank in ranks] == [None, None]
            heard = len(coordinator.heard)
        coordinator.wait(lambda c: bool(c.messages("notice")) and bool(c.messages("saved", 1)))
        at = len(coordinator.heard)
        coordinator.wait(lambda c: any(h.what == "heartbeat" for h in c.heard[at:]))
        assert [rank.process.poll() for rank in ranks] == [None, None]
        (root / "enough").touch()
        assert [rank.end() for rank in ranks] == [0, 0]
    assert took < on_a_busy_machine(2.0)
    assert heard < at
    (saved,) = [body for body in coordinator.messages("saved", 1) if body["id"] == "n-1"]
    good = present(Checkpoints(root / "saved", attempt="look").newest())
    assert saved["manifest"] == str(good.manifest)
    assert coordinator.problems == []


def _azure(service: MetadataService) -> dict[str, Any]:
    return {"metadata": "azure", "metadata_url": service.url, "notice_poll_seconds": 0.05}


def test_azure_is_told_to_begin_once_the_coordinator_knows_of_the_checkpoint(tmp_path: Path) -> None:
    command, _ = _training(tmp_path)
    with (
        MetadataService().running() as service,
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path / "a", coordinator, command, **_azure(service)) as (rank,),
    ):
        coordinator.wait(lambda c: any("step" in beat for beat in c.messages("heartbeat")))
        with coordinator.away():
            service.machine.event("e-1", seconds=60.0)
            _until(lambda: list((tmp_path / "run" / "saved").glob("*.manifest.json")))
            time.sleep(1.0)
            assert service.machine.acknowledged == []
        _until(lambda: service.machine.acknowledged)
        assert [body["id"] for body in coordinator.messages("saved")] == ["e-1"]
        assert service.machine.acknowledged == ["e-1"]
        _until(lambda: "notice e-1: told the cloud that it may begin" in rank.log("agent.log"))


def test_or_that_there_will_be_none(tmp_path: Path) -> None:
    with (
        MetadataService().running() as service,
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path / "a", coordinator, "exec sleep 60", **_azure(service)),
    ):
        coordinator.wait_state("running")
        service.machine.event("e-1", seconds=3.0)
        coordinator.wait(lambda c: bool(c.messages("notice")))
        assert service.machine.acknowledged == []
        _until(lambda: service.machine.acknowledged)
    assert [body["failed"] for body in coordinator.messages("saved")] == ["late"]


def test_not_where_others_are_named_too_or_it_is_only_restarted(tmp_path: Path) -> None:
    command, _ = _training(tmp_path)
    with (
        MetadataService().running() as service,
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path / "a", coordinator, command, **_azure(service)),
    ):
        coordinator.wait(lambda c: any("step" in beat for beat in c.messages("heartbeat")))
        named: dict[str, dict[str, Any]] = {"e-1": {"resources": ("vm0", "vm1")}, "e-2": {"kind": "Reboot"}}
        for name, more in named.items():
            service.machine.event(name, seconds=60.0, **more)
            coordinator.wait(lambda c, name=name: any(b["id"] == name for b in c.messages("saved")))  # type: ignore[misc]
        time.sleep(0.5)
        assert service.machine.acknowledged == []


def test_what_it_goes_on_from_and_how_often_it_saves_reach_the_training(tmp_path: Path) -> None:
    command, root = _training(tmp_path)
    show = 'env | grep -E "STEPFARE_(RESUME|CHECKPOINT)" | sort; '
    more: dict[str, Any] = {"resume_step": 120, "resume_manifest": "s3://b/step 120.json", "checkpoint_seconds": 0.3}
    with (
        Coordinator(2, TOKEN).running() as coordinator,
        agents(tmp_path / "a", coordinator, show + command, **more) as ranks,
    ):
        _until(lambda: len(list((root / "saved").glob("*.manifest.json"))) >= 3)
        coordinator.wait(lambda c: len(c.messages("saved", 0)) >= 3)
        assert {body["id"] for body in coordinator.messages("saved")} == {""}
        assert coordinator.messages("saved", 1) == []
    assert ranks[0].log().splitlines()[:3] == [
        "STEPFARE_CHECKPOINT_SECONDS=0.3",
        "STEPFARE_RESUME_MANIFEST=s3://b/step 120.json",
        "STEPFARE_RESUME_STEP=120",
    ]
    assert not [name for name in os.environ if name.startswith("STEPFARE_RESUME")]
