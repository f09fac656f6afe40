"""Factories of our policy, called "ours" in back-tests, and of its faster fit, for which quotes are made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from router.spot.availability.hazard_model import HazardModel
from router.spot.policies.asking_policy import AskingPolicy
from router.spot.policies.foresight_policies import BlindForesightPolicy, ForesightPolicy
from router.spot.policies.learned import ChainPolicy
from router.spot.policies.published.baselines import GreedySpot
from router.spot.simulator.blind_policy import BlindPolicy
from router.spot.simulator.inputs import SimulationInputs, sells_reference
from router.spot.simulator.simulation import (
    ON_DEMAND,
    Actions,
    FullInfoPolicy,
    FullInfoSession,
    FullView,
    find_on_demand_zone,
)
from router.spot.simulator.traces import Ints, Series

QUOTED_DESCRIPTION: Final = "foresight, which asks each place, in the exact safety net"


@dataclass(frozen=True, slots=True)
class OnDemandNow:
    """A policy that runs on demand from the first tick, in the cheapest zone that is in time.

    It is a :class:`~router.spot.simulator.simulation.FullInfoPolicy`.
    """

    def begin(self, inputs: SimulationInputs) -> FullInfoSession:
        def play(now: FullView) -> Actions:
            rows = np.arange(now.window.size)
            runs = now.kind == ON_DEMAND
            zone = np.where(runs, now.zone, find_on_demand_zone(inputs, now, rows))
            return np.full(rows.size, ON_DEMAND, dtype=np.int8), zone

        return play


def policy_for(hazard_model: HazardModel, like: SimulationInputs) -> FullInfoPolicy:
    """Return our policy for this hazard model of the zones of ``like``; it needs the exact guard.

    It plays inputs like ``like`` in all but starts, availability and prices, with deadlines up to its own. Spot prices
    in ``like`` are the expected ones, the same all the time.
    """
    return _fallback_policy(hazard_model, like) or ForesightPolicy.fitted(hazard_model, like)


def quoted_policy_for(hazard_model: HazardModel, like: SimulationInputs) -> FullInfoPolicy:
    """Return the policy that quotes are made for: ours on few zones, which it asks as a run does, fitted quickly.

    It decides by the time left, not by the time passed.
    """
    return _fallback_policy(hazard_model, like) or AskingPolicy(BlindForesightPolicy.quickly(hazard_model, like))


def _fallback_policy(hazard_model: HazardModel, like: SimulationInputs) -> FullInfoPolicy | None:
    """Return the policy of a case without an optimisation; None for all others.

    Where nothing as fast as the reference is sold on demand there is no fallback: any spot is taken, the cheapest
    first. Where spot never comes, on-demand begins at once.
    """
    if not sells_reference(like.on_demand_usd, like.speed):
        return GreedySpot()
    return None if hazard_model.comes().size else OnDemandNow()


def policy_from(past: Series | None, inputs: SimulationInputs) -> FullInfoPolicy:
    """Return our policy with all expectations learned from ``past``.

    ``past`` is on the tick of the inputs and has their zones by name (KeyError where one is missing), perhaps among
    others, which are learned from too. The policy sees nothing of the inputs' availability and prices. In one zone the
    induction is exact.
    """
    assert past is not None  # the registry has checked it
    own = _own_zones(past, inputs)
    if own.size == 1:
        return ChainPolicy.fitted(past, inputs)
    return policy_for(HazardModel.of(past, inputs.task.size).only(own), build_expected_inputs(past, inputs))


def blind_policy_from(past: Series | None, inputs: SimulationInputs) -> BlindPolicy:
    """Return our policy, learned from ``past``, for zones that must be asked; it needs the exact guard."""
    assert past is not None  # the registry has checked it
    model = HazardModel.of(past, inputs.task.size).only(_own_zones(past, inputs))
    return BlindForesightPolicy.fitted(model, inputs.spec, build_expected_inputs(past, inputs).spot_usd[:, 0])


def _own_zones(past: Series, inputs: SimulationInputs) -> Ints:
    """Return the numbers of the inputs' zones in ``past``; raise KeyError where one is missing."""
    which = {zone.zone: i for i, zone in enumerate(past.zones)}
    return np.array([which[zone] for zone in inputs.zones], dtype=np.int64)


def build_expected_inputs(past: Series, inputs: SimulationInputs) -> SimulationInputs:
    """Return one window like those of the inputs, without spot, at the last spot price of each zone in ``past``."""
    usd = past.only(inputs.zones).spot_usd(inputs.task.size)[:, -1:]
    shape = (len(inputs.zones), inputs.ticks)
    return replace(
        inputs,
        starts=np.zeros(1, dtype=np.int64),
        up=np.zeros(shape, dtype=bool),
        spot_usd=np.broadcast_to(usd, shape),
        begins=None,
    )
