"""Levels of interruption risk: belief propagation against drawn trees, and what a record does to whom."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from pricing.hazard import Hazard, HazardShape
from pricing.risk_levels import (
    CLOUD_DEVIATION,
    COMMON_DEVIATION,
    DRIFT_DEVIATION,
    POOL_DEVIATION,
    PoolPrior,
    PoolRecord,
    RiskLevels,
)

MIDDLE = 0.5
WHOLE = 0.8


def prior(cloud: str, generation: str, deviation: float = WHOLE) -> PoolPrior:
    return PoolPrior((cloud, generation), HazardShape.FALLING, MIDDLE, deviation)


def record(name: str, of: PoolPrior, interruptions: float, exposure: float) -> PoolRecord:
    return PoolRecord((of.level[0], name), of, interruptions, exposure, exposure)


VOLTA, HOPPER, FOREIGN = prior("aws", "volta"), prior("aws", "hopper"), prior("gcp", "hopper")
NOBODY: frozenset[tuple[str, ...]] = frozenset()


def median(levels: RiskLevels, of: PoolPrior, *names: str) -> float:
    return levels.hazard(of, frozenset((of.level[0], name) for name in names)).quantile(0.5)


def drawn_median(records: list[PoolRecord], of: PoolPrior, pool: str | None) -> tuple[float, float]:
    """Return median and log deviation of a pool's level by drawing whole trees, each weighted by how it fits."""
    rng = np.random.default_rng(11)
    draws = 400_000
    common = rng.normal(0, COMMON_DEVIATION, draws)
    clouds = {c: common + rng.normal(0, CLOUD_DEVIATION, draws) for c in ("aws", "gcp")}
    keys = [VOLTA.level, HOPPER.level, FOREIGN.level]
    kinds = {key: clouds[key[0]] + rng.normal(0, VOLTA.level_deviation, draws) for key in keys}
    pools = {r.pool: kinds[r.prior.level] + rng.normal(0, POOL_DEVIATION, draws) for r in records}
    fit = np.zeros(draws)
    for r in records:
        fit += r.interruptions * pools[r.pool] - MIDDLE * np.exp(pools[r.pool]) * r.exposure
    weights = np.exp(fit - fit.max())
    another = kinds[of.level] + rng.normal(0, POOL_DEVIATION, draws)
    asked = another if pool is None else pools[(of.level[0], pool)]
    mean = float((weights * asked).sum() / weights.sum())
    deviation = math.sqrt(float((weights * (asked - mean) ** 2).sum() / weights.sum()))
    return MIDDLE * math.exp(mean), math.hypot(deviation, DRIFT_DEVIATION)


RECORDS = [
    record("a", VOLTA, 3.0, 1.5),
    record("b", VOLTA, 1.0, 2.0),
    record("c", HOPPER, 0.0, 3.0),
    record("d", FOREIGN, 2.0, 1.0),
]


@pytest.mark.parametrize(
    ("of", "pool"), [(VOLTA, "a"), (VOLTA, "b"), (VOLTA, None), (HOPPER, "c"), (HOPPER, None), (FOREIGN, None)]
)
def test_beliefs_are_those_of_drawn_trees(of: PoolPrior, pool: str | None) -> None:
    pools = NOBODY if pool is None else frozenset({(of.level[0], pool)})
    found = RiskLevels(tuple(RECORDS)).hazard(of, pools)
    middle, deviation = drawn_median(RECORDS, of, pool)
    logs = np.log(found.levels)
    mean = float(np.dot(found.weights, logs))
    assert math.exp(mean) == pytest.approx(middle, rel=0.04)
    assert math.sqrt(float(np.dot(found.weights, (logs - mean) ** 2))) == pytest.approx(deviation, rel=0.06)


def test_without_records_the_prior_stands() -> None:
    of = prior("aws", "volta", 0.8)
    assert RiskLevels(()).hazard(of, frozenset({("aws", "a")})) == Hazard.lognormal(HazardShape.FALLING, MIDDLE, 0.8)


