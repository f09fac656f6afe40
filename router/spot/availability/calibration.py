"""Calibration of quotes against outcomes: coverage, reliability, sharpness.

A quote is a distribution, as equally likely values: draws of a simulation, or evenly spaced quantiles that were stored.
The place of an outcome in it is its probability integral transform. Costs have ties (a job on spot throughout costs the
same each time), so that the transform is an interval, of which level p covers a part (Czado, Gneiting and Held,
Biometrics 2009).

Intervals of means over overlapping windows are those of the block bootstrap, resampled by whole groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from router.spot.simulator.traces import Floats, Ints

LEVELS: Final = (0.5, 0.8, 0.95)
_NEAR: Final = 1e-9  # share of the value that counts as a tie: dollars are sums of floats


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its interval.

    ``effective`` is the number of independent values that would give the same certainty; at most the number of values.
    """

    mean: float
    low: float
    high: float
    effective: float


def bootstrap_interval(values: Floats, groups: Ints, level: float = 0.9, draws: int = 2000, seed: int = 0) -> Interval:
    """Return the block bootstrap interval of the mean of ``values``, drawing whole groups with replacement.

    Raise ValueError without values, or where the arrays differ in length. One group alone gives no interval: it is the
    mean itself, with one effective value.
    """
    if values.ndim != 1 or values.shape != groups.shape or not values.size:
        raise ValueError("give at least one value, and the group of each value")
    _, which = np.unique(groups, return_inverse=True)
    sums, counts = np.bincount(which, values), np.bincount(which)
    mean = float(values.mean())
    if counts.size == 1:
        return Interval(mean, mean, mean, 1.0)
    drawn = np.random.default_rng(seed).integers(counts.size, size=(draws, counts.size))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    spread = float(means.var())
    effective = float(values.size) if spread == 0 else min(float(values.size), float(values.var()) / spread)
    return Interval(mean, float(low), float(high), effective)


@dataclass(frozen=True, eq=False, slots=True)
class PitIntervals:
    """The probability integral transforms of outcomes, one entry each.

    ``below`` is the share of the quoted values below the outcome, ``up_to`` the share up to it, ties included. Raise
    ValueError where a share is not between 0 and 1, or where they cross.
    """

    below: Floats
    up_to: Floats

    def __post_init__(self) -> None:
        if self.below.shape != self.up_to.shape or (self.below > self.up_to).any():
            raise ValueError("give as many shares below as up to, none larger than its partner")
        if self.below.size and (self.below.min() < 0 or self.up_to.max() > 1):
            raise ValueError("a share must lie between 0 and 1")

    @classmethod
    def of(cls, quoted: Floats, outcomes: Floats) -> PitIntervals:
        """Return the transforms of these outcomes in their quotes.

        ``quoted`` is [value], the same for all ``outcomes``, or [outcome, value]. An outcome beyond all n values counts
        half of 1 / n.
        """
        values, count = np.sort(np.atleast_2d(quoted), axis=1), np.atleast_2d(quoted).shape[1]
        slack = _NEAR * np.maximum(np.abs(outcomes), 1.0)
        below = (values < (outcomes - slack)[:, None]).sum(axis=1) / count
        up_to = (values <= (outcomes + slack)[:, None]).sum(axis=1) / count
        untied = below == up_to
        edge = 0.5 / count
        return cls(
            np.where(untied, np.maximum(below - edge, 0), below), np.where(untied, np.minimum(up_to + edge, 1), up_to)
        )

    @classmethod
    def joined(cls, parts: Sequence[PitIntervals]) -> PitIntervals:
        """Return the transforms of all parts as one."""
        return cls(np.concatenate([p.below for p in parts]), np.concatenate([p.up_to for p in parts]))

    def within(self, level: float) -> Floats:
        """Return of each outcome the part within the lowest ``level`` of its quote: 1, 0, or between for a tie."""
        part: Floats = np.clip((level - self.below) / (self.up_to - self.below), 0.0, 1.0)
        return part

    def histogram(self, bins: int = 10) -> Floats:
        """Return the share of outcomes in each of ``bins`` equal parts of their quotes.

        All are alike where quotes are calibrated. A U is overconfident, a hump is too wide, a slope is biased.
        """
        edges = [float(self.within(i / bins).mean()) for i in range(bins + 1)]
        return np.diff(np.array(edges))


@dataclass(frozen=True, slots=True)
class LevelCoverage:
    """The share of outcomes that held at a promised ``level``, with its 90 % interval and the number of outcomes."""

    level: float
    held: Interval
    count: int

    @property
    def off(self) -> float:
        return self.held.mean - self.level

    @property
    def is_in(self) -> bool:
        return self.held.low <= self.level <= self.held.high


Reliability = tuple[LevelCoverage, ...]


def measure_coverage(places: PitIntervals, groups: Ints, levels: Sequence[float] = LEVELS) -> Reliability:
    """Return the coverage at each level.

    ``groups`` marks outcomes that depend on each other (see :func:`bootstrap_interval`).
    """
    return tuple(LevelCoverage(p, bootstrap_interval(places.within(p), groups), places.below.size) for p in levels)


