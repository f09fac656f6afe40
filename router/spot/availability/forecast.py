"""Forecast of a job's cost and finish: a policy played on availability simulated from a hazard model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from router.spot.availability.hazard_model import HazardModel, ScarcityProcess, ZoneStates, simulate_availability
from router.spot.simulator.inputs import HOUR_S, SimulationInputs
from router.spot.simulator.simulation import FullInfoPolicy, GuardMode, simulate
from router.spot.simulator.traces import Bools, Floats, Ints, Series

PAST_H: Final = 24


@dataclass(frozen=True, eq=False, slots=True)
class JobForecast:
    """A forecast, one entry a draw.

    ``usd`` is the whole cost, ``egress_usd`` included. ``finish_s`` is from now to the end of the last billed tick. A
    ``late`` draw goes on demand after the deadline; the cost of that is included.
    """

    usd: Floats
    finish_s: Floats
    late: Bools
    spot_ticks: Ints
    on_demand_ticks: Ints
    launches: Ints
    egress_usd: Floats

    @property
    def on_time(self) -> float:
        """The probability of being done by the deadline."""
        return float(1 - self.late.mean())


def simulate_windows(
    hazard_model: HazardModel, state: ZoneStates | None, like: SimulationInputs, draws: int, rng: np.random.Generator
) -> SimulationInputs:
    """Return ``draws`` simulated windows with the task, moves and last prices of ``like``, joined in one series.

    Each draws hazards of its own. Of several zones those of one region change scarcity together. ``state`` is by
    [zone], or by [draw, zone] where each draw has its own: the state at the last tick before a window; None: a state
    after a long while. Before each window lie ``PAST_H`` hours that agree with its state, so that
    :meth:`SimulationInputs.before` tells what was seen; further back lies another window. Raise ValueError where
    ``hazard_model`` or ``state`` does not have as many zones as ``like``.
    """
    zones, tick_s = len(like.series.zones), like.tick_s
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


def forecast_job(
    hazard_model: HazardModel,
    state: ZoneStates | None,
    like: SimulationInputs,
    policy: FullInfoPolicy,
    draws: int,
    rng: np.random.Generator,
    net: GuardMode = GuardMode.EXACT,
) -> JobForecast:
    """Return what ``policy`` makes of simulated windows; see :func:`simulate_windows`."""
    inputs = simulate_windows(hazard_model, state, like, draws, rng)
    got = simulate(inputs, policy, net)
    return JobForecast(
        usd=got.usd,
        finish_s=(got.finish_tick * like.tick_s).astype(np.float64),
        late=got.late,
        spot_ticks=got.spot_ticks,
        on_demand_ticks=got.on_demand_ticks,
        launches=got.launches,
        egress_usd=got.egress_usd,
    )


def _scarcity(like: SimulationInputs, draws: int, rng: np.random.Generator) -> ScarcityProcess | None:
    """Return the scarcity process of these zones; None for one zone.

    The wandering of a single zone is in its drift, and there is no other zone that it could go with.
    """
    if len(like.series.zones) < 2:
        return None
    names = list(dict.fromkeys(like.series.regions))
    return ScarcityProcess.begin(np.array([names.index(name) for name in like.series.regions]), draws, rng)


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
    usd = np.array([z.spot_usd_per_hour[-1] for z in like.series.zones])[:, None]
    zone_series = tuple(
        replace(z, counts=joined[i] * np.int64(like.task.size), spot_usd_per_hour=np.full(draws * length, usd[i, 0]))
        for i, z in enumerate(like.series.zones)
    )
    prices: Floats = np.broadcast_to(like.task.size * usd, joined.shape)
    starts = past + length * np.arange(draws)
    return replace(like, series=Series(like.tick_s, zone_series), starts=starts, up=joined, spot_usd=prices)
