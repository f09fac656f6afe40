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
    exponent_interval,
    gain_interval,
    hit_chances,
    judge_runs,
    make_folds,
    mean_wait,
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
    fit_gamma,
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


def gang(seed: int, together: bool) -> Recording:
    """Eight machines that are lost all at once and back after a tick, or each by itself and back after at most 40."""
    rng = np.random.default_rng(seed)
    counts: Ints = np.full(20_000, 8, dtype=np.int64)
    for i in range(1, counts.size):
        if together:
            counts[i] = 0 if counts[i - 1] and rng.random() < 0.01 else 8
        else:
            counts[i] = counts[i - 1] - rng.binomial(counts[i - 1], 0.005) if i % 40 else 8
    return recording(counts, f"gang-{seed}", machines=8)


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


def test_the_spread_over_pools_is_found_again() -> None:
    rng = np.random.default_rng(3)
    rates = rng.gamma(0.84, 0.6 / 0.84, 400)
    shape, mean = fit_gamma([(float(n), 50.0) for n in rng.poisson(rates * 50)])
    assert shape == pytest.approx(0.84, rel=0.15)
    assert mean == pytest.approx(0.6, rel=0.15)


def test_chances_of_interruptions_are_those_of_the_law() -> None:
    chances = hit_chances((0.5, 2.0), TICK_H, 80)
    assert chances.sum(axis=1) == pytest.approx([1.0, 1.0])
    for row, level in zip(chances, (0.5, 2.0), strict=True):
        none = (AGE_SCALE_HOURS / (AGE_SCALE_HOURS + 8.0)) ** level
        once = 0.0  # the first life ends in some tick, and the second outlives the rest
        for tick in range(1, 81):
            ends = [(AGE_SCALE_HOURS / (AGE_SCALE_HOURS + t * TICK_H)) ** level for t in (tick - 1, tick, 80 - tick)]
            once += (ends[0] - ends[1]) * ends[2]
        assert row[0] == pytest.approx(none, abs=0.02)
        assert row[1] == pytest.approx(once, abs=0.02)


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


def test_runs_begin_at_each_return_and_count_their_interruptions() -> None:
    second = [0] + [1] * 4 + [0] * 2 + [1] * 3 + [0] + [1] * 30
    one = recording(np.array([1] * 41 + second, dtype=np.int64))
    assert one.half == 40
    runs = judge_runs(one, RuleOfProduct([one]), 0.8)
    assert [run.interval for run in runs] == [42, 48, 52]
    assert [run.weight for run in runs] == [3, 6, 4]
    assert runs[0].below > runs[1].below > runs[2].below  # two interruptions (after 5 and 8 ticks), one, none
    assert not judge_runs(one, RuleOfProduct([one]), 24.0)


def test_a_tick_that_nobody_probed_is_neither_life_nor_loss() -> None:
    one = recording(np.array([1, 1, UNKNOWN, UNKNOWN, 1, 0, 1, 1, 1], dtype=np.int64))
    assert one.up.tolist() == [True, False, False, False, True, False, True, True]
    assert one.lost.tolist() == [False] * 4 + [True] + [False] * 3
    assert one.first.hours == pytest.approx(TICK_H, rel=0.01)
    assert one.age_h[-1] == pytest.approx(TICK_H)


def test_a_gang_is_lost_when_too_few_are_left() -> None:
    one = recording(np.array([4, 4, 3, 2, 4, 4, 0, 4, 4], dtype=np.int64), machines=4)
    assert one.lost.nonzero()[0].tolist() == [1, 5]
    assert one.losses == 1
    assert one.first.losses == pytest.approx(1, rel=0.01)


def test_what_is_left_out_is_judged_once_and_never_fitted_on() -> None:
    recordings = [
        Recording(
            f"{cloud}{kind}{i}{campaign}", campaign, (cloud, str(i), kind, "one"), 1.0, 1, np.ones(9, dtype=np.int64)
        )
        for cloud, kind in (("aws", "V100"), ("aws", "K80"), ("gcp", "V100"))
        for i in range(2)
        for campaign in ("spring", "autumn")
    ]
    folds = make_folds(recordings)
    for parts in folds.values():
        assert sorted(r.name for _, judged in parts for r in judged) == sorted(r.name for r in recordings)
    assert [len(parts) for parts in folds.values()] == [1, 6, 3, 2]
    for training, judged in folds["a pool left out"]:
        assert not {r.pool for r in training} & {r.pool for r in judged}
    for training, judged in folds["a cloud left out"]:
        assert not {r.pool[0] for r in training} & {r.pool[0] for r in judged}


def test_a_pool_that_was_left_out_is_foreseen_alike_whatever_happened_in_it() -> None:
    training = [aging(seed, 1.0, 3_000) for seed in range(3)]
    calm, busy = recording(np.ones(600, dtype=np.int64), "x"), recording(np.arange(600) % 2, "x")
    for name, rule in fit_rules(training).items():
        first = (rule(calm)[0], rule(busy)[0])
        assert first[0] == pytest.approx(first[1]), name


def test_machines_lost_together_and_alone_are_told_apart() -> None:
    low, together, high = exponent_interval([gang(1, together=True)], 50)
    assert low <= together <= high
    assert together == pytest.approx(0.0, abs=0.05)
    assert exponent_interval([gang(2, together=False)], 50)[1] == pytest.approx(1.0, abs=0.1)


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


def test_the_mean_wait_of_a_pool_counts_waits_without_an_end_and_each_pool_alike() -> None:
    pool = recording(np.array([1, 0, 0, 0, 1, 1, 0, 0, UNKNOWN, 0, 0], dtype=np.int64))
    hours, waits = pool.waited(0, 11)
    assert hours == pytest.approx(5 * TICK_H)
    assert waits == 1, "the end of the second wait was not seen"
    seen = [(10.0, 10), (400.0, 100), (0.0, 0)]
    assert mean_wait(seen, 0.0) == pytest.approx((1 + 4) / 2)
    shrunk = mean_wait(seen, 4.0)
    assert shrunk == pytest.approx(((10 + 4 * shrunk) / 14 + (400 + 4 * shrunk) / 104) / 2)
