"""One database: connections with the right settings, transactions, and its errors as StateError."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from router.state.database_url import DatabaseFile, DatabaseLocation, DatabaseServer
from router.state.errors import UNREADABLE_REMEDY, BusyError, StateError
from router.state.tables import TURNS

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


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class GroupCommitError(Exception):
    """The disk did not take the commit; the message says why."""


class GroupCommit:
    """Group commit for the write-ahead log of a SQLite database, to which commits are appended in order.

    Where there is no log, SQLite itself waits for the disk.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._change = threading.Condition()
        self._is_syncing = False
        self._requested = self._durable = 0

    def sync(self) -> None:
        """Wait until all that was committed before the call is on the disk. GroupCommitError."""
        with self._change:
            self._requested += 1
            own_request = self._requested
            # The lock is free while a thread waits for the disk. Threads whose commits that wait covers continue
            # meanwhile and may ask again, even if the same thread is always the first to begin the next wait.
            while self._is_syncing and self._durable < own_request:
                self._change.wait()
            if self._durable >= own_request:
                return  # A wait that began after this request covers it.
            self._is_syncing, upto = True, self._requested
        succeeded = False
        try:
            self._sync_log()
            succeeded = True
        except OSError as error:
            raise GroupCommitError(error.strerror or type(error).__name__) from None
        finally:
            with self._change:
                self._is_syncing = False
                if succeeded:
                    self._durable = upto
                self._change.notify_all()

    def _sync_log(self) -> None:
        try:
            # Closing a handle of this file releases no lock: SQLite has its locks on the other two files.
            handle = os.open(self._log, os.O_RDWR)
        except FileNotFoundError:
            return
        try:
            full = getattr(fcntl, "F_FULLFSYNC", None)
            if full is None:
                os.fsync(handle)
            else:
                fcntl.fcntl(handle, full)  # The fsync of macOS does not wait for the disk.
        finally:
            os.close(handle)


BUSY_SECONDS = 30.0
_WRITES = "stepfare_writes"

# With a write-ahead log NORMAL never damages anything; :class:`GroupCommit` sees to it that a commit is on the disk
# when it returns. The last two pragmas matter on macOS alone.
_WRITE_AHEAD_LOG, _SYNC_WITH_LOG, _SYNC_WITHOUT_LOG = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA synchronous = FULL",
)

_PRAGMAS = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA fullfsync = ON",
    "PRAGMA checkpoint_fullfsync = ON",
)

_SESSION = ("SET TIME ZONE 'UTC'", "SET synchronous_commit = on", f"SET lock_timeout = '{int(BUSY_SECONDS)}s'")
_CONNECT_SECONDS = 10
_CONNECTIONS = 5
_MAX_OVERFLOW = 15


class Database:
    """Transactions on one database. May be shared by threads; must not be used after a fork."""

    def __init__(self, place: DatabaseLocation) -> None:
        self.place = place
        self._engine = _file_engine(place) if isinstance(place, DatabaseFile) else _server_engine(place)
        # Threads that wait for SQLite are served at random; with this lock they queue.
        self._one_writer = threading.Lock()
        self._group_commit = GroupCommit(Path(f"{place.path}-wal")) if isinstance(place, DatabaseFile) else None
        self._closed = False

    @property
    def is_file(self) -> bool:
        """True for SQLite."""
        return isinstance(self.place, DatabaseFile)

    def close(self) -> None:
        """Close every connection; later calls raise StateError."""
        self._closed = True
        self._engine.dispose()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Open a transaction that only reads. StateError."""
        with self._translated_errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a transaction whose reads all see one moment, however many there are. StateError."""
        with self._translated_errors(), self._engine.connect() as connection:
            if not self.is_file:
                connection.execution_options(isolation_level="REPEATABLE READ")
            yield connection

    @contextmanager
    def write(self, turn: str = "") -> Iterator[Connection]:
        """Open a transaction: on the disk when the block ends, undone when it raises. StateError.

        Transactions that name the same ``turn`` run one after the other, and each sees all that those before it wrote.
        Transactions of SQLite always do. Never nest it in another one of the same thread.
        """
        with self._translated_errors():
            with self._writer(), self._engine.connect() as connection:
                connection.execution_options(**{_WRITES: True})
                with connection.begin():
                    if turn and not self.is_file:
                        connection.execute(select(TURNS.c.name).where(TURNS.c.name == turn).with_for_update()).one()
                    yield connection
            if self._group_commit is not None:
                # The writer's lock is free here, so others write while this thread waits for the disk.
                self._group_commit.sync()

    @contextmanager
    def _writer(self) -> Iterator[None]:
        if not self.is_file:
            yield
            return
        if not self._one_writer.acquire(timeout=BUSY_SECONDS * 2):
            raise BusyError(f"{self.place}: another thread writes for too long", "try again")
        try:
            yield
        finally:
            self._one_writer.release()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        if self._closed:
            raise StateError(f"{self.place}: closed")
        try:
            yield
        except SQLAlchemyError as error:
            raise translate_error(error, self.place) from None
        except GroupCommitError as error:
            raise StateError(f"{self.place}: a commit may not be on the disk: {error}", "check its disk") from None


def _file_engine(place: DatabaseFile) -> Engine:
    # With mode=rw a file that went away is an error, never a new and empty state.
    uri = f"file:{quote(str(place.path))}?mode=rw"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(uri, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
        try:
            (mode,) = connection.execute(_WRITE_AHEAD_LOG).fetchone()
            for pragma in (_SYNC_WITH_LOG if mode == "wal" else _SYNC_WITHOUT_LOG, *_PRAGMAS):
                connection.execute(pragma)
        except BaseException:
            connection.close()
            raise
        return connection

    engine = create_engine(
        "sqlite://",
        creator=connect,
        poolclass=QueuePool,
        pool_size=_CONNECTIONS,
        max_overflow=_MAX_OVERFLOW,
        pool_timeout=BUSY_SECONDS,
        hide_parameters=True,
    )

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # The driver would begin at the first write, which is too late: reads before it might be outdated.
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _server_engine(place: DatabaseServer) -> Engine:
    try:
        engine = create_engine(
            place.url,
            pool_size=_CONNECTIONS,
            max_overflow=_MAX_OVERFLOW,
            pool_timeout=BUSY_SECONDS,
            # A connection that the server closed meanwhile is replaced before it is used.
            pool_pre_ping=True,
            hide_parameters=True,
            connect_args={} if "connect_timeout" in place.url.query else {"connect_timeout": _CONNECT_SECONDS},
        )
    except ImportError:
        raise StateError(f"{place}: its driver is missing", "pip install 'stepfare[postgres]'") from None

    @event.listens_for(engine, "connect")
    def configure_session(connection: Any, _record: object) -> None:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in _SESSION:
                cursor.execute(statement)
        connection.autocommit = False

    return engine
