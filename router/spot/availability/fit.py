"""The stored result of learning from recorded availability: drift and recalibration, used by all quotes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from router.spot.availability.calibration import Recalibration
from router.spot.availability.hazard_model import CLASSES, HazardModel, age_class, ages_h, pool_hazards
from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.traces import Bools, Floats, Ints

STEP_H: Final = 24.0  # hours between the moments that compare past and future
AHEAD: Final = (range(2), range(2, 5))  # the stretches that each moment predicts, in steps
_X: Final = np.linspace(-5.0, 5.0, 101)
_TINY: Final = 1e-300


class DriftSetting(NamedTuple):
    """One setting of the drift grid.

    ``size`` is the standard deviation of x, ``common`` the part of its variance that all zones share.
    """

    size: float
    common: float


GRID: Final = tuple(DriftSetting(*one) for one in product((0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0), (0.1, 0.4, 0.7, 0.9)))


@dataclass(frozen=True, eq=False, slots=True)
class DriftingHazardModel(HazardModel):
    """A hazard model whose drift is uncertain.

    ``likely`` is the posterior probability of each setting of the grid, for the return of spot and for its loss.
    """

    likely: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())

    def draw(self, draws: int, rng: np.random.Generator) -> Floats:
        """Return by [draw, zone, up, class] hazards as they may be, each draw with a setting of its own."""
        sure = rng.gamma(self.events[None].repeat(draws, 0)) / self.hours
        which = np.stack([rng.choice(len(GRID), draws, p=np.array(p)) for p in self.likely], axis=1)
        size, common = (np.array(column)[which][:, None] for column in zip(*GRID, strict=True))
        own, shared = rng.normal(size=(draws, self.zones, 2)), rng.normal(size=(draws, 1, 2))
        x = size * (np.sqrt(1 - common) * own + np.sqrt(common) * shared)
        return np.asarray(sure * np.exp(x)[..., None] * self.draw_levels(draws, rng))


def learn_drift(up: Bools, tick_s: int) -> DriftingHazardModel:
    """Return the hazard model learned from [zone, tick], with the posterior of its drift.

    Rates are as in :meth:`HazardModel.seen`. A past too short to tell of drift leaves all settings equally likely.
    """
    fit = HazardModel.seen(up, tick_s)
    scored = _log_likelihood(_Steps.of(up, tick_s))
    weight = np.exp(scored - scored.max(axis=1, keepdims=True))
    likely = weight / weight.sum(axis=1, keepdims=True)
    mean = float((likely @ np.array([s.size for s in GRID])).mean())
    back, lost = (tuple(p.tolist()) for p in likely)
    return DriftingHazardModel(fit.events, fit.hours, mean, likely=(back, lost))


@dataclass(frozen=True, eq=False, slots=True)
class _Steps:
    """Events and hours of each step, by [step, zone, up, class]."""

    events: Floats
    hours: Floats

    @classmethod
    def of(cls, up: Bools, tick_s: int) -> _Steps:
        zones, ticks = up.shape
        hours = tick_s / HOUR_S
        step = (np.arange(ticks) * hours // STEP_H).astype(np.int64)
        shape = (int(step[-1]) + 1, zones, 2, CLASSES)
        cell: Ints = np.ravel_multi_index(
            (
                np.broadcast_to(step, up.shape),
                np.arange(zones)[:, None].repeat(ticks, 1),
                up.astype(np.int64),
                age_class(ages_h(up, tick_s)),
            ),
            shape,
        )[:, :-1].ravel()
        changed = (up[:, 1:] != up[:, :-1]).ravel()
        count = int(np.prod(shape))
        events, spent = np.bincount(cell, changed, count), np.bincount(cell, None, count) * hours
        return cls(events.reshape(shape).astype(np.float64), spent.reshape(shape).astype(np.float64))


def _log_likelihood(steps: _Steps) -> Floats:
    """Return by [up, setting] the log likelihood of all stretches; they overlap, so each counts for a part."""
    counts, means, shapes = [], [], []
    for until in range(1, len(steps.events)):
        events, hours = pool_hazards(steps.events[:until].sum(axis=0), steps.hours[:until].sum(axis=0))
        for ahead in AHEAD:
            which = slice(until + ahead.start, until + ahead.stop)
            spent = steps.hours[which].sum(axis=0)
            if not spent.any():
                continue
            per_class = spent * events / hours
            total = per_class.sum(axis=-1)
            counts.append(steps.events[which].sum(axis=(0, 3)))
            means.append(total)
            shapes.append(total**2 / np.maximum((per_class**2 / events).sum(axis=-1), _TINY))
    if not counts:
        return np.zeros((2, len(GRID)))
    n, mu, a = np.stack(counts), np.stack(means), np.maximum(np.stack(shapes), 1e-9)  # [stretch, zone, up]
    return np.stack([_state_log_likelihood(n[..., i], mu[..., i], a[..., i]) for i in range(2)]) / len(AHEAD)


def _state_log_likelihood(n: Floats, mu: Floats, a: Floats) -> Floats:
    """Return by [setting] the log likelihood of [stretch, zone], without terms that are the same for all settings.

    Both integrals run on a fine grid of x: a sharp likelihood falls between the nodes of a coarse one.
    """
    n, a, m = n[..., None], a[..., None], mu[..., None] * np.exp(_X)
    logs = n * (np.log(np.maximum(m, _TINY)) - np.log(a + m)) - a * np.log1p(m / a)
    top = logs.max(axis=-1, keepdims=True)
    likelihoods = []
    for size, common in GRID:
        own = np.exp(logs - top) @ _normal_weights(_X[:, None] - _X[None], size * np.sqrt(1 - common))
        zones = (np.log(np.maximum(own, _TINY)) + top).sum(axis=1)  # [stretch, x of the common part]
        shared = np.log(np.maximum(_normal_weights(_X, size * np.sqrt(common)), _TINY))
        likelihoods.append(np.logaddexp.reduce(zones + shared, axis=-1).sum())
    return np.array(likelihoods)


def _normal_weights(x: Floats, deviation: float) -> Floats:
    """Return the weights of the points of the grid; one column each where there are two axes."""
    weights: Floats = np.exp(-0.5 * (x / deviation) ** 2)
    weights /= weights.sum(axis=0)
    return weights


FORMAT: Final = 1
FRESH_FOR: Final = timedelta(days=31)  # after its last look: availability changes
_SURE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class AvailabilityFit:
    """The drift and the recalibration learned from the recorded past.

    ``since`` and ``until`` are the first and last look at the ``pools`` that it was learned from; ``watched`` is the
    share of the time between that was observed. ``likely`` is the posterior probability of each setting of the drift,
    for the return of spot and for its loss. ``cost`` and ``finish`` say how the quoted levels held in ``outcomes`` made
    of pieces of availability that the model had not seen. Raise ValueError where the shares do not add up to 1.
    """

    since: datetime
    until: datetime
    pools: int
    watched: float
    likely: tuple[tuple[float, ...], tuple[float, ...]]
    cost: Recalibration
    finish: Recalibration
    outcomes: int

    def __post_init__(self) -> None:
        for shares in self.likely:
            if len(shares) != len(GRID) or min(shares) < 0 or abs(sum(shares) - 1) > _SURE:
                raise ValueError(f"give {len(GRID)} shares that add up to 1")

    def is_fresh(self, now: datetime) -> bool:
        """Return whether quotes may still use the fit."""
        return self.since <= now and now - self.until <= FRESH_FOR

    def drifting(self, hazard_model: HazardModel) -> HazardModel:
        """Return a hazard model of the same rates, with the learned drift."""
        sizes = [sum(p * s.size for p, s in zip(shares, GRID, strict=True)) for shares in self.likely]
        drift = sum(sizes) / len(sizes)
        return DriftingHazardModel(hazard_model.events, hazard_model.hours, drift, hazard_model.spread, self.likely)


def fit_to_json(fit: AvailabilityFit) -> str:
    """Return the fit as it is stored."""
    held = {"cost": fit.cost.held, "finish": fit.finish.held}
    return json.dumps({"format": FORMAT, **asdict(fit), **held}, indent=1, default=datetime.isoformat)


def fit_from_json(text: str) -> AvailabilityFit:
    """Return the stored fit; raise ValueError, TypeError or KeyError where the text is not one."""
    content: dict[str, Any] = json.loads(text)
    if content["format"] != FORMAT:
        raise ValueError("is of another version of stepfare")
    since, until = (datetime.fromisoformat(content[name]) for name in ("since", "until"))
    if since.utcoffset() is None or until.utcoffset() is None:
        raise ValueError("has times without a time zone")
    back, lost = (tuple(float(p) for p in shares) for shares in content["likely"])
    cost, finish = (Recalibration(tuple(float(p) for p in content[name])) for name in ("cost", "finish"))
    pools, watched, outcomes = int(content["pools"]), float(content["watched"]), int(content["outcomes"])
    return AvailabilityFit(since, until, pools, watched, (back, lost), cost, finish, outcomes)
