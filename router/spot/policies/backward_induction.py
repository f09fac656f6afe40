"""The tables of :mod:`router.spot.policies.foresight`: what each choice costs at each tick, from the last one
back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from router.spot.availability.hazard_model import Outlook, Sky, Swings, run
from router.spot.policies.market import SAME, Market
from router.spot.policies.regression_features import OWN, Lately, Prospects, look_at
from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.traces import Bools, Floats, Ints

NEVER: Final = 1e12  # dollars of what cannot be done
_FINE_S: Final = 2 * HOUR_S  # grid of slack: steps of a clock tick up to here, then longer ones
_GROWS: Final = 1.15
_RIDGE: Final = 1e-3
_BEFORE_H: Final = 72.0
_KEEPS: Final = 0.95
Singles = NDArray[np.float32]


@dataclass(frozen=True, eq=False, slots=True)
class Tables:
    """Weights of the regressions, by [tick left - 1, .., slack, term]. All are dollars more than waiting where the
    checkpoint is costs: ``launch`` [.., spot, take] of spot launched there from the same group, ``stay`` [.., spot] of
    spot that runs past its launch, both by the zones where spot may come; ``to_demand`` [.., place, take],
    ``on_demand`` [.., place]; ``home`` [.., group] is waiting with the checkpoint in that group, dollars more than in
    the first. ``slack_s``: the grid; ``takes_s``: the launches that there are."""

    clock_s: int
    slack_s: Floats
    takes_s: Floats
    launch: Singles
    stay: Singles
    to_demand: Singles
    on_demand: Singles
    home: Singles

    @classmethod
    def empty(
        cls, ticks: int, market: Market, spots: int, terms: int, clock_s: int, slack_s: Floats, takes_s: Floats
    ) -> Tables:
        """All weights nothing; for ``spots`` zones where spot may come."""
        groups, places = len(market.homes()[1]), len(market.on_demand_zones())
        takes, size, of_spot = len(takes_s), len(slack_s), terms + OWN

        def table(*shape: int) -> Singles:
            return np.zeros((ticks, *shape[:-1], size, shape[-1]), np.float32)

        return cls(
            clock_s,
            slack_s,
            takes_s,
            launch=table(spots, takes, of_spot),
            stay=table(spots, of_spot),
            to_demand=table(places, takes, terms),
            on_demand=table(places, terms),
            home=table(groups, terms),
        )


def slack_grid(longest_s: float, clock_s: int, launch_s: float) -> Floats:
    """Fine where it is scarce, with one and two launches on it; at least two points."""
    found, at, by = [0.0, float(clock_s), launch_s, 2 * launch_s], 0.0, float(clock_s)
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
    outlook: Outlook,
    market: Market,
    spots: Ints,
    prospects: Prospects,
    ticks: int,
    clock_s: int,
    grid: Floats,
    draws: int,
    rng: np.random.Generator,
) -> Tables:
    """``outlook`` and ``prospects`` are of the zones ``spots`` of the market, where spot may come.

    From the last tick back: what each choice costs more than waiting, on the same futures, is regressed on what was
    seen; what a future costs is what comes of the choices that this makes in it (Longstaff and Schwartz 2001)."""
    skies, times = _futures(outlook, market.homes()[0][spots], ticks, clock_s, draws, rng)
    view = prospects.view(look_at(skies), times)
    base = prospects.all_zones(view).astype(np.float32)
    own = prospects.own(view, np.arange(len(spots))).astype(np.float32)
    found = _Backward(market, spots, prospects.terms, ticks, clock_s, grid, draws)
    for left in range(1, ticks + 1):
        at = ticks - left
        found.tick(left, skies.up[at], base[at], own[at])
    return found.tables


class _Sums:
    """A regression whose cases of the ticks before count too, less and less."""

    def __init__(self) -> None:
        self.xx: Floats | None = None
        self.xy: Floats | None = None

    def fit(self, x: Singles, y: Singles) -> Singles:
        """[term, result] of [case, term] and [case, result]. What shrinks are all weights but the constant: that would
        add up from tick to tick."""
        xx, xy = (x.T @ x).astype(np.float64), (x.T @ y).astype(np.float64)
        if self.xx is not None and self.xy is not None:
            xx += _KEEPS * self.xx
            xy += _KEEPS * self.xy
        self.xx, self.xy = xx, xy
        penalty = np.full(len(xx), _RIDGE * float(xx[0, 0]))
        penalty[0] = 0.0
        found: Singles = np.linalg.solve(xx + np.diag(penalty), xy).astype(np.float32)
        return found


def _bars(allowed: Bools) -> Singles:
    return np.where(allowed, np.float32(0), np.float32(NEVER))


class _Shape:
    """What is the same at every tick: which launches there are from where, what they take and cost; and how values on
    the grid of slack move when a tick passes. ``group`` [zone], ``first`` [group] and ``places`` are those of the
    market; ``kind`` [group, zone]: which of ``takes_s`` a launch there takes; ``wait_ok`` [group, slack]: whether what
    is left suffices for the reference on demand; ``bars`` [group, zone, slack]: dollars that keep
    from launches after which it does not, after a tick of work too where that is slow; ``stay_bars`` [zone, slack]:
    that keep from going on where it is slow and does not."""

    def __init__(self, market: Market, clock_s: int, grid: Floats) -> None:
        self.group, self.first = market.homes()
        self.places = market.on_demand_zones()
        takes = market.launch_s[None, :] + market.ways.transfer_s[self.first]
        self.egress = market.ways.egress_usd[self.first]
        self.takes_s = np.unique(takes)
        self.kind = np.searchsorted(self.takes_s, takes)
        self.launches = len(self.takes_s)
        self.after_launch = np.concatenate([shift(grid, float(t)) for t in self.takes_s], axis=1).astype(np.float32)
        self.after_wait = shift(grid, clock_s).astype(np.float32)
        self.after_work = [
            None if v == 1 else shift(grid, -(v - 1) * clock_s).astype(np.float32) for v in market.speed
        ]  # None: as it is
        reference = self.places[market.speed[self.places] >= 1 - SAME]
        rescue = takes[:, reference].min(axis=1)
        self.wait_ok = grid[None, :] - clock_s >= rescue[:, None]
        loses = np.maximum(1 - market.speed, 0.0) * clock_s
        needs = rescue[self.group] + loses
        self.bars = _bars(grid[None, None, :] - takes[:, :, None] >= needs[None, :, None])
        self.stay_bars = _bars((grid[None, :] >= needs[:, None]) | (loses <= SAME * clock_s)[:, None])
        self.launches_s, self.clock_s, self.grid, self.speed = takes, clock_s, grid, market.speed

    def demand_bars(self, zone: int, left: int) -> tuple[Singles, Singles]:
        """[group, slack] of a launch on demand there, and [slack] of going on with it: it may also be done in time."""
        rest_s = left * self.clock_s
        done_s = np.maximum(rest_s - self.grid, 0.0) / self.speed[zone]
        launch = np.where(self.launches_s[:, zone, None] + done_s <= rest_s, np.float32(0), self.bars[:, zone])
        if self.speed[zone] >= 1 - SAME:
            launch = np.zeros_like(launch)  # what is left for, where there is no time for anything else
        return launch, np.where(done_s <= rest_s, np.float32(0), self.stay_bars[zone])


@dataclass(eq=False, slots=True)
class _Tick:
    """One of them: which spots are ``up`` [draw, spot]; what was seen, ``base`` [draw, term] and ``own`` [draw, spot,
    term]; ``left_h`` [slack] of work; ``wait`` [group, draw, slack]: dollars to the end of waiting there; as expected,
    more than waiting in the first group costs: ``home``, waiting there, and ``choice``, the best choice; ``came``:
    dollars to the end as they came of it."""

    index: int
    up: Bools
    base: Singles
    own: Singles
    left_h: Floats
    wait: Singles
    home: Singles
    choice: Singles
    came: Singles

    def take(self, group: int, fit: Singles, real: Singles, egress_usd: float, bars: Singles) -> None:
        """Where this is better for who comes from there. ``bars`` [slack]: dollars on top that keep from it."""
        fit = fit + (bars + np.float32(egress_usd))
        if egress_usd:
            real = real + np.float32(egress_usd)
        choice = self.choice[group]
        np.putmask(self.came[group], fit < choice, real)  # several times as fast as copyto
        np.minimum(choice, fit, out=choice)


class _Backward:
    """``value`` [group, draw, slack], ``on_spot`` [spot, ..] and ``on_demand`` [place, ..]: dollars to the end, as they
    come, of who has nothing running, spot or on-demand past its launch, once the tick that is looked at is over.
    Single precision: a cent in a hundred thousand dollars."""

    def __init__(
        self, market: Market, spots: Ints, terms: int, ticks: int, clock_s: int, grid: Floats, draws: int
    ) -> None:
        self.market, self.spots = market, spots
        self.shape = s = _Shape(market, clock_s, grid)
        self.tables = Tables.empty(ticks, market, len(spots), terms, clock_s, grid, s.takes_s)
        self.value, self.on_spot, self.on_demand = (
            np.zeros((count, draws, len(grid)), np.float32) for count in (len(s.first), len(spots), len(s.places))
        )
        self.of_base, self.of_spot = _Sums(), [_Sums() for _ in spots]

    def tick(self, left: int, up: Bools, base: Singles, own: Singles) -> None:
        """With ``left`` ticks to the deadline, this one among them; see :class:`_Tick`."""
        s, clock_s, grid = self.shape, self.tables.clock_s, self.tables.slack_s
        left_h = np.maximum((left * clock_s - grid) / HOUR_S, 0.0)
        wait = self.value @ s.after_wait
        demand = [self._runs(self.on_demand[i], z, left_h, self.market.on_demand_usd) for i, z in enumerate(s.places)]
        real = self._fit_base(left - 1, base, wait, demand)
        home = base @ self.tables.home[left - 1].swapaxes(-1, -2)
        choice = np.where(s.wait_ok[:, None, :], home, np.float32(NEVER))
        now = _Tick(left - 1, up, base, own, left_h, wait, home, choice, wait.copy())
        goes_on = self._choose_demand(now, real)
        spot, stays = self._choose_spot(now)
        for i, g in enumerate(s.group[self.spots]):
            _go_on(self.on_spot[i], now, g, spot[i], stays[i])
        for i, g in enumerate(s.group[s.places]):
            _go_on(self.on_demand[i], now, g, demand[i], goes_on[i])
        self.value = now.came
        for array in (self.value, self.on_spot, self.on_demand):
            array[:, :, left_h <= 0] = 0.0

    def _runs(self, after: Singles, zone: int, left_h: Floats, usd: Floats) -> Singles:
        """Dollars of a tick of it at ``usd`` [zone] an hour, and of what comes after."""
        pays = usd[zone] * np.minimum(self.tables.clock_s / HOUR_S, left_h / self.market.speed[zone])
        work = self.shape.after_work[zone]
        return np.asarray((after if work is None else after @ work) + pays.astype(np.float32))

    def _launched(self, dollars: Singles) -> Singles:
        """[draw, launch, slack], the last of the launches none."""
        size = dollars.shape[1]
        found = np.concatenate([dollars @ self.shape.after_launch, dollars], axis=1)
        return found.reshape(len(dollars), -1, size)

    def _fit_base(self, index: int, base: Singles, wait: Singles, demand: list[Singles]) -> list[Singles]:
        """What needs no spot. [place] of dollars as of :meth:`_launched`."""
        s, t = self.shape, self.tables
        real = [self._launched(dollars) for dollars in demand]
        ys = [r - wait[s.group[z]][:, None, :] for r, z in zip(real, s.places, strict=True)]
        ys.append((wait[1:] - wait[:1]).swapaxes(0, 1))
        y = np.concatenate(ys, axis=1)
        found = self.of_base.fit(base, y.reshape(len(base), -1)).reshape(base.shape[1], *y.shape[1:]).swapaxes(0, 1)
        of_places = found[: len(s.places) * (s.launches + 1)].reshape(len(s.places), s.launches + 1, *found.shape[1:])
        of_places = of_places.swapaxes(-1, -2)
        t.to_demand[index], t.on_demand[index] = of_places[:, :-1], of_places[:, -1]
        t.home[index, 1:] = found[len(s.places) * (s.launches + 1) :].swapaxes(-1, -2)
        return real

    def _choose_demand(self, now: _Tick, real: list[Singles]) -> list[Singles]:
        """[place] as expected: dollars of going on there."""
        s, goes_on = self.shape, []
        for i, z in enumerate(s.places):
            home = now.home[s.group[z]]
            fits = now.base @ self.tables.to_demand[now.index, i].swapaxes(-1, -2) + home
            launched = np.ascontiguousarray(real[i].swapaxes(0, 1))
            launch_bars, stay_bars = s.demand_bars(z, now.index + 1)
            for g, kind in enumerate(s.kind[:, z]):
                now.take(g, fits[kind], launched[kind], s.egress[g, z], launch_bars[g])
            goes_on.append(now.base @ self.tables.on_demand[now.index, i].T + home + stay_bars)
        return goes_on

    def _choose_spot(self, now: _Tick) -> tuple[Singles, Singles]:
        """[spot, draw, slack]: dollars of going on with it, as they come and as expected."""
        s, t, k = self.shape, self.tables, now.index
        spot, stays = np.empty_like(self.on_spot), np.full_like(self.on_spot, NEVER)
        (draws, size), kinds = self.on_spot.shape[1:], s.launches
        real, fit = np.zeros((kinds, draws, size), np.float32), np.empty((kinds, draws, size), np.float32)
        for i, z in enumerate(self.spots):
            rows, g_there = np.flatnonzero(now.up[:, i]), s.group[z]
            if not rows.size:
                t.launch[k, i], t.stay[k, i] = t.launch[k - 1, i], t.stay[k - 1, i]
                continue
            x = np.concatenate([now.base[rows], now.own[rows, i]], axis=1)
            dollars = self._launched(self._runs(self.on_spot[i][rows], z, now.left_h, self.market.spot_usd))
            y = dollars - now.wait[g_there][rows][:, None, :]
            weights = self.of_spot[i].fit(x, y.reshape(rows.size, -1))
            of_launches = np.moveaxis(weights.reshape(x.shape[1], kinds + 1, size), 0, -1)
            t.launch[k, i], t.stay[k, i] = of_launches[:-1], of_launches[-1]
            fits = (x @ weights).reshape(rows.size, kinds + 1, size) + now.home[g_there][rows][:, None, :]
            spot[i, rows], stays[i, rows] = dollars[:, -1], fits[:, -1] + s.stay_bars[z]
            fit.fill(NEVER)
            for kind in range(kinds):
                fit[kind, rows], real[kind, rows] = fits[:, kind], dollars[:, kind]
            for g, kind in enumerate(s.kind[:, z]):
                now.take(g, fit[kind], real[kind], s.egress[g, z], s.bars[g, z])
        return spot, stays


def _go_on(after: Singles, now: _Tick, group: int, real: Singles, fit: Singles) -> None:
    """Dollars of who has it running: it goes on unless another choice there is better."""
    after[:] = now.came[group]
    np.putmask(after, fit <= now.choice[group], real)


def _zones_first(values: NDArray[Any], axis: int) -> NDArray[Any]:
    """The same, with that axis the first in memory: sums over a few neighbours would take ten times as long."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(values, axis, 0)), 0, axis)


def _futures(
    outlook: Outlook, regions: Ints, ticks: int, clock_s: int, draws: int, rng: np.random.Generator
) -> tuple[Sky, Floats]:
    """[tick, draw, spot]: skies as they may come after a usual one, and how much more often than expected each
    changed."""
    hazards, mean = outlook.draw(draws, rng), outlook.mean()
    sky = outlook.usual(draws, rng, hazards)
    swings = Swings.begin(regions, draws, rng)
    lately = Lately.nothing(sky.up.shape)
    ups, ages, times = [], [], []
    hours = clock_s / HOUR_S
    for i in range(int(_BEFORE_H), -ticks, -1):
        before, by = sky.copy(), 1.0 if i > 0 else hours
        run(hazards, sky, by, rng, swings.step(by, rng))
        lately.see(before, sky.up, mean, by)
        if i <= 0:
            ups.append(sky.up.copy())
            ages.append(sky.age_h.copy())
            times.append(lately.times)
    return Sky(_zones_first(np.array(ups), -1), _zones_first(np.array(ages), -1)), _zones_first(np.array(times), -2)
