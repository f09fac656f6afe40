"""Judge the product's interruption rule on recorded spot pools, against simpler rules.

    python -m tests.bench.interruption_rates [--draws 1000]

Every rule is fitted on first halves and judged on second halves, in four folds: cut in time (fitted on all), and each
pool, each accelerator of a cloud, and each cloud left out in turn (fitted on the others alone). First table:
log-likelihood per hour that a gang was up, tick by tick; gains of the product's rule over each other rule have 90 %
intervals (recordings, and blocks of half a day in each, are drawn with replacement, the same for both rules).

Second table: the share of runs whose interruptions lie within the 80 % interval that the product's rule states. A run
is launched when the pool comes back, and so at age 0, relaunched in place whenever the pool is back, and lasts 8, 24 or
72 hours of running, not of waiting. Every recording weighs the same, and each of its runs by the time since the pool
came back before: as if jobs were submitted at any moment and waited for the next return (launches in a flurry of
interruptions would else count by their number, and a perfect rule would seem to fail). Interruptions are whole numbers,
so the closed interval holds more than 80 % even of a perfect rule. The first figure counts an edge only in part (a
randomised probability transform); that of a perfect rule is 80 %. Where the second half is hardly longer than a run,
the run ends in it only if it waited little: "long ones" are the recordings whose second half lasts twice as long.

Third table: how much more often a gang of n machines is hit than one, as an exponent of n.

Fourth table: the share of waits for machines that are longer than a multiple of their mean, with its 90 % interval, as
plans assume it, and as one exponential would have it. The phases were fitted on first halves.

Fifth table: the mean wait of a pool in first halves, each pool alike; a wait that a half does not see end counts as
time. What second halves say of it where so many waits of the first half weigh as much as all pools do: the mean log
score of their waits as exponentials, each pool alike, and the correlation of the logs of both halves.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from pricing.hazard import AGE_SCALE_HOURS, HIGH, LOW
from router.jobs.pool_waits import PHASES
from router.spot.simulator.traces import Bools, Floats, Ints
from tests.bench.interruption_rules import (
    PRODUCT,
    UNKNOWN,
    Recording,
    RuleOfProduct,
    fit_rules,
    read_recordings,
)
from tests.support.repository import ROOT

DATA: Final = ROOT.parent / "shared" / "data"
BLOCK_H: Final = 12.0
RUNS_H: Final = (8.0, 24.0, 72.0)
WAIT_MULTIPLES: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
LEAST_COVERAGE, MOST_COVERAGE = 0.72, 0.88
_LIVES: Final = 4000  # runs drawn for each level
_SEED: Final = 55
WAITS_TO_KNOW: Final = (4.0, 0.5, 16.0, 64.0)  # as the product has it, and others
_ROUNDS: Final = 50

Fold = tuple[list[Recording], list[Recording]]
"""The recordings that rules are fitted on, and those they are judged on."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge the product's interruption rule on second halves.")
    parser.add_argument("--draws", type=int, default=1000, help="draws of the intervals (default 1000)")
    options = parser.parse_args()
    if not DATA.is_dir():
        print("INTERRUPTION RATES: skipped, the shared data are not here")
        return
    recordings = read_recordings(DATA)
    folds = make_folds(recordings)
    pools, kinds = len({r.pool for r in recordings}), sorted({" ".join(r.kind) for r in recordings})
    print(f"INTERRUPTION RATES: {len(recordings)} recordings of {pools} pools: {', '.join(kinds)}")
    for line in (
        *rule_lines(folds, options.draws),
        *coverage_lines(folds, options.draws),
        *gang_lines(recordings, options.draws),
        *wait_lines(recordings, options.draws),
        *mean_wait_lines(recordings),
    ):
        print(line, flush=True)


