"""Dollar values of each action at a moment, from a :class:`~router.spot.policies.foresight.ForesightModel`.

A spot price is close to a martingale: its present value says more of the hours ahead than its usual one. So spot,
waiting and on-demand alike are computed at present prices, and a price that is gone is not waited for: the model is
fitted anew where prices moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from router.spot.policies.foresight import INFEASIBLE_USD, ForesightModel, RegressionInputs, Singles
from router.spot.simulator.blind_policy import BlindView
from router.spot.simulator.inputs import HOUR_S, SPEED_TOLERANCE
from router.spot.simulator.simulation import ON_DEMAND, SPOT, FullView
from router.spot.simulator.traces import Bools, Floats, Ints

_MARGIN_H: Final = 0.02  # hours of the price on demand: the least that a move off spot has to save
MOVES: Final = 0.02  # share of a price that a fit may be off
MOST: Final = 16  # fits of some ten MB each; further prices use the nearest of them


@dataclass(frozen=True, eq=False, slots=True)
class ActionCosts:
    """Dollars by [window] of each action, above the cost of waiting with the checkpoint where it is.

    An action that is impossible costs :data:`INFEASIBLE_USD`. ``stay`` is going on with what runs; ``spot`` [zone,
    window] a launch there; ``demand`` on-demand in the best ``place``.
    """

    wait: Floats
    stay: Floats
    spot: Floats
    demand: Floats
    place: Ints


@dataclass(frozen=True, eq=False, slots=True)
class _Moment:
    """The state of each window, and the costs that all its actions share.

    ``seen`` holds the regression inputs. ``slack`` is the position of the slack between points of the grid. ``home`` is
    where the checkpoint is, the first zone where there is none yet (``homeless``). ``homes`` [group, window] is the
    dollars of waiting with it there, above waiting in the first group, and ``home_usd`` of waiting where it is.
    ``takes_s`` and ``egress_usd`` are by [zone, window] of a launch there.
    """

    row: int
    seen: RegressionInputs
    slack_s: Floats
    slack: tuple[Ints, Singles]
    running_s: Floats
    left_h: Floats
    homeless: Bools
    home: Ints
    homes: Floats
    home_usd: Floats
    takes_s: Floats
    egress_usd: Floats


class ActionValues:
    """Action values of one model, for states that are seen or believed."""

    def __init__(self, model: ForesightModel) -> None:
        self.model = model
        self._market, self._tables, self._spots = model.market, model.tables, model.spots
        self._spot_of = np.full(model.market.zones, -1)  # [zone] which of the spots it is
        self._spot_of[model.spots] = np.arange(len(model.spots))
        self._group, first = self._market.homes()
        self._groups = range(len(first))
        self._places = self._market.on_demand_zones()
        self._margin_usd = _MARGIN_H * float(self._market.on_demand_usd[self._places].min())
        self._takes_s = self._market.launch_s[None, :] + self._market.ways.transfer_s
        reference = self._places[self._market.speed[self._places] >= 1 - SPEED_TOLERANCE]
        self._rescue_s = self._takes_s[:, reference].min(axis=1)  # [zone] with the checkpoint there
        self._loses_s = np.maximum(1 - self._market.speed, 0.0) * self._tables.clock_s  # of slack in a tick there

    def margin_usd(self, now: FullView | BlindView) -> Floats:
        """Return by [window] the dollars that another action must save before the gang leaves what runs."""
        return np.where(now.kind == SPOT, self._margin_usd, 0.0)

    def choices(self, now: FullView | BlindView, tick_s: int, seen: RegressionInputs) -> ActionCosts:
        """Return the cost of each action at the start of a tick of ``tick_s``, by what is seen or believed."""
        moment = self._moment(now, tick_s, seen)
        demands, stay = self._on_demand_costs(now, moment)
        spot, stay = self._spot_costs(now, moment, stay)
        best = demands.argmin(axis=0)
        rescue_s = np.where(moment.homeless, self._rescue_s.min(), self._rescue_s[moment.home])
        wait = np.where(moment.slack_s - self._tables.clock_s >= rescue_s, 0.0, INFEASIBLE_USD)
        return ActionCosts(wait, stay, spot, demands[best, np.arange(best.size)], self._places[best])

    def _moment(self, now: FullView | BlindView, tick_s: int, seen: RegressionInputs) -> _Moment:
        market, tables = self._market, self._tables
        rest_s = (now.ticks - now.tick) * tick_s
        row = int(np.clip(round(rest_s / tables.clock_s), 1, len(tables.home))) - 1
        slack_s = (rest_s - now.left_s).astype(float)
        homeless, home = now.home < 0, np.maximum(now.home, 0)
        slack = self.model.between(slack_s)
        homes = self.model.at(tables.home[row], seen.base, slack)
        there = homes[self._group[home], np.arange(home.size)]
        return _Moment(
            row,
            seen,
            slack_s,
            slack,
            slack_s - now.delay_s,
            now.left_s / HOUR_S,
            homeless,
            home,
            homes,
            np.where(homeless, homes.min(axis=0), there),
            np.where(homeless[:, None], market.launch_s[None, :], self._takes_s[home]).T,
            np.where(homeless[:, None], 0.0, market.ways.egress_usd[home]).T,
        )

    def _on_demand_costs(self, now: FullView | BlindView, m: _Moment) -> tuple[Floats, Floats]:
        """Return by [place, window] the cost of on-demand there, and of staying with it where it runs."""
        places, model, tables = self._places, self.model, self._tables
        moved = m.homes[self._group[places]] - m.home_usd
        demands = self._launch_costs(tables.to_demand[m.row], m, places, m.seen.base) + (m.egress_usd[places] + moved)
        stay = np.full(now.zone.size, INFEASIBLE_USD)
        for i, z in enumerate(places):
            if self._loses_s[z] > 0:
                in_time = self._in_time(z, m, m.slack_s - m.takes_s[z])
                demands[i] = np.where(in_time, demands[i], INFEASIBLE_USD)
            alike = (self._group == self._group[z]) & (
                np.abs(self._market.speed - self._market.speed[z]) < SPEED_TOLERANCE
            )
            rows = np.flatnonzero((now.kind == ON_DEMAND) & alike[now.zone])
            if rows.size:
                at = model.at(tables.on_demand[m.row, i], m.seen.base[rows], model.between(m.running_s[rows]))
                in_time = self._in_time(z, m, m.running_s)[rows]
                stay[rows] = np.where(in_time, at + moved[i, rows], stay[rows])
        return demands, stay

    def _spot_costs(self, now: FullView | BlindView, m: _Moment, stay: Floats) -> tuple[Floats, Floats]:
        """Return by [zone, window] the cost of spot there, and of staying, with spot included."""
        at = self._spots
        needs_s = (self._rescue_s + self._loses_s)[:, None]
        moved = m.homes[self._group[at]] - m.home_usd
        terms = m.seen.of_spots()
        cost = self._launch_costs(self._tables.launch[m.row], m, at, terms) + m.egress_usd[at] + moved
        spot = np.full(m.takes_s.shape, INFEASIBLE_USD)
        spot[at] = np.where((m.slack_s - m.takes_s[at] >= needs_s[at]) & m.seen.up, cost, INFEASIBLE_USD)
        here = (now.kind == SPOT) & (self._spot_of[now.zone] >= 0)
        here &= (self._loses_s[now.zone] <= SPEED_TOLERANCE) | (m.running_s >= needs_s[now.zone, 0])
        rows = np.flatnonzero(here)
        if rows.size:
            i = self._spot_of[now.zone[rows]]
            goes_on = self.model.at(self._tables.stay[m.row], terms[i, rows], self.model.between(m.running_s[rows]), i)
            stay[rows] = goes_on + moved[i, rows]
        return spot, stay

    def _in_time(self, zone: int, m: _Moment, slack_s: Floats) -> Bools:
        """Return by [window] whether on-demand there is in time for another tick, or to the end.

        ``slack_s`` is the slack once it works.
        """
        speed = self._market.speed[zone]
        if speed >= 1 - SPEED_TOLERANCE:
            return np.ones(slack_s.shape, dtype=bool)
        to_the_end = slack_s >= m.left_h * HOUR_S * (1 / speed - 1)
        return np.asarray((slack_s >= self._rescue_s[zone] + self._loses_s[zone]) | to_the_end)

    def _launch_costs(self, weights: Singles, m: _Moment, zones: Ints, terms: Singles) -> Floats:
        """Return by [zone, window] the launch costs there, from where each checkpoint is.

        ``weights`` are tables [zone, take, slack, term].
        """
        kind = np.searchsorted(self._tables.takes_s, m.takes_s[zones])
        return self.model.at(weights, terms, m.slack, np.arange(len(zones))[:, None], kind)


class PriceFits:
    """Models of one hazard model and market, each at spot prices that were seen while it was played."""

    def __init__(self, first: ForesightModel) -> None:
        self.weighers: list[ActionValues] = []
        self._usd = np.empty((0, len(first.spots)))
        self._first = first
        self._add(ActionValues(first))

    def __getitem__(self, which: int) -> ActionValues:
        return self.weighers[which]

    def fits(self, spot_usd: Floats, before: Ints) -> Ints:
        """Return for each window the number of the fit at its prices [zone, window].

        It is the one ``before`` (-1: none) until a price has moved by more than 2 %, then the nearest where that is
        within 2 % of all of them, or else a new one.
        """
        usd = spot_usd[self._first.spots].T
        deviation = np.abs(usd / self._usd[before] - 1).max(axis=1, initial=0.0)
        numbers = before.copy()
        for row in np.flatnonzero((before < 0) | (deviation > MOVES)):
            distance = np.abs(usd[row] / self._usd - 1).max(axis=1, initial=0.0)
            near = distance.min() <= MOVES or len(self.weighers) == MOST
            numbers[row] = (
                distance.argmin() if near else self._add(_solve_at_prices(self._first, spot_usd[:, row].tobytes()))
            )
        return numbers

    def _add(self, weigher: ActionValues) -> int:
        model = weigher.model
        self.weighers.append(weigher)
        self._usd = np.concatenate([self._usd, model.market.spot_usd[None, model.spots]])
        return len(self.weighers) - 1


@lru_cache(maxsize=MOST)
def _solve_at_prices(first: ForesightModel, spot_usd: bytes) -> ActionValues:
    """Return the action values of the model at these prices.

    A running job is decided by a session that begins anew each time, and sees the same past prices each time.
    """
    return ActionValues(first.at_prices(np.frombuffer(spot_usd)))
