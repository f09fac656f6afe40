"""The state database, which holds everything that must not be lost.

SQLite by default, PostgreSQL by URL. Each part documents its guarantees; here they are put together. The database
library is imported when a state is opened, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING

from pricing.money import Usd
from router.state.database_url import parse_database_url
from router.state.records import Attempt, AuditEntry, JournalEntry, NodeRecord, NoticeRecord, Shortage

if TYPE_CHECKING:
    from types import TracebackType

    from router.state.database import Database
    from router.state.errors import UnreadableError
    from router.state.lease import Lease
    from router.state.lock_owner import LockOwner

LEASE_SECONDS = 60.0


class StateStore:
    """A state database. May be shared by threads, not across a fork.

    Each method is one transaction, on the disk when it returns, and raises StateError (:mod:`router.state.errors`) with
    nothing written; ValueError or TypeError for a value that cannot be stored, e.g. a time without a zone.
    """

    def __init__(self, database: Database) -> None:
        from router.state.attempts import Attempts
        from router.state.audit import AuditLog
        from router.state.budgets import Budgets
        from router.state.journal import AttemptJournal, Shortages
        from router.state.ledger_archive import LedgerArchives
        from router.state.ledger_backup import LedgerBackups
        from router.state.ledger_store import LedgerStore
        from router.state.notices import NoticeRecords
        from router.state.periods import LedgerPeriods
        from router.state.plans import Plans
        from router.state.queries import StateQueries
        from router.state.state_backup import StateBackup
        from router.state.versions import STATE_ID

        self._database = database
        self._plans = Plans(database)
        self._attempts = Attempts(database)
        self._journal = AttemptJournal(database)
        self._notices = NoticeRecords(database)
        self._shortages = Shortages(database)
        self._audit = AuditLog(database)
        self.ledger = LedgerStore(database)
        self.periods = LedgerPeriods(database)
        self.budgets = Budgets(database)
        self.backups = LedgerBackups(database)
        self.archives = LedgerArchives(database)
        self.whole = StateBackup(database)
        self.overview = StateQueries(database)
        self._id = self._plans.value(STATE_ID) or ""

    @classmethod
    def open(cls, url: str, *, now: datetime, makes: bool = True) -> StateStore:
        """Open the state at ``sqlite:///PATH`` or ``postgresql://...`` and upgrade it to this version.

        It is created when there is none, unless ``makes`` is False. A file is created with its folder and is readable
        by its owner alone. StateError, TooNewError, NoStateError.
        """
        place = parse_database_url(url)
        from router.state.versions import open_database

        database = open_database(place, now, makes=makes)
        try:
            return cls(database)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Close the state; later calls raise StateError, and a second close does nothing."""
        self._database.close()

    def __enter__(self) -> StateStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def id(self) -> str:
        """The identity: "s" and ten hex digits, created once; the tag ``stepfare_state`` of every machine."""
        return self._id

    def value(self, name: str) -> str | None:
        """Return a small fact, None if it was never set."""
        return self._plans.value(name)

    def set_value(self, name: str, value: str) -> None:
        """Set a small fact; ``id`` cannot be set."""
        self._plans.set_value(name, value)

    def put_plan(self, digest: str, text: str, at: datetime) -> None:
        """Store an accepted plan; repeating it is harmless."""
        self._plans.put_plan(digest, text, at)

    def plan(self, digest: str) -> str | None:
        """Return the plan of that digest."""
        return self._plans.plan(digest)

    def put_jobs(self, jobs: Mapping[str, str], at: datetime) -> None:
        """Store the specs of jobs by digest; a later one replaces (values of the environment are in no digest)."""
        self._plans.put_jobs(jobs, at)

    def job(self, digest: str) -> str | None:
        """Return the spec of that digest."""
        return self._plans.job(digest)

    def jobs(self, digests: Iterable[str]) -> dict[str, str]:
        """Return the specs of these digests that exist."""
        return self._plans.jobs(digests)

    def add_attempt(self, attempt: Attempt, nodes: Sequence[NodeRecord]) -> None:
        """Add an attempt with its machines. ExistsError when the id exists."""
        self._attempts.add([(attempt, nodes)])

    def add_attempts(self, made: Sequence[tuple[Attempt, Sequence[NodeRecord]]]) -> None:
        """Add many attempts with their machines: all or none."""
        self._attempts.add(made)

    def attempt(self, attempt_id: str) -> Attempt | None:
        """Return the attempt of that id."""
        return self._attempts.get(attempt_id)

    def attempts(
        self,
        *,
        plan: str | None = None,
        job: str | None = None,
        gang: str | None = None,
        alive: bool = False,
        skipped: list[UnreadableError] | None = None,
    ) -> tuple[Attempt, ...]:
        """Return the attempts of a plan, job and gang (None: of any), by created_at and id.

        ``alive``: only those not over. An unreadable attempt is added to ``skipped``, if that is given; else
        UnreadableError.
        """
        return self._attempts.find(plan, job, gang, alive, skipped)

    def ended_last(self, since: datetime) -> tuple[Attempt, ...]:
        """Return the failed attempts, gone since ``since``, that are the newest of their job; by created_at and id."""
        return self._attempts.ended_last(since)

    def change(self, attempt: Attempt, **changes: object) -> Attempt:
        """Return the attempt with these fields changed.

        ConcurrentChangeError when it changed since it was read; TypeError.
        """
        return self._attempts.change(attempt, changes)

    def update(self, attempt_id: str, change: Callable[[Attempt], Attempt | None]) -> Attempt:
        """Read an attempt, apply ``change`` and write it; retry until no other writer interferes.

        None leaves it unchanged.
        """
        return self._attempts.update(attempt_id, change)

    def update_all(self, changes: Mapping[str, Callable[[Attempt], Attempt | None]]) -> dict[str, Attempt]:
        """Apply :meth:`update` to many attempts, by id, all or none, and return each as changed.

        A change may be called more than once.
        """
        return self._attempts.update_all(changes)

    def versions(self) -> dict[str, int]:
        """Return the version of every attempt that is not over, by id: a cheap way to see whether something changed."""
        return self._attempts.versions()

    def nodes(self, attempt_id: str) -> tuple[NodeRecord, ...]:
        """Return the machines of an attempt, by rank."""
        return self._attempts.nodes(attempt_id)

    def set_node(self, attempt_id: str, rank: int, **changes: object) -> None:
        """Change fields of a machine. MissingError, TypeError."""
        self._attempts.set_nodes({(attempt_id, rank): changes})

    def set_nodes(self, changes: Mapping[tuple[str, int], Mapping[str, object]]) -> None:
        """Change fields of many machines, by attempt and rank: all or none. MissingError, TypeError."""
        self._attempts.set_nodes(changes)

    def note(self, attempt_id: str, what: str, at: datetime, **details: object) -> None:
        """Append to the journal. TypeError for details that are not JSON data."""
        self._journal.note([(attempt_id, details)], what, at)

    def note_all(self, notes: Sequence[tuple[str, Mapping[str, object]]], what: str, at: datetime) -> None:
        """Append to the journal for many attempts, each with its details: all or none."""
        self._journal.note(notes, what, at)

    def note_with_node(
        self,
        attempt_id: str,
        rank: int,
        changes: Mapping[str, object],
        what: str,
        at: datetime,
        details: Mapping[str, object],
    ) -> None:
        """Do :meth:`note` and :meth:`set_node`: both or neither."""
        self._journal.note_with_node(attempt_id, rank, changes, what, at, details)

    def journal(
        self, attempt_id: str | None = None, *, what: Collection[str] | None = None, id_: str | None = None
    ) -> tuple[JournalEntry, ...]:
        """Return the journal of an attempt (None: of all), in order.

        If given, only entries of these kinds, and only those whose details have this ``id``.
        """
        return self._journal.entries(attempt_id, what, id_)

    def add_notice(self, notice: NoticeRecord) -> None:
        """Store a notice to a machine; one that exists by attempt, rank and id is left unchanged."""
        self._notices.add(notice)

    def add_notice_with(self, notice: NoticeRecord, change: Callable[[Attempt], Attempt | None]) -> Attempt:
        """Do :meth:`add_notice`, and :meth:`update` of its attempt, in one transaction.

        ``change`` is also called where the notice existed before.
        """
        return self._notices.add_with(notice, change)

    def notices(self, attempt: str | None = None, since: datetime | None = None) -> tuple[NoticeRecord, ...]:
        """Return the notices of an attempt (None: of all) heard at ``since`` or later, in that order."""
        return self._notices.find(attempt, since)

    def remember_short(self, *shortages: Shortage) -> None:
        """Add pools that are short for a while: all or none."""
        self._shortages.remember(shortages)

    def shortages(self, now: datetime) -> tuple[Shortage, ...]:
        """Return the shortages still in force, in the order in which they were found."""
        return self._shortages.in_force(now)

    def shortages_since(self, moment: datetime) -> tuple[Shortage, ...]:
        """Return the shortages found at ``moment`` or later, also past ones; of these the ones of the last day."""
        return self._shortages.found_since(moment)

    def audit(self, who: str, what: str, digest: str, usd: Usd, at: datetime, **details: object) -> AuditEntry:
        """Append to the audit log. TypeError for details that are not JSON data."""
        return self._audit.add(who, what, digest, usd, at, details)

    def audit_log(self) -> tuple[AuditEntry, ...]:
        """Return the audit log; :func:`router.state.audit.verify_chain` checks it."""
        return self._audit.entries()

    def lease(
        self, name: str, holder: LockOwner, now: Callable[[], datetime], *, seconds: float = LEASE_SECONDS
    ) -> AbstractContextManager[Lease]:
        """Hold a lease while the block runs. LeaseHeldError at once when another process has it.

        ``now`` is the real time of day. A holder loses it ``seconds`` after its last renewal, on this machine as soon
        as its process is dead.
        """
        from router.state.lease import Leases

        return Leases(self._database, now, seconds).held(name, holder)
