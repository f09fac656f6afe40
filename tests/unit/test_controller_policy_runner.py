"""What the policy is asked about gangs that run, and what it says."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from router.agent import protocol
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import resumable_histories
from router.controller.history.heartbeats import SLOW_OBSERVATIONS, take_snapshot
from router.controller.history.lifecycle import POSTPONED
from router.controller.provision import provision_order
from router.controller.provision.provision import ProvisionError
from router.controller.supervise.policy_runner import Advice, Adviser
from router.controller.supervise.replanner import TICK, Replanner
from router.faults.fault import STOPPED
from router.spot.policies.greedy import GreedyPolicy
from router.spot.policies.interface import MoveDecision, PolicyEvent, SaveDecision
from router.state.records import NoticeRecord, Phase
from tests.bench.storm import book, fill, site_of
from tests.support.bare_site import bare_site
from tests.support.new_state import open_state
from tests.support.state_values import NOW, attempt


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ControllerContext]:
    """A few gangs that run in one zone, and other places for them."""
    with open_state(tmp_path / "state.db", NOW) as store:
        fill(store, 12, 2)
        made = site_of(store, tmp_path)
        yield made


def asked(adviser: Adviser, site: ControllerContext) -> tuple[Advice, ...]:
    now = take_snapshot(site.store)
    return adviser.advise(now.alive, now)


def later(site: ControllerContext, by: timedelta) -> None:
    moment = site.clock() + by
    object.__setattr__(site, "clock", lambda: moment)


def test_a_gang_that_became_slow_is_saved_and_moved(site: ControllerContext) -> None:
    adviser = Adviser(Replanner(site, book), most_s=10.0)
    one = site.store.attempts.find()[0]
    site.store.attempts.set_node(one.id, 0, step=100, step_seconds=0.5)
    asked(adviser, site)
    later(site, TICK)
    asked(adviser, site)
    site.store.attempts.set_node(one.id, 1, step=110, step_seconds=2.0)
    found = []
    for _ in range(SLOW_OBSERVATIONS):
        later(site, TICK)
        found += [a for a in asked(adviser, site) if a.event is PolicyEvent.HEALTH]
    assert [(a.attempt.id, a.notice, type(a.decision)) for a in found] == [(one.id, None, SaveDecision)]


def test_a_hint_moves_a_gang_only_where_hints_are_heeded_and_not_to_and_fro(site: ControllerContext) -> None:
    first, second = site.store.attempts.find()[:2]
    for number, one in enumerate((first, second)):
        site.store.attempts.set_node(one.id, 0, step=10)
        notice = NoticeRecord(one.id, 0, f"n{number}", protocol.REBALANCE, "aws", None, "", site.clock())
        site.store.notices.add(notice)
    site.store.attempts.change(first, met_at=site.clock() - timedelta(hours=2), phase=Phase.RUNNING)
    site.store.attempts.change(second, met_at=site.clock() - timedelta(minutes=2), phase=Phase.RUNNING)
    heeds = Adviser(Replanner(site, book, GreedyPolicy(heeds_hints=True)), most_s=10.0)
    assert [(a.attempt.id, type(a.decision)) for a in asked(heeds, site)] == [(first.id, MoveDecision)]
    assert asked(heeds, site) == ()
    waits = Adviser(Replanner(site, book, GreedyPolicy()), most_s=10.0)
    assert not [a for a in asked(waits, site) if isinstance(a.decision, MoveDecision)]


@pytest.mark.slow
@pytest.mark.parametrize(("steps_done", "moves"), [(2000, False), (690, True)], ids=["as stated", "a third of it"])
def test_a_gang_slower_than_stated_leaves_spot_while_on_demand_is_in_time(
    site: ControllerContext, steps_done: int, moves: bool
) -> None:
    """Its 20,000 steps take 20 hours as stated and 59 as measured, of the 72 until its deadline; 63 to be sure."""
    one = site.store.attempts.find()[0]
    started = site.clock()
    # Two hours in which the gang was seen, and six more until the policy is asked.
    site.store.attempts.change(one, met_at=started)
    for rank in range(2):
        heard = started + timedelta(hours=2)
        site.store.attempts.set_node(one.id, rank, step=steps_done, step_seconds=7200 / steps_done, heard_at=heard)
    adviser = Adviser(Replanner(site, book), most_s=10.0)
    later(site, timedelta(hours=8))
    asked(adviser, site)
    later(site, TICK)
    decisions = []
    for _ in range(24):
        (found,) = (a for a in asked(adviser, site) if a.attempt.id == one.id)
        assert found.event is PolicyEvent.TICK
        decisions.append(found.decision)
        later(site, TICK)
    moved = [each for each in decisions if isinstance(each, MoveDecision)]
    assert bool(moved) == moves
    if moves:
        assert (moved[0].why, moved[0].late) == ("the last moment for on-demand", False)


_ERRAND: Any = type("AnErrand", (), {"order": None})()


@pytest.mark.parametrize(
    ("resumes", "told", "reason"),
    [("a1", True, POSTPONED), ("", True, "stopped"), ("a1", False, "stopped")],
    ids=["the watcher stops", "apply stops", "somebody released it"],
)
def test_a_job_whose_next_gang_was_being_made_goes_on_when_somebody_watches_again(
    resumes: str, told: bool, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provision_order, "provision", Mock(side_effect=ProvisionError(STOPPED, "stopped")))
    with bare_site(tmp_path, []) as site:
        site.store.attempts.add(attempt("a1", phase=Phase.FAILED, reason="lost", met_at=NOW, gone_at=NOW), [])
        one = attempt("a2", number=2, phase=Phase.PROVISIONING, resumes=resumes)
        site.store.attempts.add(one, [])
        if told:
            site.stop.set()
        outcome = provision_order._provision(site, _ERRAND, one, None)
        assert outcome.attempt is not None
        assert (outcome.attempt.phase, outcome.attempt.reason) == (Phase.FAILED, reason)
        assert bool(resumable_histories(site.store, [outcome.attempt], crashes=3)) is (reason == POSTPONED)
