"""The study of interruption rules on made-up recordings whose answer is known, and on the public ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pricing.hazard import AGE_SCALE_HOURS
from router.spot.simulator.traces import Floats, Ints
from tests.bench.interruption_rates import (
    DATA,
    WAIT_MULTIPLES,
    coverage_interval,
    gain_interval,
    judge_runs,
    make_folds,
    per_hour,
    score_blocks,
    score_fold,
    share_of_waits_over,
)
from tests.bench.interruption_rules import (
    AGE,
    BAND,
    CONSTANT,
    MEMORYLESS,
    OWN_AGE,
    OWN_PRIOR,
    PRODUCT,
    UNKNOWN,
    Recording,
    RuleOfProduct,
    fit_rules,
    read_recordings,
)

TICK_H = 0.1


def recording(
    counts: Ints, name: str = "made", kind: str = "V100", machines: int = 1, tick_h: float = TICK_H
) -> Recording:
    return Recording(name, "made", ("aws", name, kind, "one"), tick_h, machines, counts)


def aging(seed: int, level: float, ticks: int = 6_000) -> Recording:
    """One machine that lives by the product's law of age, and is back after half an hour on average."""
    rng = np.random.default_rng(seed)
    states: list[int] = []
    while len(states) < ticks:
        life = AGE_SCALE_HOURS * math.expm1(min(rng.standard_exponential() / level, 12.0))
        states += [1] * min(max(1, math.ceil(life / TICK_H)), ticks) + [0] * int(rng.geometric(0.2))
    return recording(np.array(states[:ticks], dtype=np.int64), f"aging-{seed}")


def steady(seed: int, rate: float, ticks: int = 12_000) -> Recording:
    """One machine that is interrupted at the same rate at any age."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(ticks, dtype=np.int64)
    for i in range(1, ticks):
        counts[i] = rng.random() > -math.expm1(-rate * TICK_H) if counts[i - 1] else rng.random() < 0.1
    return recording(counts, f"steady-{seed}")


def scores(recordings: list[Recording]) -> dict[str, list[Floats]]:
    return {name: [score_blocks(r, rule(r)) for r in recordings] for name, rule in fit_rules(recordings).items()}


def test_the_rule_of_the_product_is_ahead_where_machines_live_by_its_law() -> None:
    found = scores([aging(seed, level) for seed, level in enumerate((0.3, 0.6, 1.2, 2.0))])
    low, mid, high = gain_interval(found[PRODUCT], found[MEMORYLESS], 100)
    assert 0 < low < mid < high
    assert per_hour(found[PRODUCT]) > per_hour(found[OWN_AGE]) - 0.01 > per_hour(found[CONSTANT])


def test_the_rule_of_the_product_is_behind_where_interruptions_have_no_memory() -> None:
    found = scores([steady(seed, rate) for seed, rate in enumerate((0.1, 0.3, 1.0))])
    assert per_hour(found[PRODUCT]) < per_hour(found[MEMORYLESS])
    assert per_hour(found[OWN_AGE]) == pytest.approx(per_hour(found[MEMORYLESS]), abs=0.005)
    assert per_hour(found[OWN_PRIOR]) == pytest.approx(per_hour(found[MEMORYLESS]), abs=0.005)
    assert per_hour(found[BAND]) < per_hour(found[CONSTANT]) < per_hour(found[MEMORYLESS])


def test_an_interval_of_pools_as_foreseen_holds_four_runs_in_five() -> None:
    """Pools whose levels differ by the deviation that the rule assumes, known by their first halves or left out."""
    rng = np.random.default_rng(5)
    pools = [aging(100 + i, math.exp(rng.normal(0.0, 0.5)), 3_000) for i in range(60)]
    for known in (True, False):
        rule = RuleOfProduct(pools if known else pools[40:])
        judged = [(pool, judge_runs(pool, rule, 8.0)) for pool in pools[:40]]
        low, mid, high = coverage_interval([(pool, runs) for pool, runs in judged if runs], 8.0, 100)
        assert low <= mid <= high
        assert mid == pytest.approx(0.8, abs=0.1), known


def test_a_pool_that_was_left_out_is_foreseen_alike_whatever_happened_in_it() -> None:
    training = [aging(seed, 1.0, 3_000) for seed in range(3)]
    calm, busy = recording(np.ones(600, dtype=np.int64), "x"), recording(np.arange(600) % 2, "x")
    for name, rule in fit_rules(training).items():
        first = (rule(calm)[0], rule(busy)[0])
        assert first[0] == pytest.approx(first[1]), name


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")
def test_no_public_recording_is_read_twice() -> None:
    recordings = read_recordings(DATA)
    assert len({(r.folder, r.name) for r in recordings}) == len(recordings) == 47
    assert len({r.counts.tobytes() for r in recordings if r.lost.any()}) == sum(bool(r.lost.any()) for r in recordings)
    assert {r.kind for r in recordings} == {
        *(("aws", name) for name in ("CPU", "K80", "V100")),
        *(("gcp", name) for name in ("CPU", "H100")),
    }
    assert sorted({r.machines for r in recordings}) == [1, 4, 16]
    assert sum(UNKNOWN in r.counts for r in recordings) == 13


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")
def test_the_rule_of_the_product_foresees_the_second_halves_best() -> None:
    folds = make_folds(read_recordings(DATA))
    found = score_fold(folds["cut in time"])
    for name in (BAND, CONSTANT, MEMORYLESS, OWN_PRIOR, OWN_AGE, AGE):
        assert gain_interval(found[PRODUCT], found[name], 200)[0] > 0, name
    left_out = score_fold(folds["a pool left out"])
    for name in (BAND, CONSTANT, MEMORYLESS, OWN_PRIOR, OWN_AGE, AGE):
        assert gain_interval(left_out[PRODUCT], left_out[name], 200)[2] > 0, name


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data are not here")
def test_waits_that_plans_assume_are_those_of_second_halves() -> None:
    """The phases were fitted on first halves."""
    waits = np.concatenate([r.waits(r.half, r.counts.size) for r in read_recordings(DATA)])
    for times in WAIT_MULTIPLES:
        assert (waits > times * waits.mean()).mean() == pytest.approx(share_of_waits_over(times), abs=0.025)
