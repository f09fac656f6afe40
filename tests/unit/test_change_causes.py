"""Causes of the changes between two plans: what a job brings about itself, what follows from another, and no noise."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from pricing.money import Usd
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.document.plan_facts import PlanFacts
from router.planning.document.takers import Takers
from router.planning.explain.change_causes import spec_changes
from router.planning.explain.changes import PlacementChange, PlanDiff, plan_diff
from router.render.plan_diff_text import diff_json, diff_markdown, diff_text
from tests.support.made_up_book import offer
from tests.support.scenes import NORTH, NORTH_SPOT, NOW, a_job, plan_of

ONE = offer("aws/south-1", "p9.48xlarge", "on_demand", "40", cap=1)
ROOM = "capacity aws/south-1/p9.48xlarge/on_demand"
SOUTH = offer("aws/south-1", "p9.48xlarge", "on_demand", "40")
NEAR: dict[str, Any] = {"deadline": "+5h"}  # a job of four hours cannot wait for another one


def quota(amount: int, **more: Any) -> dict[str, Any]:
    return {"limits": [{"name": "quota", "region": "south-1", "amount": amount, "unit": "machines"}], **more}


def by_name(found: PlanDiff) -> dict[str, PlacementChange]:
    return {change.job: change for change in found.changes}


def follows(change: PlacementChange) -> list[str]:
    return [cause.follows for cause in change.causes]


def kinds(change: PlacementChange) -> list[str]:
    return [cause.kind for cause in change.causes]


def bound_to_north(name: str, **more: Any) -> Job:
    return a_job(name, residency={"allow": ["aws/north-1"]}, **NEAR, **more)


def test_a_rule_that_is_lost_is_the_cause_and_the_displaced_job_follows() -> None:
    """Job b is free to go south; it is larger, and takes the one machine there from a."""
    others = [a_job(name, deadline="+8h", residency={"allow": ["aws/north-1"]}) for name in "cdef"]
    before = plan_of([a_job("a", **NEAR), bound_to_north("b", steps=390), *others], [NORTH, ONE])
    after = plan_of([a_job("a", **NEAR), a_job("b", steps=390, **NEAR), *others], [NORTH, ONE])
    found = plan_diff(before, after, {"b": ("residency removed",)})
    changes = by_name(found)
    assert [change.job for change in found.shown] == ["b", "a"]
    assert (kinds(changes["b"]), follows(changes["b"])) == (["job"], [""])
    assert changes["b"].why == "the job changed: residency removed; the old place would now cost $246.30"
    assert (kinds(changes["a"]), follows(changes["a"])) == (["displaced"], ["b"])
    assert changes["a"].why.startswith(f"b now takes {ROOM}; the old place would now cost ")
    assert (changes["a"].root, changes["a"].depth) == ("b", 1)
    text = diff_text(found)
    assert "follows from b" in text
    assert "2 changed, 4 as before" in text
    assert not any(name in line.split() for name in "cdef" for line in text.splitlines())


def test_what_one_job_leaves_another_one_takes() -> None:
    before = plan_of([a_job("a", **NEAR), a_job("b", steps=390, **NEAR)], [NORTH, ONE])
    after = plan_of([a_job("a", **NEAR), bound_to_north("b", steps=390)], [NORTH, ONE])
    changes = by_name(plan_diff(before, after))
    assert (kinds(changes["a"]), follows(changes["a"])) == (["freed"], ["b"])
    assert changes["a"].why.startswith(f"b no longer takes {ROOM}")


def test_a_job_that_takes_the_same_place_at_another_time_is_not_said_to_take_it_now() -> None:
    """Job b ran there after a; with a nearer deadline it runs there first, and a goes north."""
    late, near = a_job("b", steps=390, deadline="+12h"), a_job("b", steps=390, **NEAR)
    before = plan_of([a_job("a", **NEAR), late], [NORTH, ONE])
    after = plan_of([a_job("a", **NEAR), near], [NORTH, ONE])
    changes = by_name(plan_diff(before, after))
    assert (kinds(changes["a"]), follows(changes["a"])) == (["displaced"], ["b"])
    assert changes["a"].why.startswith(f"b now takes {ROOM} at that time; ")
    back = by_name(plan_diff(after, before))
    assert back["a"].why.startswith(f"b no longer takes {ROOM} at that time")


def test_new_and_gone_jobs_are_causes() -> None:
    alone, both = [a_job("a", **NEAR)], [a_job("a", **NEAR), a_job("new", steps=390, **NEAR)]
    before, after = plan_of(alone, [NORTH, ONE]), plan_of(both, [NORTH, ONE])
    came = by_name(plan_diff(before, after))
    assert (kinds(came["new"]), follows(came["a"])) == (["new"], ["new"])
    left = by_name(plan_diff(after, before))
    assert (kinds(left["new"]), kinds(left["a"]), follows(left["a"])) == (["gone"], ["freed"], ["new"])


def test_a_chain_names_each_step_and_begins_at_the_cause() -> None:
    """The new job takes the west from b, b takes the south from a, a goes north."""
    west = offer("aws/alps-1", "p9.48xlarge", "on_demand", "30", cap=1)
    jobs = [a_job("a", steps=200, **NEAR), a_job("b", steps=300, **NEAR), a_job("new", steps=390, **NEAR)]
    offers = [NORTH, ONE, west]
    found = plan_diff(plan_of(jobs[:2], offers), plan_of(jobs, offers))
    changes = by_name(found)
    assert [(c.job, c.depth, c.root) for c in found.shown] == [("new", 0, "new"), ("b", 1, "new"), ("a", 2, "new")]
    assert (follows(changes["b"]), follows(changes["a"])) == (["new"], ["b"])


@pytest.mark.parametrize(("one", "other", "text"), [(2, 1, "2 -> 1"), (1, 2, "1 -> 2")])
def test_a_limit_that_moved_is_named_with_its_amounts(one: int, other: int, text: str) -> None:
    jobs = [a_job("a", **NEAR), a_job("b", steps=390, **NEAR)]
    found = plan_diff(plan_of(jobs, [NORTH, SOUTH], quota(one)), plan_of(jobs, [NORTH, SOUTH], quota(other)))
    change = by_name(found)["a"]
    assert found.limits == (f"quota: {text} machines",)
    assert (kinds(change), change.why.split("; ")[0]) == (["limit"], f"quota: {text} machines")
    assert by_name(found)["b"].kind == "same"
    assert diff_text(found).startswith(f"LIMITS AND BUDGETS THAT CHANGED\n  quota: {text} machines\n")


def budget(usd: str, spent: str = "$0") -> dict[str, Any]:
    return {"teams": [{"team": "red", "budget": usd, "spent": spent}]}


def test_a_budget_that_fell_drops_a_job_and_one_that_rose_places_it() -> None:
    jobs = [a_job("a", **NEAR), a_job("b", steps=200, **NEAR)]
    rich, poor = plan_of(jobs, [NORTH], budget("$400")), plan_of(jobs, [NORTH], budget("$200"))
    for before, after, text in ((rich, poor, "$400.00 -> $200.00"), (poor, rich, "$200.00 -> $400.00")):
        found = plan_diff(before, after)
        (change,) = [c for c in found.changes if c.kind in ("dropped", "placed")]
        assert kinds(change) == ["budget"]
        assert change.why.startswith(f"budget of team red: {text}")
    spent = plan_of(jobs, [NORTH], budget("$400", "$200"))
    assert plan_diff(rich, spent).limits == ("budget of team red: spent $0.00 -> $200.00 of $400.00",)


def test_money_that_another_job_of_the_team_takes_is_named() -> None:
    first = plan_of([a_job("b", steps=200, **NEAR)], [NORTH], budget("$200"))
    both = plan_of([a_job("a", priority=9, **NEAR), a_job("b", steps=200, **NEAR)], [NORTH], budget("$200"))
    changes = by_name(plan_diff(first, both))
    assert (changes["b"].kind, follows(changes["b"])) == ("dropped", ["a"])
    assert changes["b"].why.startswith("a takes more of team red's budget; ")


def test_a_price_that_rose_at_the_old_place_or_fell_at_the_new_one() -> None:
    dear = offer("aws/south-1", "p9.48xlarge", "on_demand", "70")
    rose = by_name(plan_diff(plan_of([a_job()], [NORTH, SOUTH]), plan_of([a_job()], [NORTH, dear])))["a"]
    assert (rose.kind, kinds(rose)) == ("moved", ["price"])
    assert rose.why.startswith("aws/south-1 p9.48xlarge on_demand x8 rose: $40.00 -> $70.00 an hour; the old place")
    fell = by_name(plan_diff(plan_of([a_job()], [NORTH, dear]), plan_of([a_job()], [NORTH, SOUTH])))["a"]
    assert fell.why.startswith("aws/south-1 p9.48xlarge on_demand x8 fell: $70.00 -> $40.00 an hour")


def at_another_time(plan: Plan, *names: str, by: timedelta = timedelta(hours=1)) -> Plan:
    """The plan with some jobs later, as another search of the same cost might have it."""
    return replace(
        plan,
        lines=tuple(
            replace(line, start=line.start + by, end=line.end + by) if line.job in names else line
            for line in plan.lines
        ),
        jobs=tuple(
            replace(job, start=(job.start or NOW) + by, finish=(job.finish or NOW) + by) if job.job in names else job
            for job in plan.jobs
        ),
    )


def test_what_the_fallback_is_expected_to_cost_is_a_cause() -> None:
    """Less time to the deadline, at the same place and price: more of the run is on demand."""
    offers = [replace(NORTH_SPOT, interruptions_per_hour=0.3), NORTH]
    before, after = (plan_of([a_job("a", deadline=f"+{hours}h")], offers) for hours in (14, 8))
    usd = [plan.lines[0].fallback.cost_usd for plan in (before, after) if plan.lines[0].fallback is not None]
    assert len(usd) == 2
    assert usd[1] > usd[0]
    job = replace(after.jobs[0], job_digest=before.jobs[0].job_digest)
    after = replace(after, as_of=before.as_of + timedelta(hours=6), jobs=(job,))
    (change,) = plan_diff(before, after).changes
    assert "speed" in kinds(change)
    amounts = " -> ".join(f"${each.dollars():,.2f}" for each in usd)
    assert f"its fallback on demand is expected to cost {amounts} (time or risk)" in change.why


def test_jobs_at_other_times_are_one_line() -> None:
    plan = plan_of([a_job(name) for name in "abcdefghi"], [NORTH])
    later = at_another_time(plan, *"abcdefgh")
    cent = replace(
        later, jobs=tuple(replace(j, cost_usd=j.cost_usd + Usd(5)) if j.job == "i" else j for j in later.jobs)
    )
    found = plan_diff(plan, cent)
    assert found.shown == ()
    text = diff_text(found)
    assert text.startswith("8 jobs start at other times at the same place and cost\n1 job differs by less than a cent")
    assert "0 changed, 8 in time alone, 1 by less than a cent, 0 as before" in text
    assert len(text.splitlines()) == 5
    assert "  a: 21 18:00 -> 21 19:00" in diff_text(found, wide=True)
    rows = json.loads(diff_json(found))["changes"]
    assert [(row["job"], row["quiet"]) for row in rows] == [(name, True) for name in "abcdefghi"]


def test_a_changed_job_is_shown_even_where_it_stays() -> None:
    before = plan_of([a_job("a", **NEAR), a_job("b", **NEAR)], [NORTH])
    after = plan_of([a_job("a", **NEAR), bound_to_north("b")], [NORTH])
    found = plan_diff(before, after)
    assert [(c.job, c.kind, c.why) for c in found.shown] == [
        ("b", "same", "the job changed; place, time and cost stay")
    ]
    assert "b   job file" in diff_text(found)
    retimed = plan_diff(before, at_another_time(after, "b"))
    assert [c.job for c in retimed.shown] == ["b"]
    assert retimed.quiet == ()


def exchanged(plan: Plan) -> Plan:
    """The plan in which its two jobs of one gang have each other's place."""
    places = {line.job: line for line in plan.lines}
    other = {"a": "b", "b": "a"}
    assert plan.inputs is not None

    def moved(job: str) -> Any:
        return replace(places[other[job]], job=job, gang=f"{job}/1", cost_usd=places[job].cost_usd)

    use = tuple(replace(taken, gang=f"{other[taken.gang[0]]}/1") for taken in plan.inputs.use)
    return replace(plan, lines=(moved("a"), moved("b")), inputs=replace(plan.inputs, use=use))


