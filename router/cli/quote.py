"""Command ``stepfare quote``: estimate what a job costs by a deadline, with probabilities."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from pricing.problems import InvalidInputError
from pricing.units import format_count
from router.cli import console
from router.cli.completion import complete_paths
from router.cli.console import CommandError, ExitCode
from router.cli.options import option_error, parse_duration_option, parse_now, parse_usd_option
from router.cli.planning_options import (
    InputOptions,
    MaxAgeOption,
    load_present_state,
    report_experience,
    report_read_quotas,
)
from router.cli.site_options import (
    acting_user,
    open_query_context,
    open_state_if_any,
    read_own_settings,
    store_plan,
    translate_errors,
    warn_if_unreadable,
)

if TYPE_CHECKING:
    from pricing.money import Usd
    from router.app.queries.quote_acceptance import PreparedAcceptance
    from router.app.quotes import QuoteAnswer
    from router.jobs.quantities import Moment
    from router.planning.document.plan import Plan
    from router.quotes.quote import Quote, Refused
    from router.quotes.request import QuoteRequest


@dataclass(frozen=True, slots=True)
class QuoteInputOptions(InputOptions):
    """Options of what a quote is made of."""

    limits: Annotated[Path | None, typer.Option(metavar="FILE", help="Quotas, stock, reservations, discounts.")] = None
    now: Annotated[str | None, typer.Option(metavar="TIME", help="Quote from this moment (ISO, with zone).")] = None
    max_age: MaxAgeOption = None


DEFAULT_INPUTS: Final = QuoteInputOptions()


def accept_stored_quote(
    name: str, ceiling: Usd | None, out: Path | None, options: QuoteInputOptions, now: datetime, *, later: bool
) -> ExitCode:
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
        raise InvalidInputError.single("the plan has to go somewhere", field="--out", remedy="name a file: plan.json")
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
            raise InvalidInputError.single(str(error), field="--later", remedy=error.remedy) from None
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
    return ExitCode.OK


def _plan(prepared: PreparedAcceptance) -> Plan:
    """Return the plan of a quote, with progress. Raises what :func:`plan_quote` raises."""
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
        return accept_stored_quote(accept, parse_usd_option("--ceiling", ceiling), out, inputs, moment, later=later)
    for name, value in (("--ceiling", ceiling), ("--out", out), ("--later", later or None)):
        if value is not None:
            raise InvalidInputError.single("belongs to --accept", field=name, remedy="name a quote with --accept")
    if not paths:
        raise InvalidInputError.single("no job is named", field="JOB", remedy="stepfare quote job.yaml --by +36h")
    from router.app.quotes import QuoteOptions, make_quotes, prepare_quotes
    from router.jobs.quantities import TOO_FAR, is_beyond_planning
    from router.prices.books import load_book

    options = QuoteOptions(
        by=_parse_deadline(by),
        budget=parse_usd_option("--budget", budget),
        advisory=inputs.advisory,
        max_age=parse_duration_option("--max-age", inputs.max_age),
        processes=processes,
        quotas=inputs.quotas,
        runs=inputs.runs(moment),
    )
    if options.by is not None and options.by.at(moment) <= moment:
        raise InvalidInputError.single(f"{by} has passed", field="--by", remedy="give a later one, e.g. +36h")
    if options.by is not None and is_beyond_planning(options.by.at(moment), moment):
        raise InvalidInputError.single(TOO_FAR.format(by), field="--by", remedy="give an earlier one, e.g. +36h")
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
    return ExitCode.OK if all(_is_answer(a) for a in results) else ExitCode.UNPLACED


def _only_with_accept(paths: Sequence[str] | None, by: str | None, budget: str | None, html: Path | None) -> None:
    for name, value in (("JOB", paths), ("--by", by), ("--budget", budget), ("--html", html)):
        if value:
            raise InvalidInputError.single("does not go with --accept", field=name, remedy="the quote says what holds")


def _parse_deadline(text: str | None) -> Moment | None:
    from router.jobs.quantities import Moment

    if text is None:
        return None
    try:
        return Moment.parse(text)
    except ValueError as error:
        raise option_error("--by", error) from None


def _store_quotes(results: Sequence[QuoteAnswer], asks: Sequence[QuoteRequest | Refused]) -> dict[str, str]:
    """Store the quotes and return their ids by job. A failure to store is only reported."""
    from router.config.plan_files import store_quotes
    from router.prices.data_folders import quotes_folder
    from router.quotes.quote import Quote

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
    from router.quotes.quote import Quote, Refused
    from router.render.quote_page import quotes_page

    quotes: list[Quote] = [a for a in results if isinstance(a, Quote)]
    refused: list[Refused] = [a for a in results if isinstance(a, Refused)]
    if not quotes:
        console.note(f"{file.name} is not written: there is no quote to draw")
        return
    console.write_output_file(file, quotes_page([(names.get(q.job, ""), q) for q in quotes], refused).encode())


def _show(results: Sequence[QuoteAnswer], names: dict[str, str], output: QuoteFormat | None) -> None:
    from router.quotes.quote import Refused
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


def _is_answer(answer: QuoteAnswer) -> bool:
    from router.quotes.quote import Refused

    return not isinstance(answer, Refused)
