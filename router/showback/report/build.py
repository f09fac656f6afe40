"""Build a report from its sections, and list these, in order, with the columns that each can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from router.showback.report import bridge, change, groups, jobs, outcomes, spending, totals
from router.showback.report.query import ReportContext, ReportInputs, ReportQuery
from router.showback.report.rollup_tables import RollupTables
from router.showback.report.values import CellValue, ReportColumn, ReportSection, ShowbackReport, strip_zeros

SECTIONS: Final[Mapping[str, tuple[ReportColumn, ...]]] = {
    table.name: table.columns
    for table in (
        totals.HEAD,
        totals.TOTALS,
        totals.FORECAST,
        outcomes.BUDGETS,
        bridge.DRIVERS,
        bridge.REASONS_OF_DRIVERS,
        bridge.BRIDGE,
        groups.TEAMS,
        change.CHANGE,
        groups.BY_GROUP,
        jobs.JOBS,
        jobs.UNIT_COSTS,
        jobs.SAVINGS,
        spending.WASTE_BY_USE,
        spending.MOVEMENT,
        groups.SHARED,
        spending.COVERAGE,
        change.ANOMALIES,
        outcomes.VARIANCE,
        outcomes.PLANS,
        outcomes.QUOTES,
        spending.CORRECTIONS,
        totals.DAYS,
        groups.MONTHS,
    )
}


def build_report(rollups: RollupTables, query: ReportQuery, inputs: ReportInputs) -> ShowbackReport:
    """Return all sections of the month. The same rollups and query give the same report."""
    context = ReportContext(rollups, query, inputs)
    by_group, shared = groups.build_groups(context)
    budgets = outcomes.build_budgets(context)
    forecasts = totals.forecast_currencies(context)
    sections = (
        totals.build_head(context),
        totals.build_totals(context, forecasts),
        totals.build_forecast(forecasts),
        budgets,
        *bridge.build_drivers(context),
        bridge.build_bridge(context),
        groups.build_teams(context, budgets),
        change.build_change(context),
        by_group,
        jobs.build_jobs(context),
        jobs.build_unit_costs(context),
        jobs.build_savings(context),
        spending.build_waste(context),
        spending.build_movement(context),
        shared,
        spending.build_coverage(context),
        change.build_anomalies(context),
        outcomes.build_variance(context),
        outcomes.build_plans(context),
        outcomes.build_quotes(context),
        spending.build_corrections(context),
        totals.build_days(context),
        groups.build_months(context),
    )
    return ShowbackReport(f"Showback {query.month}", tuple(_normalise_section(section) for section in sections))


def _normalise_section(section: ReportSection) -> ReportSection:
    """Return the section with one form of each value, whatever scale the facts had."""
    return replace(section, rows=tuple([tuple([_normalise_cell(cell) for cell in row]) for row in section.rows]))


def _normalise_cell(cell: CellValue) -> CellValue:
    if cell is None or isinstance(cell, str):  # Most cells are text or None.
        return cell
    if isinstance(cell, Decimal):
        return strip_zeros(cell)
    if isinstance(cell, datetime):
        return cell.astimezone(UTC)
    return cell


def collect_columns(report: ShowbackReport) -> dict[str, ReportColumn]:
    """Return all columns that a section can have by name, in their first order, then those of the report's labels."""
    columns_by_name: dict[str, ReportColumn] = {}
    for columns in (*SECTIONS.values(), *(section.columns for section in report.sections)):
        for column in columns:
            columns_by_name.setdefault(column.name, column)
    return columns_by_name
