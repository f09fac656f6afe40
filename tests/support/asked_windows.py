"""One window at a time in plain Python, of weather that has to be asked: what router.quoting.probing does to many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil
from random import Random

import numpy as np

from router.quoting.asking import Known, Player, Terms, Wish
from router.quoting.probing import Fees, Guard
from router.quoting.scene import Scene
from router.quoting.series import Bools

IDLE, SPOT, DEMAND = 0, 1, 2


@dataclass
class Steps:
    """A tick: spot is tried in these zones; else on demand there; stop first."""

    tries: list[int] = field(default_factory=list)
    demand: int | None = None
    leave: bool = False


class Rule:
    """A policy for one window; it hears of each answer when it comes."""

    def act(self, _: Asked) -> Steps:
        return Steps()

    def look(self, _: Asked) -> Iterable[int]:
        return ()

    def probed(self, _: int, __: bool) -> None:
        return None

    def tried(self, _: Asked, __: int, ___: bool) -> None:
        return None


@dataclass
class Asked:
    """One window."""

    scene: Scene
    start: int
    rule: Rule
    guard: Guard = Guard.PUBLISHED
    fees: Fees = field(default_factory=Fees)
    tick: int = 0
    left: int = 0
    kind: int = IDLE
    zone: int = 0
    lost: bool = False
    home: int | None = None
    delay: int = 0
    usd: float = 0.0
    probe_usd: float = 0.0
    launches: int = 0
    counts: dict[int, int] = field(default_factory=lambda: {IDLE: 0, SPOT: 0, DEMAND: 0})

    def price(self, zone: int) -> float:
        return float(self.scene.spot_usd[zone, self.start + self.tick])

    def up(self, zone: int) -> bool:
        return bool(self.scene.up[zone, self.start + self.tick])

    @property
    def zones(self) -> range:
        return range(len(self.scene.up))

    @property
    def worst(self) -> int:
        return self.scene.task.changeover_s + self.scene.ways.longest_s

    def play(self) -> float:
        self.left = self.scene.task.work_s
        g, latched = self.scene.tick_s, False
        while self.left > 0:
            late = self.tick >= self.scene.ticks
            self.lost = not late and self.kind == SPOT and not self.up(self.zone)
            if self.lost:
                self.kind = IDLE
            rest = self.scene.ticks - self.tick
            if self.guard is Guard.PUBLISHED and ceil((self.left + self.worst) / g) >= rest:
                latched = True
            if latched or late:
                if self.kind != DEMAND:
                    self._launch(DEMAND, self.zone if self.kind == SPOT else self.cheapest())
            else:
                self._act(rest)
            self._work()
        return self.usd

    def cheapest(self) -> int:
        def cost(z: int) -> float:
            egress = 0.0 if self.home is None else float(self.scene.ways.egress_usd[self.home, z])
            return self.left / 3600 * float(self.scene.on_demand_usd[z]) + egress

        return self.zone if self.kind == DEMAND else min(self.zones, key=cost)

    def _act(self, rest: int) -> None:
        steps = self.rule.act(self)
        if self.guard is Guard.EXACT:
            steps = self._exact(steps, rest)
        before, stopped = self.kind, steps.leave
        if stopped:
            self.kind = IDLE
        launched = False
        for zone in steps.tries:
            launched = self.up(zone)
            self.rule.tried(self, zone, launched)
            if launched:
                if not (before == SPOT and self.zone == zone and not stopped):
                    self._launch(SPOT, zone)
                break
        if not launched and steps.demand is not None and not (self.kind == DEMAND and self.zone == steps.demand):
            self._launch(DEMAND, steps.demand)
        for zone in self.rule.look(self):
            if self.kind == SPOT and zone == self.zone:
                continue
            seconds = self.fees.up_s if self.up(zone) else self.fees.down_s
            self.usd += seconds * self.price(zone) / 3600
            self.probe_usd += seconds * self.price(zone) / 3600
            self.rule.probed(zone, self.up(zone))

    def _exact(self, steps: Steps, rest: int) -> Steps:
        """Only what leaves time for work and the longest launch after this tick, or is done in it."""
        g = self.scene.tick_s

        def fits(delay: int | None) -> bool:
            does = 0 if delay is None else max(0, g - delay)
            return does >= self.left or ceil((self.left - does + self.worst) / g) <= rest - 1

        if self.kind == DEMAND and ceil((self.left + self.worst) / g) > rest:
            steps = Steps(steps.tries, None if steps.demand != self.zone else self.zone, False)
        stays = self.kind == DEMAND or (self.kind == SPOT and fits(self.delay))
        own = self.kind == SPOT and not steps.leave
        tries = [z for z in steps.tries if fits(self.worst) or (own and z == self.zone and stays)]
        waits = stays if self.kind != IDLE and not steps.leave else fits(None)
        demand = self.cheapest() if steps.demand is None and not waits else steps.demand
        return Steps(tries, demand, steps.leave)

    def _launch(self, kind: int, zone: int) -> None:
        self.delay = self.scene.task.changeover_s
        if self.home is not None:
            self.delay += int(self.scene.ways.transfer_s[self.home, zone])
            self.usd += float(self.scene.ways.egress_usd[self.home, zone])
        self.kind, self.zone = kind, zone
        self.launches += 1

    def _work(self) -> None:
        g = self.scene.tick_s
        self.counts[self.kind] += 1
        if self.kind != IDLE:
            rate = self.price(self.zone) if self.kind == SPOT else float(self.scene.on_demand_usd[self.zone])
            self.usd += rate * g / 3600
            self.left -= max(0, g - self.delay)
            self.delay = max(0, self.delay - g)
            self.home = self.zone
        self.tick += 1


@dataclass(frozen=True)
class Dice:
    """A policy that does anything at all, the same for the same seed, window and tick."""

    seed: int

    def steps(self, start: int, tick: int, zones: int) -> Steps:
        rng = Random(f"{self.seed} {start} {tick}")
        tries = [z for z in range(zones) if rng.random() < 0.4]
        rng.shuffle(tries)
        demand = rng.randrange(zones) if rng.random() < 0.1 else None
        return Steps(tries, demand, rng.random() < 0.1)

    def looks(self, start: int, tick: int, zones: int) -> list[int]:
        rng = Random(f"look {self.seed} {start} {tick}")
        return [z for z in range(zones) if rng.random() < 0.3]

    def begin(self, terms: Terms, /) -> Player:
        return _Thrown(self, terms)

    def alone(self, start: int) -> Rule:
        """The same for one window."""
        dice = self

        class One(Rule):
            def act(self, w: Asked) -> Steps:
                return dice.steps(start, w.tick, len(w.scene.up))

            def look(self, w: Asked) -> Iterable[int]:
                return dice.looks(start, w.tick, len(w.scene.up))

        return One()


class _Thrown:
    def __init__(self, dice: Dice, terms: Terms) -> None:
        self.dice, self.starts = dice, terms.starts.tolist()

    def act(self, known: Known, /) -> Wish:
        wish = Wish.nothing(known)
        for row, window in enumerate(known.window.tolist()):
            steps = self.dice.steps(self.starts[window], known.tick, len(known.asked))
            wish.spot[steps.tries, row] = np.arange(len(steps.tries))
            wish.demand[row] = -1 if steps.demand is None else steps.demand
            wish.leave[row] = steps.leave
        return wish

    def look(self, known: Known, /) -> Bools | None:
        looks = np.zeros(known.asked.shape, dtype=bool)
        for row, window in enumerate(known.window.tolist()):
            looks[self.dice.looks(self.starts[window], known.tick, len(known.asked)), row] = True
        return looks


class Uniform(Rule):
    """UP over zones; those below say in which order."""

    def __init__(self) -> None:
        self.last: int | None = None
        self.wants = False

    def order(self, w: Asked) -> list[int]:
        regions = w.scene.series.regions
        was = None if self.last is None else regions[self.last]
        return sorted(w.zones, key=lambda z: (regions[z] == was, w.price(z)))

    def better(self, _: Asked) -> bool:
        return False

    def place(self, w: Asked) -> int:
        return w.home or 0

    def act(self, w: Asked) -> Steps:
        if w.kind != IDLE:
            self.last = w.zone
        task, g = w.scene.task, w.scene.tick_s
        ep, done = w.tick * g * task.work_s / task.deadline_s, task.work_s - w.left
        ahead = done * task.deadline_s > (w.tick * g + 2 * task.changeover_s) * task.work_s
        near = ceil((w.left + 2 * task.changeover_s) / g) > w.scene.ticks - w.tick
        self.wants = w.kind == SPOT or (w.kind == IDLE and not near) or (w.kind == DEMAND and ahead)
        if w.kind == SPOT:
            return Steps(self.order(w), None, True) if self.better(w) else Steps()
        if w.kind == DEMAND:
            return Steps(self.order(w), None, True) if ahead else Steps()
        if near:
            return Steps([], self.place(w))
        behind = done * task.deadline_s < w.tick * g * task.work_s
        assert behind == (done < ep) or abs(done - ep) < 1e-6
        return Steps(self.order(w), self.place(w) if behind else None)


class Rated(Uniform):
    """UP(A)."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every, self.kept = every, dict[int, list[bool]]()
        self.probe_at, self.sample_at = dict[int, int](), dict[int, int]()

    def note(self, zone: int, up: bool) -> None:
        self.kept[zone] = [*self.kept.get(zone, []), up][-5:]

    def score(self, _: Asked, zone: int) -> float:
        kept = self.kept.get(zone)
        return sum(kept) / len(kept) if kept else 0.5

    def order(self, w: Asked) -> list[int]:
        return sorted(w.zones, key=lambda z: -self.score(w, z))

    def better(self, w: Asked) -> bool:
        return self.score(w, w.zone) < max(self.score(w, z) for z in w.zones) - 1e-6

    def act(self, w: Asked) -> Steps:
        if w.lost:
            self.note(w.zone, False)
        if w.kind == SPOT and w.tick >= self.sample_at.get(w.zone, 0):
            self.note(w.zone, True)
            self.sample_at[w.zone] = w.tick + self.every
        return super().act(w)

    def tried(self, w: Asked, zone: int, up: bool) -> None:
        self.note(zone, up)
        if up:
            self.sample_at[zone] = w.tick + self.every

    def due(self, w: Asked) -> list[int]:
        own = w.zone if w.kind == SPOT else -1
        return [z for z in w.zones if z != own and w.tick >= self.probe_at.get(z, 0)]

    def look(self, w: Asked) -> Iterable[int]:
        due = sorted(self.due(w), key=lambda z: len(self.kept.get(z, ())))[:1] if w.kind == SPOT else []
        self.probe_at.update(dict.fromkeys(due, w.tick + self.every))
        return due

    def probed(self, zone: int, up: bool) -> None:
        self.note(zone, up)


class PerUsd(Rated):
    """UP(AP)."""

    def __init__(self, every: int) -> None:
        super().__init__(every)
        self.probe_at = self.sample_at

    def note(self, zone: int, up: bool) -> None:
        self.kept[zone] = [*self.kept.get(zone, []), up]

    def score(self, w: Asked, zone: int) -> float:
        return super().score(w, zone) / w.price(zone)

    def better(self, w: Asked) -> bool:
        return self.score(w, w.zone) < max(self.score(w, z) for z in w.zones) * 0.9

    def place(self, _: Asked) -> int:
        return 0

    def look(self, w: Asked) -> Iterable[int]:
        due = self.due(w) if self.wants else []
        self.probe_at.update(dict.fromkeys(due, w.tick + self.every))
        return due


class Cheapest(Rule):
    """The cheapest spot, else wait."""

    def act(self, w: Asked) -> Steps:
        return Steps(sorted(w.zones, key=w.price) if w.kind == IDLE else [])
