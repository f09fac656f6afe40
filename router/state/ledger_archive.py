"""Archives: entries of closed months that are moved to a file.

What stays is enough to check the chain and the totals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from router.ledger.month import Month
from router.state.columns import storable_text
from router.state.errors import ConcurrentChangeError, StateError
from router.state.ledger_backup import read_state_id
from router.state.ledger_file import (
    DamagedError,
    LedgerFileKind,
    LedgerFileTitle,
    read_checksum,
    read_lines,
    read_title,
    write_file,
)
from router.state.ledger_rows import NAMES, Row, hash_row, parse_row
from router.state.ledger_table import iterate_archived_rows, iterate_rows
from router.state.periods import last_closed_month
from router.state.rows import StatePart, read_last_seq, record_values
from router.state.tables import LEDGER, LEDGER_ARCHIVED, LEDGER_ARCHIVES

_AT_ONCE = 5000
_ENTRY = "entry"
_PERIOD, _KIND, _NANOS = (1 + NAMES.index(name) for name in ("period", "kind", "usd_nanos"))


@dataclass(frozen=True, slots=True)
class LedgerArchive:
    """An archive of the entries in the books of months before ``before``.

    ``file`` is the name of its file at that time, ``sha256`` the file's checksum. ``totals``: month, kind, entries,
    nano-dollars, in order.
    """

    before: Month
    at: datetime
    who: str
    file: str
    sha256: str
    entries: int
    totals: tuple[tuple[str, str, int, int], ...]


class LedgerArchives(StatePart):
    """The archives of a database's ledger."""

    def archive(self, before: Month, path: Path, *, who: str, at: datetime) -> LedgerArchive:
        """Move the entries in the books of months before ``before``, all closed, into a file.

        StateError, ExistsError if another file is there, ConcurrentChangeError if another process just archived them;
        nothing was moved then. If it was killed between the file and the move, repeating it does the rest: the file is
        the same.
        """
        # Closed books do not change any more, so the long part needs no lock.
        with self._database.snapshot() as connection:
            _check_closed(connection, before)
            found = _count_entries(connection, before)
            if not found[0]:
                raise StateError(f"there are no entries in the books of months before {before}")
            sums: Counter[tuple[str, str]] = Counter()
            counts: Counter[tuple[str, str]] = Counter()
            lines = _lines(connection, before, found[2], sums, counts)
            digest = write_file(
                path,
                LedgerFileTitle(LedgerFileKind.ARCHIVE, read_state_id(connection), str(before)),
                lines,
                same_is_fine=True,
            )
        totals = tuple((month, kind, counts[month, kind], sums[month, kind]) for month, kind in sorted(counts))
        with self._database.write(LEDGER.name) as connection:
            if _count_entries(connection, before) != found:
                raise ConcurrentChangeError(
                    f"entries of months before {before} were archived meanwhile", "run the command again"
                )
            done = LedgerArchive(before, at, storable_text(who), path.name, digest, found[0], totals)
            _move(connection, done)
        return done

    def all(self) -> tuple[LedgerArchive, ...]:
        """Return all archives, in order."""
        with self._database.read() as connection:
            return _archives(connection)

    def check(self, path: Path) -> LedgerArchive:
        """Check that the file is an archive of this ledger, entry for entry, and return it.

        DamagedError, StateError.
        """
        if read_title(path).holds is not LedgerFileKind.ARCHIVE:
            raise StateError(f"{path} is no archive", "name a file that `stepfare ledger archive` made")
        rows = dict[int, str]()
        for _, *line in read_lines(path):
            seq, *values, previous, this = _row(path, line)
            if hash_row(seq, values, previous) != this:
                raise DamagedError(path, f"entry {seq} is not what was written")
            rows[seq] = this
        with self._database.snapshot() as connection:
            archive = next((one for one in _archives(connection) if one.sha256 == read_checksum(path)), None)
            here = sum(rows.get(row[0]) == row[3] for row in iterate_archived_rows(connection, _AT_ONCE))
        if archive is None or not archive.entries == here == len(rows):
            raise DamagedError(path, "is not what was archived from this ledger")
        return archive


def _row(path: Path, line: list[Any]) -> Row:
    try:
        return parse_row(line)
    except ValueError as error:
        raise DamagedError(path, f"holds what no ledger contains: {error}") from None


def _check_closed(connection: Connection, before: Month) -> None:
    closed = last_closed_month(connection)
    if closed is None or before > closed.next:
        last = "no month is" if closed is None else f"only months up to {closed} are"
        raise StateError(f"{last} closed", "close the others first: `stepfare ledger close`")


def _count_entries(connection: Connection, before: Month) -> tuple[int, int, int]:
    query = select(func.count(), func.coalesce(func.min(LEDGER.c.seq), 0), func.coalesce(func.max(LEDGER.c.seq), 0))
    count, first, last = connection.execute(query.where(LEDGER.c.period < str(before))).one()
    return int(count), int(first), int(last)


def _lines(
    connection: Connection, before: Month, last: int, sums: Counter[tuple[str, str]], counts: Counter[tuple[str, str]]
) -> Iterator[list[Any]]:
    row: Row
    for row in iterate_rows(connection, last, _AT_ONCE, LEDGER.c.period < str(before)):
        seq, values, previous, this = row[0], row[1:-2], row[-2], row[-1]
        if hash_row(seq, values, previous) != this:
            raise StateError(f"entry {seq} is not what was written", "see `stepfare ledger verify`")
        group = (row[_PERIOD], row[_KIND])
        sums[group] += row[_NANOS]
        counts[group] += 1
        yield [_ENTRY, *row]


def _move(connection: Connection, done: LedgerArchive) -> None:
    gone = LEDGER.c.period < str(done.before)
    names = ("seq", "key", "previous", "hash")
    left = select(*(LEDGER.c[name] for name in names)).where(gone).order_by(LEDGER.c.seq)
    connection.execute(insert(LEDGER_ARCHIVED).from_select(names, left))
    row = record_values(done)
    number, month = read_last_seq(connection, LEDGER_ARCHIVES) + 1, str(row.pop("before"))
    connection.execute(insert(LEDGER_ARCHIVES), {"seq": number, "before_month": month, **row})
    connection.execute(delete(LEDGER).where(gone))


def _archives(connection: Connection) -> tuple[LedgerArchive, ...]:
    return tuple(
        LedgerArchive(
            Month.parse(row.before_month),
            row.at,
            row.who,
            row.file,
            row.sha256,
            row.entries,
            tuple((month, kind, count, nanos) for month, kind, count, nanos in row.totals),
        )
        for row in connection.execute(select(LEDGER_ARCHIVES).order_by(LEDGER_ARCHIVES.c.seq))
    )
