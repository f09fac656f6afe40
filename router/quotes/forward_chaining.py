"""Quotes of jobs on recorded weather, by forward chaining, beside what might have come of them in a block of time that
their model never saw: pieces of its real weather (:mod:`router.spot.availability.resampling`), which share no law with
it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from router.quotes.runner import PolicyFor
from router.spot.availability.calibration import Places
from router.spot.availability.drift import Drifting, drifting
from router.spot.availability.evaluation_blocks import BLOCKS, Ground
from router.spot.availability.forecast import windows
from router.spot.availability.hazard_model import Outlook, Sky
from router.spot.availability.recalibration import Calibrating
from router.spot.simulator.inputs import HOUR_S, Scene, Task
from router.spot.simulator.simulation import Net, VectorPolicy, simulate
from router.spot.simulator.traces import Floats, Ints

DRAWS: Final = 120
EACH: Final = 6
PARTS: Final = 100  # room for the parts of a block in the number of a group
Pair = tuple[Floats, Floats]  # dollars, seconds


def forecasts(
    ground: Ground, outlook: Outlook, zones: Ints, job: Task, at: Ints, player: VectorPolicy, rng: np.random.Generator
) -> Pair:
    """[start, draw]: of jobs that start after each of these ticks. ``outlook`` is of ``zones``."""
    sky = ground.sky(zones, at)
    each = Sky(sky.up.repeat(DRAWS, 0), sky.age_h.repeat(DRAWS, 0))
    ticks = ground.past + job.ticks(ground.series.tick_s)
    like = ground.scene(zones, job, np.zeros((1, ticks), dtype=np.int64))
    scene = windows(outlook, each, like, at.size * DRAWS, rng)
    length = scene.series.ticks // (at.size * DRAWS)
    usd = ground.usd[zones][:, at].repeat(DRAWS * length, axis=1)  # of the moment of the quote
    return played(replace(scene, spot_usd=usd), player, at.size, DRAWS)


def played(scene: Scene, player: VectorPolicy, rows: int, columns: int) -> Pair:
    """Costs as shares of on-demand throughout, finishes as shares of the deadline: [row, column]. Nothing is paid for
    the rest of the last tick, as in quotes."""
    found, job = simulate(scene, player, Net.EXACT), scene.task
    demand = (job.work_s + job.changeover_s) / HOUR_S * float(scene.on_demand_usd.min())
    usd = (found.usd - found.spare_usd) / demand
    finish = (found.finish_tick * scene.tick_s - found.spare_s) / job.deadline_s
    return usd.reshape(rows, columns), finish.reshape(rows, columns)


def player_of(
    ground: Ground, outlook: Outlook, zones: Ints, job: Task, end: int, policy_for: PolicyFor
) -> VectorPolicy:
    """What plays quotes and outcomes alike. Nothing after ``end`` is known to it. ``outlook`` is of all zones."""
    ticks = job.ticks(ground.series.tick_s)
    like = ground.scene(zones, job, np.zeros((1, ground.past + ticks), dtype=np.int64))
    usd = ground.usd[zones, :end].mean(axis=1, keepdims=True)
    return policy_for(outlook.only(zones), replace(like, spot_usd=np.broadcast_to(usd, like.spot_usd.shape)))


def map_of(past: Sequence[tuple[int, Places]]) -> Calibrating:
    """From what came of quotes, by the group they belong to."""
    if not past:
        return Calibrating()
    groups = np.concatenate([np.full(p.below.size, g) for g, p in past])
    return Calibrating.learned(Places.joined([p for _, p in past]), groups)


@dataclass(frozen=True, eq=False, slots=True)
class Learned:
    """What a past says of quotes on its own kind of weather: its drift, and how the levels of cost and of finish held
    in ``outcomes`` of them."""

    drift: Drifting
    cost: Calibrating
    finish: Calibrating
    outcomes: int


def learned(ground: Ground, policy_for: PolicyFor, starts: int, seed: int = 0) -> Learned:
    """By forward chaining: the model of the blocks before quotes jobs that start in the next, ``starts`` in each."""
    tick_s, edges = ground.series.tick_s, ground.edges()
    cost: list[tuple[int, Places]] = []
    finish: list[tuple[int, Places]] = []
    for block in range(1, BLOCKS):
        fit = drifting(ground.up[:, : edges[block]], tick_s)
        at = ground.starts(block, starts)
        for part, zones in enumerate(ground.parts):
            for size, job in enumerate(ground.tasks):
                rng = np.random.default_rng([seed, block, part, size])
                player = player_of(ground, fit, zones, job, edges[block], policy_for)
                quoted = forecasts(ground, fit.only(zones), zones, job, at, player, rng)
                came = played(ground.made(zones, job, at.repeat(EACH), block, rng), player, at.size, EACH)
                for i, kept in enumerate((cost, finish)):
                    told = Places.of(quoted[i].repeat(EACH, axis=0), came[i].ravel())
                    kept.append((block * PARTS + part, told))
    count = sum(places.below.size for _, places in cost)
    return Learned(drifting(ground.up, tick_s), map_of(cost), map_of(finish), count)
