"""Build a report from its sections."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from router.showback.report import anomalies, change, daily, groups, jobs, outcomes, spending, totals
from router.showback.report.context import Setting
from router.showback.report.query import Asked, Beside
from router.showback.report.rollup_tables import Cubes
from router.showback.report.values import Cell, Report, Section, plain


def make_report(cubes: Cubes, query: Asked, inputs: Beside) -> Report:
    """Return all sections of the month. The same rollups and query give the same report."""
    context = Setting(cubes, query, inputs)
    by_group, shared = groups.groups(context)
    sections = (
        totals.head(context),
        totals.totals(context),
        outcomes.budgets(context),
        change.change(context),
        by_group,
        jobs.jobs(context),
        jobs.by_market(context),
        jobs.savings(context),
        spending.waste(context),
        spending.movement(context),
        shared,
        spending.coverage(context),
        anomalies.anomalies(context),
        outcomes.variance(context),
        outcomes.plans(context),
        outcomes.quotes(context),
        spending.corrections(context),
        daily.days(context),
    )
    return Report(f"Showback {query.month}", tuple(_normalise_section(section) for section in sections))


def _normalise_section(section: Section) -> Section:
    """Return the section with one form of each value, whatever scale the facts had."""
    return replace(section, rows=tuple([tuple([_normalise_cell(cell) for cell in row]) for row in section.rows]))


def _normalise_cell(cell: Cell) -> Cell:
    if cell is None or isinstance(cell, str):  # Most cells are text or None.
        return cell
    if isinstance(cell, Decimal):
        return plain(cell)
    if isinstance(cell, datetime):
        return cell.astimezone(UTC)
    return cell
