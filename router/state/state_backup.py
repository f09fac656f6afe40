"""Backups of a whole state in a file, and their restoration into a new state.

They include the run directories beside the state. The format is that of a ledger's backup
(:mod:`router.state.ledger_file`), with more lines::

    ["version", VERSION]                      of the tables
    ["row", table, {column: value}]           rows of all tables but the ledger's, in the order of their keys
    ["closed" | "archive" | "entry" | "archived", ...]      the ledger, as its own backup has it
    ["file", path, mode, base64]              a piece of a file of a run directory, after the piece before it

Values are written as the columns store them, so that a backup of one kind of database can be restored into another.
Leases are left out: their holders are gone. Rows of an earlier version pass through a database that has its tables and
is then upgraded, as a state that was never backed up would be.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Column, Connection, Dialect, MetaData, delete, func, insert, select

from router.state.columns import ConvertedColumn, UtcMoment
from router.state.database import Database
from router.state.database_url import DatabaseFile
from router.state.errors import ExistsError, StateError, TooNewError
from router.state.ledger_backup import LEDGER_KINDS, check_lines, insert_lines, ledger_lines, read_state_id
from router.state.ledger_file import DamagedError, LedgerFileKind, LedgerFileTitle, read_lines, read_title, write_file
from router.state.ledger_store import LedgerCheck, LedgerChecker
from router.state.periods import LEDGER_PERIODS, read_closings
from router.state.rows import StatePart
from router.state.tables import FACTS, LEASES, LEDGER, LEDGER_ARCHIVED, LEDGER_ARCHIVES, METADATA, TURNS
from router.state.versions import VERSIONS, migrate_tables, migration_lock

_VERSION, _ROW, _FILE = "version", "row", "file"
_AT_ONCE = 500
# The ledger has lines of its own; leases of a state that is elsewhere have no holder; writers' turns are no content.
_EXCLUDED_TABLES = {table.name for table in (LEDGER, LEDGER_ARCHIVED, LEDGER_ARCHIVES, LEDGER_PERIODS, LEASES, TURNS)}
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A piece of a file: ``path`` relative to the folder of run directories, its permissions, and some of its bytes."""

    path: str
    mode: int
    content: bytes


class StateBackup(StatePart):
    """Backups of a whole database."""

    def write(self, path: Path, files: Iterable[StoredFile]) -> LedgerCheck:
        """Write the whole state into a new file that its owner alone can read, as of one moment; then ``files``.

        ExistsError if there is a file; StateError if it cannot be written: then there is none.
        """
        with self._database.snapshot() as connection:
            follower = LedgerChecker(read_closings(connection))
            lines = _lines(connection, follower, files)
            write_file(path, LedgerFileTitle(LedgerFileKind.STATE, read_state_id(connection)), lines, mode=0o600)
            return follower.checked()

    def restore(self, path: Path) -> LedgerCheck:
        """Put the tables of a file into an empty database, all or nothing, after checking all of them.

        The database then has the identity of the file's state. DamagedError, StateError, ExistsError.
        """
        result = check_backup(path)
        with self._database.write(LEDGER.name) as connection:
            for table in METADATA.sorted_tables:
                if (
                    table not in (FACTS, LEASES, TURNS)
                    and connection.execute(select(func.count()).select_from(table)).scalar()
                ):
                    raise ExistsError(
                        f"{self._database.place}: the state is not empty",
                        "restore into a new state: another STEPFARE_HOME, or `state` in the deploy file",
                    )
            connection.execute(delete(FACTS))
            with _rows_of_this_version(path) as rows:
                _insert_rows(connection, path, rows)
            insert_lines(connection, (line for line in read_lines(path) if line[0] in LEDGER_KINDS))
        return result


def check_backup(path: Path) -> LedgerCheck:
    """Read a file to its end and check it. DamagedError; StateError for a file that holds no state; TooNewError."""
    if read_title(path).holds is not LedgerFileKind.STATE:
        raise StateError(f"{path} holds no state", "name a file that `stepfare state backup` made")
    version = _read_version(path)
    if version not in VERSIONS:
        raise TooNewError(f"{path}: made by a later version of stepfare (tables {version})", "install that version")
    return check_lines(path, (line for line in read_lines(path) if line[0] in LEDGER_KINDS))


def read_stored_files(path: Path) -> Iterator[StoredFile]:
    """Yield the pieces of files in a backup, in order. DamagedError for a path that leads outside."""
    for line in read_lines(path):
        if line[0] != _FILE:
            continue
        name = str(line[1])
        if name.startswith("/") or ".." in Path(name).parts or "\0" in name:
            raise DamagedError(path, "holds a file with a path outside the folder")
        yield StoredFile(name, int(line[2]) & 0o777, base64.b64decode(line[3], validate=True))


