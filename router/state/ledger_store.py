"""The ledger in the database: compare-and-append, each key once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection, insert, select

from router.ledger.entry import Entry, Kind
from router.state.database import Database
from router.state.errors import ConflictError, MovedError
from router.state.rows import last_seq, records, values
from router.state.tables import LEDGER

# Below the most parameters of a statement that any build of SQLite takes.
_KEYS_AT_ONCE = 500


class LedgerStore:
    """The ledger of a database. Its entries are numbered 1, 2, 3 ...; the number of the last is the head."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def head(self) -> int:
        """The number of the last entry; 0 when there is none."""
        with self._database.read() as connection:
            return last_seq(connection, LEDGER)

    def append(self, entries: Sequence[Entry], *, after: int) -> int:
        """Appends all of them, or none; the new head. An entry that is there (but for ``recorded_at``) is skipped.

        MovedError unless ``after`` is the head; ConflictError for a key that is there, or given twice, with other
        content; ValueError for money above nine billion dollars.
        """
        return self._append(entries, after)

    def add(self, entries: Sequence[Entry]) -> int:
        """Appends at whatever the head is; else as :meth:`append`."""
        return self._append(entries, None)

    def entries(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        kind: Kind | None = None,
        job: str | None = None,
        attempt: str | None = None,
        team: str | None = None,
    ) -> tuple[Entry, ...]:
        """Those whose period overlaps ``since`` until before ``until``, of that kind, job, attempt and team, in order.
        None: of any."""
        query = select(LEDGER).order_by(LEDGER.c.seq)
        if since is not None:
            query = query.where(LEDGER.c.end > since)
        if until is not None:
            query = query.where(LEDGER.c.start < until)
        for name, wanted in (("kind", kind), ("job", job), ("attempt", attempt), ("team", team)):
            query = query if wanted is None else query.where(LEDGER.c[name] == wanted)
        with self._database.read() as connection:
            return tuple(records(connection, LEDGER, query, Entry, without=("seq",)))

    def _append(self, entries: Sequence[Entry], after: int | None) -> int:
        with self._database.write(LEDGER.name) as connection:
            head = last_seq(connection, LEDGER)
            if after is not None and after != head:
                raise MovedError(f"the ledger has {head} entries now, not {after}", "read it again")
            new = _new(entries, _known(connection, entries))
            if new:
                connection.execute(insert(LEDGER), [{**values(e), "seq": head + i} for i, e in enumerate(new, 1)])
            return head + len(new)


def _known(connection: Connection, entries: Sequence[Entry]) -> dict[str, Entry]:
    keys = [entry.key for entry in entries]
    known: dict[str, Entry] = {}
    for first in range(0, len(keys), _KEYS_AT_ONCE):
        query = select(LEDGER).where(LEDGER.c.key.in_(keys[first : first + _KEYS_AT_ONCE]))
        known |= {entry.key: entry for entry in records(connection, LEDGER, query, Entry, without=("seq",))}
    return known


def _new(entries: Iterable[Entry], known: dict[str, Entry]) -> list[Entry]:
    """Those to write, each key once. ConflictError."""
    seen, new = dict(known), []
    for entry in entries:
        before = seen.setdefault(entry.key, entry)
        if before is entry:
            new.append(entry)
        elif replace(before, recorded_at=entry.recorded_at) != entry:
            raise ConflictError(f"the ledger has {entry.key} with other content")
    return new
