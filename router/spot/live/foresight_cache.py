"""Our policy for one job that runs: what is expected of its places, and the fit to it, which takes seconds.

A fit is remembered by what it was made of: the same observation and the same sightings give the same decision after a
restart too. What is known of the weather is rounded to two digits for that, and changes slowly. Of prices and speeds,
which decide between places that differ little, only the sixth digit is cut: no decision is there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor, log
from typing import Final

import numpy as np

from router.spot.availability.hazard_model import CLASSES, Outlook
from router.spot.availability.observed import Sighting, hazards_of, known_hazards
from router.spot.live.policy_adapter import Site
from router.spot.policies.foresight import DRAWS, Foresight
from router.spot.policies.foresight_policies import ForeseenAsking, clock_for
from router.spot.policies.interface import Pool
from router.spot.policies.market import SAME, Market
from router.spot.policies.uniform_probing import CheapestSpot
from router.spot.simulator.blind_policy import Explorer, Terms
from router.spot.simulator.inputs import Ways
from router.spot.simulator.traces import Floats, Ints

Watched = Callable[[Collection[Pool]], Mapping[Pool, Sighting]]
Numbers = tuple[float, ...]
_MOST_FITS: Final = 16  # of some ten MB each
MOST_CLOCK_TICKS: Final = 144  # a longer job is solved in longer ones
_WEATHER_DIGITS: Final = 2
_PRICE_DIGITS: Final = 5  # of prices, egress and speeds: at most 1 in 20,000 off
_GROWS: Final = 1.1  # work is rounded down to a power of it
_LAUNCH_S: Final = 30.0


def nothing_watched(_: Collection[Pool]) -> Mapping[Pool, Sighting]:
    """Nobody watches pools: priors alone."""
    return {}


def foreseeing(
    terms: Terms, sites: Sequence[Site], watched: Watched, *, draws: int = DRAWS, clock_ticks: int = MOST_CLOCK_TICKS
) -> Explorer:
    """For these terms, whose zones are the sites, spot at the prices of now. Where nothing as fast as the reference is
    sold on demand there is nothing to fall back on: any spot is taken, the cheapest first."""
    if not (np.isfinite(terms.on_demand_usd) & (terms.speed >= 1 - SAME)).any():
        return CheapestSpot()
    return _fitted(_case(terms, sites, outlook_of(sites, watched), draws, clock_ticks))


def outlook_of(sites: Sequence[Site], watched: Watched) -> Outlook:
    """As a quote has it (:func:`router.spot.availability.observed.weather_of`): what was watched of a pool, added to
    the
    prior of its place. A place of several pools is as its prior says, one without spot never there."""
    alone = [None if s.spot is None or s.spot.chances is None else s.spot.chances.pools for s in sites]
    pools = [p[0] if p is not None and len(p) == 1 else None for p in alone]
    seen = watched({p for p in pools if p is not None})
    rates = np.array([_rates(s) for s in sites])
    return Outlook(*known_hazards(rates, [None if pool is None else seen.get(pool) for pool in pools]))


def _rates(site: Site) -> tuple[float, float]:
    if site.spot is None:
        return hazards_of(None)
    back = 1.0 if site.spot.chances is None else site.spot.chances.back_hours
    return hazards_of((back, site.spot.interruptions_per_hour))


@dataclass(frozen=True, slots=True)
class _Case:
    """All that a fit depends on, flat."""

    zones: int
    events: Numbers
    hours: Numbers
    spot_usd: Numbers
    on_demand_usd: Numbers
    speed: Numbers
    launch_s: Numbers
    egress_usd: Numbers
    transfer_s: Numbers
    work_s: int
    deadline_s: int
    clock_s: int
    draws: int


def _case(
    terms: Terms, sites: Sequence[Site], outlook: Outlook, draws: int = DRAWS, clock_ticks: int = MOST_CLOCK_TICKS
) -> _Case:
    deadline_s = terms.ticks * terms.tick_s
    clock = max(clock_for(terms.tick_s), -(-deadline_s // clock_ticks))
    launch_s = terms.task.changeover_s + terms.launch_s
    return _Case(
        zones=len(sites),
        events=_figures(outlook.events, _WEATHER_DIGITS),
        hours=_figures(outlook.hours, _WEATHER_DIGITS),
        spot_usd=_figures(np.array([s.first.usd_per_hour.dollars() for s in sites]), _PRICE_DIGITS),
        on_demand_usd=tuple(terms.on_demand_usd.tolist()),
        speed=_figures(terms.speed, _PRICE_DIGITS),
        launch_s=_steps(launch_s),
        egress_usd=_figures(terms.ways.egress_usd, _PRICE_DIGITS),
        transfer_s=_steps(terms.ways.transfer_s),
        work_s=int(_GROWS ** floor(log(terms.task.work_s, _GROWS))),
        deadline_s=deadline_s,
        clock_s=clock,
        draws=draws,
    )


def _figures(values: Floats, digits: int) -> Numbers:
    return tuple(float(f"{value:.{digits}g}") for value in values.ravel().tolist())


def _steps(seconds: Ints) -> Numbers:
    return tuple((np.ceil(seconds.ravel() / _LAUNCH_S) * _LAUNCH_S).tolist())


@lru_cache(maxsize=_MOST_FITS)
def _fitted(case: _Case) -> ForeseenAsking:
    square, shape = (case.zones, case.zones), (case.zones, 2, CLASSES)
    ways = Ways(np.array(case.egress_usd).reshape(square), np.array(case.transfer_s, dtype=np.int64).reshape(square))
    market = Market(
        np.array(case.spot_usd), np.array(case.on_demand_usd), np.array(case.speed), np.array(case.launch_s), ways
    )
    outlook = Outlook(np.array(case.events).reshape(shape), np.array(case.hours).reshape(shape))
    mind = Foresight.of(outlook, market, case.work_s, case.deadline_s, clock_s=case.clock_s, draws=case.draws)
    return ForeseenAsking(mind)
