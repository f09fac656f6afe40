"""Gangs that train, save, are interrupted and restart, event by event; no formula of the product is used.

A gang computes for an interval, stops for the stall of a save, and goes on while the save is written. A save counts
once its write has ended; while one is being written the next waits. An interruption loses what no ended save holds, and
the restart takes its time. Interruptions are exponential while the gang runs; where ``restart_is_hit`` they also begin
the billed part of a restart anew. Lifetimes are drawn in equal strata, which makes a thousand lives of a gang as
telling as many more that are drawn freely.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_SHRINK_EVERY = 32  # events until gangs that were interrupted are set aside


@dataclass(frozen=True, slots=True)
class SavingGang:
    """The rate of interruptions (1/h) and hours: between saves, stopped by one, writing it, waiting, starting up."""

    rate: float
    interval: float
    stall: float
    write: float
    wait: float
    startup: float = 0.0


@dataclass(frozen=True, slots=True)
class Lives:
    """By gang, summed over its lives: hours of work that lasted, wall hours, and saves that were done."""

    kept: Floats
    wall: Floats
    saves: Floats

    @property
    def useful_share(self) -> Floats:
        """The share of wall time that lasted."""
        return self.kept / self.wall


class _Running:
    """The gangs that run: each attribute is a column, with one value a gang."""

    def __init__(self, gangs: tuple[SavingGang, ...], lives: int, ends: Floats) -> None:
        def of_gangs(name: str) -> Floats:
            return np.repeat(np.array([float(getattr(gang, name)) for gang in gangs]), lives)

        self.row = np.arange(ends.size)
        self.ends = ends  # when the interruption comes
        self.interval, self.stall, self.write = of_gangs("interval"), of_gangs("stall"), of_gangs("write")
        self.clock = np.zeros(ends.size)
        self.worked = np.zeros(ends.size)  # hours of compute since the life began
        self.due = self.interval.copy()  # compute at which the next save is due
        self.stalled_until = np.full(ends.size, -np.inf)  # a stop for a save ends then
        self.written_at = np.full(ends.size, np.inf)  # the write in flight ends then
        self.holds = np.zeros(ends.size)  # the work that the save in flight holds

    def keep(self, which: npt.NDArray[np.bool_]) -> None:
        for name, column in vars(self).items():
            setattr(self, name, column[which])


def simulate_lives(gangs: tuple[SavingGang, ...], lives: int, seed: int, *, restart_is_hit: bool = False) -> Lives:
    """Return what comes of ``lives`` lives of each gang; all gangs advance together from event to event."""
    rng = np.random.default_rng(seed)
    rate = np.repeat(np.array([gang.rate for gang in gangs]), lives)
    strata = np.concatenate([rng.permutation(lives) for _ in gangs])
    ends = -np.log1p(-(strata + rng.random(strata.size)) / lives) / rate
    kept, saves = np.zeros(ends.size), np.zeros(ends.size)
    running, events = _Running(gangs, lives, ends), 0
    while running.row.size:
        _advance(running, kept, saves)
        events += 1
        if events % _SHRINK_EVERY == 0:
            running.keep(running.clock < running.ends)
    wall = ends + _restarts(gangs, lives, rng, restart_is_hit=restart_is_hit)
    return Lives(*(column.reshape(len(gangs), lives).sum(axis=1) for column in (kept, wall, saves)))


def _advance(now: _Running, kept: Floats, saves: Floats) -> None:
    """Take each gang to its next event: an interruption, the end of a write, the end of a stall, or a save."""
    stalled = now.stalled_until > now.clock
    free = np.isinf(now.written_at)
    to_save = np.where(free, now.clock + (now.due - now.worked), np.inf)
    to_save = np.where(stalled, np.inf, np.maximum(to_save, now.clock))
    stall_ends = np.where(stalled, now.stalled_until, np.inf)
    then = np.minimum(np.minimum(now.ends, now.written_at), np.minimum(to_save, stall_ends))
    now.worked += np.where(stalled, 0.0, then - now.clock)
    now.clock = then
    alive = then < now.ends
    written = alive & (then == now.written_at)
    kept[now.row[written]] = now.holds[written]
    saves[now.row[written]] += 1
    now.written_at[written] = np.inf
    saving = alive & (then == to_save)
    now.holds[saving] = now.worked[saving]
    now.due[saving] = now.worked[saving] + now.interval[saving]
    now.stalled_until[saving] = then[saving] + now.stall[saving]
    now.written_at[saving] = then[saving] + now.stall[saving] + now.write[saving]


def _restarts(gangs: tuple[SavingGang, ...], lives: int, rng: np.random.Generator, *, restart_is_hit: bool) -> Floats:
    """Return the hours of each restart: the wait and the start-up, again and again where it is hit."""
    wait, startup, rate = (
        np.repeat(np.array([getattr(gang, name) for gang in gangs]), lives) for name in ("wait", "startup", "rate")
    )
    hours: Floats = wait + startup
    trying = np.flatnonzero(startup > 0) if restart_is_hit else np.zeros(0, dtype=np.int64)
    while trying.size:
        hit = rng.exponential(1 / rate[trying])
        failed = hit < startup[trying]
        trying, hit = trying[failed], hit[failed]
        hours[trying] += hit + wait[trying]
    return hours
