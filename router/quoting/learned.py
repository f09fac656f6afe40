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
        wait, launch, stay, to_demand, stay_demand = self._dollars(now, part, n, left_s - now.left_s)
        one = len(now.up) == 1
        at, zone, home = np.arange(rows.size), now.zone, np.maximum(now.home, 0)
        if one:
            spot, to = launch[0], zone
            here = 0 * zone
        else:
            ways, first = self.scene.ways.egress_usd, now.home == NOWHERE
            hours = self._hours(part, now)
            dearer = (now.spot_usd - self.usd) * hours
            each = launch + dearer + np.where(first, 0.0, ways[home].T)
            to = np.argmin(each, axis=0)
            spot = each[to, at]
            stay = stay + dearer
            here = np.where(first, np.argmin(wait, axis=0), home)
        best = np.minimum(wait[here, at], spot)
        kind = np.where(spot < wait[here, at], SPOT, IDLE)
        on = np.where(now.kind == ON_DEMAND, stay_demand[here, at], to_demand[here, at])
        kind = np.where(on < best - np.where(now.kind == ON_DEMAND, -1e-9, 0.0), ON_DEMAND, kind)
        best = np.minimum(best, on)
        keeps = (now.kind == SPOT) & (one | (stay[zone, at] <= best + self.policy.margin_usd))
        kind = np.where(keeps, SPOT, kind).astype(np.int8)
        goes = np.where(keeps | (kind == IDLE), zone, np.where(kind == SPOT, to, here))
        return kind, np.where((now.kind == ON_DEMAND) & (kind == ON_DEMAND), zone, goes)

    def _dollars(self, now: Now, seen: Signals, n: int, slack_s: Ints) -> tuple[Floats, ...]:
        """[zone, window] of each choice."""
        *states, weights = self.chain.corners(seen)
        zones = len(now.up)
        others = np.broadcast_to(now.up.sum(axis=0) - now.up > 0, now.up.shape) if zones > 1 else np.zeros(now.up.shape)
        rest = others.astype(np.int64)
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
        return (wait, *(np.minimum(wait + more[..., i], NEVER) for i in range(4)))

    def _hours(self, seen: Signals, now: Now) -> Floats:
        """[zone, window]: that an instance would run at most, on average."""
        *states, weights = self.chain.corners(seen)
        lasts = (weights * self.lasts[tuple(states)]).sum(axis=0)
        return np.minimum(lasts, now.left_s / HOUR_S)


def _rest(up: Bools, chain: Chain, move_usd: float) -> Rest:
    """From [zone, tick] on the chain's clock: what the other zones do while one zone does what it does."""
    zones = up.shape[0]
    others = up.sum(axis=0) - up > 0
    counts = np.full((2, 2, 2, 2), 0.5)
    counts[:, :, 0, 0] += 1
    counts[:, :, 1, 1] += 4
    a, b, r, s = (x.ravel().astype(int) for x in (up[:, :-1], up[:, 1:], others[:, :-1], others[:, 1:]))
    np.add.at(counts, (a, b, r, s), 1)
    found = np.zeros((*chain.change.shape, 2))
    for seen, _ in history(up, chain.weather.tick_s, chain.weather.mean):
        if not seen.up.any():
            continue
        score = np.where(seen.up, seen.slow + seen.fast, -1.0)
        best = int(np.argmax(score))
        which = Signals(*(getattr(seen, k)[best : best + 1] for k in ("up", "age_h", "fast", "slow")))
        elsewhere = int(seen.up.sum() > 1)
        *states, weights = (part[:, 0] for part in chain.corners(which))
        np.add.at(found, (*states, elsewhere), weights)
    if not found.sum():
        found[-1, 1, 0, -1, 0] = 1.0
    assert zones > 1
    return Rest(counts / counts.sum(axis=-1, keepdims=True), found / found.sum(), move_usd)