def make_folds(recordings: Sequence[Recording]) -> dict[str, list[Fold]]:
    """Return by name the folds: all recordings known, and each pool, kind and cloud left out in turn."""
    groups: dict[str, Callable[[Recording], object]] = {
        "a pool left out": lambda r: r.pool,
        "an accelerator left out": lambda r: r.kind,
        "a cloud left out": lambda r: r.kind[0],
    }
    folds: dict[str, list[Fold]] = {"cut in time": [(list(recordings), list(recordings))]}
    for name, group in groups.items():
        keys = dict.fromkeys(group(r) for r in recordings)
        folds[name] = [
            ([r for r in recordings if group(r) != key], [r for r in recordings if group(r) == key]) for key in keys
        ]
    return folds


# Likelihood.


def score_fold(parts: Sequence[Fold]) -> dict[str, list[Floats]]:
    """Return by rule, for each judged recording, log-likelihood and hours up by block of the second half."""
    scores: dict[str, list[Floats]] = {}
    for training, judged in parts:
        for name, rule in fit_rules(training).items():
            scores.setdefault(name, []).extend(score_blocks(r, rule(r)) for r in judged)
    return scores


def score_blocks(recording: Recording, losses: Floats) -> Floats:
    """Return by block of the second half the log-likelihood of its interruptions and the hours that the gang was up."""
    later = slice(recording.half, None)
    up, lost = recording.up[later], recording.lost[later]
    likely = np.clip(losses[later], 1e-12, 1 - 1e-12)
    values = up * np.where(lost, np.log(likely), np.log1p(-likely))
    size = max(1, round(BLOCK_H / recording.tick_h))
    starts = np.arange(0, values.size, size)
    return np.stack([np.add.reduceat(values, starts), np.add.reduceat(up * recording.tick_h, starts)], axis=1)


def per_hour(scores: Sequence[Floats]) -> float:
    """Return the log-likelihood per hour up of some recordings together."""
    value, hours = np.concatenate(scores).sum(axis=0)
    return float(value / hours)


def gain_interval(scores: Sequence[Floats], others: Sequence[Floats], draws: int) -> tuple[float, float, float]:
    """Return the gain per hour up over another rule: low, as measured, high."""
    rng = np.random.default_rng(_SEED)
    gains = []
    for _ in range(draws):
        value = hours = 0.0
        for i in rng.integers(0, len(scores), len(scores)):
            drawn = rng.integers(0, len(scores[i]), len(scores[i]))
            value += float((scores[i][drawn, 0] - others[i][drawn, 0]).sum())
            hours += float(scores[i][drawn, 1].sum())
        gains.append(value / hours if hours else 0.0)
    low, high = np.quantile(gains, (0.05, 0.95))
    return float(low), per_hour(scores) - per_hour(others), float(high)


def rule_lines(folds: dict[str, list[Fold]], draws: int) -> Iterator[str]:
    """Yield the table of rules in each fold, and how the product's stands."""
    for fold, parts in folds.items():
        scores = score_fold(parts)
        yield f"LIKELIHOOD, {fold}: per hour up; gain of the product's rule over it"
        behind = []
        for name, own in scores.items():
            gain = ""
            if name != PRODUCT:
                low, mid, high = gain_interval(scores[PRODUCT], own, draws)
                gain = f"  {mid:+.4f} ({low:+.4f} to {high:+.4f})"
                behind += [name] if high < 0 else []
            yield f"  {name:28}{per_hour(own):9.4f}{gain}"
        yield f"  => {'behind ' + ', '.join(behind) if behind else 'best or level with the best'}"


# Coverage.


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """One run of the second half: when it began, its weight, and where its interruptions fall in what was foreseen.

    ``part`` is the share of the probability of exactly so many that lies within the 10 % and the 90 % quantile;
    ``closed`` whether so many lie between these quantiles or on them; ``below`` the probability of fewer, plus a half
    of that of exactly so many.
    """

    interval: int
    weight: float
    part: float
    closed: bool
    below: float