def test_jobs_that_change_places_within_the_gap_begin_no_endless_chain() -> None:
    plan = plan_of([a_job("a", **NEAR), a_job("b", **NEAR)], [NORTH, ONE])
    found = plan_diff(plan, exchanged(plan))
    kept = {c.job: (c.depth, kinds(c)) for c in found.changes}
    assert sorted(depth for depth, _ in kept.values()) == [0, 1]
    first, second = found.shown
    assert first.unexplained
    assert "equal within the gap" in first.why
    assert follows(second) in ([first.job], [first.job, first.job])
    assert plan_diff(plan, exchanged(plan)) == found


def test_what_has_a_cause_comes_before_what_has_none() -> None:
    plan = plan_of([a_job("a", **NEAR), a_job("b", **NEAR)], [NORTH, ONE])
    more = exchanged(plan)
    with_new = replace(more, jobs=(*more.jobs, replace(more.jobs[0], job="z")))
    assert next(c.job for c in plan_diff(plan, with_new).shown) == "z"


def test_a_start_that_has_passed_is_no_cause_beside_another_one() -> None:
    dear = offer("aws/south-1", "p9.48xlarge", "on_demand", "70")
    after = plan_of([a_job()], [NORTH, dear], now=NOW + timedelta(hours=2))
    rose = by_name(plan_diff(plan_of([a_job()], [NORTH, SOUTH]), after))["a"]
    assert (rose.kind, kinds(rose)) == ("moved", ["price"])


