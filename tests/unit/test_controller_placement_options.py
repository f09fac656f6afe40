"""Where a gang may be made: the plan's place first, next places that the plan tells whole and that are still for sale,
never for more money than was shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import Usd, UsdPerHour
from pricing.offers import Offer
from pricing.places import Market
from router.controller.plans import Order, orders_of
from router.controller.workspace.placement_options import (
    GangPlacement,
    blocking_shortage,
    fabric_of,
    fill_zones,
    maximum_cost,
    placement_from,
    placements_of,
    zones_with_offers,
)
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan import Alternative, Plan
from router.planning.find.candidates import candidates_for
from router.planning.find.listings import listings_by_accelerator
from router.state.records import NodeRecord, Shortage
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_job, make_limits, simple_job
from tests.support.mixed_instances import mixing_book
from tests.support.scenes import HOUR, NOW, plan_of

SPOT = offer("aws/north-1", "p9.48xlarge", "spot", "24")
HERE = offer("aws/north-1", "p9.48xlarge", "on_demand", "60")
SOUTH = offer("aws/south-1", "p9.48xlarge", "on_demand", "61")
SOUTH_SPOT = offer("aws/south-1", "p9.48xlarge", "spot", "30")
LAKE = offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "70")
OFFERS = (SPOT, HERE, SOUTH, SOUTH_SPOT, LAKE)


def gang(name: str = "a", machines: int = 4, **more: Any) -> Job:
    more.setdefault("checkpoint", {"size_gib": 10})
    more.setdefault("startup_minutes", 12)
    return simple_job(name, ("H100", 8 * machines), steps=300, steps_per_hour=100, **more)


def choose(
    job: Job,
    offers: Sequence[Offer] = OFFERS,
    *,
    now: Sequence[Offer] | None = None,
    tries: int = 9,
    limits: dict[str, Any] | None = None,
    changed: dict[str, Any] | None = None,
) -> tuple[tuple[GangPlacement, ...], Order, Plan]:
    """The choices of the only order of the job's plan, with what is for sale ``now``; ``changed``: fields of every
    alternative."""
    plan = plan_of([job], offers, limits)
    if changed is not None:
        plan = with_alternatives(plan, [replace(a, **changed) for a in plan.jobs[0].alternatives])
    order = orders_of(plan)[0]
    market = listings_by_accelerator(book(now or offers), make_limits(limits) if limits else Limits.none())
    return placements_of(order, plan, job, market, tries), order, plan


def with_alternatives(plan: Plan, alternatives: Sequence[Alternative]) -> Plan:
    return replace(plan, jobs=(replace(plan.jobs[0], alternatives=tuple(alternatives)),))


def places(choices: Sequence[GangPlacement]) -> list[str]:
    return [choice.place for choice in choices]


def test_the_plans_own_place_is_first_and_the_others_are_as_the_plan_ranks_them() -> None:
    choices, order, plan = choose(gang())
    assert places(choices) == [
        "aws/north-1 4 x p9.48xlarge spot",
        "aws/south-1 4 x p9.48xlarge spot",
        "aws/north-1 4 x p9.48xlarge on_demand",
        "aws/south-1 4 x p9.48xlarge on_demand",
        "gcp/lake-1 4 x a9-highgpu-8g on_demand",
    ]
    assert [choice.rank for choice in choices] == [0, 1, 2, 3, 4]
    assert [(a.cloud, a.region, a.market) for a in plan.jobs[0].alternatives] == [
        (choice.cloud, choice.region, choice.seats[0].market.value) for choice in choices[1:]
    ]
    assert (choices[0].start, choices[0].end) == (order.start, order.end)


@pytest.mark.parametrize("tries", range(1, 8))
def test_no_more_than_were_asked_for(tries: int) -> None:
    choices, _, _ = choose(gang(), tries=tries)
    assert len(choices) == min(tries, 5)
    assert choices == choose(gang())[0][:tries]


def test_none_is_offered_twice() -> None:
    job = gang()
    choices, order, plan = choose(job)
    first = plan.jobs[0].alternatives[0]
    own = replace(first, region="north-1")
    market = listings_by_accelerator(book(OFFERS), Limits.none())
    twice = with_alternatives(plan, [own, first, first, *plan.jobs[0].alternatives])
    assert placements_of(order, twice, job, market, 20) == choices


def test_what_lacks_something_or_cannot_be_ordered_is_not_offered() -> None:
    for changed in ({"lacks": "not on time"}, {"provisionable": False}, {"finish": None}):
        choices, _, _ = choose(gang(), changed=changed)
        assert len(choices) == 1


def test_a_job_that_the_plan_does_not_sum_up_has_its_own_place_alone() -> None:
    job = gang()
    plan = plan_of([job], OFFERS)
    (order,) = orders_of(plan)
    market = listings_by_accelerator(book(OFFERS), Limits.none())
    assert len(placements_of(order, replace(plan, jobs=()), job, market, 5)) == 1


def test_prices_and_ceilings_of_the_plans_own_machines_add_up_to_its_lines() -> None:
    (own, *_), order, _ = choose(gang())
    assert own.usd_per_hour.nanos == sum(line.usd_per_hour.nanos for line in order.lines) == 96_000_000_000
    assert own.max_usd_per_hour == order.ceiling == UsdPerHour.parse(240)
    assert own.at_risk_usd == order.at_risk_usd


@given(
    price=st.integers(0, 10**15),
    extra=st.integers(0, 10**15),
    machines=st.integers(1, 40),
    seconds=st.integers(1, 10**7),
)
def test_no_nano_dollar_is_lost_between_the_machines_of_a_line(
    price: int, extra: int, machines: int, seconds: int
) -> None:
    """Also where a price cannot be divided by the number of machines."""
    job, plan = _cached()
    line = orders_of(plan)[0].lines[0]
    line = replace(
        line,
        machines=machines,
        accelerators=8 * machines,
        usd_per_hour=UsdPerHour(price),
        max_usd_per_hour=UsdPerHour(price + extra),
        end=line.start + timedelta(seconds=seconds),
        fallback=None,
    )
    order = Order(line.job, line.gang, line.start, line.end, (line,))
    (own,) = placements_of(order, plan, job, {}, 1)
    assert own.usd_per_hour == line.usd_per_hour
    assert own.max_usd_per_hour == line.max_usd_per_hour
    assert own.at_risk_usd == order.at_risk_usd == maximum_cost([own])
    assert {seat.accelerators for seat in own.seats} == {8}
    each = [seat.max_usd_per_hour.nanos for seat in own.seats]
    assert max(each) - min(each) <= 1


_MADE: list[tuple[Job, Plan]] = []


def _cached() -> tuple[Job, Plan]:
    if not _MADE:
        job = gang()
        _MADE.append((job, plan_of([job], OFFERS)))
    return _MADE[0]


@given(price=st.integers(1000, 10**15), machines=st.integers(1, 40))
def test_a_next_places_machines_add_up_too_and_a_bid_is_at_most_a_quarter_more(price: int, machines: int) -> None:
    job, plan = _cached()
    (order,) = orders_of(plan)
    found = next(a for a in plan.jobs[0].alternatives if a.market == "spot")
    made = replace(found, usd_per_hour=UsdPerHour(price), machines=machines, accelerators=8 * machines)
    cheap = listings_by_accelerator(book([*OFFERS[:3], replace(SOUTH_SPOT, usd_per_hour=UsdPerHour(1))]), Limits.none())
    _, choice = placements_of(order, with_alternatives(plan, [made]), job, cheap, 2)
    assert choice.usd_per_hour.nanos == price
    assert abs(choice.max_usd_per_hour.nanos - price * 5 / 4) <= machines
    assert all(seat.max_usd_per_hour == seat.usd_per_hour.scaled(Fraction(5, 4)) for seat in choice.seats)


def test_rank_0_sits_on_the_on_demand_core() -> None:
    (own, *_), order, _ = choose(gang(on_demand_share=0.25))
    assert {line.market for line in order.lines} == {"spot", "on_demand"}
    assert [seat.market for seat in own.seats] == [Market.ON_DEMAND, Market.SPOT, Market.SPOT, Market.SPOT]
    assert own.place == "aws/north-1 1 x p9.48xlarge on_demand + 3 x p9.48xlarge spot"
    other = Order(order.job, order.gang, order.start, order.end, order.lines[::-1])
    assert placements_of(other, choose(gang(on_demand_share=0.25))[2], gang(on_demand_share=0.25), {}, 1)[0] == own


def test_a_mixed_gang_is_no_next_place_since_the_plan_tells_only_its_larger_part() -> None:
    """As it is shown it would be four spot machines, without the core and at a price that no machine has."""
    choices, _, plan = choose(gang(on_demand_share=0.25))
    spot = [a for a in plan.jobs[0].alternatives if a.market == "spot"]
    assert [(a.region, str(a.usd_per_hour)) for a in spot] == [("south-1", "151.00")]
    assert [choice.seats[0].market for choice in choices[1:]] == [Market.ON_DEMAND] * 3
    assert len(choices[1:]) == len(plan.jobs[0].alternatives) - 1


def zoned(price: str, zone: str, cap: int | None, region: str = "south-1") -> Offer:
    return offer(f"aws/{region}", "p9.48xlarge", "on_demand", price, zone=zone, cap=cap)


def test_a_gang_over_several_zones_is_no_next_place_since_the_plan_names_only_the_last() -> None:
    offers = (HERE, zoned("62", "a", 2), zoned("63", "b", 2))
    choices, _, plan = choose(gang(same_zone=False), offers)
    spread = [a for a in plan.jobs[0].alternatives if a.region == "south-1"]
    assert [(a.zone, a.machines) for a in spread] == [("b", 4)]
    assert len(choices) == 1


def test_one_zone_with_room_for_the_gang_is_a_next_place_for_such_a_job_too() -> None:
    for cap in (4, None):
        choices, _, _ = choose(gang(same_zone=False), (HERE, zoned("62", "a", cap)))
        assert places(choices)[1:] == ["aws/a 4 x p9.48xlarge on_demand"]


def test_the_default_cap_of_the_limits_counts_as_room() -> None:
    limits = {"default_cap_machines": 4}
    offers = (HERE, zoned("62", "a", 3), zoned("63", "b", None))
    assert len(choose(gang(same_zone=False), offers, limits=limits)[0]) == 2
    offers = (replace(HERE, machines_cap=9), zoned("62", "a", None), zoned("63", "b", None))
    choices, _, plan = choose(gang(same_zone=False), offers, limits={"default_cap_machines": 2})
    assert [a.zone for a in plan.jobs[0].alternatives] == ["b"]
    assert len(choices) == 1


@pytest.mark.parametrize(("price", "offered"), [("61", True), ("30", True), ("61.000000001", False)])
def test_a_next_place_that_costs_more_than_its_ceiling_now_is_not_offered(price: str, offered: bool) -> None:
    """No cloud keeps a ceiling for what is bought on demand."""
    dearer = [replace(o, usd_per_hour=UsdPerHour.parse(price)) if o is SOUTH else o for o in OFFERS]
    choices, _, _ = choose(gang(), now=dearer)
    assert ("aws/south-1 4 x p9.48xlarge on_demand" in places(choices)) is offered


@pytest.mark.parametrize(("price", "offered"), [("37.5", True), ("37.6", False)])
def test_a_bid_may_be_a_quarter_above_what_was_planned(price: str, offered: bool) -> None:
    dearer = [replace(o, usd_per_hour=UsdPerHour.parse(price)) if o is SOUTH_SPOT else o for o in OFFERS]
    choices, _, _ = choose(gang(), now=dearer)
    assert ("aws/south-1 4 x p9.48xlarge spot" in places(choices)) is offered


def test_a_next_place_that_is_not_sold_any_more_is_not_offered() -> None:
    choices, _, _ = choose(gang(), now=[o for o in OFFERS if o is not LAKE])
    assert [choice.cloud for choice in choices] == ["aws"] * 4


def test_a_reservation_is_a_next_place_only_while_the_limits_name_it() -> None:
    limits = {
        "reservations": [
            {
                "name": "bought",
                "cloud": "gcp",
                "region": "lake-1",
                "instance_type": "a9-highgpu-8g",
                "machines": 4,
                "usd_per_hour": "$40",
            }
        ]
    }
    job = gang()
    plan = plan_of([job], OFFERS, limits)
    (order,) = orders_of(plan)
    assert order.lines[0].market == "reserved"
    # Another job took it, so that it is this one's next place.
    other = plan_of([job], OFFERS)
    shown = replace(
        other.jobs[0].alternatives[-1], market="reserved", usd_per_hour=UsdPerHour(0), cost_usd=Usd(0), dominated=False
    )
    for known, count in ((make_limits(limits), 2), (Limits.none(), 1)):
        market = listings_by_accelerator(book(OFFERS), known)
        found = placements_of(orders_of(other)[0], with_alternatives(other, [shown]), job, market, 5)
        assert len(found) == count
        assert found[-1].at_risk_usd.nanos == (0 if count == 2 else found[0].at_risk_usd.nanos)


def test_discounts_of_the_limits_count() -> None:
    limits = {"discounts": [{"cloud": "aws", "market": "on_demand", "percent": 10}]}
    choices, _, plan = choose(gang(), limits=limits)
    assert len(choices) == 5
    (order,) = orders_of(plan)
    # Whoever forgets the limits loses places; nobody gets one that costs more than was shown.
    fewer = placements_of(order, plan, gang(), listings_by_accelerator(book(OFFERS), Limits.none()), 9)
    assert {choice.place for choice in choices} - {choice.place for choice in fewer} == {
        "aws/north-1 4 x p9.48xlarge on_demand",
        "aws/south-1 4 x p9.48xlarge on_demand",
    }


def test_a_next_place_is_held_as_long_as_the_whole_rest_takes_wherever_it_begins() -> None:
    """The alternative was planned from now on; an order that begins later takes as long from there."""
    job = gang()
    _, order, plan = choose(job)
    market = listings_by_accelerator(book(OFFERS), Limits.none())
    lengths = []
    for later in (timedelta(0), 5 * HOUR):
        moved = replace(order, start=order.start + later, end=order.end + later)
        choice = placements_of(moved, plan, job, market, 4)[3]
        alternative = plan.jobs[0].alternatives[2]
        assert alternative.finish is not None
        assert choice.start == moved.start
        assert choice.end >= moved.start + (alternative.finish - plan.as_of)
        lengths.append(choice.end - choice.start)
    assert lengths[0] == lengths[1]


def test_a_job_that_may_not_begin_yet_does_not_need_the_time_until_then() -> None:
    job = gang(earliest_start="+3h")
    choices, order, plan = choose(job)
    longest = max(a.finish for a in plan.jobs[0].alternatives if a.finish is not None)
    assert order.start >= NOW + 3 * HOUR
    assert max(choice.end for choice in choices) == max(order.end, longest)


MOMENT = st.integers(0, 20).map(lambda hours: NOW + hours * HOUR)


@st.composite
def stretches(draw: st.DrawFn) -> list[GangPlacement]:
    start = draw(MOMENT)
    found = []
    for rank in range(draw(st.integers(1, 5))):
        rate = draw(st.integers(0, 50)) * 10**9
        seat = NodeRecord("", 0, "", None, "x", Market.SPOT, "H100", 8, UsdPerHour(rate // 2), UsdPerHour(rate))
        end = start + draw(st.integers(1, 20)) * HOUR
        found.append(GangPlacement(rank, "aws", "r", (seat,), start, end))
    return found


@given(stretches(), st.data())
def test_no_way_through_the_choices_costs_more_than_was_shown(
    choices: list[GangPlacement], data: st.DataObject
) -> None:
    """Hour by hour the gang is anywhere whose stretch is not over, at its ceiling: also when a dear place gave up only
    after an hour, and a cheap one then took a day."""
    shown = maximum_cost(choices)
    spent, at = 0, choices[0].start
    while places_now := [choice for choice in choices if choice.end > at]:
        spent += data.draw(st.sampled_from(places_now)).max_usd_per_hour.nanos
        at += HOUR
    assert spent <= shown.nanos
    # And it is no more than somebody could come to pay.
    dearest, at = 0, choices[0].start
    while places_now := [choice for choice in choices if choice.end > at]:
        dearest += max(choice.max_usd_per_hour.nanos for choice in places_now)
        at += HOUR
    assert shown.nanos == dearest
    assert shown >= max(choice.at_risk_usd for choice in choices)


def test_at_risk_of_nothing_is_nothing() -> None:
    assert maximum_cost([]) == Usd(0)


def test_at_risk_of_a_choice_is_its_ceiling_for_all_of_its_time() -> None:
    for choice in choose(gang())[0]:
        assert choice.at_risk_usd == choice.max_usd_per_hour.over(choice.end - choice.start)


def short(zone: str | None, **changes: Any) -> Shortage:
    fields: dict[str, Any] = {
        "cloud": "aws",
        "region": "north-1",
        "instance_type": "p9.48xlarge",
        "market": Market.SPOT,
        "machines": 4,
    }
    at: datetime = NOW
    return Shortage(**{**fields, **changes}, zone=zone, at=at, until=NOW + HOUR, why="short")


@pytest.mark.parametrize(
    ("seat_zone", "shortage_zone", "matches"),
    [(None, None, True), ("a", "a", True), ("a", None, True), ("a", "b", False), (None, "a", True)],
)
def test_shortages_match_by_zone(seat_zone: str | None, shortage_zone: str | None, matches: bool) -> None:
    choice = choose(gang())[0][0]
    placed = replace(choice, seats=tuple(replace(seat, zone=seat_zone) for seat in choice.seats))
    found = short(shortage_zone)
    assert blocking_shortage(placed, [found]) == (found if matches else None)


@pytest.mark.parametrize(
    "other", [{"cloud": "gcp"}, {"region": "south-1"}, {"instance_type": "g9"}, {"market": Market.ON_DEMAND}]
)
def test_another_pools_shortage_is_nothing_to_us(other: dict[str, Any]) -> None:
    assert blocking_shortage(choose(gang())[0][0], [short(None, **other)]) is None


def test_a_core_that_is_short_is_a_gang_that_is_short() -> None:
    mixed = choose(gang(on_demand_share=0.25))[0][0]
    core = short(None, market=Market.ON_DEMAND)
    assert blocking_shortage(mixed, [short(None, region="south-1"), core]) is core


def sold(kind: str, market: str, zone: str | None) -> Offer:
    return offer("gcp/lake-1", kind, market, "40", zone=zone)


def test_the_zone_is_one_that_sells_the_machine_on_every_market_of_the_gang() -> None:
    job = gang(on_demand_share=0.25)
    mixed = replace(choose(job)[0][0], cloud="gcp", region="lake-1")
    mixed = replace(mixed, seats=tuple(replace(seat, instance_type="a9-highgpu-8g") for seat in mixed.seats))
    offers = [sold("a9-highgpu-8g", "on_demand", zone) for zone in ("a", "b", "c")]
    offers += [sold("a9-highgpu-8g", "spot", zone) for zone in ("c", "b", None)]
    assert zones_with_offers(mixed, book([*offers, sold("a7-highgpu-8g", "spot", "a")])) == {"a9-highgpu-8g": "b"}
    assert zones_with_offers(mixed, book(offers[:3])) == {}
    assert zones_with_offers(mixed, book(offers[:3]), "z") == {"a9-highgpu-8g": "z"}
    elsewhere = [offer("gcp/rhine-1", "a9-highgpu-8g", m, "40", zone="a") for m in ("spot", "on_demand")]
    assert zones_with_offers(mixed, book(elsewhere)) == {}
    assert {seat.zone for seat in fill_zones(mixed, {"a9-highgpu-8g": "b"}).seats} == {"b"}


def test_zones_that_are_known_stay_and_one_that_is_missing_is_named() -> None:
    choice = choose(gang())[0][0]
    placed = fill_zones(choice, {"p9.48xlarge": "a"})
    assert fill_zones(placed, {}) == placed
    assert (placed.usd_per_hour, placed.at_risk_usd, placed.rank) == (choice.usd_per_hour, choice.at_risk_usd, 0)
    with pytest.raises(KeyError, match=r"p9\.48xlarge"):
        fill_zones(choice, {"a9-highgpu-8g": "a"})


def test_a_place_in_words() -> None:
    choice = choose(gang(machines=3))[0][0]
    first, second, third = choice.seats
    same = replace(choice, seats=tuple(replace(seat, zone="north-1a") for seat in choice.seats))
    assert same.place == "aws/north-1a 3 x p9.48xlarge spot"
    apart = replace(choice, seats=(replace(first, zone="a"), replace(second, zone="b"), replace(third, zone="b")))
    assert apart.place == "aws/north-1 1 x p9.48xlarge spot in a + 2 x p9.48xlarge spot in b"


def two_types() -> GangPlacement:
    """A gang of two machines on Google Cloud, of two types."""
    choice = replace(choose(gang(machines=2))[0][0], cloud="gcp", region="lake-1")
    kinds = ("a9-highgpu-8g", "a7-highgpu-8g")
    return replace(choice, seats=tuple(replace(s, instance_type=k) for s, k in zip(choice.seats, kinds, strict=True)))


def test_two_machine_types_are_made_in_one_zone_that_sells_both() -> None:
    market = two_types().seats[0].market.value
    first = [sold("a9-highgpu-8g", market, zone) for zone in ("a", "b", "c")]
    second = [sold("a7-highgpu-8g", market, zone) for zone in ("c", "b")]
    both = {"a9-highgpu-8g": "b", "a7-highgpu-8g": "b"}
    assert zones_with_offers(two_types(), book([*first, *second])) == both
    # Nothing is known of where the second is sold: it is tried beside the first.
    assert zones_with_offers(two_types(), book(first)) == dict.fromkeys(both, "a")
    assert zones_with_offers(two_types(), book([]), "z") == dict.fromkeys(both, "z")
    apart = [sold("a9-highgpu-8g", market, "a"), sold("a7-highgpu-8g", market, "b")]
    assert zones_with_offers(two_types(), book(apart), "z") == {}


def test_machine_types_are_joined_by_the_fabric_that_both_have() -> None:
    assert fabric_of(choose(gang())[0][0], book([])) == "efa"
    assert fabric_of(two_types(), book([])) == "none"  # two kinds of GPUDirect
    unknown = replace(two_types(), cloud="nowhere")
    assert fabric_of(unknown, book([])) == "none"


def test_a_candidate_of_two_types_is_placed_machine_by_machine() -> None:
    offers = (
        offer("aws/south-1", "g9.48xlarge", "on_demand", "33"),
        offer("aws/south-1", "g9d.48xlarge", "on_demand", "27", cap=1),
    )
    points = [
        {"accelerator": name, "count": 16, "steps_per_hour": 9.0, "fabric": "ethernet"}
        for name in ("A100-80GB", "A100-40GB")
    ]
    fields = {"name": "a", "steps": 9, "options": [("A100-80GB", 16), ("A100-40GB", 16)], "profile": points}
    found, _ = candidates_for(make_job({**fields, "mixed": True}), mixing_book(offers), make_limits({}), NOW, False)
    (mix,) = (c for c in found if len(c.parts) == 2)
    placed = placement_from(mix, NOW, NOW + HOUR)
    assert {(s.instance_type, s.accelerator, s.accelerators, s.usd_per_hour.dollars()) for s in placed.seats} == {
        ("g9.48xlarge", "A100-80GB", 8, 33.0),
        ("g9d.48xlarge", "A100-40GB", 8, 27.0),
    }
    assert "1 x g9.48xlarge on_demand + 1 x g9d.48xlarge on_demand" in placed.place
