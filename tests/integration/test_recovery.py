"""Gangs that train lose machines, and whoever looks after them dies: the job goes on elsewhere as if nothing had
happened."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from router.ledger.entry import LedgerEntryKind
from router.state.records import Phase
from tests.support.busy import eventually, on_a_busy_machine
from tests.support.deployed import ZONE_A, ZONE_B, NewSite, Site, planned
from tests.support.recovered import (
    JOB,
    alone,
    attempts,
    journal,
    set_off,
    sped_up,
    stop,
    taken_back,
    training,
    until_finished,
    until_step,
    watched,
    wrong,
)
from tests.support.seen_machines import SeenMachines
from tests.support.terraform_runs import needs_engine
from tests.support.training import metrics

pytestmark = [needs_engine, pytest.mark.slow]

STEPS, EVERY, STEP_S = 300, 60, 0.03
CALM = 500


@pytest.fixture
def site(base: Path, new_site: NewSite) -> Site:
    return new_site(planned(base, "recovered", training(STEPS, every=EVERY, step_s=STEP_S)))


@pytest.fixture
def longer(base: Path, new_site: NewSite) -> Site:
    return new_site(planned(base, "longer", training(CALM, every=EVERY, step_s=STEP_S)))


def test_a_gang_that_is_told_saves_and_goes_on_elsewhere_within_seconds(site: Site, base: Path) -> None:
    with SeenMachines() as seen_machines:
        watcher = watched(site)
        set_off(site)
        until_step(site, 70)
        began = time.monotonic()
        with taken_back(site, 1, 15) as taking:
            eventually(lambda: attempts(site)[-1].number == 2 and attempts(site)[-1].met_at is not None)
            moved_s = time.monotonic() - began
            eventually(lambda: taking.over)
        until_finished(site)
        stop(watcher)
        assert wrong(site, STEPS, alone(base, STEPS), seen_machines) == []
    first, second = attempts(site)
    assert moved_s < on_a_busy_machine(20)
    assert (first.phase, first.reason, second.phase) == (Phase.FAILED, "interrupted", Phase.FINISHED)
    assert (second.resumes, second.first_step) == (first.id, first.kept_step)
    answered = [entry for entry in journal(site, "saved") if entry.details["id"] == first.order_id]
    (left,) = journal(site, "leaving")
    assert answered
    assert all(entry.at < left.at for entry in answered[:1])
    with site.store() as store:
        zones = {one.id: {node.zone for node in store.attempts.nodes(one.id)} for one in (first, second)}
        by_attempt = {
            one.id: store.ledger.entries(kind=LedgerEntryKind.METERED, attempt=one.id) for one in (first, second)
        }
    assert zones == {first.id: {ZONE_A}, second.id: {ZONE_B}}
    steps = {name: (sum(e.steps for e in some), sum(e.lost_steps for e in some)) for name, some in by_attempt.items()}
    assert {name: {e.rank for e in some} for name, some in by_attempt.items()} == {first.id: {0, 1}, second.id: {0, 1}}
    # Told to stop, the training saved once more. On a busy machine its end may cut off the last of several such saves.
    lost = (first.last_step or 0) - second.first_step
    assert 0 <= lost <= 5
    assert steps == {first.id: (second.first_step, lost), second.id: (STEPS - second.first_step, 0)}
    assert STEPS <= len(metrics(site.folder / "checkpoints")) <= STEPS + lost


def test_of_two_watchers_one_acts_and_either_may_die(site: Site, base: Path) -> None:
    """The first one listens; when it is killed, the other does, at the same port, before anybody is missed."""
    with SeenMachines() as seen_machines:
        first, second = watched(site), watched(site)
        set_off(site)
        until_step(site, 40)
        first.process.kill()
        with taken_back(site, 0, 6):
            third = watched(site)
            until_finished(site)
        assert wrong(site, STEPS, alone(base, STEPS), seen_machines) == []
        stop(second)
        stop(third)
    assert [one.reason for one in attempts(site)] == ["interrupted", "finished"]
    assert len(journal(site, "leaving")) == 1
    assert "making" in second.err + third.err
    assert not ("making" in second.err and "making" in third.err)


def test_a_watcher_that_stood_still_takes_nobody_for_lost(longer: Site, base: Path) -> None:
    """For longer than ranks may be silent: while it was stopped nobody could call, either."""
    with SeenMachines() as seen_machines:
        watcher = watched(longer)
        set_off(longer)
        until_step(longer, 40)
        watcher.signal(signal.SIGSTOP)
        time.sleep(8)
        watcher.signal(signal.SIGCONT)
        with taken_back(longer, 1, 5):
            until_finished(longer)
        stop(watcher)
        assert wrong(longer, CALM, alone(base, CALM), seen_machines) == []
    assert [one.reason for one in attempts(longer)] == ["interrupted", "finished"]


def test_nobody_looks_for_ten_minutes(base: Path, tmp_path: Path) -> None:
    """The clock of the cloud runs fifty times as fast as life: twelve seconds are ten minutes. A machine is told
    meanwhile, the training saves, the machine goes; another job just goes on."""
    jobs = (
        training(STEPS, every=100_000, step_s=STEP_S),
        training(CALM, every=100_000, step_s=STEP_S, name="calm", place="calm/"),
    )
    site = planned(base, "unwatched", *jobs).site(tmp_path / "site")
    (site.folder / "calm").mkdir()
    fast = sped_up(site, 50)
    try:
        watcher = watched(site, environment=fast)
        set_off(site, environment=fast)
        until_step(site, 60)
        watcher.process.kill()
        watcher.process.wait()
        dead = time.monotonic()
        with taken_back(site, 1, 4) as taking:
            eventually(lambda: taking.over)
        saved = [json.loads(path.read_text()) for path in (site.folder / "checkpoints").glob("*.manifest.json")]
        assert [manifest["answers"] for manifest in saved] != []
        (asked,) = [manifest for manifest in saved if manifest["answers"]]
        time.sleep(max(0.0, 12 - (time.monotonic() - dead)))
        watcher = watched(site, environment=fast)
        eventually(lambda: all(one.phase.is_over for one in attempts(site)) and len(attempts(site)) == 3, 60)
        stop(watcher)
        assert wrong(site, STEPS, alone(base, STEPS)) == []
        assert wrong_of_calm(site, base) == []
    finally:
        site.end()
    by_job = {name: [one for one in attempts(site) if one.job == name] for name in (JOB, "calm")}
    assert [one.reason for one in by_job["calm"]] == ["finished"]
    first, second = by_job[JOB]
    assert second.reason == "finished"
    assert first.kept_step is not None
    assert first.kept_step >= asked["step"] > 0


def wrong_of_calm(site: Site, base: Path) -> list[str]:
    rows = metrics(site.folder / "calm" / "checkpoints")
    assert [row["step"] for row in rows] == list(range(1, CALM + 1))
    same = alone(base, CALM).losses
    return [f"step {row['step']}" for row in rows if same[row["step"]] != row["loss"]]
