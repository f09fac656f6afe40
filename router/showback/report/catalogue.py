"""List the sections of a report, in order, and the columns that each can have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.showback.report import anomalies, bridge, change, drivers, groups, jobs, outcomes, spending, teams, totals
from router.showback.report.values import ReportColumn, ShowbackReport

SECTIONS: Final[Mapping[str, tuple[ReportColumn, ...]]] = {
    table.name: table.columns
    for table in (
        totals.HEAD,
        totals.TOTALS,
        outcomes.BUDGETS,
        drivers.DRIVERS,
        drivers.REASONS_OF_DRIVERS,
        bridge.BRIDGE,
        teams.TEAMS,
        change.CHANGE,
        groups.BY_GROUP,
        jobs.JOBS,
        jobs.UNIT_COSTS,
        jobs.SAVINGS,
        spending.WASTE_BY_USE,
        spending.MOVEMENT,
        groups.SHARED,
        spending.COVERAGE,
        anomalies.ANOMALIES,
        outcomes.VARIANCE,
        outcomes.PLANS,
        outcomes.QUOTES,
        spending.CORRECTIONS,
        totals.DAYS,
        teams.MONTHS,
    )
}


def collect_columns(report: ShowbackReport) -> dict[str, ReportColumn]:
    """Return all columns that a section can have by name, in their first order, then those of the report's labels.

    One name is of one kind everywhere.
    """
    columns_by_name: dict[str, ReportColumn] = {}
    for columns in (*SECTIONS.values(), *(section.columns for section in report.sections)):
        for column in columns:
            if columns_by_name.setdefault(column.name, column).kind is not column.kind:
                raise ValueError(f"{column.name} is of two kinds")
    return columns_by_name
