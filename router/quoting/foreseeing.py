"""Plays :class:`~router.quoting.foresight.Foresight` where spot is seen in all zones, and where zones must be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from router.quoting.asking import Known, Terms, Wish
from router.quoting.foresight import CLOCK_S, Foresight
from router.quoting.market import Market
from router.quoting.outlook import CLASSES, Outlook, Sky
from router.quoting.prospects import TYPICAL_H, Lately, look_at, step
from router.quoting.scene import HOUR_S, Scene
from router.quoting.series import Bools, Floats, Ints
from router.quoting.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT, Actions, Now
from router.quoting.simulation import Player as SeeingPlayer
from router.quoting.weighing import Weigher

_MEMORY_H: Final = 48.0
_CERTAIN: Final = 1 - 1e-9
_USUAL_STEPS: Final = 200


def clock_for(tick_s: int) -> int:
    """A multiple of the tick."""
    return max(1, CLOCK_S // tick_s) * tick_s


@dataclass(frozen=True, eq=False, slots=True)
class Foreseen:
    """A :class:`~router.quoting.simulation.VectorPolicy`; needs the exact net."""

    mind: Foresight

    @classmethod
    def fitted(cls, outlook: Outlook, like: Scene, seed: int = 0) -> Foreseen:
        """For scenes like this one in market and ways, on any tick, with deadlines up to its own and slack up to its
        own; its first prices of spot are those expected. ValueError where the reference is not sold on demand."""
        launch = (like.task.changeover_s + like.launch_s).astype(np.float64)
        market = Market(like.spot_usd[:, 0], like.on_demand_usd, like.speed, launch, like.ways)
        clock, task = clock_for(like.tick_s), like.task
        return cls(Foresight.of(outlook, market, task.work_s, like.ticks * like.tick_s, clock_s=clock, seed=seed))

    def begin(self, scene: Scene) -> SeeingPlayer:
        """See :class:`~router.quoting.simulation.VectorPolicy`."""
        return _Seeing(self.mind, scene).play


class _Seeing:
    def __init__(self, mind: Foresight, scene: Scene) -> None:
        self.scene, self.weigher = scene, Weigher(mind)
        count = max(1, min(int(_MEMORY_H * HOUR_S) // scene.tick_s, int(scene.starts.max(initial=0))))
        up, known = scene.before(count)
        hours = scene.tick_s / HOUR_S
        self.sky = Sky(up[..., 0].T, np.full(up.shape[1::-1], hours))
        self.lately = Lately.nothing(self.sky.up.shape)
        for i in range(1, count):
            self._see(np.arange(len(self.sky.up)), up[..., i].T, known[..., i - 1].T)

    def _see(self, rows: Ints, up: Bools, known: Bools | bool = True) -> tuple[Sky, Lately]:
        hours = self.scene.tick_s / HOUR_S
        sky, lately = Sky(self.sky.up[rows], self.sky.age_h[rows]), self.lately.of(rows)
        lately.see(sky, up, self.weigher.mind.prospects.hazards, hours, known)
        sky.pass_on(up, hours)
        sky.age_h = np.where(known, sky.age_h, hours)
        self.sky.up[rows], self.sky.age_h[rows] = sky.up, sky.age_h
        self.lately.expected[rows], self.lately.seen[rows] = lately.expected, lately.seen
        return sky, lately

    def play(self, now: Now) -> Actions:
        """The least."""
        had_past = now.tick > 0 or (self.scene.starts[now.window] > 0)[:, None]
        sky, lately = self._see(now.window, now.up.T, had_past)
        found = self.weigher.choices(now, self.scene.tick_s, look_at(sky), lately.times)
        best = found.spot.argmin(axis=0)
        least_spot = found.spot[best, np.arange(best.size)]
        other = np.minimum(found.wait, least_spot)
        keeps = (now.kind != IDLE) & (found.stay <= np.minimum(other, found.demand) + self.weigher.margin_usd(now))
        kind = np.where(found.demand < other, ON_DEMAND, np.where(least_spot < found.wait, SPOT, IDLE))
        zone = np.where(kind == SPOT, best, found.place)
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
        self.terms, self.weigher = terms, Weigher(mind)
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
        found = self.weigher.choices(known, self.terms.tick_s, look, times)
        runs, margin = known.kind != IDLE, self.weigher.margin_usd(known)
        other = np.minimum(found.wait, found.demand)
        goes_on = runs & (found.stay <= other + margin)
        wish = Wish.nothing(known)
        wish.spot = np.where(found.spot < np.where(goes_on, found.stay - margin, other), found.spot, np.inf)
        own = known.kind == SPOT
        wish.spot[known.zone[own], np.flatnonzero(own)] = np.inf
        wish.demand = np.where(~goes_on & (found.demand < found.wait), found.place, NOWHERE)
        wish.leave = runs & ~goes_on & (found.demand >= found.wait)
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
