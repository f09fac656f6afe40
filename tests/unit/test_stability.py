"""Jobs keep the place and start of the previous plan unless moving saves enough; limits, budgets and gap still hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from pricing.money import Usd
from pricing.offers import Offer
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.explain.changes import plan_diff
from router.planning.improve.equal_jobs import exchange_equal_jobs
from router.planning.improve.stability import keep_previous
from router.planning.planner import make_plan
from router.planning.program.effort import Effort
from router.planning.program.solve import most_to_stay, with_holdings
from router.planning.program.solver import PulpSolver
from tests.support.checker import check_plan
from tests.support.made_up_book import offer
from tests.support.made_up_jobs import make_limits
from tests.support.scenes import HOUR, NOW, RUNNING_IN_NORTH, a_job, a_request, answer_of, places, plan_of

NEAR: dict[str, Any] = {"deadline": "+5h"}


def at(region: str, price: str, **more: Any) -> Offer:
    return offer(f"aws/{region}", "p9.48xlarge", "on_demand", price, **more)


NORTH, ONE_NORTH = at("north-1", "60"), at("north-1", "60", cap=1)


def again(
    previous: Plan, jobs: Sequence[Job], offers: Sequence[Offer], limits: Any = None, *, gap: float = 0.05, **more: Any
) -> Plan:
    """The plan of the same or other inputs that keeps to the previous one; the checker agrees with it."""
    request = a_request(jobs, offers, limits, gap=gap, previous=previous, **more)
    plan = make_plan(request)
    assert check_plan(plan, request.jobs, request.book, request.limits) == []
    assert plan.bound_usd <= plan.cost_usd + plan.threshold_usd
    assert plan.gap <= gap + 1e-12
    return plan


def kinds(before: Plan, after: Plan) -> dict[str, str]:
    return {change.job: change.kind for change in plan_diff(before, after).changes}


def test_a_saving_below_the_threshold_moves_nobody() -> None:
    """A place elsewhere is cheaper by 32 cents for the whole job of $192; the threshold is $1.92."""
    before = plan_of([a_job()], [NORTH])
    cheaper = [NORTH, at("south-1", "59.90")]
    assert kinds(before, plan_of([a_job()], cheaper)) == {"a": "moved"}
    after = again(before, [a_job()], cheaper)
    assert kinds(before, after) == {"a": "same"}
    assert after.cost_usd == before.cost_usd


@pytest.mark.parametrize(("price", "place"), [("59.41", "aws/north-1 on_demand"), ("59.39", "aws/south-1 on_demand")])
def test_one_percent_of_the_cost_is_the_threshold_of_a_dear_job(price: str, place: str) -> None:
    before = plan_of([a_job()], [NORTH])
    assert places(again(before, [a_job()], [NORTH, at("south-1", price)]))["a"] == place


@pytest.mark.parametrize(("least", "stays"), [("30", False), ("40", True)])
def test_the_threshold_can_be_named(least: str, stays: bool) -> None:
    """Moving saves $32."""
    before = plan_of([a_job()], [NORTH])
    after = again(before, [a_job()], [NORTH, at("south-1", "50")], gap=0.3, least_saving=Usd.parse(least))
    assert (kinds(before, after) == {"a": "same"}) is stays


def test_staying_is_never_bought_with_more_than_the_gap() -> None:
    before = plan_of([a_job()], [NORTH])
    after = again(before, [a_job()], [NORTH, at("south-1", "50")], gap=0.1, least_saving=Usd.parse("40"))
    assert kinds(before, after) == {"a": "moved"}


def test_a_start_is_kept_though_an_earlier_one_is_free() -> None:
    """The first plan had to wait for another job; the other one is gone now."""
    both = [a_job("a", priority=1, deadline="+8h"), a_job("b", deadline="+8h")]
    before = plan_of(both, [ONE_NORTH], horizon=9 * HOUR)
    (start,) = (job.start for job in before.jobs if job.job == "b")
    assert start == NOW + 4 * HOUR
    alone = plan_of(both[1:], [ONE_NORTH], horizon=9 * HOUR)
    assert alone.jobs[0].start == NOW
    after = again(before, both[1:], [ONE_NORTH], horizon=9 * HOUR)
    assert after.jobs[0].start == start


def test_a_start_that_has_passed_is_the_first_possible_one() -> None:
    before = plan_of([a_job()], [NORTH])
    after = again(before, [a_job()], [NORTH], now=NOW + 2 * HOUR)
    assert after.jobs[0].start == NOW + 2 * HOUR


def test_a_new_deadline_moves_a_job_at_its_place() -> None:
    before = plan_of([a_job("a", earliest_start="+3h", deadline="+8h")], [NORTH])
    after = again(before, [a_job("a", deadline="+5h")], [NORTH, at("south-1", "59.90")])
    assert places(after)["a"] == "aws/north-1 on_demand"
    assert after.jobs[0].start == NOW


def test_jobs_that_exchanged_places_are_put_back_together() -> None:
    """Each alone would find the other in its place; which of the two is north is the same to the solver."""
    offers = [ONE_NORTH, at("south-1", "60", cap=1)]
    jobs = [a_job("a", **NEAR), a_job("b", **NEAR)]
    first = plan_of(jobs, offers)
    by_job = {line.job: line for line in first.lines}
    other = {"a": "b", "b": "a"}
    lines = tuple(replace(by_job[other[job]], job=job, gang=f"{job}/1") for job in "ab")
    before = replace(first, lines=lines)
    after = again(before, jobs, offers)
    assert places(after) == places(before) != places(first)


def test_a_limit_that_fell_is_kept() -> None:
    jobs = [a_job("a", **NEAR), a_job("b", steps=390, **NEAR)]
    before = plan_of(jobs, [NORTH, at("south-1", "59.90")])
    quota = {"limits": [{"name": "quota", "region": "south-1", "amount": 1, "unit": "machines"}]}
    after = again(before, jobs, [NORTH, at("south-1", "59.90")], quota)
    assert sorted(places(after).values()) == ["aws/north-1 on_demand", "aws/south-1 on_demand"]


def test_a_budget_is_not_broken_to_stay() -> None:
    before = plan_of([a_job()], [NORTH])
    limits = {"teams": [{"team": "red", "budget": "$191.95"}]}
    after = again(before, [a_job()], [NORTH, at("south-1", "59.90")], limits)
    assert places(after)["a"] == "aws/south-1 on_demand"
    own = again(before, [a_job("a", budget="$191.95")], [NORTH, at("south-1", "59.90")])
    assert places(own)["a"] == "aws/south-1 on_demand"


def test_a_new_job_of_higher_priority_displaces_only_whom_it_must() -> None:
    offers = [at("south-1", "50", cap=1), NORTH]
    jobs = [a_job("a", **NEAR), a_job("b", **NEAR)]
    before = plan_of(jobs, offers)
    after = again(before, [*jobs, a_job("c", steps=390, priority=5, **NEAR)], offers)
    changed = {job for job, kind in kinds(before, after).items() if kind != "same"}
    assert changed <= {"c", "a" if "south" in places(before)["a"] else "b"}


def test_a_job_that_runs_is_left_to_its_own_rule() -> None:
    before = plan_of([a_job()], [at("south-1", "50"), NORTH])
    job = a_job("a", status={"steps_done": 200, "running": RUNNING_IN_NORTH})
    offers = [at("south-1", "59.90"), NORTH]
    assert places(again(before, [job], offers)) == places(plan_of([job], offers, gap=0.05))


@pytest.mark.parametrize("what", ["no longer sold", "not in the plan", "left out before"])
def test_what_cannot_be_kept_is_planned_afresh(what: str) -> None:
    job = a_job()
    before = plan_of([job], [at("alps-1", "40")])
    if what == "not in the plan":
        before = plan_of([a_job("other")], [NORTH])
    elif what == "left out before":
        before = plan_of([a_job("a", deadline="+1h")], [NORTH])
    assert places(again(before, [job], [NORTH])) == {"a": "aws/north-1 on_demand"}


def test_the_same_inputs_give_the_same_plan_and_no_cut() -> None:
    jobs = [a_job(name, deadline="+9h") for name in "abcd"]
    offers = [at("north-1", "60", cap=2), at("south-1", "59", cap=1)]
    before = plan_of(jobs, offers, gap=0.05)
    first, second = (again(before, jobs, offers) for _ in range(2))
    assert first == second
    assert set(kinds(before, first).values()) == {"same"}


def test_an_outlook_in_pieces_is_kept_as_it_was() -> None:
    """Beyond the horizon jobs hold shares of slots; the same shares are held again."""
    jobs = [a_job(name, steps=1500, deadline="+4d") for name in "abc"]
    offers = [at("north-1", "60", cap=2)]
    before = plan_of(jobs, offers, gap=0.05)
    assert any(line.share < 1 for line in before.lines)
    after = again(before, [*jobs, a_job("d", deadline="+6d")], offers)
    assert {job: kind for job, kind in kinds(before, after).items() if job != "d"} == dict.fromkeys("abc", "same")


def test_time_that_is_over_keeps_the_answer() -> None:
    before = plan_of([a_job()], [NORTH])
    request = a_request([a_job()], [NORTH, at("south-1", "59.90")], previous=before, time_limit=timedelta(0))
    plan = make_plan(request)
    assert plan.time_limit_hit
    assert check_plan(plan, request.jobs, request.book, make_limits({})) == []


def test_many_jobs_that_are_planned_by_columns_keep_their_places_too() -> None:
    """A place elsewhere is cheaper by 32 cents for each job of $192."""
    jobs = [a_job(f"j{number:02}") for number in range(a_request([], [NORTH]).compact_jobs + 1)]
    before = plan_of(jobs, [NORTH])
    cheaper = [NORTH, at("south-1", "59.90")]
    assert set(kinds(before, plan_of(jobs, cheaper)).values()) == {"moved"}
    assert set(kinds(before, again(before, jobs, cheaper)).values()) == {"same"}


def test_a_second_night_at_equal_prices_moves_nobody() -> None:
    """Nothing was applied: the same plan a day later is as good, though every start of it has passed."""
    offers = [at("north-1", "60", cap=2), at("south-1", "60", cap=1), at("alps-1", "60.50", cap=4)]
    jobs = [
        a_job("a", deadline="+5h", priority=1, steps=200),
        a_job("b", deadline="+30h", steps=600),
        a_job("c", deadline="+5h", steps=200),
        a_job("d", deadline="+9h", steps=200),
        a_job("e", deadline="+60h", priority=1, steps=200),
    ]
    before = plan_of(jobs, offers, gap=0.005)
    after = again(before, jobs, offers, gap=0.005, now=NOW + 24 * HOUR)
    assert places(after) == places(before)
    assert abs((after.cost_usd - before.cost_usd).nanos) <= 1_000


def test_jobs_of_which_one_saves_at_the_cost_of_another_go_back_together() -> None:
    """The short job saves $8.80 in the long one's place, which loses $16.80: a search that ends early leaves that."""
    offers = [ONE_NORTH, at("south-1", "64", cap=1)]
    request = a_request([a_job("long", steps=390, **NEAR), a_job("short", steps=200, **NEAR)], offers)
    answer, before = answer_of(request), plan_of(request.jobs, offers)
    keys = {name: holds[0].key for name, holds in answer.holdings.items()}
    other = {"long": keys["short"], "short": keys["long"]}
    exchanged = {name: tuple(replace(h, key=other[name]) for h in holds) for name, holds in answer.holdings.items()}
    worse = with_holdings(answer, exchanged)
    assert worse.spent > answer.spent
    kept, at_place = keep_previous(worse, before, None, 0.05, Effort(PulpSolver(), timedelta(seconds=30)))
    assert at_place == {"long", "short"}
    assert kept.spent == answer.spent


