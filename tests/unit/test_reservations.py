"""Reservations have dates and a price: nothing runs on them outside, and nothing costs 0 without a word."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from providers.aws.parse.allowances import read_reservations
from providers.protocol import AccountAllowances, CapacityReservation
from router.controller.history.metering import TrainingRecord, cost_so_far, metered_entries, planned_entries
from router.controller.plans import orders_of
from router.controller.report.report import GangReport, StatusReport
from router.controller.workspace.placement_options import placements_of
from router.controller.workspace.workspaces import new_attempt
from router.jobs.limits import Limits, Reservation
from router.jobs.spec import Job
from router.ledger.entry import LedgerEntry
from router.planning.document.plan import Line, Plan
from router.planning.document.plan_json import plan_from_json, plan_to_json
from router.planning.find.candidates import CandidateFinder
from router.planning.planner import make_plan
from router.planning.problem.remaining_work import fits_reservations
from router.prices.read_limits import build_limits_file
from router.render.plan_text import table
from router.render.status_text import as_table
from router.showback.ledger_extract import facts_of_rows
from router.spot.venues import build_quote_options, unquotable_reason
from router.state.ledger_rows import BEGINNING, chain_rows, entry_values
from router.state.ledger_table import columns_from_rows
from tests.support.checker import check_plan
from tests.support.made_up_book import book
from tests.support.made_up_jobs import make_limits
from tests.support.new_state import open_state
from tests.support.scenes import LAKE, NORTH, NOW, a_job, a_request
from tests.support.state_values import attempt, node

BLOCK: dict[str, Any] = {
    "name": "block",
    "cloud": "aws",
    "region": "north-1",
    "instance_type": "p9.48xlarge",
    "machines": 1,
}
PRICED = {**BLOCK, "usd_per_hour": "30"}


def at(hours: float) -> str:
    return (NOW + timedelta(hours=hours)).isoformat()


def plan(job: Any, reservation: dict[str, Any], *offers: Any, **more: Any) -> Plan:
    limits = {"reservations": [reservation], **more}
    request = a_request([job], list(offers) or [NORTH], limits)
    made = make_plan(request)
    assert check_plan(made, request.jobs, request.book, request.limits, slot=request.slot) == []
    return made


def week() -> Job:
    return a_job(steps=100 * 24 * 7, deadline=None, max_wait="7d")


def reserved(made: Plan) -> list[Line]:
    return [line for line in made.lines if line.market == "reserved"]


def test_a_block_of_a_day_does_not_carry_a_job_of_a_week() -> None:
    """At $0.00 the whole week ran on it."""
    made = plan(week(), {**PRICED, "until": at(24)})
    assert made.unplaced == ()
    assert all(line.end <= NOW + timedelta(hours=24) for line in reserved(made))
    bought = [line for line in made.lines if line.market == "on_demand"]
    assert sum(float(line.hours) for line in bought) > 24 * 6 - 1
    assert made.cost_usd > Usd.parse("8000")  # six days at $60 an hour


def test_what_fits_runs_on_it_between_its_dates() -> None:
    made = plan(a_job(steps=300), {**PRICED, "from": at(2), "until": at(6.5)})
    (line,) = made.lines
    assert (line.market, line.start, line.cost_usd) == ("reserved", NOW + timedelta(hours=2), Usd(0))
    assert line.end <= NOW + timedelta(hours=6.5)
    assert (line.reservation_cost, line.amortised_usd_per_hour) == ("amortised", UsdPerHour.parse("30"))


def test_dates_off_the_grid_are_used_to_the_minute() -> None:
    """3.2 h of work between 13 minutes past and three and a half hours later."""
    made = plan(a_job(steps=300), {**PRICED, "from": at(13 / 60), "until": at(13 / 60 + 3.5)})
    (line,) = made.lines
    assert (line.market, line.start) == ("reserved", NOW + timedelta(minutes=13))


@pytest.mark.parametrize("dates", [{"until": 2}, {"from": 20}, {"from": -9, "until": -1}])
def test_what_does_not_fit_buys(dates: dict[str, float]) -> None:
    made = plan(a_job(steps=1500, deadline="+18h"), {**PRICED, **{k: at(v) for k, v in dates.items()}})
    assert all(line.end <= NOW + timedelta(hours=2) for line in reserved(made))
    assert any(line.market == "on_demand" for line in made.lines)
    if dates != {"until": 2}:
        assert reserved(made) == []


def test_a_job_that_cannot_resume_stays_off_a_block_that_ends_too_soon() -> None:
    made = plan(a_job(steps=300, checkpoint=None), {**PRICED, "until": at(2)})
    assert [line.market for line in made.lines] == ["on_demand"]


def test_only_a_block_that_is_too_short_is_said_so() -> None:
    made = plan(week(), {**PRICED, "until": at(24)}, LAKE, clouds=["aws"])
    (left,) = made.unplaced
    assert "fits only reservations, and within their dates 2," in left.reason


def test_an_alternative_says_until_when_it_is_there() -> None:
    made = plan(a_job(steps=1500, deadline="+18h", checkpoint=None), {**PRICED, "until": at(2)})
    lacks = {a.market: a.lacks for a in made.jobs[0].alternatives}
    assert (
        lacks["reserved"] == f"reserved until {NOW + timedelta(hours=2):%Y-%m-%d %H:%MZ}: too short for the whole of it"
    )


@pytest.mark.parametrize(
    ("more", "cost", "rate", "said"),
    [
        ({"usd_per_hour": "30"}, "amortised", UsdPerHour.parse("30"), "amortised at $30.00 an hour"),
        ({"sunk": True}, "sunk", UsdPerHour(0), "sunk: its price is not counted any more"),
        ({}, "unknown", None, "what it really costs is unknown"),
    ],
)
def test_it_never_costs_0_without_a_word(more: dict[str, Any], cost: str, rate: UsdPerHour | None, said: str) -> None:
    made = plan(a_job(steps=300), {**BLOCK, **more, "until": at(48)})
    (line,) = made.lines
    assert (line.reservation_cost, line.amortised_usd_per_hour, line.cost_usd) == (cost, rate, Usd(0))
    assert (made.jobs[0].usd_per_step is None) == (cost == "unknown")
    assert said in " ".join(table(made).split())
    text = plan_to_json(made)
    assert plan_from_json(text) == made
    (row,) = json.loads(text)["lines"]
    assert row["reservation_cost"] == cost
    assert row["amortised_usd_per_hour"] == (None if rate is None else str(rate))


def test_a_plan_without_reservations_has_the_bytes_of_before() -> None:
    text = plan_to_json(make_plan(a_request([a_job()], [NORTH, LAKE])))
    assert "reservation_cost" not in text
    assert plan_from_json(text).lines[0].reservation_cost == ""


def test_dates_and_cost_are_read_and_written() -> None:
    item = Reservation.model_validate({**BLOCK, "from": "2026-11-21T18:00Z", "until": "2026-11-22T11:30+00:00"})
    assert (item.start, item.until) == (
        datetime.fromisoformat("2026-11-21T18:00Z"),
        datetime.fromisoformat("2026-11-22T11:30Z"),
    )
    limits = make_limits({"reservations": [item.model_dump(by_alias=True)]})
    assert Limits.model_validate_json(limits.model_dump_json()) == limits
    costs: tuple[dict[str, Any], ...] = ({}, {"sunk": True}, {"usd_per_hour": 3})
    assert [Reservation.model_validate({**BLOCK, **more}).cost for more in costs] == ["unknown", "sunk", "amortised"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"from": at(5), "until": at(5)}, "ends before it begins"),
        ({"until": "2026-11-22"}, "no time zone"),
        ({"until": "+3h"}, "relative"),
        ({"usd_per_hour": 3, "sunk": True}, "has a price and is sunk"),
    ],
)
def test_a_reservation_that_cannot_be_is_refused(more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Reservation.model_validate({**BLOCK, **more})


def metered(**changes: Any) -> LedgerEntry:
    begun = NOW - timedelta(hours=4)
    one = node(
        "a-1",
        market=Market.RESERVED,
        made_at=begun,
        gone_at=NOW,
        on_demand_usd_per_hour=UsdPerHour.parse("60"),
        price_source="reservation block",
        **changes,
    )
    life = attempt("a-1", created_at=begun, start=begun, end=NOW)
    whole = TrainingRecord(begun, NOW, True, True, 0, 0, 0)
    (entry,) = metered_entries(life, [one], NOW, whole)
    return entry


def test_machines_are_metered_at_what_they_really_cost() -> None:
    """Not at 0.00 until a bill comes; and what nobody knows is marked, and in no sum."""
    known = metered(usd_per_hour=UsdPerHour.parse("30"), reservation_cost="amortised")
    assert (known.usd, known.usd_per_hour, known.unpriced) == (Usd.parse("120"), UsdPerHour.parse("30"), False)
    # Also one that was written down before costs of reservations were.
    for cost in ("unknown", ""):
        unknown = metered(usd_per_hour=UsdPerHour(0), reservation_cost=cost)
        assert (unknown.usd, unknown.usd_per_hour, unknown.unpriced) == (Usd(0), None, True)
    sunk = metered(usd_per_hour=UsdPerHour(0), reservation_cost="sunk")
    assert (sunk.usd, sunk.unpriced, sunk.price_source) == (Usd(0), False, "reservation block, sunk")


@pytest.mark.parametrize(
    ("cost", "rate", "effective", "on_demand"),
    [("amortised", "30", "120", "240"), ("unknown", "0", None, None), ("sunk", "0", "0", None)],
)
def test_showback_saves_against_that_price_alone(
    cost: str, rate: str, effective: str | None, on_demand: str | None
) -> None:
    """Against 0.00 it saved the whole on-demand price."""
    entry = metered(usd_per_hour=UsdPerHour.parse(rate), reservation_cost=cost)
    (fact,) = facts_of_rows(columns_from_rows(list(chain_rows([entry_values(entry)], 0, BEGINNING)))).to_pylist()
    known = tuple(None if text is None else Decimal(text) for text in (effective, on_demand))
    assert (fact["effective"], fact["on_demand"], fact["unpriced"]) == (*known, cost == "unknown")


@pytest.mark.parametrize(("cost", "rate"), [("amortised", "30"), ("sunk", "0"), ("unknown", "0")])
def test_what_is_planned_is_carried_to_the_machines(cost: str, rate: str, tmp_path: Path) -> None:
    prices: dict[str, dict[str, Any]] = {"amortised": {"usd_per_hour": "30"}, "sunk": {"sunk": True}, "unknown": {}}
    job = a_job(steps=300)
    made = plan(job, {**BLOCK, **prices[cost]})
    (order,) = orders_of(made)
    (choice,) = placements_of(order, made, job, {}, 1)
    (seat,) = choice.seats
    assert (seat.reservation_cost, seat.usd_per_hour) == (cost, UsdPerHour.parse(rate))
    assert (seat.max_usd_per_hour, choice.at_risk_usd) == (UsdPerHour(0), Usd(0))
    life, nodes = new_attempt("a-1", "p", order, choice, 1, job, job.digest, "token", NOW)
    with open_state(tmp_path / "state.db", NOW) as store:
        store.attempts.add_all([(life, nodes)])
        (record,) = store.attempts.nodes("a-1")
    assert (record.reservation_cost, record.unpriced) == (cost, cost == "unknown")
    (entry,) = planned_entries("p", [order], {"a": job}, {"a": job.digest}, NOW)
    assert (entry.usd, entry.unpriced) == (made.lines[0].amortised_usd or Usd(0), cost == "unknown")


def test_a_gang_is_not_placed_again_where_its_rest_does_not_fit() -> None:
    job = a_job(steps=300)
    for until, count in ((at(2), 1), (at(5), 2)):
        limits = make_limits({"reservations": [{**PRICED, "until": until}]})
        finder = CandidateFinder(book([NORTH]), limits, NOW, advisory=False)
        assert sum(fits_reservations(candidate, job, NOW) for candidate in finder.find(job)[0]) == count


def test_a_quote_has_no_venue_without_a_price_or_beyond_its_dates() -> None:
    job = a_job(steps=300)
    hours = (NOW, NOW + timedelta(hours=10))
    for more, count in (
        ({}, 0),
        ({"sunk": True}, 0),
        ({"usd_per_hour": "30"}, 1),
        ({"usd_per_hour": "30", "until": at(9)}, 0),
    ):
        limits = make_limits({"reservations": [{**BLOCK, **more}]})
        found = CandidateFinder(book([]), limits, NOW, advisory=False).find(job)[0]
        assert len(build_quote_options(job, found, limits, hours)) == count
        assert bool(unquotable_reason(found[0], hours)) == (count == 0)


def test_what_the_clouds_hold_becomes_reservations_with_dates() -> None:
    """A capacity block lost its dates here and was free for ever."""
    day = datetime(2026, 11, 22, 11, 30, tzinfo=UTC)
    block = CapacityReservation(
        "aws", "cr-block", "north-1", "north-1a", "p9.48xlarge", 4, 4, day, day + timedelta(days=1), prepaid=True
    )
    billed = CapacityReservation("aws", "cr-hourly", "north-1", "north-1a", "p9.48xlarge", 2, 1, None, None)
    found = build_limits_file({"aws": AccountAllowances(held=(block, billed))}, book([NORTH]))
    assert found["reservations"] == [
        {
            "name": "cr-block",
            "cloud": "aws",
            "region": "north-1",
            "zone": "north-1a",
            "instance_type": "p9.48xlarge",
            "machines": 4,
            "from": "2026-11-22T11:30:00Z",
            "until": "2026-11-23T11:30:00Z",
        },
        {
            "name": "cr-hourly",
            "cloud": "aws",
            "region": "north-1",
            "zone": "north-1a",
            "instance_type": "p9.48xlarge",
            "machines": 1,
            "usd_per_hour": "60.00",
        },
    ]
    assert [item.cost for item in make_limits(found).reservations] == ["unknown", "amortised"]


def test_a_capacity_block_of_ec2_ends_before_its_machines_are_ended() -> None:
    row = {
        "CapacityReservationId": "cr-1", "InstanceType": "p5.48xlarge", "State": "scheduled", "TotalInstanceCount": 4,
        "AvailableInstanceCount": 0, "StartDate": "2026-11-22T11:30:00+00:00", "EndDate": "2026-11-23T11:30:00+00:00",
        "ReservationType": "capacity-block",
    }  # fmt: skip
    (held,) = read_reservations("aws", "us-east-1", [row])
    assert (held.free, held.prepaid) == (4, True)
    assert (held.start, held.end) == (
        datetime(2026, 11, 22, 11, 30, tzinfo=UTC),
        datetime(2026, 11, 23, 11, tzinfo=UTC),
    )


@pytest.mark.parametrize(("cost", "rate", "said"), [("amortised", "30", "120.00"), ("unknown", "0", "unknown")])
def test_status_says_that_a_price_is_unknown(cost: str, rate: str, said: str) -> None:
    """Not $0.00 spent."""
    begun = NOW - timedelta(hours=4)
    life = attempt("a-1", created_at=begun, machines=1)
    one = node("a-1", market=Market.RESERVED, made_at=begun, usd_per_hour=UsdPerHour.parse(rate), reservation_cost=cost)
    gang = GangReport(life, (one,), cost_so_far([one], NOW), None)
    shown = as_table(StatusReport((gang,), gang.spent_usd, NOW))
    assert said in shown
    assert ("in no sum" in shown) == (cost == "unknown")
