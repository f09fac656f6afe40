"""Command ``stepfare plan what-if``: compare plans under other limits, prices, deadlines, budgets or interruptions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.problems import InvalidInputError, Problem
from pricing.units import format_count
from router.app.parallel import Engine, EngineError, parse_engine
from router.cli import console
from router.cli.completion import complete_paths
from router.cli.options import WideListFormat, WideListOutput, option_error, parse_now
from router.cli.planning_options import PlanningOptions, load_present_state, report_plan_inputs
from router.planning.document.plan_terms import TIME_LIMIT
from router.render import what_if_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from router.planning.planner import PlanRequest
    from router.planning.what_if.what_if import Change, Variant
    from router.planning.what_if.what_if_comparison import WhatIf
    from router.planning.what_if.what_if_syntax import Sweep


@dataclass(frozen=True, slots=True)
class VariantOptions(PlanningOptions):
    """Options of each of the plans that are compared."""

    time_limit: Annotated[str, typer.Option(metavar="DURATION", help="Time limit of each plan.")] = TIME_LIMIT.text


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """Options of what is changed; each is named as its change."""

    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="CHANGE", help="NAME=AMOUNT, NAME+MORE or NAMExFACTOR of a limit; repeatable."),
    ] = None
    price: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE*FACTOR", help="Prices of a cloud, cloud/region, cloud/region/type or market; repeatable."
        ),
    ] = None
    drop_region: Annotated[
        list[str] | None, typer.Option(metavar="CLOUD/REGION", help="Plan without this region; repeatable.")
    ] = None
    deadline: Annotated[
        list[str] | None,
        typer.Option(metavar="JOB+DURATION", help="Move a deadline (JOB-DURATION: earlier; all: all); repeatable."),
    ] = None
    budget: Annotated[
        list[str] | None, typer.Option(metavar="TEAM=USD", help="Set the budget of a team; repeatable.")
    ] = None
    confidence: Annotated[
        list[str] | None,
        typer.Option(metavar="JOB=SHARE", help="How sure a deadline must hold (all: all jobs); repeatable."),
    ] = None
    interruptions: Annotated[
        list[str] | None,
        typer.Option(metavar="low|high", help="Interruptions of all spot pools at an end of their 80 % intervals."),
    ] = None
    drop_job: Annotated[list[str] | None, typer.Option(metavar="JOB", help="Plan without this job; repeatable.")] = None
    carbon: Annotated[
        list[str] | None, typer.Option(metavar="USD", help="Set the weight of a tonne of CO2e in the choice of places.")
    ] = None

    def written(self) -> Iterator[tuple[str, str]]:
        for field in fields(self):
            for text in getattr(self, field.name) or ():
                yield f"--{field.name.replace('_', '-')}", text


def what_if(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", autocompletion=complete_paths, help="Job files, folders or globs."),
    ],
    change_options: ChangeOptions,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="'KIND NAME VALUES'", help="One plan for each value; two sweeps give their grid."),
    ] = None,
    *,
    planning: VariantOptions,
    engine: Annotated[
        str, typer.Option(metavar="processes|ray://HOST:PORT", help="Where plans are made: here, or on a Ray cluster.")
    ] = "processes",
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Plans made at the same time. Default: all cores.")
    ] = None,
    output: WideListOutput = "table",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the output to this file instead.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw the cost against the first sweep's values.")
    ] = None,
) -> console.ExitCode:
    """Compare plans under other limits, prices, regions, deadlines or budgets with the plan as things are.

    \b
    stepfare plan what-if jobs/ --limits limits.yaml --limit 'aws p5 spot+384'
    stepfare plan what-if jobs/ --drop-region aws/us-east-1 --price 'spot*1.2'
    stepfare plan what-if jobs/ --interruptions high
    stepfare plan what-if jobs/ --sweep 'deadline all +0h,+6h,+12h' --plot d.svg
    stepfare plan what-if jobs/ --limits limits.yaml -o csv --out grid.csv \\
      --sweep 'limit "aws p5 spot" 384,768,1536' --sweep 'price aws 0.8,1.0,1.2'
    stepfare plan what-if jobs/ --sweep 'budget research 8000,12000' \\
      --engine ray://head:10001

    All changes of one call are made together. Sweeps are of limit, price, deadline, budget, confidence or
    carbon ('carbon 0,25,50', dollars a tonne of CO2e; its plot is cost against tonnes).
    Nothing is stored, and no variant can be applied. The exit code is 3 if a plan leaves a job out.
    """
    from router.planning.what_if.what_if_syntax import vary

    console.check_output_folders(out, plot)
    changes, sweeps = _read_changes(change_options, sweep or ())
    variants = vary(changes, sweeps)
    if plot is not None and not sweeps:
        raise option_error("--plot", "draws along a sweep, and there is none", "--sweep 'deadline all +0h,+6h'")
    where = parse_engine(engine, workers)
    request = _read_request(paths, planning)
    _check_changes(request, changes, sweeps)
    found = _plan_variants(request, variants, where)
    if plot is not None:
        from router.render.what_if_text import cost_plot

        console.write_output_file(plot, cost_plot(found, sweeps).encode())
    console.write(_text_of(found, [each.name for each in sweeps], output, out), out)
    left_out = any(result.plan.unplaced for result in found.results)
    return console.ExitCode.UNPLACED if left_out else console.ExitCode.OK


def _read_changes(options: ChangeOptions, sweeps: Sequence[str]) -> tuple[tuple[Change, ...], tuple[Sweep, ...]]:
    """Return the changes and sweeps of all options; InvalidInputError with all that cannot be read."""
    from router.planning.what_if.what_if_syntax import parse_change, parse_sweep

    changes: list[Change] = []
    found: list[Sweep] = []
    problems: list[Problem] = []
    for option, text in options.written():
        try:
            changes.append(parse_change(option, text))
        except InvalidInputError as error:
            problems += error.problems
    for text in sweeps:
        try:
            found.append(parse_sweep(text))
        except InvalidInputError as error:
            problems += error.problems
    if problems:
        raise InvalidInputError(problems)
    return tuple(changes), tuple(found)


def _read_request(paths: Sequence[str], planning: PlanningOptions) -> PlanRequest:
    """Return the request that ``stepfare plan`` would plan, and say on stderr what is left out of it."""
    from router.app.plan import plan_request

    moment = parse_now(planning.now)
    options = planning.read(moment)
    state = load_present_state(moment, is_present=planning.is_present)
    prepared = plan_request(
        paths, planning.book, planning.limits, moment, options, state.shortages, state.add_to, state.copies
    )
    if state.shortages:
        console.note(f"left out: {format_count(len(state.shortages), 'pool')} that ran short lately")
    report_plan_inputs(prepared, state)
    if prepared.offers_too_old:
        console.note(f"left out: {format_count(prepared.offers_too_old, 'offer')} too old for --max-age, or undated")
    for name in prepared.finished:
        console.note(f"{name} has no steps left and is left out")
    return prepared.request


def _check_changes(request: PlanRequest, changes: Sequence[Change], sweeps: Sequence[Sweep]) -> None:
    """Refuse every name that the request does not know, under the option that has it."""
    from router.planning.what_if.what_if import apply_changes

    changed = apply_changes(request, changes)
    for sweep in sweeps:
        for value in sweep.values:
            apply_changes(changed, [value.change], "--sweep")


def _plan_variants(request: PlanRequest, variants: Sequence[Variant], engine: Engine) -> WhatIf:
    from router.app.plan_rerun import run_what_if

    try:
        with console.parallel_bar("plans made", "--workers") as advance:
            return run_what_if(request, variants, engine=engine, advance=advance)
    except EngineError as error:
        raise console.CommandError(str(error), remedy=error.remedy) from None


def _text_of(comparison: WhatIf, sweeps: Sequence[str], output: WideListFormat, out: Path | None) -> str:
    if output == "json":
        return what_if_text.as_json(comparison, sweeps)
    if output == "csv":
        return what_if_text.as_csv(comparison, sweeps)
    form = what_if_text.wide if output == "wide" else what_if_text.table
    return form(comparison, sweeps, console.screen(file=out))
