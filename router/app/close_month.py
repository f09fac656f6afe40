"""Close a month for good: make its seal, check whether it still holds, and book later changes as corrections."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pricing.money import ZERO
from router.app.bill_views import BooksView, closings, sealed_ids, seals, spans, standing_ids, view_of, view_to_seal
from router.app.budgets import budget_figures
from router.app.reconcile import open_matched_books, rollup_matched
from router.files.duckdb_session import rows_of
from router.ledger.month import Month
from router.showback.bill_store import BillStore
from router.showback.bills import BillDecisionKind
from router.showback.corrections import Correction, CorrectionStore, correction_id
from router.showback.facts import COLUMNS, FactSource
from router.showback.focus.texts import decimal_text
from router.showback.report.query import ReportContext, ReportInputs, ReportQuery
from router.showback.report.rollup_tables import NO_CUTS, report_months, sql_of_teams

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from router.state.periods import PeriodClosing
    from router.state.store import StateStore

# The sums of a seal are grouped by these columns.
_WORDS = (
    "source",
    "state",
    "category",
    "corrects",
    "team",
    "project",
    "cost_center",
    "job",
    "plan",
    "what",
    '"use"',
    "cloud",
    "account",
    "region",
    "instance_type",
    "market",
    "currency",
    "unpriced",
)
_SUMS = ("billed", "effective", "hours")
_FIGURES = ("planned", "billed", "effective")


@dataclass(frozen=True, slots=True, kw_only=True)
class SealDraft:
    """The seal that a month would be closed with (JSON data), and the ledger's head that it covers."""

    seal: dict[str, Any]
    head: int


def make_seal(store: StateStore, extracts: Path, bills: Path, month: Month, now: datetime) -> SealDraft:
    """Return the seal of the month as it stands; call it while the bills are locked.

    Raises InvalidInputError, StateError, OSError.
    """
    bill_store, view = BillStore(bills), view_to_seal(store, bills, month)
    query = ReportQuery(month=month, now=now)
    with open_matched_books(store, extracts, bills, report_months(month)[-1], view) as (connection, _, head, _):
        figures, digest = _figures(connection, month)
        rollups = rollup_matched(connection, report_months(month), now, NO_CUTS)
        budgets = budget_figures(store, ReportContext(rollups, query, ReportInputs(origin="", input_hash="")), view)
    seal = {
        "version": 1,
        "bills": [
            {"id": each.bill.id, "sha256": each.bill.sha256, "rows": each.bill.rows, "sums": each.bill.sums}
            for each in sorted(bill_store.standing(), key=lambda standing: standing.bill.id)
        ],
        "corrections": {each.id: each.sha256 for each in view.corrections},
        "figures": figures,
        "report": digest,
        "spent": [
            {
                "scope": each.scope,
                "currency": each.currency,
                "budget": _text(each.budget),
                "hard": each.hard,
                "spent": _text(each.spent),
            }
            for each in budgets
        ],
    }
    return SealDraft(seal=seal, head=head)


@dataclass(frozen=True, slots=True)
class SealCheck:
    """The check of one closing: its problems (none where it holds), and what could not be checked."""

    closing: PeriodClosing
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()


def check_seals(store: StateStore, extracts: Path, bills: Path) -> tuple[SealCheck, ...]:
    """Check that each month's bills, corrections and report are those that it was closed with. Raises OSError."""
    return tuple(_check(store, extracts, bills, closing) for closing in seals(store))


def _check(store: StateStore, extracts: Path, bills: Path, closing: PeriodClosing) -> SealCheck:
    problems = list(_file_problems(store, bills, closing))
    if problems:
        return SealCheck(closing, tuple(problems))
    view = view_of(store, bills, closing.period)
    with open_matched_books(store, extracts, bills, report_months(closing.period)[-1], view) as (
        connection,
        _,
        _,
        archived,
    ):
        figures, digest = _figures(connection, closing.period)
    if digest == closing.sealed["report"]:
        return SealCheck(closing, ())
    if archived:
        note = f"the report of {closing.period} was not made again: entries were archived before they were read"
        return SealCheck(closing, (), (note,))
    return SealCheck(closing, tuple(_differences(closing, figures)))


def _file_problems(store: StateStore, bills: Path, closing: PeriodClosing) -> Iterator[str]:
    bill_store = BillStore(bills)
    standing_by_id = {each.bill.id: each for each in bill_store.bills()}
    for bill in closing.sealed["bills"]:
        standing = standing_by_id.get(bill["id"])
        if standing is None or not bill_store.path(standing).is_file():
            yield f"{bill['id']}, a bill that {closing.period} was closed with, is gone"
        elif standing.bill.sha256 != bill["sha256"] or not bill_store.whole(standing):
            yield f"{bill['id']}, a bill that {closing.period} was closed with, has other rows now"
    corrections_store = CorrectionStore(bills, store.id)
    corrections = {each.id: each for each in corrections_store.all()}
    for name, sha256 in closing.sealed["corrections"].items():
        correction = corrections.get(name)
        if correction is None or correction.sha256 != sha256 or not corrections_store.whole(correction):
            yield f"{name}, which {closing.period} was closed with, is gone or has other rows now"