def test_a_start_that_has_passed_is_a_cause() -> None:
    before = plan_of([a_job()], [NORTH])
    after = plan_of([a_job()], [NORTH], now=NOW + timedelta(hours=2))
    change = by_name(plan_diff(before, after))["a"]
    assert (change.kind, kinds(change)) == ("retimed", ["time"])
    assert change.quiet


@pytest.mark.parametrize(("more", "cause"), [("1.0005", ["time"]), ("1.01", ["speed"])])
def test_hours_that_hardly_differ_explain_no_other_start(more: str, cause: list[str]) -> None:
    """The job of 30 hours begins two hours later, and is expected to be billed a minute or 18 more."""
    before = plan_of([a_job(steps=3000)], [NORTH])
    after = plan_of([a_job(steps=3000)], [NORTH], now=NOW + timedelta(hours=2))
    after = replace(after, lines=tuple(replace(line, hours=line.hours * Fraction(more)) for line in after.lines))
    assert kinds(by_name(plan_diff(before, after))["a"]) == cause


def test_money_spent_and_prices_elsewhere_explain_no_exchange() -> None:
    """Both move every night: they are stated at the top, and the exchange is what it is."""
    plan = plan_of([a_job("a", **NEAR), a_job("b", **NEAR)], [NORTH, ONE], budget("$900"))
    other = exchanged(plan)
    assert other.inputs is not None
    assert other.usage is not None
    usage = replace(other.usage, teams=tuple(replace(t, spent_usd=Usd.parse("5")) for t in other.usage.teams))
    after = replace(other, book_digest="0" * 64, inputs=replace(other.inputs, limits_digest="1" * 64), usage=usage)
    found = plan_diff(plan, after)
    assert found.limits == ("budget of team red: spent $0.00 -> $5.00 of $900.00",)
    assert found.shown[0].unexplained
    discount = replace(after, usage=other.usage)
    assert plan_diff(plan, discount).shown[0].why.startswith("the limits changed")


