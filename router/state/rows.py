"""Records to rows and back: a column's key is the name of the field."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite

_T = TypeVar("_T")


def values(record: Any) -> dict[str, Any]:
    """What the fields hold, by name."""
    return {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}


def records(
    connection: Connection, table: Table, query: Select[Any], kind: type[_T], *, without: Collection[str] = ()
) -> list[_T]:
    """The rows of a query on a table, as values of ``kind``; columns in ``without`` are no fields of it."""
    wanted = [(i, column.key) for i, column in enumerate(table.columns) if column.key not in without]
    return [kind(**{name: row[i] for i, name in wanted}) for row in connection.execute(query)]


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
