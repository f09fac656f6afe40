"""Model imported bills as values: what came in which delivery, and which bill a later one has replaced. Pure.

A delivery is what one command imported; a bill is the part of it that has one issuer, account and billing period. Bills
are restated until the month is closed: the newest delivery of the same three is the bill, and the older ones are
history. A person may restore an older one, or remove one: that is a decision, which is stored as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from router.files.stored_records import FORMAT, parse_fields

_BILLED, _EFFECTIVE = "BilledCost", "EffectiveCost"


@dataclass(frozen=True, slots=True)
class BillSourceFile:
    """A file that was imported. ``version`` is that of FOCUS, ``form`` csv, csv.gz or parquet."""

    name: str
    sha256: str
    bytes: int
    form: str
    version: str
    rows: int


@dataclass(frozen=True, slots=True)
class BillGap:
    """A rule of FOCUS that is broken ``count`` times in a column of a file.

    ``row``, ``line`` and ``value`` are those of the first time.
    """

    file: str
    rule: str
    column: str
    count: int
    row: int | None
    line: int | None
    value: str


@dataclass(frozen=True, slots=True)
class ImportedBill:
    """One bill of a delivery.

    ``start`` and ``end`` are the billing period (UTC, ISO), None where the file names none; ``label`` then tells bills
    apart. ``sums`` has exact decimal text by currency ("" where none is named) and cost column, None where no row says
    it. ``data_through`` is the latest end of usage. ``file`` holds the rows, and is the one that was written when its
    SHA-256 is ``sha256``.
    """

    id: str
    issuer: str | None
    account: str | None
    start: str | None
    end: str | None
    label: str
    rows: int
    sums: dict[str, dict[str, str | None]]
    data_through: str | None
    file: str
    sha256: str

    def may_share_period(self, other: ImportedBill) -> bool:
        """Return whether the billing periods of the two overlap, as far as they are known."""
        return (
            self.start is None
            or self.end is None
            or other.start is None
            or other.end is None
            or (self.start < other.end and other.start < self.end)
        )

    @property
    def key(self) -> tuple[str | None, ...]:
        """The words that a restated bill shares with the one that it replaces."""
        return (self.issuer, self.account, self.start, self.end, self.label)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One import of files.

    ``number`` counts from 1, in the order of import; ``digest`` is of the files' contents, whatever their names.
    ``bills`` are new. ``again`` are ids of earlier bills that stand again, since the files hold exactly their rows.
    ``same`` are ids of those that stood with exactly these rows, and still do.
    """

    number: int
    digest: str
    imported_at: str
    sources: tuple[BillSourceFile, ...]
    bills: tuple[ImportedBill, ...]
    gaps: tuple[BillGap, ...]
    again: tuple[str, ...] = ()
    same: tuple[str, ...] = ()

    @property
    def concerned(self) -> frozenset[str]:
        """The ids of all bills that its files hold."""
        return frozenset((*(bill.id for bill in self.bills), *self.again, *self.same))


class DeliveryKind(StrEnum):
    """The relation of a delivery to the bill that stands: a further part of it, or a version that takes its place."""

    PART = "part"
    VERSION = "version"


@dataclass(frozen=True, slots=True)
class _Decision:
    number: int
    at: str
    who: str


@dataclass(frozen=True, slots=True)
class DuplicateRule(_Decision):
    """A decision of ``who`` that bills of an issuer ("": unknown) may hold a charge twice, or no longer may."""

    issuer: str
    allowed: bool
    reason: str


class BillDecisionKind(StrEnum):
    RESTORE = "restore"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class BillDecision(_Decision):
    """A decision of ``who`` to restore or remove a bill (its id), with the reason.

    ``number`` counts together with those of deliveries.
    """

    what: BillDecisionKind
    bill: str
    reason: str


@dataclass(frozen=True, slots=True)
class BillStanding:
    """A bill with its delivery and its place in history.

    ``replaces`` is the bill whose place it took last, ``replaced_by`` the one that has taken its own; ``removed`` is
    the decision that removed it.
    """

    bill: ImportedBill
    delivery: Delivery
    replaces: str | None = None
    replaced_by: str | None = None
    removed: BillDecision | None = None

    @property
    def stands(self) -> bool:
        return self.replaced_by is None and self.removed is None