def test_an_empty_record_says_nothing() -> None:
    found = RiskLevels((record("a", VOLTA, 0.0, 0.0),)).hazard(VOLTA, frozenset({("aws", "a")}))
    plain = Hazard.lognormal(HazardShape.FALLING, MIDDLE, WHOLE).blurred(DRIFT_DEVIATION)
    assert found.quantile(0.5) == pytest.approx(plain.quantile(0.5), rel=0.01)
    assert found.interval == pytest.approx(plain.interval, rel=0.05)


@pytest.mark.parametrize(("interruptions", "exposure"), [(6.0, 2.0), (0.0, 8.0)])
def test_a_record_counts_the_less_the_farther_away_its_pool_is(interruptions: float, exposure: float) -> None:
    levels = RiskLevels((record("a", VOLTA, interruptions, exposure),))
    shifts = [
        abs(math.log(median(levels, of, *names) / MIDDLE))
        for of, names in ((VOLTA, ("a",)), (VOLTA, ()), (HOPPER, ()), (FOREIGN, ()))
    ]
    assert all(near > far for near, far in itertools.pairwise(shifts))
    assert shifts[-1] > 0.001


def test_a_record_of_its_own_prevails_over_those_of_its_neighbours() -> None:
    hit = tuple(record(f"n{i}", VOLTA, 8.0, 4.0) for i in range(5))
    calm = record("calm", VOLTA, 0.0, 20.0)
    levels = RiskLevels((*hit, calm))
    assert median(levels, VOLTA, "calm") < median(levels, VOLTA) / 2 < median(levels, VOLTA, "n0") / 2


def test_own_records_are_not_counted_twice() -> None:
    """A pool's record reaches it once: by itself, not through its level too."""
    levels = RiskLevels((record("a", VOLTA, 4.0, 2.0),))
    alone = Hazard.lognormal(HazardShape.FALLING, MIDDLE, WHOLE).observed(4.0, 2.0).blurred(DRIFT_DEVIATION)
    found = levels.hazard(VOLTA, frozenset({("aws", "a")}))
    assert found.quantile(0.5) == pytest.approx(alone.quantile(0.5), rel=0.03)
    assert found.interval == pytest.approx(alone.interval, rel=0.08)


def test_the_order_of_records_does_not_matter() -> None:
    found = {
        tuple(round(w, 12) for w in RiskLevels(tuple(order)).hazard(VOLTA, frozenset({("aws", "b")})).weights)
        for order in itertools.permutations(RECORDS)
    }
    assert len(found) == 1


def test_records_of_one_pool_add_up() -> None:
    whole = RiskLevels((record("a", VOLTA, 3.0, 2.0), RECORDS[1]))
    parts = RiskLevels((record("a", VOLTA, 1.0, 1.5), RECORDS[1], record("a", VOLTA, 2.0, 0.5)))
    for pools in (NOBODY, frozenset({("aws", "a")})):
        assert parts.hazard(VOLTA, pools).weights == pytest.approx(whole.hazard(VOLTA, pools).weights)


def test_more_pools_of_a_kind_make_the_next_one_surer() -> None:
    widths = []
    for count in (1, 4, 12):
        levels = RiskLevels(tuple(record(f"p{i}", VOLTA, 5.0, 10.0) for i in range(count)))
        low, high = levels.hazard(VOLTA, NOBODY).interval
        widths.append(high / low)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] > math.exp(2.56 * POOL_DEVIATION) * 0.9  # a pool differs from its kind, however well known


def test_a_level_contradicted_by_long_records_still_has_a_belief() -> None:
    rows = tuple(record(f"p{i}", VOLTA, 900.0 * (i % 2), 300.0) for i in range(12))
    found = RiskLevels(rows).hazard(VOLTA, NOBODY)
    assert sum(found.weights) == pytest.approx(1.0)
    assert found.interval[0] < found.interval[1]
