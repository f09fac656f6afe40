"""Command ``stepfare plan check``: check whether a plan can still be applied at current prices."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pricing.money import Usd, UsdPerHour
from pricing.units import format_count
from router.cli import console
from router.cli.completion import complete_books
from router.cli.console import ExitCode
from router.cli.options import TableOutput, parse_now, parse_usd_option
from router.cli.planning_options import PlanFileArgument
from router.cli.site_options import open_state_if_any
from router.controller.accept.guardrails import (
    CostLimits,
    CurrentPrice,
    Refusal,
    RefusalReason,
    current_prices,
    find_refusals,
)
from router.controller.plans import Order, orders_of
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_content
from router.planning.document.plan_terms import BOOK
from router.render.plan_text import late_lines
from router.render.record_table import RecordTable, TableColumn, attribute_columns, json_document
from router.render.tables import format_day_time, format_usd, wrap_text

if TYPE_CHECKING:
    from router.jobs.limits import Limits


CurrentBookOption = Annotated[
    str,
    typer.Option(
        metavar="BOOK",
        autocompletion=complete_books,
        help="Current prices: latest, sandbox, embedded, a digest or a file.",
    ),
]


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """Options of how much money may be at risk, and above which amount somebody must approve."""

    max_cost: Annotated[str | None, typer.Option(metavar="USD", help="Refuse if more than this is at risk.")] = None
    approve_above: Annotated[str | None, typer.Option(metavar="USD", help="Require an approver above this amount.")] = (
        None
    )
    approved_by: Annotated[str, typer.Option(metavar="WHO", help="Name of the approver.")] = ""

    def read(self) -> CostLimits:
        return CostLimits(
            parse_usd_option("--max-cost", self.max_cost),
            parse_usd_option("--approve-above", self.approve_above),
            self.approved_by.strip(),
        )


DEFAULT_GUARD = GuardOptions()


def check(
    file: PlanFileArgument,
    book: CurrentBookOption = BOOK,
    limits: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The limits of the plan [default: those that it was made with here]."),
    ] = None,
    guard_options: GuardOptions = DEFAULT_GUARD,
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Moment of the check (ISO, with zone).")] = None,
    output: TableOutput = "table",
) -> ExitCode:
    """Check whether a plan can still be applied: its age, current prices against its ceilings, and money at risk.

    Exit codes: 0 yes; 6 the plan is too old or a price is above its ceiling; 4 more money at risk than allowed.

    \b
    stepfare plan check plan.json
    stepfare plan check plan.json --max-cost 5000 -o json
    """
    from router.config.job_files import read_limits
    from router.config.plan_files import read_plan
    from router.prices.books import load_book

    plan = read_plan(file)
    moment = parse_now(now)
    guard = guard_options.read()
    orders = orders_of(plan)
    prices_book = load_book(book)
    known_limits, knows_limits, at_risk = _ask_state(plan)
    if limits is not None:
        known_limits, knows_limits = read_limits(limits), True
    prices = current_prices(orders, prices_book, known_limits)
    found = find_refusals(plan, prices, guard, moment, at_risk=at_risk, book=prices_book, knows_limits=knows_limits)
    console.out(
        _json(plan, orders, prices, found, at_risk)
        if output == "json"
        else _text(plan, orders, prices, found, at_risk, moment)
    )
    return exit_code(found)


def _ask_state(plan: Plan) -> tuple[Limits, bool, Usd]:
    """Return the limits that the plan was made with, whether the state knows them, and the money at risk."""
    from router.app.queries.approvals import stored_jobs
    from router.controller.accept.approval import at_risk_by_team
    from router.controller.plans import knows_limits, made_limits

    digest: str = plan_content(plan)["digest"]
    with open_state_if_any() as store:
        at_risk = Usd.total(at_risk_by_team(plan, stored_jobs(store, plan)).values())
        return made_limits(store, digest), knows_limits(store, plan, digest), at_risk


def exit_code(refusals: tuple[Refusal, ...]) -> ExitCode:
    """Return the exit code of refusals. Prices and age precede money, because they require a new plan anyway."""
    causes = {refusal.cause for refusal in refusals}
    if causes & {RefusalReason.EXPIRED, RefusalReason.PRICE, RefusalReason.GONE, RefusalReason.BOOK}:
        return ExitCode.STALE
    return ExitCode.OVER_BUDGET if causes else ExitCode.OK


def _dollars(rate: UsdPerHour) -> str:
    return f"{rate.dollars():.2f}"


def _current(price: CurrentPrice) -> str:
    return "gone" if price.usd_per_hour is None else f"{_dollars(price.usd_per_hour)}{'~' if price.unsure else ''}"


_PRICES: RecordTable[CurrentPrice] = RecordTable(
    (
        TableColumn("job", lambda price: price.line.job, "JOB", width=16),
        TableColumn("", lambda price: f"{price.line.cloud}/{price.line.zone or price.line.region}", "PLACE", width=18),
        *attribute_columns("cloud", "region", "zone", "instance_type", "market", "machines", of="line"),
        TableColumn("", lambda price: f"{price.line.machines}x{price.line.instance_type}", "MACHINES", width=18),
        TableColumn("", lambda price: price.line.start, "START", format_day_time),
        TableColumn("planned_usd_per_hour", lambda price: price.line.usd_per_hour, "PLAN $/H", _dollars, right=True),
        TableColumn("", _current, "NOW $/H", right=True),
        TableColumn("max_usd_per_hour", lambda price: price.line.max_usd_per_hour, "MOST $/H", _dollars, right=True),
        TableColumn("usd_per_hour", lambda price: price.usd_per_hour),
        TableColumn("not_refreshed", lambda price: price.unsure),
    )
)


def _text(
    plan: Plan,
    orders: tuple[Order, ...],
    prices: tuple[CurrentPrice, ...],
    refusals: tuple[Refusal, ...],
    at_risk: Usd,
    now: datetime,
) -> str:
    lines = [_PRICES.text(prices, console.screen()) if prices else "the plan orders nothing", ""]
    if any(price.unsure for price in prices):
        lines.append("~ could not be refreshed: the last known price")
    expected = Usd.total(order.expected_usd for order in orders)
    lines.append(
        f"{format_count(len(orders), 'gang')}, expected {format_usd(expected)}, "
        f"at risk up to {format_usd(at_risk)} (next places included)"
    )
    lines += late_lines(plan)
    for refusal in refusals:
        job = f"{refusal.job}: " if refusal.job else ""
        lines.append(wrap_text(f"refused: {job}{refusal.what} ({refusal.remedy})"))
    lines.append("" if refusals else f"may be applied as of {now:%Y-%m-%d %H:%MZ}")
    return "\n".join(lines).rstrip() + "\n"


def _json(
    plan: Plan, orders: tuple[Order, ...], prices: tuple[CurrentPrice, ...], refusals: tuple[Refusal, ...], at_risk: Usd
) -> str:
    document: dict[str, Any] = {
        "gangs": len(orders),
        "expected_usd": str(Usd.total(order.expected_usd for order in orders)),
        "at_risk_usd": str(at_risk),
        "prices": _PRICES.records(prices),
        "refusals": [asdict(refusal) for refusal in refusals],
    }
    late = [{"job": job.job, "by_hours": job.late.by_hours, "why": job.late.why} for job in plan.jobs if job.late]
    if late:
        document["late"] = late
    return json_document(document)
