"""A gang over several zones: only where the job allows it and no zone is enough alone."""

from __future__ import annotations

from router.planning.document.plan import Plan
from tests.support.made_up_book import offer
from tests.support.scenes import a_job, plan_of

ZONES = [
    offer("aws/north-1", "p9.48xlarge", "on_demand", "60", zone="north-1a", cap=1),
    offer("aws/north-1", "p9.48xlarge", "on_demand", "50", zone="north-1b", cap=1),
]


def planned(same_zone: bool, accelerators: int = 16) -> Plan:
    point = {"accelerator": "H100", "count": 16, "steps_per_hour": 100.0, "relative_error": 0.0}
    one = {"accelerator": "H100", "count": 8, "steps_per_hour": 50.0, "relative_error": 0.0}
    gang = {"accelerators": f"H100:{accelerators}", "same_zone": same_zone}
    return plan_of([a_job(gang=gang, workload={"profile": [point, one]})], ZONES)


def test_a_gang_keeps_to_one_zone_unless_told_otherwise() -> None:
    assert [u.job for u in planned(same_zone=True).unplaced] == ["a"]


def test_a_gang_that_no_zone_holds_is_spread_with_one_line_a_zone() -> None:
    plan = planned(same_zone=False)
    assert plan.unplaced == ()
    assert {(line.zone, line.machines) for line in plan.lines} == {("north-1a", 1), ("north-1b", 1)}
    assert len({(line.gang, line.start, line.end) for line in plan.lines}) == 1
    assert plan.cost_usd.nanos == sum(line.cost_usd.nanos for line in plan.lines)


def test_a_gang_that_one_zone_holds_stays_in_the_cheaper_one() -> None:
    assert {line.zone for line in planned(same_zone=False, accelerators=8).lines} == {"north-1b"}
