"""Everything of a ledger in a file, and back into a new state, be it another database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select

from router.ledger.month import Month
from router.state.database import Database
from router.state.errors import ExistsError, StateError
from router.state.ledger_checking import Checked, Follower, everything
from router.state.ledger_file import DamagedError, Holds, Title, read_lines, read_title, write_file
from router.state.ledger_rows import entry_of, widened
from router.state.ledger_table import insert_archived, insert_rows, last_of
from router.state.periods import Closing, all_closings
from router.state.rows import last_seq
from router.state.tables import FACTS, LEDGER, LEDGER_ARCHIVES, LEDGER_PERIODS
from router.state.versions import ID

_AT_ONCE = 1000
_CLOSED, _ARCHIVE, _ENTRY, _ARCHIVED = "closed", "archive", "entry", "archived"
_ARCHIVE_COLUMNS = ("seq", "before_month", "at", "who", "file", "sha256", "entries", "totals")


class Backups:
    """The ledger of a database, as a file."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def write(self, path: Path) -> Checked:
        """Writes all of the ledger into a file, as of one moment. ExistsError where there is a file; StateError where
        the ledger is not what was written, or the file cannot be: then there is none."""
        with self._database.snapshot() as connection:
            follower = Follower(all_closings(connection))
            write_file(path, Title(Holds.BACKUP, identity(connection)), _lines(connection, follower))
            return follower.checked()

    def restore(self, path: Path) -> Checked:
        """Puts what a file holds into a ledger in which nothing is, all or nothing, once all of it was checked.
        DamagedError, StateError; ExistsError where something is."""
        if read_title(path).holds is not Holds.BACKUP:
            raise StateError(f"{path} is no backup but an archive", "name a file that `stepfare ledger backup` made")
        found = _checked(path)
        with self._database.write(LEDGER.name) as connection:
            if last_of(connection)[0] or last_seq(connection, LEDGER_PERIODS) or last_seq(connection, LEDGER_ARCHIVES):
                raise ExistsError(
                    f"{self._database.place}: its ledger is not empty",
                    "restore into a new state: another STEPFARE_HOME, or `state` in the deploy file",
                )
            _insert(connection, read_lines(path))
            if last_of(connection) != (found.head, found.hash):
                raise DamagedError(path, "was changed while it was read")
        return found


def identity(connection: Connection) -> str:
    """The id of the state."""
    return str(connection.execute(select(FACTS.c.value).where(FACTS.c.name == ID)).scalar_one())


def _lines(connection: Connection, follower: Follower) -> Iterator[list[Any]]:
    for one in all_closings(connection):
        yield [_CLOSED, str(one.period), one.closed_at.isoformat(), one.who, one.head, one.hash]
    columns = [LEDGER_ARCHIVES.c[name] for name in _ARCHIVE_COLUMNS]
    for values in connection.execute(select(*columns).order_by(LEDGER_ARCHIVES.c.seq)):
        yield [_ARCHIVE, *(value.isoformat() if isinstance(value, datetime) else value for value in values)]
    for row, is_here in everything(connection):
        follower.follow(row, is_here=is_here)
        yield [_ENTRY if is_here else _ARCHIVED, *row]
    _sound(follower.checked())


def _sound(found: Checked) -> Checked:
    if found.problems:
        raise StateError(f"the ledger is not what was written: {'; '.join(found.problems)}")
    return found


def _checked(path: Path) -> Checked:
    """Reads a file to its end, every entry too. DamagedError."""
    closings: list[Closing] = []
    follower: Follower | None = None
    try:
        for name, *values in read_lines(path):
            if name == _CLOSED:
                closings.append(_closing(values))
            elif name in (_ENTRY, _ARCHIVED):
                follower = follower or Follower(closings)
                row = widened(values) if name == _ENTRY else tuple(values)
                if name == _ENTRY:
                    entry_of(row[1:-2])
                follower.follow(row, is_here=name == _ENTRY)
            elif name != _ARCHIVE:
                raise DamagedError(path, f"has a line of an unknown kind, {name!r}")
        found = (follower or Follower(closings)).checked()
    except (ValueError, TypeError, IndexError) as error:
        raise DamagedError(path, f"holds what no ledger does: {error}") from None
    if found.problems:
        raise DamagedError(path, "; ".join(found.problems))
    return found


def _closing(values: list[Any]) -> Closing:
    period, closed_at, who, head, this = values
    return Closing(Month.parse(period), datetime.fromisoformat(closed_at), str(who), int(head), str(this))


def _insert(connection: Connection, lines: Iterable[list[Any]]) -> None:
    closings = archives = 0
    for name, some in groupby(lines, key=lambda line: line[0]):
        if name in (_ENTRY, _ARCHIVED):
            put = insert_rows if name == _ENTRY else insert_archived
            form = widened if name == _ENTRY else tuple
            rows = (form(line[1:]) for line in some)
            while part := list(islice(rows, _AT_ONCE)):
                put(connection, part)
        for line in some if name in (_CLOSED, _ARCHIVE) else ():
            if name == _CLOSED:
                closings += 1
                one = _closing(line[1:])
                row = {"period": str(one.period), "closed_at": one.closed_at, "who": one.who, "head": one.head}
                connection.execute(insert(LEDGER_PERIODS), {"seq": closings, "hash": one.hash, **row})
            else:
                archives += 1
                given = dict(zip(_ARCHIVE_COLUMNS, line[1:], strict=True))
                given["at"] = datetime.fromisoformat(given["at"])
                connection.execute(insert(LEDGER_ARCHIVES), {**given, "seq": archives})
