"""Compute the costs of open months by team, each from what may bear on it, and keep them beside the ledger's extract.

A month is matched from the bills that overlap the time of its books and from the ledger's books around it, so that a
bill or an entry of another time changes nothing. What is kept is named by a digest of all that: another bill, entry,
correction or release gives another digest, and the month is matched again. Kept costs can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pricing.atomic_file import publish_file
from router import installed_version
from router.app.bill_views import BooksView, Segment, bills_in, corrections_in
from router.app.reconcile import define_facts, open_extract
from router.files.duckdb_session import parquet_relation, rows_of, sql_text
from router.ledger.month import Month
from router.showback.apportion import exact_sum
from router.showback.ledger_extract import FORMAT as EXTRACT_FORMAT
from router.showback.ledger_extract import ExtractManifest, ExtractPart
from router.showback.reconcile.matching import reconcile
from router.showback.report.rollup_tables import report_months

if TYPE_CHECKING:
    import duckdb

    from router.state.store import StateStore

# Increased where costs, or what they are computed from, change their meaning.
FORMAT: Final = 1
_FOLDER: Final = "costs"
_DAY: Final = timedelta(days=1)
# Before and after all moments of books; a file that does not say when its rows are lies between them.
_BEGINNING, _END = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
# The end of a resource's name, which is all that some bills write of it.
_TAIL: Final = "split_part(lower(resource), '/', -1)"
_BASES: Final = ("billed", "effective")
_Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamCost:
    """The costs of a month in a currency that a team has (None: nobody), on both bases; None where none is known."""

    team: str | None
    currency: str
    billed: Decimal | None
    effective: Decimal | None


@dataclass(frozen=True, slots=True)
class _BilledRows:
    """The rows of a bill or a correction: its id and SHA-256, the month of its books if known, and their time."""

    id: str
    sha256: str
    month: str | None
    span: _Span


@dataclass(frozen=True, slots=True)
class _MonthInputs:
    """All that the costs of a month are computed from: billed rows and the ledger's books, and the time of its own."""

    month: Month
    span: _Span
    billed: tuple[_BilledRows, ...]
    books: tuple[str, ...]

    @property
    def since(self) -> str:
        return str(report_months(self.month)[-1])


def open_costs(
    store: StateStore, months: Sequence[Month], extracts: Path, bills: Path, still_open: Segment
) -> dict[Month, tuple[TeamCost, ...]]:
    """Return the costs by team of those months that are open, on which bills may bear.

    They are invoiced where a bill stands, metered elsewhere, and what people added. Kept costs are read where nothing
    they were computed from has changed. Raises StateError, InvalidInputError, OSError.
    """
    view = still_open.view
    months = [month for month in months if still_open.holds(month)]
    if not months:
        return {}
    first = min(str(report_months(month)[-1]) for month in months)
    billed = tuple(_billed_rows(store, bills, view, first))
    with open_extract(store, extracts) as (connection, folder, manifest):
        entries = _ledger_spans(connection, folder, manifest, first)
        inputs = [found for month in months if (found := _inputs(month, billed, entries)) is not None]
        digests = {each.month: _digest(each, store, manifest, view) for each in inputs}
        # Entries that came after the requested moment are in the digest, but not in the costs.
        keeps = {
            each.month
            for each in inputs
            if view.as_of is None or all(entries[name]["recorded_at"] <= view.as_of for name in each.books)
        }
        costs = {month: kept for month in keeps if (kept := _read(folder, month, digests[month])) is not None}
        if missing := [each for each in inputs if each.month not in costs]:
            only = {rows.id for each in missing for rows in each.billed}
            since = min(each.since for each in missing)
            define_facts(connection, store, bills, folder, manifest, since, view, only)
            for each in missing:
                costs[each.month] = _match(connection, each)
                if each.month in keeps:
                    _write(folder, each.month, digests[each.month], costs[each.month])
    return costs


def total_costs(costs: Iterable[TeamCost], basis: str, teams: frozenset[str] | None) -> dict[str, Decimal]:
    """Return the sums by currency of the teams, "" for none; of all where they are None."""
    sums: dict[str, list[Decimal]] = {}
    for each in costs:
        amount = each.billed if basis == "billed" else each.effective
        if amount is not None and (teams is None or (each.team or "") in teams):
            sums.setdefault(each.currency, []).append(amount)
    return {currency: exact_sum(amounts) for currency, amounts in sums.items()}