def judge_runs(recording: Recording, rule: RuleOfProduct, hours: float) -> list[JudgedRun]:
    """Return the runs of so many hours of running that begin and end in the second half."""
    ticks = round(hours / recording.tick_h)
    up = np.flatnonzero(recording.up[recording.half :]) + recording.half
    if up.size < ticks:
        return []
    hazard = rule.gang(recording)
    chances = np.array(hazard.weights) @ hit_chances(hazard.levels, recording.tick_h, ticks)
    total = np.concatenate([[0.0], np.cumsum(chances)])
    hits = np.concatenate([[0], np.cumsum(recording.lost[up])])
    begins = [p for p in range(up.size - ticks + 1) if recording.back[up[p]]]
    judged, before = [], recording.half - 1
    for p in begins:
        n = int(hits[p + ticks] - hits[p])
        below, through = float(total[n]), float(total[n + 1])
        inside = max(0.0, min(through, HIGH) - max(below, LOW))
        part = inside / (through - below) if through > below else float(LOW <= below <= HIGH)
        closed, middle = through >= LOW and below < HIGH, (below + through) / 2
        judged.append(JudgedRun(int(up[p]), float(up[p] - before), part, closed, middle))
        before = int(up[p])
    return judged


@lru_cache(maxsize=256)
def hit_chances(levels: tuple[float, ...], tick_h: float, ticks: int) -> Floats:
    """Return by level the probability of each number of interruptions in so many ticks of running, from age 0.

    Lives are drawn as c (u ** (-1 / level) - 1) and end with the tick in which they end, as a probe sees them.
    """
    rng = np.random.default_rng(_SEED)
    column = np.array(levels)[:, None]
    passed, hits = np.zeros((len(levels), _LIVES)), np.zeros((len(levels), _LIVES), dtype=np.int64)
    running: Bools = np.ones(len(levels), dtype=np.bool_)
    while running.any():
        logs = rng.standard_exponential((int(running.sum()), _LIVES)) / column[running]
        lives = np.maximum(1.0, np.ceil(AGE_SCALE_HOURS * np.expm1(np.minimum(logs, 20.0)) / tick_h))
        passed[running] += lives
        hits[running] += passed[running] <= ticks
        running = np.asarray((passed <= ticks).any(axis=1))
    return np.stack([np.bincount(row, minlength=ticks + 1) for row in hits]) / _LIVES


def coverage_lines(folds: dict[str, list[Fold]], draws: int) -> Iterator[str]:
    """Yield the coverage of the 80 % interval in each fold by length of run, and where misses lie."""
    wanted = f"{LEAST_COVERAGE:.0%} to {MOST_COVERAGE:.0%}"
    yield f"COVERAGE of the 80 % interval of interruptions per run; {wanted} is wanted"
    for fold, parts in folds.items():
        rules = [(RuleOfProduct(training), judged) for training, judged in parts]
        for hours in RUNS_H:
            found = [(r, judge_runs(r, rule, hours)) for rule, judged in rules for r in judged]
            runs = [(r, own) for r, own in found if own]
            low, mid, high = coverage_interval(runs, hours, draws)
            closed = mean_of(runs, lambda run: float(run.closed))
            under = mean_of(runs, lambda run: (1 - run.part) * (run.below < 0.5))
            long = [(r, own) for r, own in runs if (r.up.size - r.half) * r.tick_h >= 2 * hours]
            verdict = "" if LEAST_COVERAGE <= mid <= MOST_COVERAGE else "  OUTSIDE"
            yield (
                f"  {fold:24}{hours:4.0f} h  {mid:6.1%} ({low:.0%} to {high:.0%}); closed {closed:.0%}; "
                f"fewer than foreseen {under:.0%}, more {1 - mid - under:.0%}; {sum(len(own) for _, own in runs)} runs "
                f"of {len(runs)} recordings; {len(long)} long ones {mean_of(long, lambda run: run.part):.0%}{verdict}"
            )


Judged = Sequence[tuple[Recording, list[JudgedRun]]]


def mean_of(runs: Judged, value: Callable[[JudgedRun], float]) -> float:
    """Return the mean over recordings of the weighted mean over their runs."""
    means = [np.average([value(run) for run in own], weights=[run.weight for run in own]) for _, own in runs]
    return float(np.mean(means))


