"""A state with machines in eight open months, and bills of all but the last: what is matched of it, and kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from pricing.money import Usd
from router.app.bill_views import segments
from router.app.kept_months import SUMMED
from router.app.matched_months import MatchedMonth, MonthMatcher
from router.app.month_books import costs_before
from router.app.reconcile import open_extract, open_matched_books
from router.files.duckdb_session import rows_of
from router.ledger.entry import CostBasis, LedgerEntry
from router.ledger.month import Month
from router.showback import rollups
from router.showback.bill_import import import_bills
from router.showback.bill_store import BillStore
from router.showback.bills import DeliveryKind
from router.showback.reconcile.variance import summed_sides_sql
from router.showback.report.query import MonthCost, ReportQuery
from router.showback.report.rollup_tables import corrections_sql, report_months
from tests.support.made_up_bill import Account, Row, tagged, write_bill
from tests.support.new_state import open_state
from tests.support.state_values import entry

Sums = dict[str, list[str]]

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
NOVEMBER, OLD, FIRST = Month(2026, 11), Month(2026, 6), Month(2026, 4)
HOUR = timedelta(hours=1)
MONTHS = tuple(Month(2026, number) for number in range(4, 12))
COMPUTE = ("Compute", "Virtual Machines", "EC2")


class OpenMonths:
    """A state with machines of three teams in eight open months, and bills of all but the last."""

    def __init__(self, folder: Path, *, empty: bool = False) -> None:
        self.folder, self.store = folder, open_state(folder / "state.db", NOW)
        self.extracts, self.bills = folder / "extract", BillStore(folder / "bills")
        if empty:
            return
        self.add(*(machine for month in MONTHS for machine in machines(month)))
        self.take(*(self.bill(month) for month in MONTHS[:-1]))

    def add(self, *entries: LedgerEntry) -> None:
        self.store.ledger.append(list(entries), after=self.store.ledger.head())

    def bill(self, month: Month, *, less: int = 0, account: str = "1", rows: list[Row] | None = None) -> Path:
        path = self.folder / f"{month}-{account}-{less}-{'rows' if rows else ''}.csv"
        write_bill(path, _billed(month, account)[less:] if rows is None else rows)
        return path

    def take(self, *paths: Path, kind: DeliveryKind | None = None) -> None:
        import_bills(paths, self.bills, NOW - HOUR, kind=kind)

    def before(
        self, extracts: Path | None = None, basis: str = "effective", team: str | None = None
    ) -> tuple[MonthCost, ...]:
        teams = None if team is None else frozenset({team})
        asked = ReportQuery(month=NOVEMBER, now=NOW, basis=CostBasis(basis), teams=teams)
        return costs_before(self.store, asked, extracts or self.extracts, self.bills.folder)

    def costs(
        self, extracts: Path | None = None, months: tuple[Month, ...] = (FIRST, OLD), as_of: datetime | None = None
    ) -> dict[Month, list[dict[str, Any]]]:
        """Return the costs by team of a month that changes, and of one that does not."""
        sums = "sum(billed) AS billed, sum(effective) AS effective"
        query = f"SELECT team, currency, {sums} FROM {{}} GROUP BY ALL ORDER BY ALL"
        with self._matching(months, extracts, as_of) as (connection, found):
            return {month: rows_of(connection.sql(query.format(each.tables["sums"]))) for month, each in found.items()}

    @contextmanager
    def _matching(
        self, months: tuple[Month, ...], extracts: Path | None, as_of: datetime | None = None
    ) -> Iterator[tuple[Any, dict[Month, MatchedMonth]]]:
        *_, still_open = segments(self.store, self.bills.folder, as_of)
        with open_extract(self.store, extracts or self.extracts) as (connection, folder, manifest):
            matcher = MonthMatcher(self.store, self.bills.folder, still_open.view, connection, folder, manifest)
            yield connection, matcher.match(months)

    def kept(self) -> dict[str, str]:
        """Return by month what tells one matching from any other."""
        folder = self.extracts / self.store.id / "costs"
        return {path.stem: json.loads(path.read_text())["stem"] for path in sorted(folder.glob("*.json"))}

    def matched(self, months: tuple[Month, ...], extracts: Path | None = None) -> dict[Month, Sums]:
        """Return all sums of months that are matched one by one, and kept."""
        with self._matching(months, extracts) as (connection, found):
            return {
                month: {name: _lines(rows_of(connection.sql(f"FROM {each.tables[name]}"))) for name in SUMMED}
                for month, each in found.items()
            }

    def whole(self, month: Month) -> Sums:
        """Return the same sums of a month, with all its report's books matched at once, as a report did before."""
        *_, still_open = segments(self.store, self.bills.folder)
        since = report_months(month)[-1]
        with open_matched_books(self.store, self.folder / "whole", self.bills.folder, since, still_open.view) as (
            connection,
            *_,
        ):
            actual = f"(FROM actual WHERE month = '{month}')"
            queries = {
                "sums": rollups.sums_sql(actual),
                "days": rollups.days_sql(actual),
                "corrections": corrections_sql("actual", month),
                "sides": summed_sides_sql(f"(FROM facts WHERE month = '{month}')", actual),
            }
            return {name: _lines(rows_of(connection.sql(query))) for name, query in queries.items()}


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(str(sorted(row.items())) for row in rows)


def machines(month: Month) -> Iterator[LedgerEntry]:
    """Each with an hour and a half on one day, of which the bill's hours tell another price; the last runs over."""
    for number in range(6):
        start = month.begins + timedelta(days=4 * number + 5, hours=number)
        ends = start + 3 * HOUR / 2
        if number == 5:
            start, ends = month.ends - HOUR, month.ends + HOUR / 2
        hours = Fraction((ends - start) // timedelta(seconds=1), 3600)
        yield entry(
            f"metered {month} {number}",
            team=f"team-{number % 3}",
            job=f"job-{month}-{number // 2}",
            attempt=f"a-{month}-{number}",
            resource=f"i-{month}-{number}",
            start=start,
            end=ends,
            quantity=hours,
            usd=Usd(round(27_520_000_000 * hours)),
            period=month,
            recorded_at=min(start + 2 * HOUR, NOW - HOUR),
        )


def _billed(month: Month, account: str) -> list[Row]:
    """Two hours of each machine but one, an hour of an unknown one, and a fee: team-1's second machine is on none."""
    of = Account(issuer="AWS", provider="AWS", number=account, sub_account="7", month=month)
    rows = []
    for number, machine in enumerate(machines(month)):
        for hour in () if number == 4 else (0, 1):
            start = machine.start + hour * HOUR
            if start < month.ends:
                price = f"{20 + number}.123456789"
                rows.append(billed_hour(of, start, price, machine.resource or "", machine.instance_type or ""))
    rows.append(
        billed_hour(of, month.begins + 9 * HOUR, "3.07", f"i-nobody-{month}", "m7i.large", tagged(team="team-2"))
    )
    rows.append(of.row(month.begins, month.ends, Decimal("99.5"), ("Other", "Other (Other)", "Support")))
    return rows


def billed_hour(of: Account, start: datetime, price: str, resource: str, kind: str, tags: str = "") -> Row:
    detail = json.dumps({"InstanceType": kind, "GpuCount": 8})
    named = {"ResourceId": resource, "SkuPriceDetails": detail, "RegionId": "us-east-1", "Tags": tags}
    return of.used(start, start + HOUR, "1", "Hours", price, COMPUTE, kind, **named)
