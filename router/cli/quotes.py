"""Commands ``stepfare quotes list``, ``show``, ``calibration`` and ``fit``: the stored quotes beside their outcomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from router.cli import console
from router.cli.console import ExitCode
from router.cli.options import parse_now
from router.cli.output_options import OUTPUT, ListOutput, TableOutput, TextOutput
from router.cli.site_options import DEFAULT_FILES, SettingsOptions, find_own_quote, list_own_quotes, open_state_store
from router.render.record_table import RecordTable, TableColumn

if TYPE_CHECKING:
    from router.config.plan_files import StoredQuote
    from router.quotes.outcomes import QuoteRecord


StoredQuoteFormat = Literal["text", "line", "json"]


def list_quotes(
    job: Annotated[str | None, typer.Option(metavar="NAME", help="Only quotes of this job.")] = None,
    output: TableOutput = "table",
) -> None:
    """List the stored quotes, the oldest first, and whether they were accepted.

    \b
    stepfare quotes list
    stepfare quotes list --job llama2-7b-sft-chat -o json
    """
    from router.app.stored_quotes import quotes_content
    from router.prices.data_folders import check_home

    check_home()
    quotes = list_own_quotes(job)
    if output == "json":
        console.out(json.dumps(quotes_content(quotes), indent=2, sort_keys=True))
        return
    if not quotes:
        console.note("no quotes are stored" if job is None else f"no quote of {job} is stored")
        return
    console.out(_quote_table().text(quotes, console.screen()))


def _quote_table() -> RecordTable[StoredQuote]:
    from router.render.quote_text import format_cost, format_on_time

    return RecordTable(
        (
            TableColumn("", lambda stored: stored.name.removeprefix("quote-"), "QUOTE"),
            TableColumn("", lambda stored: stored.quote.asked_at, "ASKED", "{:%m-%d %H:%M}".format),
            TableColumn("", lambda stored: stored.quote.job, "JOB", width=18),
            TableColumn("", lambda stored: stored.quote.deadline, "BY", "{:%m-%d %H:%M}".format),
            TableColumn("", lambda stored: format_cost(stored.quote.usd.mean), "EXPECTED", right=True),
            TableColumn("", lambda stored: stored.quote, "ON TIME", format_on_time, right=True),
            TableColumn(
                "", lambda stored: stored.acceptance and f"${stored.acceptance.ceiling_usd}", "ACCEPTED", right=True
            ),
        )
    )


def show(
    name: Annotated[str, typer.Argument(metavar="QUOTE", help="Id of the quote, or its first digits.")],
    output: Annotated[StoredQuoteFormat, OUTPUT] = "text",
) -> None:
    """Print a stored quote again.

    \b
    stepfare quotes show quote-1a2b3c4d5e6f
    stepfare quotes show 1a2b -o line
    """
    from router.prices.data_folders import check_home
    from router.quotes.quote_json import quote_to_json
    from router.render.quote_text import line, text

    check_home()
    stored = find_own_quote(name)
    identity, quote, accepted = stored.name, stored.quote, stored.acceptance
    if output == "json":
        console.out(quote_to_json(quote))
        return
    if output == "line":
        console.out(line(quote, identity))
        return
    console.out(text(quote, identity, console.screen()))
    if accepted is not None:
        console.out(
            f"accepted {accepted.at} by {accepted.who}, ceiling ${accepted.ceiling_usd}, plan {accepted.plan[:12]}"
        )
        if accepted.note:
            console.out(accepted.note)


def calibration(
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a page with diagrams.")] = None,
    settings_files: SettingsOptions = DEFAULT_FILES,
    output: ListOutput = "table",
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
    from router.app.stored_quotes import list_stored_quotes
    from router.cli.console import check_output_folders, write_output_file
    from router.prices.data_folders import quotes_folder
    from router.quotes.outcomes import assess_quotes
    from router.render.calibration_text import as_csv, calibration_page

    check_output_folders(html)
    with open_state_store(settings_files, makes=False) as (_, store):
        quotes = list_stored_quotes(quotes_folder(), store)[::-1]
        accepted = [(each.quote, each.acceptance) for each in quotes if each.acceptance is not None]
        pairs = [(quote, quote_ending(quote, how, store)) for quote, how in accepted]
    outcomes = assess_quotes([(quote, how) for quote, how in pairs if how is not None])
    if html is not None:
        write_output_file(
            html, calibration_page({"accepted quotes": outcomes.rows}, {"accepted quotes": outcomes.rows}).encode()
        )
    if output == "json":
        console.out(json.dumps(_content(outcomes, len(accepted)), indent=2, sort_keys=True))
    elif output == "csv":
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


def fit(
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Fit as of this moment.")] = None,
    output: TextOutput = "text",
) -> int:
    """Fit the ranges of quotes to your price history.

    \b
    stepfare quotes fit
    stepfare quotes fit -o json

    The fit uses the last 92 days of `stepfare prices refresh`. It learns how far spot availability drifts from the
    past, and how often quotes would have held on later availability. At least one spot pool must have been observed
    for 14 days, for 80 % of the time (observations at most 30 minutes apart). The fit takes about a minute, and quotes
    use it for 31 days. Exit codes: 0; 1 too few observations (quotes keep their assumptions); 2 invalid input.
    """
    from pricing.atomic_file import make_private_folder
    from router.app.fit_availability import ENOUGH, ENOUGH_WATCHED, fit_recorded_pools, recorded_pools
    from router.cli.console import write_output_file
    from router.prices.data_folders import hazard_fit_file, history_folder
    from router.spot.availability.fit import FRESH_FOR, fit_to_json

    moment = parse_now(now)
    data = recorded_pools(history_folder(), moment)
    if data.ground is None:
        console.note(
            f"nothing to learn from: {data.seen} spot pools were observed, for {data.most_days:.1f} days at most; "
            f"one has to be observed for {ENOUGH.days} days, {ENOUGH_WATCHED:.0%} of the time: run "
            "`stepfare prices refresh` every 30 minutes or more often"
        )
        return ExitCode.FAILURE
    choices = len(data.ground.parts)
    console.note(f"{data.pools} pools since {data.since:%Y-%m-%d %H:%MZ}; quoting on {choices} choices of them ...")
    model = fit_recorded_pools(data)
    text = fit_to_json(model)
    file = hazard_fit_file()
    make_private_folder(file.parent)
    write_output_file(file, text.encode())
    if output == "json":
        console.out(text)
        return ExitCode.OK
    sizes = json.loads(text)["likely"]
    back_drift, loss_drift = (_size(shares) for shares in sizes)
    console.out(
        f"learned from {model.pools} pools, {(model.until - model.since).days} days, "
        f"{model.watched:.0%} of them observed\n"
        f"drift: hazards of losing spot move by a factor of {loss_drift:.2f}, "
        f"those of its return by {back_drift:.2f}\n"
        f"of {model.outcomes:,} outcomes that quotes had not seen, their 90 % figures of the cost held"
        f" {_held(model.cost.held):.0%}, of the finish {_held(model.finish.held):.0%}\n"
        f"stored in {file}; quotes use it until {model.until + FRESH_FOR:%Y-%m-%d}"
    )
    return ExitCode.OK


def _size(shares: list[float]) -> float:
    from math import exp

    from router.spot.availability.fit import GRID

    return exp(sum(p * s.size for p, s in zip(shares, GRID, strict=True)))


def _held(held: tuple[float, ...]) -> float:
    from router.spot.availability.calibration import KNOTS

    return held[KNOTS.index(0.9)]