def _billed_rows(store: StateStore, bills: Path, view: BooksView, first: str) -> Iterator[_BilledRows]:
    """Yield the bills and corrections that count in months from the first on."""
    for standing, path, _ in bills_in(view, bills):
        bill = standing.bill
        month = None if bill.start is None else bill.start[:7]
        if month is None or month >= first:
            yield _BilledRows(bill.id, bill.sha256, month, _bill_span(path))
    corrections_in(view, store, bills)  # raises for one that is damaged
    for correction in view.corrections:
        if correction.rows and correction.period >= first:
            # A correction is about closed months, and covers no metered time.
            period = Month.parse(correction.period)
            yield _BilledRows(correction.id, correction.sha256, correction.period, (period.begins, period.begins))


def _bill_span(path: Path) -> _Span:
    """Return the time of a bill's rows, from the statistics of its columns; all time where one has none."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        metadata = file.metadata
    lows, highs = list[datetime | None](), list[datetime | None]()
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = {column.path_in_schema: column.statistics for column in map(group.column, range(group.num_columns))}
        lows += [
            _edge(columns[name], group.num_rows, lowest=True) for name in ("ChargePeriodStart", "BillingPeriodStart")
        ]
        highs += [
            _edge(columns[name], group.num_rows, lowest=False) for name in ("ChargePeriodEnd", "BillingPeriodEnd")
        ]
    known = [each for each in (*lows, *highs) if each is not None]
    if len(known) < len(lows) + len(highs):
        return _BEGINNING, _END
    return min(known, default=_END), max(known, default=_BEGINNING)


def _edge(statistics: Any, rows: int, *, lowest: bool) -> datetime | None:
    """Return the first or last moment of a column; the last or first of all where it has nothing, None if unknown."""
    if statistics is not None and statistics.null_count == rows:
        return _END if lowest else _BEGINNING
    if statistics is None or not statistics.has_min_max:
        return None
    moment: datetime = statistics.min if lowest else statistics.max
    return moment


def _ledger_spans(
    connection: duckdb.DuckDBPyConnection, folder: Path, manifest: ExtractManifest, first: str
) -> dict[str, dict[str, Any]]:
    """Return by month of the ledger's books the time of what was metered, and when its last entry was recorded."""
    parts = [part.path(folder, "sums") for part in manifest.parts if part.month >= first]
    if not parts:
        return {}
    found = connection.sql(
        f"SELECT month, min(first_start) FILTER (source = 'metered') AS begins, "
        f"max(last_end) FILTER (source = 'metered') AS ends, max(recorded_at) AS recorded_at "
        f"FROM {parquet_relation(parts)} GROUP BY month"
    )
    return {row["month"]: row for row in rows_of(found)}


def _inputs(
    month: Month, billed: Iterable[_BilledRows], entries: Mapping[str, Mapping[str, Any]]
) -> _MonthInputs | None:
    """Return the inputs of a month's costs; None where it has nothing in its books."""
    since = str(report_months(month)[-1])
    candidates = [each for each in billed if each.month is None or each.month >= since]
    own = [each.span for each in candidates if each.month in (None, str(month))]
    if str(month) in entries:
        metered = entries[str(month)]
        own.append((metered["begins"] or month.begins, metered["ends"] or month.begins))
    if not own:
        return None
    span = _whole_days((month.begins, month.ends), *own)
    rows = tuple(each for each in candidates if each.month == str(month) or _overlap(each.span, span))
    around = _whole_days(span, *(each.span for each in rows))
    # Books before it may know a machine that is on its bill still; others count where their time does.
    books = tuple(
        sorted(
            name
            for name, each in entries.items()
            if since <= name <= str(month)
            or (name > str(month) and each["begins"] and _overlap((each["begins"], each["ends"]), around))
        )
    )
    return _MonthInputs(month, span, rows, books)


