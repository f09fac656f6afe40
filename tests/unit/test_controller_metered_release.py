"""A gang that is released stands in the ledger as what its journal, its machines and its job say; once."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pricing.money import Usd
from router.controller.context import ControllerContext
from router.controller.release.release import release
from router.jobs.job_json import job_json
from router.ledger.entry import CostItem, MachineUse
from router.state.records import Phase
from tests.support.bare_site import bare_site
from tests.support.scenes import a_job
from tests.support.state_values import NOW, attempt, node

MINUTE = timedelta(minutes=1)
END = NOW + 70 * MINUTE
COPY = {"origin": "aws/us-west-2", "from": "a", "to": "b", "bytes": 10**9, "seconds": 3.0}


def gang(site: ControllerContext, **changes: Any) -> Any:
    """Two machines that met after 5 minutes and whose training crashed after 65, with 20 steps of 30 seconds lost."""
    lived: dict[str, Any] = {"made_at": NOW, "heard_at": END, "step": 160, "step_seconds": 30.0, "saved_step": 140}
    fields: dict[str, Any] = {"met_at": NOW + 5 * MINUTE, "result": "crashed", "result_at": NOW + 65 * MINUTE}
    one = attempt(phase=Phase.RUNNING, first_step=100, **{**fields, **changes})
    site.store.attempts.add(one, [node(**lived), node(rank=1, **lived)])
    return one


def uses(site: ControllerContext) -> dict[tuple[int | None, str], float]:
    """Minutes of each use, by rank."""
    return {
        (entry.rank, str(entry.use)): float(entry.hours * 60)
        for entry in site.store.ledger.entries()
        if entry.what is CostItem.MACHINE
    }


def test_the_journal_and_the_deadline_decide_what_the_time_was_for(tmp_path: Path) -> None:
    with bare_site(tmp_path, clock=lambda: END) as site:
        job = a_job("llama", deadline=(NOW + 40 * MINUTE).isoformat())
        site.store.plans.put_jobs({"j" * 64: job_json(job)}, NOW)
        one = gang(site)
        for rank, seconds in ((0, 50.0), (1, 60.0)):
            site.store.journal.note("a1", "saved", NOW, rank=rank, id="", saved_step=140, seconds=seconds)
        site.store.journal.note("a1", "provisioning", NOW, disk_gib=60)
        site.store.journal.note("a1", "copied", NOW + MINUTE, usd="0.02", **COPY)
        release(site, one, "failed", "")
        wanted = {
            "startup": 5,
            "work": 35,
            "overrun": 14,
            "checkpoint_overhead": 1,
            "restart_lost_work": 10,
            "idle_allocated": 5,
        }
        assert uses(site) == {(rank, use): minutes for rank in (0, 1) for use, minutes in wanted.items()}
        others = [entry for entry in site.store.ledger.entries() if entry.what is not CostItem.MACHINE]
        assert [(e.what, e.rank, float(e.quantity), e.unpriced, e.usd) for e in others] == [
            (CostItem.DISK, 0, 70.0, True, Usd(0)),
            (CostItem.DISK, 1, 70.0, True, Usd(0)),
            (CostItem.EGRESS, None, 1.0, False, Usd.parse("0.02")),
        ]
        assert sum(e.lost_steps for e in site.store.ledger.entries()) == 20
        assert sum(e.steps for e in site.store.ledger.entries()) == 40
        assert site.store.ledger.verify().problems == ()


@pytest.mark.parametrize("spec", [None, "{}", "not even JSON"])
def test_a_job_that_cannot_be_read_any_more_keeps_no_machine_out_of_the_ledger(
    tmp_path: Path, spec: str | None
) -> None:
    with bare_site(tmp_path, clock=lambda: END) as site:
        if spec is not None:
            site.store.plans.put_jobs({"j" * 64: spec}, NOW)
        assert release(site, gang(site), "failed", "").phase is Phase.FAILED
        assert uses(site)[0, MachineUse.WORK] == 50


CANARY = "canary-77ab"
BROKEN = f"CAST(x'{CANARY.encode().hex()}ff' AS TEXT)"


@pytest.mark.parametrize("statement", [f"UPDATE jobs SET spec = {BROKEN}", "UPDATE jobs SET spec = '{}'"])
def test_a_gang_whose_job_row_is_damaged_is_metered_by_its_plan(tmp_path: Path, statement: str) -> None:
    """Its machines are gone by then; nobody could meter them later."""
    told: list[str] = []
    with bare_site(tmp_path, told, clock=lambda: END) as site:
        plan = {"as_of": NOW.isoformat(), "jobs": [{"job": "llama", "deadline": (NOW + 40 * MINUTE).isoformat()}]}
        site.store.plans.put_plan("p" * 64, json.dumps(plan), NOW)
        site.store.plans.put_jobs({"j" * 64: job_json(a_job("llama"))}, NOW)
        with sqlite3.connect(tmp_path / "state.db") as connection:
            connection.execute(statement)
        assert release(site, gang(site), "failed", "").phase is Phase.FAILED
        assert (uses(site)[0, MachineUse.WORK], uses(site)[0, MachineUse.OVERRUN]) == (35, 15)
    (said,) = told
    assert "`stepfare state restore`" in said
    assert CANARY not in said


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE plans SET text = {BROKEN}",
        f"INSERT INTO journal SELECT max(seq) + 1, at, attempt, what, {BROKEN} FROM journal",
    ],
)
def test_other_rows_that_are_damaged_keep_no_machine_out_of_the_ledger(tmp_path: Path, statement: str) -> None:
    told: list[str] = []
    with bare_site(tmp_path, told, clock=lambda: END) as site:
        site.store.plans.put_plan("p" * 64, "{}", NOW)
        one = gang(site)
        site.store.journal.note("a1", "saved", NOW, rank=0, id="", saved_step=140, seconds=50.0)
        with sqlite3.connect(tmp_path / "state.db") as connection:
            connection.execute(statement)
        assert release(site, one, "failed", "").phase is Phase.FAILED
        assert sum(minutes for (rank, _), minutes in uses(site).items() if rank == 0) == 70
    assert any("`stepfare state restore`" in said for said in told)
    assert CANARY not in str(told)


def test_killed_after_the_ledger_what_is_heard_meanwhile_cuts_nothing_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bare_site(tmp_path, clock=lambda: END) as site:
        one = gang(site, result="", result_at=None)

        def note(_self: object, _id: str, what: str, *_: object, **__: object) -> None:
            if what == "released":
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(type(site.store.journal), "note", note)
            with pytest.raises(KeyboardInterrupt):
                release(site, one, "lost", "")
        before = site.store.ledger.entries()
        assert before
        assert {entry.use for entry in before} == {MachineUse.STARTUP, MachineUse.WORK, MachineUse.RESTART_LOST_WORK}
        site.store.attempts.update("a1", lambda a: replace(a, result="crashed", result_at=NOW + 30 * MINUTE))
        now = site.store.attempts.get("a1")
        assert now is not None
        assert release(site, now, "lost", "").phase is Phase.FAILED
        assert site.store.ledger.entries() == before


def test_a_gang_that_never_was_has_no_entry(tmp_path: Path) -> None:
    with bare_site(tmp_path, clock=lambda: END) as site:
        one = attempt(phase=Phase.PROVISIONING, made_at=NOW)
        site.store.attempts.add(one, [node(), node(rank=1)])
        site.store.journal.note("a1", "provisioning", NOW, disk_gib=60)
        release(site, one, "short", "none left")
        assert site.store.ledger.entries() == ()
