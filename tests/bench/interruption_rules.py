"""Rules for the rate at which a machine is interrupted, each fitted on the first half of every trace.

A rule knows the losses and machine-hours of the first halves. For the second halves it states a rate at every tick,
from what was observed until that tick: how long the pool has been as it is, and its smoothed availability.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln

from pricing.interruption_rates import PriorShape, posterior_rate
from pricing.observed_risk import Exposure
from pricing.risk import band_rate
from router.spot.availability.hazard_model import CLASSES, age_class
from router.spot.availability.observed import PoolObservation, posterior_hazards
from router.spot.simulator.traces import Floats, Ints

FAST_H, SLOW_H, DAY_H = 8.0, 48.0, 24.0
_LEAST, _MOST = 1e-5, 60.0  # per hour
_RIDGE, _ROUNDS = 0.5, 60
_SOME_DAY: Final = datetime(2023, 1, 1, tzinfo=UTC)
QUOTED: Final = "quotes: own and pool, age"


@dataclass(frozen=True, eq=False, slots=True)
class Trace:
    """One recorded pool: machines up by tick, and what was known at each tick but the last."""

    name: str
    folder: str
    tick_h: float
    up: Ints
    losses: Ints
    age_h: Floats
    fast: Floats
    slow: Floats
    hour: Floats

    @property
    def half(self) -> int:
        """The first tick of the second half."""
        return self.up.size // 2

    @property
    def first(self) -> Exposure:
        """Machine-hours and losses of the first half."""
        return Exposure(float(self.up[: self.half].sum()) * self.tick_h, int(self.losses[: self.half].sum()))

    def log_likelihood(self, rate: Floats, ticks: slice) -> Floats:
        """Return by tick the log-likelihood of the losses, machine by machine, at this rate (per machine-hour)."""
        up, lost = self.up[ticks], self.losses[ticks]
        load = np.clip(rate, _LEAST, _MOST) * self.tick_h
        found: Floats = lost * np.log(-np.expm1(-load)) - (up - lost) * load
        return found


def read_trace(path: Path, root: Path) -> Trace:
    """Return one trace of the shared folder."""
    document = json.loads(path.read_text(encoding="utf-8"))
    counts = np.array(document["data"], dtype=np.int64)
    return trace_of(path.stem, str(path.parent.relative_to(root)), document["metadata"]["gap_seconds"] / 3600, counts)


def trace_of(name: str, folder: str, tick_h: float, counts: Ints) -> Trace:
    """Return a trace with the signals that were known at each tick."""
    share = counts / max(1, counts.max())
    age, fast, slow = (np.zeros(counts.size - 1) for _ in range(3))
    recent = lately = 0.5
    for i in range(counts.size - 1):
        age[i] = age[i - 1] + tick_h if i and counts[i] == counts[i - 1] else tick_h
        recent += (share[i] - recent) * -np.expm1(-tick_h / FAST_H)
        lately += (share[i] - lately) * -np.expm1(-tick_h / SLOW_H)
        fast[i], slow[i] = recent, lately
    losses = np.maximum(counts[:-1] - counts[1:], 0)
    hour = (np.arange(age.size) * tick_h % DAY_H).astype(np.float64)
    return Trace(name, folder, tick_h, counts[:-1], losses, age, fast, slow, hour)


Rule = Callable[[Trace], Floats]


def fitted_rules(traces: Sequence[Trace]) -> dict[str, Rule]:
    """Return each rule, fitted on the first halves: the rate per machine-hour at every tick of a trace."""
    prior = fit_prior_shape([trace.first for trace in traces])
    hours, losses = sum(t.first.hours for t in traces), sum(t.first.losses for t in traces)
    constant = losses / hours

    def own(trace: Trace) -> float:
        return posterior_rate(trace.first, prior).per_hour

    def flat(rate_of: Callable[[Trace], float]) -> Rule:
        return lambda trace: np.full(trace.up.size, rate_of(trace))

    rules = {
        "band (>20 % a month)": flat(lambda _: band_rate(">20%")),
        "constant": flat(lambda _: constant),
        "memoryless": flat(lambda t: (t.first.losses + 0.5) / (t.first.hours + 0.5 / constant)),
        "own, gamma prior": flat(own),
    }
    rules[QUOTED] = _quoted_hazards(traces, constant)
    for name, columns in REGRESSIONS.items():
        rules[name] = _regression(traces, own, columns)
    return rules


def _quoted_hazards(traces: Sequence[Trace], constant: float) -> Rule:
    """Return the hazards by class of age that quotes and policies use; pools of one folder were observed together."""
    hazards: dict[tuple[str, str], Floats] = {}
    for folder in {trace.folder for trace in traces}:
        own = [trace for trace in traces if trace.folder == folder]
        events, hours = posterior_hazards(np.full((len(own), 2), constant), [_observation(trace) for trace in own])
        hazards |= {(folder, trace.name): (events / hours)[i, 1] for i, trace in enumerate(own)}
    return lambda trace: hazards[trace.folder, trace.name][age_class(trace.age_h)]


def _observation(trace: Trace) -> PoolObservation:
    """Return losses and machine-hours of the first half by class of age; moments do not matter here."""
    first = slice(None, trace.half)
    classes = age_class(trace.age_h[first])
    events, hours = np.zeros((2, CLASSES)), np.zeros((2, CLASSES))
    events[1] = np.bincount(classes, trace.losses[first], CLASSES)
    hours[1] = np.bincount(classes, trace.up[first] * trace.tick_h, CLASSES)
    return PoolObservation(events, hours, up=True, age_h=1.0, since=_SOME_DAY, at=_SOME_DAY)


Columns = Callable[[Trace, float], list[Floats]]
REGRESSIONS: Final[dict[str, Columns]] = {
    "own, time of day": lambda t, own: [_own(t, own), np.sin(t.hour / 24 * 2 * np.pi), np.cos(t.hour / 24 * 2 * np.pi)],
    "own, age": lambda t, own: [_own(t, own), np.log(t.age_h)],
    "own, age, time of day": lambda t, own: [
        *(_own(t, own), np.log(t.age_h)),
        *(np.sin(t.hour / 24 * 2 * np.pi), np.cos(t.hour / 24 * 2 * np.pi)),
    ],
    "own, age, availability": lambda t, own: [_own(t, own), np.log(t.age_h), 2 * t.fast - 1, 2 * t.slow - 1],
}


def _own(trace: Trace, own: float) -> Floats:
    return np.full(trace.up.size, np.log(own))


def _regression(traces: Sequence[Trace], own: Callable[[Trace], float], columns: Columns) -> Rule:
    """Return the rule whose log rate is linear in the columns, by Poisson regression with a ridge."""
    weights = poisson_weights(
        np.concatenate([_design(columns(t, own(t)))[: t.half] for t in traces]),
        np.concatenate([t.losses[: t.half] for t in traces]).astype(np.float64),
        np.concatenate([t.up[: t.half] * t.tick_h for t in traces]),
    )
    return lambda trace: np.exp(np.clip(_design(columns(trace, own(trace))) @ weights, -12.0, 5.0))


def _design(columns: list[Floats]) -> Floats:
    return np.stack([np.ones_like(columns[0]), *columns], axis=1)


def poisson_weights(design: Floats, losses: Floats, exposure: Floats) -> Floats:
    """Return the weights of log rate = design @ weights; all but the level are drawn towards zero a little."""
    design, losses, exposure = design[exposure > 0], losses[exposure > 0], exposure[exposure > 0]
    weights = np.zeros(design.shape[1])
    weights[0] = np.log((losses.sum() + 0.5) / exposure.sum())
    ridge = np.diag([1e-6] + [_RIDGE] * (weights.size - 1))
    for _ in range(_ROUNDS):
        mean = exposure * np.exp(np.clip(design @ weights, -12.0, 5.0))
        slope = design.T @ (losses - mean) - ridge @ weights * (np.arange(weights.size) > 0)
        step = np.clip(np.linalg.solve((design * mean[:, None]).T @ design + ridge, slope), -1.0, 1.0)
        weights = weights + step
        if np.abs(step).max() < 1e-9:
            break
    return weights


def fit_prior_shape(pools: Sequence[Exposure]) -> PriorShape:
    """Return the shape and mean under which the losses of the pools are likeliest: negative binomial counts."""
    losses, hours = (np.array([float(getattr(pool, name)) for pool in pools]) for name in ("losses", "hours"))

    def unlikely(logs: Floats) -> float:
        shape, mean = np.exp(logs)
        rate = shape / mean
        terms = (
            gammaln(shape + losses) - gammaln(shape) + shape * np.log(rate) - (shape + losses) * np.log(rate + hours)
        )
        return -float(terms.sum())

    found = minimize(unlikely, [0.0, np.log(losses.sum() / hours.sum())], method="Nelder-Mead")
    shape, mean = np.exp(found.x)
    return PriorShape(float(shape), float(mean))
