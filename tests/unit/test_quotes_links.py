"""Places between which moving a checkpoint has no known price: a quote takes the best of those that are linked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pricing.money import Usd, UsdPerHour
from pricing.places import RegionId
from router.quotes.request import QuoteProblem
from router.spot.venues import QuoteOption, shortlist_options
from tests.support.asked_quotes import a_quote, asking, dollars
from tests.support.made_up_book import offer
from tests.support.scenes import BAY, LAKE, NORTH, NORTH_SPOT, SOUTH, a_job

HALL = offer("static/hall-1", "hall-h9", "on_demand", "45")  # nobody says what leaves it
FJORD_SPOT = offer("azure/fjord-1", "ND96_h9", "spot", "21")  # nor what leaves azure for another cloud
SOUTH_SPOT = offer("aws/south-1", "p9.48xlarge", "spot", "20")
LAKE_SPOT = offer("gcp/lake-1", "a9-highgpu-8g", "spot", "18")
HOURS, STEPS = 24.0, 300.0


@pytest.mark.slow
def test_a_hall_that_nothing_may_leave_takes_no_other_place_away() -> None:
    without = a_quote(a_job(), HOURS, [NORTH, NORTH_SPOT])
    beside = a_quote(a_job(), HOURS, [NORTH, NORTH_SPOT, HALL])
    assert dollars(without.usd.mean) < 100
    assert dollars(beside.usd.mean) <= 1.03 * dollars(without.usd.mean)
    assert not any(p.where.startswith("static/") for p in beside.places)


def test_the_hall_is_taken_where_it_is_the_cheapest() -> None:
    cheap = offer("static/hall-1", "hall-h9", "on_demand", "12")
    assert {p.where for p in a_quote(a_job(), HOURS, [NORTH, NORTH_SPOT, cheap]).places} == {"static/hall-1/hall-h9"}


def test_a_job_without_a_checkpoint_has_nothing_to_move() -> None:
    ask = asking(a_job(checkpoint=None), HOURS, [NORTH, HALL, BAY, LAKE])
    assert ask.menus(ask.venues, STEPS, HOURS) == (shortlist_options(ask.venues, STEPS, HOURS),)


def test_of_no_venues_there_is_no_choice() -> None:
    ask = asking(a_job(), HOURS, [NORTH])
    assert (ask.menus((), STEPS, HOURS), ask.menu((), STEPS, HOURS)) == ((), ())


class Torn(QuoteProblem):
    """The same with moves of these pairs of regions alone known."""

    def __init__(self, of: QuoteProblem, known: frozenset[frozenset[RegionId]]) -> None:
        super().__init__(of.ask, of.market_inputs)
        self.known = known

    def move_usd(self, source: RegionId, to: RegionId) -> float:
        """A dollar, or unknown."""
        return 1.0 if frozenset((source, to)) in self.known else float("inf")


EVERYWHERE = asking(a_job(), HOURS, [NORTH, NORTH_SPOT, SOUTH, SOUTH_SPOT, LAKE, LAKE_SPOT, BAY, HALL, FJORD_SPOT])
REGIONS = sorted({v.region for v in EVERYWHERE.venues})
PAIRS = [frozenset(pair) for pair in combinations(REGIONS, 2)]


def in_time(menu: Sequence[QuoteOption]) -> float:
    """The least that a place of a choice may cost, if the choice is in time."""
    return min(v.whole_usd(STEPS) for v in menu) if menu[0].hours(STEPS) <= HOURS else float("inf")


@settings(max_examples=150, deadline=None)
@given(known=st.frozensets(st.sampled_from(PAIRS)))
def test_every_choice_is_linked_and_the_first_is_the_best_of_all_linked_sets(
    known: frozenset[frozenset[RegionId]],
) -> None:
    """Against all sets of regions."""
    ask = Torn(EVERYWHERE, known)
    menus = ask.menus(ask.venues, STEPS, HOURS)
    assert menus
    for menu in menus:
        assert all(a == b or frozenset((a, b)) in known for a, b in combinations({v.region for v in menu}, 2))
    best = float("inf")
    for size in range(1, len(REGIONS) + 1):
        for regions in combinations(REGIONS, size):
            if all(frozenset(pair) in known for pair in combinations(regions, 2)):
                menu = shortlist_options([v for v in ask.venues if v.region in regions], STEPS, HOURS)
                best = min(best, in_time(menu)) if menu else best
    assert in_time(menus[0]) == pytest.approx(best)


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(
    sure=st.lists(st.integers(20, 70), min_size=5, max_size=5),
    share=st.lists(st.integers(20, 95), min_size=3, max_size=3),
    fjord=st.integers(8, 60),
    hours=st.sampled_from([3.5, 6.0, 24.0, 90.0]),
    error=st.sampled_from([0.0, 0.15]),
)
def test_no_choice_costs_more_than_an_alternative_that_it_names(
    sure: list[int], share: list[int], fjord: int, hours: float, error: float
) -> None:
    usd = [float(price) for price in sure]
    spot = [price * part / 100 for price, part in zip(usd, share, strict=False)]
    places = [NORTH, SOUTH, LAKE, BAY, HALL, NORTH_SPOT, SOUTH_SPOT, LAKE_SPOT, FJORD_SPOT]
    priced = zip(places, [*usd, *spot, float(fjord)], strict=True)
    offers = [replace(o, usd_per_hour=UsdPerHour.parse(f"{price:.2f}")) for o, price in priced]
    q = a_quote(a_job(relative_error=error), hours, offers)
    assert all(o.mean is None or dollars(o.mean) >= dollars(q.usd.mean) for o in q.alternatives), q.alternatives
    costs = [dollars(p.mean) for p in q.curve]
    assert costs == sorted(costs, reverse=True)
    assert next(p.mean for p in q.curve if p.deadline == q.deadline) == q.usd.mean
    assert Usd.total(d.usd for d in q.drivers if d.usd and not d.what.startswith("of these")) == q.usd.mean
