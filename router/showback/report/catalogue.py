"""List the sections of a report, in order, and the columns that each can have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.showback.report import anomalies, bridge, change, drivers, groups, jobs, outcomes, spending, teams, totals
from router.showback.report.query import GROUPS
from router.showback.report.values import ReportColumn, ShowbackReport

# Of its first columns, `groups` has those that the query names, and one for each label of jobs that it names.
SECTIONS: Final[Mapping[str, tuple[ReportColumn, ...]]] = {
    "head": totals.HEAD,
    "totals": totals.TOTALS,
    "budgets": outcomes.BUDGETS,
    "drivers": drivers.DRIVERS,
    "driver_reasons": drivers.REASONS_OF_DRIVERS,
    "bridge": bridge.BRIDGE,
    "teams": teams.TEAMS,
    "change": change.COLUMNS,
    "groups": (*(ReportColumn(name, groups.TITLES[name], rank=0) for name in GROUPS), *groups.AMOUNTS),
    "jobs": jobs.JOBS,
    "unit_costs": jobs.BY_MARKET,
    "savings": jobs.BY_CURRENCY,
    "waste": spending.WASTE_COLUMNS,
    "movement": spending.MOVEMENT_COLUMNS,
    "shared": groups.SHARED,
    "coverage": spending.COVERAGE,
    "anomalies": anomalies.COLUMNS,
    "variance": outcomes.VARIANCE,
    "plans": outcomes.PLANS,
    "quotes": outcomes.QUOTES,
    "corrections": spending.CORRECTIONS,
    "days": totals.COLUMNS,
    "months": teams.MONTHS,
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
