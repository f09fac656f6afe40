"""Policies that play a :class:`~router.spot.policies.foresight.ForesightModel`, with full or with blind views."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from router.spot.availability.hazard_model import CLASSES, HazardModel, ZoneStates, age_class
from router.spot.policies.action_values import ActionValues, PriceFits
from router.spot.policies.foresight import CLOCK_S, ForesightModel, RegressionInputs
from router.spot.policies.regression_features import TYPICAL_H, RecentChanges, advance_belief, encode_states
from router.spot.simulator.blind_policy import BlindView, LaunchRequest, PolicySession
from router.spot.simulator.inputs import HOUR_S, SPEED_TOLERANCE, SimulationInputs, SimulationSpec, ZoneMarket
from router.spot.simulator.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT, Actions, FullInfoSession, FullView
from router.spot.simulator.traces import Bools, Floats, Ints

_CERTAIN: Final = 1 - 1e-9
_QUICK_TICKS, _MOST_QUICK_TICKS, _QUICK_DRAWS, _LEAST_CLOCK_S = 32, 64, 200, 60
_SLACK_TICKS: Final = 3  # of a quick clock at least
_QUICK_RECONSIDERS: Final = 4
# Parts of a tick to which launches are rounded up; rounded up to a whole tick they would look too dear.
_PARTS: Final = 4
_USUAL_STEPS: Final = 200
_MEMORY_H: Final = 48.0
_AT_ONCE: Final = 40_000  # windows times ticks of one block


def choose_clock_s(tick_s: int) -> int:
    """Return the seconds of a clock tick, a multiple of the tick."""
    return max(1, CLOCK_S // tick_s) * tick_s


@dataclass(frozen=True, eq=False, slots=True)
class ForesightPolicy:
    """Our policy where availability is seen.

    It is a :class:`~router.spot.simulator.simulation.FullInfoPolicy` and needs the exact guard.
    """

    model: ForesightModel

    @classmethod
    def fitted(cls, hazard_model: HazardModel, like: SimulationInputs, seed: int = 0) -> ForesightPolicy:
        """Return the policy fitted to inputs like these in market and moves.

        It is for any tick, and for deadlines and slack up to those of ``like``, whose first spot prices are the
        expected ones. Raise ValueError where the reference is not sold on demand.
        """
        return cls(_fit_model(hazard_model, like, like.spot_usd[:, 0], seed))

    def begin(self, inputs: SimulationInputs) -> FullInfoSession:
        return _FullSession(self.model, inputs).play


class _FullSession:
    """The session of a full view.

    It evaluates actions where something changed that it sees, or where time runs against it; else what runs goes on.
    """

    def __init__(self, model: ForesightModel, inputs: SimulationInputs) -> None:
        self.inputs = inputs
        self.slow = inputs.speed < 1 - SPEED_TOLERANCE
        self.window_features = WindowFeatures(model, inputs)

    def play(self, now: FullView) -> Actions:
        seen, fit, changed = self.window_features.of(now)
        asked = changed | (now.kind == IDLE) | (now.delay_s > 0) | self.slow[now.zone]
        if not asked.any():
            return now.kind, now.zone
        kind, zone = now.kind.copy(), now.zone.copy()
        for one in np.unique(fit[asked]):
            rows = np.flatnonzero(asked & (fit == one))
            kind[rows], zone[rows] = self._choose_actions(now.at(rows), self.window_features.fits[one], seen(rows))
        return kind, zone

    def _choose_actions(self, now: FullView, weigher: ActionValues, seen: RegressionInputs) -> Actions:
        costs = weigher.choices(now, self.inputs.tick_s, seen)
        best = costs.spot.argmin(axis=0)
        least_spot = costs.spot[best, np.arange(best.size)]
        other = np.minimum(costs.wait, least_spot)
        keeps = (now.kind != IDLE) & (costs.stay <= np.minimum(other, costs.demand) + weigher.margin_usd(now))
        kind = np.where(costs.demand < other, ON_DEMAND, np.where(least_spot < costs.wait, SPOT, IDLE))
        zone = np.where(kind == SPOT, best, costs.place)
        kind = np.where(keeps, now.kind, kind)
        return kind.astype(np.int8), np.where(keeps | (kind == IDLE), now.zone, zone)


@dataclass(eq=False, slots=True)
class _Block:
    """Ticks ``first`` and those after it, of the windows in ``row`` [window] (-1: not among them).

    ``seen`` are the inputs of [row of row, tick], flat, ``fit`` the number of the fit at the prices there, and
    ``changed`` says whether that changed.
    """

    first: int
    ticks: int
    row: Ints
    seen: RegressionInputs
    fit: Ints
    changed: Bools


class WindowFeatures:
    """The regression inputs of one simulation, asked tick by tick.

    They are computed for many windows and ticks at once, each from the availability until its own tick. Windows that
    start at the same tick of the series have the same availability.
    """

    def __init__(self, model: ForesightModel, inputs: SimulationInputs) -> None:
        self.model, self.inputs, self.fits = model, inputs, PriceFits(model)
        self.starts, self.which = np.unique(inputs.starts, return_inverse=True)
        self.had_past = (self.starts > 0)[:, None]
        self.hours = inputs.tick_s / HOUR_S
        begin = replace(inputs, starts=self.starts, begins=None)
        count = max(1, min(int(_MEMORY_H * HOUR_S) // inputs.tick_s, int(self.starts.max(initial=0))))
        up, known = (a[model.spots] for a in begin.before(count))
        self.state = ZoneStates(up[..., 0].T.copy(), np.full(up.shape[1::-1], self.hours))
        self.lately = RecentChanges.nothing(self.state.up.shape)
        rows = np.arange(self.starts.size)
        for i in range(1, count):
            self._advance(rows, up[..., i].T, known[..., i - 1].T)
        self._fit = np.full(self.starts.size, -1)
        self._block: _Block | None = None

    def of(self, now: FullView) -> tuple[Callable[[Ints], RegressionInputs], Ints, Bools]:
        """Return the inputs of these windows as a function of rows, their fits, and whether something changed.

        The fit is by [window]. A change is since the tick before: whether spot is there, the class of its age, or its
        price.
        """
        begins, block = self.inputs.begins, self._block
        if block is None or (begins is None and now.tick >= block.first + block.ticks):
            block = self._block = self._compute_block(now)
        passed = now.tick if begins is None else now.tick - begins[now.window]
        at = block.row[self.which[now.window]] * block.ticks + (passed - block.first)
        return (lambda rows: block.seen.at(at[rows])), block.fit[at], block.changed[at]

    def _compute_block(self, now: FullView) -> _Block:
        """Compute the next block; with windows that begin at different ticks: all of them, and all ticks."""
        inputs = self.inputs
        if inputs.begins is None:
            rows, first = np.unique(self.which[now.window]), now.tick
            ticks = int(np.clip(_AT_ONCE // rows.size, 1, inputs.ticks - first))
        else:
            rows, first, ticks = np.arange(self.starts.size), 0, inputs.ticks
        row = np.full(self.starts.size, -1)
        row[rows] = np.arange(rows.size)
        at = np.clip(self.starts[rows, None] + np.arange(first - 1, first + ticks), 0, inputs.up.shape[1] - 1)
        up = inputs.up[self.model.spots][:, at].transpose(1, 2, 0)
        usd = inputs.spot_usd[:, at].transpose(1, 2, 0)
        states, times = self._states_at(rows, up[:, 1:], first)
        fit = self._fits_at(rows, usd[:, 1:])
        changed = (up[:, 1:] != up[:, :-1]) | (usd[:, 1:, self.model.spots] != usd[:, :-1, self.model.spots])
        kind = age_class(states.age_h)
        changed[:, 1:] |= kind[:, 1:] != kind[:, :-1]
        changed[:, 0] = True
        look = encode_states(states).reshape(-1, up.shape[-1], 2, CLASSES)
        seen = self._inputs(look, times.reshape(-1, up.shape[-1], 2), fit)
        return _Block(first, ticks, row, seen, fit, changed.any(axis=-1).ravel())

    def _fits_at(self, rows: Ints, usd: Floats) -> Ints:
        """Return by [row, tick], flat, the fit at these prices [row, tick, zone]."""
        fits = np.empty(usd.shape[:2], dtype=np.int64)
        moves = np.concatenate([[True], (usd[:, 1:] != usd[:, :-1]).any(axis=(0, 2))])
        for i in range(usd.shape[1]):
            self._fit[rows] = fits[:, i] = self.fits.fits(usd[:, i].T, self._fit[rows]) if moves[i] else self._fit[rows]
        return fits.ravel()

    def _inputs(self, look: Floats, times: Floats, fit: Ints) -> RegressionInputs:
        """Return the inputs of [row of row, tick], flat."""
        which = np.unique(fit)
        parts = [np.flatnonzero(fit == one) for one in which]
        seen = [self.fits[one].model.sight(look[at], times[at]) for one, at in zip(which, parts, strict=True)]
        return seen[0] if len(seen) == 1 else RegressionInputs.joined(seen, np.argsort(np.concatenate(parts)))

    def _states_at(self, rows: Ints, up: Bools, first: int) -> tuple[ZoneStates, Floats]:
        """Return by [row, tick, spot] the state at each tick, and [.., up] the ratio of seen to expected changes."""
        ages = np.empty_like(up, dtype=np.float64)
        times = np.moveaxis(np.empty((2, up.shape[2], *up.shape[:2])), (0, 1), (-1, -2))
        for i in range(up.shape[1]):
            known = self.had_past[rows] | (first + i > 0)
            self._advance(rows, up[:, i], known)
            ages[:, i], times[:, i] = self.state.age_h[rows], self.lately.of(rows).times
        return ZoneStates(up, ages), times

    def _advance(self, rows: Ints, up: Bools, is_observed: Bools) -> None:
        state, lately = ZoneStates(self.state.up[rows], self.state.age_h[rows]), self.lately.of(rows)
        lately.see(state, up, self.model.features.hazards, self.hours, is_observed)
        state.pass_on(up, self.hours)
        self.state.up[rows], self.state.age_h[rows] = up, np.where(is_observed, state.age_h, self.hours)
        self.lately.expected[rows], self.lately.seen[rows] = lately.expected, lately.seen


@dataclass(frozen=True, eq=False, slots=True)
class BlindForesightPolicy:
    """Our policy where zones must be asked.

    It is a :class:`~router.spot.simulator.blind_policy.BlindPolicy` and needs the exact guard. It never probes: a
    launch that fails is free, and tells as much. A gang that runs undisturbed at the same prices is reconsidered every
    ``reconsiders`` ticks: nothing is heard then but that time passes.
    """

    model: ForesightModel
    reconsiders: int = 1

    @classmethod
    def fitted(
        cls, hazard_model: HazardModel, terms: SimulationSpec, spot_usd: Floats, seed: int = 0
    ) -> BlindForesightPolicy:
        """Return the policy fitted to this specification, whatever its windows.

        ``spot_usd`` is by [zone] as expected. Raise ValueError where the reference is not sold on demand.
        """
        return cls(_fit_model(hazard_model, terms, spot_usd, seed))

    @classmethod
    def quickly(cls, hazard_model: HazardModel, like: SimulationInputs, seed: int = 0) -> BlindForesightPolicy:
        """Return the policy fitted in some tenths of a second, for a few zones, as quotes play it.

        The clock is slow, as far as the slack allows, the futures are few, and a gang that runs undisturbed is seldom
        reconsidered (design note policies has what that costs). First spot prices are the expected ones. Raise
        ValueError where the reference is not sold on demand.
        """
        horizon_s, work_s = like.ticks * like.tick_s, like.task.work_s
        ticks = _SLACK_TICKS * horizon_s / max(horizon_s - work_s, 1)
        clock = max(_LEAST_CLOCK_S, math.ceil(horizon_s / min(max(ticks, _QUICK_TICKS), _MOST_QUICK_TICKS)))
        # A launch longer by a hundredth of a tick would add a column to the tables and change no decision.
        market = ZoneMarket.of(like, like.spot_usd[:, 0], clock // _PARTS)
        model = ForesightModel.of(hazard_model, market, work_s, horizon_s, clock_s=clock, draws=_QUICK_DRAWS, seed=seed)
        return cls(model, _QUICK_RECONSIDERS)

    def begin(self, terms: SimulationSpec) -> _BlindSession:
        return _BlindSession(self.model, terms, self.reconsiders)


def _fit_model(hazard_model: HazardModel, spec: SimulationSpec, spot_usd: Floats, seed: int) -> ForesightModel:
    market, horizon_s = ZoneMarket.of(spec, spot_usd), spec.ticks * spec.tick_s
    clock_s = choose_clock_s(spec.tick_s)
    return ForesightModel.of(hazard_model, market, spec.task.work_s, horizon_s, clock_s=clock_s, seed=seed)


class _BlindSession(PolicySession):
    """The session of a blind view; ``look_`` is the belief [spot, up, class, window] at the last tick."""

    def __init__(self, model: ForesightModel, terms: SimulationSpec, reconsiders: int) -> None:
        self.terms, self.fits, self.spots = terms, PriceFits(model), model.spots
        self.reconsiders = reconsiders
        self.fit = np.full(terms.starts.size, -1)
        self.hazards = model.hazard_model.mean()
        # Windows are the last axis in memory: sums over the few others are then several times as fast.
        look = _stationary_belief(self.hazards.tobytes(), len(self.spots))
        self.look_ = np.moveaxis(look, 0, -1).repeat(terms.starts.size, axis=-1)
        self.lately = RecentChanges.nothing((terms.starts.size, len(self.spots)))

    def _update_belief(self, view: BlindView) -> tuple[Floats, Floats]:
        """Return beliefs of the windows that are played, and the ratio of seen to expected changes."""
        rows, hours = view.window, self.terms.tick_s / HOUR_S
        was_up, answer_tick = view.was_up[self.spots].T, view.answer_tick[self.spots].T
        look, lately = np.moveaxis(np.take(self.look_, rows, axis=-1), -1, 0), self.lately.of(rows)
        times = lately.times
        if view.tick:
            _condition_on_answers(look, was_up, answer_tick == view.tick - 1)
            before = _likeliest_state(look)
            certain = np.maximum(look[..., 0, :].sum(axis=-1), look[..., 1, :].sum(axis=-1)) > _CERTAIN
            lately.see(before, was_up, self.hazards, hours, certain & (answer_tick == view.tick))
            times = lately.times
            look = advance_belief(look, self.hazards * times[..., None], hours)
        _condition_on_answers(look, was_up, answer_tick == view.tick)
        self.look_[..., rows] = np.moveaxis(look, 0, -1)
        self.lately.expected[rows], self.lately.seen[rows] = lately.expected, lately.seen
        return look, times

    def hear(self, view: BlindView, /) -> None:
        self._update_belief(view)
        self.fit[view.window] = self.fits.fits(view.spot_usd, self.fit[view.window])

    def recall(self, other: object, /) -> bool:
        """See :class:`~router.spot.simulator.blind_policy.ReplayableSession`.

        The other session must have the same hazard model, zones and tick.
        """
        if not isinstance(other, _BlindSession) or (self.terms.zones, self.terms.tick_s) != (
            other.terms.zones,
            other.terms.tick_s,
        ):
            return False
        if not (np.array_equal(self.spots, other.spots) and np.array_equal(self.hazards, other.hazards)):
            return False
        self.look_ = other.look_.copy()
        self.lately = RecentChanges(other.lately.expected.copy(), other.lately.seen.copy())
        return True

    def act(self, view: BlindView) -> LaunchRequest:
        """Request spot where it is better than to go on, the best first."""
        look, times = self._update_belief(view)
        wish = LaunchRequest.nothing(view)
        before = self.fit[view.window]
        fit = self.fit[view.window] = self.fits.fits(view.spot_usd, before)
        asked = (view.kind == IDLE) | (view.delay_s > 0) | (fit != before) | self._is_reconsidered(view)
        for one in np.unique(fit[asked]):
            rows = np.flatnonzero(asked & (fit == one))
            self._fill_request(wish, rows, self.fits[one], view.at(rows), (look[rows], times[rows]))
        return wish

    def _is_reconsidered(self, view: BlindView) -> Bools:
        """Return which gangs that run undisturbed are reconsidered, where few are those in a dearer place alone."""
        if self.reconsiders == 1:
            return np.ones(view.window.size, dtype=bool)
        if view.tick % self.reconsiders:
            return np.zeros(view.window.size, dtype=bool)
        usd = view.spot_usd[self.spots] / self.terms.speed[self.spots, None]
        in_cheapest = (view.kind == SPOT) & (view.zone == self.spots[usd.argmin(axis=0)])
        return np.asarray(~in_cheapest)

    def _fill_request(
        self, wish: LaunchRequest, rows: Ints, weigher: ActionValues, view: BlindView, seen: tuple[Floats, Floats]
    ) -> None:
        costs = weigher.choices(view, self.terms.tick_s, weigher.model.sight(*seen))
        runs, margin = view.kind != IDLE, weigher.margin_usd(view)
        other = np.minimum(costs.wait, costs.demand)
        goes_on = runs & (costs.stay <= other + margin)
        spot = np.where(costs.spot < np.where(goes_on, costs.stay - margin, other), costs.spot, np.inf)
        own = view.kind == SPOT
        spot[view.zone[own], np.flatnonzero(own)] = np.inf
        wish.spot[:, rows] = spot
        wish.demand[rows] = np.where(~goes_on & (costs.demand < costs.wait), costs.place, NOWHERE)
        wish.leave[rows] = runs & ~goes_on & (costs.demand >= costs.wait)


@lru_cache(maxsize=64)
def _stationary_belief(hazards: bytes, spots: int) -> Floats:
    """Return by [1, spot, up, class] the belief about zones that were never asked.

    It follows from their hazards [spot, up, class].
    """
    rates = np.frombuffer(hazards).reshape(spots, 2, CLASSES)
    belief = np.full((1, spots, 2, CLASSES), 1 / (2 * CLASSES))
    for _ in range(_USUAL_STEPS):
        belief = advance_belief(belief, rates, 1.0)
    return belief


def _likeliest_state(look: Floats) -> ZoneStates:
    best = look.reshape(*look.shape[:-2], -1).argmax(axis=-1)
    return ZoneStates(best >= CLASSES, np.array(TYPICAL_H)[best % CLASSES])


def _condition_on_answers(look: Floats, up: Bools, answered: Bools) -> None:
    """Condition the belief on answers [window, zone], in place."""
    window, zone = np.nonzero(answered)
    is_up = up[window, zone].astype(np.int64)
    likely = look[window, zone, is_up]
    total = likely.sum(axis=-1, keepdims=True)
    fresh = np.arange(CLASSES) == 0
    look[window, zone] = 0.0
    look[window, zone, is_up] = np.where(total > 0, likely / np.maximum(total, 1e-12), fresh)
