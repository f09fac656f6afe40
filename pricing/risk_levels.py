"""Levels of interruption risk: what one pool's record says of the pools like it, by a hierarchy of deviations. Pure.

The logarithm of a pool's level is the middle of its prior plus four normal deviations: one that all clouds share, one
of its cloud, one of its cloud and accelerator generation, and its own. Records are Poisson evidence about pools; the
posterior follows exactly on a grid, by passing messages up the tree and down again (belief propagation, Pearl 1982).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pricing.hazard import LEVELS, Hazard, HazardShape

# Standard deviations of the log, fitted on the first halves of 47 recordings (docs/design/interruption-risk.md): so
# much do pools of one cloud and generation differ, generations that were recorded, clouds, and all clouds together.
POOL_DEVIATION: Final = 0.4
GENERATION_DEVIATION: Final = 0.2
CLOUD_DEVIATION: Final = 0.15
COMMON_DEVIATION: Final = 0.1
#: A pool's level wanders: what is to come differs by this from what was recorded.
DRIFT_DEVIATION: Final = 0.2
_OTHER_VARIANCE: Final = POOL_DEVIATION**2 + CLOUD_DEVIATION**2 + COMMON_DEVIATION**2
_GRID: Final = tuple(-4.0 + 0.25 * i for i in range(33))

Level = tuple[str, str]
Weights = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PoolPrior:
    """The level assumed of a pool before any record: its median, and the whole deviation of its logarithm."""

    level: Level
    shape: HazardShape
    middle: float
    deviation: float

    @property
    def level_deviation(self) -> float:
        """Return the deviation of its level: what is doubted of the prior, less what pools and clouds differ by.

        So a record of one pool says much of others of its kind, where nobody had measured any.
        """
        return max(GENERATION_DEVIATION, math.sqrt(max(0.0, self.deviation**2 - _OTHER_VARIANCE)))


@dataclass(frozen=True, slots=True)
class PoolRecord:
    """Interruptions of one pool, and the operational time and hours in which they were counted, per machine."""

    pool: tuple[str, ...]
    prior: PoolPrior
    interruptions: float
    exposure: float
    hours: float

    def watched(self, shape: HazardShape) -> float:
        """Return what a level of this shape is multiplied by."""
        return self.exposure if shape is HazardShape.FALLING else self.hours


@dataclass(frozen=True)
class RiskLevels:
    """The hierarchy with its records; each pool's records are summed, in any order."""

    records: tuple[PoolRecord, ...]

    def hazard(self, prior: PoolPrior, pools: frozenset[tuple[str, ...]]) -> Hazard:
        """Return the hazard of a machine that the records of ``pools`` are about; of a pool like them if none."""
        own = [record for record in self.records if record.pool in pools]
        if not self.records:
            return Hazard.lognormal(prior.shape, prior.middle, prior.deviation)
        levels = self._level_belief(prior, pools)
        logs = [math.log(level / prior.middle) for level in LEVELS]
        weights = [sum(b * _bell(x - d, POOL_DEVIATION) for b, d in zip(levels, _GRID, strict=True)) for x in logs]
        total = sum(weights)
        known = Hazard(prior.shape, LEVELS, tuple(weight / total for weight in weights))
        if own:
            known = known.observed(sum(r.interruptions for r in own), sum(r.watched(prior.shape) for r in own))
        return known.blurred(DRIFT_DEVIATION)

    @cached_property
    def _beliefs(self) -> dict[tuple[object, ...], Weights]:
        return {}

    def _level_belief(self, prior: PoolPrior, without: frozenset[tuple[str, ...]]) -> Weights:
        mine = frozenset(r.pool for r in self._by_level.get(prior.level, ())) & without
        key = (prior.level, prior.level_deviation, mine)
        if key not in self._beliefs:
            self._beliefs[key] = self._find_level_belief(prior, without)
        return self._beliefs[key]

    def _find_level_belief(self, prior: PoolPrior, without: frozenset[tuple[str, ...]]) -> Weights:
        level, cloud = prior.level, prior.level[0]
        from_others: Weights = _ONES
        for name in sorted({key[0] for key in self._by_level} - {cloud}):
            from_others = _times(from_others, self._message_of_cloud(name))
        common = _times(_normal(COMMON_DEVIATION), from_others)
        of_cloud = _spread(common, CLOUD_DEVIATION)
        for key in sorted(self._by_level):
            if key[0] == cloud and key != level:
                of_cloud = _times(of_cloud, self._message_of_level(key))
        belief = _spread(of_cloud, prior.level_deviation)
        for record in self._by_level.get(level, ()):
            if record.pool not in without:
                belief = _times(belief, _message_of_pool(record))
        return belief

    @cached_property
    def _by_level(self) -> Mapping[Level, tuple[PoolRecord, ...]]:
        pools: dict[tuple[Level, tuple[str, ...]], list[PoolRecord]] = {}
        for record in self.records:
            pools.setdefault((record.prior.level, record.pool), []).append(record)
        levels: dict[Level, list[PoolRecord]] = {}
        for (level, pool), found in sorted(pools.items()):
            events = sum(r.interruptions for r in found)
            exposure, hours = sum(r.exposure for r in found), sum(r.hours for r in found)
            levels.setdefault(level, []).append(PoolRecord(pool, found[0].prior, events, exposure, hours))
        return {level: tuple(found) for level, found in levels.items()}

    @cached_property
    def _level_messages(self) -> dict[Level, Weights]:
        return {}

    def _message_of_level(self, level: Level) -> Weights:
        message = self._level_messages.get(level)
        if message is None:
            belief: Weights = _ONES
            for record in self._by_level[level]:
                belief = _times(belief, _message_of_pool(record))
            deviation = self._by_level[level][0].prior.level_deviation
            message = self._level_messages[level] = _spread(belief, deviation)
        return message

    def _message_of_cloud(self, cloud: str) -> Weights:
        belief: Weights = _ONES
        for level in sorted(self._by_level):
            if level[0] == cloud:
                belief = _times(belief, self._message_of_level(level))
        return _spread(belief, CLOUD_DEVIATION)


_ONES: Final[Weights] = tuple(1.0 for _ in _GRID)


def _message_of_pool(record: PoolRecord) -> Weights:
    prior = record.prior
    logs = [record.interruptions * math.log(prior.middle) + record.interruptions * d for d in _GRID]
    watched = record.watched(prior.shape)
    logs = [x - prior.middle * math.exp(d) * watched for x, d in zip(logs, _GRID, strict=True)]
    top = max(logs)
    return _spread(tuple(math.exp(x - top) for x in logs), POOL_DEVIATION)


def _spread(weights: Weights, deviation: float) -> Weights:
    """Return the weights seen from one step along the tree: each point blurred by a normal of this deviation."""
    blurred = [sum(w * _bell(x - y, deviation) for w, y in zip(weights, _GRID, strict=True)) for x in _GRID]
    top = max(blurred)
    return tuple(x / top for x in blurred)


def _times(first: Sequence[float], second: Sequence[float]) -> Weights:
    product = [a * b for a, b in zip(first, second, strict=True)]
    top = max(product)
    return tuple(x / top for x in product)


def _normal(deviation: float) -> Weights:
    return tuple(_bell(x, deviation) for x in _GRID)


def _bell(x: float, deviation: float) -> float:
    return math.exp(-0.5 * (x / deviation) ** 2)
