"""Commands ``stepfare quote`` and ``quotes``: what a job costs by a deadline; stored quotes beside outcomes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from math import exp
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from pricing.atomic_file import make_private_folder
from pricing.problems import InvalidInputError
from pricing.units import format_count
from router.cli import console
from router.cli.completion import complete_paths
from router.cli.console import CommandError, ExitCode, check_output_folders, write_output_file
from router.cli.options import (
    OUTPUT,
    ListOutput,
    TableOutput,
    TextOutput,
    option_error,
    parse_duration_option,
    parse_now,
    parse_option,
    parse_usd_option,
)
from router.cli.planning_options import (
    InputOptions,
    MaxAgeOption,
    load_present_state,
    report_experience,
    report_read_quotas,
)
from router.cli.site_options import (
    DEFAULT_FILES,
    SettingsOptions,
    acting_user,
    find_own_quote,
    list_own_quotes,
    open_query_context,
    open_state_if_any,
    open_state_store,
    read_own_settings,
    store_plan,
    translate_errors,
    warn_if_unreadable,
)
from router.prices.data_folders import check_home, hazard_fit_file, history_folder, quotes_folder
from router.quotes.outcomes import LEAST_JOBS, QuoteRecord, assess_quotes
from router.quotes.quote import Quote, Refused
from router.render.quote_text import STORED_QUOTES

if TYPE_CHECKING:
    from pricing.money import Usd
    from router.app.queries.quote_acceptance import PreparedAcceptance
    from router.app.quotes import QuoteAnswer
    from router.planning.document.plan import Plan
    from router.quotes.request import QuoteRequest

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

    check_home()
    quotes = list_own_quotes(job)
    if output == "json":
        console.out(json.dumps(quotes_content(quotes), indent=2, sort_keys=True))
        return
    if not quotes:
        console.note("no quotes are stored" if job is None else f"no quote of {job} is stored")
        return
    console.out(STORED_QUOTES.text(quotes, console.screen()))


def show(
    name: Annotated[str, typer.Argument(metavar="QUOTE", help="Id of the quote, or its first digits.")],
    output: Annotated[StoredQuoteFormat, OUTPUT] = "text",
) -> None:
    """Print a stored quote again.

    \b
    stepfare quotes show quote-1a2b3c4d5e6f
    stepfare quotes show 1a2b -o line
    """
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
) -> None:
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
        console.out(
            json.dumps({"schema_version": 1, "accepted": len(accepted), **asdict(outcomes)}, indent=2, sort_keys=True)
        )
    elif output == "csv":
        console.out(as_csv(outcomes.rows).rstrip("\n"))
    else:
        console.out(_text(outcomes, len(accepted)))


def _text(outcomes: QuoteRecord, accepted: int) -> str:
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


def fit(
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Fit as of this moment.")] = None,
    output: TextOutput = "text",
) -> ExitCode:
    """Fit the ranges of quotes to your price history.

    \b
    stepfare quotes fit
    stepfare quotes fit -o json

    The fit uses the last 92 days of `stepfare prices refresh`. It learns how far spot availability drifts from the
    past, and how often quotes would have held on later availability. At least one spot pool must have been observed
    for 14 days, for 80 % of the time (observations at most 30 minutes apart). The fit takes about a minute, and quotes
    use it for 31 days. Exit codes: 0; 1 too few observations (quotes keep their assumptions); 2 invalid input.
    """
    from router.app.fit_availability import ENOUGH, ENOUGH_WATCHED, fit_recorded_pools, recorded_pools
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
    from router.spot.availability.fit import GRID

    return exp(sum(p * s.size for p, s in zip(shares, GRID, strict=True)))


def _held(held: tuple[float, ...]) -> float:
    from router.spot.availability.calibration import KNOTS

    return held[KNOTS.index(0.9)]


@dataclass(frozen=True, slots=True)
class QuoteInputOptions(InputOptions):
    """Options of what a quote is made of."""

    limits: Annotated[Path | None, typer.Option(metavar="FILE", help="Quotas, stock, reservations, discounts.")] = None
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Quote from this moment (ISO, with zone).")] = None
    max_age: MaxAgeOption = None


DEFAULT_INPUTS: Final = QuoteInputOptions()


def accept_stored_quote(
    name: str, ceiling: Usd | None, out: Path | None, options: QuoteInputOptions, now: datetime, *, later: bool
) -> None:
    """Write the plan of a quote and record the acceptance. Raises InvalidInputError and CommandError."""
    from router.app.queries.quote_acceptance import (
        AcceptanceInputs,
        QuoteLaterError,
        QuoteStaleError,
        QuoteUnplacedError,
        prepare_acceptance,
        record_acceptance,
    )
    from router.planning.document.plan_json import plan_to_json
    from router.render.plan_text import table as plan_table

    if out is None:
        raise option_error("--out", "the plan has to go somewhere", "name a file: plan.json")
    with open_query_context(now) as context:
        inputs = AcceptanceInputs(
            now,
            options.book,
            options.limits,
            options.quotas,
            load_present_state(now, is_present=options.is_present).budgets,
            options.runs(now),
            reads_files=True,
            later=later,
        )
        try:
            prepared = prepare_acceptance(context, name, ceiling, inputs)
            report_experience(prepared.request.experience)
            quote = prepared.stored.quote
            try:
                plan = _plan(prepared)
            except QuoteLaterError as error:
                if not sys.stdin.isatty() or not console.ask_confirmation(f"{error}. Accept it all the same?"):
                    raise
                plan = _plan(replace(prepared, inputs=replace(inputs, later=True)))
        except QuoteStaleError as error:
            raise CommandError(str(error), ExitCode.STALE, error.remedy) from None
        except QuoteLaterError as error:
            raise option_error("--later", str(error), error.remedy) from None
        except QuoteUnplacedError as error:
            raise CommandError(str(error), ExitCode.UNPLACED, error.remedy) from None
        text = plan_to_json(plan)
        console.write(text, out)
        store_plan(plan, text, prepared.request.jobs, prepared.limits_to_store)
        accepted = record_acceptance(context, prepared, plan, replaces=True)
    console.note(
        f"{prepared.stored.name} accepted: {quote.job} by {quote.deadline:%Y-%m-%d %H:%MZ}, expected to "
        f"cost at most ${prepared.ceiling.dollars():,.2f}"
    )
    console.note(f"run by {quote.run_policy}, which the quote was made for")
    if accepted.note:
        console.note(accepted.note)
    console.out(plan_table(plan, console.screen()))


def _plan(prepared: PreparedAcceptance) -> Plan:
    from router.app.queries.quote_acceptance import plan_quote

    with console.progress(f"planning {prepared.stored.quote.job}") as show_phase:
        return plan_quote(prepared, show_phase)


QuoteFormat = Literal["text", "table", "line", "json"]


def quote(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="JOB...", autocompletion=complete_paths, help="Job files, folders or globs."),
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="TIME", help="Deadline. Default: each job's own.")] = None,
    budget: Annotated[str | None, typer.Option(metavar="USD", help="Ask how many steps this money buys.")] = None,
    accept: Annotated[str | None, typer.Option(metavar="QUOTE", help="Make a plan of this quote.")] = None,
    ceiling: Annotated[
        str | None,
        typer.Option(metavar="USD", help="With --accept: cost ceiling. Default: the 90 % figure, or a plan's."),
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="With --accept: file of the plan.")] = None,
    later: Annotated[
        bool, typer.Option("--later", help="With --accept: also where its plan starts later than quoted.")
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page: what other deadlines cost, spread, alternatives."),
    ] = None,
    inputs: QuoteInputOptions = DEFAULT_INPUTS,
    processes: Annotated[
        int | None,
        typer.Option(min=1, max=256, metavar="N", help="Parallel processes for many jobs. Default: one per CPU."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Store the quotes.")] = True,
    output: Annotated[
        QuoteFormat | None, typer.Option("--output", "-o", help="Format; text for one job, a table for several.")
    ] = None,
) -> ExitCode:
    """Estimate what a job costs by a deadline, how likely that is, and what alternatives cost.

    \b
    stepfare quote job.yaml --by 2026-11-25T09:00Z
    stepfare quote job.yaml --by +36h --html quote.html
    stepfare quote job.yaml --by +3d --budget 5000
    stepfare quote jobs/ -o json
    stepfare quote --accept quote-1a2b3c4d5e6f --out plan.json

    A quote whose plan would start when the quote holds no longer is accepted with --later alone.

    Exit codes: 3 a job cannot be quoted or placed within the ceiling; 6 the quote to accept is too old.
    """
    moment = parse_now(inputs.now)
    if accept is not None:
        _only_with_accept(paths, by, budget, html)
        accept_stored_quote(accept, parse_usd_option("--ceiling", ceiling), out, inputs, moment, later=later)
        return ExitCode.OK
    for name, value in (("--ceiling", ceiling), ("--out", out), ("--later", later or None)):
        if value is not None:
            raise option_error(name, "belongs to --accept", "name a quote with --accept")
    if not paths:
        raise option_error("JOB", "no job is named", "stepfare quote job.yaml --by +36h")
    from router.app.quotes import QuoteOptions, make_quotes, prepare_quotes
    from router.jobs.quantities import TOO_FAR, Moment, is_beyond_planning
    from router.prices.books import load_book

    options = QuoteOptions(
        by=None if by is None else parse_option("--by", by, Moment.parse),
        budget=parse_usd_option("--budget", budget),
        advisory=inputs.advisory,
        max_age=parse_duration_option("--max-age", inputs.max_age),
        processes=processes,
        quotas=inputs.quotas,
        runs=inputs.runs(moment),
    )
    if options.by is not None and options.by.at(moment) <= moment:
        raise option_error("--by", f"{by} has passed", "give a later one, e.g. +36h")
    if options.by is not None and is_beyond_planning(options.by.at(moment), moment):
        raise option_error("--by", TOO_FAR.format(by), "give an earlier one, e.g. +36h")
    console.check_output_folders(html)
    prepared = prepare_quotes(paths, inputs.book, inputs.limits, moment, options, load_book)
    report_read_quotas(prepared.read.sources, prepared.read.warnings, moment)
    report_experience(prepared.experience)
    results: list[QuoteAnswer] = []
    with console.progress(f"quoting {format_count(len(prepared.asks), 'job')}") as show_phase:
        for answer in make_quotes(prepared):
            results.append(answer)
            show_phase(f"quoting jobs, {len(results)} of {len(prepared.asks)} done")
    names = _store_quotes(results, prepared.asks) if keep else {}
    if html is not None:
        _write_page(results, html, names)
    _show(results, names, output)
    return ExitCode.OK if not any(isinstance(a, Refused) for a in results) else ExitCode.UNPLACED


def _only_with_accept(paths: Sequence[str] | None, by: str | None, budget: str | None, html: Path | None) -> None:
    for name, value in (("JOB", paths), ("--by", by), ("--budget", budget), ("--html", html)):
        if value:
            raise option_error(name, "does not go with --accept", "the quote says what holds")


def _store_quotes(results: Sequence[QuoteAnswer], asks: Sequence[QuoteRequest | Refused]) -> dict[str, str]:
    """Store the quotes and return their ids by job. A failure to store is only reported."""
    from router.config.plan_files import store_quotes

    quotes = [(a, ask) for a, ask in zip(results, asks, strict=True) if isinstance(a, Quote)]
    folder = quotes_folder()
    try:
        names = store_quotes(folder, [q for q, _ in quotes])
    except OSError as error:
        console.note(f"{folder}: quotes are not stored: {error.strerror or error}", "warning")
        return {}
    _put_into_state(quotes)
    return {q.job: name for (q, _), name in zip(quotes, names, strict=True)}


def _put_into_state(quotes: Sequence[tuple[Quote, QuoteRequest | Refused]]) -> None:
    """Put quotes into the state, where there is one, so that other machines see them. A failure is only reported."""
    from router.app.stored_quotes import put_quote
    from router.jobs.job_json import job_json
    from router.quotes.request import QuoteRequest

    with warn_if_unreadable("quotes are stored in files alone"), translate_errors():
        if not quotes or not read_own_settings().has_state:
            return
        with open_state_if_any() as store:
            for quote, ask in quotes:
                if isinstance(ask, QuoteRequest):
                    put_quote(store, quote, job_json(ask.job), acting_user(), ask.limits)


def _write_page(results: Sequence[QuoteAnswer], file: Path, names: dict[str, str]) -> None:
    from router.render.quote_page import quotes_page

    quotes: list[Quote] = [a for a in results if isinstance(a, Quote)]
    refused: list[Refused] = [a for a in results if isinstance(a, Refused)]
    if not quotes:
        console.note(f"{file.name} is not written: there is no quote to draw")
        return
    console.write_output_file(file, quotes_page([(names.get(q.job, ""), q) for q in quotes], refused).encode())


def _show(results: Sequence[QuoteAnswer], names: dict[str, str], output: QuoteFormat | None) -> None:
    from router.quotes.quote_json import answers_to_json
    from router.render.quote_text import line, refusal_problem, table, text

    chosen_format = output or ("text" if len(results) == 1 else "table")
    if chosen_format == "json":
        console.out(answers_to_json(results))
        return
    for each in results:
        if isinstance(each, Refused):
            console.show_problems(InvalidInputError([refusal_problem(each)]))
    quotes = [(names.get(a.job, ""), a) for a in results if not isinstance(a, Refused)]
    if not quotes:
        return
    if chosen_format == "table":
        console.out(table(quotes, console.screen()))
    elif chosen_format == "line":
        console.out("\n".join(line(answer, name) for name, answer in quotes))
    else:
        console.out("\n".join(text(answer, name, console.screen()) for name, answer in quotes))
