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
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from router.spot.availability.hazard_model import HazardModel, ScarcityProcess, ZoneStates, advance_states
from router.spot.policies.regression_features import OWN_TERMS, RecentChanges, RegressionFeatures, encode_states
from router.spot.simulator.inputs import HOUR_S, SPEED_TOLERANCE, ZoneMarket, sells_reference
from router.spot.simulator.traces import Bools, Floats, Ints

INFEASIBLE_USD: Final = 1e12  # dollars of an infeasible action
_FINE_S: Final = 2 * HOUR_S  # the grid of slack has steps of a clock tick up to here, then longer ones
_GROWS: Final = 1.15
_RIDGE: Final = 1e-3
_BEFORE_H: Final = 72.0
_KEEPS: Final = 0.95
Singles = NDArray[np.float32]


@dataclass(frozen=True, eq=False, slots=True)
class ValueTables:
    """Weights of the regressions, by [tick left - 1, .., slack, term].

    All are dollars above waiting where the checkpoint is. ``launch`` [.., spot, take] is of spot launched there from
    the same group, ``stay`` [.., spot] of spot that runs past its launch, both by the zones where spot may come;
    ``to_demand`` is by [.., place, take], ``on_demand`` by [.., place]; ``home`` [.., group] is of waiting with the
    checkpoint in that group, above waiting in the first. ``slack_s`` is the grid; ``takes_s`` are the launch times that
    occur.
    """

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
        cls, ticks: int, market: ZoneMarket, spots: int, terms: int, clock_s: int, slack_s: Floats, takes_s: Floats
    ) -> ValueTables:
        """Return tables of zero weights, for ``spots`` zones where spot may come."""
        groups, places = len(market.homes()[1]), len(market.on_demand_zones())
        takes, size, of_spot = len(takes_s), len(slack_s), terms + OWN_TERMS

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
    """Return a grid of slack, fine where slack is scarce, of at least two points.

    The points of one and of two launches are on it.
    """
    points, at, by = [0.0, float(clock_s), launch_s, 2 * launch_s], 0.0, float(clock_s)
    while at < longest_s:
        at += by
        by *= _GROWS if at > _FINE_S else 1.0
        points.append(at)
    return np.unique(np.array(points))


def shift_matrix(grid: Floats, by: float) -> Floats:
    """Return the matrix [slack, slack] that moves values on the grid to ``grid - by``.

    Multiplied from the right, it interpolates linearly between the points.
    """
    at = np.clip(grid - by, grid[0], grid[-1])
    high = np.clip(np.searchsorted(grid, at), 1, len(grid) - 1)
    share = (at - grid[high - 1]) / (grid[high] - grid[high - 1])
    matrix = np.zeros((len(grid), len(grid)))
    matrix[high - 1, np.arange(len(grid))] += 1 - share
    matrix[high, np.arange(len(grid))] += share
    return matrix


def solve_tables(
    hazard_model: HazardModel,
    market: ZoneMarket,
    spots: Ints,
    features: RegressionFeatures,
    ticks: int,
    clock_s: int,
    grid: Floats,
    draws: int,
    rng: np.random.Generator,
) -> ValueTables:
    """Return the tables, by backward induction over simulated futures.

    ``hazard_model`` and ``features`` are of the zones ``spots`` of the market, where spot may come.

    From the last tick back, the cost of each action above waiting, on the same futures, is regressed on what was seen;
    the cost of a future follows from the actions that this regression chooses in it (Longstaff and Schwartz 2001).
    """
    states, times = _simulate_futures(hazard_model, market.homes()[0][spots], ticks, clock_s, draws, rng)
    view = features.view(encode_states(states), times)
    base, own = (terms.astype(np.float32) for terms in features.terms_of(view))
    induction = _Induction(market, spots, features.terms, ticks, clock_s, grid, draws)
    for left in range(1, ticks + 1):
        at = ticks - left
        induction.tick(left, states.up[at], base[at], own[at])
    return induction.tables


class _DecayingRegression:
    """A ridge regression in which the cases of earlier ticks count too, with decaying weight."""

    def __init__(self) -> None:
        self.xx: Floats | None = None
        self.xy: Floats | None = None

    def fit(self, x: Singles, y: Singles) -> Singles:
        """Return the weights [term, result] from [case, term] and [case, result].

        All weights but the constant are penalised: a penalty on the constant would add up from tick to tick.
        """
        xx, xy = (x.T @ x).astype(np.float64), (x.T @ y).astype(np.float64)
        if self.xx is not None and self.xy is not None:
            xx += _KEEPS * self.xx
            xy += _KEEPS * self.xy
        self.xx, self.xy = xx, xy
        penalty = np.full(len(xx), _RIDGE * float(xx[0, 0]))
        penalty[0] = 0.0
        weights: Singles = np.linalg.solve(xx + np.diag(penalty), xy).astype(np.float32)
        return weights


