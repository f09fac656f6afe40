"""Commands ``stepfare showback`` and ``accuracy``: the costs of a month, and what plans predicted of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast, get_args

import typer

from router.cli import console
from router.cli.bills import report_corrections
from router.cli.console import check_output_folders, write_output_file
from router.cli.options import (
    OUTPUT,
    AsOfOption,
    BasisOption,
    ListOutput,
    MonthOption,
    OutOption,
    ReportTimeOption,
    option_error,
    parse_as_of,
    parse_length_option,
    parse_now,
    parse_period,
)
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, open_state_store, own_context
from router.ledger.entry import CostBasis
from router.prices.data_folders import extract_folder
from router.render.record_table import RecordTable, TableColumn
from router.showback.shared_costs import SharingMethod

if TYPE_CHECKING:
    from router.render.tables import Screen
    from router.showback.plan_accuracy import Accuracy, PlanAccuracy
    from router.showback.report.query import ReportQuery
    from router.showback.report.values import ShowbackReport

ShowbackFormat = Literal["table", "wide", "markdown", "html", "csv", "xlsx", "parquet", "json", "focus"]
_TO_FILES = frozenset({"xlsx", "parquet", "focus"})
_EXAMPLES = {"focus": "november.csv"}


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Options of which costs a report counts, and by what it groups them."""

    month: MonthOption = None
    by: Annotated[
        str,
        typer.Option(
            "--group-by", "--by", metavar="NAMES", help="Names such as team, project, cloud, label:NAME, with commas."
        ),
    ] = "team"
    basis: BasisOption = CostBasis.EFFECTIVE
    share_idle: Annotated[SharingMethod, typer.Option(help="How to share costs without an owner.")] = SharingMethod.NONE
    share: Annotated[
        list[str] | None, typer.Option(metavar="GROUP=PART", help="Fixed share of a group: research=0.6.")
    ] = None

    def read(self, now: datetime) -> ReportQuery:
        """Return the query of a report at this moment. Raises InvalidInputError."""
        from router.showback.report.query import ReportQuery

        names, shares = tuple(name.strip() for name in self.by.split(",")), self.share or []
        is_fixed = self.share_idle is SharingMethod.FIXED
        if shares and not is_fixed:
            raise option_error("--share", "goes with --share-idle fixed")
        if is_fixed and not shares:
            raise option_error("--share-idle fixed", "names no parts", "add --share research=0.6 for each")
        fixed = dict(_parse_share(text, len(names)) for text in shares) if is_fixed else None
        if fixed is not None and (len(fixed) < len(shares) or sum(fixed.values()) > 1):
            raise option_error("--share", "parts are of 1 together, each group once")
        month = parse_period(self.month, now)
        try:
            return ReportQuery(month=month, now=now, by=names, basis=self.basis, share=self.share_idle, fixed=fixed)
        except ValueError as error:
            raise option_error("--group-by", error) from None


