"""Command ``stepfare bills reconcile``: compare planned, metered and invoiced costs."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.units import format_count
from router.cli import console
from router.cli.bills import report_corrections
from router.cli.console import ExitCode
from router.cli.options import (
    BasisOption,
    ListOutput,
    MonthOption,
    ReportTimeOption,
    option_error,
    parse_as_of,
    parse_now,
    parse_period,
)
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, open_state_store
from router.ledger.entry import CostBasis
from router.prices.data_folders import bills_folder, extract_folder

if TYPE_CHECKING:
    from router.app.reconcile import MonthReconciliation
    from router.render.bills_reconcile_text import ReconcileQuery, ReconcileView
    from router.showback.reconcile.findings import ReconcileTolerance
    from router.showback.reconcile.outcome import ExchangeRate

_RATE = re.compile(r"([A-Z]{3})=([0-9]+(?:\.[0-9]+)?)@(\d{4}-\d{2}-\d{2})(?: (.+))?")


def reconcile(
    month: MonthOption = None,
    by: Annotated[
        str,
        typer.Option("--group-by", "--by", metavar="NAMES", help="Names such as team, job, attempt, with commas."),
    ] = "job",
    basis: BasisOption = CostBasis.EFFECTIVE,
    share: Annotated[
        str, typer.Option("--tolerance", metavar="PERCENT", help="Ignore differences below this share.")
    ] = "1",
    amount: Annotated[
        str, typer.Option("--tolerance-amount", metavar="AMOUNT", help="Ignore differences below this amount.")
    ] = "5",
    rate: Annotated[
        list[str] | None,
        typer.Option(metavar="EUR=1.08@DATE", help="Exchange rate to dollars; other currencies are kept apart."),
    ] = None,
    max_rows: Annotated[
        int, typer.Option("--most", min=0, metavar="N", help="Rows without counterpart to show in the table.")
    ] = 10,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there are findings.")] = False,
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: ReportTimeOption = None,
    output: ListOutput = "table",
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write to a file.")] = None,
) -> ExitCode:
    """Reconcile the imported bills with planned and metered costs.

    The report shows which rows match, why amounts differ, and what has no counterpart on either side. The formulas are
    in docs/reconcile.md.

    \b
    stepfare bills reconcile --month 2026-11
    stepfare bills reconcile --group-by team,job -o csv --out november.csv
    stepfare bills reconcile --rate "EUR=1.0842@2026-11-30 treasury" --strict

    Exit codes: 0; 1 the state cannot be read, or findings with --strict; 2 invalid
    input. csv holds only the table of differences, json everything.
    """
    from router.app.reconcile import reconcile_month
    from router.render import bills_reconcile_text as text

    moment = parse_now(now)
    period = parse_period(month, moment)
    dimensions, tolerance = _dimensions(by), _tolerance(share, amount)
    rates = dict(_rate(each) for each in rate or [])
    with open_state_store(settings_files, makes=False) as (_, store), console.progress("matching"):
        report_corrections(store, period)
        result = reconcile_month(store, extract_folder(), bills_folder(), period, basis, moment, parse_as_of(now))
    view = _build_view(
        text.ReconcileQuery(month=period, now=moment, basis=basis, by=dimensions, rates=rates), result, tolerance
    )
    if not result.bills:
        console.note("no bill is stored, so all is estimated: `stepfare bills import FILE`", "warning")
    if result.archived:
        console.note(
            f"missing: {format_count(result.archived, 'entry', 'entries')}, archived before they were read", "warning"
        )
    writers = {
        "json": lambda: text.as_json(view),
        "csv": lambda: text.as_csv(view),
        "table": lambda: text.as_table(view, max_rows, console.screen(file=out)),
    }
    console.write(writers[output](), out)
    return ExitCode.FAILURE if strict and view.findings else ExitCode.OK


def _build_view(query: ReconcileQuery, result: MonthReconciliation, tolerance: ReconcileTolerance) -> ReconcileView:
    from router.render.bills_reconcile_text import ReconcileView
    from router.showback.reconcile.findings import collect_findings
    from router.showback.reconcile.outcome import convert_comparisons, convert_currencies
    from router.showback.reconcile.variance import compute_variances

    summed = convert_currencies(result.grains, query.rates)
    by_group = compute_variances(summed, query.by)
    outcome = replace(result.outcome, compared=convert_comparisons(result.outcome.compared, query.rates))
    findings = collect_findings(by_group, outcome, tolerance)
    return ReconcileView(query, outcome, by_group, compute_variances(summed, ()), findings)


def _dimensions(by: str) -> tuple[str, ...]:
    from router.showback.reconcile.variance import GROUPING_WORDS

    names = tuple(word.strip() for word in by.split(","))
    wrong = next((word for word in names if word not in GROUPING_WORDS or names.count(word) > 1), None)
    if wrong is not None:
        what = f"{wrong!r} is there twice" if wrong in GROUPING_WORDS else f"{wrong!r} is no word of a charge"
        raise option_error("--group-by", what, f"write some of {','.join(GROUPING_WORDS)}")
    return names


def _tolerance(share: str, amount: str) -> ReconcileTolerance:
    from router.showback.reconcile.findings import ReconcileTolerance

    return ReconcileTolerance(
        Fraction(_number("--tolerance", share.strip().removesuffix("%"))) / 100, _number("--tolerance-amount", amount)
    )


def _number(option: str, text: str) -> Decimal:
    try:
        value = Decimal(text.strip().removeprefix("$"))
    except InvalidOperation:
        value = Decimal(-1)
    if not value.is_finite() or value < 0:
        raise option_error(option, f"{text!r} is no number from 0 up", "write 1 or 2.5")
    return value


def _rate(text: str) -> tuple[str, ExchangeRate]:
    from router.showback.reconcile.outcome import ExchangeRate

    found = _RATE.fullmatch(text.strip())
    try:
        if found is None or found[1] == "USD" or not Decimal(found[2]):
            raise ValueError(f"{text!r} is no rate")
        return found[1], ExchangeRate(
            "USD", Decimal(found[2]), date.fromisoformat(found[3]), found[4] or "named by hand"
        )
    except ValueError as error:
        remedy = "write EUR=1.0842@2026-11-30, dollars for one euro on that day, and who says so after a space"
        raise option_error("--rate", error, remedy) from None
