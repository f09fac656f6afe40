"""Match open months, each from what may bear on it, and keep what their facts sum to.

A month is matched from the bills that overlap the time of its books, from the entries of that time, and from those that
say whose a resource, job or attempt is that its bills name. So a bill or an entry of another time changes nothing, and
a month is matched again only where one that came since bears on it. The sums are those of all books matched at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pricing.atomic_file import make_private_folder
from router import installed_version
from router.app.bill_views import BooksView, bills_in, corrections_in, counts_in
from router.app.kept_months import (
    NAMES,
    SUMMED,
    KeptMonth,
    keep_month,
    read_kept_month,
    table_path,
    write_manifest,
    write_table,
)
from router.app.reconcile import insert_bill, unreadable_bill
from router.files.duckdb_session import parquet_relation, rows_of, sql_text
from router.ledger.month import Month
from router.showback import rollups
from router.showback.facts import COLUMNS, MONEY, MONEY_SQL
from router.showback.ledger_extract import FORMAT as EXTRACT_FORMAT
from router.showback.ledger_extract import ExtractManifest, ExtractPart
from router.showback.reconcile.levels import MatchLevel, OutsideEvidence, ResourceKind, unsure_kinds
from router.showback.reconcile.matching import known_kinds, read_known_kinds, reconcile
from router.showback.reconcile.variance import summed_sides_sql
from router.showback.report.rollup_tables import corrections_sql, report_months

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from router.state.store import StateStore

# Increased where sums, or what they are computed from, change their meaning.
FORMAT: Final = 1
_FOLDER: Final = "costs"
_NAMES_FOLDER: Final = "names"
_DAY: Final = timedelta(days=1)
# Before and after all moments of books; a file that does not say when its rows are lies between them.
_BEGINNING, _END = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
# The end of a resource's name, which is all that some bills write of it.
_TAIL: Final = "split_part(lower(resource), '/', -1)"
# Bills and entries write different ends of a bucket's name: entries of all of them bear on a month.
_STORE: Final = "contains(resource, '://')"
# What bills and entries name alike: as it stands in facts.
_NAMED: Final = {"tail": _TAIL, "job": "job", "attempt": "attempt"}
# Columns of facts of which nothing is summed.
_OMITTED: Final = frozenset({"key", "gang", "rank", "zone", "price_as_of", "price_source", "split_origin"})
# Columns that tell one fact from another: corrections are shown with them, and nothing is summed by them.
_OF_ONE_FACT: Final = frozenset({"origin", "row", "resource", "sku", "reason", "who"})
_TRIMMED: Final = {
    "reason": "CASE WHEN corrects IS NOT NULL THEN reason END AS reason",
    "reference": "CASE WHEN corrects IS NOT NULL OR what = 'egress' THEN reference END AS reference",
}
_Span = tuple[datetime, datetime]


def _columns() -> str:
    """Return the SQL of the columns of facts that are summed, or tell what belongs together."""
    names = [field for field in COLUMNS if field.name not in _OMITTED]
    # DuckDB rounds a union to the places of the narrower decimal, which is the ledger's.
    return ", ".join(
        f'"{field.name}"::{MONEY_SQL} AS "{field.name}"'
        if field.type == MONEY
        else _TRIMMED.get(field.name, f'"{field.name}"')
        for field in names
    )


_FACTS: Final = _columns()


@dataclass(frozen=True, slots=True)
class MatchedMonth:
    """The sums of a month as relations, by table of :data:`SUMMED`, and until when its bills have usage."""

    month: Month
    through: datetime | None
    tables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _BilledRows:
    """The rows of a bill or a correction: its id and SHA-256, the month of its books if known, and their time."""

    id: str
    sha256: str
    month: str | None
    span: _Span


@dataclass(frozen=True, slots=True)
class _MonthInputs:
    """The bills that bear on a month, the time of its books, and the earliest books that may bear on it."""

    month: Month
    span: _Span
    billed: tuple[_BilledRows, ...]
    since: str


class MonthMatcher:
    """Match months of an open view, with a connection to an extract (:func:`router.app.reconcile.open_extract`)."""

    def __init__(
        self,
        store: StateStore,
        bills: Path,
        view: BooksView,
        connection: duckdb.DuckDBPyConnection,
        folder: Path,
        manifest: ExtractManifest,
    ) -> None:
        self._bills, self._view = bills, view
        self._store, self._connection, self._folder, self._manifest = store, connection, folder, manifest
        self._costs = folder / _FOLDER
        self._billed = tuple(self._billed_rows())
        self._books = self._ledger_spans()
        self._kinds: dict[str, Mapping[ResourceKind, str]] = {}
        self._unseen = set[int]()
        self._loaded: str | None = None
        connection.register("no_facts", COLUMNS.empty_table())

    def match(self, months: Iterable[Month]) -> dict[Month, MatchedMonth]:
        """Return those months that have anything in their books; kept ones are read. InvalidInputError, OSError."""
        matched = {}
        for month in months:
            inputs = self._inputs(month)
            if inputs is not None:
                kept = self._kept(inputs, whole=True)
                matched[month] = self._match(inputs) if kept is None else self._read(month, kept)
        return matched

    def _read(self, month: Month, kept: KeptMonth) -> MatchedMonth:
        tables = {name: parquet_relation([table_path(self._costs, month, kept, name)]) for name in SUMMED}
        return MatchedMonth(month, kept.through, tables)

    # What a month is matched from

    def _billed_rows(self) -> Iterator[_BilledRows]:
        for standing, path, spans in bills_in(self._view, self._bills):
            bill = standing.bill
            month = None if bill.start is None else bill.start[:7]
            if month is None or counts_in(month, spans):
                # Rows of a bill without a period may count in some months and not in others.
                counted = "" if month is not None else json.dumps(spans)
                yield _BilledRows(bill.id, bill.sha256 + counted, month, _bill_span(bill.id, path))
        corrections_in(self._view, self._store, self._bills)  # raises for one that is damaged
        for correction in self._view.corrections:
            if correction.rows:
                # A correction is about closed months, and covers no metered time.
                period = Month.parse(correction.period)
                yield _BilledRows(correction.id, correction.sha256, correction.period, (period.begins, period.begins))

    def _ledger_spans(self) -> dict[str, dict[str, Any]]:
        """Return by month of the ledger's books the time of what was metered, its clouds, and the last recording."""
        parts = [part.path(self._folder, "sums") for part in self._manifest.parts]
        if not parts:
            return {}
        query = """
SELECT month, min({start}) FILTER (source = 'metered') AS begins, max({end}) FILTER (source = 'metered') AS ends,
       max(recorded_at) AS recorded_at, list(DISTINCT cloud) FILTER (source = 'metered' AND cloud IS NOT NULL) AS clouds
FROM {relation} GROUP BY month"""
        spans = {
            row["month"]: row
            for row in rows_of(
                self._connection.sql(
                    query.format(start="first_start", end="last_end", relation=parquet_relation(parts))
                )
            )
        }
        as_of = self._view.as_of
        late = {month for month, row in spans.items() if as_of is not None and row["recorded_at"] > as_of}
        if late:  # Sums have entries of these months that the view does not know.
            facts = self._view.known(
                parquet_relation([part.path(self._folder, "facts") for part in self._manifest.of_months(late)])
            )
            known = rows_of(self._connection.sql(query.format(start="start", end='"end"', relation=facts)))
            nothing = {"begins": None, "ends": None, "clouds": None}
            spans |= {month: {**spans[month], **nothing} for month in late}
            spans |= {row["month"]: {**row, "recorded_at": spans[row["month"]]["recorded_at"]} for row in known}
        return spans

    def _inputs(self, month: Month) -> _MonthInputs | None:
        """Return the inputs of a month; None where it has nothing in its books."""
        since = str(report_months(month)[-1])
        candidates = [each for each in self._billed if each.month is None or each.month >= since]
        own = [each.span for each in candidates if each.month in (None, str(month))]
        if str(month) in self._books:
            metered = self._books[str(month)]
            own.append((metered["begins"] or month.begins, metered["ends"] or month.begins))
        if not own:
            return None
        return self._inputs_within(month, _whole_days((month.begins, month.ends), *own))

    def _inputs_within(self, month: Month, span: _Span) -> _MonthInputs:
        """Return the inputs of a month whose bills lie within a span."""
        since = str(report_months(month)[-1])
        candidates = [each for each in self._billed if each.month is None or each.month >= since]
        rows = tuple(each for each in candidates if each.month == str(month) or _overlap(each.span, span))
        return _MonthInputs(month, span, rows, since)

    def _clouds(self, since: str) -> frozenset[str]:
        return frozenset(cloud for name, each in self._books.items() if name >= since for cloud in each["clouds"] or ())

    def _digest(self, inputs: _MonthInputs) -> str:
        """Return the digest of what a month is matched from, but for the entries of the ledger."""
        billed = sorted([each.id, each.sha256] for each in inputs.billed)
        clouds = sorted(self._clouds(inputs.since))
        known = [FORMAT, EXTRACT_FORMAT, installed_version(), self._manifest.state, str(inputs.month), billed, clouds]
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()

    # What was kept

    def _kept(self, inputs: _MonthInputs, *, whole: bool) -> KeptMonth | None:
        """Return the kept month where nothing that bears on it has changed; ``whole``: with its sums."""
        kept = read_kept_month(self._costs, inputs.month, (NAMES, *SUMMED) if whole else (NAMES,))
        if kept is None or _whole_days(inputs.span, kept.span) != kept.span:
            return None
        inputs = self._inputs_within(inputs.month, kept.span)
        if (
            kept.digest != self._digest(inputs)
            or not self._is_of_ledger(kept)
            or self._is_too_late(kept)
            or (kept.head < self._manifest.head and self._bears(inputs, kept))
            or (
                whole
                and any(self._is_known(kind, inputs.since) != known for kind, known in kept.known_elsewhere.items())
            )
        ):
            return None
        if kept.head < self._manifest.head:
            kept = kept.upto(self._manifest)
            write_manifest(self._costs, inputs.month, kept)
        return kept

    def _is_of_ledger(self, kept: KeptMonth) -> bool:
        """Return whether it was matched from this ledger, of which no more had been archived unread."""
        if kept.head > self._manifest.head:
            return False
        last = self._manifest.hash if kept.head == self._manifest.head else self._store.ledger.hash_at(kept.head)
        return last == kept.hash and kept.gaps == tuple(gap for gap in self._manifest.gaps if gap[0] <= kept.head)

    def _is_too_late(self, kept: KeptMonth) -> bool:
        as_of = self._view.as_of
        return as_of is not None and kept.recorded_at is not None and kept.recorded_at > as_of

    def _bears(self, inputs: _MonthInputs, kept: KeptMonth) -> bool:
        entries, since = self._entries_after(kept.head), sql_text(inputs.since)
        names = parquet_relation([table_path(self._costs, inputs.month, kept, NAMES)])
        of_time = f"(month = '{inputs.month}' OR (source = 'metered' AND ({_within(kept.around)} OR store)))"
        queries = (
            f"SELECT 1 FROM {entries} WHERE month >= {since} AND source <> 'planned' AND {of_time} LIMIT 1",
            f"SELECT 1 FROM {names} JOIN {entries}_name USING (kind, name) WHERE month >= {since} LIMIT 1",
        )
        return any(self._connection.execute(query).fetchall() for query in queries)

    def _entries_after(self, head: int) -> str:
        """Return a table of the entries with numbers above; one with ``_name`` behind has what they name."""
        table = f"unseen_{head}"
        if head not in self._unseen:
            parts = [part.path(self._folder, "facts") for part in self._manifest.parts if part.last > head]
            named = ", ".join(f"{expression} AS {kind}" for kind, expression in _NAMED.items())
            self._connection.execute(
                f'CREATE TEMP TABLE {table} AS SELECT month, source, start, "end", {named}, '
                f"coalesce({_STORE}, false) AS store FROM {parquet_relation(parts) if parts else 'no_facts'} "
                f'WHERE "row" > {head}'
            )
            names = " UNION ".join(
                f"SELECT month, '{kind}' AS kind, {kind} AS name FROM {table} WHERE source <> 'added'"
                for kind in _NAMED
            )
            self._connection.execute(f"CREATE TEMP TABLE {table}_name AS {names}")
            self._unseen.add(head)
        return table

    # Of which kinds bills know resources by their ids

    def _is_known(self, kind: ResourceKind, since: str) -> bool:
        """Return whether bills from a month on know resources of the kind, in books from that month on."""
        return any((self._kinds_of(month).get(kind) or "") >= since for month in self._billed_months(since))

    def _billed_months(self, since: str) -> list[Month]:
        """Return the months from one on in whose books rows of bills may be."""
        found = set[str]()
        for each in self._billed:
            if each.month is not None:
                found.add(each.month)
            else:
                month, last = Month.of(each.span[0]), Month.of(each.span[1])
                while month <= last:
                    found.add(str(month))
                    month = month.next
        return [Month.parse(name) for name in sorted(found) if name >= since]

    def _kinds_of(self, month: Month) -> Mapping[ResourceKind, str]:
        """Return of which kinds the bills of a month know resources, kept or found by its resources alone."""
        if str(month) not in self._kinds:
            inputs = self._inputs(month)
            kept = None if inputs is None else self._kept(inputs, whole=False)
            if kept is not None:
                self._kinds[str(month)] = kept.kinds
            elif inputs is not None:
                near = self._load(inputs)
                outside = OutsideEvidence(self._clouds(inputs.since))
                self._kinds[str(month)] = known_kinds(self._connection, "near", outside, str(month))
                self._keep(inputs, near, {}, {})
        return self._kinds.get(str(month), {})

    # Matching

    def _match(self, inputs: _MonthInputs) -> MatchedMonth:
        """Match the month, and keep it where the view has all entries of its time."""
        month, asked = str(inputs.month), dict[ResourceKind, bool]()
        around = self._load(inputs)
        while True:
            kinds = frozenset(kind for kind, known in asked.items() if known)
            outside = OutsideEvidence(self._clouds(inputs.since), kinds)
            reconcile(self._connection, "near", "near_actual", stored=False, outside=outside)
            wider = self._wider_span(inputs)
            if wider != inputs.span:
                inputs = self._inputs_within(inputs.month, wider)
                around = self._load(inputs)
                continue
            self._kinds[month] = read_known_kinds(self._connection, month)
            unsure = unsure_kinds(self._connection) - asked.keys()
            answers = {kind: self._is_known(kind, inputs.since) for kind in sorted(unsure, key=repr)}
            asked |= answers
            if self._loaded != month:  # Other months were loaded to answer.
                around = self._load(inputs)
            elif not any(answers.values()):
                break
        tables = self._sum(inputs.month)
        (through,) = rows_of(self._connection.sql(through_sql("near", inputs.month)))
        kept = self._keep(inputs, around, asked, tables, through["through"])
        if kept is not None:
            return self._read(inputs.month, kept)
        named = {name: f"matched_{month.replace('-', '_')}_{name}" for name in tables}
        for name, table in tables.items():
            self._connection.register(named[name], table)
        return MatchedMonth(inputs.month, through["through"], named)

    def _wider_span(self, inputs: _MonthInputs) -> _Span:
        """Return the span of a month with that of rows of other months that reach out of it, and may match by kind.

        Such a row is matched with time of other days first where rows of those days leave some.
        """
        begins, ends = (int(each.timestamp()) * 10**6 for each in inputs.span)
        found = self._connection.execute(
            "SELECT make_timestamptz(min(r.s))::VARCHAR, make_timestamptz(max(r.e))::VARCHAR FROM rc_row r ANTI JOIN "
            f"(FROM rc_pair WHERE level = '{MatchLevel.RESOURCE}') p ON p.b = r.b "
            "WHERE r.is_usage AND r.e > r.s AND r.month <> $1 AND (r.s < $2 OR r.e > $3) "
            "AND r.what IN (SELECT what FROM rc_stretch) AND (r.job IS NOT NULL OR r.attempt IS NOT NULL "
            "OR (r.region IS NOT NULL AND (r.instance_type IS NOT NULL OR r.sku IS NOT NULL)))",
            [str(inputs.month), begins, ends],
        ).fetchall()
        edges = [None if text is None else datetime.fromisoformat(text) for text in found[0]]
        return inputs.span if edges[0] is None or edges[1] is None else _whole_days(inputs.span, (edges[0], edges[1]))

    def _keep(
        self,
        inputs: _MonthInputs,
        around: _Span,
        known_elsewhere: Mapping[ResourceKind, bool],
        tables: Mapping[str, pa.Table],
        through: datetime | None = None,
    ) -> KeptMonth | None:
        """Keep the loaded month; None where the view leaves out entries of books that may bear on it."""
        recorded = [each["recorded_at"] for name, each in self._books.items() if name >= inputs.since]
        if self._view.as_of is not None and any(at > self._view.as_of for at in recorded):
            return None
        (last,) = rows_of(self._connection.sql("SELECT max(recorded_at) AS at FROM near WHERE source <> 'billed'"))
        kept = KeptMonth(
            digest=self._digest(inputs),
            head=self._manifest.head,
            hash=self._manifest.hash,
            gaps=self._manifest.gaps,
            recorded_at=last["at"],
            span=inputs.span,
            around=around,
            kinds=self._kinds[str(inputs.month)],
            known_elsewhere=known_elsewhere,
            through=through,
            stem="",
            files={},
        )
        names = _table(self._connection, "FROM near_name")
        return keep_month(self._costs, inputs.month, kept, {NAMES: names, **tables})

    def _sum(self, month: Month) -> dict[str, pa.Table]:
        names = ", ".join(f'"{name}"' for name in COLUMNS.names if name not in _OMITTED | _OF_ONE_FACT)
        which = f"FROM near_actual WHERE month = '{month}' AND source <> 'planned'"
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE month_actual AS SELECT {names} {which}")
        queries = _sums_sql(f"(FROM near WHERE month = '{month}')", "month_actual", f"({which})", month)
        tables = {name: _table(self._connection, query) for name, query in queries.items()}
        self._connection.execute("DROP TABLE month_actual")
        return tables

    def _load(self, inputs: _MonthInputs) -> _Span:
        """Create ``near``: the facts that bear on a month; return the time from which entries do."""
        connection, month, since = self._connection, sql_text(str(inputs.month)), sql_text(inputs.since)
        self._loaded = str(inputs.month)
        # A month's view names the tables of the month before it; it is dropped first.
        connection.execute("DROP VIEW IF EXISTS near_actual; DROP VIEW IF EXISTS near; DROP TABLE IF EXISTS near_facts")
        connection.execute(f"CREATE TEMP TABLE near_facts AS SELECT {_FACTS} FROM no_facts")
        insert, ids = f"INSERT INTO near_facts SELECT {_FACTS}", {each.id for each in inputs.billed}
        for standing, path, spans in bills_in(self._view, self._bills):
            if standing.bill.id in ids:
                own = (standing.bill.start or "").startswith(str(inputs.month))
                insert_bill(connection, path, standing.bill, inputs.since, spans, insert, None if own else inputs.span)
        corrections = [each for each in self._view.corrections if each.rows]
        for correction, path in zip(corrections, corrections_in(self._view, self._store, self._bills), strict=True):
            if correction.id in ids:
                of_time = f"month = {month} OR (month >= {since} AND {_within(inputs.span)})"
                connection.execute(f"{insert} FROM {parquet_relation([path])} WHERE {of_time}")
        edges = 'SELECT min(start) AS begins, max("end") AS ends FROM near_facts WHERE corrects IS NULL'
        (found,) = rows_of(connection.sql(edges))
        around = inputs.span
        if found["begins"] is not None:
            around = _whole_days(inputs.span, (found["begins"], found["ends"]))
        names = " UNION ".join(
            f"SELECT '{kind}' AS kind, {expression} AS name FROM near_facts WHERE {expression} IS NOT NULL"
            for kind, expression in _NAMED.items()
        )
        connection.execute(f"CREATE OR REPLACE TEMP TABLE near_name AS {names}")
        self._insert_entries(inputs, around)
        omitted = ", ".join(
            f"NULL::{'INTEGER' if name == 'rank' else 'VARCHAR'} AS {name}"
            for name in COLUMNS.names
            if name in _OMITTED
        )
        # The entries of the month itself stay in their files, which takes less time and memory.
        own_parts = [part.path(self._folder, "facts") for part in self._manifest.of_months([str(inputs.month)])]
        entries = ""
        if own_parts:
            facts = self._view.known(parquet_relation(own_parts))
            entries = f" UNION ALL BY NAME SELECT {_FACTS} FROM {facts} WHERE source IN ('metered', 'added')"
        connection.execute(f"CREATE TEMP VIEW near AS SELECT *, {omitted} FROM (FROM near_facts{entries})")
        return around

    def _insert_entries(self, inputs: _MonthInputs, around: _Span) -> None:
        parts, known = self._near_parts(inputs, around), _named_sql(_NAMED)
        near = f"({_within(around)} OR {_STORE} OR {known})"
        # Each set of rows has a query of its own: whether a name is known is asked of few of them.
        others = [part for part in parts if part.month != str(inputs.month)]
        for chosen, which in (
            (others, f"source = 'metered' AND {near}"),
            (parts, f"source = 'planned' AND ({known})"),
        ):
            if chosen:
                facts = self._view.known(parquet_relation([part.path(self._folder, "facts") for part in chosen]))
                self._connection.execute(f"INSERT INTO near_facts SELECT {_FACTS} FROM {facts} WHERE {which}")

    def _near_parts(self, inputs: _MonthInputs, around: _Span) -> list[ExtractPart]:
        """Return the parts of the extract that have entries of the month, of that time, or of a name on its bills."""
        parts = [part for part in self._manifest.parts if part.month >= inputs.since]
        others = [self._names_of(part) for part in parts if part.month != str(inputs.month)]
        near = set[str]()
        if others:
            found = self._connection.execute(
                f"SELECT DISTINCT stem FROM {parquet_relation(others)} WHERE store "
                f"OR (source = 'metered' AND {_within(around)}) OR {_named_sql({name: name for name in _NAMED})}"
            )
            near = {stem for (stem,) in found.fetchall()}
        return [part for part in parts if part.month == str(inputs.month) or part.stem in near]

    def _names_of(self, part: ExtractPart) -> Path:
        """Return a file with what a part names, and when; it is made once, for parts never change."""
        folder = self._folder / _NAMES_FOLDER
        path = folder / f"{part.stem}.parquet"
        if not path.is_file():
            make_private_folder(folder)
            named = ", ".join(f"{expression} AS {name}" for name, expression in _NAMED.items())
            table = _table(
                self._connection,
                f"SELECT {sql_text(part.stem)} AS stem, source, {named}, coalesce({_STORE}, false) AS store, "
                f'min(start) AS start, max("end") AS "end" FROM {parquet_relation([part.path(self._folder, "facts")])} '
                f"WHERE source IN ('metered', 'planned') GROUP BY ALL",
            )
            write_table(path, table)
        return path


