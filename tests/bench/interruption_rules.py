"""Rules for interruptions of spot pools, each fitted on the first halves of some recordings.

A rule states for every tick of a recording how likely the gang is to be lost in it, given that it has lived so long.
The rule of the product is made of its own parts (:mod:`pricing.risk_levels`); its rivals are formulas of this study.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln

from pricing.hazard import Hazard, HazardShape, mix
from pricing.pool_experience import Exposure, measure_exposure
from pricing.risk import GANG_EXPONENTS
from pricing.risk_levels import (
    CLOUD_DEVIATION,
    COMMON_DEVIATION,
    GENERATION_DEVIATION,
    POOL_DEVIATION,
    PoolPrior,
    PoolRecord,
    RiskLevels,
)
from router.spot.simulator.traces import Bools, Floats, Ints

UNKNOWN: Final = -1  # the count of a tick in which nobody probed
USUAL_EXPONENT: Final = 0.35
BAND_SHARE, HOURS_A_MONTH = 0.40, 730.0
_LEAST, _MOST = 1e-6, 60.0  # per hour
_RIDGE, _ROUNDS = 0.5, 60
_SOME_DAY: Final = datetime(2023, 1, 1, tzinfo=UTC)
_H100: Final = "h100_gcp_2025-10"


@dataclass(frozen=True, eq=False)
class Recording:
    """One recorded pool, of which a gang of ``machines`` needs so many at once; a joint loss is one interruption.

    ``folder`` names the campaign; ``pool`` is cloud, zone, accelerator and machine type, and recurs in campaigns.
    """

    name: str
    folder: str
    pool: tuple[str, str, str, str]
    tick_h: float
    machines: int
    counts: Ints

    @property
    def kind(self) -> tuple[str, str]:
        """Return cloud and accelerator: the level of the pool."""
        return self.pool[0], self.pool[2]

    @property
    def half(self) -> int:
        """Return the first interval of the second half."""
        return (self.counts.size - 1) // 2

    @cached_property
    def up(self) -> Bools:
        """Return by interval between two ticks whether the gang was up at its begin and its end was probed."""
        found: Bools = (self.counts[:-1] >= self.machines) & (self.counts[1:] != UNKNOWN)
        return found

    @cached_property
    def lost(self) -> Bools:
        """Return by interval whether the gang was lost in it."""
        found: Bools = self.up & (self.counts[1:] < self.machines)
        return found

    @cached_property
    def back(self) -> Bools:
        """Return by interval whether the gang had come back at its begin: it could not be had one tick before."""
        found: Bools = np.zeros(self.up.size, dtype=np.bool_)
        found[1:] = self.up[1:] & (self.counts[:-2] < self.machines) & (self.counts[:-2] != UNKNOWN)
        return found

    @cached_property
    def age_h(self) -> Floats:
        """Return by interval how long the gang had been up at its begin."""
        age = np.zeros(self.up.size)
        for i in range(1, age.size):
            if self.up[i] and self.up[i - 1]:
                age[i] = age[i - 1] + self.tick_h
        return age

    def waits(self, begin: int, end: int) -> Floats:
        """Return the hours of each wait between these ticks, from the loss of the gang until it could be had again."""
        could = self.counts[begin:end] >= self.machines
        changes = np.flatnonzero(could[1:] != could[:-1]) + 1
        spells = [(a, b) for a, b in pairwise(changes.tolist()) if not could[a]]
        known = [b - a for a, b in spells if not (self.counts[begin + a : begin + b] == UNKNOWN).any()]
        return np.array(known, dtype=np.float64) * self.tick_h

    def waited(self, begin: int, end: int) -> tuple[float, int]:
        """Return the hours between these ticks in which the gang could not be had, and how often that ended."""
        here, after = self.counts[begin : end - 1], self.counts[begin + 1 : end]
        away = (here != UNKNOWN) & (after != UNKNOWN) & (here < self.machines)
        return float(away.sum()) * self.tick_h, int((away & (after >= self.machines)).sum())

    @cached_property
    def first(self) -> Exposure:
        """Return the exposure of the first half as the product measures it, seen from the end of that half."""
        tick = timedelta(hours=self.tick_h)
        seen = [
            (_SOME_DAY + i * tick, bool(count >= self.machines))
            for i, count in enumerate(self.counts[: self.half + 1])
            if count != UNKNOWN
        ]
        return measure_exposure(seen, tick * 1.5, seen[-1][0])

    @cached_property
    def hours(self) -> float:
        """Return the hours up of the first half, old ones as much as new ones."""
        return float(self.up[: self.half].sum()) * self.tick_h

    @cached_property
    def losses(self) -> int:
        """Return the interruptions of the first half."""
        return int(self.lost[: self.half].sum())

    @property
    def gang_factor(self) -> float:
        """Return how many times as often as one machine the gang is hit, as a rule without doubt has it."""
        return float(self.machines**USUAL_EXPONENT)


def read_recordings(data: Path) -> list[Recording]:
    """Return every recording below the folder of shared data once, by campaign.

    Two campaigns lie there twice: of the V100 probes of 195 s the traces are read, of the H100 probes the table of
    counts, which says where nobody probed.
    """
    return [*_read_traces(data / "spot-traces"), *_read_probes(data / "spot-availability" / _H100)]


def _read_traces(root: Path) -> Iterator[Recording]:
    paths = sorted(path for part in ("availability", "preemption") for path in (root / part).rglob("*.json"))
    for path in paths:
        folder = str(path.parent.relative_to(root))
        if "h100" in folder:
            continue
        document = json.loads(path.read_text(encoding="utf-8"))
        counts = np.array(document["data"], dtype=np.int64)
        zone, _, machine = path.stem.partition("_")
        accelerator = machine.split("_")[0].upper() if machine.startswith(("v100", "k80")) else "CPU"
        cloud = path.parent.name.split("-")[0]
        tick_h = document["metadata"]["gap_seconds"] / 3600
        machines = int(folder.split("/")[1].split("-")[0])
        yield Recording(path.stem, folder, (cloud, zone, accelerator, machine), tick_h, machines, counts)


def _read_probes(folder: Path) -> Iterator[Recording]:
    with (folder / "launched_of_16.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for zone in list(rows[0])[2:]:
        counts = np.array([int(row[zone]) if row[zone] else UNKNOWN for row in rows], dtype=np.int64)
        yield Recording(f"{zone}_h100", f"availability/{_H100}", ("gcp", zone, "H100", "h100_1"), 1 / 6, 1, counts)


Rule = Callable[[Recording], Floats]
"""Returns by interval the probability that a gang which is up is lost in it."""


class RuleOfProduct:
    """The rule of the product: levels of evidence over the training recordings, about one fitted middle."""

    def __init__(self, training: Sequence[Recording]) -> None:
        self._middle = fit_middle(training)
        self._levels = RiskLevels(tuple(self._record(recording) for recording in training))

    def __call__(self, recording: Recording) -> Floats:
        hazard, tick_h = self.gang(recording), recording.tick_h
        ages, where = np.unique(recording.age_h, return_inverse=True)
        alive = [hazard.survival(tick_h + age) / hazard.survival(age) for age in ages.tolist()]
        return 1.0 - np.array(alive)[where]

    def gang(self, recording: Recording) -> Hazard:
        """Return the hazard of the recording's gang, as the product makes it of that of one machine."""
        one = self._levels.hazard(self._prior(recording), frozenset({_key(recording)}))
        if recording.machines == 1:
            return one
        return mix([(share, one.scaled(recording.machines**exponent)) for share, exponent in GANG_EXPONENTS])

    def _prior(self, recording: Recording) -> PoolPrior:
        return PoolPrior(recording.kind, HazardShape.FALLING, self._middle, WHOLE_DEVIATION)

    def _record(self, recording: Recording) -> PoolRecord:
        seen = recording.first
        exposure = seen.operational * recording.gang_factor
        hours = seen.hours * recording.gang_factor
        return PoolRecord(_key(recording), self._prior(recording), seen.losses, exposure, hours)


