"""A report, put together."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

from router.showback.report import anomalies, change, daily, groups, jobs, outcomes, spending, totals
from router.showback.report.context import Setting
from router.showback.report.query import Asked, Beside
from router.showback.report.rollup_tables import Cubes
from router.showback.report.values import Cell, Report, Section, plain


def make_report(cubes: Cubes, asked: Asked, beside: Beside) -> Report:
    """Everything of the month. The same cubes and questions give the same report."""
    setting = Setting(cubes, asked, beside)
    by, shared = groups.groups(setting)
    sections = (
        totals.head(setting), totals.totals(setting), outcomes.budgets(setting), change.change(setting), by,
        jobs.jobs(setting), jobs.by_market(setting), jobs.savings(setting), spending.waste(setting),
        spending.movement(setting), shared, spending.coverage(setting), anomalies.anomalies(setting),
        outcomes.variance(setting), outcomes.plans(setting), outcomes.quotes(setting), spending.corrections(setting),
        daily.days(setting),
    )  # fmt: skip
    return Report(f"Showback {asked.month}", tuple(_even(section) for section in sections))


def _even(section: Section) -> Section:
    """One form of each value, whatever scale the facts had."""
    return replace(section, rows=tuple([tuple([_one(cell) for cell in row]) for row in section.rows]))


def _one(cell: Cell) -> Cell:
    if cell is None or isinstance(cell, str):  # most of them
        return cell
    if isinstance(cell, Decimal):
        return plain(cell)
    if isinstance(cell, datetime):
        return cell.astimezone(UTC)
    return cell
