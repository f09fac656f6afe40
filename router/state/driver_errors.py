"""Translation of the database drivers' errors into StateError."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from router.state.database_url import DatabaseFile, DatabaseLocation
from router.state.errors import UNREADABLE_REMEDY, BusyError, StateError

_LATER = "try again; if it stays so, look for a process of stepfare that hangs"
_ROOM = "make room, then run the same command again: nothing of this step was written"
_RESTORE = "restore it from a backup, then run `stepfare sweep`; or move it away to begin a new state"
_RIGHTS = "give the user that runs stepfare the right to read and write it and its folder"

# Selected by the beginning of SQLite's name for the error.
_SQLITE: tuple[tuple[str, type[StateError], str, str], ...] = (
    ("SQLITE_BUSY", BusyError, "is locked by another process for too long", _LATER),
    ("SQLITE_LOCKED", BusyError, "is locked by another process for too long", _LATER),
    ("SQLITE_PROTOCOL", BusyError, "is locked by another process for too long", _LATER),
    ("SQLITE_FULL", StateError, "cannot be written: the disk is full", _ROOM),
    ("SQLITE_READONLY", StateError, "cannot be written: it is read-only", _RIGHTS),
    ("SQLITE_CANTOPEN", StateError, "cannot be opened", _RIGHTS),
    ("SQLITE_PERM", StateError, "cannot be opened", _RIGHTS),
    ("SQLITE_NOTADB", StateError, "is not a database, or is damaged", _RESTORE),
    ("SQLITE_CORRUPT", StateError, "is damaged", _RESTORE),
    ("SQLITE_IOERR", StateError, "cannot be read or written: the disk fails, or is full", _ROOM),
)

# Selected by the beginning of PostgreSQL's code (its manual, appendix A).
_POSTGRESQL: tuple[tuple[str, type[StateError], str], ...] = (
    ("08", BusyError, "look whether the server runs and can be reached, then try again"),
    ("28", StateError, "look at the user and the password in the URL of the state"),
    ("3D000", StateError, "make the database first (`createdb`)"),
    ("40", BusyError, _LATER),
    ("42501", StateError, "give the user the right to make and to use tables in the database"),
    ("53100", StateError, _ROOM),
    ("53", BusyError, "look whether the server has memory and connections left, then try again"),
    ("55P03", BusyError, _LATER),
    ("57", BusyError, "the server is stopping or starting: try again"),
    ("25006", StateError, "the server only reads (a standby?): name the one that writes"),
)

# Errors that the driver raises without a code: there is no connection yet, or none any more. Their text tells refusals.
_UNREACHABLE = ("OperationalError", "ConnectionTimeout", "ConnectionFailure")
_REFUSED = "FATAL"
_TEMPORARY = ("starting up", "shutting down", "too many", "terminating connection", "recovery")
_REFUSED_REMEDY = "look at user, password and database in the URL of the state; make the database first (`createdb`)"


def translate_error(error: SQLAlchemyError, place: DatabaseLocation) -> Exception:
    """Return the error to raise instead; a ValueError or TypeError of an unstorable value is returned unchanged."""
    if isinstance(error, PoolTimeoutError):
        return BusyError(f"{place}: all connections are in use", _LATER)
    if isinstance(error, StatementError) and not isinstance(error, DBAPIError):
        original = error.orig
        return original if isinstance(original, ValueError | TypeError) else StateError(f"{place}: {original}")
    if not isinstance(error, DBAPIError):
        return StateError(f"{place}: {type(error).__name__}")
    return _translate_sqlite(error, place) if isinstance(place, DatabaseFile) else _translate_postgresql(error, place)


def _translate_sqlite(error: DBAPIError, place: DatabaseFile) -> Exception:
    name = str(getattr(error.orig, "sqlite_errorname", ""))
    for beginning, kind, what, remedy in _SQLITE:
        if name.startswith(beginning):
            return kind(f"{place} {what} ({error.orig})", remedy)
    if not name and isinstance(error.orig, sqlite3.OperationalError):
        # Of the errors without a code this is the one that the driver raises for text that is no UTF-8; it quotes it.
        return StateError(f"{place} holds text that cannot be read", UNREADABLE_REMEDY)
    return StateError(f"{place}: {error.orig}")


def _translate_postgresql(error: DBAPIError, place: DatabaseLocation) -> Exception:
    code = getattr(error.orig, "sqlstate", None)
    # Only the first line is used: what follows may quote the row.
    said = place.masked(str(error.orig).partition("\n")[0]) if not isinstance(place, DatabaseFile) else ""
    if code is None and (error.connection_invalidated or type(error.orig).__name__ in _UNREACHABLE):
        if _REFUSED in said and not any(words in said for words in _TEMPORARY):
            return StateError(f"{place}: {said}", _REFUSED_REMEDY)
        return BusyError(f"{place} cannot be reached: {said}", _POSTGRESQL[0][2])
    for beginning, kind, remedy in _POSTGRESQL:
        if str(code).startswith(beginning):
            return kind(f"{place}: {said}", remedy)
    return StateError(f"{place}: {said}")
