"""The tables of :mod:`router.quoting.foresight`: what each choice costs at each tick, from the last one back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from router.quoting.market import SAME, Market
from router.quoting.outlook import Outlook, Sky, Swings, run
from router.quoting.prospects import OWN, Lately, Prospects, View, look_at
from router.quoting.scene import HOUR_S
from router.quoting.series import Floats, Ints

NEVER: Final = 1e12  # dollars of what cannot be done
_FINE_S: Final = 2 * HOUR_S  # grid of slack: steps of a clock tick up to here, then longer ones
_GROWS: Final = 1.15
_RIDGE: Final = 1e-3
_SWING: Final = 0.5
_BEFORE_H: Final = 72.0
_KEEPS: Final = 0.95
Singles = NDArray[np.float32]


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

    @classmethod
    def empty(cls, ticks: int, market: Market, terms: int, clock_s: int, slack_s: Floats, takes_s: Floats) -> Tables:
        """All weights nothing."""
        groups, places = len(market.homes()[1]), len(market.on_demand_zones())
        takes, size, of_spot = len(takes_s), len(slack_s), terms + OWN

        def table(*shape: int) -> Singles:
            return np.zeros((ticks, *shape, size), np.float32)

        return cls(
            clock_s, slack_s, takes_s, launch=table(market.zones, takes, of_spot), stay=table(market.zones, of_spot),
            to_demand=table(places, takes, terms), on_demand=table(places, terms), home=table(groups, terms),
        )  # fmt: skip


def slack_grid(longest_s: float, clock_s: int, launch_s: float) -> Floats:
    """Fine where it is scarce, with one and two launches on it; at least two points."""
    found, at, by = [0.0, launch_s, 2 * launch_s], 0.0, float(clock_s)
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
    found = _Backward(market, prospects, ticks, clock_s, grid, draws)
    for left in range(1, ticks + 1):
        found.tick(left, *futures[ticks - left])
    return found.tables


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


class _Shape:
    """What is the same at every tick: which launches there are from where, what they take and cost; and how values on
    the grid of slack move when a tick passes. ``group`` [zone], ``first`` [group] and ``places`` are those of the
    market; ``kind`` [group, zone]: which of ``takes_s`` a launch there takes; ``wait_ok`` [group, slack] and
    ``launch_ok`` [group, zone, slack]: whether what is left suffices for the reference on demand."""

    def __init__(self, market: Market, clock_s: int, grid: Floats) -> None:
        self.group, self.first = market.homes()
        self.places = market.on_demand_zones()
        takes = market.launch_s[None, :] + market.ways.transfer_s[self.first]
        self.egress = market.ways.egress_usd[self.first]
        self.takes_s = np.unique(takes)
        self.kind = np.searchsorted(self.takes_s, takes)
        self.after_launch = [shift(grid, float(t)) for t in self.takes_s]
        self.after_wait = shift(grid, clock_s)
        self.after_work = [shift(grid, -(v - 1) * clock_s) for v in market.speed]
        reference = self.places[market.speed[self.places] >= 1 - SAME]
        rescue = takes[:, reference].min(axis=1)
        self.wait_ok = grid[None, :] - clock_s >= rescue[:, None]
        self.launch_ok = grid[None, None, :] - takes[:, :, None] >= rescue[self.group][None, :, None]


@dataclass(eq=False, slots=True)
class _Tick:
    """One of them: the terms ``base`` [draw, term] that were ``seen``; ``left_h`` [slack] of work; ``wait`` [group,
    draw, slack]: dollars to the end of waiting there; ``home``: as expected, more than in the first group; ``choice``:
    of the best choice, as expected, more than waiting there, and ``came``: dollars to the end as they came of it."""

    index: int
    sky: Sky
    seen: View
    base: Floats
    left_h: Floats
    wait: Floats
    home: Floats
    choice: Floats
    came: Floats


class _Backward:
    """``value`` [group, draw, slack], ``on_spot`` [zone, ..] and ``on_demand`` [place, ..]: dollars to the end, as they
    come, of who has nothing running, spot or on-demand past its launch, once the tick that is looked at is over."""

    def __init__(
        self, market: Market, prospects: Prospects, ticks: int, clock_s: int, grid: Floats, draws: int
    ) -> None:
        self.market, self.prospects = market, prospects
        self.shape = s = _Shape(market, clock_s, grid)
        self.tables = Tables.empty(ticks, market, prospects.terms, clock_s, grid, s.takes_s)
        self.value = np.zeros((len(s.first), draws, len(grid)))
        self.on_spot = np.zeros((market.zones, draws, len(grid)))
        self.on_demand = np.zeros((len(s.places), draws, len(grid)))
        self.of_base, self.of_spot = _Sums(), [_Sums() for _ in range(market.zones)]

    def tick(self, left: int, sky: Sky, times: Floats) -> None:
        """With ``left`` ticks to the deadline, this one among them."""
        s, clock_s, grid = self.shape, self.tables.clock_s, self.tables.slack_s
        seen = self.prospects.view(look_at(sky), times)
        base = self.prospects.all_zones(seen)
        left_h = np.maximum((left * clock_s - grid) / HOUR_S, 0.0)
        wait = self.value @ s.after_wait
        demand = np.stack([self._runs(self.on_demand[i], z, left_h, False) for i, z in enumerate(s.places)])
        self._fit_base(left - 1, base, wait, demand)
        home = base @ self.tables.home[left - 1]
        choice = np.where(s.wait_ok[:, None, :], 0.0, NEVER).repeat(len(base), axis=1)
        now = _Tick(left - 1, sky, seen, base, left_h, wait, home, choice, wait.copy())
        self._choose_demand(now, demand)
        spot, stays = self._choose_spot(now)
        on = np.stack([base @ part for part in self.tables.on_demand[now.index]])
        self.on_spot = np.where(stays <= now.choice[s.group], spot, now.came[s.group])
        self.on_demand = np.where(on <= now.choice[s.group[s.places]], demand, now.came[s.group[s.places]])
        self.value = now.came
        for array in (self.value, self.on_spot, self.on_demand):
            array[:, :, left_h <= 0] = 0.0

    def _runs(self, after: Floats, zone: int, left_h: Floats, spot: bool) -> Floats:
        """Dollars of a tick of it and of what comes after."""
        market, hours = self.market, self.tables.clock_s / HOUR_S
        usd = market.spot_usd[zone] if spot else market.on_demand_usd[zone]
        return np.asarray(after @ self.shape.after_work[zone] + usd * np.minimum(hours, left_h / market.speed[zone]))

    def _fit_base(self, index: int, base: Floats, wait: Floats, demand: Floats) -> None:
        """What needs no spot."""
        s, t = self.shape, self.tables
        ys = []
        for i, z in enumerate(s.places):
            own = wait[s.group[z]]
            ys += [demand[i] @ launched - own for launched in s.after_launch] + [demand[i] - own]
        ys += [wait[g] - wait[0] for g in range(1, len(s.first))]
        found = self.of_base.fit(base, ys)
        each = len(s.after_launch) + 1
        for i in range(len(s.places)):
            *t.to_demand[index, i], t.on_demand[index, i] = found[i * each : (i + 1) * each]
        for g, weights in enumerate(found[len(s.places) * each :], 1):
            t.home[index, g] = weights

    def _choose_demand(self, now: _Tick, demand: Floats) -> None:
        s = self.shape
        for i, z in enumerate(s.places):
            fits = now.base @ self.tables.to_demand[now.index, i]
            for g, kind in enumerate(s.kind[:, z]):
                fit = fits[kind] + s.egress[g, z] + now.home[s.group[z]] - now.home[g]
                _take(now.choice[g], now.came[g], fit, demand[i] @ s.after_launch[kind] + s.egress[g, z])

    def _choose_spot(self, now: _Tick) -> tuple[Floats, Floats]:
        """[zone, draw, slack]: dollars of going on with spot there, as they come and as expected over waiting."""
        s, t, k = self.shape, self.tables, now.index
        shape = self.on_spot.shape
        spot, stays = np.zeros(shape), np.full(shape, NEVER)
        for z in range(self.market.zones):
            rows = np.flatnonzero(now.sky.up[:, z])
            if not rows.size:
                t.launch[k, z], t.stay[k, z] = t.launch[k - 1, z], t.stay[k - 1, z]
                continue
            x = np.concatenate([now.base, self.prospects.own(now.seen, z)], axis=-1)[rows]
            y = spot[z, rows] = self._runs(self.on_spot[z][rows], z, now.left_h, True)
            own = now.wait[s.group[z]][rows]
            *launches, stay = self.of_spot[z].fit(x, [y @ launched - own for launched in s.after_launch] + [y - own])
            t.launch[k, z], t.stay[k, z] = launches, stay
            stays[z, rows] = x @ stay
            fits = [x @ part for part in launches]
            for g, kind in enumerate(s.kind[:, z]):
                fit = fits[kind] + s.egress[g, z] + (now.home[s.group[z]] - now.home[g])[rows]
                choice, came = now.choice[g, rows], now.came[g, rows]
                fit = np.where(s.launch_ok[g, z], fit, NEVER)
                _take(choice, came, fit, y @ s.after_launch[kind] + s.egress[g, z])
                now.choice[g, rows], now.came[g, rows] = choice, came
        return spot, stays


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
