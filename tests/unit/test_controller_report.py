"""What runs and what it has cost so far."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pricing.money import Usd, UsdPerHour
from router.controller.context import ControllerContext
from router.controller.report.report import build_status_report, report_gang
from router.deploy.deploy_settings import Timeouts
from router.jobs.job_json import job_json
from router.render.status_text import as_json, as_wide
from router.spot.live.selection import default_run_policy
from router.spot.policies import Rule
from router.state.records import Phase
from tests.support.bare_site import bare_site
from tests.support.scenes import a_job
from tests.support.state_values import NOW, attempt, node

HOUR = timedelta(hours=1)
PLANS = ("a" * 64, "b" * 64)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ControllerContext]:
    """Two jobs: one failed and runs again under another plan, one is done twice over."""
    with bare_site(tmp_path) as made:
        for number, (name, job, plan, phase) in enumerate(
            [
                ("x1", "x", PLANS[0], Phase.FAILED),
                ("x2", "x", PLANS[1], Phase.RUNNING),
                ("y1", "y", PLANS[0], Phase.FINISHED),
                ("y2", "y", PLANS[1], Phase.FINISHED),
            ]
        ):
            one = attempt(name, job=job, plan=plan, phase=phase, created_at=NOW + number * HOUR)
            gone = None if phase is Phase.RUNNING else NOW + 2 * HOUR
            rate = UsdPerHour.parse("10")
            nodes = [
                node(name, 0, made_at=NOW, gone_at=gone, usd_per_hour=rate, agent="running", heard_at=NOW),
                node(name, 1, made_at=NOW + HOUR, gone_at=gone, usd_per_hour=rate, heard_at=None),
            ]
            made.store.attempts.add(one, nodes)
        yield made


def names(site: ControllerContext, *wanted: str, everything: bool = False) -> list[str]:
    return [
        gang.attempt.id
        for gang in build_status_report(site.store, wanted, NOW + 4 * HOUR, Timeouts(), everything=everything).gangs
    ]


def test_no_step_is_behind_the_one_that_is_saved() -> None:
    """A rank tells its step with its next heartbeat, and of a checkpoint at once."""
    one = replace(attempt("x", job="x"), first_step=40)
    late = node("x", 0, step=100, saved_step=117)
    assert (report_gang(one, (late,), NOW).step, report_gang(one, (late,), NOW).saved_step) == (117, 117)
    assert report_gang(one, (node("x", 0, saved_step=92), node("x", 1, step=100)), NOW).step == 100
    assert report_gang(one, (node("x", 0, step=None, saved_step=None),), NOW).step is None


def test_what_is_over_is_shown_once_a_job_unless_asked_for(site: ControllerContext) -> None:
    assert names(site) == ["x2", "y2"]
    assert names(site, everything=True) == ["x1", "x2", "y1", "y2"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (("x",), ["x1", "x2"]),
        (("y1",), ["y1"]),
        ((PLANS[0],), ["x1", "y1"]),
        ((PLANS[1][:12],), ["x2", "y2"]),
        (("x1", "y"), ["x1", "y1", "y2"]),
        (("nobody",), []),
        ((PLANS[0][:11],), []),
    ],
)
def test_by_job_attempt_or_plan(site: ControllerContext, wanted: tuple[str, ...], found: list[str]) -> None:
    assert names(site, *wanted) == found


def test_what_was_spent_adds_up(site: ControllerContext) -> None:
    told = build_status_report(site.store, (), NOW + 4 * HOUR, Timeouts(), everything=True)
    assert [str(gang.spent_usd) for gang in told.gangs] == ["30.00", "70.00", "30.00", "30.00"]
    assert told.spent_usd == Usd.parse(160) == Usd.total(gang.spent_usd for gang in told.gangs)


def test_who_calls_and_how_long_it_has_been_quiet(site: ControllerContext) -> None:
    told = {
        gang.attempt.id: gang
        for gang in build_status_report(site.store, (), NOW + 4 * HOUR, Timeouts(), everything=True).gangs
    }
    assert told["x2"].calling == 1
    assert told["x2"].quiet == 4 * HOUR
    assert told["x1"].quiet is None  # over
    site.store.attempts.set_node("x2", 1, heard_at=NOW + 3 * HOUR)
    site.store.attempts.set_node("x2", 0, heard_at=NOW + 2 * HOUR)
    (gang,) = build_status_report(site.store, ("x2",), NOW + 4 * HOUR, Timeouts(), everything=False).gangs
    assert gang.quiet == 2 * HOUR
    (gang,) = build_status_report(site.store, ("x2",), NOW + HOUR, Timeouts(), everything=False).gangs
    assert gang.quiet == timedelta(0)


def test_nobody_has_called_yet(site: ControllerContext) -> None:
    one = replace(attempt("z1"), phase=Phase.PROVISIONING)
    site.store.attempts.add(one, [node("z1")])
    (gang,) = build_status_report(site.store, ("z1",), NOW, Timeouts(), everything=False).gangs
    assert (gang.calling, gang.quiet, gang.spent_usd) == (0, None, Usd(0))


def test_a_gang_that_was_left_is_no_failure_and_its_job_waits(site: ControllerContext) -> None:
    """Until it goes on, or somebody stops it."""
    left = {"job": "w", "phase": Phase.FAILED, "met_at": NOW, "gone_at": NOW + HOUR, "created_at": NOW}
    nodes = [node("w1", 0, step=40, saved_step=30), node("w1", 1, step=41)]
    site.store.attempts.add(attempt("w1", reason="interrupted", **left), nodes)
    (gang,) = build_status_report(site.store, ("w",), NOW + 4 * HOUR, Timeouts(), everything=True).gangs
    assert (gang.state, gang.waits, gang.step, gang.saved_step) == ("waits", True, 41, 30)
    again = attempt("w2", number=2, **{**left, "phase": Phase.RUNNING, "gone_at": None, "created_at": NOW + HOUR})
    site.store.attempts.add(again, [node("w2", 0)])
    states = [
        g.state for g in build_status_report(site.store, ("w",), NOW + 4 * HOUR, Timeouts(), everything=True).gangs
    ]
    assert states == ["interrupted", "running"]


@pytest.mark.parametrize(
    ("rule", "days", "state"),
    [
        (Rule.FORESIGHT, 2, "waits"),
        (Rule.FORESIGHT, 4, "interrupted"),
        (Rule.GREEDY, 2, "interrupted"),
    ],
)
def test_a_job_that_waits_for_spot_by_its_policy_waits_until_its_deadline(
    site: ControllerContext, rule: Rule, days: int, state: str
) -> None:
    job = a_job("w", deadline="+3d")
    site.store.plans.put_jobs({job.digest: job_json(job)}, NOW)
    one = attempt(
        "w1",
        job="w",
        job_digest=job.digest,
        phase=Phase.FAILED,
        reason="interrupted",
        met_at=NOW,
        created_at=NOW,
        gone_at=NOW + HOUR,
        policy=default_run_policy(rule).text,
    )
    site.store.attempts.add(one, [node("w1", 0, step=40, saved_step=30)])
    (gang,) = build_status_report(site.store, ("w",), NOW + timedelta(days=days), Timeouts(), everything=True).gangs
    assert gang.state == state


def test_wide_status_and_json_show_how_often_a_gang_saves(site: ControllerContext) -> None:
    running = site.store.attempts.get("x2")
    assert running is not None
    site.store.attempts.change(running, checkpoint_seconds=1240.5)
    found = build_status_report(site.store, (), NOW + 9 * HOUR, Timeouts(), everything=True)
    last = as_wide(found).splitlines()[-2:]
    assert last[0].split() == ["ATTEMPT", "SAVES", "EVERY", "MIN"]
    assert last[1].split() == ["x2", "20.7"]
    by_name = {gang["attempt"]: gang["checkpoint_seconds"] for gang in json.loads(as_json(found))["gangs"]}
    assert by_name == {"x1": None, "x2": 1240.5, "y1": None, "y2": None}