def _barriers(allowed: Bools) -> Singles:
    return np.where(allowed, np.float32(0), np.float32(INFEASIBLE_USD))


class _LaunchGeometry:
    """The parts of the problem that are the same at every tick.

    These are the launches from each group, their times and costs, and how values on the grid of slack move when a tick
    passes. ``group`` [zone], ``first`` [group] and ``places`` are those of the market; ``kind`` [group, zone] is the
    index in ``takes_s`` of a launch there; ``wait_ok`` [group, slack] says whether what is left suffices for the
    reference on demand. ``bars`` [group, zone, slack] are dollars that prevent launches after which it does not
    suffice, after a tick of work too where that is slow; ``stay_bars`` [zone, slack] prevent going on where it is slow
    and does not suffice.
    """

    def __init__(self, market: ZoneMarket, clock_s: int, grid: Floats) -> None:
        self.group, self.first = market.homes()
        self.places = market.on_demand_zones()
        takes = market.launch_s[None, :] + market.ways.transfer_s[self.first]
        self.egress = market.ways.egress_usd[self.first]
        self.takes_s = np.unique(takes)
        self.kind = np.searchsorted(self.takes_s, takes)
        self.launches = len(self.takes_s)
        self.after_launch = np.concatenate([shift_matrix(grid, float(t)) for t in self.takes_s], axis=1).astype(
            np.float32
        )
        self.after_wait = shift_matrix(grid, clock_s).astype(np.float32)
        self.after_work = [
            None if v == 1 else shift_matrix(grid, -(v - 1) * clock_s).astype(np.float32) for v in market.speed
        ]  # None where slack does not change
        reference = self.places[market.speed[self.places] >= 1 - SPEED_TOLERANCE]
        rescue = takes[:, reference].min(axis=1)
        self.wait_ok = grid[None, :] - clock_s >= rescue[:, None]
        loses = np.maximum(1 - market.speed, 0.0) * clock_s
        needs = rescue[self.group] + loses
        self.bars = _barriers(grid[None, None, :] - takes[:, :, None] >= needs[None, :, None])
        self.stay_bars = _barriers((grid[None, :] >= needs[:, None]) | (loses <= SPEED_TOLERANCE * clock_s)[:, None])
        self.launches_s, self.clock_s, self.grid, self.speed = takes, clock_s, grid, market.speed

    def demand_bars(self, zone: int, ticks_left: int) -> tuple[Singles, Singles]:
        """Return the bars [group, slack] of a launch on demand there, and [slack] of going on with it.

        It is allowed too where the work is done in time.
        """
        rest_s = ticks_left * self.clock_s
        done_s = np.maximum(rest_s - self.grid, 0.0) / self.speed[zone]
        launch = np.where(self.launches_s[:, zone, None] + done_s <= rest_s, np.float32(0), self.bars[:, zone])
        if self.speed[zone] >= 1 - SPEED_TOLERANCE:
            launch = np.zeros_like(launch)  # it remains possible where there is no time for anything else
        return launch, np.where(done_s <= rest_s, np.float32(0), self.stay_bars[zone])


@dataclass(eq=False, slots=True)
class _Tick:
    """One tick of the induction.

    ``up`` [draw, spot] says which spots are up. ``base`` [draw, term] and ``spot_terms`` [draw, spot, term] are the
    regression terms of what was seen. ``left_h`` [slack] is the work left. ``wait`` [group, draw, slack] is the
    realised dollars to the end of waiting there. ``home``, of waiting there, and ``choice``, of the best action, are
    expected dollars above waiting in the first group. ``came`` is the realised dollars to the end under the chosen
    actions.
    """

    index: int
    up: Bools
    base: Singles
    spot_terms: Singles
    left_h: Floats
    wait: Singles
    home: Singles
    choice: Singles
    came: Singles

    def take(self, group: int, fit: Singles, real: Singles, egress_usd: float, bars: Singles) -> None:
        """Choose this action for gangs of ``group`` where it is expected to cost less.

        ``bars`` [slack] are dollars on top that prevent it.
        """
        fit = fit + (bars + np.float32(egress_usd))
        if egress_usd:
            real = real + np.float32(egress_usd)
        choice = self.choice[group]
        np.putmask(self.came[group], fit < choice, real)  # putmask is several times as fast as copyto
        np.minimum(choice, fit, out=choice)