def interval_widths(quoted: Floats, level: float = 0.8) -> Floats:
    """Return by [quote] the width of the middle ``level`` of the values [quote, value]."""
    low, high = np.quantile(quoted, [(1 - level) / 2, (1 + level) / 2], axis=1)
    widths: Floats = high - low
    return widths


def sharpness_loss(quoted: Floats, outcomes: Floats) -> Floats:
    """Return by [outcome] the continuous ranked probability score of the values [outcome, value].

    It is in the unit of the outcome; less is better. It rewards a quote for being right and for being narrow (Gneiting
    and Raftery, JASA 2007).
    """
    values, n = np.sort(quoted, axis=1), quoted.shape[1]
    weight = (2 * np.arange(1, n + 1) - n - 1) / n**2
    scores: Floats = np.abs(values - outcomes[:, None]).mean(axis=1) - values @ weight
    return scores


CURVE: Final = tuple(round(0.05 * i, 2) for i in range(1, 20))


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """The calibration of quotes of one kind against their outcomes.

    ``plain`` is, at each level, the share at or below the value quoted for it, ties in full. ``curve`` is the share
    that held at each level of ``CURVE``; ``bars`` is :meth:`PitIntervals.histogram`. ``width``, of the median quote's
    middle 80 %, and ``loss``, :func:`sharpness_loss`, are shares of the mean outcome.
    """

    name: str
    what: str
    count: int
    covered: Reliability
    plain: tuple[float, ...]
    curve: tuple[float, ...]
    bars: tuple[float, ...]
    width: float
    loss: float


def assess_calibration(name: str, what: str, quoted: Floats, outcomes: Floats, groups: Ints) -> CalibrationReport:
    """Return the calibration of quotes [outcome, equally likely value].

    Raise ValueError without any, or where lengths differ.
    """
    if quoted.ndim != 2 or not len(quoted) or not len(quoted) == outcomes.size == groups.size:
        raise ValueError("as many quotes as outcomes and groups, at least one")
    places, mean = PitIntervals.of(quoted, outcomes), float(outcomes.mean())
    slack = _NEAR * np.maximum(np.abs(outcomes), 1.0)
    limits = np.quantile(quoted, LEVELS, axis=1, method="inverted_cdf")
    return CalibrationReport(
        name,
        what,
        outcomes.size,
        measure_coverage(places, groups),
        tuple(float((outcomes <= limit + slack).mean()) for limit in limits),
        tuple(float(places.within(level).mean()) for level in CURVE),
        tuple(places.histogram().tolist()),
        float(np.median(interval_widths(quoted))) / mean,
        float(sharpness_loss(quoted, outcomes).mean()) / mean,
    )


TRUST: Final = 20.0  # number of outcomes whose weight an unadjusted forecast has
_TAIL: Final = (0.0, 0.002, 0.005, 0.01, 0.02, 0.05)
KNOTS: Final = (*_TAIL, *(round(0.05 * i, 2) for i in range(2, 19)), *(round(1 - p, 3) for p in reversed(_TAIL)))


@dataclass(frozen=True, slots=True)
class Recalibration:
    """A map from promised levels to the levels of a forecast to read.

    ``held`` is the share of outcomes within each of the levels ``KNOTS`` of their forecasts; it grows. Raise ValueError
    where it does not grow, or does not go from 0 to 1.
    """

    held: tuple[float, ...] = KNOTS

    def __post_init__(self) -> None:
        shares = np.array(self.held)
        if shares.size != len(KNOTS) or shares[0] != 0 or shares[-1] != 1 or (np.diff(shares) <= 0).any():
            raise ValueError(f"give {len(KNOTS)} shares that grow from 0 to 1")

    @classmethod
    def learned(cls, places: PitIntervals, groups: Ints, trust: float = TRUST) -> Recalibration:
        """Return the map learned from forecasts that did not see their outcomes.

        Outcomes of a group depend on each other: the effective count follows from the interval of the share within the
        middle level, and is at most the number of groups. Without outcomes, forecasts are read as they are.
        """
        if not places.below.size:
            return cls()
        level = np.array(KNOTS)
        count = min(bootstrap_interval(places.within(0.5), groups).effective, float(np.unique(groups).size))
        seen = np.array([float(places.within(p).mean()) for p in KNOTS])
        held = (trust * level + count * seen) / (trust + count)
        held[0], held[-1] = 0.0, 1.0
        return cls(tuple(held.tolist()))

    def level(self, p: Floats) -> Floats:
        """Return the level of a forecast to quote for ``p``."""
        levels: Floats = np.interp(p, np.array(self.held), np.array(KNOTS))
        return levels

    def quoted(self, values: Floats) -> Floats:
        """Return by [..., value] the equally likely values of a quote, in order, from those of a forecast."""
        count = values.shape[-1]
        at = self.level((np.arange(count) + 0.5) / count)
        which = np.clip(np.ceil(at * count).astype(np.int64) - 1, 0, count - 1)
        values_quoted: Floats = np.sort(values, axis=-1)[..., which]
        return values_quoted
