"""Return the costs of open months by team, as they are kept beside the ledger's extract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from router.app.bill_views import Segment
from router.app.matched_months import MonthMatcher
from router.app.reconcile import open_extract
from router.files.duckdb_session import rows_of
from router.ledger.month import Month
from router.showback.apportion import exact_sum
from router.showback.report.rollup_tables import invoiced_until

if TYPE_CHECKING:
    from router.state.store import StateStore


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamCost:
    """The costs of a month in a currency that a team has (None: nobody), on both bases; None where none is known."""

    team: str | None
    currency: str
    billed: Decimal | None
    effective: Decimal | None


@dataclass(frozen=True, slots=True)
class OpenCosts:
    """The costs of open months by team, and by attempt until when bills have its costs."""

    by_month: Mapping[Month, tuple[TeamCost, ...]]
    invoiced: Mapping[str, datetime]


def open_costs(
    store: StateStore, months: Sequence[Month], extracts: Path, bills: Path, still_open: Segment
) -> OpenCosts:
    """Return the costs of those months that are open, on which bills may bear.

    They are invoiced where a bill stands, metered elsewhere, and what people added. Raises StateError,
    InvalidInputError, OSError.
    """
    months = [month for month in months if still_open.holds(month)]
    if not months:
        return OpenCosts({}, {})
    with open_extract(store, extracts) as (connection, folder, manifest):
        matched = MonthMatcher(store, bills, still_open.view, connection, folder, manifest).match(months)
        sums = {
            month: rows_of(
                connection.sql(
                    f"SELECT team, currency, sum(billed) AS billed, sum(effective) AS effective "
                    f"FROM {each.tables['sums']} GROUP BY ALL ORDER BY ALL"
                )
            )
            for month, each in matched.items()
        }
        tables = " UNION ALL BY NAME ".join(f"FROM {each.tables['sums']}" for each in matched.values())
        invoiced = invoiced_until(connection, f"({tables})", "last_end") if matched else {}
    return OpenCosts({month: tuple(TeamCost(**row) for row in rows) for month, rows in sums.items()}, invoiced)


def total_costs(costs: Iterable[TeamCost], basis: str, teams: frozenset[str] | None) -> dict[str, Decimal]:
    """Return the sums by currency of the teams, "" for none; of all where they are None."""
    sums: dict[str, list[Decimal]] = {}
    for each in costs:
        amount = each.billed if basis == "billed" else each.effective
        if amount is not None and (teams is None or (each.team or "") in teams):
            sums.setdefault(each.currency, []).append(amount)
    return {currency: exact_sum(amounts) for currency, amounts in sums.items()}
