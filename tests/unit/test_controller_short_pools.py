"""Pools that were short when machines were asked for: the next plan does without them, and whoever runs there stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pricing.book_file import write_book
from pricing.offers import Offer
from pricing.places import Market
from router.app.plan import PlanOptions, plan_request, without_short_pools
from router.jobs.limits import Limits
from router.jobs.spec import Job, Placement
from router.planning.planner import make_plan
from router.state.records import Shortage
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_limits
from tests.support.scenes import HOUR, NOW, a_job, places, plan_of

SPOT = offer("aws/north-1", "p9.48xlarge", "spot", "24")
SOUTH = offer("aws/south-1", "p9.48xlarge", "spot", "30")


def short(zone: str | None = None, **changes: Any) -> Shortage:
    fields: dict[str, Any] = {
        "cloud": "aws", "region": "north-1", "zone": zone, "instance_type": "p9.48xlarge", "market": Market.SPOT,
        "machines": 4, "at": NOW, "until": NOW + HOUR, "why": "short",
    }  # fmt: skip
    return Shortage(**{**fields, **changes})


def planned(
    jobs: Sequence[Job], offers: Sequence[Offer], shortages: Sequence[Shortage], *running: Any
) -> dict[str, str]:
    return places(plan_of(jobs, offers, without_short_pools(Limits.none(), shortages, running)))


def test_a_plan_does_without_what_is_short() -> None:
    assert planned([a_job()], [SPOT, SOUTH], []) == {"a": "aws/north-1 spot"}
    assert planned([a_job()], [SPOT, SOUTH], [short()]) == {"a": "aws/south-1 spot"}


@pytest.mark.parametrize(
    "other",
    [{"cloud": "gcp"}, {"region": "south-2"}, {"instance_type": "p9.24xlarge"}, {"market": Market.ON_DEMAND}],
)
def test_another_pool_is_not_touched(other: dict[str, Any]) -> None:
    assert planned([a_job()], [SPOT, SOUTH], [short(**other)]) == {"a": "aws/north-1 spot"}


def test_a_zone_is_short_for_itself_and_a_region_for_all_of_its_zones() -> None:
    zones = [replace(SPOT, zone="a"), offer("aws/north-1", "p9.48xlarge", "spot", "25", zone="b"), SOUTH]

    def zone(shortages: list[Shortage]) -> set[str | None]:
        return {line.zone for line in plan_of([a_job()], zones, without_short_pools(Limits.none(), shortages)).lines}

    assert zone([]) == {"a"}
    assert zone([short("a")]) == {"b"}
    assert zone([short("a"), short("b")]) == {None}
    assert zone([short(None)]) == {None}


def test_whoever_runs_there_stays() -> None:
    """Its machines exist; that no more are to be had is nothing to it. Moving would pay a start-up for nothing."""
    place = {"cloud": "aws", "region": "north-1", "instance_type": "p9.48xlarge", "market": "spot", "accelerators": 8}
    here = a_job(
        "here", steps=600, deadline="+8h", status={"steps_done": 100, "running": place, "checkpoint_in": "aws/north-1"}
    )
    comes = a_job("comes", deadline="+6h")
    running = (Placement.model_validate(place), 1)
    calm = [replace(each, interruptions_per_hour=0.001) for each in (SPOT, SOUTH)]
    assert planned([here, comes], calm, [short()], running) == {
        "here": "aws/north-1 spot",
        "comes": "aws/south-1 spot",
    }
    assert planned([here, comes], calm, [short()])["here"] == "aws/south-1 spot"


@pytest.mark.parametrize(
    ("zone", "at", "kept"), [(None, "a", 3), (None, None, 3), ("a", "a", 3), ("a", None, 3), ("a", "b", 0)]
)
def test_machines_that_run_are_counted_by_zone(zone: str | None, at: str | None, kept: int) -> None:
    place = Placement(
        cloud="aws", region="north-1", zone=at, instance_type="p9.48xlarge", market=Market.SPOT, accelerators=24
    )
    elsewhere = place.model_copy(update={"market": Market.ON_DEMAND})
    (limit,) = without_short_pools(Limits.none(), [short(zone)], [(place, 2), (place, 1), (elsewhere, 9)]).limits
    assert (limit.amount, limit.unit, limit.kind) == (kept, "machines", "stock")


def test_limits_of_the_file_stay_and_the_same_pool_is_limited_once() -> None:
    limits = make_limits({"limits": [{"name": "mine", "cloud": "aws", "amount": 4, "unit": "machines"}]})
    again = [short(), short(until=NOW + 2 * HOUR), short(until=NOW + timedelta(minutes=5))]
    found = without_short_pools(limits, again).limits
    assert [limit.name for limit in found] == ["mine", "short until 21 20:00Z: aws/north-1 p9.48xlarge spot"]
    assert without_short_pools(limits, []) is limits


def test_no_two_limits_have_one_name() -> None:
    """Plans tell limits apart by their names: two of one name would be one."""
    pools = [
        short(), short("a"), short("b"), short("a", region="south-1"), short("south-1"), short(region="south-1"),
        short(cloud="gcp"), short("a", cloud="gcp"), short(market=Market.ON_DEMAND), short(instance_type="p9.24xlarge"),
    ]  # fmt: skip
    found = without_short_pools(Limits.none(), pools).limits
    assert len({limit.name for limit in found}) == len(found) == len(pools)
    assert Limits.model_validate({"limits": [limit.model_dump() for limit in found]}).limits == found


def test_the_name_says_until_when_in_utc() -> None:
    until = (NOW + HOUR).astimezone(timezone(timedelta(hours=9)))
    (limit,) = without_short_pools(Limits.none(), [short(until=until)]).limits
    assert NOW.tzinfo is UTC
    assert limit.name.startswith("short until 21 19:00Z: ")


def test_a_request_knows_where_jobs_run(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "name: here\nteam: red\nsteps: 300\ngang: {accelerators: 'H100:8'}\nstartup: 12m\ncheckpoint: {size_gib: 10}\n"
        "workload: {profile: [{accelerator: H100, count: 8, steps_per_hour: 100, relative_error: 0}]}\n"
        "status: {steps_done: 100, checkpoint_in: aws/north-1, running: {cloud: aws, region: north-1, market: spot,"
        " instance_type: p9.48xlarge, accelerators: 8}}\n",
        encoding="utf-8",
    )
    name = tmp_path / "book.parquet"
    write_book(book([SPOT, SOUTH]), name)
    request = plan_request([str(tmp_path / "job.yaml")], str(name), None, NOW, PlanOptions(), [short()]).request
    assert [limit.amount for limit in request.limits.limits] == [1]
    assert places(make_plan(request)) == {"here": "aws/north-1 spot"}
