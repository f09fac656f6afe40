"""Command ``stepfare quotes calibration``: compare accepted quotes with the outcomes."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, open_state_store

if TYPE_CHECKING:
    from router.quotes.outcomes import QuoteRecord


class CalibrationFormat(StrEnum):
    """Output format of the calibration."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def calibration(
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page with diagrams.")] = None,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    output: Annotated[CalibrationFormat, typer.Option("--output", "-o", help="Format.")] = CalibrationFormat.TABLE,
) -> int:
    """Compare accepted quotes with the costs and completion times of their jobs.

    \b
    stepfare quotes calibration
    stepfare quotes calibration --html calibration.html
    stepfare quotes calibration -o csv

    Costs are the metered costs of machines. Jobs that still run or were stopped by a person are not counted; jobs that
    were given up count as late.
    """
    from router.app.outcomes import quote_ending
    from router.cli.output_files import check_output_folders, write_output_file
    from router.config.quote_files import stored_quotes
    from router.prices.data_folders import quotes_folder
    from router.quotes.outcomes import assess_quotes
    from router.render.calibration_page import calibration_page
    from router.render.calibration_text import as_csv

    check_output_folders(html)
    accepted = [(quote, how) for _, quote, how in stored_quotes(quotes_folder()) if how is not None]
    with open_state_store(deploy, clouds, makes=False) as (_, store):
        pairs = [(quote, quote_ending(quote, how, store)) for quote, how in accepted]
    outcomes = assess_quotes([(quote, how) for quote, how in pairs if how is not None])
    if html is not None:
        write_output_file(
            html, calibration_page({"accepted quotes": outcomes.rows}, {"accepted quotes": outcomes.rows}).encode()
        )
    if output is CalibrationFormat.JSON:
        console.out(json.dumps(_content(outcomes, len(accepted)), indent=2, sort_keys=True))
    elif output is CalibrationFormat.CSV:
        console.out(as_csv(outcomes.rows).rstrip("\n"))
    else:
        console.out(_text(outcomes, len(accepted)))
    return int(ExitCode.OK)


def _text(outcomes: QuoteRecord, accepted: int) -> str:
    from router.quotes.outcomes import LEAST_JOBS
    from router.render.calibration_text import as_table

    if not accepted:
        return "no quote was accepted yet: stepfare quote --accept makes a plan of one"
    if not outcomes.count:
        return f"accepted quotes: {accepted}; none of their jobs is over"
    share = f"{outcomes.on_time / outcomes.count:.0%}, promised {outcomes.promised:.0%}"
    lines = [f"{outcomes.count} of {accepted} accepted quotes are over: {outcomes.on_time} on time ({share})"]
    if outcomes.given_up:
        lines.append(f"{outcomes.given_up} were given up, not on time")
    if outcomes.rows:
        lines += ["", as_table(outcomes.rows)]
    if outcomes.count < LEAST_JOBS:
        lines += ["", f"fewer than {LEAST_JOBS}: these shares may be luck"]
    return "\n".join(lines)


def _content(outcomes: QuoteRecord, accepted: int) -> dict[str, object]:
    from dataclasses import asdict

    return {"schema_version": 1, "accepted": accepted, **asdict(outcomes)}
