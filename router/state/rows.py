"""Records to rows and back: a column's key is the name of the field."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import Connection, Select, Table, func, select, type_coerce
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import NullType

from router.state.errors import UnreadableError

_T = TypeVar("_T")
# What conversions raise for a value that nobody here wrote.
_NOT_OURS = (ValueError, TypeError, KeyError, OverflowError)
_AS_IT_IS = NullType()
# Below the most parameters of a statement that any build of SQLite takes.
AT_ONCE = 500
_LONGEST_KEY = 128


def values(record: Any) -> dict[str, Any]:
    """What the fields hold, by name."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def records(
    connection: Connection,
    table: Table,
    query: Select[Any],
    kind: type[_T],
    *,
    without: Collection[str] = (),
    skipped: list[UnreadableError] | None = None,
) -> list[_T]:
    """The rows of a query on a table, as values of ``kind``; columns in ``without`` are no fields of it. A row that
    cannot be read is added to ``skipped``; without such a list it is raised."""
    wanted = [(i, column.key) for i, column in enumerate(table.columns) if column.key not in without]
    try:
        return [kind(**{name: row[i] for i, name in wanted}) for row in connection.execute(query)]
    except _NOT_OURS:
        pass  # which row that is shows when each is read by itself
    recall = Recall(table, kind, without=without)
    raw = cast("Select[Any]", query.with_only_columns(*recall.raw))
    return recall.records(connection, [raw], skipped)


class Recall(Generic[_T]):
    """The rows of a table as values of ``kind``, for one who looks again and again at rows of which few change: a row
    that is as it was at the look before is the same value, which costs far less than to make it anew. May be shared by
    threads."""

    def __init__(self, table: Table, kind: type[_T], *, without: Collection[str] = ()) -> None:
        self._table, self._kind, self._without = table, kind, without
        self.raw = [type_coerce(column, _AS_IT_IS).label(column.key) for column in table.columns]
        self._known: dict[tuple[Any, ...], _T] = {}

    def select(self) -> Select[Any]:
        """What a query begins with."""
        return cast("Select[Any]", select(*self.raw))

    def records(
        self, connection: Connection, queries: Iterable[Select[Any]], skipped: list[UnreadableError] | None = None
    ) -> list[_T]:
        """The rows of these queries, in order; each begins with :meth:`select`. As :func:`records` of rows that cannot
        be read."""
        rows: list[tuple[Any, ...]] = []
        kinds: list[Any] = []
        for query in queries:
            result = connection.execute(query)
            kinds = [column[1] for column in result.cursor.description]
            rows += [tuple(row) for row in result]
        before, now = self._known, dict[tuple[Any, ...], _T]()
        ways: list[tuple[str, Any]] | None = None
        for row in rows:
            if row in now:
                continue
            record = before.get(row)
            if record is None:
                ways = ways or self._ways(connection, kinds)
                try:
                    record = self._record(ways, row)
                except _NOT_OURS:
                    error = self._unreadable(row)
                    if skipped is None:
                        raise error from None
                    skipped.append(error)
                    continue
            now[row] = record
        self._known = now
        return [now[row] for row in rows if row in now]

    def _record(self, ways: Iterable[tuple[str, Any]], row: tuple[Any, ...]) -> _T:
        named = zip(ways, row, strict=True)
        values = {name: raw if way is None else way(raw) for (name, way), raw in named if name not in self._without}
        return self._kind(**values)

    def _unreadable(self, row: tuple[Any, ...]) -> UnreadableError:
        key = [str(raw) for column, raw in zip(self._table.columns, row, strict=True) if column.primary_key]
        shown = ("".join(c if c.isprintable() else "?" for c in part[:_LONGEST_KEY]) for part in key)
        return UnreadableError(self._table.name, tuple(shown))

    def _ways(self, connection: Connection, kinds: Iterable[Any]) -> list[tuple[str, Any]]:
        """By field, what makes its value of what the database gives, which says of which kind that is; None: nothing
        has to."""
        dialect = connection.dialect
        return [
            (column.key, column.type.dialect_impl(dialect).result_processor(dialect, kind))
            for column, kind in zip(self._table.columns, kinds, strict=True)
        ]


def only_fields(kind: type[Any], changes: Mapping[str, object], fixed: Collection[str]) -> None:
    """TypeError for the name of no field, or of one that never changes."""
    known = {field.name for field in dataclasses.fields(kind)} - set(fixed)
    for name in changes:
        if name not in known:
            raise TypeError(f"{kind.__name__}: {name} is nothing that can be changed")


def put(connection: Connection, table: Table, rows: list[dict[str, Any]], *, replacing: Collection[str] = ()) -> None:
    """Inserts rows; where the key is there, the columns in ``replacing`` get the new values, the others stay."""
    keys = [column.key for column in table.primary_key.columns]
    # Two dialects, one syntax.
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    statement = insert(table)
    if replacing:
        changes = {name: statement.excluded[name] for name in replacing}
        connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=changes), rows)
    else:
        connection.execute(statement.on_conflict_do_nothing(index_elements=keys), rows)


def last_seq(connection: Connection, table: Table) -> int:
    """The number of the last row of a list; 0 when it is empty."""
    return int(connection.execute(select(func.coalesce(func.max(table.c.seq), 0))).scalar_one())
