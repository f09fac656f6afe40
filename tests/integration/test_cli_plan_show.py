"""``stepfare plan show`` of a part of a plan, and its sums: nothing is counted twice and nothing is left out."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from router.app.state_restoration import DEMO_AT, write_demo_home
from router.controller.plans import last_plan
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_to_json
from router.planning.document.plan_names import NIGHT
from router.state.store import StateStore
from tests.support.command import run


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan]:
    """The demo's night, as a file and as a plan."""
    folder = tmp_path_factory.mktemp("plan")
    write_demo_home(folder / "home")
    with StateStore.open(f"sqlite:///{folder}/home/state.db", now=DEMO_AT) as store:
        plan = last_plan(store, NIGHT, DEMO_AT)
    assert plan is not None
    file = folder / "plan.json"
    file.write_text(plan_to_json(plan), encoding="utf-8")
    return file, plan


@pytest.mark.parametrize("by", ["team", "pool"])
def test_sums_come_to_the_total(stored: tuple[Path, Plan], by: str) -> None:
    file, plan = stored
    rows = json.loads(run("plan", "show", file, "--group-by", by, "-o", "json").stdout)
    assert sum(Decimal(row["cost_usd"]) for row in rows) == Decimal(str(plan.cost_usd))
    assert {name for row in rows for name in row["jobs"]} == {line.job for line in plan.lines}
    hours = sum(float(line.hours) * line.accelerators for line in plan.lines)
    assert sum(row["gpu_hours"] for row in rows) == pytest.approx(hours, rel=1e-9)


def test_one_team_has_its_own_jobs_and_its_share_of_the_total(stored: tuple[Path, Plan]) -> None:
    file, plan = stored
    own = [job for job in plan.jobs if job.team == "research"]
    found = run("plan", "show", file, "--team", "research")
    assert found.exit_code == 0
    shown = [line.split()[0] for line in found.stdout.splitlines()[1 : 1 + len(own)]]
    assert sorted(shown) == sorted(job.job[:19] for job in own)
    assert f"{len(own)} of {len(plan.jobs)} jobs: $" in found.stdout
    sums = json.loads(run("plan", "show", file, "--team", "research", "--group-by", "team", "-o", "json").stdout)
    assert [Decimal(row["cost_usd"]) for row in sums] == [sum(Decimal(str(job.cost_usd)) for job in own)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--team", "reserch"), "the plan has no reserch\n    it has research"),
        (("--job", "nobody"), "the plan has no nobody\n    it has "),
        (("--team", "research", "-o", "gantt"), "gantt shows a plan whole"),
    ],
)
def test_what_the_plan_does_not_have_is_refused(stored: tuple[Path, Plan], words: tuple[str, ...], said: str) -> None:
    found = run("plan", "show", stored[0], *words)
    assert found.exit_code == 2
    assert said in found.stderr