def coverage_interval(runs: Judged, hours: float, draws: int) -> tuple[float, float, float]:
    """Return the share of runs inside, every recording alike: low, as measured, high (recordings and blocks drawn)."""
    rng = np.random.default_rng(_SEED)
    blocks = []
    for recording, own in runs:
        size = max(BLOCK_H, hours) / recording.tick_h
        rows: dict[int, list[float]] = {}
        for run in own:
            row = rows.setdefault(math.floor((run.interval - recording.half) / size), [0.0, 0.0])
            row[0] += run.weight * run.part
            row[1] += run.weight
        blocks.append(np.array(list(rows.values())))
    found = []
    for _ in range(draws):
        drawn = []
        for i in rng.integers(0, len(blocks), len(blocks)):
            inside, weight = blocks[i][rng.integers(0, len(blocks[i]), len(blocks[i]))].sum(axis=0)
            drawn.append(inside / weight)
        found.append(np.mean(drawn))
    low, high = np.quantile(found, (0.05, 0.95))
    return float(low), mean_of(runs, lambda run: run.part), float(high)


# Gangs.


def gang_lines(recordings: Sequence[Recording], draws: int) -> Iterator[str]:
    """Yield the exponent of each recording of several machines, and of each campaign of them."""
    many = [recording for recording in recordings if recording.machines > 1]
    yield "GANG FACTOR: a gang of n is hit n ** e times as often as one machine (0: together, 1: independently)"
    for folder in sorted({recording.folder for recording in many}):
        own = [recording for recording in many if recording.folder == folder]
        for members, name in [*(([recording], recording.name) for recording in own), (own, f"all {len(own)}")]:
            low, mid, high = exponent_interval(members, draws)
            yield f"  {folder:34} {name:18} e {mid:.2f} ({low:.2f} to {high:.2f})"


def wait_lines(recordings: Sequence[Recording], draws: int) -> Iterator[str]:
    """Yield the share of waits beyond multiples of their mean, on first and second halves."""
    yield "WAITS: share longer than a multiple of their mean"
    rng = np.random.default_rng(_SEED)
    for name, waits in (
        ("first halves", [r.waits(0, r.half) for r in recordings]),
        ("second halves", [r.waits(r.half, r.counts.size) for r in recordings]),
    ):
        every = np.concatenate(waits)
        mean = float(every.mean())
        yield f"  {name}: {every.size} waits, {mean:.1f} h in the mean, {np.median(every):.1f} h in the middle"
        for times in WAIT_MULTIPLES:
            over = np.array([[(each > times * mean).sum(), each.size] for each in waits], dtype=np.float64)
            drawn = [over[rng.integers(0, len(over), len(over))].sum(axis=0) for _ in range(draws)]
            low, high = np.quantile([a / b for a, b in drawn], (0.05, 0.95))
            share, assumed = (every > times * mean).mean(), share_of_waits_over(times)
            yield (
                f"    {times:5.2f}  {share:6.1%} ({low:.1%} to {high:.1%})  assumed {assumed:6.1%}  "
                f"exponential {math.exp(-times):6.1%}"
            )


def mean_wait_lines(recordings: Sequence[Recording]) -> Iterator[str]:
    """Yield the mean wait of a pool by cloud, and how well first halves foretell second ones."""
    yield "MEAN WAIT of a pool, waits without an end counted"
    for cloud in sorted({recording.pool[0] for recording in recordings}):
        own = [r.waited(0, r.half) for r in recordings if r.pool[0] == cloud]
        yield f"  {cloud:6} {len(own)} recordings, {mean_wait(own, WAITS_TO_KNOW[0]):.1f} h, each alike"
    first = [r.waited(0, r.half) for r in recordings]
    second = [r.waited(r.half, r.counts.size) for r in recordings]
    both = [(a, b) for a, b in zip(first, second, strict=True) if a[1] and b[1]]
    usual = mean_wait(first, WAITS_TO_KNOW[0])
    for known in WAITS_TO_KNOW:
        told = [((hours + known * usual) / (waits + known), b) for (hours, waits), b in both]
        score = np.mean([-math.log(wait) - hours / waits / wait for wait, (hours, waits) in told])
        yield f"  known from {known:4g} waits on: log score of second halves {score:.3f}"
    logs = np.log([(a[0] / a[1], b[0] / b[1]) for a, b in both])
    yield f"  correlation of both halves' logs {np.corrcoef(logs.T)[0, 1]:.2f}"


