"""The study of interruption rates on made-up traces whose answer is known, and on the recorded ones where they are."""

from __future__ import annotations

import numpy as np
import pytest

from router.spot.simulator.traces import Ints
from tests.bench.interruption_rates import (
    MEMORYLESS,
    TRACES,
    exponent_interval,
    gain_interval,
    per_hour,
    read_traces,
    score_blocks,
)
from tests.bench.interruption_rules import QUOTED, Trace, fit_prior_shape, fitted_rules, trace_of

TICK_H = 0.1


def single(seed: int, rate: float, exponent: float, ticks: int = 12_000) -> Trace:
    """One machine whose hazard is rate x age ** exponent; it is back after an hour on average."""
    rng = np.random.default_rng(seed)
    counts, up, age = np.zeros(ticks, dtype=np.int64), True, 0.0
    for i in range(ticks):
        counts[i] = up
        age += TICK_H
        if rng.random() < -np.expm1(-(rate * age**exponent if up else 1.0) * TICK_H):
            up, age = not up, 0.0
    return trace_of(f"made-{seed}", "made", TICK_H, counts)


def pool(seed: int, together: bool) -> Trace:
    """Eight machines that are lost all at once and back after a tick, or each by itself and back after at most 40."""
    rng = np.random.default_rng(seed)
    counts: Ints = np.full(20_000, 8, dtype=np.int64)
    for i in range(1, counts.size):
        if together:
            counts[i] = 0 if counts[i - 1] and rng.random() < 0.01 else 8
        else:
            counts[i] = counts[i - 1] - rng.binomial(counts[i - 1], 0.005) if i % 40 else 8
    return trace_of(f"pool-{seed}", "made", TICK_H, counts)


def scores(traces: list[Trace]) -> dict[str, list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]]:
    return {name: [score_blocks(t, rule(t)) for t in traces] for name, rule in fitted_rules(traces).items()}


def test_age_predicts_where_it_was_made_to() -> None:
    found = scores([single(seed, rate, -0.5) for seed, rate in enumerate((0.1, 0.3, 1.0))])
    low, mid, high = gain_interval(found["own, age"], found[MEMORYLESS], 100)
    assert 0 < low < mid < high
    assert per_hour(found[QUOTED]) > per_hour(found[MEMORYLESS]) > per_hour(found["constant"])


def test_age_predicts_nothing_where_interruptions_have_no_memory() -> None:
    found = scores([single(seed, rate, 0.0) for seed, rate in enumerate((0.1, 0.3, 1.0))])
    assert abs(per_hour(found["own, age"]) - per_hour(found[MEMORYLESS])) < 0.005


def test_the_spread_over_pools_is_found_again() -> None:
    rng = np.random.default_rng(3)
    rates = rng.gamma(0.84, 0.6 / 0.84, 400)
    pools = [trace_of("p", "made", 1.0, np.ones(3, dtype=np.int64)).first for _ in rates]
    pools = [type(p)(50.0, int(n)) for p, n in zip(pools, rng.poisson(rates * 50), strict=True)]
    found = fit_prior_shape(pools)
    assert found.shape == pytest.approx(0.84, rel=0.15)
    assert found.mean == pytest.approx(0.6, rel=0.15)


def test_machines_lost_together_and_alone_are_told_apart() -> None:
    low, together, high = exponent_interval([pool(1, together=True)], 50)
    assert low <= together <= high
    assert together == pytest.approx(0.0, abs=0.05)
    assert exponent_interval([pool(2, together=False)], 50)[1] == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.is_dir(), reason="the shared data are not here")
def test_the_hazards_of_quotes_predict_the_second_halves_best() -> None:
    found = scores(read_traces())
    quoted = per_hour(found[QUOTED])
    assert quoted > max(per_hour(found[name]) for name in ("band (>20 % a month)", "constant", MEMORYLESS)) + 0.1
    assert gain_interval(found[QUOTED], found[MEMORYLESS], 200)[0] > 0
    assert per_hour(found["own, time of day"]) < per_hour(found["own, gamma prior"])
