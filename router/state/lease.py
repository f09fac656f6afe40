"""A named lease: one process at a time holds it, renews it, and loses it when it dies or stays away."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, select, update

from router.state.database import Database
from router.state.errors import LeaseHeldError, LeaseLostError, StateError
from router.state.lock_owner import LockOwner
from router.state.rows import StatePart, insert_or_update
from router.state.tables import LEASES

_RENEWALS_PER_LEASE = 3
_TOKEN_BYTES = 16
_REPLACED_COLUMNS = ("token", "host", "pid", "started", "boot", "since", "renewed_at", "until")


class Lease:
    """A lease as its holder has it while the block runs."""

    def __init__(self, leases: Leases, name: str, token: str) -> None:
        self._leases = leases
        self.name = name
        self._token = token

    def __repr__(self) -> str:
        return f"Lease({self.name!r})"

    def check(self) -> None:
        """Renew the lease. LeaseLostError when it was taken over or ended: then stop, because others work already."""
        if not self._leases.renew(self.name, self._token):
            raise LeaseLostError(
                f"{self.name}: taken over by another process", "see what it did with `stepfare status`"
            )


class Leases(StatePart):
    """The leases of a database.

    ``now`` is the time of day; holders on several machines need clocks that agree.
    """

    def __init__(self, database: Database, now: Callable[[], datetime], seconds: float) -> None:
        super().__init__(database)
        self._now = now
        self._length = timedelta(seconds=seconds)

    @contextmanager
    def held(self, name: str, holder: LockOwner) -> Iterator[Lease]:
        """Hold the lease while the block runs, renewed by a thread.

        LeaseHeldError at once when another process has it.
        """
        token = secrets.token_hex(_TOKEN_BYTES)
        self._take(name, holder, token)
        ended = threading.Event()
        wait = self._length.total_seconds() / _RENEWALS_PER_LEASE
        renewing = threading.Thread(
            target=self._renew_until, args=(name, token, wait, ended), name=f"lease {name}", daemon=True
        )
        renewing.start()
        try:
            yield Lease(self, name, token)
        finally:
            ended.set()
            renewing.join()
            # A lease that cannot be released is free when this process ends, or a little later.
            with contextlib.suppress(StateError):
                self._write(delete(LEASES).where((LEASES.c.name == name) & (LEASES.c.token == token)))

    def held_names(self, prefix: str) -> dict[str, LockOwner]:
        """Return the leases whose names begin so and that somebody holds, each with its holder."""
        now = self._now()
        rows = self._rows(select(LEASES).where(LEASES.c.name.startswith(prefix, autoescape=True)))
        holders = {row.name: LockOwner(row.host, row.pid, row.started, row.boot) for row in rows if now < row.until}
        return {name: holder for name, holder in holders.items() if not holder.is_gone()}

    def renew(self, name: str, token: str) -> bool:
        """Renew the lease and return whether it was still there. A late renewal succeeds if nobody took the lease."""
        now = self._now()
        mine = (LEASES.c.name == name) & (LEASES.c.token == token)
        return self._write(update(LEASES).where(mine).values(renewed_at=now, until=now + self._length)) == 1

    def _take(self, name: str, holder: LockOwner, token: str) -> None:
        with self._database.write(LEASES.name) as connection:
            now = self._now()
            self._check_free(connection, name, now)
            times = {"since": now, "renewed_at": now, "until": now + self._length}
            row = {"name": name, "token": token, **asdict(holder), **times}
            insert_or_update(connection, LEASES, [row], replacing=_REPLACED_COLUMNS)

    def _check_free(self, connection: Connection, name: str, now: datetime) -> None:
        row = connection.execute(select(LEASES).where(LEASES.c.name == name)).one_or_none()
        if row is None:
            return
        holder = LockOwner(row.host, row.pid, row.started, row.boot)
        if now < row.until and not holder.is_gone():
            raise LeaseHeldError(name, holder, row.since)

    def _renew_until(self, name: str, token: str, wait: float, ended: threading.Event) -> None:
        while not ended.wait(wait):
            try:
                if not self.renew(name, token):
                    return
            except StateError:
                # The database is locked or the server away: check() reports that, and the next renewal may succeed.
                continue
