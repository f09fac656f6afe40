"""Conversion of records to rows and back: a column's key is the name of the field."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from sqlalchemy import Connection, Select, Table, UpdateBase, func, select, type_coerce
from sqlalchemy.exc import OperationalError
from sqlalchemy.types import NullType

from router.state.database import Database
from router.state.errors import UnreadableError

if TYPE_CHECKING:  # A state has one dialect, and imports no other.
    from sqlalchemy.dialects import postgresql, sqlite

_T = TypeVar("_T")
# Conversions raise these for a value that this program never wrote.
_CONVERSION_ERRORS = (ValueError, TypeError, KeyError, OverflowError)
_AS_IT_IS = NullType()
# SQLite builds differ in the number of parameters that a statement may have; this is below all of them.
BATCH_SIZE = 500
_LONGEST_KEY = 128


def record_values(record: Any) -> dict[str, Any]:
    """Return the values of the fields, by name."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def record_keys(kind: type[Any]) -> set[str]:
    """Return the names of the fields, which are the keys of their columns."""
    return {field.name for field in dataclasses.fields(kind)}


def read_records(
    connection: Connection,
    table: Table,
    query: Select[Any],
    kind: type[_T],
    skipped: list[UnreadableError] | None = None,
) -> list[_T]:
    """Return the rows of a query on a table as values of ``kind``; a column that is none of its fields is left out.

    An unreadable row is added to ``skipped``; without such a list it is raised.
    """
    known = record_keys(kind)
    wanted = [(i, column.key) for i, column in enumerate(table.columns) if column.key in known]
    try:
        return [kind(**{name: row[i] for i, name in wanted}) for row in connection.execute(query)]
    except _CONVERSION_ERRORS:
        pass  # Reading the rows one by one below shows which row that is.
    except OperationalError:
        if connection.dialect.name != "sqlite":
            raise
    recall = RecordCache(table, kind)
    raw = cast("Select[Any]", query.with_only_columns(*recall.raw))
    return recall.records(connection, [raw], skipped)


def in_batches(values: Iterable[str]) -> Iterator[list[str]]:
    """Yield the different values, in order, as many at a time as a statement may have."""
    ordered = sorted(set(values))
    return (ordered[first : first + BATCH_SIZE] for first in range(0, len(ordered), BATCH_SIZE))