class _Induction:
    """The induction; values are realised dollars to the end once the present tick is over.

    ``value`` [group, draw, slack] is of a gang with nothing running, ``on_spot`` [spot, ..] and ``on_demand`` [place,
    ..] of one with spot or on-demand past its launch. Single precision is a cent in a hundred thousand dollars.
    """

    def __init__(
        self, market: ZoneMarket, spots: Ints, terms: int, ticks: int, clock_s: int, grid: Floats, draws: int
    ) -> None:
        self.market, self.spots = market, spots
        self.shape = s = _LaunchGeometry(market, clock_s, grid)
        self.tables = ValueTables.empty(ticks, market, len(spots), terms, clock_s, grid, s.takes_s)
        self.value, self.on_spot, self.on_demand = (
            np.zeros((count, draws, len(grid)), np.float32) for count in (len(s.first), len(spots), len(s.places))
        )
        self.of_base, self.of_spot = _DecayingRegression(), [_DecayingRegression() for _ in spots]

    def tick(self, ticks_left: int, up: Bools, base: Singles, spot_terms: Singles) -> None:
        s, clock_s, grid = self.shape, self.tables.clock_s, self.tables.slack_s
        left_h = np.maximum((ticks_left * clock_s - grid) / HOUR_S, 0.0)
        wait = self.value @ s.after_wait
        demand = [
            self._cost_of_tick(self.on_demand[i], z, left_h, self.market.on_demand_usd) for i, z in enumerate(s.places)
        ]
        real = self._fit_base(ticks_left - 1, base, wait, demand)
        home = base @ self.tables.home[ticks_left - 1].swapaxes(-1, -2)
        choice = np.where(s.wait_ok[:, None, :], home, np.float32(INFEASIBLE_USD))
        now = _Tick(ticks_left - 1, up, base, spot_terms, left_h, wait, home, choice, wait.copy())
        goes_on = self._choose_demand(now, real)
        spot, stays = self._choose_spot(now)
        for i, g in enumerate(s.group[self.spots]):
            _continue_running(self.on_spot[i], now, g, spot[i], stays[i])
        for i, g in enumerate(s.group[s.places]):
            _continue_running(self.on_demand[i], now, g, demand[i], goes_on[i])
        self.value = now.came
        for array in (self.value, self.on_spot, self.on_demand):
            array[:, :, left_h <= 0] = 0.0

    def _cost_of_tick(self, after: Singles, zone: int, left_h: Floats, usd: Floats) -> Singles:
        """Return the dollars of a tick of running at ``usd`` [zone] an hour, and of what comes after it."""
        pays = usd[zone] * np.minimum(self.tables.clock_s / HOUR_S, left_h / self.market.speed[zone])
        work = self.shape.after_work[zone]
        return np.asarray((after if work is None else after @ work) + pays.astype(np.float32))

    def _after_launches(self, dollars: Singles) -> Singles:
        """Return dollars by [draw, launch, slack]; the last of the launches is none."""
        size = dollars.shape[1]
        stacked = np.concatenate([dollars @ self.shape.after_launch, dollars], axis=1)
        return stacked.reshape(len(dollars), -1, size)

    def _fit_base(self, index: int, base: Singles, wait: Singles, demand: list[Singles]) -> list[Singles]:
        """Fit the actions that need no spot; return by [place] dollars as :meth:`_after_launches` does."""
        s, t = self.shape, self.tables
        real = [self._after_launches(dollars) for dollars in demand]
        ys = [r - wait[s.group[z]][:, None, :] for r, z in zip(real, s.places, strict=True)]
        ys.append((wait[1:] - wait[:1]).swapaxes(0, 1))
        y = np.concatenate(ys, axis=1)
        weights = self.of_base.fit(base, y.reshape(len(base), -1)).reshape(base.shape[1], *y.shape[1:]).swapaxes(0, 1)
        of_places = weights[: len(s.places) * (s.launches + 1)].reshape(
            len(s.places), s.launches + 1, *weights.shape[1:]
        )
        of_places = of_places.swapaxes(-1, -2)
        t.to_demand[index], t.on_demand[index] = of_places[:, :-1], of_places[:, -1]
        t.home[index, 1:] = weights[len(s.places) * (s.launches + 1) :].swapaxes(-1, -2)
        return real

    def _choose_demand(self, now: _Tick, real: list[Singles]) -> list[Singles]:
        """Choose on-demand where it is best; return by [place] the expected dollars of going on there."""
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
        """Choose spot where it is best; return by [spot, draw, slack] the realised and expected dollars of staying."""
        s, t, k = self.shape, self.tables, now.index
        spot, stays = np.empty_like(self.on_spot), np.full_like(self.on_spot, INFEASIBLE_USD)
        (draws, size), kinds = self.on_spot.shape[1:], s.launches
        real, fit = np.zeros((kinds, draws, size), np.float32), np.empty((kinds, draws, size), np.float32)
        for i, z in enumerate(self.spots):
            rows, g_there = np.flatnonzero(now.up[:, i]), s.group[z]
            if not rows.size:
                t.launch[k, i], t.stay[k, i] = t.launch[k - 1, i], t.stay[k - 1, i]
                continue
            x = np.concatenate([now.base[rows], now.spot_terms[rows, i]], axis=1)
            dollars = self._after_launches(
                self._cost_of_tick(self.on_spot[i][rows], z, now.left_h, self.market.spot_usd)
            )
            y = dollars - now.wait[g_there][rows][:, None, :]
            weights = self.of_spot[i].fit(x, y.reshape(rows.size, -1))
            of_launches = np.moveaxis(weights.reshape(x.shape[1], kinds + 1, size), 0, -1)
            t.launch[k, i], t.stay[k, i] = of_launches[:-1], of_launches[-1]
            fits = (x @ weights).reshape(rows.size, kinds + 1, size) + now.home[g_there][rows][:, None, :]
            spot[i, rows], stays[i, rows] = dollars[:, -1], fits[:, -1] + s.stay_bars[z]
            fit.fill(INFEASIBLE_USD)
            for kind in range(kinds):
                fit[kind, rows], real[kind, rows] = fits[:, kind], dollars[:, kind]
            for g, kind in enumerate(s.kind[:, z]):
                now.take(g, fit[kind], real[kind], s.egress[g, z], s.bars[g, z])
        return spot, stays


