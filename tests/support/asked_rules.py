"""Policies for one window of tests.support.asked_windows, as they are written down; and one that does anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from random import Random

import numpy as np

from router.spot.simulator.blind_policy import BlindView, LaunchRequest, PolicySession
from router.spot.simulator.inputs import SimulationSpec
from router.spot.simulator.traces import Bools
from tests.support.asked_windows import DEMAND, IDLE, SPOT, Asked, Rule, Steps


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

    def begin(self, terms: SimulationSpec, /) -> PolicySession:
        return _Thrown(self, terms)

    def alone(self, start: int) -> Rule:
        dice = self

        class One(Rule):
            def act(self, w: Asked) -> Steps:
                return dice.steps(start, w.tick, len(w.inputs.up))

            def look(self, w: Asked) -> Iterable[int]:
                return dice.looks(start, w.tick, len(w.inputs.up))

        return One()


class _Thrown:
    def __init__(self, dice: Dice, terms: SimulationSpec) -> None:
        self.dice, self.starts = dice, terms.starts.tolist()

    def act(self, known: BlindView, /) -> LaunchRequest:
        wish = LaunchRequest.nothing(known)
        for row, window in enumerate(known.window.tolist()):
            steps = self.dice.steps(self.starts[window], known.tick, len(known.answer_tick))
            wish.spot[steps.tries, row] = np.arange(len(steps.tries))
            wish.demand[row] = -1 if steps.demand is None else steps.demand
            wish.leave[row] = steps.leave
        return wish

    def look(self, known: BlindView, /) -> Bools | None:
        looks = np.zeros(known.answer_tick.shape, dtype=bool)
        for row, window in enumerate(known.window.tolist()):
            looks[self.dice.looks(self.starts[window], known.tick, len(known.answer_tick)), row] = True
        return looks


class Uniform(Rule):
    """UP over zones; those below say in which order."""

    def __init__(self) -> None:
        self.last: int | None = None
        self.wants = False

    def order(self, w: Asked) -> list[int]:
        regions = w.inputs.regions
        was = None if self.last is None else regions[self.last]
        return sorted(w.zones, key=lambda z: (regions[z] == was, w.price(z)))

    def better(self, _: Asked) -> bool:
        return False

    def place(self, w: Asked) -> int:
        return w.home or 0

    def act(self, w: Asked) -> Steps:
        if w.kind != IDLE:
            self.last = w.zone
        task, g = w.inputs.task, w.inputs.tick_s
        ep, done = w.tick * g * task.work_s / task.deadline_s, task.work_s - w.left
        ahead = done * task.deadline_s > (w.tick * g + 2 * task.changeover_s) * task.work_s
        near = ceil((w.left + 2 * task.changeover_s) / g) > w.inputs.ticks - w.tick
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
