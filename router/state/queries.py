"""Repeated queries about a whole state. Lists that only grow are read from where the reader stopped before."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import TypeVar

from sqlalchemy import ColumnElement, Connection, Text, func, or_, select, type_coerce

from router.ledger.entry import LedgerEntry, LedgerEntryKind
from router.state.attempts import ENDED_PHASES, read_attempts
from router.state.database import Database
from router.state.errors import UnreadableError
from router.state.ledger_rows import parse_entry
from router.state.ledger_table import fetch_rows, read_head, select_rows
from router.state.periods import LEDGER_PERIODS
from router.state.records import Attempt, JournalEntry, NodeRecord, NoticeRecord, Phase
from router.state.rows import RecordCache, StatePart, in_batches, read_records
from router.state.tables import ATTEMPTS, AUDIT_LOG, BUDGETS, JOURNAL, LEDGER, NODES, NOTICES

_OfAttempt = TypeVar("_OfAttempt", NodeRecord, NoticeRecord)
_GangCaches = tuple[RecordCache[Attempt], RecordCache[NodeRecord]]


class StateQueries(StatePart):
    """Queries over the whole state. Like the methods of the store, each is one transaction."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.unreadable: tuple[UnreadableError, ...] = ()
        self._alive = RecordCache(ATTEMPTS, Attempt), RecordCache(NODES, NodeRecord)
        self._notices = RecordCache(NOTICES, NoticeRecord)
        self._current = RecordCache(ATTEMPTS, Attempt), RecordCache(NODES, NodeRecord)
        self._history = RecordCache(ATTEMPTS, Attempt), RecordCache(NODES, NodeRecord)

    def alive(self) -> tuple[tuple[Attempt, ...], tuple[NodeRecord, ...]]:
        """Return the attempts that are not over, by creation time and id, and their machines, by attempt and rank.

        They are as of one moment. Attempts with an unreadable part are left out, and listed in :attr:`unreadable`.
        """
        bad: list[UnreadableError] = []
        found, machines = self._gangs(self._alive, ATTEMPTS.c.phase.not_in(ENDED_PHASES), bad)
        self.unreadable = tuple(bad)
        left_out = {error.key[0] for error in bad}
        return (
            tuple(attempt for attempt in found if attempt.id not in left_out),
            tuple(node for node in machines if node.attempt not in left_out),
        )

    def current(self) -> tuple[tuple[Attempt, ...], dict[str, list[NodeRecord]]]:
        """Return the attempts that are not over, and the newest of each job of each team, with machines by attempt.

        They are as of one moment, by creation time and id. UnreadableError.
        """
        one = ATTEMPTS.c
        newest_first = (one.created_at.desc(), one.id.desc())
        place = func.row_number().over(partition_by=(one.job, one.team), order_by=newest_first).label("place")
        ranked = select(one.id, place).subquery()
        newest = select(ranked.c.id).where(ranked.c.place == 1)
        found, machines = self._gangs(self._current, or_(one.phase.not_in(ENDED_PHASES), one.id.in_(newest)))
        return tuple(found), _by_attempt(machines)

    def _gangs(
        self, caches: _GangCaches, which: ColumnElement[bool], skipped: list[UnreadableError] | None = None
    ) -> tuple[list[Attempt], list[NodeRecord]]:
        """Return attempts by creation time and id, and their machines by attempt and rank, as of one moment."""
        the_attempts, the_nodes = caches
        attempts = the_attempts.select().where(which).order_by(ATTEMPTS.c.created_at, ATTEMPTS.c.id)
        ids = select(ATTEMPTS.c.id).where(which)
        nodes = the_nodes.select().where(NODES.c.attempt.in_(ids)).order_by(NODES.c.attempt, NODES.c.rank)
        with self._database.read() as connection:
            return the_attempts.records(connection, [attempts], skipped), the_nodes.records(
                connection, [nodes], skipped
            )

    def books_version(self) -> tuple[int, int, int, int]:
        """Return what changes with the books: the ledger's head, closed months, and :meth:`budgets_version`."""
        closed = select(func.coalesce(func.max(LEDGER_PERIODS.c.seq), 0))
        with self._database.read() as connection:
            return read_head(connection)[0], int(connection.execute(closed).scalar_one()), *_budgets_version(connection)

    def budgets_version(self) -> tuple[int, int]:
        """Return what changes with budgets: how often they were set, and the last entry about one in the audit log."""
        with self._database.read() as connection:
            return _budgets_version(connection)

    def notices(self) -> tuple[NoticeRecord, ...]:
        """Return the notices to machines of attempts that are not over, in the order in which they were heard."""
        ids = select(ATTEMPTS.c.id).where(ATTEMPTS.c.phase.not_in(ENDED_PHASES))
        order = (NOTICES.c[key] for key in ("heard_at", "attempt", "rank", "id"))
        query = self._notices.select().where(NOTICES.c.attempt.in_(ids)).order_by(*order)
        with self._database.read() as connection:
            return tuple(self._notices.records(connection, [query], []))

    def lives(self, jobs: Iterable[str]) -> tuple[tuple[Attempt, ...], tuple[NodeRecord, ...]]:
        """Return all attempts of these jobs, past ones included, and their machines by attempt and rank.

        A job with an unreadable attempt is left out.
        """
        parts = list(in_batches(jobs))
        the_attempts, the_nodes = self._history
        attempts = [the_attempts.select().where(ATTEMPTS.c.job.in_(part)) for part in parts]
        nodes = [
            the_nodes.select()
            .where(NODES.c.attempt.in_(select(ATTEMPTS.c.id).where(ATTEMPTS.c.job.in_(part))))
            .order_by(NODES.c.attempt, NODES.c.rank)
            for part in parts
        ]
        bad: list[UnreadableError] = []
        with self._database.read() as connection:
            found = the_attempts.records(connection, attempts, bad)
            machines = the_nodes.records(connection, nodes, bad)
            ids = sorted({error.key[0] for error in bad})
            doubtful = select(ATTEMPTS.c.job).where(ATTEMPTS.c.id.in_(ids))
            left_out = set(connection.execute(doubtful).scalars()) if ids else set()
        of_job = {attempt.id: attempt.job for attempt in found if attempt.job not in left_out}
        return (
            tuple(attempt for attempt in found if attempt.id in of_job),
            tuple(node for node in machines if node.attempt in of_job),
        )

    def over_since(self, since: datetime) -> tuple[Attempt, ...]:
        """Return the attempts that are over, gone at that time or later, by that time and id."""
        query = select(ATTEMPTS).where(ATTEMPTS.c.phase.in_(ENDED_PHASES) & (ATTEMPTS.c.gone_at >= since))
        return self._records(ATTEMPTS, query.order_by(ATTEMPTS.c.gone_at, ATTEMPTS.c.id), Attempt)

    def runs(
        self, since: datetime, until: datetime
    ) -> tuple[tuple[Attempt, ...], dict[str, list[NodeRecord]], dict[str, list[NoticeRecord]]]:
        """Return the attempts that had machines between the two moments, by creation time and id.

        Beside them their machines, and the notices to these, both by attempt. Unreadable attempts are left out.
        """
        had = ATTEMPTS.c.made_at.is_not(None) & (ATTEMPTS.c.made_at <= until)
        wanted = had & (ATTEMPTS.c.gone_at.is_(None) | (ATTEMPTS.c.gone_at >= since))
        bad: list[UnreadableError] = []
        with self._database.read() as connection:
            query = select(ATTEMPTS).where(wanted).order_by(ATTEMPTS.c.created_at, ATTEMPTS.c.id)
            found = read_records(connection, ATTEMPTS, query, Attempt, bad)
            ids = select(ATTEMPTS.c.id).where(wanted)
            machines = select(NODES).where(NODES.c.attempt.in_(ids)).order_by(NODES.c.attempt, NODES.c.rank)
            nodes = _by_attempt(read_records(connection, NODES, machines, NodeRecord, bad))
            heard = select(NOTICES).where(NOTICES.c.attempt.in_(ids)).order_by(NOTICES.c.heard_at, NOTICES.c.id)
            notices = _by_attempt(read_records(connection, NOTICES, heard, NoticeRecord, bad))
        left_out = {error.key[0] for error in bad}
        return tuple(attempt for attempt in found if attempt.id not in left_out), nodes, notices

    def attempts(self, ids: Iterable[str]) -> dict[str, Attempt]:
        """Return the attempts of these ids that exist."""
        with self._database.read() as connection:
            return read_attempts(connection, ids)

    def nodes(self, attempts: Iterable[str]) -> dict[str, list[NodeRecord]]:
        """Return the machines of these attempts, by attempt, then rank."""
        nodes: list[NodeRecord] = []
        with self._database.read() as connection:
            for part in in_batches(attempts):
                query = select(NODES).where(NODES.c.attempt.in_(part)).order_by(NODES.c.attempt, NODES.c.rank)
                nodes += read_records(connection, NODES, query, NodeRecord)
        return _by_attempt(nodes)

    def counts(self) -> dict[tuple[Phase, str], int]:
        """Return the number of attempts of each phase and reason, past ones included."""
        query = select(ATTEMPTS.c.phase, ATTEMPTS.c.reason, func.count()).group_by(ATTEMPTS.c.phase, ATTEMPTS.c.reason)
        return {(phase, reason): int(count) for phase, reason, count in self._rows(query)}

    def notes(self, what: Collection[str], after: int = 0) -> tuple[JournalEntry, ...]:
        """Return entries of the journal of these kinds with a ``seq`` above ``after``, in order."""
        query = select(JOURNAL).where((JOURNAL.c.seq > after) & JOURNAL.c.what.in_(sorted(what)))
        return self._records(JOURNAL, query.order_by(JOURNAL.c.seq), JournalEntry)

    def answers(self, attempts: Iterable[str], what: Collection[str]) -> tuple[JournalEntry, ...]:
        """Return entries of the journal of these kinds about these attempts whose details have an ``id``, in order."""
        found: list[JournalEntry] = []
        details = type_coerce(JOURNAL.c.details, Text)
        with self._database.read() as connection:
            for part in in_batches(attempts):
                about = JOURNAL.c.attempt.in_(part) & JOURNAL.c.what.in_(sorted(what))
                # Entries that nobody asked for have an empty id, and there are many of them.
                query = select(JOURNAL).where(about & ~details.contains('"id":""', autoescape=True))
                found += read_records(connection, JOURNAL, query, JournalEntry)
        return tuple(sorted((e for e in found if e.details.get("id")), key=lambda entry: entry.seq))

    def metered(self, after: int = 0) -> tuple[int, tuple[LedgerEntry, ...]]:
        """Return the head of the ledger, and the entries metered above ``after``, in order."""
        with self._database.read() as connection:
            head = read_head(connection)[0]
            new = (LEDGER.c.seq > after) & (LEDGER.c.seq <= head) & (LEDGER.c.kind == LedgerEntryKind.METERED)
            rows = fetch_rows(connection, select_rows(connection).where(new).order_by(LEDGER.c.seq))
            return head, tuple(parse_entry(row[1:-2]) for row in rows)


def _by_attempt(records: Iterable[_OfAttempt]) -> dict[str, list[_OfAttempt]]:
    grouped: dict[str, list[_OfAttempt]] = {}
    for record in records:
        grouped.setdefault(record.attempt, []).append(record)
    return grouped


def _budgets_version(connection: Connection) -> tuple[int, int]:
    count = select(func.count()).select_from(BUDGETS)
    last = select(func.coalesce(func.max(AUDIT_LOG.c.seq), 0)).where(AUDIT_LOG.c.what.startswith("budget"))
    return int(connection.execute(count).scalar_one()), int(connection.execute(last).scalar_one())
