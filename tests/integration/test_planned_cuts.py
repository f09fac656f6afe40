"""Planned cost of a job counts as far as its costs do: once under plans that follow each other, and for a gang that
runs until its metered or invoiced time ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from pricing.places import Market
from router.app.budgets import BooksFolders, spent_now
from router.app.close_month import make_seal
from router.app.month_books import month_costs, open_month_books
from router.app.reconcile import reconcile_month
from router.controller.plans import Order
from router.controller.provision.provision_order import ProvisionStatus, existing_result
from router.jobs.spec import Job
from router.ledger.entry import CostBasis
from router.ledger.month import Month
from router.showback.bill_import import import_bills
from router.showback.bill_store import BillStore
from router.showback.report.query import ReportQuery
from tests.support.made_up_bill import Account, of_attempt, write_bill
from tests.support.made_up_jobs import simple_job
from tests.support.metered_stage import HOUR, Life, Place, Stage, planned, stage

NOVEMBER = Month(2026, 11)
EAST = Place("aws", "us-east-1", "us-east-1a", "p5", Market.ON_DEMAND, "10", "10")
START = datetime(2026, 11, 10, tzinfo=UTC)
AWS = Account(issuer="Made-up AWS", provider="AWS", number="1", sub_account="2", month=NOVEMBER, invoice="M-1")


@pytest.fixture
def playing(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path / "home", START) as made:
        yield made


def job(name: str = "train") -> Job:
    return simple_job(name, ("H100", 8), steps=1000, steps_per_hour=100, team="speech", run={"command": "train"})


def accept(playing: Stage, hour: float, begins: float, hours: int, name: str = "train") -> str:
    """Accept, at that hour of the story, a plan whose line begins at that hour and costs 10 an hour."""
    line = planned(job(name), EAST, START + begins * HOUR, hours, steps=1000)
    return playing.accept(START + hour * HOUR, [job(name)], [line])


def live(playing: Stage, plan: str, begins: float, ends: float | None, name: str = "train", reason: str = "") -> str:
    life = Life(
        made=START + begins * HOUR,
        met=START + begins * HOUR,
        gone=None if ends is None else START + ends * HOUR,
        ended=None if ends is None else START + ends * HOUR,
        reason=reason or "finished",
    )
    return playing.run(plan, job(name), EAST, life).id


def month(playing: Stage, hour: float, as_of: float | None = None) -> tuple[object, object]:
    """Return what November's books have as planned and as spent at that hour: the same in every place that says it."""
    at, folder = START + hour * HOUR, playing.site.runs.parent
    moment = None if as_of is None else START + as_of * HOUR
    extracts, bills = folder / "extract", folder / "bills"
    asked = ReportQuery(month=NOVEMBER, now=at, as_of=moment)
    with open_month_books(playing.store, asked, extracts, bills) as books:
        (row,) = books.rollups.ask(
            "SELECT coalesce(sum(effective) FILTER (source = 'planned'), 0) AS planned, "
            f"coalesce(sum(effective) FILTER (source <> 'planned'), 0) AS spent FROM sums WHERE month = '{NOVEMBER}'"
        )
    costs, _ = month_costs(playing.store, [NOVEMBER], extracts, bills, basis="effective", now=at, as_of=moment)
    listed = costs[NOVEMBER]
    assert (listed.planned.get("USD", 0), listed.spent.get("USD", 0)) == (row["planned"], row["spent"])
    matched = reconcile_month(playing.store, extracts, bills, NOVEMBER, CostBasis.EFFECTIVE, at, moment)
    planned_there = [each.money or Decimal(0) for each in matched.grains if each.side == "planned"]
    assert sum(planned_there, Decimal(0)) == row["planned"]
    return row["planned"], row["spent"]


@pytest.mark.slow
def test_a_plan_accepted_later_takes_a_job_over(playing: Stage) -> None:
    """Two nights plan a job that waits: ten hours twice, of which it needs one; another job is not touched."""
    accept(playing, 0, 1, 10)
    accept(playing, 0, 1, 10, name="other")
    assert month(playing, 24) == (200, 0)
    later = accept(playing, 5, 6, 10)
    assert month(playing, 5.5) == (40 + 45, 0)  # from its acceptance on
    assert month(playing, 24) == (40 + 100 + 100, 0)
    live(playing, later, 6, 15)
    assert month(playing, 24) == (40 + 100 + 100, 90)
    assert month(playing, 24, as_of=4) == (200, 0)  # what was known before