def _continue_running(after: Singles, now: _Tick, group: int, real: Singles, fit: Singles) -> None:
    """Set the realised dollars of gangs that have it running: they go on unless another action there is better."""
    after[:] = now.came[group]
    np.putmask(after, fit <= now.choice[group], real)


def _in_memory(values: NDArray[Any], axis: int, place: int) -> NDArray[Any]:
    """Return the same values with that axis in this place in memory.

    Sums over a few neighbours would otherwise take ten times as long.
    """
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(values, axis, place)), place, axis)


def _simulate_futures(
    hazard_model: HazardModel, regions: Ints, ticks: int, clock_s: int, draws: int, rng: np.random.Generator
) -> tuple[ZoneStates, Floats]:
    """Return by [tick, draw, spot] simulated states after a usual one, and the ratio of seen to expected changes."""
    hazards, mean = hazard_model.draw(draws, rng), hazard_model.mean()
    state = hazard_model.usual(draws, rng, hazards)
    swings = ScarcityProcess.begin(regions, draws, rng)
    lately = RecentChanges.nothing(state.up.shape)
    ups, ages, times = [], [], []
    hours = clock_s / HOUR_S
    for i in range(int(_BEFORE_H), -ticks, -1):
        before, by = state.copy(), 1.0 if i > 0 else hours
        advance_states(hazards, state, by, rng, swings.step(by, rng))
        lately.see(before, state.up, mean, by)
        if i <= 0:
            ups.append(state.up.copy())
            ages.append(state.age_h.copy())
            times.append(lately.times)
    states = ZoneStates(_in_memory(np.array(ups), -1, 0), _in_memory(np.array(ages), -1, 0))
    return states, _in_memory(np.array(times), -2, 0)


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
        look, times = _in_memory(look, 0, -1), None if times is None else _in_memory(times, 0, -1)
        view, chance = self.features.view(look, times), look[:, :, 1].sum(axis=-1).T
        if ((chance > 0) & (chance < 1)).any():
            base, own, given = self.features.terms_given(view)
        else:
            (base, own), given = self.features.terms_of(view), None
        spot_terms = np.ascontiguousarray(own.swapaxes(0, 1), dtype=np.float32)
        likely = None if given is None else given.astype(np.float32)
        return RegressionInputs(base.astype(np.float32), spot_terms, likely, chance > 0)

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