class StatePart:
    """A part of the state: what is asked of one database, and written into it. May be shared by threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _records(
        self, table: Table, query: Select[Any], kind: type[_T], skipped: list[UnreadableError] | None = None
    ) -> tuple[_T, ...]:
        """Do :func:`read_records` in a transaction of its own."""
        with self._database.read() as connection:
            return tuple(read_records(connection, table, query, kind, skipped))

    def _first_record(self, table: Table, query: Select[Any], kind: type[_T]) -> _T | None:
        """Return the first of the records of a query, None where there is none."""
        return next(iter(self._records(table, query, kind)), None)

    def _rows(self, query: Select[Any]) -> Sequence[Any]:
        with self._database.read() as connection:
            return connection.execute(query).all()

    def _first_column(self, query: Select[Any]) -> tuple[Any, ...]:
        return tuple(row[0] for row in self._rows(query))

    def _first_text(self, query: Select[Any]) -> str | None:
        """Return the first column of the first row, None where there is none."""
        return next(iter(self._first_column(query)), None)

    def _write(self, statement: UpdateBase) -> int:
        """Execute a statement in a transaction of its own, and return how many rows it concerned."""
        with self._database.write() as connection:
            return connection.execute(statement).rowcount


@dataclasses.dataclass(frozen=True, slots=True)
class SalvagedRow:
    """A row of a table by its key: the values that can be read, by field, and the fields that cannot."""

    table: str
    key: tuple[str, ...]
    values: Mapping[str, Any]
    unreadable: tuple[str, ...]


class RecordCache(Generic[_T]):
    """A cache of the rows of a table, for readers that repeat a query whose rows rarely change.

    Rows are values of ``kind``. A row that is unchanged since the last read is returned as the same value, which costs
    far less than creating it again. May be shared by threads.
    """

    def __init__(self, table: Table, kind: type[_T]) -> None:
        self._table, self._kind, self._keys = table, kind, record_keys(kind)
        self.raw = [type_coerce(column, _AS_IT_IS).label(column.key) for column in table.columns]
        self._known: dict[tuple[Any, ...], _T] = {}

    def select(self) -> Select[Any]:
        """Return the beginning of a query."""
        return cast("Select[Any]", select(*self.raw))

    def records(
        self, connection: Connection, queries: Iterable[Select[Any]], skipped: list[UnreadableError] | None = None
    ) -> list[_T]:
        """Return the rows of these queries, in order; each begins with :meth:`select`.

        Unreadable rows are handled as in :func:`read_records`.
        """
        rows: list[tuple[Any, ...]] = []
        kinds: list[Any] = []
        for query in queries:
            kinds, found = _fetch(connection, query)
            rows += found
        before, now = self._known, dict[tuple[Any, ...], _T]()
        converters: list[tuple[str, Any]] | None = None
        for row in rows:
            if row in now:
                continue
            record = before.get(row)
            if record is None:
                converters = converters or self._converters(connection, kinds)
                try:
                    record = self._record(converters, row)
                except _CONVERSION_ERRORS:
                    error = self._unreadable(row)
                    if skipped is None:
                        raise error from None
                    skipped.append(error)
                    continue
            now[row] = record
        self._known = now
        return [now[row] for row in rows if row in now]

    def salvage(self, connection: Connection, query: Select[Any]) -> list[SalvagedRow]:
        """Return the rows of a query, which begins with :meth:`select`, with those of their values that can be read."""
        kinds, rows = _fetch(connection, query)
        converters = self._converters(connection, kinds)
        return [self._salvaged(converters, row) for row in rows]

    def _salvaged(self, converters: Iterable[tuple[str, Any]], row: tuple[Any, ...]) -> SalvagedRow:
        values: dict[str, Any] = {}
        unreadable = []
        for (name, converter), raw in zip(converters, row, strict=True):
            try:
                if isinstance(raw, bytes):
                    raise TypeError("no column holds bytes")
                values[name] = raw if converter is None else converter(raw)
            except _CONVERSION_ERRORS:
                unreadable.append(name)
        return SalvagedRow(self._table.name, self._unreadable(row).key, values, tuple(unreadable))

    def _record(self, converters: Iterable[tuple[str, Any]], row: tuple[Any, ...]) -> _T:
        if any(isinstance(raw, bytes) for raw in row):
            raise TypeError("no column holds bytes")
        named = zip(converters, row, strict=True)
        values = {
            name: raw if converter is None else converter(raw) for (name, converter), raw in named if name in self._keys
        }
        return self._kind(**values)

    def _unreadable(self, row: tuple[Any, ...]) -> UnreadableError:
        key = [str(raw) for column, raw in zip(self._table.columns, row, strict=True) if column.primary_key]
        shown = ("".join(c if c.isprintable() else "?" for c in part[:_LONGEST_KEY]) for part in key)
        return UnreadableError(self._table.name, tuple(shown))

    def _converters(self, connection: Connection, kinds: Iterable[Any]) -> list[tuple[str, Any]]:
        """Return by field the conversion of the database's value; None: no conversion.

        It depends on the type that the database reports for the value.
        """
        dialect = connection.dialect
        return [
            (column.key, column.type.dialect_impl(dialect).result_processor(dialect, kind))
            for column, kind in zip(self._table.columns, kinds, strict=True)
        ]


def _fetch(connection: Connection, query: Select[Any]) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """Return the types that the driver reports for the columns, and the rows; text that cannot be decoded is bytes."""
    try:
        return _fetch_text(connection, query)
    except OperationalError:
        if connection.dialect.name != "sqlite":
            raise
    with _undecoded_text(connection):
        return _fetch_text(connection, query)


def _fetch_text(connection: Connection, query: Select[Any]) -> tuple[list[Any], list[tuple[Any, ...]]]:
    result = connection.execute(query)
    return [column[1] for column in result.cursor.description], [tuple(row) for row in result]


@contextmanager
def _undecoded_text(connection: Connection) -> Iterator[None]:
    """Let SQLite's driver return text that is no UTF-8 as bytes, where it would raise an error that quotes it."""

    def text_or_bytes(raw: bytes) -> str | bytes:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw

    driver: Any = connection.connection.driver_connection
    driver.text_factory = text_or_bytes
    try:
        yield
    finally:
        driver.text_factory = str


def check_fields(kind: type[Any], changes: Mapping[str, object], fixed: Collection[str]) -> None:
    """Raise TypeError for a name that is no field, or a field that never changes."""
    known = record_keys(kind) - set(fixed)
    for name in changes:
        if name not in known:
            raise TypeError(f"{kind.__name__}: {name} cannot be changed")


def _insert(connection: Connection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Return an insertion that may have a conflict; both dialects have the same syntax for it."""
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return postgresql.insert(table)


def insert_or_update(
    connection: Connection, table: Table, rows: list[dict[str, Any]], *, replacing: Collection[str] = ()
) -> None:
    """Insert rows; where the key exists, replace the columns in ``replacing`` and leave the others unchanged."""
    keys = [column.key for column in table.primary_key.columns]
    statement = _insert(connection, table)
    if replacing:
        changes = {name: statement.excluded[name] for name in replacing}
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes), rows)
    else:
        connection.execute(statement.on_conflict_do_nothing(index_elements=keys), rows)


def insert_if_absent(connection: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless its key exists, and return whether it was inserted."""
    keys = list(table.primary_key.columns)
    statement = (
        _insert(connection, table).values(**row).on_conflict_do_nothing(index_elements=[column.key for column in keys])
    )
    return connection.execute(statement.returning(*keys)).first() is not None


def read_last_seq(connection: Connection, table: Table) -> int:
    """Return the number of the last row of a list; 0 when it is empty."""
    return int(connection.execute(select(func.coalesce(func.max(table.c.seq), 0))).scalar_one())