def empty_tables(no_facts: str, month: Month) -> dict[str, str]:
    """Return the relations of a month of which there is nothing, by table of :data:`SUMMED`."""
    return {name: f"({query})" for name, query in _sums_sql(no_facts, no_facts, no_facts, month).items()}


def _sums_sql(metered: str, actual: str, single: str, month: Month) -> dict[str, str]:
    """Return the SQL of the sums of a month, by table of :data:`SUMMED`; ``single`` are actual facts with all columns.

    The others need no columns that tell one fact from another.
    """
    return {
        "sums": rollups.sums_sql(actual),
        "days": rollups.days_sql(actual),
        "corrections": corrections_sql(single, month),
        "sides": summed_sides_sql(metered, actual),
    }


def through_sql(facts: str, month: Month) -> str:
    """Return the SQL of until when bills of the month have usage.

    Rows of more than a day count only where there are no others, because they do not say that.
    """
    return (
        f'SELECT coalesce(max("end") FILTER ("end" - start <= INTERVAL 1 DAY), max("end")) AS through FROM {facts} '
        f"WHERE source = 'billed' AND category = 'Usage' AND corrects IS NULL AND month = '{month}'"
    )


def _bill_span(name: str, path: Path) -> _Span:
    """Return the time of a bill's rows, from the statistics of its columns; all time where one has none.

    InvalidInputError where it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            metadata = file.metadata
    except pa.ArrowException as error:
        raise unreadable_bill(name, error) from None
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


def _overlap(span: _Span, other: _Span) -> bool:
    return span[0] < other[1] and other[0] < span[1]


def _whole_days(*spans: _Span) -> _Span:
    begins, ends = min(each[0] for each in spans), max(each[1] for each in spans)
    first = begins.replace(hour=0, minute=0, second=0, microsecond=0)
    last = ends.replace(hour=0, minute=0, second=0, microsecond=0)
    return first, last if last == ends else last + _DAY


def _named_sql(expressions: Mapping[str, str]) -> str:
    return " OR ".join(
        f"{expression} IN (SELECT name FROM near_name WHERE kind = '{kind}')"
        for kind, expression in expressions.items()
    )


def _within(span: _Span) -> str:
    begins, ends = (f"TIMESTAMPTZ '{each.isoformat()}'" for each in span)
    return f'(start < {ends} AND "end" > {begins})'


def _table(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table:
    return connection.sql(sql).to_arrow_table()
