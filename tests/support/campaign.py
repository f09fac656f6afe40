"""One seed of the fault campaign, from the first machine to the verdict."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from pricing.places import Market
from providers.sandbox.machines import SandboxNotice
from providers.sandbox.processes import signal_groups
from providers.sandbox.stock import StockFile
from router.controller import drills
from router.controller.drills import DrillTarget
from router.demo.stage import TrainingResult
from tests.support.busy import in_time
from tests.support.campaign_checks import Found, found_wrong
from tests.support.campaign_places import STEPS, Fault, Kind, Script, Setting
from tests.support.campaign_world import World
from tests.support.deployed import Template
from tests.support.seen_machines import SeenMachines

_HUNT_S, _SECOND_WATCHER_S = 8.0, 6.0
_SMALL_DISK, _FILLER = "2m", "filler"
_SPOT = (Kind.NOTICE, Kind.FALSE_NOTICE)


class Effect(Protocol):
    """Something that goes on; true once it is over."""

    def __call__(self) -> bool: ...


class Missed(Exception):  # noqa: N818  (no error: it is tried again)
    """There is nothing to strike at this moment."""


def strike(world: World, fault: Fault, mark: str) -> Effect | None:
    """Brings it about. ``mark`` is a word of its own for each. Missed."""
    return _HOW[fault.kind](world, fault, mark)


def _target(world: World, fault: Fault) -> DrillTarget:
    jobs = world.setting.jobs
    found = world.machines(jobs[fault.job % len(jobs)])
    if fault.kind in _SPOT:
        # No cloud takes back what was not sold as spot.
        found = tuple(one for one in found if _market(world, one) is Market.SPOT)
    if not found:
        raise Missed
    return found[fault.rank % len(found)]


def _market(world: World, target: DrillTarget) -> Market:
    return world.store.attempts.nodes(target.attempt)[target.rank].market


def _at(seconds: float, action: Callable[[], None]) -> Effect:
    ends = time.monotonic() + seconds

    def look() -> bool:
        if time.monotonic() < ends:
            return False
        action()
        return True

    return look


def _kill_watcher(world: World, fault: Fault, _: str) -> None:
    if world.watcher is None:
        raise Missed
    world.restart_at = time.monotonic() + fault.seconds
    world.end_watcher(signal.SIGKILL)


def _ask_watcher(world: World, fault: Fault, _: str) -> None:
    if world.watcher is None:
        raise Missed
    world.restart_at = time.monotonic() + fault.seconds
    world.end_watcher(signal.SIGTERM)


def _stop_watcher(world: World, fault: Fault, _: str) -> Effect:
    one = world.watcher
    if one is None:
        raise Missed
    one.signal(signal.SIGSTOP)

    def go_on() -> None:
        if one.process.poll() is None:
            one.signal(signal.SIGCONT)

    return _at(fault.seconds, go_on)


def _second_watcher(world: World, fault: Fault, _: str) -> Effect:
    second = world.watch()

    def end() -> None:
        if second.process.poll() is None:
            second.signal(signal.SIGCONT)
            second.signal(signal.SIGTERM)
            world.dismissed(second, signal.SIGTERM)

    return _at(_SECOND_WATCHER_S, end)


def _clock_back(world: World, fault: Fault, mark: str) -> None:
    speed, _, since = world.clock.partition("@")
    world.clock = _earlier(speed, since, timedelta(seconds=fault.seconds))
    _kill_watcher(world, fault, mark)
    world.restart_at = time.monotonic()


def _earlier(speed: str, since: str, back: timedelta) -> str:
    return f"{speed}@{(datetime.fromisoformat(since) + back / (int(speed) - 1)).isoformat()}"


def _kill_agent(world: World, fault: Fault, _: str) -> None:
    target = _target(world, fault)
    with suppress(ProcessLookupError):
        os.kill(int((target.machine.folder / "pid").read_text()), signal.SIGKILL)


def _kill_trainer(world: World, fault: Fault, _: str) -> None:
    mine, everybody = world.hand.trainings([_target(world, fault).machine])
    if not mine:
        raise Missed
    signal_groups(mine, everybody, signal.SIGKILL)


def _kill_node(world: World, fault: Fault, mark: str) -> None:
    drills.kill_machines(world.hand, [_target(world, fault)], mark)


def _notice(world: World, fault: Fault, mark: str) -> Effect:
    taking = drills.PreemptionDrill(
        world.hand, [_target(world, fault)], mark, seconds=fault.seconds, ticks=time.monotonic
    )

    def look() -> bool:
        taking.look()
        return taking.over

    return look


def _hint(kind: str) -> Callable[[World, Fault, str], None]:
    def tell(world: World, fault: Fault, mark: str) -> None:
        said = SandboxNotice(mark, kind, fault.seconds if kind == drills.INTERRUPTION else None, "a drill")
        with suppress(FileNotFoundError):
            world.hand.announce(_target(world, fault).machine, said)

    return tell


def _zone_down(world: World, fault: Fault, mark: str) -> Effect:
    stock, where = StockFile(world.site.folder / "cloud"), [_target(world, fault).place]
    taking = drills.close_zones(
        world.store, world.hand, stock, where, mark, seconds=fault.seconds, until=None, ticks=time.monotonic
    )
    ends = time.monotonic() + fault.seconds + 4

    def look() -> bool:
        taking.look()
        if time.monotonic() < ends or not taking.over:
            return False
        drills.open_zones(stock, where, mark)
        return True

    return look


def _kill_terraform(world: World, fault: Fault, _: str) -> Effect:
    """The next that is at work, after a while."""
    ends, seen = time.monotonic() + _HUNT_S, dict[int, float]()

    def look() -> bool:
        for pid in _engines(world):
            if time.monotonic() >= seen.setdefault(pid, time.monotonic()) + fault.seconds:
                world.say(f"  Terraform {pid} is killed")
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                return True
        return time.monotonic() > ends

    return look


def _engines(world: World) -> Iterator[int]:
    """Terraform at work in any run directory: pids, each leads a session."""
    runs = str(world.site.home / "runs") + os.sep
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError):
                pid = int(process.name)
                if str((process / "cwd").readlink()).startswith(runs) and os.getsid(pid) == pid:
                    yield pid


def _empty_state(world: World, fault: Fault, _: str) -> None:
    jobs = world.setting.jobs
    for attempt in reversed(world.attempts(jobs[fault.job % len(jobs)])):
        state = world.site.home / "runs" / attempt.directory / "terraform.tfstate"
        if not attempt.phase.is_over and state.exists():
            state.write_bytes(b"")
            return
    raise Missed


def _unwritable(world: World, fault: Fault, _: str) -> Effect:
    """What no right to write comes to, for root as well: a file is where the folder was."""
    jobs = world.setting.jobs
    place = world.place(jobs[fault.job % len(jobs)])
    away = place.with_name("away")
    if not place.is_dir():
        raise Missed
    place.rename(away)
    place.write_text("")

    def back() -> None:
        place.unlink()
        away.rename(place)

    return _at(fault.seconds, back)


def small_disks(world: World) -> bool:
    """Checkpoints lie on disks that can be filled; false where that cannot be had on this machine."""
    for job in world.setting.jobs:
        place = str(world.site.folder / job)
        words = ["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK}", "tmpfs", place]
        if shutil.which("mount") is None or subprocess.run(words, capture_output=True, check=False).returncode:
            return False
        world.finally_(lambda place=place: subprocess.run(["umount", "--lazy", place], check=False))
    return True


def _fill(world: World, fault: Fault, _: str) -> Effect:
    jobs = world.setting.jobs
    folder = world.site.folder / jobs[fault.job % len(jobs)]
    if not os.path.ismount(folder):
        raise Missed
    filler = folder / _FILLER
    with suppress(OSError), filler.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(1 << 14))
    return _at(fault.seconds, filler.unlink)


def _tear(world: World, fault: Fault, _: str) -> None:
    """The newest loses its second half, though it was confirmed: all after the one before it may be done again."""
    job = world.setting.jobs[fault.job % len(world.setting.jobs)]
    found = sorted(world.place(job).glob("step-*.ckpt"))
    if not found:
        raise Missed
    with suppress(FileNotFoundError):
        os.truncate(found[-1], found[-1].stat().st_size // 2)
        left = _step_of(found[-2]) if len(found) > 1 else 0
        world.destroyed[job] = min(left, world.destroyed.get(job, left))


def _half_write(world: World, fault: Fault, _: str) -> None:
    """One that nobody ever confirmed, as a trainer leaves it that dies while it writes."""
    job = world.setting.jobs[fault.job % len(world.setting.jobs)]
    found = sorted(world.place(job).glob("step-*.ckpt"))
    if not found:
        raise Missed
    with suppress(FileNotFoundError):
        whole = found[-1].read_bytes()
        world.place(job).joinpath(f"step-{_step_of(found[-1]) + 7:08d}.ckpt").write_bytes(whole[: len(whole) // 2])


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.stem.partition("-")[2])


_HOW: dict[Kind, Callable[[World, Fault, str], Effect | None]] = {
    Kind.WATCHER_KILLED: _kill_watcher,
    Kind.WATCHER_ASKED: _ask_watcher,
    Kind.WATCHER_STOPPED: _stop_watcher,
    Kind.WATCHER_TWICE: _second_watcher,
    Kind.CLOCK_BACK: _clock_back,
    Kind.AGENT_KILLED: _kill_agent,
    Kind.TRAINER_KILLED: _kill_trainer,
    Kind.NODE_KILLED: _kill_node,
    Kind.NOTICE: _notice,
    Kind.FALSE_NOTICE: _hint(drills.INTERRUPTION),
    Kind.ZONE_DOWN: _zone_down,
    Kind.REBALANCE: _hint(drills.REBALANCE),
    Kind.HEALTH: _hint("health"),
    Kind.TERRAFORM_KILLED: _kill_terraform,
    Kind.STATE_EMPTY: _empty_state,
    Kind.UNWRITABLE: _unwritable,
    Kind.DISK_FULL: _fill,
    Kind.TORN: _tear,
    Kind.HALF_WRITTEN: _half_write,
}


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
