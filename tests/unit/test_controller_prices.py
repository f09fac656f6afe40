"""What priced each machine of a choice, and what it would have cost on demand."""

from __future__ import annotations

from dataclasses import replace

from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market, RegionId
from router.controller.plans import orders_of
from router.controller.workspace.placement_options import fill_list_prices, placement_from, placements_of
from router.jobs.limits import Limits
from router.planning.find.candidates import CandidateFinder
from router.planning.find.listings import listings_by_accelerator
from tests.support.made_up_book import book, offer
from tests.support.made_up_jobs import make_limits, simple_job
from tests.support.scenes import HOUR, NOW, plan_of

SPOT = offer("aws/north-1", "p9.48xlarge", "spot", "24")
HERE = offer("aws/north-1", "p9.48xlarge", "on_demand", "60")
SOUTH = offer("aws/south-1", "p9.48xlarge", "on_demand", "61")
OFFERS = (SPOT, HERE, SOUTH)
NORTH = RegionId("aws", "north-1")


def zoned(zone: str, price: str) -> Offer:
    return offer("aws/north-1", "p9.48xlarge", "on_demand", price, zone=zone)


def test_the_list_price_of_the_same_place() -> None:
    known = book(OFFERS)
    assert known.on_demand(NORTH, None, "p9.48xlarge") == UsdPerHour.parse("60")
    assert known.on_demand(NORTH, "north-1a", "p9.48xlarge") == UsdPerHour.parse("60")
    assert known.on_demand(RegionId("aws", "south-1"), None, "p9.48xlarge") == UsdPerHour.parse("61")
    assert known.on_demand(NORTH, None, "p8.48xlarge") is None
    assert known.on_demand(RegionId("gcp", "north-1"), None, "p9.48xlarge") is None
    zones = book([zoned("north-1a", "62"), zoned("north-1b", "58"), SPOT])
    assert zones.on_demand(NORTH, "north-1a", "p9.48xlarge") == UsdPerHour.parse("62")
    assert zones.on_demand(NORTH, None, "p9.48xlarge") == UsdPerHour.parse("58")
    assert zones.on_demand(NORTH, "north-1c", "p9.48xlarge") is None


def test_a_planned_place_says_what_the_plan_says_and_the_next_ones_its_book() -> None:
    job = simple_job("a", ("H100", 8), steps=300, steps_per_hour=100, checkpoint={"size_gib": 10})
    plan = plan_of([job], OFFERS)
    order = orders_of(plan)[0]
    listed = listings_by_accelerator(book(OFFERS), Limits.none())
    first, *others = placements_of(order, plan, job, listed, 9)
    (seat,) = first.seats
    assert (seat.price_as_of, seat.price_source) == (order.lines[0].price_as_of, order.lines[0].price_source)
    assert seat.price_source == SPOT.source
    said = {(seat.price_as_of, seat.price_source) for choice in others for seat in choice.seats}
    assert said == {(plan.book_as_of.date().isoformat(), f"price book {plan.book_digest[:12]}")}
    priced = fill_list_prices(first, book(OFFERS))
    assert [one.on_demand_usd_per_hour for one in priced.seats] == [UsdPerHour.parse("60")]
    assert [one.on_demand_usd_per_hour for one in fill_list_prices(first, book([SPOT])).seats] == [None]
    assert replace(priced, seats=first.seats) == first


def test_on_demand_at_a_discount_is_still_listed_at_the_whole_price() -> None:
    job = simple_job("a", ("H100", 8), steps=300, steps_per_hour=100)
    limits = make_limits({"discounts": [{"cloud": "aws", "percent": 10}]})
    (found, *_), _ = CandidateFinder(book([HERE]), limits, NOW, advisory=False).find(job)
    choice = fill_list_prices(placement_from(found, NOW, NOW + HOUR), book([HERE]))
    (seat,) = choice.seats
    assert (seat.market, seat.usd_per_hour, seat.on_demand_usd_per_hour) == (
        Market.ON_DEMAND,
        UsdPerHour.parse("54"),
        UsdPerHour.parse("60"),
    )
    assert seat.price_source == HERE.source