def test_fields_of_two_specifications_and_no_values_of_the_environment() -> None:
    before = {
        "steps": 10,
        "gang": {"regions": ["a"], "same_zone": True},
        "data": None,
        "run": {"env": [["KEY", "one"]]},
    }
    after = {
        "steps": 20,
        "gang": {"regions": [], "same_zone": True},
        "data": {"gib": 3},
        "run": {"env": [["KEY", "two"]]},
    }
    assert spec_changes(before, after) == ("data added", "gang.regions a -> empty", "run.env", "steps 10 -> 20")
    assert spec_changes({"run": {"env": 1}}, {"run": None}) == ("run",)
    assert spec_changes({"residency": {"allow": ["EU"]}}, {"residency": None}) == ("residency removed",)
    assert spec_changes(before, before) == ()


def test_of_many_jobs_of_a_limit_and_a_team_those_that_take_most_are_named() -> None:
    jobs = [a_job(f"j{number}", steps=200 + 50 * number) for number in range(8)]
    later = PlanFacts(plan_of([a_job(), *jobs], [SOUTH], {**quota(9), **budget("$9000")}))
    takers = Takers(PlanFacts(plan_of([a_job()], [SOUTH], {**quota(9), **budget("$9000")})), later)
    (hold,) = later.holds_by_job["a"]
    assert takers.of_limit(hold) == ("j0", "j1", "j2", "j3", "j4")
    assert takers.of_limit(replace(hold, job="j1")) == ("j0", "j2", "j3", "j4", "j5")
    assert takers.of_team("red", "j7") == ("j6", "j5", "j4", "j3", "j2")
    assert takers.of_team("blue", "") == ()


def test_a_comment_on_a_change_of_jobs_has_each_change_with_its_reason() -> None:
    text = "name|with *stars*"
    before, after = plan_of([a_job("a"), a_job("b")], [NORTH]), plan_of([a_job("b"), a_job("c")], [SOUTH])
    found = plan_diff(before, after)
    found = replace(found, changes=tuple(replace(c, why=text) if c.job == "c" else c for c in found.changes))
    lines = diff_markdown(found).splitlines()
    more = after.cost_usd - before.cost_usd
    sign = "+" if more.nanos >= 0 else "-"
    assert f"({sign}${abs(more.dollars()):,.2f})" in lines[0]
    assert lines[2:4] == [
        "| Job | Change | Before | After | Where now | Why |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    rows = [line.split(" | ") for line in lines[4:]]
    assert sorted(row[0].removeprefix("| ") for row in rows) == sorted(c.job for c in found.shown)
    assert all(len(row) == 6 for row in rows)
    assert r"name\|with \*stars\*" in diff_markdown(found)
