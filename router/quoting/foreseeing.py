"""Plays :class:`~router.quoting.foresight.Foresight` where spot is seen in all zones, and where zones must be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from router.quoting.asking import Known, Terms, Wish
from router.quoting.foresight import CLOCK_S, DRAWS, NEVER, SAME, Foresight, Market, Singles
from router.quoting.outlook import CLASSES, Outlook, Sky
from router.quoting.prospects import TYPICAL_H, Lately, View, lasts_h, look_at, step
from router.quoting.scene import HOUR_S, Scene
from router.quoting.series import Bools, Floats, Ints
from router.quoting.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT, Actions, Kinds, Now
from router.quoting.simulation import Player as SeeingPlayer

_MARGIN_H: Final = 0.02  # of the price on demand: the least that a move has to save
_MEMORY_H: Final = 48.0
_CERTAIN: Final = 1 - 1e-9
_USUAL_STEPS: Final = 200


@dataclass(frozen=True, slots=True)
class Effort:
    """What a fit may take: so many futures are drawn, and its clock ticks so often at most (None: however often)."""

    draws: int = DRAWS
    most_ticks: int | None = None


_ALL: Final = Effort()


def clock_for(tick_s: int, deadline_s: int = 0, most_ticks: int | None = None) -> int:
    """A multiple of the tick."""
    least = 0 if most_ticks is None else -(-deadline_s // most_ticks)
    return max(1, CLOCK_S // tick_s, -(-least // tick_s)) * tick_s


@dataclass(frozen=True, eq=False, slots=True)
class Foreseen:
    """A :class:`~router.quoting.simulation.VectorPolicy`; needs the exact net."""

    mind: Foresight

    @classmethod
    def fitted(cls, outlook: Outlook, like: Scene, seed: int = 0, effort: Effort = _ALL) -> Foreseen:
        """For scenes like this one in market and ways, on any tick, with deadlines up to its own and slack up to its
        own; its first prices of spot are those expected. ValueError where the reference is not sold on demand."""
        launch = (like.task.changeover_s + like.launch_s).astype(np.float64)
        market = Market(like.spot_usd[:, 0], like.on_demand_usd, like.speed, launch, like.ways)
        deadline_s = like.ticks * like.tick_s
        clock = clock_for(like.tick_s, deadline_s, effort.most_ticks)
        mind = Foresight.of(outlook, market, like.task.work_s, deadline_s, clock_s=clock, draws=effort.draws, seed=seed)
        return cls(mind)

    def begin(self, scene: Scene) -> SeeingPlayer:
        """See :class:`~router.quoting.simulation.VectorPolicy`."""
        return _Seeing(self.mind, scene).play


@dataclass(eq=False, slots=True)
class _Moment:
    """What both players know of a tick: [window], prices [zone, window], looks [window, zone, up, class]."""

    left_ticks: float
    slack_s: Floats
    left_h: Floats
    kind: Kinds
    zone: Ints
    home: Ints
    delay_s: Floats
    spot_usd: Floats
    look: Floats
    times: Floats | None


class Chooser:
    """Dollars of each choice at a moment."""

    def __init__(self, mind: Foresight) -> None:
        self.mind = mind
        self.group, self.first = mind.market.homes()
        self.places = mind.market.on_demand_zones()
        self.lasts = lasts_h(mind.outlook.mean()[:, 1])
        self.margin_usd = _MARGIN_H * float(mind.market.on_demand_usd[self.places].min())
        ways = mind.market.ways
        self.takes = mind.market.launch_s[None, :] + ways.transfer_s
        reference = self.places[mind.market.speed[self.places] >= 1 - SAME]
        self.rescue = self.takes[:, reference].min(axis=1)  # [zone]

    def dollars(self, m: _Moment) -> tuple[Floats, Floats, Floats, Floats, Ints]:
        """Waiting; going on; spot [zone, window]; on demand and where."""
        mind, count = self.mind, m.zone.size
        tables, market = mind.tables, mind.market
        k = int(np.clip(round(m.left_ticks), 1, len(tables.home))) - 1
        view = mind.prospects.view(m.look, m.times)
        base = mind.prospects.all_zones(view)
        homeless = m.home < 0
        home = np.maximum(m.home, 0)
        rows = np.arange(count)

        def home_of(g: int) -> Floats:
            return mind.at(tables.home[k, g], base, m.slack_s)

        homes = np.stack([home_of(g) for g in range(len(self.first))])
        homed = np.where(homeless, homes.min(axis=0), homes[self.group[home], rows])
        up = m.look[:, :, 1].sum(axis=-1).T
        classes = m.look[:, :, 1] / np.maximum(m.look[:, :, 1].sum(axis=-1, keepdims=True), 1e-9)
        hours = np.minimum((classes * self.lasts).sum(axis=-1).T, m.left_h)
        dearer = (m.spot_usd - market.spot_usd[:, None]) * hours
        spot, stay = np.full((market.zones, count), NEVER), np.full(count, NEVER)
        takes = np.where(homeless[:, None], market.launch_s[None, :], self.takes[home]).T
        kind = np.searchsorted(tables.takes_s, takes)
        egress = np.where(homeless[:, None], 0.0, market.ways.egress_usd[home]).T
        for z in np.flatnonzero(up.any(axis=1)).tolist():
            which = np.flatnonzero(up[z] > 0)
            own, slack_s = self._own(m, view, base, z, which), m.slack_s[which]
            ok = slack_s - takes[z, which] >= self.rescue[z]
            cost = self._of(tables.launch[k, z], kind[z, which], own, slack_s)
            moved = dearer[z, which] + homes[self.group[z], which] - homed[which]
            spot[z, which] = np.where(ok, cost + egress[z, which] + moved, NEVER)
            here = (m.kind[which] == SPOT) & (m.zone[which] == z)
            if here.any():
                rest = mind.at(tables.stay[k, z], own, slack_s - m.delay_s[which])
                stay[which] = np.where(here, rest + moved, stay[which])
        demands = np.empty((len(self.places), count))
        for i, z in enumerate(self.places):
            moved = egress[z] + homes[self.group[z]] - homed
            demands[i] = self._of(tables.to_demand[k, i], kind[z], base, m.slack_s) + moved
            here = (m.kind == ON_DEMAND) & (self.group[m.zone] == self.group[z])
            if here.any():
                at = mind.at(tables.on_demand[k, i], base, m.slack_s - m.delay_s)
                stay = np.where(here, at + homes[self.group[z]] - homed, stay)
        to = demands.argmin(axis=0)
        wait = np.where(
            m.slack_s - tables.clock_s >= np.where(homeless, self.rescue.min(), self.rescue[home]), 0.0, NEVER
        )
        return wait, stay, spot, demands[to, rows], self.places[to]

    def _own(self, m: _Moment, view: View, base: Floats, z: int, at: Ints) -> Floats:
        """Terms of spot in the zone, should it be up, in these windows."""
        part = View(view.up[at], view.value[at], view.fall[at], view.soon[at], view.classes[at])
        seen, there = base[at], part.up[:, z]
        if (there < 1).any():
            sure = m.look[at]
            sure[:, z, 1] /= np.maximum(there, 1e-9)[:, None]
            sure[:, z, 0] = 0.0
            part = self.mind.prospects.view(sure, None if m.times is None else m.times[at])
            seen = self.mind.prospects.all_zones(part)
        return np.concatenate([seen, self.mind.prospects.own(part, z)], axis=-1)

    def _of(self, weights: Singles, kind: Ints, terms: Floats, slack_s: Floats) -> Floats:
        if len(weights) == 1:
            return self.mind.at(weights[0], terms, slack_s)
        found = np.empty(kind.size)
        for one in np.unique(kind):
            rows = kind == one
            found[rows] = self.mind.at(weights[one], terms[rows], slack_s[rows])
        return found


class _Seeing:
    def __init__(self, mind: Foresight, scene: Scene) -> None:
        self.scene, self.chooser = scene, Chooser(mind)
        count = max(1, min(int(_MEMORY_H * HOUR_S) // scene.tick_s, int(scene.starts.max(initial=0))))
        up, known = scene.before(count)
        hours = scene.tick_s / HOUR_S
        self.sky = Sky(up[..., 0].T, np.full(up.shape[1::-1], hours))
        self.lately = Lately.nothing(self.sky.up.shape)
        for i in range(1, count):
            fresh = (known[..., i] & ~known[..., i - 1]).T
            self._see(np.arange(len(self.sky.up)), up[..., i].T, known[..., i - 1].T)
            self.sky.age_h = np.where(fresh, hours, self.sky.age_h)

    def _see(self, rows: Ints, up: Bools, known: Bools | bool = True) -> tuple[Sky, Lately]:
        hours = self.scene.tick_s / HOUR_S
        sky, lately = Sky(self.sky.up[rows], self.sky.age_h[rows]), self.lately.of(rows)
        lately.see(sky, up, self.chooser.mind.prospects.hazards, hours, known)
        sky.pass_on(up, hours)
        self.sky.up[rows], self.sky.age_h[rows] = sky.up, sky.age_h
        self.lately.expected[rows], self.lately.seen[rows] = lately.expected, lately.seen
        return sky, lately

    def play(self, now: Now) -> Actions:
        """The least."""
        rows = now.window
        sky, lately = self._see(rows, now.up.T)
        rest_s = (now.ticks - now.tick) * self.scene.tick_s
        c = self.chooser
        moment = _Moment(
            rest_s / c.mind.tables.clock_s, (rest_s - now.left_s).astype(float), now.left_s / HOUR_S, now.kind,
            now.zone, now.home, now.delay_s.astype(float), now.spot_usd, look_at(sky), lately.times,
        )  # fmt: skip
        wait, stay, spot, demand, to = c.dollars(moment)
        best = spot.argmin(axis=0)
        least_spot = spot[best, np.arange(rows.size)]
        others = np.minimum(np.minimum(wait, least_spot), demand)
        keeps = (now.kind != IDLE) & (stay <= others + np.where(now.kind == SPOT, c.margin_usd, 0.0))
        kind = np.where(demand < np.minimum(wait, least_spot), ON_DEMAND, np.where(least_spot < wait, SPOT, IDLE))
        zone = np.where(kind == SPOT, best, to)
        kind = np.where(keeps, now.kind, kind)
        return kind.astype(np.int8), np.where(keeps | (kind == IDLE), now.zone, zone)


@dataclass(frozen=True, eq=False, slots=True)
class ForeseenAsking:
    """The same as an :class:`~router.quoting.asking.Explorer`; needs the exact guard. It never probes: a launch that
    fails is free, and says as much."""

    mind: Foresight

    @classmethod
    def fitted(cls, outlook: Outlook, terms: Terms, spot_usd: Floats, seed: int = 0) -> ForeseenAsking:
        """For these terms in all but the windows; ``spot_usd``: [zone] as expected. ValueError where the reference is
        not sold on demand."""
        launch = (terms.task.changeover_s + terms.launch_s).astype(np.float64)
        market = Market(spot_usd, terms.on_demand_usd, terms.speed, launch, terms.ways)
        clock = clock_for(terms.tick_s)
        return cls(
            Foresight.of(outlook, market, terms.task.work_s, terms.ticks * terms.tick_s, clock_s=clock, seed=seed)
        )

    def begin(self, terms: Terms) -> _Asking:
        """See :class:`~router.quoting.asking.Explorer`."""
        return _Asking(self.mind, terms)


class _Asking:
    """``look``: [window, zone, up, class] as believed at the last tick."""

    def __init__(self, mind: Foresight, terms: Terms) -> None:
        self.terms, self.chooser = terms, Chooser(mind)
        self.hazards = mind.outlook.mean()
        one = np.full((1, len(terms.zones), 2, CLASSES), 1 / (2 * CLASSES))
        for _ in range(_USUAL_STEPS):
            one = step(one, self.hazards, 1.0)
        self.look_ = one.repeat(terms.starts.size, axis=0)
        self.lately = Lately.nothing((terms.starts.size, len(terms.zones)))

    def _believed(self, known: Known) -> tuple[Floats, Floats]:
        """Looks of the windows that are played, and how much more often than expected zones changed."""
        rows, hours = known.window, self.terms.tick_s / HOUR_S
        look, lately = self.look_[rows], self.lately.of(rows)
        times = lately.times
        if known.tick:
            _told(look, known.was_up.T, (known.asked == known.tick - 1).T)
            before = _as_sky(look)
            certain = np.maximum(look[..., 0, :].sum(axis=-1), look[..., 1, :].sum(axis=-1)) > _CERTAIN
            answered = (known.asked == known.tick).T
            lately.see(before, known.was_up.T, self.hazards, hours, certain & answered)
            times = lately.times
            look = step(look, self.hazards * times[..., None], hours)
        _told(look, known.was_up.T, (known.asked == known.tick).T)
        self.look_[rows] = look
        self.lately.expected[rows], self.lately.seen[rows] = lately.expected, lately.seen
        return look, times

    def act(self, known: Known) -> Wish:
        """Spot where it is better than to go on, the best first."""
        look, times = self._believed(known)
        rest_s = (known.ticks - known.tick) * self.terms.tick_s
        c = self.chooser
        moment = _Moment(
            rest_s / c.mind.tables.clock_s, (rest_s - known.left_s).astype(float), known.left_s / HOUR_S, known.kind,
            known.zone, known.home, known.delay_s.astype(float), known.spot_usd, look, times,
        )  # fmt: skip
        wait, stay, spot, demand, to = c.dollars(moment)
        runs = known.kind != IDLE
        other = np.minimum(wait, demand)
        goes_on = runs & (stay <= other + np.where(known.kind == SPOT, c.margin_usd, 0.0))
        now = np.where(goes_on, stay - np.where(known.kind == SPOT, c.margin_usd, 0.0), other)
        wish = Wish.nothing(known)
        rows = np.arange(known.window.size)
        wish.spot = np.where(spot < now, spot, np.inf)
        own = known.kind == SPOT
        wish.spot[known.zone[own], rows[own]] = np.inf
        wish.demand = np.where(~goes_on & (demand < wait), to, NOWHERE)
        wish.leave = runs & ~goes_on & (demand >= wait)
        return wish

    def look(self, _: Known, /) -> Bools | None:
        """Nothing."""
        return None


def _as_sky(look: Floats) -> Sky:
    """The likeliest."""
    best = look.reshape(*look.shape[:-2], -1).argmax(axis=-1)
    return Sky(best >= CLASSES, np.array(TYPICAL_H)[best % CLASSES])


def _told(look: Floats, up: Bools, answered: Bools) -> None:
    """Takes answers [window, zone] in."""
    for which in (0, 1):
        wrong = answered & (up == (which == 0))
        look[..., which, :] = np.where(wrong[..., None], 0.0, look[..., which, :])
    total = look.sum(axis=(-2, -1), keepdims=True)
    fresh = np.zeros_like(look)
    fresh[..., 0] = np.stack([~up, up], axis=-1)
    np.copyto(look, np.where(total > 0, look / np.maximum(total, 1e-12), fresh))
