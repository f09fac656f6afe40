"""Select the entries, bills, corrections and budgets that count for a month, as of a moment.

For a month that was closed by then, those that it was closed with; for an open one, those that stood then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError
from router.ledger.budget import Budget, budgets_in_force, budgets_set_by
from router.ledger.month import Month
from router.showback.bill_store import BillStore, Correction, CorrectionStore, find_damaged_correction
from router.showback.bills import BillStanding

if TYPE_CHECKING:
    from router.state.periods import PeriodClosing
    from router.state.store import StateStore

# These texts sort before and after every month.
_FIRST, _LAST = "", "~"
Span = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BooksView:
    """The bills, corrections and entries that count.

    ``spans``: by the id of a bill, after which month and up to which its rows count. ``corrections`` of closed months
    count as well. Ledger entries count up to the number ``head``, and until the moment ``as_of``; all where it is None.
    ``sealed``: the closing that this view is of, whose seal determines all of it.
    """

    spans: Mapping[str, tuple[Span, ...]]
    corrections: tuple[Correction, ...] = ()
    head: int | None = None
    as_of: datetime | None = None
    sealed: PeriodClosing | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether no bill counts, and no correction."""
        return not self.spans and not any(each.rows for each in self.corrections)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the bills and corrections that count, in order."""
        return tuple(sorted((*self.spans, *(each.id for each in self.corrections))))

    def known(self, facts: str) -> str:
        """Return the relation of ledger facts without those that do not count."""
        conditions = [] if self.head is None else [f'"row" <= {self.head}']
        conditions += [] if self.as_of is None else [f"recorded_at <= TIMESTAMPTZ '{self.as_of.isoformat()}'"]
        return f"(FROM {facts} WHERE {' AND '.join(conditions)})" if conditions else facts

    def knows(self, seq: int, recorded_at: datetime) -> bool:
        """Return whether the ledger's entry of that number counts."""
        return (self.head is None or seq <= self.head) and (self.as_of is None or recorded_at <= self.as_of)


@dataclass(frozen=True, slots=True)
class Segment:
    """The months after one and up to another, which one view covers."""

    after: str
    upto: str
    view: BooksView

    def holds(self, month: Month) -> bool:
        """Return whether the month is one of them."""
        return self.after < str(month) <= self.upto


def closings(store: StateStore, as_of: datetime | None = None) -> tuple[PeriodClosing, ...]:
    """Return the closings until a moment, in order; all where it is None."""
    return tuple(each for each in store.periods.closings() if as_of is None or each.closed_at <= as_of)


def seals(store: StateStore, as_of: datetime | None = None) -> tuple[PeriodClosing, ...]:
    """Return the closings until a moment that have a seal."""
    return tuple(each for each in closings(store, as_of) if each.seal)


def is_sealed(store: StateStore, month: Month) -> bool:
    """Return whether a seal determines what the month's report says."""
    return any(each.period >= month for each in seals(store))


def view_of(store: StateStore, bills: Path, month: Month, as_of: datetime | None = None) -> BooksView:
    """Return the view for a report of the month: as it was sealed by ``as_of``, else as everything stood then."""
    sealed_closings = seals(store, as_of)
    sealed = next((each for each in sealed_closings if each.period >= month), None)
    if sealed is None:
        return _open(store, bills, sealed_closings, as_of)
    return _sealed(sealed_closings, sealed, CorrectionStore(bills, store.id).all())


def segments(store: StateStore, bills: Path, as_of: datetime | None = None) -> tuple[Segment, ...]:
    """Return all months, by their view: those of each seal in order, then the open ones."""
    sealed_closings, corrections = seals(store, as_of), CorrectionStore(bills, store.id).all()
    ends = [_FIRST, *(str(each.period) for each in sealed_closings), _LAST]
    views = [
        *(_sealed(sealed_closings, each, corrections) for each in sealed_closings),
        _open(store, bills, sealed_closings, as_of),
    ]
    return tuple(Segment(*each) for each in zip(ends, ends[1:], views, strict=False))


def view_to_seal(store: StateStore, bills: Path, month: Month) -> BooksView:
    """Return the view that a month would be closed with now; once closed, :func:`view_of` returns the same."""
    corrections = CorrectionStore(bills, store.id).all()
    bill_spans = spans(seals(store), standing_ids(bills), str(month))
    return BooksView(spans=bill_spans, corrections=corrections, head=store.ledger.head())


