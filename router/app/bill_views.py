"""Which entries, bills, corrections and budgets count for a month, as of a moment: of a month that was closed by then
those that it was closed with, of an open one those that stood then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError
from router.ledger.budget import Budget, holding, set_by
from router.ledger.month import Month
from router.showback.bill_store import BillStore
from router.showback.bills import Standing
from router.showback.corrections import Correction, Corrections, damaged

if TYPE_CHECKING:
    from router.state.periods import Closing
    from router.state.store import Store

# Before and after every month, as text.
_FIRST, _LAST = "", "~"
Span = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """``spans``: by the id of a bill, after which month and up to which its rows count. ``corrections`` of closed
    months count as well. Of the ledger entries count up to the number ``head``, and until the moment ``as_of``; all
    where it is None. ``sealed``: the closing that this view is of, whose seal says all of it."""

    spans: Mapping[str, tuple[Span, ...]]
    corrections: tuple[Correction, ...] = ()
    head: int | None = None
    as_of: datetime | None = None
    sealed: Closing | None = None

    @property
    def is_empty(self) -> bool:
        """No bill counts, and no correction."""
        return not self.spans and not any(each.rows for each in self.corrections)

    def known(self, facts: str) -> str:
        """The relation of facts of the ledger without those that do not count."""
        wanted = [] if self.head is None else [f'"row" <= {self.head}']
        wanted += [] if self.as_of is None else [f"recorded_at <= TIMESTAMPTZ '{self.as_of.isoformat()}'"]
        return f"(FROM {facts} WHERE {' AND '.join(wanted)})" if wanted else facts

    def knows(self, seq: int, recorded_at: datetime) -> bool:
        """Whether the ledger's entry of that number counts."""
        return (self.head is None or seq <= self.head) and (self.as_of is None or recorded_at <= self.as_of)


@dataclass(frozen=True, slots=True)
class Segment:
    """The months after one and up to another, which one view is of."""

    after: str
    upto: str
    view: View

    def holds(self, month: Month) -> bool:
        """Whether the month is one of them."""
        return self.after < str(month) <= self.upto


def closings(store: Store, as_of: datetime | None = None) -> tuple[Closing, ...]:
    """The closings until a moment, in order; all where it is None."""
    return tuple(each for each in store.periods.closings() if as_of is None or each.closed_at <= as_of)


def seals(store: Store, as_of: datetime | None = None) -> tuple[Closing, ...]:
    """Those of them that have a seal."""
    return tuple(each for each in closings(store, as_of) if each.seal)


def view_of(store: Store, bills: Path, month: Month, as_of: datetime | None = None) -> View:
    """For a report of the month: as it was sealed by ``as_of``, else as everything stood then."""
    found = seals(store, as_of)
    sealed = next((each for each in found if each.period >= month), None)
    if sealed is None:
        return _open(store, bills, found, as_of)
    return _sealed(found, sealed, Corrections(bills, store.id).all())


def segments(store: Store, bills: Path, as_of: datetime | None = None) -> tuple[Segment, ...]:
    """All months, by the view that is theirs: those of each seal in order, then the open ones."""
    found, every = seals(store, as_of), Corrections(bills, store.id).all()
    ends = [_FIRST, *(str(each.period) for each in found), _LAST]
    views = [*(_sealed(found, each, every) for each in found), _open(store, bills, found, as_of)]
    return tuple(Segment(*each) for each in zip(ends, ends[1:], views, strict=False))


def view_to_seal(store: Store, bills: Path, month: Month) -> View:
    """What a month would be closed with now; closed, it is what :func:`view_of` has."""
    kept = Corrections(bills, store.id).all()
    found = spans(seals(store), standing_ids(bills), str(month))
    return View(spans=found, corrections=kept, head=store.ledger.head())


def budgets_in(view: View, store: Store, month: Month) -> tuple[Budget, ...]:
    """The budgets that hold in the month of the view. A closed month is given none later."""
    return holding(set_by(store.budgets.all(), view.as_of), month)


def _open(store: Store, bills: Path, found: Sequence[Closing], as_of: datetime | None) -> View:
    every = (each for each in Corrections(bills, store.id).all() if _is_known(each, found, as_of))
    return View(spans=spans(found, standing_ids(bills, as_of)), corrections=tuple(every), as_of=as_of)


def _is_known(correction: Correction, found: Sequence[Closing], as_of: datetime | None) -> bool:
    """Whether it had been made by then, of months that were closed by then."""
    if as_of is None:
        return True
    last = str(found[-1].period) if found else _FIRST
    return datetime.fromisoformat(correction.at) <= as_of and max(correction.corrects, default=_FIRST) <= last


def _sealed(found: Sequence[Closing], sealed: Closing, every: Iterable[Correction]) -> View:
    before = tuple(each for each in found if each.period <= sealed.period)
    known = frozenset(sealed.sealed["corrections"])
    return View(
        spans=spans(before, sealed_ids(sealed)),
        corrections=tuple(each for each in every if each.id in known),
        head=sealed.head,
        sealed=sealed,
    )


def standing_ids(bills: Path, as_of: datetime | None = None) -> tuple[str, ...]:
    """The ids of the bills that stand, or stood at a moment."""
    return tuple(sorted(each.bill.id for each in BillStore(bills).standing(as_of)))


def sealed_ids(closing: Closing) -> tuple[str, ...]:
    """The ids of the bills that stood when the month was closed."""
    return tuple(each["id"] for each in closing.sealed["bills"])


def spans(found: Iterable[Closing], rest: Iterable[str], end: str = _LAST) -> dict[str, tuple[Span, ...]]:
    """Months up to the first closing are those of its bills, and so on; those after the last, up to ``end``, are of
    ``rest``."""
    made: dict[str, list[Span]] = {}
    after = _FIRST
    for closing in found:
        upto = str(closing.period)
        for name in sealed_ids(closing):
            made.setdefault(name, []).append((after, upto))
        after = upto
    for name in rest:
        made.setdefault(name, []).append((after, end))
    return {name: tuple(some) for name, some in sorted(made.items())}


def bills_in(view: View, bills: Path) -> Iterator[tuple[Standing, Path, tuple[Span, ...]]]:
    """The bills that count, where their rows are, and which of them. InvalidInputError where one is gone: money would
    be missing."""
    store = BillStore(bills)
    known = {each.bill.id: each for each in store.bills()}
    for name, some in view.spans.items():
        if name not in known or not store.path(known[name]).is_file():
            where = str(store.path(known[name]) if name in known else store.folder)
            remedy = "import the bill again, or bring the folder back from a backup"
            raise InvalidInputError.single(f"{name} is gone: a bill would be missing", where=where, remedy=remedy)
        yield known[name], store.path(known[name]), some


def corrections_in(view: View, store: Store, bills: Path) -> tuple[Path, ...]:
    """Where the facts of the corrections are. InvalidInputError where they are gone, or others."""
    kept = Corrections(bills, store.id)
    wrong = damaged(view.corrections, kept)
    if wrong is not None:
        what = "its rows are gone, or not those that were written"
        remedy = "bring the folder of the bills back from a backup"
        raise InvalidInputError.single(what, where=str(kept.path(wrong)), remedy=remedy)
    return tuple(kept.path(each) for each in view.corrections if each.rows)
