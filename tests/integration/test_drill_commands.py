"""`stepfare drill` on gangs that were really applied to the sandbox: machines of theirs go as a cloud's do."""

from __future__ import annotations

import json
import shlex
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from providers.sandbox.stock import StockFile
from router.agent.helper.stepfare_checkpoint import Checkpoints
from tests.support.busy import eventually
from tests.support.deployed import ZONE_A, ZONE_B, NewSite, Site, job, planned
from tests.support.faults import directory
from tests.support.repository import ROOT
from tests.support.sandbox_nodes import marked
from tests.support.terraform_runs import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]

STEP_S = 0.05
_TRAINER = shlex.join([sys.executable, str(ROOT / "router" / "demo" / "train.py")])
TRAINING = (
    f"exec {_TRAINER} --steps 20000 --step-seconds {STEP_S} --checkpoint-every 100000"
    ' --checkpoint-dir "${STEPFARE_SANDBOX%/*}/checkpoints"'
)
OTHERS = "# what there is\nsandbox-east - h100.8x spot 0\n"


@pytest.fixture
def site(base: Path, new_site: NewSite) -> Site:
    site = new_site(planned(base, "drilled", job("train", TRAINING, machines=2)))
    (site.folder / "cloud").mkdir()
    (site.folder / "cloud" / "stock").write_text(OTHERS)
    return site


@pytest.fixture
def running(site: Site) -> Site:
    """One whose training runs, with two machines in the first zone; nobody watches it."""
    applied = site.apply()
    assert applied.code == 0, applied.err
    eventually(lambda: _step(site, 0) > 5 and _step(site, 1) > 5)
    return site


def _progress(site: Site, rank: int) -> dict[str, Any]:
    for path in directory(site).glob(f"nodes/*-{rank}/control/progress.json"):
        said: dict[str, Any] = json.loads(path.read_text())
        return said
    return {}


def _step(site: Site, rank: int) -> int:
    return int(_progress(site, rank).get("step", 0))


def _ranks(site: Site) -> set[str]:
    return {marks["STEPFARE_RANK"] for marks in marked().values() if marks.get("STEPFARE_STATE") == site.state}


def _outcomes(document: dict[str, Any]) -> dict[int, str]:
    return {machine["rank"]: machine["outcome"] for machine in document["machines"]}


def test_one_machine_is_switched_off_and_what_is_left_can_be_released(running: Site) -> None:
    wrong = running.run("drill", "kill-node", "train", "--rank", "7")
    assert (wrong.code, "rank 7 of train is not up; ranks 0, 1 are" in wrong.said) == (2, True)
    killed = running.run("drill", "kill-node", "train", "--rank", "1", "-o", "json")
    assert (killed.code, _outcomes(killed.json)) == (0, {1: "killed"})
    assert "rank 1 in sandbox-east-a was switched off" in killed.err
    assert _ranks(running) == {"0"}
    with running.store() as store:
        entry = store.audit.entries()[-1]
    (attempt,) = {machine["attempt"] for machine in killed.json["machines"]}
    assert (entry.what, entry.details["machines"]) == ("drill kill-node", [f"{attempt} 1"])
    gone = running.run("drill", "kill-node", "train", "--rank", "1")
    assert (gone.code, "rank 1 of train is not up; ranks 0 are" in gone.said) == (2, True)
    assert running.run("destroy", "--all", "--yes").code == 0
    assert _ranks(running) == set()
    over = running.run("drill", "kill-node", "train")
    assert (over.code, "train has no running attempt" in over.said) == (2, True)


def test_a_machine_that_is_told_saves_before_it_is_switched_off(running: Site) -> None:
    began = time.monotonic()
    drill = running.run("drill", "notice", "train", "--seconds", "5", "-o", "json")
    assert (drill.code, _outcomes(drill.json)) == (0, {0: "killed"})
    assert time.monotonic() - began >= 5
    assert "rank 0 in sandbox-east-a was told that it has 5 s" in drill.said
    good = Checkpoints(running.folder / "checkpoints", attempt="look").newest()
    assert good is not None
    assert json.loads(good.manifest.read_text())["answers"] == [f"{drill.json['id']}-0"]
    assert "0" not in _ranks(running)


