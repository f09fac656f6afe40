"""What can go wrong with the state database.

::

    StateError
    ├── ExistsError      what was to be added is there
    ├── MissingError     what was to be changed is not there
    ├── MovedError       somebody else was first: read again, decide again
    ├── ConflictError    the same key with other content
    ├── HeldError        somebody else does it now (``holder``, ``since``)
    ├── LostError        it was taken over
    ├── BusyError        locked by others for too long, or the server cannot be reached: trying later may help
    ├── TooNewError      a later version of stepfare made it
    ├── NoStateError     there is none, and none was to be made
    └── UnreadableError  a row holds what this program never wrote

After any of them nothing of the call was written. No message carries a secret.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.state.lock_owner import Holder


class StateError(Exception):
    """The state cannot be read or written; ``remedy`` says what to do, "" if nothing is known."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class ExistsError(StateError):
    """What was to be added is there already."""


class MissingError(StateError):
    """What was to be changed does not exist."""


class MovedError(StateError):
    """It was changed since it was read: read it again and decide again."""


class ConflictError(StateError):
    """The key is there with other content."""


class HeldError(StateError):
    """``holder`` does this now, and has since ``since``."""

    def __init__(self, name: str, holder: Holder, since: datetime) -> None:
        super().__init__(
            f"{name}: held by process {holder.pid} on {holder.host} since {since:%Y-%m-%dT%H:%M:%SZ}",
            "wait until it is done; what a dead process held is free at once on its own machine, elsewhere in a minute",
        )
        self.holder = holder
        self.since = since


class LostError(StateError):
    """What was held is held by somebody else now, or by nobody: stop before doing anything more."""


class BusyError(StateError):
    """Others have it locked for too long, or the server cannot be reached."""


class TooNewError(StateError):
    """A later version of stepfare made the database."""


class NoStateError(StateError):
    """There is no database, or one in which nothing was made yet."""


class UnreadableError(StateError):
    """A row of ``table`` with this ``key`` holds what cannot be read. The message names them, never what it holds."""

    def __init__(self, table: str, key: tuple[str, ...]) -> None:
        super().__init__(
            f"{table} {' '.join(key)}: the database holds what cannot be read of it",
            "restore the state from a backup (`stepfare state restore`)",
        )
        self.table, self.key = table, key
