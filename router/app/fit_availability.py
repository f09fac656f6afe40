"""Learn from the price history how far spot availability drifts, and how well quotes would have held on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Final

import numpy as np

from router.prices.pool_availability import LONGEST_GAP, list_observed_pools, read_observations
from router.quotes.forward_chaining import learn_calibration
from router.spot.availability.evaluation_blocks import EvaluationTraces
from router.spot.availability.fit import AvailabilityFit
from router.spot.policies.interface import SpotPoolKey
from router.spot.policies.our_policy import quoted_policy_for
from router.spot.simulator.inputs import HOUR_S, Task, ZoneMoveCosts
from router.spot.simulator.traces import Ints, Series, ZoneSeries

LONGEST: Final = timedelta(days=92)
ENOUGH: Final = timedelta(days=14)
ENOUGH_WATCHED: Final = 0.8  # the least share of half hours that were watched
_TICK_S: Final = 1800
_MENU, _MENUS, _STARTS = 3, 8, 8
_SPOT_SHARE: Final = 0.4  # spot price over the on-demand price
_JOBS: Final = ((8, 1.5), (24, 1.25), (48, 1.25))  # hours of work, and the time that they are given for it
_CHANGEOVER_S: Final = 720
Looks = Sequence[tuple[datetime, bool]]


@dataclass(frozen=True, eq=False, slots=True)
class RecordedPools:
    """The pools that were watched long enough, as a ground to judge quotes on.

    ``seen`` is how many pools there were at all, and ``most_days`` the most days that one of them was watched.
    """

    ground: EvaluationTraces | None
    since: datetime
    until: datetime
    pools: int
    watched: float
    seen: int
    most_days: float


def recorded_pools(folder: Path, now: datetime) -> RecordedPools:
    """Return the pools of the last 92 days. InvalidInputError for a file of the history that cannot be read."""
    pools = list_observed_pools(folder, now - LONGEST, now)
    looks_by_pool = read_observations(folder, pools, now - LONGEST, now) if pools else {}
    spans = {pool: seen[-1][0] - seen[0][0] for pool, seen in looks_by_pool.items() if seen}
    days = max(spans.values(), default=timedelta(0)) / timedelta(days=1)
    long_watched = {pool: looks_by_pool[pool] for pool, span in spans.items() if span >= ENOUGH}
    if not long_watched:
        return RecordedPools(None, now, now, 0, 0.0, len(spans), days)
    since, until = min(seen[0][0] for seen in long_watched.values()), max(seen[-1][0] for seen in long_watched.values())
    well_watched = {pool: seen for pool, seen in long_watched.items() if _share(seen, since, until) >= ENOUGH_WATCHED}
    if not well_watched:
        return RecordedPools(None, since, until, 0, 0.0, len(spans), days)
    watched = float(np.mean([_share(seen, since, until) for seen in well_watched.values()]))
    return RecordedPools(
        _ground(well_watched, since, until), since, until, len(well_watched), watched, len(spans), days
    )


def fit_recorded_pools(recorded: RecordedPools) -> AvailabilityFit:
    """Fit the drift and the errors of quotes; takes about a minute. ValueError where too little was recorded."""
    if recorded.ground is None:
        raise ValueError("no pool was watched long enough")
    learned_drift = learn_calibration(recorded.ground, quoted_policy_for, _STARTS)
    return AvailabilityFit(
        since=recorded.since,
        until=recorded.until,
        pools=recorded.pools,
        watched=recorded.watched,
        likely=learned_drift.drift.likely,
        cost=learned_drift.cost,
        finish=learned_drift.finish,
        outcomes=learned_drift.outcomes,
    )


def _share(seen: Looks, since: datetime, until: datetime) -> float:
    watched = sum((min(b - a, LONGEST_GAP) for (a, _), (b, _) in pairwise(seen)), timedelta(0))
    return watched / max(until - since, LONGEST_GAP)


def _ground(kept: Mapping[SpotPoolKey, Looks], since: datetime, until: datetime) -> EvaluationTraces:
    ticks = int((until - since).total_seconds()) // _TICK_S + 1
    zones = [_zone(pool, seen, since, ticks) for pool, seen in kept.items()]
    series = Series(_TICK_S, tuple(zones))
    tasks = tuple(
        Task(work * HOUR_S, round(work * ratio * HOUR_S / _TICK_S) * _TICK_S, _CHANGEOVER_S) for work, ratio in _JOBS
    )
    return EvaluationTraces.of(series, tasks, _menus(list(kept)), ZoneMoveCosts.free(len(zones)))


def _zone(pool: SpotPoolKey, seen: Looks, since: datetime, ticks: int) -> ZoneSeries:
    """Return the series of a pool: each tick has the state of the last look before its end.

    Ticks before the first look have the state of the first look.
    """
    at = np.array([int((moment - since).total_seconds()) // _TICK_S for moment, _ in seen])
    up = np.array([there for _, there in seen], dtype=np.int64)
    last = np.maximum(np.searchsorted(at, np.arange(ticks), side="right") - 1, 0)
    name = "/".join(part for part in pool if part)
    return ZoneSeries(name, f"{pool[0]}/{pool[1]}", up[last], np.full(ticks, _SPOT_SHARE), 1.0)


def _menus(pools: Sequence[SpotPoolKey]) -> tuple[Ints, ...]:
    """Return pools of one machine type, up to three at a time, as a quote has them.

    There are eight such choices at most, spread over all.
    """
    order = sorted(range(len(pools)), key=lambda i: (pools[i][3], pools[i]))
    alike = [list(group) for _, group in groupby(order, key=lambda i: pools[i][3])]
    menus = [np.array(group[at : at + _MENU]) for group in alike for at in range(0, len(group), _MENU)]
    which = np.unique(np.linspace(0, len(menus) - 1, min(len(menus), _MENUS)).round().astype(np.int64))
    return tuple(menus[i] for i in which)
