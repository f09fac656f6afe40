"""Our policy over any number of zones: backward induction with regression on simulated availability.

The method is least-squares Monte Carlo (Longstaff and Schwartz, "Valuing American Options by Simulation", Review of
Financial Studies 2001).

Many futures are drawn from the hazard model, each with hazards of its own. From the last tick back, each action
(waiting, spot in a zone, on-demand in a zone) gets its expected dollars to the end as a linear function of
:mod:`router.spot.policies.regression_features`, one for each slack of a grid. Slack, time left less work left, does not
change while something runs at the speed of the reference; waiting and launching use it up. Where it is too short for an
action, on-demand is what remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from router.spot.availability.hazard_model import HazardModel
from router.spot.policies.backward_induction import Singles, ValueTables, slack_grid, solve_tables
from router.spot.policies.regression_features import RegressionFeatures
from router.spot.simulator.inputs import HOUR_S, ZoneMarket, sells_reference
from router.spot.simulator.traces import Bools, Floats, Ints

CLOCK_S: Final = 1200
DRAWS: Final = 600


@dataclass(frozen=True, eq=False, slots=True)
class RegressionInputs:
    """The regression terms of what is seen or believed, for many windows.

    ``base`` [window, term] is for waiting and on-demand. For spot in each zone where it may come there are
    ``spot_terms`` [spot, window, term] and ``given`` [spot, window, term], the base should the zone be up; None: the
    same. ``up`` [spot, window] says whether it may be up.
    """

    base: Singles
    spot_terms: Singles
    given: Singles | None
    up: Bools

    @classmethod
    def joined(cls, parts: Sequence[RegressionInputs], order: Ints) -> RegressionInputs:
        """Return the windows of all parts, where all is seen, in this order."""
        base, spot_terms, up = ([getattr(part, name) for part in parts] for name in ("base", "spot_terms", "up"))
        return cls(np.concatenate(base), np.concatenate(spot_terms, axis=1), None, np.concatenate(up, axis=1)).at(order)

    def at(self, rows: Ints) -> RegressionInputs:
        """Return the terms of these windows."""
        given = None if self.given is None else self.given[:, rows]
        return RegressionInputs(self.base[rows], self.spot_terms[:, rows], given, self.up[:, rows])

    def of_spots(self) -> Singles:
        """Return by [spot, window, term] all terms of each spot."""
        given = (
            np.broadcast_to(self.base, (len(self.spot_terms), *self.base.shape)) if self.given is None else self.given
        )
        return np.concatenate([given, self.spot_terms], axis=-1)


@dataclass(frozen=True, eq=False, slots=True)
class ForesightModel:
    """A solved model for tasks of one work, changeover and market.

    It is valid for deadlines up to the longest that it was fitted for. ``spots`` are the zones of the market where spot
    may come; ``hazard_model`` and ``features`` are of these. ``draws`` futures were drawn, by ``seed``.
    """

    hazard_model: HazardModel
    market: ZoneMarket
    spots: Ints
    features: RegressionFeatures
    tables: ValueTables
    draws: int
    seed: int

    @classmethod
    def of(
        cls,
        hazard_model: HazardModel,
        market: ZoneMarket,
        work_s: int,
        deadline_s: int,
        *,
        clock_s: int = CLOCK_S,
        draws: int = DRAWS,
        seed: int = 0,
    ) -> ForesightModel:
        """Return the solved model.

        Raise ValueError where no place of the reference's speed is sold on demand.
        """
        if not sells_reference(market.on_demand_usd, market.speed):
            raise ValueError("no zone sells on-demand machines of the reference speed")
        spots = hazard_model.comes()
        spots = spots if spots.size else np.arange(market.zones)
        grid = slack_grid(max(0, deadline_s - work_s), clock_s, float(market.launch_s.max()))
        ticks = max(1, -(-deadline_s // clock_s))
        return cls._solved(hazard_model.only(spots), market, spots, ticks, clock_s, grid, draws, seed)

    @classmethod
    def _solved(
        cls,
        hazard_model: HazardModel,
        market: ZoneMarket,
        spots: Ints,
        ticks: int,
        clock_s: int,
        grid: Floats,
        draws: int,
        seed: int,
    ) -> ForesightModel:
        reference = float((market.on_demand_usd / market.speed).min())
        share = (market.spot_usd / market.speed / reference)[spots]
        features = RegressionFeatures.of(hazard_model.mean(), share, market.launch_s[spots] / HOUR_S)
        tables = solve_tables(
            hazard_model, market, spots, features, ticks, clock_s, grid, draws, np.random.default_rng(seed)
        )
        return cls(hazard_model, market, spots, features, tables, draws, seed)

    def at_prices(self, spot_usd: Floats) -> ForesightModel:
        """Return the model solved at other spot prices [zone], on the same futures."""
        market, t = replace(self.market, spot_usd=spot_usd), self.tables
        return self._solved(
            self.hazard_model, market, self.spots, len(t.home), t.clock_s, t.slack_s, self.draws, self.seed
        )

    def sight(self, look: Floats, times: Floats | None = None) -> RegressionInputs:
        """Return the regression terms of a belief [window, spot, up, class], seen or believed.

        Hazards are ``times`` [window, spot, up] those expected.
        """
        view, each = self.features.view(look, times), np.arange(len(self.spots))
        base = self.features.all_zones(view).astype(np.float32)
        own = np.ascontiguousarray(self.features.own(view, each).swapaxes(0, 1), dtype=np.float32)
        chance = look[:, :, 1].sum(axis=-1)
        unsure = np.flatnonzero(((chance > 0) & (chance < 1)).any(axis=0))
        given = np.repeat(base[None], each.size, axis=0) if unsure.size else base[None]
        for z in unsure:
            sure = look.copy()
            sure[:, z, 1] /= np.maximum(chance[:, z], 1e-9)[:, None]
            sure[:, z, 0] = 0.0
            seen = self.features.view(sure, times)
            own[z] = self.features.own(seen, each[z : z + 1])[:, 0]
            given[z] = self.features.all_zones(seen)
        return RegressionInputs(base, own, given if unsure.size else None, chance.T > 0)

    def between(self, slack_s: Floats) -> tuple[Ints, Singles]:
        """Return by [window] the upper grid point of each slack, and its distance from the lower one.

        The distance is a share of the step of the grid.
        """
        grid = self.tables.slack_s
        s = np.minimum(np.maximum(slack_s, grid[0]), grid[-1])
        high = np.maximum(np.searchsorted(grid, s), 1)
        return high, ((s - grid[high - 1]) / (grid[high] - grid[high - 1])).astype(np.float32)

    def at(self, weights: Singles, terms: Singles, slack: tuple[Ints, Singles], *which: Ints) -> Floats:
        """Return values by [.., window] of tables [.., slack, term] at the slack (:meth:`between`) of each window.

        ``which`` [.., window] picks the table of each, by the axes before the slack; none: each of the first axis, if
        there is one.
        """
        high, share = slack
        where = which or tuple(np.arange(n)[:, None] for n in weights.shape[:-2])
        low = weights[(*where, high - 1)]
        mixed = low + (weights[(*where, high)] - low) * share[..., None]
        return np.asarray(np.einsum("...t,...t->...", mixed, terms), dtype=np.float64)
