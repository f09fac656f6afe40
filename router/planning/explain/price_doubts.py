"""Name spot prices that look wrong beside the other prices of the book. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from pricing.money import UsdPerHour
from pricing.places import Market
from router.planning.find.candidate import Candidate
from router.planning.problem.problem import PlacementProblem

_LEAST_REGIONS: Final = 3  # of which a median says something
_LOW: Final = 0.5  # times the median


def price_doubts(problem: PlacementProblem, chosen: Candidate) -> Iterator[str]:
    """Yield a sentence for each spot price that is no less than on demand, or less than half that of other regions.

    Of a gang on demand the spot price beside it is looked at, too: it may be why spot was not taken.
    """
    places = {(part.offer.region_id, part.offer.instance_type) for part in chosen.parts}
    offers = (part.offer for candidate in problem.all_candidates[chosen.job] for part in candidate.parts)
    spot = (offer for offer in offers if offer.market is Market.SPOT)
    for offer in dict.fromkeys(offer for offer in spot if (offer.region_id, offer.instance_type) in places):
        place = f"{offer.cloud}/{offer.region} {offer.instance_type}"
        on_demand = problem.on_demand.get((offer.cloud, offer.region, offer.instance_type), ())
        least = min((each.usd_per_hour for each in on_demand), default=None)
        if least is not None and least <= offer.usd_per_hour:
            yield f"{place}: spot costs no less than on demand there, {_usd(least)} an hour: nothing is saved by it"
        if all(part.offer != offer for part in chosen.parts):
            continue
        prices = problem.least_spot_usd[offer.cloud, offer.instance_type].values()
        typical = median(prices) if len(prices) >= _LEAST_REGIONS else 0.0
        if offer.usd_per_hour.dollars() < _LOW * typical:
            own = f"{place}: spot at {_usd(offer.usd_per_hour)} an hour"
            yield f"{own} is less than half of the median of {len(prices)} regions, ${typical:,.2f}: is it still so?"


def _usd(price: UsdPerHour) -> str:
    return f"${price.dollars():,.2f}"