def budgets_in(view: BooksView, store: StateStore, month: Month) -> tuple[Budget, ...]:
    """Return the budgets in force in the month of the view. A closed month gets none later."""
    return budgets_in_force(budgets_set_by(store.budgets.all(), view.as_of), month)


def _open(
    store: StateStore, bills: Path, sealed_closings: Sequence[PeriodClosing], as_of: datetime | None
) -> BooksView:
    corrections = (each for each in CorrectionStore(bills, store.id).all() if _is_known(each, sealed_closings, as_of))
    return BooksView(
        spans=spans(sealed_closings, standing_ids(bills, as_of)), corrections=tuple(corrections), as_of=as_of
    )


def _is_known(correction: Correction, sealed_closings: Sequence[PeriodClosing], as_of: datetime | None) -> bool:
    """Return whether the correction had been made by then, and only for months that were closed by then."""
    if as_of is None:
        return True
    last = str(sealed_closings[-1].period) if sealed_closings else _FIRST
    return datetime.fromisoformat(correction.at) <= as_of and max(correction.corrects, default=_FIRST) <= last


def _sealed(
    sealed_closings: Sequence[PeriodClosing], sealed: PeriodClosing, corrections: Iterable[Correction]
) -> BooksView:
    before = tuple(each for each in sealed_closings if each.period <= sealed.period)
    known = frozenset(sealed.sealed["corrections"])
    return BooksView(
        spans=spans(before, sealed_ids(sealed)),
        corrections=tuple(each for each in corrections if each.id in known),
        head=sealed.head,
        sealed=sealed,
    )


def bills_version(bills: Path) -> tuple[tuple[str, int], ...]:
    """Return what changes with the imported bills, decisions on them and corrections: files that only come."""
    return tuple(
        (folder, sum(1 for _ in (bills / folder).glob("*.json")))
        for folder in ("deliveries", "decisions", "corrections")
    )


def standing_ids(bills: Path, as_of: datetime | None = None) -> tuple[str, ...]:
    """Return the ids of the bills that stand, or stood at a moment."""
    return tuple(sorted(each.bill.id for each in BillStore(bills).standing(as_of)))


def sealed_ids(closing: PeriodClosing) -> tuple[str, ...]:
    """Return the ids of the bills that stood when the month was closed."""
    return tuple(each["id"] for each in closing.sealed["bills"])


def spans(
    closings_made: Iterable[PeriodClosing], open_ids: Iterable[str], end: str = _LAST
) -> dict[str, tuple[Span, ...]]:
    """Return, by bill, the months in which its rows count.

    Months up to the first closing have that closing's bills, and so on; those after the last, up to ``end``, have
    ``rest``.
    """
    by_bill: dict[str, list[Span]] = {}
    after = _FIRST
    for closing in closings_made:
        upto = str(closing.period)
        for name in sealed_ids(closing):
            by_bill.setdefault(name, []).append((after, upto))
        after = upto
    for name in open_ids:
        by_bill.setdefault(name, []).append((after, end))
    return {name: tuple(bill_spans) for name, bill_spans in sorted(by_bill.items())}


def counts_in(month: str, bill_spans: Iterable[Span]) -> bool:
    """Return whether rows in the month's books count, of a bill that counts in those months."""
    return any(after < month <= upto for after, upto in bill_spans)


def bills_in(view: BooksView, bills: Path) -> Iterator[tuple[BillStanding, Path, tuple[Span, ...]]]:
    """Yield the bills that count, where their rows are, and which of them count.

    InvalidInputError where one is gone: money would be missing.
    """
    store = BillStore(bills)
    known = {each.bill.id: each for each in store.bills()}
    for name, bill_spans in view.spans.items():
        if name not in known or not store.path(known[name]).is_file():
            where = str(store.path(known[name]) if name in known else store.folder)
            remedy = "import the bill again, or bring the folder back from a backup"
            raise InvalidInputError.single(f"{name} is gone: a bill would be missing", where=where, remedy=remedy)
        yield known[name], store.path(known[name]), bill_spans


def corrections_in(view: BooksView, store: StateStore, bills: Path) -> tuple[Path, ...]:
    """Return where the facts of the corrections are. InvalidInputError where they are gone, or others."""
    corrections = CorrectionStore(bills, store.id)
    damaged_correction = find_damaged_correction(view.corrections, corrections)
    if damaged_correction is not None:
        what = "its rows are gone, or not those that were written"
        remedy = "bring the folder of the bills back from a backup"
        raise InvalidInputError.single(what, where=str(corrections.path(damaged_correction)), remedy=remedy)
    return tuple(corrections.path(each) for each in view.corrections if each.rows)
