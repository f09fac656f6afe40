"""Regression features of :mod:`router.spot.policies.foresight`: numbers that sum up a belief about the hours ahead.

A belief is, for each zone, the probabilities of (up, class of age). Where zones are seen they are 0 and 1. Zones are
taken as independent of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from router.spot.availability.hazard_model import AGES_H, CLASSES, ZoneStates, age_class
from router.spot.simulator.traces import Bools, Floats, Ints

TYPICAL_H: Final = (0.25, 1.0, 4.0, 16.0)  # a typical age of each class
_AHEAD_H: Final = 240.0
_STEP_H: Final = 0.25
_SOON_H: Final = 2.0
_MEMORY_H: Final = 48.0
_FRAILTY: Final = 2.0  # number of expected changes at which half of a deviation is believed
OWN_TERMS: Final = CLASSES + 6
_FEW_TERMS: Final = 6  # of all zones together
_LEAST_CHANCE: Final = 1e-9


def expected_lifetime_h(hazards: Floats) -> Floats:
    """Return by [zone, class of age] the expected hours until a change.

    ``hazards`` are an hour, by [zone, class of age].
    """
    ahead = np.arange(0, _AHEAD_H, _STEP_H)
    hours = np.empty(hazards.shape)
    for c, age in enumerate(TYPICAL_H):
        at = age_class(age + ahead)
        rate = hazards[:, at]
        survives = np.exp(-np.cumsum(rate, axis=1) * _STEP_H)
        tail = survives[:, -1] / np.maximum(rate[:, -1], 1e-4)
        hours[:, c] = survives.sum(axis=1) * _STEP_H + tail
    return hours


def encode_states(state: ZoneStates) -> Floats:
    """Return the belief [..., zone, up, class] of a seen state: ones and zeros."""
    at = state.up * CLASSES + age_class(state.age_h)
    # The classes are first in memory: sums over so few neighbours would otherwise take ten times as long.
    belief = (np.arange(2 * CLASSES).reshape(-1, *(1,) * at.ndim) == at).astype(np.float64)
    return np.moveaxis(belief.reshape(2, CLASSES, *at.shape), (0, 1), (-2, -1))


def advance_belief(look: Floats, hazards: Floats, hours: float) -> Floats:
    """Return the belief ``hours`` later, under hazards [zone, up, class]."""
    change = 1.0 - np.exp(-hazards * hours)  # several times as fast as expm1
    widths = np.diff((0.0, *AGES_H))
    older = np.append(np.minimum(hours / widths, 1.0), 0.0)
    stays = look * (1 - change)
    belief = stays * (1 - older)
    belief[..., 1:] += (stays * older)[..., :-1]
    belief[..., ::-1, 0] += (look * change).sum(axis=-1)
    return np.asarray(belief)


@dataclass(eq=False, slots=True)
class RecentChanges:
    """Recent changes of zones, beside those that were expected.

    Both are by [.., zone, up]; older changes count less.
    """

    expected: Floats
    seen: Floats

    @classmethod
    def nothing(cls, shape: tuple[int, ...]) -> RecentChanges:
        """Return the counts before anything was seen of zones of that shape."""
        return cls(np.zeros((*shape, 2)), np.zeros((*shape, 2)))

    def see(
        self, before: ZoneStates, up: Bools, hazards: Floats, hours: float, is_observed: Bools | bool = True
    ) -> None:
        """Count what came after ``before``, under hazards [zone, up, class].

        Where ``is_observed`` is false nothing is learned.
        """
        keeps = np.exp(-hours / _MEMORY_H)
        zones = np.arange(before.up.shape[-1])
        rate = hazards[zones, before.up.astype(np.int64), age_class(before.age_h)]
        for which in (0, 1):
            there = (before.up == which) & is_observed
            self.expected[..., which] = self.expected[..., which] * keeps + np.where(there, rate * hours, 0.0)
            self.seen[..., which] = self.seen[..., which] * keeps + (there & (up != before.up))

    @property
    def times(self) -> Floats:
        """The factor of the hazards, by [.., zone, up], as far as the changes show it."""
        factors: Floats = np.clip((self.seen + _FRAILTY) / (self.expected + _FRAILTY), 0.2, 5.0)
        return factors

    def of(self, rows: Ints) -> RecentChanges:
        """Return the counts of these windows, on the first axis."""
        return RecentChanges(self.expected[rows], self.seen[rows])


@dataclass(frozen=True, eq=False, slots=True)
class ZoneFeatures:
    """Numbers of each zone, by [.., zone].

    ``up`` is the probability that it is up. Given that, ``value`` is the share of the on-demand price that it saves,
    restarts counted, and ``fall`` the probability that it is lost within two hours. ``soon`` is the probability that it
    is down but comes back within two hours. ``classes`` [.., zone, class] is of age, given that it is up.
    """

    up: Floats
    value: Floats
    fall: Floats
    soon: Floats
    classes: Floats


@dataclass(frozen=True, eq=False, slots=True)
class RegressionFeatures:
    """The features of zones with ``hazards`` [zone, up, class].

    ``share`` is by [zone] the spot price over the on-demand price, by work done; ``restart_h`` by [zone] the hours of a
    launch.
    """

    hazards: Floats
    lasts: Floats
    share: Floats
    restart_h: Floats

    @classmethod
    def of(cls, hazards: Floats, share: Floats, restart_h: Floats) -> RegressionFeatures:
        """Return the features, with the lifetimes that follow from the hazards."""
        return cls(hazards, expected_lifetime_h(hazards[:, 1]), share, restart_h)

    @property
    def terms(self) -> int:
        return _FEW_TERMS + 2 * len(self.share)

    def view(self, look: Floats, times: Floats | None = None) -> ZoneFeatures:
        """Return the numbers of each zone under a belief; hazards are multiplied by ``times`` [.., zone, up]."""
        up = look[..., 1, :].sum(axis=-1)
        classes = look[..., 1, :] / np.maximum(up, 1e-9)[..., None]
        shorter = 1.0 if times is None else times[..., 1]
        quicker = 1.0 if times is None else times[..., 0]
        again = (classes / self.lasts).sum(axis=-1) * shorter
        value = np.maximum(1 - self.share * (1 + self.restart_h * again), 0.0)
        fall = -np.expm1(-(classes * self.hazards[:, 1]).sum(axis=-1) * shorter * _SOON_H)
        down = look[..., 0, :].sum(axis=-1)
        back = (look[..., 0, :] * self.hazards[:, 0]).sum(axis=-1) / np.maximum(down, 1e-9) * quicker
        return ZoneFeatures(up, value, fall, down * -np.expm1(-back * _SOON_H), classes)

    def terms_of(self, v: ZoneFeatures) -> tuple[Floats, Floats]:
        """Return the terms [..., term] of all zones together, and [..., zone, term] of spot that runs in each zone.

        Those of all are: 1; the probability that none is up; the savings of the best and the second best that are up;
        the saving of the best that may soon be lost; the probability that none is up but one soon; the saving of each,
        and of each soon. Those of one are its class of age, and the options left if it is lost.
        """
        sets = _best_of_sets(v)
        return self._all_zones(v, *(a[..., 0] for a in sets)), _own_terms(v, *(a[..., 1:] for a in sets))

    def terms_given(self, v: ZoneFeatures) -> tuple[Floats, Floats, Floats]:
        """Return the terms as :meth:`terms_of` does, and [zone, ..., term] those of all should that zone be up.

        An expectation over independent zones is linear in the chance of each, so it follows from those with the chance
        as it is and with none.
        """
        sets = _best_of_sets(v)
        base = self._all_zones(v, *(a[..., 0] for a in sets))
        given = np.repeat(base[None], v.up.shape[-1], axis=0)
        chance = np.maximum(v.up, _LEAST_CHANCE)
        for i, a in enumerate(sets[1:], start=2):
            given[..., i] = np.moveaxis(a[..., 1:] + (a[..., :1] - a[..., 1:]) / chance, -1, 0)
        given[..., [1, 5]] = 0.0  # that none is up
        for z, value in enumerate(np.moveaxis(v.value, -1, 0)):
            given[z, ..., _FEW_TERMS + z], given[z, ..., _FEW_TERMS + len(given) + z] = value, 0.0
        return base, _own_terms(v, *(a[..., 1:] for a in sets)), given

    def _all_zones(self, v: ZoneFeatures, none: Floats, best: Floats, second: Floats, falls: Floats) -> Floats:
        any_soon = 1 - np.prod(1 - v.soon, axis=-1)
        few = np.stack([np.ones_like(none), none, best, second, falls, none * any_soon], axis=-1)
        return np.concatenate([few, v.up * v.value, v.soon * (1 - self.share)], axis=-1)


def _own_terms(v: ZoneFeatures, none: Floats, best: Floats, _second: Floats, others_fall: Floats) -> Floats:
    others = ~np.eye(v.up.shape[-1], dtype=bool)
    any_soon = 1 - np.prod(1 - v.soon[..., None, :] * others, axis=-1)
    rest = [v.fall, best, none, v.fall * best, v.fall * none, none * any_soon, others_fall]
    return np.concatenate([v.classes[..., 1:], np.stack(rest, axis=-1)], axis=-1)


def _best_of_sets(v: ZoneFeatures) -> tuple[Floats, Floats, Floats, Floats]:
    """Return expectations by [.., set] over all zones, and then over all but each.

    The results are the probability that none is up; the expected value of the best that is up, and of the second best;
    the value that the best may lose soon.
    """
    if ((v.up == 0) | (v.up == 1)).all():
        return _best_of_seen_sets(v)
    # Zones are the first axis from here, so that all loops read contiguous memory.
    up, value, fall = (np.moveaxis(a, -1, 0) for a in (v.up, v.value, v.fall))
    order = np.argsort(-value, axis=0, kind="stable")
    up, value, fall = (np.take_along_axis(a, order, 0) for a in (up, value, fall))
    sets = np.arange(-1, len(up)).reshape(-1, *(1,) * (up.ndim - 1))  # the zone that each leaves out
    none = np.ones((len(sets), *up.shape[1:]))
    one, best, second, falls = (np.zeros_like(none) for _ in range(4))
    for zone, chance, pays, lost in zip(order, up, value, fall, strict=True):
        p = np.where(sets == zone, 0.0, chance)
        first = none * p
        best += first * pays
        falls += first * lost
        both = one * p
        second += both * pays
        one += first - both
        none -= first
    return np.moveaxis(none, 0, -1), np.moveaxis(best, 0, -1), np.moveaxis(second, 0, -1), np.moveaxis(falls, 0, -1)


def _best_of_seen_sets(v: ZoneFeatures) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the same where it is certain which zones are up.

    The best two of a set are among the best three of all.
    """
    zones = v.up.shape[-1]
    which = np.concatenate([np.ones((1, zones), dtype=bool), ~np.eye(zones, dtype=bool)])
    value = np.where(v.up > 0, v.value, -1.0)
    top = np.argsort(-value, axis=-1)[..., :3]
    pays, fall = np.take_along_axis(value, top, -1), np.take_along_axis(v.fall, top, -1)
    counts = np.moveaxis(which.T[top], -1, -2) & (pays >= 0)[..., None, :]
    nth = counts.cumsum(axis=-1)
    first, second = (np.where(counts & (nth == n), pays[..., None, :], 0.0) for n in (1, 2))
    none = (nth[..., -1] == 0).astype(np.float64)
    return none, first.sum(axis=-1), second.sum(axis=-1), (first * fall[..., None, :]).sum(axis=-1)
