"""Money that was planned and money that machines cost, to the nano-dollar."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import Usd, UsdPerHour
from router.controller.history.metering import cost_so_far, metered_entries, planned_entries
from router.controller.plans import orders_of
from router.ledger.entry import LedgerEntry, LedgerEntryKind, MachineUse
from router.ledger.month import Month
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content
from tests.support.made_up_book import offer
from tests.support.night import nightly_plan, nightly_request
from tests.support.scenes import NOW, a_job, plan_of
from tests.support.state_values import attempt, node

LATER = NOW + timedelta(hours=30)
OFFERS = (
    offer("aws/north-1", "p9.48xlarge", "spot", "24.000000007"),
    offer("aws/north-1", "p9.48xlarge", "on_demand", "60.000000001"),
)
JOBS = {
    name: a_job(name, steps=steps, cost_center=f"cc-{name}", project=f"for {name}", team=team, deadline="+24h")
    for name, steps, team in (("a", 300, "red"), ("b", 137, "blue"), ("c", 211, "red"))
}


def planned(plan: Plan, jobs: dict[str, Any], at: datetime = NOW) -> tuple[LedgerEntry, ...]:
    digests = {name: job.digest for name, job in jobs.items()}
    return planned_entries(plan_content(plan)["digest"], orders_of(plan), jobs, digests, at)


@pytest.fixture(scope="module")
def small() -> Plan:
    return plan_of(list(JOBS.values()), OFFERS)


def test_planned_entries_are_the_plans_orders_to_the_nano_dollar(small: Plan) -> None:
    entries = planned(small, JOBS)
    assert small.moves == ()
    assert Usd.total(entry.usd for entry in entries) == small.orders_usd != Usd(0)
    for entry, line in zip(entries, (line for order in orders_of(small) for line in order.lines), strict=True):
        assert (entry.usd, entry.usd_per_hour, entry.hours) == (line.cost_usd, line.usd_per_hour, line.hours)
        assert (entry.start, entry.end, entry.steps, entry.machines) == (line.start, line.end, line.steps, 1)
        assert entry.usd_per_hour is not None
        exact = entry.usd_per_hour.nanos * entry.hours
        # The hours are those of the line's own machines; its dollars are those of its fallback too.
        assert line.fallback is not None
        assert line.fallback.cost_usd > Usd(0)
        assert abs((entry.usd - line.fallback.cost_usd).nanos - exact) <= Fraction(1, 2)


@pytest.mark.slow
def test_the_nightly_plan_too_but_for_what_moving_data_costs() -> None:
    """Moves into a region are the plan's, and no machine's."""
    plan = nightly_plan()
    entries = planned(plan, {job.name: job for job in nightly_request().jobs})
    assert len(entries) > 10
    ordered = {(line.job, f"{line.cloud}/{line.region}") for order in orders_of(plan) for line in order.lines}
    moves = Usd.total(move.cost_usd for move in plan.moves if (move.job, move.to) in ordered)
    # Reservations are planned at their own price in the ledger, and cost nothing more in the plan.
    own = [line for order in orders_of(plan) for line in order.lines if line.reservation_cost]
    paid = Usd.total(line.amortised_usd or Usd(0) for line in own)
    assert paid > Usd(0) or not own
    assert Usd.total(entry.usd for entry in entries) + moves == plan.orders_usd + paid
    assert max(Counter(entry.key for entry in entries).values()) == 1


def test_whose_money_it_is(small: Plan) -> None:
    for entry in planned(small, JOBS):
        job = JOBS[entry.job]
        assert (entry.team, entry.project, entry.cost_center, entry.job_digest) == (
            job.team,
            job.project,
            job.cost_center,
            job.digest,
        )
        assert (entry.kind, entry.attempt, entry.rank) == (LedgerEntryKind.PLANNED, "", None)


def test_the_same_plan_again_has_the_same_keys_and_another_has_others(small: Plan) -> None:
    keys = [entry.key for entry in planned(small, JOBS)]
    assert len(set(keys)) == len(keys)
    assert [entry.key for entry in planned(small, JOBS, LATER)] == keys
    again = planned(small, JOBS, LATER)
    assert [replace(entry, recorded_at=NOW) for entry in again] == list(planned(small, JOBS))
    other = replace(small, solver="another")
    assert not {entry.key for entry in planned(other, JOBS)} & set(keys)


def test_two_lines_of_a_gang_are_two_entries() -> None:
    job = a_job("mixed", steps=300, cost_center="x")
    job = job.model_copy(update={"gang": job.gang.model_copy(update={"on_demand_share": 0.5})})
    plan = plan_of([a_job("mixed")], OFFERS)
    (line,) = plan.lines
    twice = replace(plan, lines=(line, replace(line, market="on_demand")))
    entries = planned(twice, {"mixed": job})
    assert [str(entry.market) for entry in entries] == ["spot", "on_demand"]
    assert entries[0].key != entries[1].key


def test_times_of_a_plan_in_another_zone_are_kept_in_utc(small: Plan) -> None:
    paris = timezone(timedelta(hours=1))
    moved = replace(
        small,
        lines=tuple(replace(x, start=x.start.astimezone(paris), end=x.end.astimezone(paris)) for x in small.lines),
    )
    digest, digests = plan_content(small)["digest"], {name: job.digest for name, job in JOBS.items()}
    entries = planned_entries(digest, orders_of(moved), JOBS, digests, NOW.astimezone(paris))
    assert sorted(entries, key=lambda e: e.key) == sorted(planned(small, JOBS), key=lambda e: e.key)
    assert {moment.tzinfo for entry in entries for moment in (entry.start, entry.end, entry.recorded_at)} == {UTC}


@given(st.integers(0, 10**14), st.integers(1, 10**13), st.integers(0, 10**6))
def test_metered_is_price_times_time_rounded_once(nanos: int, microseconds: int, offset: int) -> None:
    made = NOW + timedelta(microseconds=offset)
    gone = made + timedelta(microseconds=microseconds)
    machine = node(usd_per_hour=UsdPerHour(nanos), made_at=made, gone_at=gone)
    entries = metered_entries(attempt(), [machine], LATER)
    assert sum((entry.hours for entry in entries), Fraction(0)) == (hours := Fraction(microseconds, 3_600_000_000))
    usd = Usd.total(entry.usd for entry in entries)
    assert usd.nanos == round(nanos * hours)  # Python too rounds a half to even
    assert usd == cost_so_far([machine], gone) == cost_so_far([machine], LATER)
    assert (entries[0].start, entries[-1].end) == (made, gone)
    assert {entry.period for entry in entries} == {Month.of(entry.start) for entry in entries}
    assert all(entry.end <= entry.period.ends and entry.use is MachineUse.FAILED_LAUNCH for entry in entries)
    assert all(
        (entry.kind, entry.attempt, entry.rank, entry.machines) == (LedgerEntryKind.METERED, "a1", 0, 1)
        for entry in entries
    )


def test_only_machines_that_existed_and_are_gone_are_metered() -> None:
    machines = [
        node(rank=0, made_at=NOW, gone_at=NOW + timedelta(hours=1)),
        node(rank=1, made_at=NOW),
        node(rank=2),
        node(rank=3, made_at=NOW, gone_at=NOW),
        node(rank=4, made_at=NOW, gone_at=NOW - timedelta(seconds=1)),
        node(rank=5, made_at=NOW, gone_at=NOW + timedelta(microseconds=1)),
    ]
    assert [entry.rank for entry in metered_entries(attempt(), machines, LATER)] == [0, 5]


def test_one_that_followed_another_without_a_gap_overlaps_it_nowhere() -> None:
    """Periods are half open: what one ends with, the next begins with."""
    moments = [NOW + timedelta(microseconds=7 * n * n) for n in range(20)]
    machines = [node(rank=n, made_at=a, gone_at=b) for n, (a, b) in enumerate(pairwise(moments))]
    entries = metered_entries(attempt(), machines, LATER)
    assert [entry.end for entry in entries[:-1]] == [entry.start for entry in entries[1:]]
    assert sum((entry.end - entry.start for entry in entries), timedelta()) == moments[-1] - moments[0]


def test_keys_tell_machines_and_attempts_apart_and_stay_the_same() -> None:
    gone = NOW + timedelta(hours=1)
    paris = timezone(timedelta(hours=1))
    one = attempt("a1"), [node("a1", n, made_at=NOW, gone_at=gone) for n in range(3)]
    two = attempt("a2"), [node("a2", n, made_at=NOW, gone_at=gone) for n in range(3)]
    later = attempt("a1"), [node("a1", 0, made_at=NOW + timedelta(microseconds=1), gone_at=gone)]
    keys = [entry.key for pair in (one, two, later) for entry in metered_entries(*pair, LATER)]
    assert len(set(keys)) == len(keys) == 7
    moved = [replace(n, made_at=NOW.astimezone(paris), gone_at=gone.astimezone(paris)) for n in one[1]]
    assert metered_entries(one[0], moved, LATER) == metered_entries(*one, LATER)


def test_a_machine_pays_its_own_price_whatever_the_others_cost() -> None:
    gone = NOW + timedelta(hours=2)
    cheap = node(rank=1, usd_per_hour=UsdPerHour.parse("24"), made_at=NOW, gone_at=gone)
    dear = node(rank=0, usd_per_hour=UsdPerHour.parse("60"), made_at=NOW, gone_at=gone)
    free = node(rank=2, usd_per_hour=UsdPerHour(0), made_at=NOW, gone_at=gone)
    entries = metered_entries(attempt(), [dear, cheap, free], LATER)
    assert [str(entry.usd) for entry in entries] == ["120.00", "48.00", "0.00"]


def test_which_machine_it_was_and_what_priced_it() -> None:
    known = node(
        rank=0,
        made_at=NOW,
        gone_at=NOW + timedelta(hours=1),
        machine_id="i-0abc",
        price_as_of="2026-11-20",
        price_source="the cloud's spot history",
        on_demand_usd_per_hour=UsdPerHour.parse("60"),
    )
    unknown = node(rank=1, made_at=NOW, gone_at=NOW + timedelta(hours=1), machine_id=None)
    one, other = metered_entries(attempt(), [known, unknown], LATER)
    assert (one.resource, one.price_as_of, one.price_source) == ("i-0abc", "2026-11-20", "the cloud's spot history")
    assert one.on_demand_usd_per_hour == UsdPerHour.parse("60")
    assert (other.resource, other.price_as_of, other.price_source, other.on_demand_usd_per_hour) == ("", "", "", None)


MOMENTS = st.integers(-(10**10), 10**10).map(lambda us: NOW + timedelta(microseconds=us))


@given(
    st.lists(st.tuples(st.none() | MOMENTS, st.none() | MOMENTS, st.integers(0, 10**12)), max_size=6),
    st.lists(MOMENTS, min_size=2, max_size=6),
)
def test_what_was_spent_never_shrinks_as_time_goes_on(
    machines: list[tuple[datetime | None, datetime | None, int]], moments: list[datetime]
) -> None:
    nodes = [
        node(rank=rank, made_at=made, gone_at=gone, usd_per_hour=UsdPerHour(nanos))
        for rank, (made, gone, nanos) in enumerate(machines)
    ]
    amounts = [cost_so_far(nodes, moment) for moment in sorted(moments)]
    assert amounts == sorted(amounts)
    assert amounts[0] >= Usd(0)


def test_what_a_gang_has_spent_ends_as_what_is_metered() -> None:
    gone = NOW + timedelta(hours=1, microseconds=1)
    nodes = [node(rank=n, made_at=NOW + timedelta(seconds=n), gone_at=gone) for n in range(8)]
    metered = Usd.total(entry.usd for entry in metered_entries(attempt(), nodes, LATER))
    assert cost_so_far(nodes, LATER) == metered
    assert cost_so_far([replace(n, gone_at=None) for n in nodes], gone) == metered
    assert cost_so_far([], LATER) == Usd(0)


def test_a_job_that_is_missing_is_no_silent_gap(small: Plan) -> None:
    with pytest.raises(KeyError, match="c"):
        planned(small, {name: job for name, job in JOBS.items() if name != "c"})
