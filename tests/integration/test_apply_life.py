"""The life of applied gangs: again, side by side, followed and watched, stopped, destroyed; logs and status tell it."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from router.state.records import Phase
from tests.support.busy import eventually
from tests.support.deployed import NewSite, Site, Template, job, planned
from tests.support.deployed_checks import disagreements
from tests.support.faults import phase
from tests.support.seen_machines import SeenMachines
from tests.support.terraform_runs import needs_engine

pytestmark = needs_engine

GOOD = "echo rank $NODE_RANK of $NNODES; sleep 0.3"
BAD = "echo no checkpoint to be found >&2; exit 7"


@pytest.fixture(scope="module")
def two(base: Path) -> Template:
    return planned(base, "two", job("walk", machines=2))


@pytest.fixture(scope="module")
def good_and_bad(base: Path) -> Template:
    jobs = (job("bad", BAD, machines=2), job("good", GOOD, machines=2), job("stays", machines=2))
    return planned(base, "good-and-bad", *jobs)


@pytest.fixture
def site(two: Template, new_site: NewSite) -> Site:
    return new_site(two)


@pytest.fixture
def mixed(good_and_bad: Template, new_site: NewSite) -> Site:
    return new_site(good_and_bad)


def _gangs(text: str) -> Mapping[str, Mapping[str, Any]]:
    return {gang["job"]: gang for gang in json.loads(text)["gangs"]}


@pytest.mark.slow
def test_again_is_harmless_and_names_what_is_destroyed(site: Site) -> None:
    with SeenMachines() as seen_machines:
        first = site.apply("-o", "json", "--approve-above", "0.01", "--approved-by", "Ann")
        assert (first.code, _gangs(first.out)["walk"]["result"]) == (0, "ready")
        again = site.apply("-o", "json")
        assert (again.code, _gangs(again.out)["walk"]["result"]) == (0, "runs already")
        assert _gangs(again.out)["walk"]["attempt"] == _gangs(first.out)["walk"]["attempt"]
        assert disagreements(site, seen_machines) == []

        nobody = site.run("destroy", "nobody", "--yes")
        assert (nobody.code, "no plan, job or attempt is called nobody" in nobody.said) == (2, True)
        assert site.run("destroy", "--yes").code == 2
        unasked = site.run("destroy", "--all")
        assert (unasked.code, "nobody can be asked here" in unasked.said) == (2, True)
        gone = site.run("destroy", site.plan, "--yes")
        assert (gone.code, gone.out) == (0, "1 released\n")
        assert site.run("destroy", "walk", "--yes").out == "nothing runs that fits\n"
        assert disagreements(site, seen_machines) == []
    with site.store() as store:
        (attempt,) = store.attempts.find()
        assert (attempt.phase, attempt.reason) == (Phase.FAILED, "stopped")
        log = store.audit.entries()
        assert [(entry.what, entry.digest) for entry in log] == [
            ("apply", site.digest),
            ("apply", site.digest),
            ("destroy", ""),
        ]
        assert [entry.details.get("approved_by") for entry in log] == ["Ann", "", None]
        assert log[2].details["attempts"] == [attempt.id]
    told = site.run("audit")
    assert told.code == 0
    assert told.out.splitlines()[1].split()[-1] == "greedy"  # as the deploy file says
    over = [site.run("status", "--all", "-o", "json").json for _ in range(2)]
    assert over[0] | {"as_of": ""} == over[1] | {"as_of": ""}
    assert over[0]["gangs"][0]["policy"] == {
        "name": "greedy",
        "parameters": {"least_saving_share": 0.1, "least_saving_usd": 1},
    }
    assert over[0]["gangs"][0]["quoted_policy"] is None


@pytest.mark.slow
def test_a_job_that_ends_before_anybody_looks(base: Path, tmp_path: Path) -> None:
    site = planned(base, "quick", job("quick", "true", machines=2)).site(tmp_path / "site")
    try:
        assert site.apply().code == 0
        followed = site.apply("--follow")
        assert (followed.code, _phases(site)) == (0, {"quick": "finished"}), followed.err
        again = site.apply("-o", "json")
        assert (again.code, _gangs(again.out)["quick"]["result"]) == (0, "done already")
        assert disagreements(site) == []
    finally:
        site.end()


@pytest.mark.slow
def test_one_fails_one_ends_and_one_stays(mixed: Site) -> None:
    """Applied by a command that leaves; then somebody watches."""
    with SeenMachines() as seen_machines:
        assert mixed.apply().code == 0
        watch = mixed.start("watch")
        eventually(lambda: sorted(_phases(mixed).values()) == ["failed", "finished", "running"], 60)
        watch.signal(signal.SIGTERM)
        assert watch.wait().code == 130
        assert disagreements(mixed, seen_machines) == []
        assert _phases(mixed) == {"bad": "failed", "good": "finished", "stays": "running"}

        status = mixed.run("status", "-o", "json")
        found = _gangs(status.out)
        assert {name: gang["reason"] for name, gang in found.items()} == {
            "bad": "failed",
            "good": "finished",
            "stays": "",
        }
        assert "crashed with exit code 7" in found["bad"]["message"]
        assert [node["exit_code"] for node in found["good"]["nodes"]] == [0, 0]
        assert [node["agent"] for node in found["stays"]["nodes"]] == ["running", "running"]
        assert "nobody watches running gangs, which cost money: stays; run `stepfare watch`" in status.err
        with mixed.store() as store:
            metered = {(entry.attempt, entry.rank) for entry in store.ledger.entries() if entry.attempt}
        spent = {name: gang["spent_usd"] for name, gang in found.items()}
        assert len(metered) == 4
        assert all(float(usd) > 0 for usd in spent.values())

        assert mixed.run("logs", "good", "--rank", "1").out == "rank 1 of 2\n"
        both = mixed.run("logs", found["good"]["attempt"]).out
        assert both == "[0] rank 0 of 2\n[1] rank 1 of 2\n"
        assert "no checkpoint to be found" in mixed.run("logs", "bad", "--tail", "1").out
        assert mixed.run("logs", "good", "--rank", "2").code == 2

        # What ended well is done for its plan, what failed is tried again.
        again = _gangs(mixed.apply("-o", "json").out)
        assert {name: again[name]["result"] for name in ("good", "stays")} == {
            "good": "done already",
            "stays": "runs already",
        }
        assert again["bad"]["attempt"] != found["bad"]["attempt"]
        assert mixed.run("destroy", "bad", "stays", "--yes").code == 0
        assert disagreements(mixed, seen_machines) == []


def _phases(site: Site) -> Mapping[str, str]:
    with site.store() as store:
        return {attempt.job: attempt.phase.value for attempt in store.attempts.find()}


@pytest.mark.slow
def test_whoever_follows_may_leave_and_the_next_takes_over(site: Site) -> None:
    follow = site.start("apply", site.plan, "--yes", "--follow")
    eventually(lambda: phase(site.home) == "running", 60)
    follow.signal(signal.SIGINT)
    left = follow.wait()
    assert left.code == 130
    assert "no longer followed; running gangs continue: see `stepfare status`" in left.said
    assert disagreements(site) == []
    follow = site.start("apply", site.plan, "--yes", "--follow")
    eventually(lambda: "runs already" in follow.err, 60)
    assert site.run("destroy", "walk", "--yes").code == 0
    ended = follow.wait()
    assert ended.code == 5
    assert " failed\n" in ended.out  # as of the end
    assert disagreements(site) == []


@pytest.mark.slow
def test_two_at_once(site: Site) -> None:
    """The second is told who is at work; nothing is made twice, and nothing of it is on record."""
    with SeenMachines() as seen_machines:
        site.holds.put("apply")
        first = site.start("apply", site.plan, "--yes")
        eventually(lambda: site.holds.reached("apply"), 60)
        held = f"apply: held by process {first.process.pid} on "
        second = site.apply("--wait", "0s")
        assert second.code == 1
        assert held in second.said
        assert site.run("destroy", "--all", "--yes", "--wait", "1s").code == 1
        wrong = site.run("destroy", "--all", "--yes", "--wait", "soon")
        assert (wrong.code, "--wait" in wrong.said) == (2, True)
        patient = site.start("destroy", "walk", "--yes")
        eventually(lambda: held in patient.err and "waiting for it, 5m at most" in patient.err, 30)
        looked = site.run("sweep", "-o", "json")
        assert looked.code == 0
        assert "what it is at is left out" in looked.err
        assert [orphan for orphan in looked.json["orphans"] if orphan["ours"]] == []
        site.holds.free_all()
        assert first.wait().code == 0
        # What was being made when it was asked for is what it releases.
        released = patient.wait()
        assert (released.code, released.out) == (0, "1 released\n")
        assert disagreements(site, seen_machines) == []
    with site.store() as store:
        assert [entry.what for entry in store.audit.entries()] == ["apply", "destroy"]
        (attempt,) = store.attempts.find()
        assert attempt.phase is Phase.FAILED


@pytest.mark.slow
def test_what_starts_later_is_made_when_it_is_due(base: Path, tmp_path: Path) -> None:
    later = job("later", "true", machines=2, earliest_start="+40m")
    template = planned(base, "later", later)
    site = template.site(tmp_path / "site")
    try:
        early = site.apply()
        assert early.code == 0
        assert "not due yet" in early.out
        assert site.run("status").out.startswith("nothing was made yet")
        # Forty minutes less ten pass in ten seconds.
        fast = f"180@{datetime.now(UTC).isoformat(timespec='seconds')}"
        words = ("apply", site.plan, "--yes", "--follow")
        followed = site.run(*words, environment={**site.environment, "STEPFARE_CLOCK": fast})
        assert followed.code == 0, followed.err
        assert "1 gang to be made later: later at 20" in followed.err
        assert _phases(site) == {"later": "finished"}
        assert disagreements(site) == []
    finally:
        site.end()
