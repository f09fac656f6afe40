"""The state database: one place where everything is that must not be lost.

SQLite by default, PostgreSQL by URL. What each part promises is said there; here they are put together. The database
library is imported when a state is opened, not before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING

from pricing.money import Usd
from router.state.database_url import place_of
from router.state.records import Attempt, AuditEntry, JournalEntry, NodeRecord, NoticeRecord, Shortage

if TYPE_CHECKING:
    from types import TracebackType

    from router.state.database import Database
    from router.state.errors import UnreadableError
    from router.state.lease import Lease
    from router.state.lock_owner import Holder

LEASE_SECONDS = 60.0


class Store:
    """May be shared by threads, not across a fork. Each method is one transaction, on the disk when it returns, and
    raises StateError (:mod:`router.state.errors`) with nothing written; ValueError or TypeError for a value that cannot
    be kept, e.g. a time without a zone."""

    def __init__(self, database: Database) -> None:
        from router.state.attempts import Attempts
        from router.state.audit import Audit
        from router.state.budgets import Budgets
        from router.state.journal import Journal, Shortages
        from router.state.ledger_archive import Archives
        from router.state.ledger_backup import Backups
        from router.state.ledger_store import LedgerStore
        from router.state.notices import Notices
        from router.state.periods import Periods
        from router.state.plans import Plans
        from router.state.queries import Overview
        from router.state.state_backup import StateBackup
        from router.state.versions import ID

        self._database = database
        self._plans = Plans(database)
        self._attempts = Attempts(database)
        self._journal = Journal(database)
        self._notices = Notices(database)
        self._shortages = Shortages(database)
        self._audit = Audit(database)
        self.ledger = LedgerStore(database)
        self.periods = Periods(database)
        self.budgets = Budgets(database)
        self.backups = Backups(database)
        self.archives = Archives(database)
        self.whole = StateBackup(database)
        self.overview = Overview(database)
        self._id = self._plans.value(ID) or ""

    @classmethod
    def open(cls, url: str, *, now: datetime, makes: bool = True) -> Store:
        """The state at ``sqlite:///PATH`` or ``postgresql://...``; made when there is none, unless ``makes`` is False;
        brought to this version.

        A file is made with its folder and is readable by its owner alone. StateError, TooNewError, NoStateError.
        """
        place = place_of(url)
        from router.state.versions import open_database

        database = open_database(place, now, makes=makes)
        try:
            return cls(database)
        except BaseException:
            database.close()
            raise

    def close(self) -> None:
        """Later calls raise StateError; a second one does nothing."""
        self._database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def id(self) -> str:
        """ "s" and ten hex digits, made once: the tag ``stepfare_state`` of every machine."""
        return self._id

    def value(self, name: str) -> str | None:
        """A small fact, None where it was never set."""
        return self._plans.value(name)

    def set_value(self, name: str, value: str) -> None:
        """Sets a small fact; ``id`` is none that can be set."""
        self._plans.set_value(name, value)

    def put_plan(self, digest: str, text: str, at: datetime) -> None:
        """Keeps an accepted plan; again is harmless."""
        self._plans.put_plan(digest, text, at)

    def plan(self, digest: str) -> str | None:
        """The plan of that digest."""
        return self._plans.plan(digest)

    def put_jobs(self, jobs: Mapping[str, str], at: datetime) -> None:
        """Keeps the specs of jobs by digest; a later one replaces (values of the environment are in no digest)."""
        self._plans.put_jobs(jobs, at)

    def job(self, digest: str) -> str | None:
        """The spec of that digest."""
        return self._plans.job(digest)

    def jobs(self, digests: Iterable[str]) -> dict[str, str]:
        """The specs of these digests that there are."""
        return self._plans.jobs(digests)

    def add_attempt(self, attempt: Attempt, nodes: Sequence[NodeRecord]) -> None:
        """Adds an attempt with its machines. ExistsError when the id is there."""
        self._attempts.add([(attempt, nodes)])

    def add_attempts(self, made: Sequence[tuple[Attempt, Sequence[NodeRecord]]]) -> None:
        """As :meth:`add_attempt` of many: all or none."""
        self._attempts.add(made)

    def attempt(self, attempt_id: str) -> Attempt | None:
        """The attempt of that id."""
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
        """Those of a plan, job and gang (None: of any), by created_at and id; ``alive``: only those not over. One that
        cannot be read is added to ``skipped``, where that is given; else UnreadableError."""
        return self._attempts.find(plan, job, gang, alive, skipped)

    def ended_last(self, since: datetime) -> tuple[Attempt, ...]:
        """Those that failed, gone at ``since`` or later, and are the newest of their job; by created_at and id."""
        return self._attempts.ended_last(since)

    def change(self, attempt: Attempt, **changes: object) -> Attempt:
        """The attempt with these fields changed. MovedError when it was changed since it was read; TypeError."""
        return self._attempts.change(attempt, changes)

    def update(self, attempt_id: str, change: Callable[[Attempt], Attempt | None]) -> Attempt:
        """Reads, applies ``change`` and writes, again until nobody was in between; None leaves it as it is."""
        return self._attempts.update(attempt_id, change)

    def update_all(self, changes: Mapping[str, Callable[[Attempt], Attempt | None]]) -> dict[str, Attempt]:
        """As :meth:`update` of many, by id, all or none: each as it is then. A change may be asked more than once."""
        return self._attempts.update_all(changes)

    def versions(self) -> dict[str, int]:
        """The version of every attempt that is not over, by id: whether something changed, for little."""
        return self._attempts.versions()

    def nodes(self, attempt_id: str) -> tuple[NodeRecord, ...]:
        """The machines of an attempt, by rank."""
        return self._attempts.nodes(attempt_id)

    def set_node(self, attempt_id: str, rank: int, **changes: object) -> None:
        """Changes fields of a machine. MissingError, TypeError."""
        self._attempts.set_nodes({(attempt_id, rank): changes})

    def set_nodes(self, changes: Mapping[tuple[str, int], Mapping[str, object]]) -> None:
        """Changes fields of many machines, by attempt and rank: all or none. MissingError, TypeError."""
        self._attempts.set_nodes(changes)

    def note(self, attempt_id: str, what: str, at: datetime, **details: object) -> None:
        """Appends to the journal. TypeError for details that are not JSON data."""
        self._journal.note([(attempt_id, details)], what, at)

    def note_all(self, notes: Sequence[tuple[str, Mapping[str, object]]], what: str, at: datetime) -> None:
        """As :meth:`note` for many attempts, each with its details: all or none."""
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
        """As :meth:`note` and :meth:`set_node`: both or neither."""
        self._journal.note_with_node(attempt_id, rank, changes, what, at, details)

    def journal(
        self, attempt_id: str | None = None, *, what: Collection[str] | None = None, id_: str | None = None
    ) -> tuple[JournalEntry, ...]:
        """The journal of an attempt (None: of all), in order; only entries of these kinds, whose details have this
        ``id``, where given."""
        return self._journal.entries(attempt_id, what, id_)

    def add_notice(self, notice: NoticeRecord) -> None:
        """Keeps what was announced to a machine; one that is there by attempt, rank and id stays as it is."""
        self._notices.add(notice)

    def add_notice_with(self, notice: NoticeRecord, change: Callable[[Attempt], Attempt | None]) -> Attempt:
        """As :meth:`add_notice`, and as :meth:`update` of its attempt, in one transaction. ``change`` is also asked
        where the notice was there before."""
        return self._notices.add_with(notice, change)

    def notices(self, attempt: str | None = None, since: datetime | None = None) -> tuple[NoticeRecord, ...]:
        """Those of an attempt (None: of all) heard at ``since`` or later, in the order in which they were heard."""
        return self._notices.find(attempt, since)

    def remember_short(self, *shortages: Shortage) -> None:
        """Adds pools that are short for a while: all or none."""
        self._shortages.remember(shortages)

    def shortages(self, now: datetime) -> tuple[Shortage, ...]:
        """Those still in force, in the order they were found."""
        return self._shortages.in_force(now)

    def shortages_since(self, moment: datetime) -> tuple[Shortage, ...]:
        """Those found at ``moment`` or later, also past ones; of these the ones of the last day."""
        return self._shortages.found_since(moment)

    def audit(self, who: str, what: str, digest: str, usd: Usd, at: datetime, **details: object) -> AuditEntry:
        """Appends to the audit log. TypeError for details that are not JSON data."""
        return self._audit.add(who, what, digest, usd, at, details)

    def audit_log(self) -> tuple[AuditEntry, ...]:
        """The audit log; :func:`router.state.hash_chain.verify` says whether it is whole."""
        return self._audit.entries()

    def lease(
        self, name: str, holder: Holder, now: Callable[[], datetime], *, seconds: float = LEASE_SECONDS
    ) -> AbstractContextManager[Lease]:
        """Holds a lease while the block runs. HeldError at once when somebody else has it.

        ``now`` is the real time of day. A holder loses it ``seconds`` after its last sign of life, on this machine as
        soon as its process is dead.
        """
        from router.state.lease import Leases

        return Leases(self._database, now, seconds).held(name, holder)
