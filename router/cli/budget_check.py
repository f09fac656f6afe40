"""Command ``stepfare budget check``: report how much of each budget is spent, and send notices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.budget import (
    Basis,
    BudgetBasisOption,
    CloudsFile,
    DeployFile,
    Now,
    format_used_share,
    load_budget_progress,
    note_counted_costs,
)
from router.cli.console import ExitCode
from router.cli.ledger_options import LedgerFormat, parse_month, print_rows
from router.cli.options import parse_now
from router.cli.site_options import open_state_store
from router.render.bills_text import escape_unprintable
from router.render.tables import format_usd

if TYPE_CHECKING:
    from router.app.settings import AppSettings
    from router.ledger.budget import BudgetStatus
    from router.ledger.month import Month
    from router.state.store import StateStore

_TABLE = ("budget_of", "budget", "spent", "running", "used", "forecast", "state")


def check(
    month: Annotated[
        str | None, typer.Option(metavar="2026-11", help="Month of the books; default: that of --now.")
    ] = None,
    notify: Annotated[
        bool, typer.Option("--notify/--no-notify", help="Notify the channels of the deploy file.")
    ] = True,
    basis: Basis = BudgetBasisOption.EFFECTIVE,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    now: Now = None,
    output: Annotated[LedgerFormat, typer.Option("--output", "-o", help="Format.")] = LedgerFormat.TABLE,
) -> ExitCode:
    """Check how much of each budget is spent and what the month is likely to cost.

    A notice goes out for each percentage that is passed and for a forecast above the budget, once a month each. Spent
    is what `showback` reports for the month: invoiced where a bill exists, metered elsewhere. Used adds what running
    machines have cost so far. Run it every hour.

    \b
    stepfare budget check
    stepfare budget check --month 2026-11 --no-notify -o json

    Exit codes: 0; 4 a hard budget is exceeded; 1 the state cannot be read.
    """
    from router.ledger.month import Month

    moment = parse_now(now)
    period = Month.of(moment) if month is None else parse_month("--month", month)
    with open_state_store(deploy, clouds, makes=False) as (opened, store):
        progress = load_budget_progress(store, period, moment, basis, now)
        standings = progress.standings
        if notify:
            _notify(opened, store, period, standings)
    rows = [_row(each, basis, output) for each in standings]
    right = frozenset({"BUDGET", "SPENT", "RUNNING", "USED", "FORECAST"})
    if standings:
        note_counted_costs(output, period, moment, basis, progress)
    print_rows(output, "budgets", rows, _TABLE, right, f"no budget holds in {period}: `stepfare budget set` makes one")
    exceeded = [each for each in standings if each.budget.hard and each.is_over]
    for each in exceeded:
        console.note(f"{escape_unprintable(each.budget.title)} is over its hard budget", "error")
    return ExitCode.OVER_BUDGET if exceeded else ExitCode.OK


def _notify(opened: AppSettings, store: StateStore, month: Month, standings: tuple[BudgetStatus, ...]) -> None:
    from router.controller.budget_notices import report_budget_marks
    from router.controller.notify_channels import open_channels

    settings = opened.deploy.notify
    addressees = open_channels(settings.addresses(opened.environment))
    failed = report_budget_marks(store, addressees, settings.events, month, standings)
    for name in failed:
        console.note(f"{name} did not take the message", "warning")


def _row(each: BudgetStatus, basis: BudgetBasisOption, output: LedgerFormat) -> dict[str, object]:
    budget = each.budget
    row: dict[str, object] = {
        "scope": budget.scope.value,
        "name": budget.name,
        "usd": str(each.usd),
        "hard": budget.hard,
        "spent_usd": str(each.spent),
        "running_usd": None if each.running is None else str(each.running),
        "percent": each.percent,
        "forecast_usd": None if each.forecast is None else str(each.forecast),
        "passed": list(each.passed),
        "over": each.is_over,
        "will_be_over": each.will_be_over,
        "basis": basis.value,
        "currency": "USD",
    }
    if output is LedgerFormat.JSON:
        return row
    from router.showback.report.text import escape_formula

    row["passed"] = ",".join(map(str, each.passed))
    if output is LedgerFormat.CSV:
        return {name: escape_formula(value) if isinstance(value, str) else value for name, value in row.items()}
    return {
        "budget_of": escape_unprintable(budget.title)[:28],
        "budget": format_usd(each.usd),
        "spent": format_usd(each.spent),
        "running": "" if each.running is None else format_usd(each.running),
        "used": format_used_share(each),
        "forecast": "" if each.forecast is None else format_usd(each.forecast),
        "state": _state(each),
    }


def _state(each: BudgetStatus) -> str:
    if each.is_over:
        return "OVER, hard" if each.budget.hard else "over"
    if each.will_be_over:
        return "will be over"
    return f"past {each.passed[-1]} %" if each.passed else "fine"
