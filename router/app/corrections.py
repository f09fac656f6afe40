"""Book corrections in an open month for bills that changed after their month was closed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pricing.money import ZERO
from router.app.bill_views import BooksView, sealed_ids, seals, spans, standing_ids
from router.app.reconcile import open_matched_books
from router.files.duckdb_session import rows_of
from router.ledger.month import Month
from router.showback.bill_store import BillStore
from router.showback.bills import BillDecisionKind
from router.showback.corrections import Correction, CorrectionStore, correction_id
from router.showback.facts import COLUMNS, FactSource

if TYPE_CHECKING:
    import pyarrow as pa

    from router.state.store import StateStore

_WORDS = (
    "state",
    "category",
    "month",
    "team",
    "project",
    "cost_center",
    "job",
    "job_digest",
    "plan",
    "attempt",
    "what",
    "use",
    "cloud",
    "account",
    "region",
    "instance_type",
    "market",
    "accelerator",
    "currency",
)
_MONEY = ("billed", "effective", "list")


def book_corrections(store: StateStore, extracts: Path, bills: Path, who: str) -> Correction | None:
    """Book what changed bills change in closed months; return None where nothing changes.

    Bills count as changed since the last closing, or since the last correction. The correction stands in the first open
    month, or in that in which the bills changed where it is later. The bills must not be locked. Raises
    InvalidInputError, StateError, OSError.
    """
    if not seals(store):
        return None
    with BillStore(bills).held():
        return book_corrections_locked(store, extracts, bills, who)


def book_and_log_corrections(store: StateStore, extracts: Path, bills: Path, who: str) -> Correction | None:
    """Book corrections as :func:`book_corrections`, and write what was booked into the audit log."""
    booked = book_corrections(store, extracts, bills, who)
    if booked is not None:
        store.audit.add(
            who,
            "bills correction",
            booked.sha256,
            ZERO,
            datetime.fromisoformat(booked.at),
            correction=booked.id,
            corrects=list(booked.corrects),
            period=booked.period,
            amounts=booked.amounts,
            reason=booked.reason,
        )
    return booked


def book_corrections_locked(store: StateStore, extracts: Path, bills: Path, who: str) -> Correction | None:
    """Book corrections as :func:`book_corrections`, where the caller holds the lock of the bills."""
    sealed_closings, corrections = seals(store), CorrectionStore(bills, store.id)
    if not sealed_closings:
        return None
    booked = corrections.all()
    last = sealed_closings[-1]
    sealed_corrections = frozenset(last.sealed["corrections"])
    before = booked[-1].after if booked and booked[-1].id not in sealed_corrections else sealed_ids(last)
    after = standing_ids(bills)
    changed = _touching(bills, set(before) ^ set(after), last.period)
    if not changed:
        return None
    closed = max(each.period for each in store.periods.closings())
    facts = _difference(store, extracts, bills, last.period, before, after)
    at, reason = _cause(bills, changed)
    period = max(closed.next, Month.of(at))
    number = len(booked) + 1
    name = correction_id(number, store.id)
    rows = _rows(facts, name, period, at, who, reason)
    correction = Correction(
        id=name,
        number=number,
        state=store.id,
        period=str(period),
        corrects=tuple(sorted({row["month"] for row in facts})),
        at=at.isoformat(),
        who=who,
        reason=reason,
        after=after,
        rows=rows.num_rows,
        amounts=_amounts(facts),
        file=f"{name}.parquet",
    )
    return corrections.add(correction, rows)


def _touching(bills: Path, changed: set[str], upto: Month) -> set[str]:
    """Return those of the bills that may have rows of closed months."""
    starts = {each.bill.id: each.bill.start for each in BillStore(bills).bills()}
    return {name for name in changed if (start := starts.get(name)) is None or start[:7] <= str(upto)}


def _cause(bills: Path, changed: set[str]) -> tuple[datetime, str]:
    """Return when the bills changed last, and how, for people."""
    store = BillStore(bills)
    moments = [
        each.imported_at for each in store.deliveries() if changed & {*(bill.id for bill in each.bills), *each.again}
    ]
    moments += [each.at for each in store.decisions() if each.bill in changed]
    changes = []
    for each in store.bills():
        if each.bill.id not in changed:
            continue
        if each.stands:
            instead = f" in the place of {each.replaces}" if each.replaces else " after the closing"
            changes.append(f"{each.bill.id} stands{instead}")
        elif each.removed is not None and each.removed.what is BillDecisionKind.REMOVE:
            changes.append(f"{each.bill.id} was removed: {each.removed.reason}")
    return max(map(datetime.fromisoformat, moments)).astimezone(UTC), "; ".join(
        changes
    ) or "bills changed after the closing"


def _difference(
    store: StateStore, extracts: Path, bills: Path, closed: Month, before: tuple[str, ...], after: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Return by how much closed months, and their late-metered entries, differ between the bills after and before."""
    spans_after = spans((), after)

    def view(ids: tuple[str, ...]) -> BooksView:
        closed_months = {name: (("", str(closed)),) for name in ids}
        opened = {name: ((str(closed), span[1]),) for name, (span, *_) in spans_after.items()}
        return BooksView(
            spans={
                name: (*closed_months.get(name, ()), *opened.get(name, ()))
                for name in sorted({*closed_months, *opened})
            }
        )

    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    words = ", ".join(f'"{name}"' for name in _WORDS)
    money = ", ".join(f"sum({name}) AS {name}" for name in _MONEY)
    for sign, ids in ((-1, before), (1, after)):
        first = _first(bills, ids, closed)
        with open_matched_books(store, extracts, bills, first, view(ids)) as (connection, *_):
            query = f"SELECT {words}, {money} FROM actual WHERE source <> 'added' GROUP BY ALL"
            for row in rows_of(connection.sql(query)):
                key = tuple(row[name] for name in _WORDS)
                group = sums.setdefault(key, {**{name: row[name] for name in _WORDS}, **dict.fromkeys(_MONEY, 0)})
                for name in _MONEY:
                    group[name] += sign * (row[name] or 0)
    changed_groups = [group for group in sums.values() if group["billed"] or group["effective"]]
    # Entries that were metered late stand in an open month, but they too correct a closed one.
    return [{**group, "month": min(group["month"], str(closed))} for group in changed_groups]