def showback(
    query_options: QueryOptions,
    files: Annotated[
        list[Path] | None,
        typer.Option("--from-file", "--from", metavar="FILE", help="FOCUS file, instead of the ledger; repeatable."),
    ] = None,
    archive: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="File of `ledger archive` to include.")
    ] = None,
    accounts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with the billed accounts, for -o focus; see `schema showback`."),
    ] = None,
    focus_version: Annotated[str, typer.Option(help="FOCUS version for -o focus: 1.4 or 1.2.")] = "1.4",
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: AsOfOption = None,
    output: Annotated[ShowbackFormat, OUTPUT] = "table",
    out: OutOption = None,
) -> None:
    """Report the costs of a month: planned, metered and invoiced, by team, project and job.

    The table is the answer: a sentence, a few figures, the groups. -o wide adds unit costs, waste, savings by spot, and
    the reasons for the change from last month. All formats have the same numbers. See docs/showback.md.

    \b
    stepfare showback --month 2026-11
    stepfare showback --month 2026-11 -o wide
    stepfare showback --group-by team,project -o html --out november.html
    stepfare showback --group-by label:phase
    stepfare showback --share-idle weighted -o xlsx --out november.xlsx
    stepfare showback --share-idle fixed --share research=0.6 --share product=0.4
    stepfare showback --from-file bill.csv.gz --from-file more.parquet

    xlsx, parquet and focus need --out; focus writes the charges of the month, as `ledger export` does. Exit codes: 0;
    1 the state cannot be read; 2 invalid input.
    """
    moment = parse_now(now)
    query = replace(query_options.read(moment), as_of=parse_as_of(now))
    if output in _TO_FILES and out is None:
        what = f"{output} is not for a terminal"
        raise option_error("--out", what, f"name a file: --out {_EXAMPLES.get(output, f'november.{output}')}")
    check_output_folders(out)
    if output == "focus" and out is not None:
        _focus(query, out, bool(files), accounts, focus_version, settings_files, now)
        return
    from router.showback.ledger_extract import without_collector

    with without_collector():
        if files:
            from router.app.showback import report_of_files

            if archive:
                raise option_error("--archive", "goes with the ledger, not with --from-file")
            report = report_of_files(files, query)
        else:
            report = _report_of_ledger(query, archive or [], settings_files)
        for note in report.section("head").notes:
            console.note(note, "warning")
        _write(report, output, out, moment)


def _focus(
    query: ReportQuery,
    out: Path,
    from_files: bool,
    accounts: Path | None,
    version: str,
    settings_files: SettingsOptions,
    now: str | None,
) -> None:
    from router.cli.ledger import FocusVersion, export

    if from_files:
        what, remedy = "is of the ledger, not of files that are FOCUS already", "leave out --from-file"
        raise option_error("-o focus", what, remedy)
    if version not in get_args(FocusVersion):
        raise option_error("--focus-version", f"{version!r} is not written", "1.4 or 1.2")
    export(out, str(query.month), cast(FocusVersion, version), accounts, now, settings_files)


def _parse_share(text: str, names: int) -> tuple[tuple[str, ...], Decimal]:
    group, _, part = text.rpartition("=")
    try:
        amount = Decimal(part)
        if not group or not amount.is_finite() or not 0 < amount <= 1 or len(group.split("/")) != names:
            raise ValueError(text)
    except (InvalidOperation, ValueError):
        remedy = "write research=0.6, or team/project=0.6 for --group-by team,project"
        raise option_error("--share", f"{text!r} is no part of 1 for a group", remedy) from None
    return tuple(group.split("/")), amount


def _report_of_ledger(query: ReportQuery, archives: list[Path], settings_files: SettingsOptions) -> ShowbackReport:
    from router.app.queries.spend import month_report
    from router.app.showback import add_archive

    with open_state_store(settings_files, makes=False) as (opened, store), console.progress("reading the ledger"):
        for path in archives:
            add_archive(store, extract_folder(), path)
        report_corrections(store, query.month)
        context = own_context(opened, store, lambda: query.now)
        return month_report(context, query)


def _write(report: ShowbackReport, output: ShowbackFormat, out: Path | None, now: datetime) -> None:
    from router.showback.report.export import report_to_parquet, report_to_workbook

    if output in _TO_FILES and out is not None:
        write_output_file(
            out,
            report_to_workbook(report, now) if output == "xlsx" else report_to_parquet(report),
        )
    else:
        console.write(_text(report, output, console.screen(file=out)), out)


def _text(report: ShowbackReport, output: ShowbackFormat, screen: Screen) -> str:
    if output == "json":
        from router.showback.report.export import report_to_json

        return report_to_json(report)
    if output == "csv":
        from router.showback.report.export import report_to_csv

        return report_to_csv(report)
    if output == "html":
        from router.render.showback_page import page

        return page(report)
    from router.render.showback_text import as_markdown, as_table, as_wide

    if output == "markdown":
        return as_markdown(report)
    return (as_wide if output == "wide" else as_table)(report, screen)


