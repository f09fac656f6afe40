"""Our policy over a few zones: exact backward induction over the weather of all of them at once.

A zone's state is (up, time since it changed); hazards are counted per zone from its past and shrunk to those of all
zones. Zones are taken as independent of each other. Of many zones the ones are followed in which spot is cheapest to
work on, by the past; the others are not used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from router.quoting.chain import Singles
from router.quoting.induction import NEVER, less
from router.quoting.scene import HOUR_S, Scene
from router.quoting.series import Bools, Floats, Ints, Series
from router.quoting.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT, Actions, Now, Player
from router.quoting.weather import Signals, history

AGES = (1, 4, 16, 64)  # ticks
MOST_ZONES = 3
_CLOCK_S = 900
_MOST_SLACKS = 100
_SHRINK = 20.0  # ticks of the pool that a zone's own count for as much as
_MEMORY_H = 24.0


@dataclass(frozen=True, slots=True)
class Hazards:
    """``change``: [zone, up, age], the probability that the next tick is not like this one."""

    tick_s: int
    change: Floats

    @classmethod
    def of(cls, up: Bools, tick_s: int, shrink: float = _SHRINK) -> Hazards:
        """Counted in [zone, tick]."""
        zones = up.shape[0]
        counts = np.zeros((2, zones, 2, len(AGES)))
        for seen, then in history(up, tick_s):
            at = (np.arange(zones), seen.up.astype(int), bucket(seen.age_h, tick_s))
            np.add.at(counts[0], at, 1)
            np.add.at(counts[1], at, then != seen.up)
        pool = counts.sum(axis=1) + np.array([[[20.0]], [[1.0]]])
        share = pool[1] / pool[0]
        return cls(tick_s, (counts[1] + shrink * share) / (counts[0] + shrink))

    def steps(self) -> Floats:
        """[zone, state, state after]; a state is up * ages + age."""
        ages, older = len(AGES), np.append(1 / np.diff(AGES), 0.0)
        found = np.zeros((len(self.change), 2 * ages, 2 * ages))
        for up in (0, 1):
            for a in range(ages):
                s, p = up * ages + a, self.change[:, up, a]
                found[:, s, (1 - up) * ages] += p
                found[:, s, s] += (1 - p) * (1 - older[a])
                found[:, s, min(s + 1, up * ages + ages - 1)] += (1 - p) * older[a]
        return found

    def lasts_h(self) -> Floats:
        """[zone, age]: hours until spot is lost."""
        half = len(AGES)
        inner = np.eye(half) - self.steps()[:, half:, half:]
        return np.linalg.solve(inner, np.ones((len(inner), half, 1)))[..., 0] * self.tick_s / HOUR_S


def bucket(age_h: Floats, tick_s: int) -> Ints:
    """The age that is nearest by ratio."""
    ticks = np.maximum(age_h * HOUR_S / tick_s, 1)
    nearest: Ints = np.abs(np.log(ticks)[..., None] - np.log(AGES)).argmin(axis=-1)
    return nearest


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """[tick left - 1, state, choice, slack]: dollars of waiting at each zone, running spot in each, on demand in each.
    ``state`` counts the zones' states, the first zone's slowest. Running: past its changeover."""

    unit_s: float
    dollars: Singles


def solve(
    steps: Floats, spot_usd: Floats, demand_usd: Floats, egress: Floats, ticks: int, per_tick: int, delay: float,
    slacks: int, unit_s: float,
) -> Table:  # fmt: skip
    """Prices are dollars a tick, by zone; ``per_tick`` units of slack a tick, ``delay`` a changeover."""
    zones, states = steps.shape[:2]
    grid = (states,) * zones
    value = np.zeros((*grid, 3, zones, slacks), np.float32)
    kept = np.empty((ticks, states**zones, 3 * zones, slacks), np.float32)
    step = steps.astype(np.float32)
    ups = [
        (np.arange(states) >= states // 2).reshape([states if a == z else 1 for a in range(zones)] + [1])
        for z in range(zones)
    ]
    idle, spot, demand = (value[..., i, :, :] for i in range(3))
    for n in range(1, ticks + 1):
        for z in range(zones):
            spot[..., z, :] = np.where(ups[z], spot[..., z, :], idle[..., z, :])
        then = value
        for z in range(zones):
            shape = then.shape
            then = np.matmul(step[z], then.reshape(states**z, states, -1)).reshape(shape)
        later = np.empty_like(value)
        later[..., 0, :, :] = less(then[..., 0, :, :], per_tick)
        for z in range(zones):
            later[..., 1, z, :] = np.where(ups[z], then[..., 1, z, :] + np.float32(spot_usd[z]), NEVER)
            later[..., 2, z, :] = then[..., 2, z, :] + np.float32(demand_usd[z])
        kept[n - 1] = later.reshape(states**zones, 3 * zones, slacks)
        launch = _less_part(np.minimum(later[..., 1, :, :], later[..., 2, :, :]), delay)
        for h in range(zones):
            best = later[..., 0, h, :]
            for z in range(zones):
                best = np.minimum(best, launch[..., z, :] + np.float32(egress[h, z]))
            best[..., n * per_tick :] = 0  # done
            idle[..., h, :] = best
            spot[..., h, :] = np.minimum(later[..., 1, h, :], best)
            demand[..., h, :] = np.minimum(later[..., 2, h, :], best)
    return Table(unit_s, kept)


def _less_part(values: Singles, units: float) -> Singles:
    """With that much less slack, between whole units too: to round a changeover down is to run out of time."""
    whole = int(units)
    share = np.float32(units - whole)
    found = less(values, whole)
    return found if not share else (1 - share) * found + share * less(values, whole + 1)


@dataclass(frozen=True, eq=False, slots=True)
class JointLearned:
    """Plays scenes of one task, zones and prices on demand; needs the exact net around it.

    ``zones``: those that it follows, by their number in the scene; ``usd``: their price in ``table``.
    """

    hazards: Hazards
    table: Table
    zones: Ints
    usd: Floats
    margin_usd: float = 0.3

    @classmethod
    def fitted(cls, past: Series, like: Scene, *, margin_usd: float = 0.3, shrink: float = _SHRINK) -> JointLearned:
        """From the past of the scene's zones."""
        task = like.task
        step = max(1, _CLOCK_S // like.tick_s)
        clock = step * like.tick_s
        slow = past.every(step)
        up, prices = slow.up(task.size), slow.spot_usd(task.size)
        usd = np.array([float(np.median(p[-max(1, p.size // 8) :])) for p in prices])
        hazards = Hazards.of(up, clock, shrink)
        lasts = hazards.lasts_h()[:, 1]
        paid = usd * (lasts + task.changeover_s / HOUR_S) / lasts / np.maximum(up.mean(axis=1), 0.01) ** 0.25
        chosen = np.sort(np.argsort(paid, kind="stable")[:MOST_ZONES])
        mine = Hazards(clock, hazards.change[chosen])
        slack_s = max(0, like.ticks * like.tick_s - task.work_s)
        parts = max(1, min(4, int(_MOST_SLACKS * clock / max(slack_s, 1))))
        unit, share = clock / parts, clock / HOUR_S
        table = solve(
            mine.steps(), usd[chosen] * share, like.on_demand_usd[chosen] * share,
            like.ways.egress_usd[np.ix_(chosen, chosen)], max(1, -(-like.ticks // step)), parts,
            task.changeover_s / unit, int(slack_s / unit) + 1, unit,
        )  # fmt: skip
        return cls(mine, table, chosen, usd[chosen], margin_usd)

    def begin(self, scene: Scene) -> Player:
        """See :class:`~router.quoting.simulation.VectorPolicy`."""
        return _Play(self, scene).play


class _Play:
    def __init__(self, policy: JointLearned, scene: Scene) -> None:
        self.policy, self.scene = policy, scene
        self.number = np.full(len(scene.series.zones) + 1, NOWHERE)  # the last entry is NOWHERE's
        self.number[policy.zones] = np.arange(policy.zones.size)
        self.lasts = policy.hazards.lasts_h()
        self.egress = scene.ways.egress_usd[np.ix_(policy.zones, policy.zones)]
        count = min(int(_MEMORY_H * HOUR_S) // scene.tick_s, int(scene.starts.max(initial=0)))
        up, known = (a[policy.zones] for a in scene.before(count))
        self.seen = Signals.unseen(up.shape[:2])
        for i in range(count):
            self.seen.see(up[..., i], scene.tick_s, known[..., i])

    def play(self, now: Now) -> Actions:
        """Looks each choice up."""
        mine, scene, rows = self.policy.zones, self.scene, now.window
        up = now.up[mine]
        part = Signals(*(getattr(self.seen, k)[:, rows] for k in ("up", "age_h", "fast", "slow")))
        part.see(up, scene.tick_s)
        for name in ("up", "age_h", "fast", "slow"):
            getattr(self.seen, name)[:, rows] = getattr(part, name)
        age = bucket(part.age_h, self.policy.hazards.tick_s)
        state = np.zeros(rows.size, dtype=np.int64)
        for z in range(mine.size):
            state = state * 2 * len(AGES) + up[z] * len(AGES) + age[z]
        rest_s = (now.ticks - now.tick) * scene.tick_s
        n = min(max(1, round(rest_s / self.policy.hazards.tick_s)), len(self.policy.table.dollars))
        slack = rest_s - now.left_s
        wait, _, _ = self._at(n, state, slack)
        _, launch, to_demand = self._at(n, state, slack - scene.task.changeover_s)
        _, stay, stay_demand = self._at(n, state, slack - now.delay_s)
        at, zone, home = np.arange(rows.size), self.number[now.zone], self.number[now.home]
        here = np.where(home < 0, np.argmin(wait, axis=0), home)
        hours = np.minimum(np.take_along_axis(self.lasts, age, axis=1), now.left_s / HOUR_S)
        dearer = np.where(up, (now.spot_usd[mine] - self.policy.usd[:, None]) * hours, 0.0)
        ways = np.where(home < 0, 0.0, self.egress[here].T)
        spot = np.where(up, launch + dearer, NEVER) + ways
        to = np.argmin(spot, axis=0)
        idle, best_spot, there = wait[here, at], spot[to, at], np.argmin(to_demand + ways, axis=0)
        demand = (to_demand + ways)[there, at]
        kind = np.where(best_spot < idle, SPOT, IDLE)
        best = np.minimum(idle, best_spot)
        kind = np.where(demand < best, ON_DEMAND, kind)
        best = np.minimum(demand, best)
        on = (now.kind == ON_DEMAND) & (stay_demand[zone, at] <= best)
        keeps = on | ((now.kind == SPOT) & ((stay + dearer)[zone, at] <= best + self.policy.margin_usd))
        goes = mine[np.where(kind == SPOT, to, there)]
        return np.where(keeps, now.kind, kind).astype(np.int8), np.where(keeps | (kind == IDLE), now.zone, goes)

    def _at(self, n: int, state: Ints, slack_s: Ints) -> tuple[Floats, Floats, Floats]:
        """[zone, window] of waiting, spot, on demand."""
        table = self.policy.table
        found = table.dollars[n - 1]
        unit = np.maximum(slack_s / table.unit_s, 0.0)
        low = np.minimum(unit.astype(np.int64), found.shape[-1] - 1)
        high = np.minimum(low + 1, found.shape[-1] - 1)
        share = (unit - low)[:, None]
        dollars = (found[state, :, low] * (1 - share) + found[state, :, high] * share).T
        dollars = np.where(slack_s < 0, NEVER, dollars)
        zones = self.policy.zones.size
        return dollars[:zones], dollars[zones : 2 * zones], dollars[2 * zones :]