def _first(bills: Path, ids: tuple[str, ...], closed: Month) -> Month:
    """Return the first month of any of the bills: before it nothing differs."""
    starts = [each.bill.start for each in BillStore(bills).bills() if each.bill.id in ids]
    known = [Month.parse(start[:7]) for start in starts if start is not None]
    return min((*known, closed)) if None not in starts else Month(1, 1)


def _rows(facts: list[dict[str, Any]], name: str, period: Month, at: datetime, who: str, reason: str) -> pa.Table:
    import pyarrow as pa

    columns: dict[str, list[Any]] = {field.name: [] for field in COLUMNS}
    for number, fact in enumerate(sorted(facts, key=lambda fact: str([fact[word] for word in _WORDS])), 1):
        month = Month.parse(fact["month"])
        row = {
            **fact,
            "source": FactSource.BILLED.value,
            "origin": name,
            "row": number,
            "corrects": str(month),
            "month": str(period),
            "start": month.begins,
            "end": month.ends,
            "recorded_at": at,
            "unpriced": False,
            "reason": reason,
            "who": who,
            "reference": name,
        }
        for field in COLUMNS:
            columns[field.name].append(row.get(field.name))
    return pa.table([pa.array(columns[field.name], field.type) for field in COLUMNS], schema=COLUMNS)


def _amounts(facts: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, Any]] = {}
    for fact in facts:
        group = found.setdefault(fact["currency"], {"billed": 0, "effective": 0})
        for name in group:
            group[name] += fact[name]
    return {currency: {name: f"{amount:f}" for name, amount in group.items()} for currency, group in found.items()}
