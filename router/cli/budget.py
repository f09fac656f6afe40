"""Commands ``stepfare budget set``, ``list``, ``remove`` and ``check``: budgets of a month, and what each has spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.bills import report_corrections
from router.cli.console import CommandError, ExitCode
from router.cli.options import (
    BasisOption,
    ListFormat,
    ListOutput,
    MonthOption,
    option_error,
    parse_as_of,
    parse_now,
    parse_period,
    parse_usd_option,
    translate_closed_books,
)
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, acting_user, open_state_store, own_context
from router.ledger.budget import Budget, BudgetStatus, Scope, budgets_set_by, parse_percents
from router.ledger.entry import CostBasis
from router.render.record_table import RecordTable, TableColumn
from router.render.showback_text import format_used_share, standing_table
from router.render.tables import format_timestamp, format_usd
from router.showback.report.values import CellKind, replace_unprintable, short_text

if TYPE_CHECKING:
    from datetime import datetime

    from router.app.budgets import MonthBudgets
    from router.app.settings import AppSettings
    from router.ledger.month import Month
    from router.state.store import StateStore

    BudgetRow = tuple[Budget, BudgetStatus | None]


@dataclass(frozen=True, slots=True)
class OwnerOptions:
    """Options of whose budget it is."""

    team: Annotated[str | None, typer.Option(metavar="NAME", help="Budget of this team.")] = None
    project: Annotated[str | None, typer.Option(metavar="NAME", help="Budget of this project.")] = None
    everybody: Annotated[bool, typer.Option("--all", help="Budget of everybody together.")] = False

    def read(self) -> tuple[Scope, str]:
        """Return the scope and the name. InvalidInputError unless there is just one owner."""
        given = ((Scope.TEAM, self.team), (Scope.PROJECT, self.project), (Scope.ALL, "" if self.everybody else None))
        scopes = [(scope, name) for scope, name in given if name is not None]
        if len(scopes) != 1:
            what = "no owner of the budget is given" if not scopes else "a budget has one owner only"
            raise option_error("--team, --project or --all", what, "give one of the three")
        [(scope, name)] = scopes
        if scope is not Scope.ALL and not name.strip():
            raise option_error(f"--{scope.value}", "is empty", "name one")
        return scope, name


DEFAULT_OWNER = OwnerOptions()
Since = Annotated[
    str | None, typer.Option("--from", metavar="2026-12", help="First month it applies to; default: that of --now.")
]

Now = Annotated[str | None, typer.Option(metavar="TIME", help="Time of the command (ISO, with zone).")]


def list_budgets(
    month: Annotated[str | None, typer.Option(metavar="2026-11", help="Month to show; default: that of --now.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Show every budget ever set.")] = False,
    basis: BasisOption = CostBasis.EFFECTIVE,
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: Now = None,
    output: ListOutput = "table",
) -> None:
    """List the budgets of a month and what was spent of each, as `showback` counts it.

    Plans and orders must stay within a hard budget.

    \b
    stepfare budget list
    stepfare budget list --month 2026-12 -o json
    stepfare budget list --history
    """
    moment = parse_now(now)
    period = parse_period(month, moment)
    with open_state_store(settings_files, makes=False) as (opened, store):
        if history:
            rows: list[BudgetRow] = [(each, None) for each in budgets_set_by(store.budgets.all(), parse_as_of(now))]
        else:
            progress = load_budget_progress(opened, store, period, moment, basis, now)
            rows = [(each.budget, each) for each in progress.standings]
            if rows:
                note_counted_costs(output, period, moment, basis, progress)
    table = _budget_table(None if history else basis)
    console.print_table(output, "budgets", table, rows, f"no budget holds in {period}")


def load_budget_progress(
    opened: AppSettings,
    store: StateStore,
    period: Month,
    moment: datetime,
    basis: CostBasis,
    now: str | None,
) -> MonthBudgets:
    """Return how much of each budget of the month is spent; ``now`` is the raw value of the option."""
    from router.app.queries.budgets import budget_progress
    from router.showback.report.query import ReportQuery

    report_corrections(store, period)
    query = ReportQuery(month=period, now=moment, as_of=parse_as_of(now), basis=basis)
    return budget_progress(own_context(opened, store, lambda: moment), query)


def note_counted_costs(
    output: ListFormat, period: Month, moment: datetime, basis: CostBasis, far: MonthBudgets
) -> None:
    """Note which costs the budgets count and which currencies they leave out."""
    if output == "table":
        console.note(
            f"{period} as of {format_timestamp(moment)}, {basis.value} cost in USD: "
            f"invoiced where a bill stands, metered elsewhere"
        )
    for currency, amount in far.others.items():
        console.note(
            f"in no budget: {short_text(amount, CellKind.MONEY)} {currency}, for budgets are in USD", "warning"
        )


def _budget_table(basis: CostBasis | None) -> RecordTable[BudgetRow]:
    """Return the table of budgets with what is spent of each; without a basis that of their history."""

    def of_status(take: Callable[[BudgetStatus], object]) -> Callable[[BudgetRow], object]:
        return lambda row: None if row[1] is None else take(row[1])

    shares: tuple[TableColumn[BudgetRow], ...] = (
        TableColumn("", of_status(lambda status: status.spent), "SPENT", format_usd, right=True),
        TableColumn("", of_status(lambda status: status.running), "RUNNING", format_usd, right=True),
        TableColumn("", of_status(format_used_share), "USED", right=True),
    )
    spending: tuple[TableColumn[BudgetRow], ...] = (
        TableColumn("spent_usd", of_status(lambda status: status.spent)),
        TableColumn("running_usd", of_status(lambda status: status.running)),
        TableColumn("percent", of_status(lambda status: status.percent)),
        TableColumn("basis", lambda _: None if basis is None else basis.value),
        TableColumn("currency", lambda _: "USD"),
    )
    return RecordTable(
        (
            TableColumn("scope", lambda row: row[0].scope.value),
            TableColumn("name", lambda row: row[0].name),
            TableColumn("", lambda row: replace_unprintable(row[0].title)[:28], "BUDGET OF"),
            TableColumn("since", lambda row: str(row[0].since), "SINCE"),
            TableColumn("usd", lambda row: row[0].usd, "USD", format_usd, right=True),
            TableColumn("hard", lambda row: row[0].hard, csv=str),
            *([] if basis is None else shares),
            TableColumn("", lambda row: "removed" if row[0].usd is None else "hard" if row[0].hard else "soft", "KIND"),
            TableColumn("warn", lambda row: row[0].warn, "WARN", lambda percents: ",".join(map(str, percents))),
            TableColumn("who", lambda row: row[0].who),
            TableColumn("at", lambda row: row[0].at),
            *([] if basis is None else spending),
            *(_AUTHOR if basis is None else []),
        )
    )


_AUTHOR: tuple[TableColumn[BudgetRow], ...] = (
    TableColumn("", lambda row: replace_unprintable(row[0].who)[:24], "WHO"),
    TableColumn("", lambda row: row[0].at, "AT", "{:%Y-%m-%d}".format),
)


def set_budget(
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="Dollars per month: 12000 or 12,000.50.")],
    owner: OwnerOptions = DEFAULT_OWNER,
    hard: Annotated[bool, typer.Option("--hard", help="Refuse plans and orders that exceed it.")] = False,
    warn: Annotated[
        str, typer.Option(metavar="PERCENTS", help="Notify at these percentages; empty: never.")
    ] = "50,80,100",
    since: Since = None,
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: Now = None,
) -> None:
    """Set the monthly budget of everybody, a team or a project from a month on.

    Earlier months keep theirs, and closed months cannot get one. The audit log records who set it.

    \b
    stepfare budget set 12000 --team research
    stepfare budget set 5000 --project asr --hard --warn 80,95,100
    stepfare budget set 90000 --all --from 2027-01
    """
    from router.app.queries import budgets

    usd = parse_usd_option("AMOUNT", amount)
    moment = parse_now(now)
    scope, name = owner.read()
    period = parse_period(since, moment, "--from")
    budget = _budget(scope, name, period, moment, usd=usd, hard=hard, warn=_percents(warn))
    with open_state_store(settings_files) as (opened, store), translate_closed_books():
        context = own_context(opened, store, lambda: moment)
        budgets.set_budget(context, budget)
        is_known = budgets.owner_is_known(context, scope, name)
    kind = "hard budget" if hard else "budget"
    console.note(f"{replace_unprintable(budget.title)}: a {kind} of {amount} dollars a month from {budget.since} on")
    if not is_known:
        console.note(f"{replace_unprintable(budget.title)}: {budgets.UNKNOWN_OWNER}", "warning")


def remove(
    owner: OwnerOptions = DEFAULT_OWNER,
    since: Since = None,
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: Now = None,
) -> None:
    """Remove a budget from a month on; earlier months keep it.

    \b
    stepfare budget remove --team research
    stepfare budget remove --all --from 2027-01

    The exit code is 1 if no budget holds in that month, or its books are closed.
    """
    from router.app.queries import budgets

    moment = parse_now(now)
    scope, name = owner.read()
    budget = _budget(scope, name, parse_period(since, moment, "--from"), moment, usd=None)
    with open_state_store(settings_files, makes=False) as (opened, store), translate_closed_books():
        try:
            budgets.remove_budget(own_context(opened, store, lambda: moment), budget)
        except budgets.NoBudgetError as error:
            remedy = "`stepfare budget list` shows those that do"
            raise CommandError(replace_unprintable(str(error)), remedy=remedy) from None
    console.note(f"{replace_unprintable(budget.title)}: no budget from {budget.since} on")


def _budget(scope: Scope, name: str, since: Month, at: datetime, **terms: object) -> Budget:
    try:
        return Budget(scope=scope, name=name, since=since, who=acting_user(), at=at, **terms)  # type: ignore[arg-type]
    except ValueError as error:
        raise option_error("--warn", error) from None


def _percents(text: str) -> tuple[int, ...]:
    try:
        return parse_percents(text)
    except ValueError as error:
        raise option_error("--warn", str(error), "write whole percents: 50,80,100") from None


def check(
    month: MonthOption = None,
    notify: Annotated[
        bool, typer.Option("--notify/--no-notify", help="Notify the channels of the deploy file.")
    ] = True,
    basis: BasisOption = CostBasis.EFFECTIVE,
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: Now = None,
    output: ListOutput = "table",
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

    moment = parse_now(now)
    period = parse_period(month, moment)
    with open_state_store(settings_files, makes=False) as (opened, store):
        progress = load_budget_progress(opened, store, period, moment, basis, now)
        standings = progress.standings
        if notify:
            _notify(opened, store, period, standings)
    if standings:
        note_counted_costs(output, period, moment, basis, progress)
    empty = f"no budget holds in {period}: `stepfare budget set` makes one"
    console.print_table(output, "budgets", standing_table(standings, basis.value), standings, empty)
    exceeded = [each for each in standings if each.budget.hard and each.is_over]
    for each in exceeded:
        console.note(f"{replace_unprintable(each.budget.title)} is over its hard budget", "error")
    return ExitCode.OVER_BUDGET if exceeded else ExitCode.OK


def _notify(opened: AppSettings, store: StateStore, month: Month, standings: tuple[BudgetStatus, ...]) -> None:
    from router.controller.report.notify import open_channels, report_budget_marks

    settings = opened.deploy.notify
    addressees = open_channels(settings.addresses(opened.environment))
    failed = report_budget_marks(store, addressees, settings.events, month, standings)
    for name in failed:
        console.note(f"{name} did not take the message", "warning")
