"""Our policy: what is learned from the past, backward induction on it, and a look at all zones at every tick."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router.quoting.chain import Chain, Shape
from router.quoting.induction import NEVER, Grid, Rest, Values, solve
from router.quoting.scene import HOUR_S, Scene
from router.quoting.series import Bools, Floats, Ints, Series
from router.quoting.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT, Actions, Now, Player
from router.quoting.weather import SLOW_H, Signals, Weather, history

# A clock slower than this decides as well: hazards are per hour, not per minute.
_CLOCK_S = 900
# How good other zones are: hours until the best of them is lost; below the first there is none.
QUALITY_H = (0.0, 2.0, 8.0)
_MEMORY_H = 3 * SLOW_H


@dataclass(frozen=True, eq=False, slots=True)
class Learned:
    """Plays scenes of one task, tick length, and prices on demand; needs the exact net around it.

    ``margin_usd``: by how much leaving a running instance must be better. ``lasts_h``: [class, state], hours until
    spot is lost. ``usd``: dollars an hour of spot that ``values`` reckon with; a zone that differs is corrected for.
    """

    chain: Chain
    clock_s: int
    values: Values
    usd: float
    lasts_h: Floats
    margin_usd: float = 0.0
    trust: float = 1.0

    @classmethod
    def fitted(cls, past: Series, like: Scene, *, shape: Shape | None = None, clock_s: int = _CLOCK_S, margin_usd: float = 0.0) -> Learned:
        """From what ``past`` shows of weather and prices (any zones, same tick), for scenes ``like`` this one in all
        but starts and zones' weather."""
        task, zones = like.task, len(like.series.zones)
        step = max(1, clock_s // like.tick_s)
        clock = step * like.tick_s
        slow = past.every(step).up(task.size)
        chain = Chain.of(Weather.of([slow], clock), shape)
        grid = Grid.of(clock, task.changeover_s, max(0, like.ticks * like.tick_s - task.work_s))
        up, prices = past.up(task.size), past.spot_usd(task.size)
        usd, demand = float(np.median(prices[up] if up.any() else prices)), float(like.on_demand_usd.min())
        mean_egress = float(like.ways.egress_usd.sum() / max(1, zones * (zones - 1)))
        rest = _rest(slow, chain, mean_egress) if zones > 1 else None
        share = clock / HOUR_S
        count = max(1, -(-like.ticks // step))
        values = solve(chain, grid, count, usd * share, demand * share, rest)
        return cls(chain, clock, values, usd, chain.lasting() * share, margin_usd)

    def begin(self, scene: Scene) -> Player:
        """See :class:`~router.quoting.simulation.VectorPolicy`."""
        return _Play(self, scene).play


class _Play:
    def __init__(self, policy: Learned, scene: Scene) -> None:
        self.policy, self.scene = policy, scene
        self.chain, self.values, self.grid = policy.chain, policy.values, policy.values.grid
        self.clock, self.usd, self.lasts = policy.clock_s, policy.usd, policy.lasts_h
        self.weather = policy.chain.weather
        self.seen = self._before()

    def _before(self) -> Signals:
        """Signals of [zone, window] from the ticks before the windows."""
        scene = self.scene
        count = min(int(_MEMORY_H * HOUR_S) // scene.tick_s, int(scene.starts.max(initial=0)))
        up, known = scene.before(count)
        seen = Signals.unseen(up.shape[:2], self.weather.mean)
        for i in range(count):
            seen.see(up[..., i], scene.tick_s, known[..., i])
        return seen

    def play(self, now: Now) -> Actions:
        seen, rows = self.seen, now.window
        part = Signals(seen.up[:, rows], seen.age_h[:, rows], seen.fast[:, rows], seen.slow[:, rows])
        part.see(now.up, self.scene.tick_s)
        for name in ("up", "age_h", "fast", "slow"):
            getattr(seen, name)[:, rows] = getattr(part, name)
        left_s = (now.ticks - now.tick) * self.scene.tick_s
        n = min(max(1, round(left_s / self.clock)), self.values.wait.shape[0])
        wait, launch, stay, to_demand, stay_demand, move = self._dollars(now, part, n, left_s - now.left_s)
        at, zone, home = np.arange(rows.size), now.zone, now.home
        to, spot, here = zone, launch[0], np.zeros_like(zone)
        if len(now.up) > 1:
            first = home == NOWHERE
            here = np.where(first, np.argmax(part.slow, axis=0), home)
            dearer = (now.spot_usd - self.usd) * self._hours(part, now)
            stay = stay + dearer
            ways = np.where(first, 0.0, self.scene.ways.egress_usd[here].T)
            each = np.where(now.up, launch + dearer + ways, NEVER)
            to = np.argmin(each, axis=0)
            spot = each[to, at]
            # what the model takes a move for, and what it is: that holds for one later as well
            each[here, at] = NEVER
            moved, real = move[here, at], each.min(axis=0)
            shift = np.where((moved < NEVER) & (real < NEVER), real - moved, 0.0) * self.policy.trust
            wait, to_demand, stay_demand = wait + shift, to_demand + shift, stay_demand + shift
        idle, on = wait[here, at], now.kind == ON_DEMAND
        demand = np.where(on, stay_demand[zone, at], to_demand[here, at])
        kind = np.where(spot < idle, SPOT, IDLE)
        best = np.minimum(idle, spot)
        kind = np.where((demand < best) | (on & (demand == best)), ON_DEMAND, kind)
        keeps = now.kind == SPOT
        if len(now.up) > 1:
            keeps &= stay[zone, at] <= np.minimum(best, demand) + self.policy.margin_usd
        kind = np.where(keeps, SPOT, kind).astype(np.int8)
        goes = np.where(keeps | (kind == IDLE) | (on & (kind == ON_DEMAND)), zone, np.where(kind == SPOT, to, here))
        return kind, goes

    def _dollars(self, now: Now, seen: Signals, n: int, slack_s: Ints) -> tuple[Floats, ...]:
        """[zone, window] of each choice."""
        *states, weights = self.chain.corners(seen)
        zones = len(now.up)
        rest = np.zeros(now.up.shape, dtype=np.int64)
        if zones > 1:
            rest = _quality((weights * self.lasts[tuple(states)]).sum(axis=0), now.up)
        unit = np.maximum((slack_s - now.delay_s) / self.grid.unit_s, 0.0)
        low = np.minimum(unit.astype(np.int64), self.grid.slacks - 1)
        high = np.minimum(low + 1, self.grid.slacks - 1)
        share = unit - low
        w, m = self.values.wait[n - 1], self.values.more[n - 1]
        wait, more = np.zeros(now.up.shape), np.zeros((*now.up.shape, 4))
        for c, u, a, f, weight in zip(*states, weights, strict=True):
            for at, part in ((low, 1 - share), (high, share)):
                total = weight * part
                wait += total * np.minimum(w[c, u, a, f, rest, at], NEVER)
                more += total[..., None] * m[c, u, a, f, rest, at]
        move = np.full(now.up.shape, NEVER)
        if zones > 1:
            v, nearest = self.values.move[n - 1], states[0][np.argmax(weights, axis=0), *np.indices(now.up.shape)]
            move = v[nearest, rest, low] * (1 - share) + v[nearest, rest, high] * share
        return (wait, *(np.minimum(wait + more[..., i], NEVER) for i in range(4)), move)

    def _hours(self, seen: Signals, now: Now) -> Floats:
        """[zone, window]: that an instance would run at most, on average."""
        *states, weights = self.chain.corners(seen)
        lasts = (weights * self.lasts[tuple(states)]).sum(axis=0)
        return np.minimum(lasts, now.left_s / HOUR_S)


def _quality(lasts_h: Floats, up: Bools) -> Ints:
    """[zone, ...]: of the best other zone, see :class:`Rest`."""
    hours = np.where(up, lasts_h, -1.0)
    others = np.stack([np.delete(hours, z, axis=0).max(axis=0) for z in range(len(hours))])
    return np.searchsorted(QUALITY_H, others, side="right")


def _rest(up: Bools, chain: Chain, move_usd: float) -> Rest:
    """From [zone, tick] on the chain's clock: what the other zones do while one zone does what it does, and the best
    of them."""
    zones, classes, rests = up.shape[0], len(chain.shape.classes), len(QUALITY_H) + 1
    counts = np.full((classes, 2, 2, rests, rests), 0.02) + 0.5 * np.eye(rests)
    found = np.zeros((classes, rests, *chain.change.shape, rests))
    share_h, lasting = chain.weather.tick_s / HOUR_S, chain.lasting()
    was: tuple[Ints, Floats, Ints, Bools] | None = None
    for seen, _ in history(up, chain.weather.tick_s, chain.weather.mean):
        *states, weights = chain.corners(seen)
        lasts = (weights * lasting[tuple(states)]).sum(axis=0) * share_h
        rest = _quality(lasts, seen.up)
        score = np.where(seen.up, lasts, -1.0)
        if was is not None:
            np.add.at(counts, (was[0], was[3].astype(int), seen.up.astype(int), was[2], rest), was[1])
        was = (states[0], weights, rest, seen.up)
        for z in np.flatnonzero(rest > 0):
            best = int(np.argmax(np.where(np.arange(zones) == z, -2.0, score)))
            there = tuple(part[:, best] for part in states)
            for c in range(len(weights)):
                np.add.at(found, (states[0][c, z], rest[z], *there, rest[best]), weights[c, z] * weights[:, best])
    axes = tuple(range(2, found.ndim))
    pooled = found.sum(axis=0)
    pooled[:, -1, 1, 0, -1, 0] += 0.01  # had no other zone ever been up
    found += 5 * pooled / pooled.sum(axis=tuple(range(1, pooled.ndim)), keepdims=True)
    pool = counts.sum(axis=0)
    counts += 5 * pool / pool.sum(axis=-1, keepdims=True)
    return Rest(counts / counts.sum(axis=-1, keepdims=True), found / found.sum(axis=axes, keepdims=True), move_usd)
