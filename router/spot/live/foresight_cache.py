"""Our policy for one running job: the hazard model of its options, and a cache of fits, which take seconds.

A fit is cached by what it was made of: the same observation and the same pool observations give the same decision after
a restart too. For that, hazards are rounded to two digits, and change slowly. Of prices and speeds, which decide
between options that differ little, only the sixth digit is cut: no decision depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import floor, log
from typing import Final

import numpy as np

from router.spot.availability.hazard_model import CLASSES, HazardModel
from router.spot.availability.observed import HazardPrior, posterior_hazards
from router.spot.policies import Rule
from router.spot.policies.foresight import DRAWS, ForesightModel
from router.spot.policies.foresight_policies import BlindForesightPolicy, choose_clock_s
from router.spot.policies.interface import PolicyZone
from router.spot.policies.our_policy import blind_policy_from, policy_from
from router.spot.policies.published.baselines import CheapestSpot
from router.spot.policies.registry import OUR_POLICY, LivePolicy, Parameters, PoolLookup, RegisteredPolicy
from router.spot.simulator.blind_policy import BlindPolicy
from router.spot.simulator.inputs import SimulationSpec, ZoneMarket, ZoneMoveCosts, sells_reference
from router.spot.simulator.traces import Floats, Ints

Numbers = tuple[float, ...]
_MOST_FITS: Final = 16  # fits of some ten MB each
MOST_CLOCK_TICKS: Final = 144  # a longer job is solved in longer ticks
_HAZARD_DIGITS: Final = 2
_PRICE_DIGITS: Final = 5  # digits of prices, egress and speeds: at most 1 in 20,000 off
_GROWS: Final = 1.1  # work is rounded down to a power of it
_LAUNCH_S: Final = 30.0


def fit_foresight(
    terms: SimulationSpec,
    sites: Sequence[PolicyZone],
    watched: PoolLookup,
    *,
    draws: int = DRAWS,
    clock_ticks: int = MOST_CLOCK_TICKS,
) -> BlindPolicy:
    """Return the fitted policy for this specification, whose zones are ``sites``, at present spot prices.

    Where nothing as fast as the reference is sold on demand there is no fallback: any spot is taken, the cheapest
    first.
    """
    if not sells_reference(terms.on_demand_usd, terms.speed):
        return CheapestSpot()
    return _cached_fit(_fit_key(terms, sites, build_hazard_model(sites, watched), draws, clock_ticks))


def build_hazard_model(sites: Sequence[PolicyZone], watched: PoolLookup) -> HazardModel:
    """Return the hazard model of these zones.

    It is as in a quote (:func:`router.spot.availability.observed.estimate_availability`): observations of a pool, added
    to the prior of its option. An option of several pools has its prior alone; a zone without spot never has any.
    """
    pools_of_zones = [None if s.spot is None or s.spot.chances is None else s.spot.chances.pools for s in sites]
    pools = [p[0] if p is not None and len(p) == 1 else None for p in pools_of_zones]
    observations = watched({p for p in pools if p is not None})
    seen = [None if pool is None else observations.get(pool) for pool in pools]
    return posterior_hazards([_prior_of(s) for s in sites], seen)


def _prior_of(site: PolicyZone) -> HazardPrior:
    if site.spot is None:
        return HazardPrior.never()
    back = 1.0 if site.spot.chances is None else site.spot.chances.back_hours
    return HazardPrior.of(back, site.spot.losses, knows_losses=site.spot.knows_losses)


@dataclass(frozen=True, slots=True)
class _FitKey:
    """All inputs of a fit, flat, as the key of the cache."""

    zones: int
    events: Numbers
    hours: Numbers
    spread: Numbers
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


def _fit_key(
    terms: SimulationSpec,
    sites: Sequence[PolicyZone],
    hazard_model: HazardModel,
    draws: int = DRAWS,
    clock_ticks: int = MOST_CLOCK_TICKS,
) -> _FitKey:
    deadline_s = terms.ticks * terms.tick_s
    clock = max(choose_clock_s(terms.tick_s), -(-deadline_s // clock_ticks))
    launch_s = terms.task.changeover_s + terms.launch_s
    return _FitKey(
        zones=len(sites),
        events=_rounded(hazard_model.events, _HAZARD_DIGITS),
        hours=_rounded(hazard_model.hours, _HAZARD_DIGITS),
        spread=_rounded(np.array(hazard_model.spread), _HAZARD_DIGITS),
        spot_usd=_rounded(np.array([s.first.usd_per_hour.dollars() for s in sites]), _PRICE_DIGITS),
        on_demand_usd=tuple(terms.on_demand_usd.tolist()),
        speed=_rounded(terms.speed, _PRICE_DIGITS),
        launch_s=_rounded_up(launch_s),
        egress_usd=_rounded(terms.ways.egress_usd, _PRICE_DIGITS),
        transfer_s=_rounded_up(terms.ways.transfer_s),
        work_s=int(_GROWS ** floor(log(terms.task.work_s, _GROWS))),
        deadline_s=deadline_s,
        clock_s=clock,
        draws=draws,
    )


def _rounded(values: Floats, digits: int) -> Numbers:
    return tuple(float(f"{value:.{digits}g}") for value in values.ravel().tolist())


def _rounded_up(seconds: Ints) -> Numbers:
    return tuple((np.ceil(seconds.ravel() / _LAUNCH_S) * _LAUNCH_S).tolist())


@lru_cache(maxsize=_MOST_FITS)
def _cached_fit(case: _FitKey) -> BlindForesightPolicy:
    square, shape = (case.zones, case.zones), (case.zones, 2, CLASSES)
    ways = ZoneMoveCosts(
        np.array(case.egress_usd).reshape(square), np.array(case.transfer_s, dtype=np.int64).reshape(square)
    )
    market = ZoneMarket(
        np.array(case.spot_usd), np.array(case.on_demand_usd), np.array(case.speed), np.array(case.launch_s), ways
    )
    hazard_model = HazardModel(
        np.array(case.events).reshape(shape), np.array(case.hours).reshape(shape), spread=case.spread
    )
    model = ForesightModel.of(
        hazard_model, market, case.work_s, case.deadline_s, clock_s=case.clock_s, draws=case.draws
    )
    return BlindForesightPolicy(model)


def _live(given: Parameters) -> LivePolicy:
    draws, clock_ticks = int(given["draws"]), int(given["clock_ticks"])

    def fit(terms: SimulationSpec, sites: Sequence[PolicyZone], watched: PoolLookup) -> BlindPolicy:
        return fit_foresight(terms, sites, watched, draws=draws, clock_ticks=clock_ticks)

    return LivePolicy(fit, most_zones=int(given["places"]), most_ticks=int(given["ticks"]), models_losses=True)


POLICIES: Final = (
    RegisteredPolicy(
        OUR_POLICY,
        "stepfare's own, fitted on the past",
        sees=policy_from,
        asks=lambda past, inputs, _: blind_policy_from(past, inputs),
        learns=True,
        exact=True,
        rule=Rule.FORESIGHT,
        live=_live,
        # ``places`` and ``ticks`` are limited: a fit to many options takes long, and so does the replay of its past.
        parameters={"clock_ticks": MOST_CLOCK_TICKS, "draws": DRAWS, "places": 8, "ticks": 240},
    ),
)
