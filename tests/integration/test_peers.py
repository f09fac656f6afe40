"""What another planner was measured to get wrong is right here: egress tiers, data's region, risk, stock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pricing.book import PriceBook
from pricing.book_check import check_book
from pricing.book_file import embedded_book
from pricing.money import Usd, UsdPerHour
from pricing.offers import Offer
from pricing.places import Market, Region, RegionId
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan import Plan
from router.planning.planner import PlanRequest, make_plan
from tests.support.checker import check_plan
from tests.support.made_up_jobs import make_limits, simple_job
from tests.support.tariff_oracle import find_tariff

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
H100 = ("H100", 8)
AWS, GCP = "p5.48xlarge", "a3-highgpu-8g"
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def embedded() -> PriceBook:
    return embedded_book()


def offer(place: str, instance_type: str, market: str, price: str, **more: Any) -> Offer:
    region = RegionId.parse(place)
    return Offer(
        cloud=region.cloud,
        region=region.region,
        zone=more.pop("zone", None),
        instance_type=instance_type,
        market=Market(market),
        usd_per_hour=UsdPerHour.parse(price),
        source="made up for a test",
        as_of=NOW.date(),
        **more,
    )


def sure(name: str, steps: int = 1000, option: tuple[str, int] = H100, **more: Any) -> Job:
    """An hour of work at a known speed."""
    more.setdefault("deadline", NOW + timedelta(hours=12))
    return simple_job(name, option, steps=steps, steps_per_hour=1000.0, **more)


def planned(book: PriceBook, offers: Sequence[Offer], jobs: Sequence[Job], limits: Limits | None = None) -> Plan:
    """Planned on these offers with the embedded machines, regions and tariffs; and checked."""
    limits = limits or Limits.none()
    small = book.with_offers(offers)
    check_book(small)
    plan = make_plan(PlanRequest(jobs=tuple(jobs), book=small, limits=limits, now=NOW, gap=0.0))
    assert check_plan(plan, jobs, small, limits, slot=HOUR) == []
    assert not plan.unplaced
    return plan


def places(plan: Plan) -> set[str]:
    return {f"{line.cloud}/{line.region}" for line in plan.lines}


def data(at: str, size: str, **more: Any) -> dict[str, Any]:
    return {"data": {"uri": "s3://corpus", "at": at, "gib": size, **more}}


@pytest.mark.parametrize(
    ("size", "dollars"),
    [("1000 GB", "81"), ("10240 GB", "912.60"), ("10250 GB", "913.45"), ("51200 GB", "4394.20")],
)
def test_egress_is_right_at_the_edges_of_tiers(embedded: PriceBook, size: str, dollars: str) -> None:
    """Out of AWS us-east-1 to another cloud, the free 100 GB first; not $0.00, as measured elsewhere."""
    plan = planned(
        embedded,
        [offer("gcp/us-central1", GCP, "on_demand", "88.49")],
        [sure("away", **data("aws/us-east-1", size))],
    )
    assert Usd.total(move.cost_usd for move in plan.moves) == Usd.parse(dollars)


def test_the_tier_decides_where_a_job_runs(embedded: PriceBook) -> None:
    """With 9,000 GB and with 10,250 GB in AWS a job for $506 elsewhere is no bargain against $550 beside its data."""
    offers = [
        offer("aws/us-east-1", AWS, "on_demand", "55.00"),
        offer("gcp/us-central1", GCP, "on_demand", "50.60"),
    ]
    for size in ("9000 GB", "10250 GB"):
        job = sure("long", steps=10_000, **data("aws/us-east-1", size))
        assert places(planned(embedded, offers, [job])) == {"aws/us-east-1"}, size
    assert places(planned(embedded, offers, [sure("long", steps=10_000)])) == {"gcp/us-central1"}


def test_every_tariff_is_contiguous(embedded: PriceBook) -> None:
    """No group of the embedded book has a hole or an overlap between tiers, and none ends."""
    for tariff in embedded.tariffs:
        edge: int | None = 0
        for tier in tariff.tiers:
            assert tier.from_bytes == edge, tariff.meter
            edge = tier.to_bytes
        assert edge is None, tariff.meter


def test_more_volume_never_costs_less(embedded: PriceBook) -> None:
    """On any tariff, around every edge of a tier."""
    for tariff in embedded.tariffs:
        edges = [tier.from_bytes for tier in tariff.tiers]
        volumes = sorted({max(0, edge + step * 10**9) for edge in edges for step in (-10, -1, 0, 1, 10)})
        costs = [tariff.cost_of(0, volume, tariff.allowance_bytes) for volume in volumes]
        assert costs == sorted(costs), tariff.meter


def test_an_allowance_is_given_once_per_account(embedded: PriceBook) -> None:
    """Two jobs take 100 GB each out of two regions of one account: 100 GB are free, not 200."""
    jobs = [
        sure("east", **data("aws/us-east-1", "100 GB")),
        sure("west", **data("aws/us-west-2", "100 GB")),
    ]
    plan = planned(embedded, [offer("gcp/us-central1", GCP, "on_demand", "88.49")], jobs)
    assert Usd.total(move.cost_usd for move in plan.moves) == Usd.parse("9")


def test_an_allowance_already_used_is_not_given_again(embedded: PriceBook) -> None:
    """What went out earlier this month counts, on the allowance and on the tiers."""
    job = sure("away", **data("aws/us-east-1", "10 GB"))
    limits = make_limits({"egress_month_to_date_gb": {"aws": "10235"}})
    plan = planned(embedded, [offer("gcp/us-central1", GCP, "on_demand", "88.49")], [job], limits)
    assert Usd.total(move.cost_usd for move in plan.moves) == Usd.parse("0.875")  # 5 GB at 0.09, 5 at 0.085


def test_data_in_one_region_are_not_free_in_another_of_the_same_cloud(embedded: PriceBook) -> None:
    """100 TB at two cents a GB are $2,000: a few dollars an hour do not make up for that."""
    offers = [
        offer("aws/us-east-1", AWS, "on_demand", "55.04"),
        offer("aws/us-east-2", AWS, "on_demand", "50"),
    ]
    book = embedded
    job = sure("big", **data("aws/us-east-1", "100 TB"))
    assert places(planned(book, offers, [job])) == {"aws/us-east-1"}
    assert places(planned(book, offers, [sure("big")])) == {"aws/us-east-2"}
    tariff = find_tariff(book.tariffs, "aws", region(book, "aws/us-east-1"), region(book, "aws/us-east-2"))
    assert tariff is not None
    assert tariff.cost_of(0, 10**14, 0) > Usd.parse("500")


def region(book: PriceBook, name: str) -> Region:
    found = book.region(RegionId.parse(name))
    assert found is not None
    return found


def test_the_second_cheapest_machine_is_used_when_the_first_is_out(embedded: PriceBook) -> None:
    """One L4 is sold as g6.xlarge and as g6.2xlarge; blocked everywhere, the first gives way to the second."""
    offers = [
        offer("aws/us-east-1", "g6.xlarge", "on_demand", "0.80", machines_cap=0),
        offer("aws/us-east-2", "g6.xlarge", "on_demand", "0.81", machines_cap=0),
        offer("aws/us-east-1", "g6.2xlarge", "on_demand", "0.98", machines_cap=1),
    ]
    plan = planned(embedded, offers, [sure("small", option=("L4", 1))])
    assert [line.instance_type for line in plan.lines] == ["g6.2xlarge"]


def test_the_second_machine_is_used_when_the_first_has_run_out(embedded: PriceBook) -> None:
    """Two jobs at the same hour, one machine of the cheaper type."""
    offers = [
        offer("aws/us-east-1", "g6.xlarge", "on_demand", "0.80", machines_cap=1),
        offer("aws/us-east-1", "g6.2xlarge", "on_demand", "0.98", machines_cap=5),
    ]
    jobs = [sure(name, steps=800, option=("L4", 1), deadline=NOW + HOUR, startup_minutes=5) for name in ("one", "two")]
    plan = planned(embedded, offers, jobs)
    assert sorted(line.instance_type for line in plan.lines) == ["g6.2xlarge", "g6.xlarge"]


def test_a_hundred_jobs_do_not_all_fit_in_one_zone(embedded: PriceBook) -> None:
    """The cheapest zone is filled, no further; the rest go where there is room, cheapest first."""
    room = {"us-east-1a": 30, "us-east-1b": 50, "us-east-1c": 60}
    offers = [
        offer("aws/us-east-1", AWS, "on_demand", f"{55 + step}", zone=zone, machines_cap=cap)
        for step, (zone, cap) in enumerate(room.items())
    ]
    jobs = [
        sure(f"job-{i:03}", steps=800, deadline=NOW + HOUR, startup_minutes=5, checkpoint={"size_gib": 1})
        for i in range(100)
    ]
    plan = planned(embedded, offers, jobs)
    assert Counter(line.zone for line in plan.lines) == {"us-east-1a": 30, "us-east-1b": 50, "us-east-1c": 20}


def test_a_cheap_pool_that_is_taken_back_often_loses(embedded: PriceBook) -> None:
    """11 % cheaper by the hour, dearer by the step: it loses. As safe as the other, it wins."""
    risky = offer("aws/us-east-1", AWS, "spot", "25.36", interruptions_per_hour=0.5)
    calm = offer("aws/us-west-2", AWS, "spot", "28.50", interruptions_per_hour=0.002)
    job = sure("spotty", steps=4000, deadline=NOW + 96 * HOUR, checkpoint={"size_gib": 400}, startup_minutes=20)
    plan = planned(embedded, [risky, calm], [job])
    assert places(plan) == {"aws/us-west-2"}
    summary = plan.jobs[0]
    assert summary.runner_up is not None
    assert summary.usd_per_step is not None
    assert summary.runner_up.usd_per_step is not None
    assert summary.runner_up.region == "us-east-1"
    assert summary.runner_up.usd_per_step > summary.usd_per_step
    safe = replace(risky, interruptions_per_hour=0.002)
    assert places(planned(embedded, [safe, calm], [job])) == {"aws/us-east-1"}


def test_a_band_of_the_cloud_counts_as_risk(embedded: PriceBook) -> None:
    """The published bands: over 20 % a month against under 5 %, where a job cannot resume and loses all of it."""
    day = NOW.date()
    risky = offer("aws/us-east-1", AWS, "spot", "28.00", interruption_band=">20%", band_as_of=day)
    calm = offer("aws/us-west-2", AWS, "spot", "28.50", interruption_band="<5%", band_as_of=day)
    job = sure("whole", steps=6000, deadline=NOW + timedelta(days=10), startup_minutes=20)
    assert places(planned(embedded, [risky, calm], [job])) == {"aws/us-west-2"}
    alike = replace(risky, interruption_band="<5%")
    assert places(planned(embedded, [alike, calm], [job])) == {"aws/us-east-1"}
