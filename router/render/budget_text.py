"""The use of budgets as a table, JSON and CSV. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from router.ledger.budget import BudgetStatus
from router.render.record_table import RecordTable, TableColumn, attribute_columns
from router.render.tables import format_usd
from router.showback.report.values import replace_unprintable


def standing_table(standings: Sequence[BudgetStatus], basis: str) -> RecordTable[BudgetStatus]:
    """Return the table of the use of budgets; without any, its data have the fields of their names alone."""
    names: tuple[TableColumn[BudgetStatus], ...] = (
        TableColumn("scope", lambda status: status.budget.scope.value),
        TableColumn("name", lambda status: status.budget.name),
    )
    use: tuple[TableColumn[BudgetStatus], ...] = (
        TableColumn("usd", lambda status: status.usd, "BUDGET", format_usd, right=True),
        TableColumn("hard", lambda status: status.budget.hard, csv=str),
        TableColumn("spent_usd", lambda status: status.spent, "SPENT", format_usd, right=True),
        TableColumn("running_usd", lambda status: status.running, "RUNNING", format_usd, right=True),
        TableColumn("", format_used_share, "USED", right=True),
        TableColumn("percent", lambda status: status.percent),
        TableColumn("used_share", lambda status: status.share),
        TableColumn("forecast_usd", lambda status: status.forecast, "FORECAST", format_usd, right=True),
        *attribute_columns("passed"),
        TableColumn("over", lambda status: status.is_over, csv=str),
        TableColumn("will_be_over", lambda status: status.will_be_over, csv=str),
        TableColumn("basis", lambda _: basis),
        TableColumn("currency", lambda _: "USD"),
        TableColumn("", _state, "STATE"),
    )
    title: TableColumn[BudgetStatus] = TableColumn(
        "", lambda status: replace_unprintable(status.budget.title)[:28], "BUDGET OF"
    )
    return RecordTable((*names, title, *use) if standings else names)


def format_used_share(status: BudgetStatus) -> str:
    """Return the used share of a budget as a report writes it."""
    from router.showback.report.values import CellKind, short_text

    return "" if status.share is None else short_text(status.share, CellKind.SHARE)


def _state(status: BudgetStatus) -> str:
    if status.is_over:
        return "OVER, hard" if status.budget.hard else "over"
    if status.will_be_over:
        return "will be over"
    return f"past {status.passed[-1]} %" if status.passed else "fine"
