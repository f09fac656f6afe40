"""Windows of availability that is simulated from a hazard model."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from router.spot.availability.hazard_model import HazardModel, ScarcityProcess, ZoneStates, simulate_availability
from router.spot.simulator.inputs import HOUR_S, SimulationInputs
from router.spot.simulator.traces import Bools, Floats

PAST_H: Final = 24


def simulate_windows(
    hazard_model: HazardModel, state: ZoneStates | None, like: SimulationInputs, draws: int, rng: np.random.Generator
) -> SimulationInputs:
    """Return ``draws`` simulated windows with the task, moves and last prices of ``like``, joined in one.

    Each draws hazards of its own. Of several zones those of one region change scarcity together. ``state`` is by
    [zone], or by [draw, zone] where each draw has its own: the state at the last tick before a window; None: a state
    after a long while. Before each window lie ``PAST_H`` hours that agree with its state, so that
    :meth:`SimulationInputs.before` tells what was seen; further back lies another window. Raise ValueError where
    ``hazard_model`` or ``state`` does not have as many zones as ``like``.
    """
    zones, tick_s = len(like.zones), like.tick_s
    if hazard_model.zones != zones or (state is not None and state.up.shape not in {(zones,), (draws, zones)}):
        raise ValueError(f"the hazard model and the states must have the {zones} zones of the inputs")
    hazards, past = hazard_model.draw(draws, rng), PAST_H * HOUR_S // tick_s
    swings = _scarcity(like, draws, rng)
    if state is None:
        up = simulate_availability(
            hazards, hazard_model.usual(draws, rng, hazards), past + like.ticks, tick_s, rng, swings
        )
    else:
        now = ZoneStates(np.broadcast_to(state.up, (draws, zones)), np.broadcast_to(state.age_h, (draws, zones)))
        before, after = (
            _simulate_before(hazards, now, past, tick_s, rng),
            simulate_availability(hazards, now, like.ticks, tick_s, rng, swings),
        )
        up = np.concatenate([before, after], axis=2)
    return _join_windows(up, like, past)


def _scarcity(like: SimulationInputs, draws: int, rng: np.random.Generator) -> ScarcityProcess | None:
    """Return the scarcity process of these zones; None for one zone.

    The wandering of a single zone is in its drift, and there is no other zone that it could go with.
    """
    return ScarcityProcess.begin(like.region_numbers, draws, rng) if len(like.zones) > 1 else None


def _simulate_before(hazards: Floats, state: ZoneStates, ticks: int, tick_s: int, rng: np.random.Generator) -> Bools:
    """Return by [draw, zone, tick] availability that ends in ``state``.

    Up and down times that follow each other independently are the same backwards: before the present one lies a whole
    one of the other kind.
    """
    step = tick_s / HOUR_S
    other = ~state.up
    older = simulate_availability(
        hazards, ZoneStates(other, np.full(other.shape, step)), max(ticks - 1, 0), tick_s, rng
    )
    older = np.concatenate([other[..., None], older], axis=2)
    lasted = np.maximum(np.rint(state.age_h / step), 1).astype(np.int64)[..., None]
    ago = np.arange(ticks)[None, None]
    backwards = np.where(
        ago < lasted, state.up[..., None], np.take_along_axis(older, np.maximum(ago - lasted, 0), axis=2)
    )
    forwards: Bools = backwards[..., ::-1]
    return forwards


def _join_windows(up: Bools, like: SimulationInputs, past: int) -> SimulationInputs:
    draws, zones, length = up.shape
    joined = np.ascontiguousarray(up.transpose(1, 0, 2)).reshape(zones, draws * length)
    prices: Floats = np.broadcast_to(like.spot_usd[:, -1:], joined.shape)
    return replace(like, starts=past + length * np.arange(draws), up=joined, spot_usd=prices)