OTHER = {"copy-1": "copy-2", "copy-2": "copy-1"}


def given_again(before: Plan, names: dict[str, str]) -> Plan:
    """The plan as if each job had been given what another one holds."""
    lines = tuple(replace(line, job=names.get(line.job, line.job)) for line in before.lines)
    return replace(before, lines=lines)


def test_of_equal_jobs_the_one_that_had_a_place_keeps_it() -> None:
    """One machine for one of two copies: which of them is left out is chance, not a reason to change it."""
    jobs = [a_job("copy-1", **NEAR), a_job("copy-2", **NEAR)]
    plan = plan_of(jobs, [ONE_NORTH])
    (placed,) = {line.job for line in plan.lines}
    after = again(given_again(plan, OTHER), jobs, [ONE_NORTH])
    assert {line.job for line in after.lines} == {OTHER[placed]}
    assert after.cost_usd == plan.cost_usd


def test_equal_jobs_exchange_their_places_for_nothing() -> None:
    jobs = [a_job("copy-1", **NEAR), a_job("copy-2", **NEAR), a_job("other", steps=301, **NEAR)]
    offers = [ONE_NORTH, at("south-1", "64", cap=1), at("alps-1", "90", cap=1)]
    plan = plan_of(jobs, offers)
    after = again(given_again(plan, OTHER), jobs, offers)
    assert {name: places(after)[OTHER.get(name, name)] for name in places(plan)} == places(plan)
    assert after.cost_usd == plan.cost_usd