def mean_wait(waited: Sequence[tuple[float, int]], known: float) -> float:
    """Return the mean hours of a pool's wait, each pool that had one alike, shrunk to that mean by ``known`` waits."""
    seen = [(hours, waits) for hours, waits in waited if hours > 0]
    mean = sum(hours for hours, _ in seen) / max(1, sum(waits for _, waits in seen))
    for _ in range(_ROUNDS):
        mean = float(np.mean([(hours + known * mean) / (waits + known) for hours, waits in seen]))
    return mean


def share_of_waits_over(times: float) -> float:
    """Return the share of waits that plans assume to be longer than so many times their mean."""
    return sum(share * math.exp(-times / mean) for share, mean in PHASES)


def exponent_interval(recordings: Sequence[Recording], draws: int) -> tuple[float, float, float]:
    """Return the exponent with its 90 % interval, over blocks of half a day."""
    rng = np.random.default_rng(_SEED)
    blocks = [gang_blocks(recording) for recording in recordings]
    found = []
    for _ in range(draws):
        drawn = [b[rng.integers(0, len(b), len(b))].sum(axis=0) for b in blocks]
        exponent = fit_exponent(drawn)
        if exponent is not None:
            found.append(exponent)
    low, high = np.quantile(found, (0.05, 0.95))
    measured = fit_exponent([b.sum(axis=0) for b in blocks])
    assert measured is not None
    return float(low), measured, float(high)


def gang_blocks(recording: Recording) -> Floats:
    """Return by block and number of machines up: hours, ticks at which any was lost, and machines lost."""
    size = max(1, round(BLOCK_H / recording.tick_h))
    before, after = recording.counts[:-1], recording.counts[1:]
    known = (before != UNKNOWN) & (after != UNKNOWN)
    up: Ints = np.where(known, before, 0)
    losses = np.where(known, np.maximum(before - after, 0), 0)
    most, blocks = int(up.max()), -(-up.size // size)
    cell = np.arange(up.size) // size * (most + 1) + up
    columns = (np.full(up.size, recording.tick_h), losses > 0, losses)
    counts = [np.bincount(cell, column, blocks * (most + 1)) for column in columns]
    return np.stack(counts, axis=1).reshape(blocks, most + 1, len(columns)).astype(np.float64)


def fit_exponent(tables: Sequence[Floats]) -> float | None:
    """Return e where a gang of n is hit at the rate of one machine times n ** e, by the counts of all n at once.

    The rate of one machine is losses over machine-hours, of each recording its own. None if two were never lost.
    """
    hours, hits, expected = [], [], []
    for table in tables:
        n = np.arange(table.shape[0], dtype=np.float64)
        machine_hours = float((table[:, 0] * n).sum())
        rate = float(table[:, 2].sum()) / machine_hours if machine_hours else 0.0
        hours.append(n[2:])
        hits.append(table[2:, 1])
        expected.append(table[2:, 0] * rate)
    n, y, base = (np.concatenate(parts) for parts in (hours, hits, expected))
    if y.sum() == 0:
        return None
    low, high = -2.0, 2.0
    while high - low > 1e-6:  # the slope of the Poisson likelihood falls in e
        middle = (low + high) / 2
        slope = float((np.log(n) * (y - base * n**middle)).sum())
        low, high = (middle, high) if slope > 0 else (low, middle)
    return (low + high) / 2


if __name__ == "__main__":
    main()
