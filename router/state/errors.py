"""Errors of the state database.

::

    StateError
    ├── ExistsError            what was to be added is there already
    ├── MissingError           what was to be changed is not there
    ├── ConcurrentChangeError  another writer was first: read again, decide again
    ├── ConflictError          the same key with other content
    ├── LeaseHeldError         another process holds the lease now (``holder``, ``since``)
    ├── LeaseLostError         the lease was taken over
    ├── BusyError              locked by others for too long, or the server cannot be reached: trying later may help
    ├── TooNewError            a later version of stepfare made it
    ├── NoStateError           there is none, and none was to be created
    └── UnreadableError        a row holds what this program never wrote

After any of them nothing of the call was written. No message carries a secret.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.state.lock_owner import LockOwner


UNREADABLE_REMEDY = "restore the state from a backup (`stepfare state restore`)"


class StateError(Exception):
    """The state cannot be read or written; ``remedy`` says what to do, "" if nothing is known."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class ExistsError(StateError):
    """The item to be added exists already."""


class MissingError(StateError):
    """The item to be changed does not exist."""


class ConcurrentChangeError(StateError):
    """The item was changed since it was read: read it again and decide again."""


class ConflictError(StateError):
    """The key exists with other content."""


class LeaseHeldError(StateError):
    """Another process, ``holder``, has held the lease since ``since``."""

    def __init__(self, name: str, holder: LockOwner, since: datetime) -> None:
        super().__init__(
            f"{name}: held by process {holder.pid} on {holder.host} since {since:%Y-%m-%dT%H:%M:%SZ}",
            "wait until it is done; what a dead process held is free at once on its own machine, elsewhere in a minute",
        )
        self.holder = holder
        self.since = since


class LeaseLostError(StateError):
    """Another process holds the lease now, or nobody does: stop before doing anything more."""


class BusyError(StateError):
    """Other processes lock the database for too long, or the server cannot be reached."""


class TooNewError(StateError):
    """A later version of stepfare made the database."""


class NoStateError(StateError):
    """There is no database, or one in which nothing was created yet."""


class UnreadableError(StateError):
    """A row of ``table`` with this ``key`` holds what cannot be read. The message names them, never the content."""

    def __init__(self, table: str, key: tuple[str, ...]) -> None:
        super().__init__(
            f"{table} {' '.join(key)}: the database holds what cannot be read of it",
            UNREADABLE_REMEDY,
        )
        self.table, self.key = table, key
