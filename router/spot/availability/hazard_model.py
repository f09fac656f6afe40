"""Hazard model of spot in several zones: the rates of losing spot and of its return, and their uncertainty.

A hazard is a rate an hour, by zone, by whether spot is there, and by how long that has been so. The posterior of each
is a gamma distribution: events over hours seen, to which the rate of all zones together counts as a few events more. On
top comes drift: future availability is not drawn from the same distribution as past availability, and a draw of the
future multiplies all hazards of a zone by a factor of its own and one common to all zones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from pricing.hazard import deviation_of, operational_time
from pricing.risk import GangRisk
from router.spot.simulator.inputs import HOUR_S, SimulationInputs
from router.spot.simulator.traces import Bools, Floats, Ints, Series

AGES_H: Final = (0.5, 2.0, 8.0)  # where one class of age ends and the next begins
CLASSES: Final = len(AGES_H) + 1
NEVER_PER_HOUR: Final = 1e-5
_OLDEST_H: Final = 48.0  # the last class of age counts at its mean rate up to here
POOL_EVENTS: Final = 0.5  # what the rate of all zones together counts for in each
_PRIOR_EVENTS, _PRIOR_H = 1.0, 5.0
DRIFT: Final = 0.5
SWING: Final = 0.5
SWING_H: Final = 24.0
_LONGEST_STEP_H: Final = 1 / 3


@dataclass(frozen=True, slots=True)
class LossRates:
    """Mean rates of losses an hour, by class of age, before a pool is observed; and how sure they are.

    ``spread`` is the standard deviation of the logarithm of their common level.
    """

    per_hour: tuple[float, ...]
    spread: float

    @classmethod
    def of(cls, risk: GangRisk) -> LossRates:
        """Return the loss rates of a gang from its interruption risk."""
        mean, shape = risk.hazard.mean, risk.hazard.shape
        edges = pairwise((0.0, *AGES_H, _OLDEST_H))
        rates = (mean * operational_time(shape, end - start, start) / (end - start) for start, end in edges)
        low, high = risk.hazard.interval
        spread = deviation_of(low, high) if 0 < low < high else 0.0
        return cls(tuple(max(rate + risk.hardware_per_hour, NEVER_PER_HOUR) for rate in rates), spread)

    @classmethod
    def flat(cls, per_hour: float, spread: float = 0.8) -> LossRates:
        """Return a rate that is the same at every age."""
        return cls((per_hour,) * CLASSES, spread)


@dataclass(eq=False, slots=True)
class ZoneStates:
    """The state of zones at one moment, any shape.

    ``up`` says whether spot is there, ``age_h`` for how many hours that has been so.
    """

    up: Bools
    age_h: Floats

    def copy(self) -> ZoneStates:
        """Return a copy that can be changed."""
        return ZoneStates(self.up.copy(), self.age_h.copy())

    def pass_on(self, up: Bools, hours: float) -> None:
        """Advance the state by ``hours``, after which it is ``up``."""
        self.age_h = np.where(up == self.up, self.age_h + hours, hours)
        self.up = up


def age_class(age_h: Floats) -> Ints:
    """Return the class of each age."""
    classes: Ints = np.searchsorted(np.array(AGES_H), age_h - 1e-9, side="left")
    return classes


def ages_h(up: Bools, tick_s: int) -> Floats:
    """Return by [zone, tick] the hours since the last change, the tick itself included.

    It is known from the first tick on.
    """
    ticks = np.arange(up.shape[1])
    began = np.where(np.diff(up, axis=1, prepend=~up[:, :1]), ticks, 0)
    lasted = ticks - np.maximum.accumulate(began, axis=1) + 1
    return np.asarray(lasted * (tick_s / HOUR_S), dtype=np.float64)


def pool_hazards(events: Floats, hours: Floats) -> tuple[Floats, Floats]:
    """Return events and hours of the gamma posteriors, from the events and hours of each zone [zone, up, class]."""
    rate = (events.sum(axis=0) + _PRIOR_EVENTS) / (hours.sum(axis=0) + _PRIOR_H)
    return events + POOL_EVENTS, hours + POOL_EVENTS / rate


@dataclass(frozen=True, eq=False, slots=True)
class HazardModel:
    """Hazards of several zones with their uncertainty.

    ``events`` and ``hours`` are by [zone, up, class of age], of the gamma distributions of the hazards an hour.
    ``drift`` is the standard deviation of the logarithm of the factors, half of its variance common to all zones.
    ``spread`` is by zone the standard deviation of the log of the level of its losses, common to all ages; "" is none.
    """

    events: Floats
    hours: Floats
    drift: float = DRIFT
    spread: tuple[float, ...] = ()

    @classmethod
    def of(cls, past: Series, size: int = 1) -> HazardModel:
        """Return the model learned from a series, for a gang of ``size``."""
        return cls.seen(past.up(size), past.tick_s)

    @classmethod
    def seen(cls, up: Bools, tick_s: int, *, drift: float = DRIFT) -> HazardModel:
        """Return the model learned from availability by [zone, tick]."""
        zones = len(up)
        step = tick_s / HOUR_S
        cell = (np.arange(zones)[:, None] * 2 + up) * CLASSES + age_class(ages_h(up, tick_s))
        at, changed = cell[:, :-1].ravel(), (up[:, 1:] != up[:, :-1]).ravel()
        count = zones * 2 * CLASSES
        shape = (zones, 2, CLASSES)
        hours = np.asarray(np.bincount(at, np.full(at.shape, step), count), dtype=np.float64).reshape(shape)
        events = np.asarray(np.bincount(at, changed, count), dtype=np.float64).reshape(shape)
        return cls(*pool_hazards(events, hours), drift)

    @property
    def zones(self) -> int:
        return len(self.events)

    def only(self, which: Ints) -> HazardModel:
        """Return the model of these zones."""
        spread = tuple(self.spread[i] for i in which.tolist()) if self.spread else ()
        return replace(self, events=self.events[which], hours=self.hours[which], spread=spread)

    def mean(self) -> Floats:
        """Return by [zone, up, class] the mean hazards an hour."""
        return self.events / self.hours

    def comes(self) -> Ints:
        """Return the zones where spot is expected ever to come."""
        return np.flatnonzero(self.mean()[:, 0].max(axis=1) >= NEVER_PER_HOUR)

    def draw(self, draws: int, rng: np.random.Generator) -> Floats:
        """Return by [draw, zone, up, class] hazards drawn from their posterior and the drift."""
        sure = rng.gamma(self.events[None].repeat(draws, 0)) / self.hours
        half = self.drift / np.sqrt(2)
        own = rng.normal(0, half, (draws, self.zones, 2, 1)) + rng.normal(0, half, (draws, 1, 2, 1))
        return np.asarray(sure * np.exp(own) * self.draw_levels(draws, rng))

    def draw_levels(self, draws: int, rng: np.random.Generator) -> Floats:
        """Return by [draw, zone, up, 1] factors of the losses, of mean 1, as unsure as their level is."""
        factors: Floats = np.ones((draws, self.zones, 2, 1))
        if self.spread:
            spread = np.array(self.spread)
            x = spread * rng.normal(size=(draws, self.zones)) - 0.5 * spread**2
            factors[:, :, 1, 0] = np.exp(x)
        return factors

    def usual(
        self, draws: int, rng: np.random.Generator, hazards: Floats | None = None, hours: float = 96.0
    ) -> ZoneStates:
        """Return by [draw, zone] states after a long while."""
        rates = self.mean()[None].repeat(draws, 0) if hazards is None else hazards
        state = ZoneStates(rng.random((draws, self.zones)) < 0.5, np.ones((draws, self.zones)))
        for _ in range(int(hours)):
            advance_states(rates, state, 1.0, rng)
        return state


@dataclass(eq=False, slots=True)
class ScarcityProcess:
    """Current scarcity of spot by draw and region, an Ornstein-Uhlenbeck process (Physical Review 1930).

    It has the standard deviation ``SWING`` and forgets in ``SWING_H``. Scarcity a makes losses exp(a) times as
    frequent, and returns exp(-a) times.
    """

    now: Floats
    regions: Ints

    @classmethod
    def begin(cls, regions: Ints, draws: int, rng: np.random.Generator) -> ScarcityProcess:
        """Return a process in its stationary state; ``regions`` is by [zone] the number of its region."""
        return cls(rng.normal(0, SWING, (draws, int(regions.max()) + 1)), regions)

    def step(self, hours: float, rng: np.random.Generator) -> Floats:
        """Advance the process by ``hours`` and return scarcity by [draw, zone]."""
        keeps = np.exp(-hours / SWING_H)
        self.now = keeps * self.now + np.sqrt(1 - keeps**2) * rng.normal(0, SWING, self.now.shape)
        return self.now[:, self.regions]


def simulate_availability(
    hazards: Floats,
    state: ZoneStates,
    ticks: int,
    tick_s: int,
    rng: np.random.Generator,
    swings: ScarcityProcess | None = None,
) -> Bools:
    """Return by [draw, zone, tick] availability simulated from these hazards after ``state``, which is not changed.

    What happens within a long tick is simulated too: else nothing would be lost at an age of less than a tick.
    ``hazards`` is by [draw, zone, up, class].
    """
    steps = math.ceil(tick_s / HOUR_S / _LONGEST_STEP_H - 1e-9)
    now, hours = state.copy(), tick_s / HOUR_S / steps
    up = np.empty((*state.up.shape, ticks), dtype=bool)
    for i in range(ticks):
        for _ in range(steps):
            advance_states(hazards, now, hours, rng, None if swings is None else swings.step(hours, rng))
        up[..., i] = now.up
    return up


def advance_states(
    hazards: Floats, state: ZoneStates, hours: float, rng: np.random.Generator, scarcity: Floats | None = None
) -> None:
    """Advance ``state`` by ``hours`` in place."""
    draws, zones = state.up.shape
    at = (np.arange(draws)[:, None], np.arange(zones)[None], state.up.astype(np.int64), age_class(state.age_h))
    rate = hazards[at]
    if scarcity is not None:
        rate = rate * np.exp(np.where(state.up, scarcity, -scarcity))
    changes = rng.random(state.up.shape) < -np.expm1(-rate * hours)
    state.pass_on(state.up ^ changes, hours)


def simulate_windows(
    hazard_model: HazardModel, state: ZoneStates | None, like: SimulationInputs, draws: int, rng: np.random.Generator
) -> SimulationInputs:
    """Return ``draws`` simulated windows with the task, moves and last prices of ``like``, joined in one.

    Each draws hazards of its own. Of several zones those of one region change scarcity together. ``state`` is by
    [zone], or by [draw, zone] where each draw has its own: the state at the last tick before a window; None: a state
    after a long while. Raise ValueError where ``hazard_model`` or ``state`` does not have as many zones as ``like``.
    """
    zones, tick_s = len(like.zones), like.tick_s
    if hazard_model.zones != zones or (state is not None and state.up.shape not in {(zones,), (draws, zones)}):
        raise ValueError(f"the hazard model and the states must have the {zones} zones of the inputs")
    hazards = hazard_model.draw(draws, rng)
    # The wandering of a single zone is in its drift, and there is no other zone that it could go with.
    swings = ScarcityProcess.begin(like.region_numbers, draws, rng) if zones > 1 else None
    if state is None:
        now = hazard_model.usual(draws, rng, hazards)
    else:
        now = ZoneStates(np.broadcast_to(state.up, (draws, zones)), np.broadcast_to(state.age_h, (draws, zones)))
    return _join_windows(simulate_availability(hazards, now, like.ticks, tick_s, rng, swings), like)


def _join_windows(up: Bools, like: SimulationInputs) -> SimulationInputs:
    draws, zones, length = up.shape
    joined = np.ascontiguousarray(up.transpose(1, 0, 2)).reshape(zones, draws * length)
    prices: Floats = np.broadcast_to(like.spot_usd[:, -1:], joined.shape)
    return replace(like, starts=length * np.arange(draws), up=joined, spot_usd=prices)
