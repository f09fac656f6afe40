"""Reads and writes rows of the ledger's tables, in the form of :mod:`router.state.ledger_rows` on every database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy import ColumnElement, Connection, Select, Text, func, insert, select, true, type_coerce
from sqlalchemy import cast as as_type
from sqlalchemy.types import NullType, String

from router.state.ledger_rows import BEGINNING, MOMENTS, NAMES, Row, Value
from router.state.rows import BATCH_SIZE
from router.state.tables import LEDGER, LEDGER_ARCHIVED

# The columns that differ from row to row. They include moments and fractions, so that the rest is plain JSON on every
# database.
SINGLE: Final = ("key", *sorted(MOMENTS), "rank", "resource", "quantity", "usd_nanos", "steps", "lost_steps")
REPEATED: Final = tuple(name for name in NAMES if name not in SINGLE)
_PLACES: Final = {name: place for place, name in enumerate(REPEATED)}


@dataclass(frozen=True, slots=True)
class LedgerColumns:
    """Some rows of the ledger, at least one, in order.

    ``single``: a value for each row. The columns of :data:`REPEATED` have in row i the values ``sayings[places[i]]``.
    """

    seqs: Sequence[int]
    single: Mapping[str, Sequence[Any]]
    places: Sequence[int]
    sayings: Sequence[Sequence[Value]]

    def said(self, name: str) -> list[Any]:
        """Return the value that each of the ``sayings`` has for a name of :data:`REPEATED`."""
        place = _PLACES[name]
        return [saying[place] for saying in self.sayings]


def columns_from_rows(rows: Sequence[Row]) -> LedgerColumns:
    """Return whole rows (:mod:`router.state.ledger_rows`) as columns."""
    seqs, *columns = zip(*rows, strict=True)
    given = dict(zip(NAMES, columns[:-2], strict=True))
    repeated = list(zip(*(given[name] for name in REPEATED), strict=True))
    return _build_columns(seqs, {name: given[name] for name in SINGLE}, repeated, lambda saying: saying)


def columns_from_json_rows(rows: Sequence[Row]) -> LedgerColumns:
    """Return rows ``(seq, *SINGLE, REPEATED as a JSON array)`` as columns."""
    seqs, *columns = zip(*rows, strict=True)
    return _build_columns(seqs, dict(zip(SINGLE, columns[:-1], strict=True)), columns[-1], json.loads)


def _build_columns(
    seqs: Sequence[int], single: Mapping[str, Sequence[Any]], sayings: Iterable[Any], read: Any
) -> LedgerColumns:
    index_by_value: dict[Any, int] = {}
    places = [index_by_value.setdefault(saying, len(index_by_value)) for saying in sayings]
    return LedgerColumns(seqs, single, places, [read(saying) for saying in index_by_value])


_AS_IT_IS = NullType()
_ISO = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'
_COLUMNS = ("seq", *NAMES, "previous", "hash")


def select_rows(connection: Connection, *more: Any) -> Select[Any]:
    """Return the beginning of a query whose rows are those of the ledger as they are written, then ``more`` columns."""
    return cast("Select[Any]", select(*(_written_column(connection, name) for name in _COLUMNS), *more))


def _written_column(connection: Connection, name: str) -> ColumnElement[Any]:
    column = LEDGER.c[name]
    if name in MOMENTS and connection.dialect.name != "sqlite":
        return func.to_char(func.timezone("UTC", column), _ISO, type_=String).label(name)
    return type_coerce(column, _AS_IT_IS).label(name)


def fetch_rows(connection: Connection, query: Select[Any]) -> list[Row]:
    """Return the rows of a query that begins with :func:`select_rows`."""
    result = connection.execute(query)
    # The driver's own tuples take half as long on a server as the library's rows.
    rows = cast("list[Row]", result.cursor.fetchall())
    result.close()
    return rows


def insert_rows(connection: Connection, rows: Sequence[Row]) -> None:
    """Append rows that follow the last one."""
    if rows:
        mark = "?" if connection.dialect.name == "sqlite" else "%s"
        marks = ", ".join([mark] * len(_COLUMNS))
        connection.exec_driver_sql(f"INSERT INTO ledger ({', '.join(_COLUMNS)}) VALUES ({marks})", list(rows))


def insert_archived(connection: Connection, rows: Sequence[Row]) -> None:
    """Append ``(seq, key, previous, hash)`` of entries whose archive is elsewhere."""
    if rows:
        names = ("seq", "key", "previous", "hash")
        connection.execute(insert(LEDGER_ARCHIVED), [dict(zip(names, row, strict=True)) for row in rows])


def read_head(connection: Connection) -> tuple[int, str]:
    """Return the number and the hash of the last row, archived or not; 0 and :data:`BEGINNING` if there is none."""
    found = [
        connection.execute(select(table.c.seq, table.c.hash).order_by(table.c.seq.desc()).limit(1)).one_or_none()
        for table in (LEDGER, LEDGER_ARCHIVED)
    ]
    seq, this = max(((row[0], row[1]) for row in found if row is not None), default=(0, BEGINNING))
    return int(seq), str(this)


def read_row_hash(connection: Connection, seq: int) -> str | None:
    """Return the hash of the row with that number, archived or not; None if there is none."""
    for table in (LEDGER, LEDGER_ARCHIVED):
        found = connection.execute(select(table.c.hash).where(table.c.seq == seq)).scalar()
        if found is not None:
            return str(found)
    return None


def find_rows(connection: Connection, keys: Sequence[str]) -> dict[str, Row]:
    """Return the rows of these keys that exist, by key."""
    rows: dict[str, Row] = {}
    for part in _split_keys(keys):
        found = fetch_rows(connection, select_rows(connection).where(LEDGER.c.key.in_(part)))
        rows |= {row[1]: row for row in found}
    return rows


def find_archived_keys(connection: Connection, keys: Sequence[str]) -> set[str]:
    """Return those of the keys whose entries were archived."""
    return {
        key
        for part in _split_keys(keys)
        for key in connection.execute(select(LEDGER_ARCHIVED.c.key).where(LEDGER_ARCHIVED.c.key.in_(part))).scalars()
    }


def read_rows_after(connection: Connection, seq: int, upto: int, max_rows: int, only: Any = None) -> list[Row]:
    """Return the next rows after number ``seq``, in order; empty if there are none.

    They are at most ``max_rows``, and none is above ``upto``. ``only``: a condition that the rows must meet.
    """
    return _read_after(connection, select_rows(connection), seq, upto, max_rows, true() if only is None else only)


def read_columns_after(connection: Connection, seq: int, upto: int, max_rows: int) -> LedgerColumns | None:
    """Return the rows of :func:`read_rows_after` as columns; None if there are none."""
    repeated = [type_coerce(LEDGER.c[name], _AS_IT_IS) for name in REPEATED]
    file = connection.dialect.name == "sqlite"
    said = func.json_array(*repeated) if file else as_type(func.json_build_array(*repeated), Text)
    single = (_written_column(connection, name) for name in ("seq", *SINGLE))
    rows = _read_after(connection, select(*single, type_coerce(said, _AS_IT_IS)), seq, upto, max_rows, true())
    return columns_from_json_rows(rows) if rows else None


def _read_after(
    connection: Connection, query: Select[Any], seq: int, upto: int, max_rows: int, condition: ColumnElement[bool]
) -> list[Row]:
    # Ranges of numbers, not LIMIT: a server that has no statistics yet would sort all later rows for each part.
    while seq < upto:
        end = min(upto, seq + max_rows)
        part = condition & (LEDGER.c.seq > seq) & (LEDGER.c.seq <= end)
        if rows := fetch_rows(connection, query.where(part).order_by(LEDGER.c.seq)):
            return rows
        later = connection.execute(select(func.min(LEDGER.c.seq)).where(condition & (LEDGER.c.seq > end))).scalar()
        seq = upto if later is None else int(later) - 1
    return []


def iterate_rows(connection: Connection, upto: int, max_rows: int, only: Any = None) -> Iterator[Row]:
    """Yield all rows up to ``upto``, in order, read ``max_rows`` at a time; ``only`` as in :func:`read_rows_after`."""
    seq = 0
    while rows := read_rows_after(connection, seq, upto, max_rows, only):
        yield from rows
        seq = rows[-1][0]


def iterate_archived_rows(connection: Connection, max_rows: int) -> Iterator[Row]:
    """Yield ``(seq, key, previous, hash)`` of all archived rows, in order, read ``max_rows`` at a time."""
    seq, columns = 0, (LEDGER_ARCHIVED.c[name] for name in ("seq", "key", "previous", "hash"))
    query = select(*columns).order_by(LEDGER_ARCHIVED.c.seq).limit(max_rows)
    while found := connection.execute(query.where(LEDGER_ARCHIVED.c.seq > seq)).all():
        yield from (tuple(row) for row in found)
        seq = found[-1][0]


def _split_keys(keys: Sequence[str]) -> Iterable[Sequence[str]]:
    return (keys[first : first + BATCH_SIZE] for first in range(0, len(keys), BATCH_SIZE))
