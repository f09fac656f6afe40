"""Checkpoints that do not fit into a notice: the last good one counts, the loss is counted, the next interval is
shorter."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from router.state.records import Attempt
from tests.support import slow_saver
from tests.support.busy import eventually
from tests.support.deployed import NewSite, Site, Template, planned
from tests.support.deployed_checks import disagreements
from tests.support.recovered import (
    JOB,
    attempts,
    counted,
    lasting,
    repeated,
    set_off,
    stop,
    taken_back,
    until_finished,
    until_step,
    watched,
)
from tests.support.repository import ROOT
from tests.support.seen_machines import SeenMachines
from tests.support.terraform_runs import needs_engine
from tests.support.training import metrics

pytestmark = [needs_engine, pytest.mark.slow]

# Of steps there are so many that it still trains when a busy machine has at last heard of the unsaved ones.
STEPS, EVERY, UNSAVED = 700, 160, 10
_SAVER = shlex.join([sys.executable, str(ROOT / "tests" / "support" / "slow_saver.py")])


def saver(save_s: float, bytes_a_step: int, most: int = 0) -> str:
    """The training as a command; ``most``: in its first life no file of it may be larger, in bytes."""
    return f'exec {_SAVER} "${{STEPFARE_SANDBOX%/*}}/checkpoints" {STEPS} {EVERY} {save_s} {bytes_a_step} {most}'


def saving(base: Path, name: str, command: str) -> Template:
    return planned(base, name, lasting(JOB, command, STEPS, slow_saver.STEP_S, 1))


@pytest.fixture
def slow(base: Path, new_site: NewSite) -> Site:
    """Its checkpoints take two and a half seconds."""
    return new_site(saving(base, "slow-saver", saver(2.5, 0)))


@pytest.fixture
def growing(base: Path, new_site: NewSite) -> Site:
    """Its checkpoints can be written for a hundred and sixty steps and a little."""
    return new_site(saving(base, "growing", saver(0.0, 12_000, most=2_000_000)))


def until_unsaved(site: Site) -> int:
    """Until the coordinator knows of a checkpoint, and of steps that were done since; which one."""
    known = 0

    def heard() -> bool:
        nonlocal known
        with site.store() as store:
            (node,) = store.attempts.nodes(attempts(site)[-1].id)
        known = node.saved_step or attempts(site)[-1].first_step
        return known > 0 and (node.step or 0) >= known + UNSAVED

    eventually(heard, 60, why="for steps that are not saved")
    return known


def wrong(site: Site, seen_machines: SeenMachines) -> list[str]:
    """What is not as it has to be."""
    rows = metrics(site.folder / "checkpoints")
    last = {row["step"]: row["loss"] for row in rows}
    found = [] if last[STEPS] == slow_saver.digest_after(STEPS) else ["another end"]
    if sorted(last) != list(range(1, STEPS + 1)):
        found.append(f"steps are missing: {len(last)}")
    if any(last[row["step"]] != row["loss"] for row in rows):
        found.append("a step had two results")
    return [*found, *repeated(site, STEPS, rows), *disagreements(site, seen_machines)]


def test_a_checkpoint_that_takes_longer_than_there_is_time(slow: Site) -> None:
    with SeenMachines() as seen_machines:
        watcher = watched(slow)
        set_off(slow)
        until_unsaved(slow)
        with taken_back(slow, 0, 1.5):
            eventually(lambda: _is_elsewhere(slow, 2), 60)
        until_step(slow, attempts(slow)[-1].first_step + 20, attempts(slow)[-1].id)
        with taken_back(slow, 0, 1.5):
            eventually(lambda: _is_elsewhere(slow, 3), 60)
        until_finished(slow)
        stop(watcher)
        assert wrong(slow, seen_machines) == []
    first, second, third = attempts(slow)
    assert [first.kept_step, second.kept_step] == [second.first_step, third.first_step]
    # Whatever interval would have been best, it is halved each time that a notice was too short.
    assert first.checkpoint_seconds is not None
    assert second.checkpoint_seconds is not None
    assert second.checkpoint_seconds <= first.checkpoint_seconds / 2
    assert third.checkpoint_seconds == max(10.0, second.checkpoint_seconds / 2)
    _loss_is_told(slow, first)


def test_a_checkpoint_that_cannot_be_written(growing: Site) -> None:
    """The training says so at once, and the gang does not wait for its time to be over."""
    with SeenMachines() as seen_machines:
        watcher = watched(growing)
        set_off(growing)
        assert until_unsaved(growing) == EVERY
        with taken_back(growing, 0, 20) as taking:
            eventually(lambda: _is_elsewhere(growing, 2), 60)
            assert taking.over, "released before its time was over"
        until_finished(growing)
        stop(watcher)
        assert wrong(growing, seen_machines) == []
    first, second = attempts(growing)
    assert (first.kept_step, second.first_step) == (EVERY, EVERY)
    assert "File too large" in first.message
    assert f"step {EVERY} is what counts" in first.message
    _loss_is_told(growing, first)


def _is_elsewhere(site: Site, gangs: int) -> bool:
    found = attempts(site)
    return len(found) == gangs and found[-1].met_at is not None


def _loss_is_told(site: Site, *lossy: Attempt) -> None:
    with site.store() as store:
        assert counted(store)[1] >= sum((one.last_step or 0) - (one.kept_step or 0) for one in lossy) > 0
    told = {gang["attempt"]: gang for gang in json.loads(site.run("status", "--all", "-o", "json").out)["gangs"]}
    for one in lossy:
        assert told[one.id]["last_step"] - told[one.id]["kept_step"] > 0