def split_file(path: str, mode: int, read: Callable[[int], bytes]) -> Iterator[StoredFile]:
    """Yield a file, piece by piece; an empty file has one piece."""
    content = read(_PIECE_BYTES)
    yield StoredFile(path, mode, content)
    while content := read(_PIECE_BYTES):
        yield StoredFile(path, mode, content)


def _lines(connection: Connection, follower: LedgerChecker, files: Iterable[StoredFile]) -> Iterator[list[Any]]:
    yield [_VERSION, VERSIONS[-1]]
    yield from ([_ROW, name, values] for name, values in _rows(connection))
    yield from ledger_lines(connection, follower)
    for file in files:
        yield [_FILE, file.path, file.mode, base64.b64encode(file.content).decode()]


def _rows(connection: Connection) -> Iterator[tuple[str, dict[str, Any]]]:
    for table in METADATA.sorted_tables:
        if table.name not in _EXCLUDED_TABLES:
            for row in connection.execute(select(table).order_by(*table.primary_key.columns)):
                values = zip(table.columns, row, strict=True)
                yield table.name, {column.key: _encode(column, value) for column, value in values}


def _read_version(path: Path) -> str | None:
    return next((line[1] for line in read_lines(path) if line[0] == _VERSION), None)


@contextmanager
def _rows_of_this_version(path: Path) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    """Yield the rows of a file as this version writes them. DamagedError."""
    rows = ((line[1], line[2]) for line in read_lines(path) if line[0] == _ROW)
    version = _read_version(path)
    if version is None or version == VERSIONS[-1]:
        yield rows
        return
    with TemporaryDirectory(prefix="stepfare-restore-") as folder:
        file = Path(folder) / "state.db"
        file.touch(mode=0o600)
        database = Database(DatabaseFile(file))
        try:
            with migration_lock, database.write() as connection:
                migrate_tables(connection, version)
                _insert_earlier_rows(connection, path, rows)
                migrate_tables(connection, VERSIONS[-1])
            with database.read() as connection:
                yield _rows(connection)
        finally:
            database.close()


def _insert_earlier_rows(connection: Connection, path: Path, rows: Iterator[tuple[str, dict[str, Any]]]) -> None:
    """Insert rows into the tables of the version that wrote them; columns of today say how values are stored."""
    known = MetaData()
    known.reflect(connection)
    for name, values in rows:
        table = known.tables.get(name)
        today = {column.key: column for column in METADATA.tables[name].columns} if name in METADATA.tables else {}
        stored = {}
        for key, value in values.items():
            column = today.get(key)
            stored[key if column is None else column.name] = (
                value if column is None else _stored(column, value, connection.dialect)
            )
        if table is None or name in _EXCLUDED_TABLES or not stored.keys() <= set(table.columns.keys()):
            raise DamagedError(path, f"has rows of {name} that its version does not know")
        connection.execute(insert(table), stored)


def _stored(column: Column[Any], value: Any, dialect: Dialect) -> Any:
    """Return the value as the database holds it: moments alone are written differently in a file."""
    return (
        column.type.process_bind_param(_decode(column, value), dialect) if isinstance(column.type, UtcMoment) else value
    )


def _insert_rows(connection: Connection, path: Path, rows: Iterator[tuple[str, dict[str, Any]]]) -> None:
    tables = {table.name: table for table in METADATA.sorted_tables if table.name not in _EXCLUDED_TABLES}
    while part := list(islice(rows, _AT_ONCE)):
        for name in dict.fromkeys(name for name, _ in part):
            table = tables.get(name)
            given = [values for table_name, values in part if table_name == name]
            if table is None or not given[0].keys() <= set(table.columns.keys()):
                raise DamagedError(path, f"has rows of {name} that this version does not know")
            connection.execute(
                insert(table),
                [{key: _decode(table.columns[key], value) for key, value in row.items()} for row in given],
            )


def _encode(column: Column[Any], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(column.type, UtcMoment):
        return value.isoformat()
    return column.type.keep(value) if isinstance(column.type, ConvertedColumn) else value


def _decode(column: Column[Any], value: Any) -> Any:
    if value is None:
        return None
    if isinstance(column.type, UtcMoment):
        return datetime.fromisoformat(value)
    return column.type.bring_back(value) if isinstance(column.type, ConvertedColumn) else value
