"""Provide the rollup tables of a report: two months of sums, nine weeks of days, and the corrections, in DuckDB."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from router.files.duckdb_session import parquet_relation, rows_of, sql_list, sql_text
from router.ledger.month import Month
from router.showback import rollups
from router.showback.facts import COLUMNS, WEEKS, define_macros
from router.showback.ledger_extract import ExtractManifest, ExtractPart

if TYPE_CHECKING:
    import duckdb

_EPOCH = date(1970, 1, 1)
RollupRow = dict[str, Any]
# A plan's digest, and the name of a job in it.
PlannedJob = tuple[str, str]
# Until when the planned lines of a job count; None: all of their time, because the job has ended.
PlannedCuts = Mapping[PlannedJob, datetime | None]
NO_CUTS: Final[PlannedCuts] = {}


class RollupTables:
    """Query the tables ``sums``, ``days`` and ``corrections`` of a connection.

    Amounts come as Decimal, exact; null is None.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._shared: frozenset[str] = frozenset()
        self._orders: tuple[RollupRow, ...] = ()

    def ask(self, sql: str) -> list[RollupRow]:
        return rows_of(self._connection.sql(sql))

    @property
    def shared_projects(self) -> frozenset[str]:
        """The projects in which teams have rows that :meth:`keep_teams` removed."""
        return self._shared

    @property
    def job_digests(self) -> frozenset[str]:
        rows = self.ask("SELECT DISTINCT job_digest FROM sums WHERE job_digest IS NOT NULL")
        return frozenset(row["job_digest"] for row in rows)

    @property
    def invoiced_until(self) -> dict[str, datetime]:
        """By attempt until when bills have its costs."""
        return invoiced_until(self._connection, "sums", "last_end")

    def add_labels(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Add to ``sums`` the column ``labels``: those of the row's job, by its digest; null where it has none."""
        import pyarrow as pa

        kind = pa.map_(pa.string(), pa.string())
        given = {digest: list(each.items()) for digest, each in labels.items() if each}
        columns = {"digest": pa.array(given, pa.string()), "labels": pa.array(given.values(), kind)}
        self._connection.register("job_labels", pa.table(columns))
        joined = "FROM sums LEFT JOIN job_labels ON sums.job_digest = job_labels.digest"
        self._connection.execute(f"CREATE OR REPLACE TEMP TABLE sums AS SELECT sums.*, job_labels.labels {joined}")
        self._connection.unregister("job_labels")

    @property
    def orders(self) -> tuple[RollupRow, ...]:
        """The lines of :func:`ordered_lines` that :meth:`add_orders` added."""
        return self._orders

    def add_orders(self, lines: Sequence[RollupRow]) -> None:
        self._orders = tuple(lines)

    def keep_teams(self, teams: Collection[str]) -> None:
        """Remove the rows of other teams from all tables; "" keeps rows without a team."""
        # Teams are in the keys of sums and days, so that this is the same as leaving out their facts.
        others = f"NOT coalesce({sql_of_teams(teams)}, false)"
        found = " UNION ".join(f"SELECT project FROM {table} WHERE {others}" for table in ("sums", "days"))
        self._shared = frozenset(row["project"] for row in self.ask(found) if row["project"] is not None)
        for table in ("sums", "days", "corrections"):
            self._connection.execute(f"DELETE FROM {table} WHERE {others}")


def rollups_of_extract(
    connection: duckdb.DuckDBPyConnection,
    folder: Path,
    manifest: ExtractManifest,
    months: Sequence[Month],
    now: datetime,
    cuts: PlannedCuts = NO_CUTS,
) -> RollupTables:
    """Return the rollup tables of an extract (:meth:`~router.showback.ledger_extract.LedgerExtract.current`).

    ``months`` are the reported one and those before it that are compared, the newest first. What is planned for after
    ``now`` is still to come, and in no rollup, but as the ``cuts`` say (:func:`planned_relation`).
    """

    def relation(parts: Sequence[ExtractPart], kind: str) -> str:
        return parquet_relation([part.path(folder, kind) for part in parts])

    parts = manifest.of_months(str(month) for month in months)
    near = [part for part in parts if part.month in {str(month) for month in months[:2]}]
    if near:
        planned = planned_relation(connection, relation(parts, "facts"), months[:2], now, cuts)
        _put_sums(connection, relation(near, "sums"), planned)
        _put(connection, "corrections", corrections_sql(relation(near, "facts"), months[0]))
    else:
        connection.register("no_facts", COLUMNS.empty_table())
        rollups_of_facts(connection, "no_facts", months, now)
    if parts:
        _put(connection, "days", rollups.days_again_sql(relation(parts, "days")))
    return RollupTables(connection)


def rollups_of_summed(
    connection: duckdb.DuckDBPyConnection,
    tables: Mapping[str, str],
    planned: str,
    months: Sequence[Month],
    now: datetime,
    cuts: PlannedCuts = NO_CUTS,
) -> RollupTables:
    """Return the rollup tables of relations that were summed before: ``sums``, ``days`` and ``corrections``.

    Corrections are those of the reported month. The relations have nothing planned, which is summed of the facts
    ``planned``.
    """
    _put_sums(
        connection,
        f"(FROM {tables['sums']} WHERE month IN {sql_list(months[:2])})",
        planned_relation(connection, planned, months[:2], now, cuts),
    )
    _put(connection, "days", rollups.days_again_sql(tables["days"]))
    _put(connection, "corrections", f"FROM {tables['corrections']}")
    return RollupTables(connection)


def _put_sums(connection: duckdb.DuckDBPyConnection, sums: str, planned: str) -> None:
    spent = rollups.sums_again_sql(f"(FROM {sums} WHERE source <> 'planned')")
    _put(connection, "sums", f"{spent} UNION ALL BY NAME {rollups.sums_sql(planned)}")


def rollups_of_facts(
    connection: duckdb.DuckDBPyConnection,
    facts: str,
    months: Sequence[Month],
    now: datetime,
    cuts: PlannedCuts = NO_CUTS,
) -> RollupTables:
    """Return the rollup tables of a relation with the columns of facts, as :func:`rollups_of_extract`."""
    spent = f"FROM {facts} WHERE month IN {sql_list(months[:2])} AND source <> 'planned'"
    planned = planned_relation(connection, facts, months[:2], now, cuts)
    _put(connection, "sums", rollups.sums_sql(f"({spent} UNION ALL BY NAME FROM {planned})"))
    _put(connection, "days", rollups.days_sql(f"(FROM {facts} WHERE month IN {sql_list(months)})"))
    _put(connection, "corrections", corrections_sql(facts, months[0]))
    return RollupTables(connection)


def sql_of_teams(teams: Collection[str] | None) -> str:
    """Return the SQL condition for rows of the teams, "" for none; all where they are None."""
    return "true" if teams is None else f"coalesce(team, '') IN {sql_list(sorted(teams))}"


def report_months(month: Month) -> tuple[Month, ...]:
    """Return the month and those before it that a report looks at, the newest first."""
    months, first = [month], month.begins - timedelta(weeks=WEEKS)
    while months[-1].begins > first:
        months.append(Month.of(months[-1].begins - timedelta(microseconds=1)))
    return tuple(months)


def day_number(day: date) -> int:
    """Return the number of a day, as rollups count days."""
    return (day - _EPOCH).days


def date_of_day(number: int) -> date:
    """Return the day of a number: the inverse of :func:`day_number`."""
    return _EPOCH + timedelta(days=number)


def zero_if_unknown(amount: Decimal | None) -> Decimal:
    """Return the amount, or 0 for None, for a sum over nothing counts as 0 in a total."""
    return Decimal(0) if amount is None else amount


def sql_of_label(name: str) -> str:
    """Return the SQL of a label's value in ``sums``, once :meth:`RollupTables.add_labels` added labels."""
    return f"labels[{sql_text(name)}]"


def _put(connection: duckdb.DuckDBPyConnection, name: str, sql: str) -> None:
    connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {sql}")


def planned_relation(
    connection: duckdb.DuckDBPyConnection,
    facts: str,
    months: Sequence[Month],
    now: datetime,
    cuts: PlannedCuts = NO_CUTS,
) -> str:
    """Return what was planned for each month until ``now``, as a relation with the columns of facts.

    A line over a month's end counts in each month by time; ``months`` are any. Lines of the jobs in ``cuts`` count
    until the moment there, or whole where it is None: nothing of them is still to come.
    """
    define_macros(connection)
    windows = ", ".join(
        f"('{month}', {_micros(month.begins)}, {_micros(max(min(month.ends, now), month.begins))}, "
        f"{_micros(month.ends)})"
        for month in months
    )
    rows = ", ".join(
        f"({sql_text(plan)}, {sql_text(job)}, {'NULL' if until is None else _micros(until)}::BIGINT)"
        for (plan, job), until in sorted(cuts.items(), key=lambda cut: cut[0])
    )
    return f"({rollups.planned_sql(facts, windows, rows or '(NULL, NULL, NULL::BIGINT)')})"


def ordered_lines(
    connection: duckdb.DuckDBPyConnection, facts: str, month: Month, now: datetime, over: Collection[PlannedJob]
) -> list[RollupRow]:
    """Return the planned lines that have time of the month after ``now``, but those of the plans and jobs in ``over``.

    Rows have team ("" for none), project, currency, both costs, start and end (UTC).
    """
    rows = rows_of(
        connection.sql(
            f"SELECT plan, job, coalesce(team, '') AS team, project, currency, billed, effective, start, \"end\" "
            f"FROM {facts} WHERE source = 'planned' AND epoch_us(\"end\") > {_micros(max(now, month.begins))} "
            f"AND epoch_us(start) < {_micros(month.ends)} ORDER BY ALL"
        )
    )
    return [row for row in rows if (row["plan"], row["job"]) not in over]


def invoiced_until(connection: duckdb.DuckDBPyConnection, relation: str, end: str = '"end"') -> dict[str, datetime]:
    """Return by attempt until when bills have its costs; ``end`` is the column of ``relation`` that says so."""
    rows = rows_of(
        connection.sql(
            f"SELECT attempt, max({end}) AS until FROM {relation} "
            f"WHERE source = 'billed' AND attempt IS NOT NULL GROUP BY ALL"
        )
    )
    return {row["attempt"]: row["until"].astimezone(UTC) for row in rows}


def _micros(moment: datetime) -> int:
    return int(moment.timestamp()) * 10**6 + moment.microsecond


_CORRECTION_COLUMNS: Final = (
    "origin",
    "row",
    "corrects",
    "category",
    "what",
    "team",
    "project",
    "job",
    "cloud",
    "start",
    "end",
    "recorded_at",
    "currency",
    "billed",
    "effective",
    "reason",
    "who",
    "reference",
)


def corrections_sql(facts: str, month: Month) -> str:
    """Return the SQL of the facts in the month's books that correct something."""
    names = ", ".join(f'"{name}"' for name in _CORRECTION_COLUMNS)
    return f"SELECT {names} FROM {facts} WHERE corrects IS NOT NULL AND source <> 'planned' AND month = '{month}'"
