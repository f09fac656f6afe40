"""Calibration of quotes by forward chaining on recorded availability.

Quotes are compared with what might have come of them in a block of time that their model never saw: pieces of its real
availability (:mod:`router.spot.availability.evaluation_blocks`), which share no distribution with the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from router.quotes.runner import PolicyFactory
from router.spot.availability.calibration import PitIntervals, Recalibration
from router.spot.availability.evaluation_blocks import BLOCKS, EvaluationTraces
from router.spot.availability.fit import DriftingHazardModel, learn_drift
from router.spot.availability.hazard_model import HazardModel, ZoneStates, simulate_windows
from router.spot.simulator.inputs import HOUR_S, SimulationInputs, Task
from router.spot.simulator.simulation import FullInfoPolicy, GuardMode, simulate
from router.spot.simulator.traces import Floats, Ints

DRAWS: Final = 120
EACH: Final = 6
PARTS: Final = 100  # factor of the block in a group's number, above the number of parts of a block
CostsAndFinishes = tuple[Floats, Floats]  # dollars, seconds


def forecast_starts(
    ground: EvaluationTraces,
    hazard_model: HazardModel,
    zones: Ints,
    job: Task,
    at: Ints,
    player: FullInfoPolicy,
    rng: np.random.Generator,
) -> CostsAndFinishes:
    """Return by [start, draw] the forecasts of jobs that start after each of these ticks.

    ``hazard_model`` is of ``zones``.
    """
    state = ground.state(zones, at)
    each = ZoneStates(state.up.repeat(DRAWS, 0), state.age_h.repeat(DRAWS, 0))
    like = ground.inputs(zones, job, np.zeros((1, job.ticks(ground.series.tick_s)), dtype=np.int64))
    inputs = simulate_windows(hazard_model, each, like, at.size * DRAWS, rng)
    length = inputs.up.shape[1] // (at.size * DRAWS)
    usd = ground.usd[zones][:, at].repeat(DRAWS * length, axis=1)  # prices at the time of the quote
    return play_starts(replace(inputs, spot_usd=usd), player, at.size, DRAWS)


def play_starts(inputs: SimulationInputs, player: FullInfoPolicy, rows: int, columns: int) -> CostsAndFinishes:
    """Return by [row, column] costs as shares of on-demand throughout, and finishes as shares of the deadline.

    Nothing is paid for the rest of the last tick, as in quotes.
    """
    outcome, job = simulate(inputs, player, GuardMode.EXACT), inputs.task
    demand = (job.work_s + job.changeover_s) / HOUR_S * float(inputs.on_demand_usd.min())
    usd = (outcome.usd - outcome.spare_usd) / demand
    finish = (outcome.finish_tick * inputs.tick_s - outcome.spare_s) / job.deadline_s
    return usd.reshape(rows, columns), finish.reshape(rows, columns)


def fit_player(
    ground: EvaluationTraces, hazard_model: HazardModel, zones: Ints, job: Task, end: int, policy_for: PolicyFactory
) -> FullInfoPolicy:
    """Return the policy that plays quotes and outcomes alike.

    It knows nothing after ``end``. ``hazard_model`` is of all zones.
    """
    ticks = job.ticks(ground.series.tick_s)
    like = ground.inputs(zones, job, np.zeros((1, ticks), dtype=np.int64))
    usd = ground.usd[zones, :end].mean(axis=1, keepdims=True)
    return policy_for(hazard_model.only(zones), replace(like, spot_usd=np.broadcast_to(usd, like.spot_usd.shape)))


def learn_recalibration(past: Sequence[tuple[int, PitIntervals]]) -> Recalibration:
    """Return the recalibration learned from the outcomes of quotes, by their group."""
    if not past:
        return Recalibration()
    groups = np.concatenate([np.full(p.below.size, g) for g, p in past])
    return Recalibration.learned(PitIntervals.joined([p for _, p in past]), groups)


@dataclass(frozen=True, eq=False, slots=True)
class QuoteCalibration:
    """The calibration learned from a past.

    ``drift`` is its hazard model with drift; ``cost`` and ``finish`` say how the quoted levels held in ``outcomes``
    quotes on it.
    """

    drift: DriftingHazardModel
    cost: Recalibration
    finish: Recalibration
    outcomes: int


def learn_calibration(
    ground: EvaluationTraces, policy_for: PolicyFactory, starts: int, seed: int = 0
) -> QuoteCalibration:
    """Return the calibration learned by forward chaining.

    The model of the blocks before quotes jobs that start in the next block, ``starts`` in each.
    """
    tick_s, edges = ground.series.tick_s, ground.edges()
    cost: list[tuple[int, PitIntervals]] = []
    finish: list[tuple[int, PitIntervals]] = []
    for block in range(1, BLOCKS):
        fit = learn_drift(ground.up[:, : edges[block]], tick_s)
        at = ground.starts(block, starts)
        for part, zones in enumerate(ground.parts):
            for size, job in enumerate(ground.tasks):
                rng = np.random.default_rng([seed, block, part, size])
                player = fit_player(ground, fit, zones, job, edges[block], policy_for)
                quoted = forecast_starts(ground, fit.only(zones), zones, job, at, player, rng)
                outcomes = play_starts(ground.made(zones, job, at.repeat(EACH), block, rng), player, at.size, EACH)
                for i, positions_stored in enumerate((cost, finish)):
                    positions = PitIntervals.of(quoted[i].repeat(EACH, axis=0), outcomes[i].ravel())
                    positions_stored.append((block * PARTS + part, positions))
    count = sum(places.below.size for _, places in cost)
    return QuoteCalibration(
        learn_drift(ground.up, tick_s), learn_recalibration(cost), learn_recalibration(finish), count
    )
