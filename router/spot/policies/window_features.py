"""Regression inputs of :class:`~router.spot.policies.foresight_policies.ForesightPolicy` for many windows and ticks.

They are computed at once, each from the availability until its own tick.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from router.spot.availability.hazard_model import ZoneStates, age_class
from router.spot.availability.loss_rates import CLASSES
from router.spot.policies.action_values import PriceFits
from router.spot.policies.foresight import ForesightModel, RegressionInputs
from router.spot.policies.regression_features import RecentChanges, encode_states
from router.spot.simulator.inputs import HOUR_S, SimulationInputs
from router.spot.simulator.simulation import FullView
from router.spot.simulator.traces import Bools, Floats, Ints

_MEMORY_H: Final = 48.0
_AT_ONCE: Final = 40_000  # windows times ticks of one block


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

    Windows that start at the same tick of the series have the same availability.
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
