"""One seed of the fault campaign, from the first machine to the verdict."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from router.demo.stage import TrainingResult
from tests.support.busy import in_time
from tests.support.campaign_checks import Found, found_wrong
from tests.support.campaign_faults import Effect, Missed, small_disks, strike
from tests.support.campaign_places import STEPS, Setting
from tests.support.campaign_scripts import Fault, Kind, Script
from tests.support.campaign_world import World
from tests.support.deployed import Template
from tests.support.seen_machines import SeenMachines

_LOOK_S, _OVER_EVERY_S = 0.05, 0.4
# Without a step for so long, the next fault comes all the same; one with nothing to strike is tried for so long.
_STUCK_S, _TRIES_S = 12.0, 6.0
_LONGEST_S = 180.0


@dataclass(frozen=True)
class Verdict:
    """``found``: figures, and what is wrong. ``struck`` and ``missed``: faults that came, and that found nothing to
    strike. ``log``: what happened when."""

    script: Script
    found: Found
    struck: tuple[Kind, ...]
    missed: tuple[Kind, ...]
    seconds: float
    log: tuple[str, ...]


@dataclass
class _Play:
    """The script as it is played."""

    world: World
    script: Script
    struck: list[Kind] = field(default_factory=list)
    missed: list[Kind] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    _next: int = 0
    _due_since: float | None = None
    _last: float = field(default_factory=time.monotonic)
    _done: tuple[int, ...] = ()
    _moved: float = field(default_factory=time.monotonic)

    def look(self) -> None:
        """What is due comes, what is over ends."""
        self.effects = [effect for effect in self.effects if not effect()]
        done = tuple(self.world.done(job) for job in self.world.setting.jobs)
        if done != self._done:
            self._done, self._moved = done, time.monotonic()
        if self._next < len(self.script.faults) and self._is_due(self.script.faults[self._next], done):
            self._come(self.script.faults[self._next])

    def _is_due(self, fault: Fault, done: tuple[int, ...]) -> bool:
        now = time.monotonic()
        if fault.after is not None:
            return now - self._last >= fault.after
        return done[fault.job % len(done)] >= fault.share * STEPS or now - self._moved > _STUCK_S

    def _come(self, fault: Fault) -> None:
        now = time.monotonic()
        self._due_since = self._due_since or now
        try:
            effect = strike(self.world, fault, f"c{self.script.seed}-{self._next}")
        except Missed:
            if now - self._due_since < _TRIES_S:
                return
            self.missed.append(fault.kind)
            self.world.say(f"missed: {fault}")
        else:
            self.struck.append(fault.kind)
            self.world.say(f"{fault} at {self._done}")
            if effect is not None:
                self.effects.append(effect)
        self._next, self._due_since, self._last = self._next + 1, None, time.monotonic()


def play(
    script: Script,
    setting: Setting,
    template: Template,
    folder: Path,
    alone: TrainingResult,
    seen_machines: SeenMachines,
) -> Verdict:
    """Plays a script on a site of its own below ``folder``. ``alone``: the training that nobody disturbed.
    AssertionError where not even the beginning could be had."""
    began = time.monotonic()
    with World.copy_of(template, folder, setting) as world:
        if any(fault.kind is Kind.DISK_FULL for fault in script.faults):
            small_disks(world)
        words = ("apply", world.site.plan, "--yes", "--limits", folder / "limits.yaml")
        if script.follows:
            world.first = (*words, "--follow")
            world.watch(*world.first)
        else:
            applied = world.site.run(*words, environment=world.environment)
            assert applied.code == 0, applied.err
            world.watch()
        playing = _Play(world, script)
        _until_over(world, playing, began)
        for effect in playing.effects:
            _finish(effect)
        world.end_all_watchers()
        found = found_wrong(world, alone, seen_machines)
        seconds, log = time.monotonic() - began, (*world.log, *world.said)
        return Verdict(script, found, tuple(playing.struck), tuple(playing.missed), seconds, log)


def _until_over(world: World, playing: _Play, began: float) -> None:
    looked = 0.0
    while in_time(began, _LONGEST_S):
        playing.look()
        world.keep_watching()
        if time.monotonic() - looked > _OVER_EVERY_S:
            looked = time.monotonic()
            if world.over:
                world.say("over")
                return
        time.sleep(_LOOK_S)
    phases = ", ".join(f"{one.id} {one.phase} {one.reason}" for one in world.attempts())
    world.wrong.append(f"not over after {_LONGEST_S:g} s: {phases}")
    watcher = world.watcher
    if watcher is not None:
        world.say(watcher.err[-3000:])


def _finish(effect: Effect) -> None:
    ends = time.monotonic() + 30
    while not effect() and time.monotonic() < ends:
        time.sleep(_LOOK_S)