def _differences(closing: PeriodClosing, now: list[dict[str, Any]]) -> Iterator[str]:
    key = ("currency", "team")
    before = {tuple(row[name] for name in key): row for row in closing.sealed["figures"]}
    after = {tuple(row[name] for name in key): row for row in now}
    differs = False
    for group in sorted(before.keys() | after.keys(), key=str):
        sealed_usd, current_usd = before.get(group, {}).get("effective"), after.get(group, {}).get("effective")
        if sealed_usd != current_usd:
            differs = True
            currency, team = group
            yield (
                f"{closing.period}, {team or 'no team'}: closed with {sealed_usd or 'nothing'} {currency}, "
                f"now {current_usd}"
            )
    if not differs:
        yield f"the report of {closing.period} is made from other rows than it was closed with; its sums are the same"


@dataclass(frozen=True, slots=True)
class LaterCorrection:
    """An amount of a currency that corrects a closed month, and stands in an open one.

    It was recorded between two moments.
    """

    period: str
    currency: str
    amount: Decimal
    first: datetime | None
    last: datetime | None

    def __str__(self) -> str:
        days = sorted({f"{each:%Y-%m-%d}" for each in (self.first, self.last) if each is not None})
        dated = f" dated {' to '.join(days)}" if days else ""
        noun = "stand" if self.amount else "come to nothing and stand"
        return f"corrections of {self.amount:+,.2f} {self.currency}{dated} {noun} in {self.period}"


def later_corrections(
    store: StateStore, extracts: Path, bills: Path, query: ReportQuery
) -> tuple[LaterCorrection, ...]:
    """Return the corrections of a closed month, by the month in whose books they stand and by currency.

    They come from bills that changed, from entries metered late, and from what people added; as of the requested
    moment, on the requested basis, and of the requested teams.
    """
    month, cost = query.month, query.basis.value
    later = max((each.period for each in closings(store, query.as_of)), default=month).next
    sql = f"""
WITH of_month AS (
    SELECT DISTINCT key FROM facts WHERE month = '{month}' AND key IS NOT NULL AND source <> 'planned')
SELECT month AS period, currency, coalesce(sum({cost}), 0) AS amount, min(recorded_at) AS first,
       max(recorded_at) AS last
FROM actual WHERE month > '{month}' AND corrects IS NOT NULL AND {sql_of_teams(query.teams)}
      AND (corrects = '{month}' OR corrects IN (SELECT key FROM of_month))
GROUP BY ALL ORDER BY ALL"""
    with open_matched_books(store, extracts, bills, month, view_of(store, bills, later, query.as_of)) as (
        connection,
        *_,
    ):
        return tuple(LaterCorrection(**row) for row in rows_of(connection.sql(sql)))


def figures_digest(rows: Sequence[dict[str, Any]]) -> str:
    """Return SHA-256 in hex over sums by all their words, in one order."""
    lines = sorted(json.dumps(row, sort_keys=True, ensure_ascii=True) for row in rows)
    return hashlib.sha256("\n".join(lines).encode("ascii")).hexdigest()


def _figures(connection: duckdb.DuckDBPyConnection, month: Month) -> tuple[list[dict[str, Any]], str]:
    """Return by currency and team a month's planned and actual costs, and the digest of its sums by all words."""
    words, sums = ", ".join(_WORDS), ", ".join(f"sum({name}) AS {name}" for name in _SUMS)
    rows = rows_of(
        connection.sql(
            f"WITH counted AS (FROM actual UNION ALL BY NAME FROM facts WHERE source = 'planned') "
            f"SELECT {words}, count(*) AS facts, {sums} FROM counted WHERE month = '{month}' GROUP BY ALL"
        )
    )
    plain = [{name: _text(value) if name in _SUMS else value for name, value in row.items()} for row in rows]
    groups: dict[tuple[str, str | None], dict[str, Decimal]] = {}
    for row in rows:
        group = groups.setdefault((row["currency"], row["team"]), dict.fromkeys(_FIGURES, Decimal(0)))
        if row["source"] == "planned":
            group["planned"] += row["effective"] or 0
        else:
            group["billed"] += row["billed"] or 0
            group["effective"] += row["effective"] or 0
    figures = [
        {"currency": currency, "team": team, **{name: _text(amount) for name, amount in group.items()}}
        for (currency, team), group in sorted(groups.items(), key=str)
    ]
    return figures, figures_digest(plain)


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else decimal_text(amount)


_CORRECTED = (
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
    words = ", ".join(f'"{name}"' for name in _CORRECTED)
    money = ", ".join(f"sum({name}) AS {name}" for name in _MONEY)
    for sign, ids in ((-1, before), (1, after)):
        first = _first(bills, ids, closed)
        with open_matched_books(store, extracts, bills, first, view(ids)) as (connection, *_):
            query = f"SELECT {words}, {money} FROM actual WHERE source <> 'added' GROUP BY ALL"
            for row in rows_of(connection.sql(query)):
                key = tuple(row[name] for name in _CORRECTED)
                group = sums.setdefault(key, {**{name: row[name] for name in _CORRECTED}, **dict.fromkeys(_MONEY, 0)})
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
    for number, fact in enumerate(sorted(facts, key=lambda fact: str([fact[word] for word in _CORRECTED])), 1):
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
