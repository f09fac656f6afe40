"""The state database, which holds everything that must not be lost.

SQLite by default, PostgreSQL by URL. Each part is an attribute of the store and documents its guarantees. The database
library is imported when a state is opened, not before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from router.state.database_url import parse_database_url

if TYPE_CHECKING:
    from types import TracebackType

    from router.state.database import Database
    from router.state.lease import Lease
    from router.state.ledger_archive import LedgerArchives
    from router.state.ledger_backup import LedgerBackups
    from router.state.lock_owner import LockOwner
    from router.state.state_backup import StateBackup

LEASE_SECONDS = 60.0


class StateStore:
    """A state database, as its parts. May be shared by threads, not across a fork.

    Each method, of a part or of the store, is one transaction, on the disk when it returns, and raises StateError
    (:mod:`router.state.errors`) with nothing written; ValueError or TypeError for a value that cannot be stored, e.g. a
    time without a zone.
    """

    def __init__(self, database: Database) -> None:
        from router.state.access_tokens import AccessTokens
        from router.state.attempts import Attempts
        from router.state.audit import Administration, AuditLog
        from router.state.budgets import Budgets
        from router.state.data_copies import DataCopies
        from router.state.idempotency import IdempotencyKeys
        from router.state.joint_writes import JointWrites
        from router.state.journal import AttemptJournal, NoticeRecords, Shortages
        from router.state.ledger_store import LedgerStore
        from router.state.periods import LedgerPeriods
        from router.state.plans import MadePlans, NamedValues, Plans
        from router.state.queries import StateQueries
        from router.state.quotes import StateQuotes
        from router.state.tasks import Tasks
        from router.state.versions import STATE_ID
        from router.state.watchers import Watchers
        from router.state.webhook_deliveries import WebhookDeliveries

        self._database = database
        self.joint = JointWrites(database)
        self.values = NamedValues(database)
        self.watchers = Watchers(database)
        self.plans = Plans(database)
        self.made_plans = MadePlans(database)
        self.access_tokens = AccessTokens(database)
        self.tasks = Tasks(database)
        self.idempotency = IdempotencyKeys(database)
        self.webhooks = WebhookDeliveries(database)
        self.quotes = StateQuotes(database)
        self.attempts = Attempts(database)
        self.journal = AttemptJournal(database)
        self.notices = NoticeRecords(database)
        self.shortages = Shortages(database)
        self.audit = AuditLog(database)
        self.ledger = LedgerStore(database)
        self.periods = LedgerPeriods(database)
        self.budgets = Budgets(database)
        self.data_copies = DataCopies(database)
        self.overview = StateQueries(database)
        self.administration = Administration(database)
        self._id = self.values.get(STATE_ID) or ""

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

    # Few commands write or read files of the state: these parts are imported by those alone.
    @cached_property
    def backups(self) -> LedgerBackups:
        """Backups of the ledger."""
        from router.state.ledger_backup import LedgerBackups

        return LedgerBackups(self._database)

    @cached_property
    def archives(self) -> LedgerArchives:
        """Archives of closed months."""
        from router.state.ledger_archive import LedgerArchives

        return LedgerArchives(self._database)

    @cached_property
    def whole(self) -> StateBackup:
        """Backups of the whole state."""
        from router.state.state_backup import StateBackup

        return StateBackup(self._database)

    def check_version(self) -> None:
        """Raise TooNewError where a later version has upgraded the state, StateError where it cannot be read."""
        from router.state.versions import check_version

        check_version(self._database)

    @property
    def id(self) -> str:
        """The identity: "s" and ten hex digits, created once; the tag ``stepfare_state`` of every machine."""
        return self._id

    def lease(
        self, name: str, holder: LockOwner, now: Callable[[], datetime], *, seconds: float = LEASE_SECONDS
    ) -> AbstractContextManager[Lease]:
        """Hold a lease while the block runs. LeaseHeldError at once when another process has it.

        ``now`` is the real time of day. A holder loses it ``seconds`` after its last renewal, on this machine as soon
        as its process is dead.
        """
        from router.state.lease import Leases

        return Leases(self._database, now, seconds).held(name, holder)

    def lease_holders(self, prefix: str, now: Callable[[], datetime]) -> dict[str, LockOwner]:
        """Return who holds leases whose names begin with ``prefix``, by name; ``now`` as for :meth:`lease`."""
        from router.state.lease import Leases

        return Leases(self._database, now, LEASE_SECONDS).held_names(prefix)
