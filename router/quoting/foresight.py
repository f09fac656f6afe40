"""Our policy over any number of zones: backward induction in which what lies ahead is a regression on simulated weather
(Longstaff and Schwartz, "Valuing American Options by Simulation", Review of Financial Studies 2001).

Many futures are drawn from the outlook, each with hazards of its own. From the last tick back, each choice (waiting,
spot in a zone, on demand in a zone) gets its expected dollars to the end as a linear function of
:mod:`router.quoting.prospects`, one for each slack of a grid. Slack, time left less work left, does not change while
something runs at the speed of the reference; waiting and launching use it up. Where it is too short for a choice
on-demand is what remains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from router.quoting.backward import Singles, Tables, slack_grid, solve
from router.quoting.market import SAME, Market
from router.quoting.outlook import Outlook
from router.quoting.prospects import OWN, Prospects
from router.quoting.scene import HOUR_S
from router.quoting.series import Floats, Ints

CLOCK_S: Final = 1200
DRAWS: Final = 600


@dataclass(frozen=True, eq=False, slots=True)
class Foresight:
    """For tasks of one work, changeover and market; deadlines up to the longest that it was fitted for."""

    outlook: Outlook
    market: Market
    prospects: Prospects
    tables: Tables

    @classmethod
    def of(cls, outlook: Outlook, market: Market, work_s: int, deadline_s: int, *, clock_s: int = CLOCK_S,
           draws: int = DRAWS, seed: int = 0) -> Foresight:  # fmt: skip
        """Solves for it. ValueError where no place of the reference's speed is sold on demand."""
        if not (np.isfinite(market.on_demand_usd) & (market.speed >= 1 - SAME)).any():
            raise ValueError("the reference is not sold on demand")
        hazards = outlook.mean()
        reference = float((market.on_demand_usd / market.speed).min())
        share = market.spot_usd / market.speed / reference
        prospects = Prospects.of(hazards, share, market.launch_s / HOUR_S)
        grid = slack_grid(max(0, deadline_s - work_s), clock_s, float(market.launch_s.max()))
        ticks = max(1, -(-deadline_s // clock_s))
        tables = solve(outlook, market, prospects, ticks, clock_s, grid, draws, np.random.default_rng(seed))
        return cls(outlook, market, prospects, tables)

    def terms(self, look: Floats, times: Floats | None = None) -> tuple[Floats, Floats]:
        """Of [window, zone, up, class]: [window, term] for waiting and on demand, and [zone, window, term] for spot in
        each zone should it be up."""
        view = self.prospects.view(look, times)
        base, each = self.prospects.all_zones(view), np.arange(self.market.zones)
        found = np.empty((each.size, len(look), base.shape[1] + OWN))
        found[:, :, : base.shape[1]] = base
        found[:, :, base.shape[1] :] = self.prospects.own(view, each).swapaxes(0, 1)
        chance = look[:, :, 1].sum(axis=-1)
        for z in np.flatnonzero(((chance > 0) & (chance < 1)).any(axis=0)):
            sure = look.copy()
            sure[:, z, 1] /= np.maximum(chance[:, z], 1e-9)[:, None]
            sure[:, z, 0] = 0.0
            seen = self.prospects.view(sure, times)
            of_zone = self.prospects.own(seen, each[z : z + 1])[:, 0]
            found[z] = np.concatenate([self.prospects.all_zones(seen), of_zone], axis=-1)
        return base, found

    def at(self, weights: Singles, terms: Floats, slack_s: Floats, *which: Ints) -> Floats:
        """[.., window] of tables [.., slack, term] with the slack of each window. ``which`` [.., window] picks the
        table of each, by the axes before the slack; none: each of the first axis, if there is one."""
        grid = self.tables.slack_s
        s = np.clip(slack_s, grid[0], grid[-1])
        high = np.clip(np.searchsorted(grid, s), 1, len(grid) - 1)
        share = ((s - grid[high - 1]) / (grid[high] - grid[high - 1]))[..., None]
        where = which or tuple(np.arange(n)[:, None] for n in weights.shape[:-2])
        low = weights[(*where, high - 1)]
        mixed = low + (weights[(*where, high)] - low) * share
        return np.asarray((mixed * terms).sum(axis=-1))