def _overlap(one: _Span, other: _Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _whole_days(*spans: _Span) -> _Span:
    begins, ends = min(each[0] for each in spans), max(each[1] for each in spans)
    first = begins.replace(hour=0, minute=0, second=0, microsecond=0)
    last = ends.replace(hour=0, minute=0, second=0, microsecond=0)
    return first, last if last == ends else last + _DAY


def _digest(inputs: _MonthInputs, store: StateStore, manifest: ExtractManifest, view: BooksView) -> str:
    """Return the digest of all that the costs are computed from."""
    books = [_identity(name, manifest.of_months([name]), store) for name in inputs.books]
    billed = sorted([each.id, each.sha256, *map(list, view.spans.get(each.id, ()))] for each in inputs.billed)
    known = [FORMAT, EXTRACT_FORMAT, installed_version(), manifest.state, str(inputs.month), books, billed]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def _identity(month: str, parts: Sequence[ExtractPart], store: StateStore) -> list[object]:
    """Return what tells books from any others: how many entries, and the hash of the last, which covers all before."""
    last = max(part.last for part in parts)
    rows = sum(part.rows for part in parts)
    return [month, min(part.first for part in parts), last, rows, store.ledger.hash_at(last)]


def _match(connection: duckdb.DuckDBPyConnection, inputs: _MonthInputs) -> tuple[TeamCost, ...]:
    """Match the month from its inputs in ``facts``."""
    month, since = sql_text(str(inputs.month)), sql_text(inputs.since)
    ids, books = _sql_texts(each.id for each in inputs.billed), _sql_texts(inputs.books)
    of_time = f"(month = {month} OR (origin IN ({ids}) AND {_within(inputs.span)}))"
    billed = f"FROM facts WHERE source = 'billed' AND month >= {since} AND {of_time}"
    (edges,) = rows_of(connection.sql(f'SELECT min(start) AS begins, max("end") AS ends {billed} AND corrects IS NULL'))
    around = inputs.span if edges["begins"] is None else _whole_days(inputs.span, (edges["begins"], edges["ends"]))
    # What a bill names is known also from other times: a machine by its id, an owner by job and attempt.
    named = {"tail": _TAIL, "job": "job", "attempt": "attempt"}
    for name, expression in named.items():
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE near_{name} AS SELECT DISTINCT {expression} AS {name} {billed} "
            f"AND {expression} IS NOT NULL"
        )
    known = " OR ".join(f"{expression} IN (FROM near_{name})" for name, expression in named.items())
    connection.execute(
        f"CREATE OR REPLACE TEMP VIEW near_facts AS {billed} "
        # Bills and entries write different ends of a bucket's name: all of them are near.
        f"UNION ALL FROM facts WHERE source = 'metered' AND month IN ({books}) "
        f"AND (month = {month} OR {_within(around)} OR contains(resource, '://') OR {known}) "
        f"UNION ALL FROM facts WHERE source = 'planned' AND month IN ({books}) "
        f"UNION ALL FROM facts WHERE source = 'added' AND month = {month}"
    )
    reconcile(connection, "near_facts", "near_actual", stored=False)
    rows = rows_of(
        connection.sql(
            f"SELECT team, currency, sum(billed) AS billed, sum(effective) AS effective FROM near_actual "
            f"WHERE month = {month} GROUP BY ALL ORDER BY ALL"
        )
    )
    return tuple(TeamCost(**row) for row in rows)


def _sql_texts(names: Iterable[str]) -> str:
    return ", ".join(sql_text(name) for name in names) or "NULL"


def _within(span: _Span) -> str:
    begins, ends = (f"TIMESTAMPTZ '{each.isoformat()}'" for each in span)
    return f'(start < {ends} AND "end" > {begins})'


def _read(folder: Path, month: Month, digest: str) -> tuple[TeamCost, ...] | None:
    """Read the kept costs of a month; None where none are kept of these inputs."""
    try:
        content = json.loads((folder / _FOLDER / f"{month}.json").read_text(encoding="utf-8"))
        if content["digest"] != digest:
            return None
        return tuple(
            TeamCost(
                team=row["team"],
                currency=row["currency"],
                **{name: None if row[name] is None else Decimal(row[name]) for name in _BASES},
            )
            for row in content["costs"]
        )
    except (OSError, ValueError, TypeError, KeyError, ArithmeticError):
        return None


def _write(folder: Path, month: Month, digest: str, costs: Iterable[TeamCost]) -> None:
    """Keep the costs of a month; the folder is locked. A process that is killed leaves what was kept, or these."""
    rows = [
        {
            "team": each.team,
            "currency": each.currency,
            **{name: None if (amount := getattr(each, name)) is None else f"{amount:f}" for name in _BASES},
        }
        for each in costs
    ]
    (folder / _FOLDER).mkdir(mode=0o700, exist_ok=True)
    part = folder / _FOLDER / ".part"
    part.write_text(json.dumps({"digest": digest, "costs": rows}), encoding="utf-8")
    publish_file(part, folder / _FOLDER / f"{month}.json")
