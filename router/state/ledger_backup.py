"""Backups of a whole ledger in a file, and their restoration into a new state, of any kind of database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select

from router.ledger.month import Month
from router.state.errors import ExistsError, StateError
from router.state.ledger_file import DamagedError, LedgerFileKind, LedgerFileTitle, read_lines, read_title, write_file
from router.state.ledger_rows import parse_entry, parse_row
from router.state.ledger_store import LedgerCheck, LedgerChecker, iterate_all_rows
from router.state.ledger_table import insert_archived, insert_rows, read_head
from router.state.periods import LEDGER_PERIODS, PeriodClosing, read_closings
from router.state.rows import StatePart, read_last_seq, record_values
from router.state.tables import BUDGETS, FACTS, LEDGER, LEDGER_ARCHIVES
from router.state.versions import STATE_ID

_AT_ONCE = 1000
_CLOSED, _ARCHIVE, _ENTRY, _ARCHIVED = "closed", "archive", "entry", "archived"
LEDGER_KINDS = frozenset({_CLOSED, _ARCHIVE, _ENTRY, _ARCHIVED})
_ARCHIVE_COLUMNS = ("seq", "before_month", "at", "who", "file", "sha256", "entries", "totals")


class LedgerBackups(StatePart):
    """Backups of a database's ledger."""

    def write(self, path: Path) -> LedgerCheck:
        """Write the whole ledger into a file, as of one moment.

        ExistsError if there is a file; StateError if the ledger is not as it was written, or the file cannot be
        written: then there is none.
        """
        with self._database.snapshot() as connection:
            follower = LedgerChecker(read_closings(connection))
            write_file(
                path,
                LedgerFileTitle(LedgerFileKind.BACKUP, read_state_id(connection)),
                ledger_lines(connection, follower),
            )
            return follower.checked()

    def restore(self, path: Path) -> LedgerCheck:
        """Put a file's entries into an empty ledger, all or nothing, after checking all of them.

        DamagedError, StateError; ExistsError if the ledger is not empty.
        """
        holds = read_title(path).holds
        if holds is not LedgerFileKind.BACKUP:
            kind = "an archive" if holds is LedgerFileKind.ARCHIVE else "a whole state"
            raise StateError(f"{path} is no backup but {kind}", "name a file that `stepfare ledger backup` made")
        result = check_lines(path, read_lines(path))
        with self._database.write(LEDGER.name) as connection:
            if (
                read_head(connection)[0]
                or read_last_seq(connection, LEDGER_PERIODS)
                or read_last_seq(connection, LEDGER_ARCHIVES)
            ):
                raise ExistsError(
                    f"{self._database.place}: its ledger is not empty",
                    "restore into a new state: another STEPFARE_HOME, or `state` in the deploy file",
                )
            insert_lines(connection, read_lines(path))
            if read_head(connection) != (result.head, result.hash):
                raise DamagedError(path, "was changed while it was read")
        return result


def read_state_id(connection: Connection) -> str:
    """Return the id of the state."""
    return str(connection.execute(select(FACTS.c.value).where(FACTS.c.name == STATE_ID)).scalar_one())


def ledger_lines(connection: Connection, follower: LedgerChecker) -> Iterator[list[Any]]:
    """Yield the whole ledger as lines of a file. StateError at the end if it is not as it was written."""
    for one in read_closings(connection):
        seal = [one.seal, one.seal_hash] if one.seal else []
        yield [_CLOSED, str(one.period), one.closed_at.isoformat(), one.who, one.head, one.hash, *seal]
    columns = [LEDGER_ARCHIVES.c[name] for name in _ARCHIVE_COLUMNS]
    for values in connection.execute(select(*columns).order_by(LEDGER_ARCHIVES.c.seq)):
        yield [_ARCHIVE, *(value.isoformat() if isinstance(value, datetime) else value for value in values)]
    for row, is_here in iterate_all_rows(connection):
        follower.follow(row, is_here=is_here)
        yield [_ENTRY if is_here else _ARCHIVED, *row]
    if problems := follower.checked().problems:
        raise StateError(f"the ledger is not what was written: {'; '.join(problems)}")


def check_lines(path: Path, lines: Iterable[list[Any]]) -> LedgerCheck:
    """Read the lines of a ledger in a file to their end, and check every entry. DamagedError."""
    closings: list[PeriodClosing] = []
    follower: LedgerChecker | None = None
    try:
        for name, *values in lines:
            if name == _CLOSED:
                closings.append(_parse_closing(values))
            elif name in (_ENTRY, _ARCHIVED):
                follower = follower or LedgerChecker(closings)
                row = parse_row(values) if name == _ENTRY else tuple(values)
                if name == _ENTRY:
                    parse_entry(row[1:-2])
                follower.follow(row, is_here=name == _ENTRY)
            elif name != _ARCHIVE:
                raise DamagedError(path, f"has a line of an unknown kind, {name!r}")
        result = (follower or LedgerChecker(closings)).checked()
    except (ValueError, TypeError, IndexError) as error:
        raise DamagedError(path, f"holds what no ledger contains: {error}") from None
    if result.problems:
        raise DamagedError(path, "; ".join(result.problems))
    return result


def _parse_closing(values: list[Any]) -> PeriodClosing:
    period, closed_at, who, head, this, *seal = values
    kept = [str(each) for each in seal]
    return PeriodClosing(Month.parse(period), datetime.fromisoformat(closed_at), str(who), int(head), str(this), *kept)


def _put_budgets(connection: Connection, closing: PeriodClosing) -> None:
    """Add the budgets that a month was closed with, if they are missing: without them its seal would not hold."""
    for budget in closing.sealed.get("budgets", ()):
        found = {**budget, "at": datetime.fromisoformat(budget["at"])}
        key = {name: found[name] for name in ("scope", "name", "since", "at")}
        there = select(BUDGETS.c.scope).where(*(BUDGETS.c[name] == value for name, value in key.items()))
        if connection.execute(there).first() is None:
            connection.execute(insert(BUDGETS), found)


def insert_lines(connection: Connection, lines: Iterable[list[Any]]) -> None:
    """Insert the lines of a ledger into an empty one."""
    closings = archives = 0
    for name, group in groupby(lines, key=lambda line: line[0]):
        if name in (_ENTRY, _ARCHIVED):
            put = insert_rows if name == _ENTRY else insert_archived
            form = parse_row if name == _ENTRY else tuple
            rows = (form(line[1:]) for line in group)
            while part := list(islice(rows, _AT_ONCE)):
                put(connection, part)
        for line in group if name in (_CLOSED, _ARCHIVE) else ():
            if name == _CLOSED:
                closings += 1
                one = _parse_closing(line[1:])
                connection.execute(insert(LEDGER_PERIODS), {"seq": closings, **record_values(one)})
                _put_budgets(connection, one)
            else:
                archives += 1
                given = dict(zip(_ARCHIVE_COLUMNS, line[1:], strict=True))
                given["at"] = datetime.fromisoformat(given["at"])
                connection.execute(insert(LEDGER_ARCHIVES), {**given, "seq": archives})