#: The deviation of a pool of which nothing is known, no table consulted: all parts of the hierarchy together.
WHOLE_DEVIATION: Final = math.sqrt(
    POOL_DEVIATION**2 + GENERATION_DEVIATION**2 + CLOUD_DEVIATION**2 + COMMON_DEVIATION**2
)


def _key(recording: Recording) -> tuple[str, ...]:
    """Return a recording as a pool by itself: what the same pool did months before is another pool of its kind."""
    return (recording.folder, recording.name)


def fit_middle(training: Sequence[Recording]) -> float:
    """Return one vague middle for all pools: the mean over kinds of the log of interruptions by operational time.

    A kind counts the less, the fewer pools and interruptions of it were recorded.
    """
    kinds = sorted({recording.kind for recording in training})
    total = weights = 0.0
    for kind in kinds:
        own = [recording for recording in training if recording.kind == kind]
        events = sum(r.first.losses for r in own) + 0.5
        exposure = sum(r.first.operational * r.gang_factor for r in own) + 0.5
        weight = 1 / (WHOLE_DEVIATION**2 - POOL_DEVIATION**2 + POOL_DEVIATION**2 / len(own) + 1 / events)
        total += weight * math.log(events / exposure)
        weights += weight
    return math.exp(total / weights)


def flat_rule(rate_of: Callable[[Recording], float]) -> Rule:
    """Return the rule of a rate an hour that does not change with age."""

    def losses(recording: Recording) -> Floats:
        rate = min(max(rate_of(recording), _LEAST), _MOST)
        return np.full(recording.up.size, -math.expm1(-rate * recording.tick_h))

    return losses


