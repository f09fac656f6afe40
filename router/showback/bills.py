"""Bills that were imported, as values: what came in which delivery, and which bill a later one has replaced. Pure.

A delivery is what one command imported, a bill the part of it that has one issuer, account and billing period. Bills
are restated until the month is closed: the newest delivery of the same three is the bill, and the older ones are
history. A person may bring an older one back, or take one away: that is a decision, which is kept as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

FORMAT = 1
_BILLED, _EFFECTIVE = "BilledCost", "EffectiveCost"
# Of a delivery; earlier versions did not know them.
_LATER = ("again", "same")


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was imported. ``version`` is that of FOCUS, ``form`` csv, csv.gz or parquet."""

    name: str
    sha256: str
    bytes: int
    form: str
    version: str
    rows: int


@dataclass(frozen=True, slots=True)
class Gap:
    """That a rule of FOCUS is broken ``count`` times in a column of a file; ``row``, ``line`` and ``value`` are the
    first."""

    file: str
    rule: str
    column: str
    count: int
    row: int | None
    line: int | None
    value: str


@dataclass(frozen=True, slots=True)
class Bill:
    """``start`` and ``end`` are the billing period (UTC, ISO), None where the file names none; ``label`` then tells
    bills apart. ``sums`` has exact decimal text by currency ("" where none is named) and cost column, None where no
    row says it. ``data_through`` is the latest end of usage. ``file`` holds the rows, and is the very one that was
    written when its SHA-256 is ``sha256``."""

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

    @property
    def key(self) -> tuple[str | None, ...]:
        """What a restated bill has in common with the one that it replaces."""
        return (self.issuer, self.account, self.start, self.end, self.label)


@dataclass(frozen=True, slots=True)
class Delivery:
    """``number`` counts from 1, in the order of import; ``digest`` is of the files' contents, whatever their names.
    ``bills`` are new; ``again``: ids of earlier bills that stand again, for the files hold just their rows; ``same``:
    ids of those that stood with just these rows, and still do."""

    number: int
    digest: str
    imported_at: str
    sources: tuple[Source, ...]
    bills: tuple[Bill, ...]
    gaps: tuple[Gap, ...]
    again: tuple[str, ...] = ()
    same: tuple[str, ...] = ()

    @property
    def concerned(self) -> frozenset[str]:
        """The ids of all bills that its files hold."""
        return frozenset((*(bill.id for bill in self.bills), *self.again, *self.same))


class Deed(StrEnum):
    """What a person did to a bill."""

    RESTORE = "restore"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Decision:
    """``who`` brought the bill (its id) back, or took it away, and why. ``number`` counts with the deliveries'."""

    number: int
    at: str
    who: str
    what: Deed
    bill: str
    reason: str


@dataclass(frozen=True, slots=True)
class Standing:
    """A bill, the delivery that it came in, the bill whose place it took last, and the one that has taken its own;
    ``removed``: by whom it was taken away."""

    bill: Bill
    delivery: Delivery
    replaces: str | None
    replaced_by: str | None
    removed: Decision | None = None

    @property
    def stands(self) -> bool:
        """It counts."""
        return self.replaced_by is None and self.removed is None


@dataclass(slots=True)
class _History:
    """What happened so far: by key which bill stands, and by id whose place a bill took, and which took its."""

    standing: dict[tuple[str | None, ...], str] = field(default_factory=dict)
    replaces: dict[str, str | None] = field(default_factory=dict)
    replaced_by: dict[str, str] = field(default_factory=dict)
    removed: dict[str, Decision] = field(default_factory=dict)

    def stand(self, bill: Bill) -> None:
        before = self.standing.get(bill.key)
        self.replaced_by.pop(bill.id, None)
        self.removed.pop(bill.id, None)
        if before != bill.id:
            self.replaces[bill.id] = before
            if before is not None:
                self.replaced_by[before] = bill.id
        self.standing[bill.key] = bill.id

    def remove(self, bill: Bill, decision: Decision) -> None:
        if self.standing.get(bill.key) == bill.id:
            del self.standing[bill.key]
            self.removed[bill.id] = decision


def known_by(
    deliveries: Sequence[Delivery], decisions: Sequence[Decision], moment: datetime | None
) -> tuple[tuple[Delivery, ...], tuple[Decision, ...]]:
    """Those that were imported or decided until the moment; all where it is None."""
    return (
        tuple(each for each in deliveries if moment is None or datetime.fromisoformat(each.imported_at) <= moment),
        tuple(each for each in decisions if moment is None or datetime.fromisoformat(each.at) <= moment),
    )


def standings(deliveries: Iterable[Delivery], decisions: Iterable[Decision] = ()) -> tuple[Standing, ...]:
    """All bills, in the order of import."""
    ordered = sorted(deliveries, key=lambda each: each.number)
    known = {bill.id: bill for delivery in ordered for bill in delivery.bills}
    history = _History()
    events: list[Delivery | Decision] = [*ordered, *decisions]
    for each in sorted(events, key=lambda one: one.number):
        if isinstance(each, Delivery):
            for bill in (*each.bills, *(known[name] for name in each.again if name in known)):
                history.stand(bill)
        elif each.bill in known and each.what is Deed.RESTORE:
            history.stand(known[each.bill])
        elif each.bill in known:
            history.remove(known[each.bill], each)
    return tuple(
        Standing(
            bill,
            delivery,
            history.replaces.get(bill.id),
            history.replaced_by.get(bill.id),
            history.removed.get(bill.id),
        )
        for delivery in ordered
        for bill in delivery.bills
    )


@dataclass(frozen=True, slots=True)
class Fall:
    """A figure that is lower in a bill than in the one whose place it takes: ``what`` is ``rows``, or a cost column in
    ``currency``."""

    what: str
    currency: str
    before: str
    after: str


def falls(before: Bill, after: Bill) -> tuple[Fall, ...]:
    """Rows, and billed and effective costs by currency, that fell. A sum that no row says any more has fallen to
    nothing."""
    found = [Fall("rows", "", f"{before.rows}", f"{after.rows}")] if after.rows < before.rows else []
    for currency, sums in before.sums.items():
        for column in (_BILLED, _EFFECTIVE):
            was, now = sums.get(column), after.sums.get(currency, {}).get(column)
            if was is not None and Decimal(now or 0) < Decimal(was):
                found.append(Fall(column, currency, was, now or "0"))
    return tuple(found)


def to_json(delivery: Delivery | Decision) -> str:
    """Its manifest."""
    said = {name: value for name, value in asdict(delivery).items() if name not in _LATER or value}
    return json.dumps({"format": FORMAT, **said}, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> Delivery:
    """Of a manifest. ValueError, TypeError or KeyError where it is none of ours."""
    found: dict[str, Any] = json.loads(text)
    if found.pop("format") != FORMAT:
        raise ValueError("is of another version of stepfare")
    return Delivery(
        **{
            **found,
            "sources": tuple(Source(**each) for each in found["sources"]),
            "bills": tuple(Bill(**each) for each in found["bills"]),
            "gaps": tuple(Gap(**each) for each in found["gaps"]),
            **{name: tuple(found.get(name, ())) for name in _LATER},
        }
    )


def decision_from_json(text: str) -> Decision:
    """Of a manifest. ValueError, TypeError or KeyError where it is none of ours."""
    found: dict[str, Any] = json.loads(text)
    if found.pop("format") != FORMAT:
        raise ValueError("is of another version of stepfare")
    return Decision(**{**found, "what": Deed(found["what"])})
