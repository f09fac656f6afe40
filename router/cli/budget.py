"""Commands ``stepfare budget list``, ``set`` and ``remove``: monthly budgets."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.bills_change import say_corrections
from router.cli.console import CommandError, ExitCode
from router.cli.ledger_options import LedgerFormat, books_explained, month_of, show
from router.cli.options import as_of, moment_of_planning, usd_of
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, opened_store, who
from router.render.bills_text import plain
from router.render.tables import dollars, stamp

if TYPE_CHECKING:
    from datetime import datetime

    from router.app.budgets import Far
    from router.ledger.budget import Budget, Scope, Standing
    from router.ledger.month import Month
    from router.state.store import Store

Team = Annotated[str | None, typer.Option(metavar="NAME", help="Budget of this team.")]
Project = Annotated[str | None, typer.Option(metavar="NAME", help="Budget of this project.")]
Everybody = Annotated[bool, typer.Option("--all", help="Budget of everybody together.")]
Since = Annotated[
    str | None, typer.Option("--from", metavar="2026-12", help="First month it applies to; default: that of --now.")
]
Now = Annotated[str | None, typer.Option(metavar="TIME", help="Time of the command (ISO, with zone).")]
DeployFile = Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)]


class BasisChoice(StrEnum):
    """Cost basis, as :class:`router.showback.report.query.Basis`."""

    BILLED = "billed"
    EFFECTIVE = "effective"


Basis = Annotated[BasisChoice, typer.Option(help="Cost as billed, or with commitments spread over use.")]
CloudsFile = Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)]
_TABLE = ("budget_of", "since", "usd", "spent", "used", "kind", "warn")
_HISTORY = ("budget_of", "since", "usd", "kind", "warn", "who", "at")


def list_budgets(
    month: Annotated[str | None, typer.Option(metavar="2026-11", help="Month to show; default: that of --now.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Show every budget ever set.")] = False,
    basis: Basis = BasisChoice.EFFECTIVE,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    now: Now = None,
    output: Annotated[LedgerFormat, typer.Option("--output", "-o", help="Format.")] = LedgerFormat.TABLE,
) -> ExitCode:
    """List the budgets of a month and what was spent of each, as `showback` counts it.

    Plans and orders must stay within a hard budget.

    \b
    stepfare budget list
    stepfare budget list --month 2026-12 -o json
    stepfare budget list --history
    """
    from router.ledger.budget import set_by

    moment = moment_of_planning(now)
    period = _month(month, "--month", moment)
    with opened_store(deploy, clouds, makes=False) as (_, store):
        if history:
            budgets = set_by(store.budgets.all(), as_of(now))
            rows = [_row(each, output) for each in budgets]
        else:
            progress = far_of(store, period, moment, basis, now)
            rows = [{**_row(each.budget, output), **_spent(each, basis, output)} for each in progress.standings]
            if rows:
                say_counted(output, period, moment, basis, progress)
    right = frozenset({"USD", "SPENT", "USED"})
    show(output, "budgets", rows, _HISTORY if history else _TABLE, right, f"no budget holds in {period}")
    return ExitCode.OK


def far_of(store: Store, period: Month, moment: datetime, basis: BasisChoice, now: str | None) -> Far:
    """Return how much of each budget of the month is spent; ``now`` is the raw value of the option."""
    from router.app.budgets import how_far
    from router.prices.home import bills_folder, extract_folder
    from router.showback.report.query import Asked
    from router.showback.report.query import Basis as Cost

    say_corrections(store)
    query = Asked(month=period, now=moment, as_of=as_of(now), basis=Cost(basis.value))
    return how_far(store, query, extract_folder(), bills_folder())


def say_counted(output: LedgerFormat, period: Month, moment: datetime, basis: BasisChoice, far: Far) -> None:
    """Note which costs the budgets count and which currencies they leave out."""
    from router.showback.report.text import short
    from router.showback.report.values import Kind

    if output is LedgerFormat.TABLE:
        console.note(
            f"{period} as of {stamp(moment)}, {basis.value} cost in USD: "
            f"invoiced where a bill stands, metered elsewhere"
        )
    for currency, amount in far.others.items():
        console.note(f"in no budget: {short(amount, Kind.MONEY)} {currency}, for budgets are in USD", "warning")


def share_used(each: Standing) -> str:
    """Return the used share of a budget as a report writes it."""
    from router.showback.report.text import short
    from router.showback.report.values import Kind

    return "" if each.share is None else short(each.share, Kind.SHARE)


def _spent(each: Standing, basis: BasisChoice, output: LedgerFormat) -> dict[str, object]:
    if output is LedgerFormat.TABLE:
        return {"spent": dollars(each.spent), "used": share_used(each)}
    running = None if each.running is None else str(each.running)
    return {
        "spent_usd": str(each.spent),
        "running_usd": running,
        "percent": each.percent,
        "basis": basis.value,
        "currency": "USD",
    }


def set_budget(
    amount: Annotated[str, typer.Argument(metavar="AMOUNT", help="Dollars per month: 12000 or 12,000.50.")],
    team: Team = None,
    project: Project = None,
    everybody: Everybody = False,
    hard: Annotated[bool, typer.Option("--hard", help="Refuse plans and orders that exceed it.")] = False,
    warn: Annotated[
        str, typer.Option(metavar="PERCENTS", help="Notify at these percentages; empty: never.")
    ] = "50,80,100",
    since: Since = None,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    now: Now = None,
) -> ExitCode:
    """Set the monthly budget of everybody, a team or a project from a month on.

    Earlier months keep theirs, and closed months cannot get one. The audit log records who set it.

    \b
    stepfare budget set 12000 --team research
    stepfare budget set 5000 --project asr --hard --warn 80,95,100
    stepfare budget set 90000 --all --from 2027-01
    """
    from pricing.money import ZERO

    usd = usd_of("AMOUNT", amount)
    moment = moment_of_planning(now)
    scope, name = _parse_scope(team, project, everybody=everybody)
    budget = _budget(scope, name, _month(since, "--from", moment), moment, usd=usd, hard=hard, warn=_percents(warn))
    with opened_store(deploy, clouds) as (_, store), books_explained():
        store.budgets.put(budget)
        store.audit(
            who(),
            "budget set",
            "",
            usd or ZERO,
            moment,
            budget=budget.title,
            since=str(budget.since),
            hard=hard,
            warn=list(budget.warn),
        )
    kind = "hard budget" if hard else "budget"
    console.note(f"{plain(budget.title)}: a {kind} of {amount} dollars a month from {budget.since} on")
    return ExitCode.OK


def remove(
    team: Team = None,
    project: Project = None,
    everybody: Everybody = False,
    since: Since = None,
    deploy: DeployFile = None,
    clouds: CloudsFile = None,
    now: Now = None,
) -> ExitCode:
    """Remove a budget from a month on; earlier months keep it.

    \b
    stepfare budget remove --team research
    stepfare budget remove --all --from 2027-01

    The exit code is 1 if no budget holds in that month, or its books are closed.
    """
    from pricing.money import ZERO
    from router.ledger.budget import holding

    moment = moment_of_planning(now)
    scope, name = _parse_scope(team, project, everybody=everybody)
    budget = _budget(scope, name, _month(since, "--from", moment), moment, usd=None)
    with opened_store(deploy, clouds, makes=False) as (_, store), books_explained():
        if not any((each.scope, each.name) == (scope, name) for each in holding(store.budgets.all(), budget.since)):
            remedy = "`stepfare budget list` shows those that do"
            raise CommandError(f"no budget of {plain(budget.title)} holds in {budget.since}", remedy=remedy)
        store.budgets.put(budget)
        store.audit(who(), "budget remove", "", ZERO, moment, budget=budget.title, since=str(budget.since))
    console.note(f"{plain(budget.title)}: no budget from {budget.since} on")
    return ExitCode.OK


def _budget(scope: Scope, name: str, since: Month, at: datetime, **terms: object) -> Budget:
    from router.cli.options import refused
    from router.ledger.budget import Budget

    try:
        return Budget(scope=scope, name=name, since=since, who=who(), at=at, **terms)  # type: ignore[arg-type]
    except ValueError as error:
        raise refused("--warn", error) from None


def _parse_scope(team: str | None, project: str | None, *, everybody: bool) -> tuple[Scope, str]:
    from router.ledger.budget import Scope

    scopes = [(Scope.TEAM, team or "")] * (team is not None) + [(Scope.PROJECT, project or "")] * (project is not None)
    scopes += [(Scope.ALL, "")] * everybody
    if len(scopes) != 1:
        what = "no owner of the budget is given" if not scopes else "a budget has one owner only"
        raise InvalidInputError.single(what, field="--team, --project or --all", remedy="give one of the three")
    scope, name = scopes[0]
    if scope is not Scope.ALL and not name.strip():
        raise InvalidInputError.single("is empty", field=f"--{scope.value}", remedy="name one")
    return scope, name


def _percents(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(each.strip().removesuffix("%")) for each in text.split(",") if each.strip())
    except ValueError:
        remedy = "write whole percents: 50,80,100"
        raise InvalidInputError.single(f"{text!r} is no list of percents", field="--warn", remedy=remedy) from None


def _month(text: str | None, option: str, moment: datetime) -> Month:
    from router.ledger.month import Month

    return Month.of(moment) if text is None else month_of(option, text)


def _row(each: Budget, output: LedgerFormat) -> dict[str, object]:
    row: dict[str, object] = {
        "scope": each.scope.value,
        "name": each.name,
        "since": str(each.since),
        "usd": None if each.usd is None else str(each.usd),
        "hard": each.hard,
        "warn": list(each.warn),
        "who": each.who,
        "at": each.at.isoformat(),
    }
    if output is LedgerFormat.JSON:
        return row
    from router.showback.report.text import harmless

    row["warn"] = ",".join(map(str, each.warn))
    if output is LedgerFormat.CSV:
        return {name: harmless(value) if isinstance(value, str) else value for name, value in row.items()}
    kind = "removed" if each.usd is None else "hard" if each.hard else "soft"
    usd = "" if each.usd is None else dollars(each.usd)
    author = plain(each.who)[:24]
    return {
        **row,
        "budget_of": plain(each.title)[:28],
        "usd": usd,
        "kind": kind,
        "who": author,
        "at": f"{each.at:%Y-%m-%d}",
    }