def test_ctrl_c_leaves_the_machine_alive_and_a_false_alarm_hurts_nobody(running: Site) -> None:
    drill = running.start("drill", "notice", "train", "--all", "--seconds", "60", "-o", "json")
    notices = [directory(running) / "nodes" / name / "notice.json" for name in _names(running)]
    eventually(lambda: all(path.exists() for path in notices))
    drill.signal(signal.SIGINT)
    ran = drill.wait()
    assert (ran.code, _outcomes(ran.json), ran.json["interrupted"]) == (130, {0: "left", 1: "left"}, True)
    assert not any(path.exists() for path in notices)
    for words, kind in ((("--no-kill",), "interruption"), (("--rebalance",), "rebalance")):
        hint = running.run("drill", "notice", "train", "--rank", "1", *words, "-o", "json")
        assert (hint.code, _outcomes(hint.json), hint.json["kind"]) == (0, {1: "left"}, kind)
        assert json.loads(notices[1].read_text())["kind"] == kind
    assert _ranks(running) == {"0", "1"}
    # Nobody waits for a machine that is released meanwhile.
    drill = running.start("drill", "notice", "train", "--all", "--seconds", "120", "-o", "json")
    eventually(lambda: all(path.exists() and _drill(path) != hint.json["id"] for path in notices))
    assert running.run("destroy", "--all", "--yes").code == 0
    ran = drill.wait()
    assert (ran.code, _outcomes(ran.json)) == (0, {0: "released", 1: "released"})


def _drill(notice: Path) -> str:
    return str(json.loads(notice.read_text())["id"]).rpartition("-")[0]


def _names(site: Site) -> list[str]:
    return sorted(path.name for path in directory(site).glob("nodes/*"))


def test_a_zone_that_is_down_has_no_machine_and_sells_none(running: Site) -> None:
    stock = running.folder / "cloud" / "stock"
    unknown = running.run("drill", "zone-down", "sandbox-west-a")
    assert (unknown.code, f"zones and regions: sandbox-east, {ZONE_A}, {ZONE_B}" in unknown.said) == (2, True)
    assert stock.read_text() == OTHERS
    down = running.run("drill", "zone-down", "train", "-o", "json")
    assert (down.code, _outcomes(down.json), down.json["places"]) == (0, {0: "killed", 1: "killed"}, [ZONE_A])
    assert _ranks(running) == set()
    assert [one.place for one in StockFile(stock.parent).closed(time.time())] == [ZONE_A]
    assert running.run("destroy", "--all", "--yes").code == 0
    up = running.run("drill", "zone-up", "-o", "json")
    assert (up.code, up.json["places"], stock.read_text()) == (0, [ZONE_A], OTHERS)
    again = running.run("drill", "zone-up", ZONE_A)
    assert (again.code, f"{ZONE_A} is not closed nothing is closed" in again.said) == (2, True)


def test_a_zone_is_open_again_when_its_time_is_over_or_at_ctrl_c(site: Site) -> None:
    """Meanwhile a gang goes elsewhere."""
    stock = site.folder / "cloud" / "stock"
    down = site.start("drill", "zone-down", ZONE_A, "--for", "10m")
    eventually(lambda: "closed" in stock.read_text())
    applied = site.apply("-o", "json")
    assert applied.code == 0, applied.err
    with site.store() as store:
        (alive,) = store.attempts.find(alive=True)
        assert {node.zone for node in store.attempts.nodes(alive.id)} == {ZONE_B}
    down.signal(signal.SIGINT)
    ran = down.wait()
    assert (ran.code, stock.read_text()) == (130, OTHERS)
    assert f"open again: {ZONE_A}" in ran.err
    began = time.monotonic()
    short = site.run("drill", "zone-down", ZONE_A, "--for", "1500ms")
    assert (short.code, "is no duration" in short.said) == (2, True)
    short = site.run("drill", "zone-down", ZONE_A, "--for", "2s")
    assert (short.code, stock.read_text()) == (0, OTHERS)
    assert time.monotonic() - began >= 2
    assert _ranks(site) == {"0", "1"}


def test_a_machine_that_is_slow_says_so_by_the_seconds_of_its_steps(running: Site) -> None:
    done = running.folder / "checkpoints" / "metrics.jsonl"

    def pace(seconds: float) -> float:
        began, before = time.monotonic(), done.read_bytes().count(b"\n")
        time.sleep(seconds)
        return (time.monotonic() - began) / max(1, done.read_bytes().count(b"\n") - before)

    freely = pace(3)
    slow = running.start("drill", "slow-node", "train", "--for", "10s", "-o", "json")
    eventually(lambda: "is slowed down, 3 times" in slow.err)
    time.sleep(1.5)
    said, held = [], []
    for _ in range(3):
        held.append(pace(2))
        said.append(_progress(running, 0)["step_seconds"])
    ran = slow.wait()
    assert (ran.code, _outcomes(ran.json)) == (0, {0: "left"})
    assert 1.8 < statistics.mean(held) / freely < 5
    assert 1.5 < statistics.mean(said) / freely < 6
    assert pace(3) < 1.5 * freely + 0.02