def select_until(
    deliveries: Sequence[Delivery], decisions: Sequence[BillDecision], moment: datetime | None
) -> tuple[tuple[Delivery, ...], tuple[BillDecision, ...]]:
    """Return the deliveries imported and the decisions made until the moment; all where it is None."""
    return (
        tuple(each for each in deliveries if moment is None or datetime.fromisoformat(each.imported_at) <= moment),
        tuple(each for each in decisions if moment is None or datetime.fromisoformat(each.at) <= moment),
    )


def compute_standings(
    deliveries: Iterable[Delivery], decisions: Iterable[BillDecision] = ()
) -> tuple[BillStanding, ...]:
    """Return all bills with their standing, in the order of import."""
    ordered = sorted(deliveries, key=lambda delivery: delivery.number)
    standings = {bill.id: BillStanding(bill, delivery) for delivery in ordered for bill in delivery.bills}
    standing_ids: dict[tuple[str | None, ...], str] = {}
    events: list[Delivery | BillDecision] = [*ordered, *decisions]
    for each in sorted(events, key=lambda event: event.number):
        if isinstance(each, Delivery):
            for identity in (*(bill.id for bill in each.bills), *each.again):
                _restore(identity, standings, standing_ids)
        elif each.what is BillDecisionKind.RESTORE:
            _restore(each.bill, standings, standing_ids)
        elif each.bill in standings and standing_ids.get(standings[each.bill].bill.key) == each.bill:
            del standing_ids[standings[each.bill].bill.key]
            standings[each.bill] = replace(standings[each.bill], removed=each)
    return tuple(standings.values())


def _restore(
    identity: str, standings: dict[str, BillStanding], standing_ids: dict[tuple[str | None, ...], str]
) -> None:
    """Let a known bill stand, in the place of the one that stands with its key."""
    if identity not in standings:
        return
    restored = replace(standings[identity], replaced_by=None, removed=None)
    before = standing_ids.get(restored.bill.key)
    if before != identity:
        restored = replace(restored, replaces=before)
        if before is not None:
            standings[before] = replace(standings[before], replaced_by=identity)
    standings[identity], standing_ids[restored.bill.key] = restored, identity


@dataclass(frozen=True, slots=True)
class BillDecrease:
    """A figure that is lower in a bill than in the one whose place it takes.

    ``what`` is ``rows``, or a cost column in ``currency``.
    """

    what: str
    currency: str
    before: str
    after: str


def find_decreases(before: ImportedBill, after: ImportedBill) -> tuple[BillDecrease, ...]:
    """Return rows, and billed and effective costs by currency, that decreased.

    A sum that no row names any more has fallen to zero.
    """
    decreases = [BillDecrease("rows", "", f"{before.rows}", f"{after.rows}")] if after.rows < before.rows else []
    for currency, sums in before.sums.items():
        for column in (_BILLED, _EFFECTIVE):
            was, now = sums.get(column), after.sums.get(currency, {}).get(column)
            if was is not None and Decimal(now or 0) < Decimal(was):
                decreases.append(BillDecrease(column, currency, was, now or "0"))
    return tuple(decreases)


def manifest_json(delivery: Delivery | BillDecision | DuplicateRule) -> str:
    """Return the manifest of a delivery, a decision or a rule."""
    return json.dumps({"format": FORMAT, **asdict(delivery)}, indent=1, ensure_ascii=False) + "\n"


def read_delivery(text: str) -> Delivery:
    """Read the delivery of a manifest. ValueError, TypeError or KeyError where it is none of ours."""
    fields = parse_fields(text)
    return Delivery(
        **{
            **fields,
            "sources": tuple(BillSourceFile(**each) for each in fields["sources"]),
            "bills": tuple(ImportedBill(**each) for each in fields["bills"]),
            "gaps": tuple(BillGap(**each) for each in fields["gaps"]),
            "again": tuple(fields["again"]),
            "same": tuple(fields["same"]),
        }
    )


def read_decision(text: str) -> BillDecision:
    """Read the decision of a manifest. ValueError, TypeError or KeyError where it is none of ours."""
    fields = parse_fields(text)
    return BillDecision(**{**fields, "what": BillDecisionKind(fields["what"])})


def read_rule(text: str) -> DuplicateRule:
    """Read the rule of a manifest. ValueError, TypeError or KeyError where it is none of ours."""
    return DuplicateRule(**parse_fields(text))
