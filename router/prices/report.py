"""Report of a refresh, as values: by cloud what came, what failed, what was dropped and held back. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from pricing.places import SIMULATED_CLOUDS
from providers.caller import Caller
from providers.collector import CloudOutcome
from providers.errors import (
    AccountNotUsedError,
    CredentialsError,
    PermissionDeniedError,
    ProviderError,
    SdkMissingError,
)
from providers.protocol import DroppedRow
from router.prices.books import SANDBOX
from router.prices.bookstore import StoredBook
from router.prices.merge import CloudCounts, GateRejection


class RefreshStatus(StrEnum):
    """The way in which a cloud's refresh ended."""

    FRESH = "fresh"
    PARTIAL = "partial"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class RefreshFailure:
    """Something that could not be obtained: ``where`` a scope or a cloud, ``what`` as "spot prices" or ""."""

    where: str
    what: str
    error: ProviderError
    would_add: str = ""


@dataclass(frozen=True, slots=True)
class DroppedRowGroup:
    """Rows dropped for one reason: how many, and the first by name."""

    why: str
    count: int
    example: str


@dataclass(frozen=True)
class CloudReport:
    """The result of a refresh for one cloud.

    ``failures`` need to be fixed; ``hints`` say what an account would add.
    """

    cloud: str
    status: RefreshStatus
    scopes_done: int
    scopes_total: int
    rows_read: int
    counts: CloudCounts
    failures: tuple[RefreshFailure, ...]
    hints: tuple[RefreshFailure, ...]
    dropped: tuple[DroppedRowGroup, ...]
    held: tuple[GateRejection, ...]
    calls: int
    retries: int
    seconds: float


@dataclass(frozen=True, slots=True)
class BookReport:
    """The result of a refresh for one book.

    ``name`` is that of ``--book``, ``before`` the digest of the one built upon, ``offers`` how many it has now.
    ``stored`` None: nothing was fetched, and the older book stays.
    """

    name: str
    stored: StoredBook | None
    before: str
    offers: int


@dataclass(frozen=True)
class RefreshReport:
    """The result of a refresh; ``books``: that of real clouds, that of simulated ones, or both."""

    now: datetime
    books: tuple[BookReport, ...]
    history_added: int
    clouds: tuple[CloudReport, ...]
    warnings: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether everything that was asked for came, and nothing was held back."""
        return all(not cloud.failures and not cloud.held for cloud in self.clouds)

    @property
    def only_credentials(self) -> bool:
        """Return whether nothing was obtained, for want of credentials or permissions alone."""
        failures = [failure.error for cloud in self.clouds for failure in cloud.failures]
        refused = all(isinstance(error, CredentialsError | PermissionDeniedError) for error in failures)
        return not any(book.stored for book in self.books) and bool(failures) and refused

    def stored_for(self, cloud: str) -> bool:
        """Return whether the book that would hold the offers of ``cloud`` was stored."""
        simulated = cloud in SIMULATED_CLOUDS
        return any(book.stored is not None and (book.name == SANDBOX) == simulated for book in self.books)


def build_cloud_report(
    outcome: CloudOutcome, must: bool, counts: CloudCounts, held: tuple[GateRejection, ...], caller: Caller | None
) -> CloudReport:
    """Build the report of one cloud; ``must`` says that it was named, so that a missing account is a failure.

    ``counts`` and ``held`` are the merge's, empty where nothing was merged.
    """
    failures = [RefreshFailure(str(scope), "", error) for scope, error in outcome.errors.items()]
    if outcome.error is not None:
        failures.append(RefreshFailure(outcome.cloud, "", outcome.error))
    if outcome.no_account is not None:
        failures.append(
            RefreshFailure(outcome.cloud, "the account", outcome.no_account, "zones, quotas and tonight's prices")
        )
    parts = outcome.results.items()
    failures += [RefreshFailure(str(s), g.subject, g.error, g.would_add) for s, part in parts for g in part.gaps]
    # A missing account is a failure only where its cloud was named; otherwise it is a hint.
    hints = [f for f in failures if _is_chosen(f.error) or (not must and is_without_account(f.error))]
    failures = [f for f in failures if f not in hints]
    rows = [dropped for part in outcome.results.values() for dropped in part.dropped]
    total = len(outcome.results) + len(outcome.errors)
    if not outcome.results:
        status = RefreshStatus.FAILED if failures else RefreshStatus.SKIPPED
    else:
        status = RefreshStatus.PARTIAL if failures or held else RefreshStatus.FRESH
    return CloudReport(
        cloud=outcome.cloud,
        status=status,
        scopes_done=len(outcome.results),
        scopes_total=total,
        rows_read=sum(part.rows_read for part in outcome.results.values()),
        counts=counts,
        failures=tuple(failures),
        hints=tuple(hints),
        dropped=group_dropped_rows(rows),
        held=held,
        calls=sum(caller.calls.values()) if caller else 0,
        retries=sum(caller.retries.values()) if caller else 0,
        seconds=outcome.seconds,
    )


def is_without_account(error: ProviderError) -> bool:
    """Return whether the only reason is a missing account, or a missing SDK to use it with."""
    return _is_chosen(error) or isinstance(error, SdkMissingError) or getattr(error, "none_found", False)


def _is_chosen(error: ProviderError) -> bool:
    return isinstance(error, AccountNotUsedError)


def group_dropped_rows(rows: Iterable[DroppedRow]) -> tuple[DroppedRowGroup, ...]:
    """Group the dropped rows by reason, the most frequent first."""
    rows = sorted(rows)
    counts = Counter(row.why for row in rows)
    first: dict[str, str] = {}
    for row in rows:
        first.setdefault(row.why, row.row)
    return tuple(DroppedRowGroup(why, count, first[why]) for why, count in counts.most_common())
