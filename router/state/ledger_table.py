"""Rows of the ledger to and from its tables, in the form of :mod:`router.state.ledger_rows` on every database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, Select, Text, func, insert, select, true, type_coerce
from sqlalchemy import cast as as_type
from sqlalchemy.types import NullType, String

from router.state.ledger_columns import REPEATED, SINGLE, Columns, columns_read
from router.state.ledger_rows import BEGINNING, MOMENTS, NAMES, Row
from router.state.rows import AT_ONCE
from router.state.tables import LEDGER, LEDGER_ARCHIVED

_AS_IT_IS = NullType()
_ISO = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'
_COLUMNS = ("seq", *NAMES, "previous", "hash")


def selected(connection: Connection, *more: Any) -> Select[Any]:
    """The beginning of a query whose rows are those of the ledger as they are written down, ``more`` columns after
    them."""
    return cast("Select[Any]", select(*(_as_written(connection, name) for name in _COLUMNS), *more))


def _as_written(connection: Connection, name: str) -> ColumnElement[Any]:
    column = LEDGER.c[name]
    if name in MOMENTS and connection.dialect.name != "sqlite":
        return func.to_char(func.timezone("UTC", column), _ISO, type_=String).label(name)
    return type_coerce(column, _AS_IT_IS).label(name)


def rows_of(connection: Connection, query: Select[Any]) -> list[Row]:
    """What a query brings that begins with :func:`selected`."""
    result = connection.execute(query)
    # The driver's own tuples: on a server half as long as by way of the library's rows.
    found = cast("list[Row]", result.cursor.fetchall())
    result.close()
    return found


def insert_rows(connection: Connection, rows: Sequence[Row]) -> None:
    """Appends rows that follow the last one."""
    if rows:
        mark = "?" if connection.dialect.name == "sqlite" else "%s"
        marks = ", ".join([mark] * len(_COLUMNS))
        connection.exec_driver_sql(f"INSERT INTO ledger ({', '.join(_COLUMNS)}) VALUES ({marks})", list(rows))


def insert_archived(connection: Connection, rows: Sequence[Row]) -> None:
    """Appends ``(seq, key, previous, hash)`` of entries whose archive is elsewhere."""
    if rows:
        names = ("seq", "key", "previous", "hash")
        connection.execute(insert(LEDGER_ARCHIVED), [dict(zip(names, row, strict=True)) for row in rows])


def last_of(connection: Connection) -> tuple[int, str]:
    """The number and the hash of the last row, be it archived; 0 and :data:`BEGINNING` where there is none."""
    found = [
        connection.execute(select(table.c.seq, table.c.hash).order_by(table.c.seq.desc()).limit(1)).one_or_none()
        for table in (LEDGER, LEDGER_ARCHIVED)
    ]
    seq, this = max(((row[0], row[1]) for row in found if row is not None), default=(0, BEGINNING))
    return int(seq), str(this)


def hash_of_row(connection: Connection, seq: int) -> str | None:
    """The hash of the row with that number, be it archived; None where there is none."""
    for table in (LEDGER, LEDGER_ARCHIVED):
        found = connection.execute(select(table.c.hash).where(table.c.seq == seq)).scalar()
        if found is not None:
            return str(found)
    return None


def known_rows(connection: Connection, keys: Sequence[str]) -> dict[str, Row]:
    """The rows of these keys that there are."""
    known: dict[str, Row] = {}
    for part in _parts(keys):
        found = rows_of(connection, selected(connection).where(LEDGER.c.key.in_(part)))
        known |= {row[1]: row for row in found}
    return known


def archived_keys(connection: Connection, keys: Sequence[str]) -> set[str]:
    """Those of these keys whose entries were archived."""
    return {
        key
        for part in _parts(keys)
        for key in connection.execute(select(LEDGER_ARCHIVED.c.key).where(LEDGER_ARCHIVED.c.key.in_(part))).scalars()
    }


def rows_after(connection: Connection, seq: int, upto: int, most: int, only: Any = None) -> list[Row]:
    """The next rows after number ``seq``, ``most`` or fewer, none above ``upto``, in order; none where there are none.
    ``only``: those of which that is true."""
    return _after(connection, selected(connection), seq, upto, most, true() if only is None else only)


def columns_after(connection: Connection, seq: int, upto: int, most: int) -> Columns | None:
    """The rows of :func:`rows_after` as columns; None where there are none."""
    repeated = [type_coerce(LEDGER.c[name], _AS_IT_IS) for name in REPEATED]
    file = connection.dialect.name == "sqlite"
    said = func.json_array(*repeated) if file else as_type(func.json_build_array(*repeated), Text)
    single = (_as_written(connection, name) for name in ("seq", *SINGLE))
    found = _after(connection, select(*single, type_coerce(said, _AS_IT_IS)), seq, upto, most, true())
    return columns_read(found) if found else None


def _after(
    connection: Connection, query: Select[Any], seq: int, upto: int, most: int, wanted: ColumnElement[bool]
) -> list[Row]:
    # Numbers, not LIMIT: a server that has no statistics yet would sort all that follows for each part.
    while seq < upto:
        end = min(upto, seq + most)
        part = wanted & (LEDGER.c.seq > seq) & (LEDGER.c.seq <= end)
        if found := rows_of(connection, query.where(part).order_by(LEDGER.c.seq)):
            return found
        later = connection.execute(select(func.min(LEDGER.c.seq)).where(wanted & (LEDGER.c.seq > end))).scalar()
        seq = upto if later is None else int(later) - 1
    return []


def all_rows(connection: Connection, upto: int, most: int, only: Any = None) -> Iterator[Row]:
    """All rows up to ``upto``, in order, read ``most`` at a time; ``only`` as :func:`rows_after`."""
    seq = 0
    while found := rows_after(connection, seq, upto, most, only):
        yield from found
        seq = found[-1][0]


def archived_rows(connection: Connection, most: int) -> Iterator[Row]:
    """``(seq, key, previous, hash)`` of all that were archived, in order, read ``most`` at a time."""
    seq, columns = 0, (LEDGER_ARCHIVED.c[name] for name in ("seq", "key", "previous", "hash"))
    query = select(*columns).order_by(LEDGER_ARCHIVED.c.seq).limit(most)
    while found := connection.execute(query.where(LEDGER_ARCHIVED.c.seq > seq)).all():
        yield from (tuple(row) for row in found)
        seq = found[-1][0]


def _parts(keys: Sequence[str]) -> Iterable[Sequence[str]]:
    return (keys[first : first + AT_ONCE] for first in range(0, len(keys), AT_ONCE))
