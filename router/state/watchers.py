"""Marks of the processes that watch gangs, so that every command can say when nobody does."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import select

from router.state.database import Database
from router.state.plans import NamedValues
from router.state.records import Phase
from router.state.rows import StatePart
from router.state.tables import ATTEMPTS, LEASES

# How often a process marks that it watches, and how old a mark may be.
MARK_SECONDS = 20.0
_FRESH = timedelta(seconds=3 * MARK_SECONDS)
_KEY = "watched"
_UP_PHASES = [phase for phase in Phase if phase.is_up]
# The lock of whoever makes and releases machines, which also looks after them meanwhile.
_LOCK = "apply"


class Watchers(StatePart):
    """The marks in a database. Times are real time of day, on clocks that agree."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._values = NamedValues(database)

    def mark(self, plan: str | None, now: datetime) -> None:
        """Note that this process watches the gangs of a plan, None: all."""
        self._values.set(_name(plan), f"{now.isoformat()} {os.getpid()} {socket.gethostname()}")

    def unmark(self, plan: str | None) -> None:
        """Note that this process watches no more; another one that does marks it again in a moment."""
        if (self._values.get(_name(plan)) or "").split(" ")[1:2] == [str(os.getpid())]:
            self._values.set(_name(plan), "")

    def unwatched_jobs(self, now: datetime, exists: Callable[[int], bool] | None = None) -> tuple[str, ...]:
        """Return the jobs whose gangs run, by the state, although no process watches them, in order.

        ``exists`` says whether a process of this machine does.
        """
        exists = exists or _exists
        if self._is_watched(None, now, exists):
            return ()
        running = select(ATTEMPTS.c.job, ATTEMPTS.c.plan).where(ATTEMPTS.c.phase.in_(_UP_PHASES))
        gangs = {(row[0], row[1]) for row in self._rows(running)}
        locks = select(LEASES.c.until).where(LEASES.c.name == _LOCK)
        if not gangs or any(row[0] > now for row in self._rows(locks)):
            return ()
        watched = {plan for plan in {plan for _, plan in gangs} if self._is_watched(plan, now, exists)}
        return tuple(sorted({job for job, plan in gangs if plan not in watched}))

    def _is_watched(self, plan: str | None, now: datetime, exists: Callable[[int], bool]) -> bool:
        parts = (self._values.get(_name(plan)) or "").split(" ", 2)
        try:
            at, pid, host = datetime.fromisoformat(parts[0]), int(parts[1]), parts[2]
        except (ValueError, IndexError):
            return False
        return now - at <= _FRESH and (host != socket.gethostname() or exists(pid))


def _name(plan: str | None) -> str:
    return _KEY if plan is None else f"{_KEY} {plan}"


def _exists(pid: int) -> bool:
    # psutil takes a process that others may not list for one that is gone.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