def accuracy(
    last: Annotated[str, typer.Option(metavar="DURATION", help="Jobs that ended within this time: 1d, 30d.")] = "1d",
    settings_files: SettingsOptions = DEFAULT_FILES,
    now: ReportTimeOption = None,
    output: ListOutput = "table",
) -> None:
    """Compare steps an hour, dollars a step and interruptions that plans predicted with those that were measured.

    All figures are for the steps that were saved, of orders that are over, by job and in sum. PLAN H and REAL H are
    steps an hour while machines run, without waits for them and first starts. PLAN USD and USD are dollars a step,
    SPEED and COST the differences from the plan; INT counts interruptions. See docs/showback.md.

    \b
    stepfare showback accuracy
    stepfare showback accuracy --last 30d -o json
    """
    from router.app.outcomes import plan_accuracy

    moment = parse_now(now)
    length = parse_length_option("--last", last, timedelta(hours=1))
    with open_state_store(settings_files, makes=False) as (_, store):
        found = plan_accuracy(store, moment - length, moment)
    left_out = _left_out(found)
    empty = f"no order that ended within {last} can be compared: {left_out}" if left_out else ""
    console.print_table(output, "accuracy", _ACCURACY, found.rows, empty or f"no order ended within {last}")
    if left_out and (found.rows or output != "table"):
        console.note(f"not compared: {left_out}")


def _left_out(accuracy: PlanAccuracy) -> str:
    """Return how many orders ended that are in no row, and why; "" where all are."""
    return ", ".join(f"{number} {reason}" for reason, number in sorted(accuracy.left_out.items()))


def _six_decimals(figure: float) -> float:
    return round(figure, 6)


def _ratio(
    name: str, take: Callable[[Accuracy, int], float], heading: str, show: Callable[[float], str]
) -> TableColumn[Accuracy]:
    """Return the column of a figure by step; the sum of jobs has none, for steps of different jobs do not add up."""

    def value(row: Accuracy) -> float | None:
        return None if row.steps is None else take(row, row.steps)

    return TableColumn(name, value, heading, show, right=True, plain=lambda figure: float(f"{figure:.9g}"))


_ACCURACY: RecordTable[Accuracy] = RecordTable(
    (
        TableColumn("job", lambda row: row.job, "JOB"),
        TableColumn("plans", lambda row: row.plans),
        TableColumn("steps", lambda row: row.steps, "STEPS", "{:,}".format, right=True),
        TableColumn("predicted_hours", lambda row: row.predicted.hours, plain=_six_decimals),
        TableColumn("hours", lambda row: row.measured.hours, plain=_six_decimals),
        _ratio("predicted_steps_per_hour", lambda row, n: n / row.predicted.hours, "PLAN H", "{:,.4g}".format),
        _ratio("steps_per_hour", lambda row, n: n / row.measured.hours, "REAL H", "{:,.4g}".format),
        TableColumn("speed_error", lambda r: r.speed_error, "SPEED", "{:+.1%}".format, right=True, plain=_six_decimals),
        TableColumn("predicted_usd", lambda row: row.predicted.usd, plain=lambda usd: round(usd, 9)),
        TableColumn("usd", lambda row: row.measured.usd, plain=lambda usd: round(usd, 9)),
        _ratio("predicted_usd_per_step", lambda row, n: row.predicted.usd / n, "PLAN USD", "{:.5g}".format),
        _ratio("usd_per_step", lambda row, n: row.measured.usd / n, "USD", "{:.5g}".format),
        TableColumn("cost_error", lambda r: r.cost_error, "COST", "{:+.1%}".format, right=True, plain=_six_decimals),
        TableColumn(
            "predicted_interruptions",
            lambda row: row.predicted.interruptions,
            "PLAN INT",
            "{:.1f}".format,
            right=True,
            unknown="?",
            plain=_six_decimals,
        ),
        TableColumn("interruptions", lambda row: row.measured.interruptions, "INT", right=True),
    )
)
