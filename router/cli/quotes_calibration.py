"""``stepfare quotes calibration``: whether what was quoted came true."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.site_options import CLOUDS_HELP, DEPLOY_HELP, opened_store

if TYPE_CHECKING:
    from router.quotes.outcomes import Kept


class CalibrationFormat(StrEnum):
    """How it is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def calibration(
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with diagrams, too.")] = None,
    deploy: Annotated[Path | None, typer.Option(metavar="FILE", help=DEPLOY_HELP)] = None,
    clouds: Annotated[Path | None, typer.Option(metavar="FILE", help=CLOUDS_HELP)] = None,
    output: Annotated[CalibrationFormat, typer.Option("--output", "-o", help="Format.")] = CalibrationFormat.TABLE,
) -> int:
    """Compare accepted quotes with what their jobs cost and when they were done.

    \b
    stepfare quotes calibration
    stepfare quotes calibration --html calibration.html
    stepfare quotes calibration -o csv

    Costs are those of machines, as metered. Jobs that still run, or that a
    person stopped, are not counted; those given up count as not on time.
    """
    from router.app.quote_outcomes import ending
    from router.config.quote_files import stored_quotes
    from router.prices.home import quotes_folder
    from router.quotes.outcomes import kept
    from router.render.calibration_page import calibration_page
    from router.render.calibration_text import as_csv
    from router.render.web_page import check_places, put

    check_places(html)
    accepted = [(quote, how) for _, quote, how in stored_quotes(quotes_folder()) if how is not None]
    with opened_store(deploy, clouds, makes=False) as (_, store):
        pairs = [(quote, ending(quote, how, store)) for quote, how in accepted]
    found = kept([(quote, how) for quote, how in pairs if how is not None])
    if html is not None:
        put(html, calibration_page({"accepted quotes": found.rows}, {"accepted quotes": found.rows}).encode())
    if output is CalibrationFormat.JSON:
        console.out(json.dumps(_content(found, len(accepted)), indent=2, sort_keys=True))
    elif output is CalibrationFormat.CSV:
        console.out(as_csv(found.rows).rstrip("\n"))
    else:
        console.out(_text(found, len(accepted)))
    return int(ExitCode.OK)


def _text(found: Kept, accepted: int) -> str:
    from router.quotes.outcomes import LEAST
    from router.render.calibration_text import as_table

    if not accepted:
        return "no quote was accepted yet: stepfare quote --accept makes a plan of one"
    if not found.count:
        return f"accepted quotes: {accepted}; none of their jobs is over"
    share = f"{found.on_time / found.count:.0%}, promised {found.promised:.0%}"
    lines = [f"{found.count} of {accepted} accepted quotes are over: {found.on_time} on time ({share})"]
    if found.given_up:
        lines.append(f"{found.given_up} were given up, not on time")
    if found.rows:
        lines += ["", as_table(found.rows)]
    if found.count < LEAST:
        lines += ["", f"fewer than {LEAST}: these shares may be luck"]
    return "\n".join(lines)


def _content(found: Kept, accepted: int) -> dict[str, object]:
    from dataclasses import asdict

    return {"schema_version": 1, "accepted": accepted, **asdict(found)}