PRODUCT: Final = "levels and age: the product"
BAND: Final = "band, a month"
CONSTANT: Final = "one constant"
MEMORYLESS: Final = "memoryless own count"
OWN_PRIOR: Final = "own count, gamma prior"
OWN_AGE: Final = "own count and age"
AGE: Final = "age alone"


def fit_rules(training: Sequence[Recording]) -> dict[str, Rule]:
    """Return each rule, fitted on the first halves of the training recordings; the product's comes first.

    Of a recording that is not among them the rivals know what the others have in common.
    """
    hours, losses = sum(r.hours * r.gang_factor for r in training), sum(r.losses for r in training)
    constant = losses / hours
    shape, mean = fit_gamma([(r.losses, r.hours * r.gang_factor) for r in training])
    known = {_key(recording) for recording in training}

    def own(recording: Recording) -> float:
        if _key(recording) not in known:
            return mean * recording.gang_factor
        prior_hours = shape / (mean * recording.gang_factor)
        return (recording.losses + shape) / (recording.hours + prior_hours)

    def memoryless(recording: Recording) -> float:
        if _key(recording) not in known:
            return constant * recording.gang_factor
        return (recording.losses + 0.5) / (recording.hours + 0.5 / constant)

    def log_own(recording: Recording) -> Floats:
        return np.full(recording.up.size, math.log(own(recording)))

    def log_age(recording: Recording) -> Floats:
        return np.log(recording.age_h + recording.tick_h)

    def log_gang(recording: Recording) -> Floats:
        return np.full(recording.up.size, math.log(recording.gang_factor))

    band = -math.log1p(-BAND_SHARE) / HOURS_A_MONTH
    return {
        PRODUCT: RuleOfProduct(training),
        BAND: flat_rule(lambda recording: band * recording.gang_factor),
        CONSTANT: flat_rule(lambda recording: constant * recording.gang_factor),
        MEMORYLESS: flat_rule(memoryless),
        OWN_PRIOR: flat_rule(own),
        OWN_AGE: regression(training, lambda r: [log_own(r), log_age(r)]),
        AGE: regression(training, lambda r: [log_gang(r), log_age(r)]),
    }


Columns = Callable[[Recording], list[Floats]]


def regression(training: Sequence[Recording], columns: Columns) -> Rule:
    """Return the rule whose log rate is linear in the columns, by Poisson regression with a ridge."""
    weights = poisson_weights(
        np.concatenate([_design(columns(r))[: r.half] for r in training]),
        np.concatenate([r.lost[: r.half] for r in training]).astype(np.float64),
        np.concatenate([r.up[: r.half] * r.tick_h for r in training]),
    )

    def losses(recording: Recording) -> Floats:
        rate = np.exp(np.clip(_design(columns(recording)) @ weights, -12.0, 4.0))
        return -np.expm1(-rate * recording.tick_h)

    return losses


def _design(columns: list[Floats]) -> Floats:
    return np.stack([np.ones_like(columns[0]), *columns], axis=1)


def poisson_weights(design: Floats, losses: Floats, exposure: Floats) -> Floats:
    """Return the weights of log rate = design @ weights; all but the level are drawn towards zero a little."""
    design, losses, exposure = design[exposure > 0], losses[exposure > 0], exposure[exposure > 0]
    weights = np.zeros(design.shape[1])
    weights[0] = np.log((losses.sum() + 0.5) / exposure.sum())
    ridge = np.diag([1e-6] + [_RIDGE] * (weights.size - 1))
    for _ in range(_ROUNDS):
        mean = exposure * np.exp(np.clip(design @ weights, -12.0, 4.0))
        slope = design.T @ (losses - mean) - ridge @ weights * (np.arange(weights.size) > 0)
        step = np.clip(np.linalg.solve((design * mean[:, None]).T @ design + ridge, slope), -1.0, 1.0)
        weights = weights + step
        if np.abs(step).max() < 1e-9:
            break
    return weights


def fit_gamma(pools: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return shape and mean of the gamma under which losses and hours of the pools are likeliest."""
    losses, hours = np.array(pools, dtype=np.float64).T

    def unlikely(logs: Floats) -> float:
        shape, mean = np.exp(logs)
        rate = shape / mean
        terms = (
            gammaln(shape + losses) - gammaln(shape) + shape * np.log(rate) - (shape + losses) * np.log(rate + hours)
        )
        return -float(terms.sum())

    found = minimize(unlikely, [0.0, np.log(losses.sum() / hours.sum())], method="Nelder-Mead")
    shape, mean = np.exp(found.x)
    return float(shape), float(mean)