@pytest.mark.parametrize("compact_jobs", [30, 0], ids=["compact", "columns"])
def test_of_equal_jobs_that_run_the_one_that_went_on_is_not_paused_for_the_other(compact_jobs: int) -> None:
    """Both say that they run on the one machine; the earlier plan let one go on, and the other waits."""
    running: dict[str, Any] = {"status": {"steps_done": 100, "running": RUNNING_IN_NORTH}, "deadline": "+12h"}
    jobs = [a_job("copy-1", **running), a_job("copy-2", **running)]
    plan = plan_of(jobs, [ONE_NORTH], compact_jobs=compact_jobs)
    (went_on,) = (line.job for line in plan.lines if line.start == NOW)
    later = NOW + timedelta(minutes=20)
    after = again(given_again(plan, OTHER), jobs, [ONE_NORTH], now=later, compact_jobs=compact_jobs)
    assert [line.job for line in after.lines if line.start == later] == [OTHER[went_on]]
    assert [job.job for job in after.jobs if job.preemption is not None] in ([went_on], [])


@pytest.mark.parametrize(
    "second", [{"status": {"running": RUNNING_IN_NORTH}}, {"team": "another"}], ids=["runs", "team"]
)
def test_a_job_that_runs_or_is_of_another_team_is_no_equal(second: dict[str, Any]) -> None:
    jobs = [a_job("copy-1", **NEAR), a_job("copy-2", **second, **NEAR)]
    plan = plan_of(jobs, [ONE_NORTH])
    answer = answer_of(a_request(jobs, [ONE_NORTH]))
    assert exchange_equal_jobs(answer, given_again(plan, OTHER)) is answer


def test_above_the_gap_staying_may_cost_the_gap_and_no_more() -> None:
    """The bound of a search that was cut is far below; 32 cents of $192 stay below a gap of 1 %, not below .1 %."""
    cheaper = [NORTH, at("south-1", "59.90")]
    before = plan_of([a_job()], [NORTH])
    answer = answer_of(a_request([a_job()], cheaper))
    cut = replace(answer, bound_usd=Usd(answer.bound_usd.nanos // 2))
    effort = Effort(PulpSolver(), timedelta(seconds=30))
    for gap, stays in ((0.01, True), (0.001, False)):
        _, at_place = keep_previous(cut, before, None, gap, effort)
        assert at_place == ({"a"} if stays else frozenset())


@pytest.mark.parametrize(
    ("spent", "bound", "most"),
    [(100.0, 99.0, 110.0), (100.0, 90.0, 100.0), (100.0, 50.0, 1000 / 9)],
    ids=["within the gap", "at the gap", "above it"],
)
def test_staying_may_cost_the_gap_from_the_bound_or_above_the_gap_from_the_plan(
    spent: float, bound: float, most: float
) -> None:
    assert most_to_stay(spent, bound, 0.1) == pytest.approx(most)
