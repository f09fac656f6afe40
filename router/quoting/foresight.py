"""Our policy over any number of zones: backward induction in which what lies ahead is a regression on simulated weather
(Longstaff and Schwartz 2001).

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
from numpy.typing import NDArray

from router.quoting.outlook import Outlook, Sky, Swings, run
from router.quoting.prospects import OWN, Lately, Prospects, look_at
from router.quoting.scene import HOUR_S, Ways
from router.quoting.series import Floats, Ints

CLOCK_S: Final = 1200
DRAWS: Final = 600
_FINE_S: Final = 2 * HOUR_S  # grid of slack: steps of a clock tick up to here, then longer ones
_GROWS: Final = 1.15
SAME: Final = 1e-9
_RIDGE: Final = 1e-3
_SWING: Final = 0.5
_BEFORE_H: Final = 72.0
_KEEPS: Final = 0.95
NEVER: Final = 1e12
Singles = NDArray[np.float32]


@dataclass(frozen=True, eq=False, slots=True)
class Market:
    """What is for sale, by zone: dollars an hour of the whole gang on spot and on demand (infinite: not sold),
    ``speed`` relative to the reference, ``launch_s`` seconds of a launch there without a transfer."""

    spot_usd: Floats
    on_demand_usd: Floats
    speed: Floats
    launch_s: Floats
    ways: Ways

    @property
    def zones(self) -> int:
        """How many there are."""
        return len(self.spot_usd)

    def homes(self) -> tuple[Ints, Ints]:
        """[zone] its group, and [group] a zone of it: from zones of one group moves cost the same."""
        rows = np.concatenate([self.ways.egress_usd, self.ways.transfer_s], axis=1)
        _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return group.ravel(), first

    def on_demand_zones(self) -> Ints:
        """Of each group of homes and each speed the cheapest place on demand."""
        group, _ = self.homes()
        best: dict[tuple[int, float], int] = {}
        for z in np.flatnonzero(np.isfinite(self.on_demand_usd)):
            key = (int(group[z]), float(self.speed[z]))
            if key not in best or self.on_demand_usd[z] < self.on_demand_usd[best[key]]:
                best[key] = int(z)
        return np.array(sorted(best.values()), dtype=np.int64)


@dataclass(frozen=True, eq=False, slots=True)
class Tables:
    """Weights of the regressions, by [tick left - 1, .., term, slack]. All are dollars more than waiting where the
    checkpoint is costs: ``launch`` [.., zone, take] of spot launched there from the same group, ``stay`` [.., zone] of
    spot that runs past its launch, ``to_demand`` [.., place, take], ``on_demand`` [.., place]; ``home`` [.., group] is
    waiting with the checkpoint in that group, dollars more than in the first. ``slack_s``: the grid; ``takes_s``: the
    launches that there are."""

    clock_s: int
    slack_s: Floats
    takes_s: Floats
    launch: Singles
    stay: Singles
    to_demand: Singles
    on_demand: Singles
    home: Singles
    start_usd: Floats


class _Sums:
    """A regression whose cases of the ticks before count too, less and less."""

    def __init__(self) -> None:
        self.xx: Floats | None = None
        self.xy: list[Floats] = []

    def fit(self, x: Floats, ys: list[Floats]) -> list[Floats]:
        xx, xy = x.T @ x, [x.T @ y for y in ys]
        if self.xx is not None:
            xx, xy = xx + _KEEPS * self.xx, [a + _KEEPS * b for a, b in zip(xy, self.xy, strict=True)]
        self.xx, self.xy = xx, xy
        cases = float(xx[0, 0])
        found = np.linalg.solve(xx + _penalty(len(xx), cases), np.concatenate(xy, axis=1))
        return np.split(found, len(ys), axis=1)


def slack_grid(longest_s: float, clock_s: int, launch_s: float) -> Floats:
    """Fine where it is scarce, with one and two launches on it."""
    found, at, by = [0.0, launch_s, 2 * launch_s, float(clock_s)], 0.0, float(clock_s)
    while at < longest_s:
        at += by
        by *= _GROWS if at > _FINE_S else 1.0
        found.append(at)
    return np.unique(np.array(found))


def shift(grid: Floats, by: float) -> Floats:
    """[slack, slack]: with it from the right, values at the grid become values at ``grid - by``, linearly between."""
    at = np.clip(grid - by, grid[0], grid[-1])
    high = np.clip(np.searchsorted(grid, at), 1, len(grid) - 1)
    share = (at - grid[high - 1]) / (grid[high] - grid[high - 1])
    found = np.zeros((len(grid), len(grid)))
    found[high - 1, np.arange(len(grid))] += 1 - share
    found[high, np.arange(len(grid))] += share
    return found


def solve(
    outlook: Outlook, market: Market, prospects: Prospects, ticks: int, clock_s: int, grid: Floats,
    draws: int, rng: np.random.Generator,
) -> Tables:  # fmt: skip
    """From the last tick back: what each choice costs more than waiting, on the same futures, is regressed on what was
    seen; what a future costs is what comes of the choices that this makes in it (Longstaff and Schwartz 2001)."""
    futures = _futures(outlook, market.homes()[0], ticks, clock_s, draws, rng)
    group, first = market.homes()
    places = market.on_demand_zones()
    hours = clock_s / HOUR_S
    zones, groups, size, terms = market.zones, len(first), len(grid), prospects.terms
    takes = market.launch_s[None, :] + market.ways.transfer_s[first]  # [group, zone]
    egress = market.ways.egress_usd[first]
    takes_s = np.unique(takes)
    kind = np.searchsorted(takes_s, takes)
    shifts = [shift(grid, float(t)) for t in takes_s]
    waits = shift(grid, clock_s)
    gains = [shift(grid, -(v - 1) * clock_s) for v in market.speed]
    reference = places[market.speed[places] >= 1 - SAME]
    rescue = takes[:, reference].min(axis=1)  # [group]: seconds to the reference on demand
    wait_ok = grid[None, :] - clock_s >= rescue[:, None]
    launch_ok = grid[None, None, :] - takes[:, :, None] >= rescue[group][None, :, None]
    kinds, sold = len(takes_s), len(places)
    t = Tables(
        clock_s, grid, takes_s, launch=_empty(ticks, zones, kinds, terms + OWN, size),
        stay=_empty(ticks, zones, terms + OWN, size), to_demand=_empty(ticks, sold, kinds, terms, size),
        on_demand=_empty(ticks, sold, terms, size), home=_empty(ticks, groups, terms, size),
        start_usd=np.zeros((ticks, size)),
    )  # fmt: skip
    value = np.zeros((groups, draws, size))
    spot_value = np.zeros((zones, draws, size))
    demand_value = np.zeros((len(places), draws, size))
    sums = [_Sums() for _ in range(zones + 1)]
    for k in range(1, ticks + 1):
        sky, times = futures[ticks - k]
        view = prospects.view(look_at(sky), times)
        base = prospects.all_zones(view)
        left_h = np.maximum((k * clock_s - grid) / HOUR_S, 0.0)
        y_wait = value @ waits
        y_demand = np.empty_like(demand_value)
        ys = []
        for i, z in enumerate(places):
            pays = market.on_demand_usd[z] * np.minimum(hours, left_h / market.speed[z])
            y_demand[i] = demand_value[i] @ gains[z] + pays
            ys += [y_demand[i] @ s - y_wait[group[z]] for s in shifts] + [y_demand[i] - y_wait[group[z]]]
        ys += [y_wait[g] - y_wait[0] for g in range(1, groups)]
        found = sums[zones].fit(base, ys)
        each = len(shifts) + 1
        for i in range(len(places)):
            t.to_demand[k - 1, i] = found[i * each : i * each + each - 1]
            t.on_demand[k - 1, i] = found[i * each + each - 1]
        for g in range(1, groups):
            t.home[k - 1, g] = found[len(places) * each + g - 1]
        home = base @ t.home[k - 1]  # [group, draw, slack]
        # [group, draw, slack]: the best choice, as expected over waiting there, and as it came
        choice = np.where(wait_ok[:, None, :], 0.0, NEVER).repeat(draws, axis=1)
        came = y_wait.copy()
        for i, z in enumerate(places):
            fits = base @ t.to_demand[k - 1, i]
            for g in range(groups):
                fit = fits[kind[g, z]] + egress[g, z] + home[group[z]] - home[g]
                _take(choice[g], came[g], fit, y_demand[i] @ shifts[kind[g, z]] + egress[g, z])
        stays = np.full((zones, draws, size), NEVER)
        y_spot = np.zeros((zones, draws, size))
        for z in range(zones):
            rows = np.flatnonzero(sky.up[:, z])
            if not rows.size:
                t.launch[k - 1, z], t.stay[k - 1, z] = t.launch[k - 2, z], t.stay[k - 2, z]
                continue
            x = np.concatenate([base, prospects.own(view, z)], axis=-1)[rows]
            pays = market.spot_usd[z] * np.minimum(hours, left_h / market.speed[z])
            y = spot_value[z][rows] @ gains[z] + pays
            y_spot[z, rows] = y
            own = y_wait[group[z]][rows]
            *launches, stay = sums[z].fit(x, [y @ s - own for s in shifts] + [y - own])
            t.launch[k - 1, z], t.stay[k - 1, z] = launches, stay
            stays[z, rows] = x @ stay
            fits = [x @ part for part in launches]
            for g in range(groups):
                fit = fits[kind[g, z]] + egress[g, z] + (home[group[z]] - home[g])[rows]
                part, real = choice[g, rows], came[g, rows]
                _take(part, real, np.where(launch_ok[g, z], fit, NEVER), y @ shifts[kind[g, z]] + egress[g, z])
                choice[g, rows], came[g, rows] = part, real
        over = left_h <= 0
        spot_value = np.where(stays <= choice[group], y_spot, came[group])
        fits = np.stack([base @ part for part in t.on_demand[k - 1]])
        demand_value = np.where(fits <= choice[group[places]], y_demand, came[group[places]])
        value = came
        for array in (value, spot_value, demand_value):
            array[:, :, over] = 0.0
        t.start_usd[k - 1] = value.mean(axis=1).min(axis=0)
    return t


def _empty(*shape: int) -> Singles:
    return np.zeros(shape, np.float32)


def _take(choice: Floats, came: Floats, fit: Floats, real: Floats) -> None:
    """Where this choice is better."""
    better = fit < choice
    np.copyto(choice, fit, where=better)
    np.copyto(came, real, where=better)


def _penalty(terms: int, cases: float) -> Floats:
    """Of all but the constant, whose shrinking would add up from tick to tick."""
    return np.diag([0.0] + [_RIDGE * cases] * (terms - 1))


def _futures(
    outlook: Outlook, regions: Ints, ticks: int, clock_s: int, draws: int, rng: np.random.Generator
) -> list[tuple[Sky, Floats]]:
    """One sky a tick, as they may come after a usual one, and how much more often than expected zones changed."""
    hazards, mean = outlook.draw(draws, rng), outlook.mean()
    sky = outlook.usual(draws, rng, hazards)
    swings = Swings.begin(regions, draws, _SWING, rng)
    lately = Lately.nothing(sky.up.shape)
    found = []
    hours = clock_s / HOUR_S
    for i in range(int(_BEFORE_H), -ticks, -1):
        before, by = sky.copy(), 1.0 if i > 0 else hours
        run(hazards, sky, by, rng, swings.step(by, rng))
        lately.see(before, sky.up, mean, by)
        if i <= 0:
            found.append((sky.copy(), lately.times))
    return found


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
        reference = float(market.on_demand_usd[market.on_demand_zones()].min())
        share = market.spot_usd / market.speed / reference
        prospects = Prospects.of(hazards, share, market.launch_s / HOUR_S)
        grid = slack_grid(max(0, deadline_s - work_s), clock_s, float(market.launch_s.max()))
        ticks = max(1, -(-deadline_s // clock_s))
        tables = solve(outlook, market, prospects, ticks, clock_s, grid, draws, np.random.default_rng(seed))
        return cls(outlook, market, prospects, tables)

    def terms(self, look: Floats, times: Floats | None = None) -> tuple[Floats, list[Floats]]:
        """Of [window, zone, up, class]: for waiting and on demand, and for spot in each zone should it be up."""
        view = self.prospects.view(look, times)
        base = self.prospects.all_zones(view)
        found = []
        for z in range(self.market.zones):
            there = look[:, z, 1].sum(axis=-1)
            seen, sure_view = base, view
            if ((there > 0) & (there < 1)).any():
                sure = look.copy()
                sure[:, z, 1] /= np.maximum(there, 1e-9)[:, None]
                sure[:, z, 0] = 0.0
                sure_view = self.prospects.view(sure, times)
                seen = self.prospects.all_zones(sure_view)
            found.append(np.concatenate([seen, self.prospects.own(sure_view, z)], axis=-1))
        return base, found

    def at(self, weights: Singles | Floats, terms: Floats, slack_s: Floats) -> Floats:
        """[window] of one table [term, slack]."""
        grid = self.tables.slack_s
        s = np.clip(slack_s, grid[0], grid[-1])
        high = np.clip(np.searchsorted(grid, s), 1, len(grid) - 1)
        share = (s - grid[high - 1]) / (grid[high] - grid[high - 1])
        mixed = weights[:, high - 1] * (1 - share) + weights[:, high] * share
        return np.asarray(np.einsum("wt,tw->w", terms, mixed))