def test_a_plan_of_a_run_that_ended_stays_whole(playing: Stage) -> None:
    """A job of that name is run again while the first plan would still have been at work."""
    first = accept(playing, 0, 0, 10)
    live(playing, first, 0, 4)
    second = accept(playing, 5, 5, 10)
    live(playing, second, 5, 10)
    assert month(playing, 24) == (200, 90)


def test_a_job_that_runs_is_planned_where_it_runs(playing: Stage) -> None:
    first = accept(playing, 0, 0, 30)
    live(playing, first, 0, None)
    entries = playing.store.ledger.head()
    assert accept(playing, 24, 24, 6) != first
    assert playing.store.ledger.head() == entries
    assert playing.store.plans.plan(first) is not None


@pytest.mark.slow
def test_a_gang_that_runs_is_compared_as_far_as_it_is_metered(playing: Stage) -> None:
    """Its first life was taken after four hours; the second runs, and is in no entry."""
    plan = accept(playing, 0, 0, 30)
    live(playing, plan, 0, 4, reason="interrupted")
    assert month(playing, 5) == (50, 40)  # it waits
    live(playing, plan, 6, None)
    assert month(playing, 20) == (60, 40)
    assert month(playing, 40) == (60, 40)  # past the end of its line, too
    assert month(playing, 20, as_of=5.5) == (200, 40)  # the second life was not known


def bill_of(playing: Stage, name: str) -> Path:
    """A bill of the first eight hours of an attempt, 11 an hour."""
    attempt = playing.store.attempts.get(name)
    assert attempt is not None
    (node,) = playing.store.attempts.nodes(attempt.id)
    rows = [
        AWS.used(
            START + hour * HOUR,
            START + (hour + 1) * HOUR,
            "1",
            "Hours",
            "11",
            ("Compute", "Virtual Machines", "Machines"),
            "p5",
            ResourceId=node.machine_id or "",
            Tags=of_attempt(attempt),
        )
        for hour in range(8)
    ]
    path = playing.site.runs.parent / "bill.csv"
    write_bill(path, rows)
    return path


@pytest.mark.slow
def test_what_bills_have_of_a_gang_that_runs_is_compared(playing: Stage) -> None:
    plan = accept(playing, 0, 0, 30)
    bill, folder = bill_of(playing, live(playing, plan, 0, None)), playing.site.runs.parent
    before = month(playing, 20)
    import_bills([bill], BillStore(folder / "bills"), START + 20 * HOUR)
    assert (before, month(playing, 20)) == ((0, 0), (80, 88))
    # The budget counts those eight hours once: as billed, and the twelve after them at the machine's price.
    places = BooksFolders(folder / "extract", folder / "bills")
    spent = spent_now(playing.store, NOVEMBER, START + 20 * HOUR, places)
    assert [usd.dollars() for usd in spent.values()] == [88 + 120]


@pytest.mark.slow
def test_a_gang_that_runs_over_a_closed_month_has_one_planned_cost(playing: Stage) -> None:
    """As `ledger close --anyway` leaves it: the list of months says what the closed month's report says."""
    plan = accept(playing, 0, 0, 30)
    bill, folder = bill_of(playing, live(playing, plan, 0, None)), playing.site.runs.parent
    december = (NOVEMBER.ends - START) / HOUR + 48
    at, extracts, bills = START + december * HOUR, folder / "extract", folder / "bills"
    import_bills([bill], BillStore(bills), at)
    draft = make_seal(playing.store, extracts, bills, NOVEMBER, at)
    playing.store.periods.close(NOVEMBER, who="ana", at=at, seal=draft.seal, head=draft.head)
    assert month(playing, december + 1) == (80, 88)


def test_a_run_that_another_plan_finished_is_not_run_again(playing: Stage) -> None:
    """Two plans of one evening order a job; the later one runs it, then the earlier one is applied again."""
    earlier = accept(playing, 0, 8, 4)
    later = accept(playing, 1, 1, 4)
    live(playing, later, 1, 5)
    (line,) = [planned(job(), EAST, START + 8 * HOUR, 4, steps=1000)]
    order = Order("train", "train/0", line.start, line.end, (line,))
    playing.now = START + 6 * HOUR
    done = existing_result(playing.site, earlier, order, START)
    assert done is not None
    assert (done.result, done.attempt and done.attempt.plan) == (ProvisionStatus.DONE, later)
    # A plan of the next evening runs the job of that name anew.
    assert existing_result(playing.site, "next", replace(order, start=playing.now), playing.now) is None
    entries = playing.store.ledger.head()
    accept(playing, 0, 8, 5)
    assert playing.store.ledger.head() == entries
