"""Commands ``stepfare plan`` and ``plan show``: place jobs at the least cost, and print a stored plan."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pricing.problems import InvalidInputError
from pricing.units import format_count
from router.cli import console
from router.cli.completion import complete_plan_words
from router.cli.earlier_plan import AgainstOption, changes_since, check_against
from router.cli.options import option_error, parse_now, parse_usd_option
from router.cli.output_options import OUTPUT
from router.cli.planning_options import PlanFileArgument, PlanningOptions, load_present_state, report_plan_inputs
from router.cli.site_options import load_previous_plan, store_plan
from router.planning.document.plan_terms import TRIAL

if TYPE_CHECKING:
    from router.planning.document.plan import Plan
    from router.planning.planner import PlanRequest, Timings
    from router.planning.what_if.what_if_comparison import VariantResult

_NAMED = 3  # jobs that a note names
# How long nights of 100 and 300 jobs take over the time of their candidates: 3.7 to 5.1 in docs/performance.md.
_CANDIDATES_TO_NIGHT = 6


PlanFormat = Literal["table", "wide", "json", "gantt"]


SumsBy = Literal["team", "pool"]


HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Also write a page: timetable, budgets, risk, limits, jobs."),
]


def plan(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", autocompletion=complete_plan_words, help="Job files, folders or globs."),
    ],
    planning: PlanningOptions,
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="Plans of one name follow each other; the console shows those of `night`."),
    ] = TRIAL,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="last|FILE", help="Keep to an earlier plan: the last of this name, written or applied, or a file."
        ),
    ] = None,
    least_saving: Annotated[
        str | None,
        typer.Option(metavar="USD", help="Move a job of that plan for this saving (default: $1, or 1 % if more)."),
    ] = None,
    output: Annotated[PlanFormat, OUTPUT] = "table",
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the plan (JSON) to this file too.")] = None,
    html: HtmlFile = None,
    against: AgainstOption = None,
    optimistic: Annotated[
        bool,
        typer.Option("--optimistic", help="Show beside it the plan with calm spot pools; it takes as long again."),
    ] = False,
    metrics: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Append a line of JSON with figures of this planning.")
    ] = None,
    prometheus: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the figures for Prometheus' textfile collector.")
    ] = None,
) -> console.ExitCode:
    """Place jobs so that a step costs least and every deadline holds.

    \b
    stepfare plan examples/nightly --limits examples/nightly/limits.yaml
    stepfare plan jobs/ --out plan.json && stepfare explain plan.json
    stepfare plan job.yaml --now 2026-11-21T18:00Z --book embedded -o json
    stepfare quotas && stepfare plan jobs/ --quotas latest
    stepfare plan jobs/ --limits limits.yaml --out plan.json --html tonight.html
    stepfare plan show plan.json -o gantt
    stepfare plan diff yesterday.json plan.json
    stepfare plan jobs/ --name night --since last --out plan.json
    stepfare plan jobs/ --out plan.json --optimistic

    With --name, --since last and the console compare a plan with the one of that name before it.
    With --since, a job that has not started keeps the place and start that the earlier plan gave it, as long as limits,
    budgets and deadline allow that, unless moving it saves at least --least-saving, or staying exceeds --gap.
    Where the state has earlier runs of a job, their speeds and interruptions count instead of what job and book state.
    With --now, and with --learned none, they do not.
    With --optimistic the same is planned again with the interruptions of every spot pool at the lower end of their
    80 % interval: the total and each job that differs are shown. What is written and stored stays the plan itself.
    The exit code is 3 if a job could not be placed; the plan is written nevertheless.
    """
    began = time.monotonic()
    from router.app.plan import plan_request
    from router.planning.document.plan_json import plan_to_json
    from router.planning.document.plan_names import parse_plan_name
    from router.planning.planner import Timings, make_plan

    check_against(against, html)
    console.check_output_folders(html)
    try:
        plan_name = parse_plan_name(name)
    except ValueError as error:
        raise option_error("--name", error) from None
    moment = parse_now(planning.now)
    options = planning.read(moment)
    state = load_present_state(moment, is_present=planning.is_present)
    if state.shortages:
        console.note(
            f"left out until {max(s.until for s in state.shortages):%H:%MZ}: "
            f"{format_count(len(state.shortages), 'pool')} that ran short lately"
        )
    prepared = plan_request(paths, planning.book, planning.limits, moment, options, state.shortages, state.add_to)
    report_plan_inputs(prepared, state)
    request = _with_previous(prepared.request, since, least_saving, plan_name)
    timings = Timings()
    if prepared.offers_too_old:
        console.note(
            f"left out: {format_count(prepared.offers_too_old, 'offer')} older than {planning.max_age} or undated"
        )
    for job in prepared.finished:
        console.note(f"{job} has no steps left and is left out")
    jobs = format_count(len(request.jobs), "job")
    with console.progress(f"planning {jobs} over {len(request.book.offers):,} offers") as show_phase:
        placement_plan = replace(make_plan(request, timings=timings, began=began, progress=show_phase), name=plan_name)
    if out is not None:
        document = plan_to_json(placement_plan)
        console.write(document, out)
        store_plan(placement_plan, document, request.jobs, prepared.file_limits)
    _write_page(placement_plan, html, against)
    lower = _lower_end(request, placement_plan) if optimistic else None
    console.out(_text_of(placement_plan, output, lower))
    if request.previous is not None:
        _note_kept_places(request.previous, placement_plan)
    if placement_plan.time_limit_hit:
        _note_longer_limit(request.time_limit, timings)
    _write_metrics(placement_plan, timings, began, metrics, prometheus)
    return console.ExitCode.UNPLACED if placement_plan.unplaced else console.ExitCode.OK


def _lower_end(request: PlanRequest, plan: Plan) -> VariantResult:
    """Return the plan with every spot pool at the lower end of its interval, beside the plan, with progress."""
    from router.app.what_if import compare_lower_end

    with console.progress("planning again with every spot pool at the lower end of its interval"):
        return compare_lower_end(request, plan)


def _with_previous(request: PlanRequest, since: str | None, least_saving: str | None, name: str) -> PlanRequest:
    """Return the request with the earlier plan to keep to; as it is without one."""

    least = parse_usd_option("--least-saving", least_saving)
    if since is None:
        if least is not None:
            raise InvalidInputError.single(
                "counts only beside an earlier plan", field="--least-saving", remedy="--since"
            )
        return request
    previous = load_previous_plan(since, name, request.now)
    if previous is None:
        console.note(f"no plan named {name} was written with --out or applied before: this one is made afresh")
    return replace(request, previous=previous, least_saving=least)


def _note_kept_places(previous: Plan, plan: Plan) -> None:
    """Say how many jobs are at the places of the earlier plan, and which are not.

    ``plan diff`` cannot always tell why a job left its place: this line does not promise it.
    """
    from router.planning.document.plan_json import plan_content
    from router.planning.explain.changes import kept_places

    kept = kept_places(previous, plan)
    both = format_count(len(kept.stayed) + len(kept.moved), "job")
    name = f"plan-{plan_content(previous)['digest'][:12]}"
    if not kept.moved:
        console.note(f"since {name}: of {both} in both plans all are at their places")
        return
    few = ", ".join(kept.moved[:_NAMED]) + (f" and {len(kept.moved) - _NAMED} more" if kept.moved[_NAMED:] else "")
    console.note(
        f"since {name}: of {both} in both plans {len(kept.stayed)} are at their places; elsewhere, for want of room "
        f"there or because moving saves enough: {few} (`stepfare plan diff` compares the two plans)"
    )


def _note_longer_limit(limit: timedelta, timings: Timings) -> None:
    """Name a longer time limit to try, by the time that the candidates took."""
    needed = max(2 * limit.total_seconds(), _CANDIDATES_TO_NIGHT * timings.feasibility)
    console.note(
        f"cut short after {limit.total_seconds():g} s: try --time-limit {math.ceil(needed / 60)}m "
        f"(measured nights took up to {_CANDIDATES_TO_NIGHT} times as long as their candidates)"
    )


def _write_metrics(plan: Plan, timings: Timings, began: float, metrics: Path | None, prometheus: Path | None) -> None:
    """Write the figures of this planning to the files that were named."""
    if metrics is None and prometheus is None:
        return
    from dataclasses import asdict

    from router.cli.options import wall_clock
    from router.render.plan_metrics import PlanningTimes, metrics_line, prometheus_text

    times = PlanningTimes(wall_clock(), time.monotonic() - began, asdict(timings))
    if metrics is not None:
        console.append_line(metrics_line(plan, times), metrics)
    if prometheus is not None:
        console.write(prometheus_text(plan, times), prometheus)


def show(
    file: PlanFileArgument,
    output: Annotated[PlanFormat, OUTPUT] = "table",
    html: HtmlFile = None,
    against: AgainstOption = None,
    team: Annotated[list[str] | None, typer.Option(help="Show only the jobs of this team; may be repeated.")] = None,
    job: Annotated[list[str] | None, typer.Option(help="Show only this job; may be repeated.")] = None,
    by: Annotated[SumsBy | None, typer.Option("--group-by", help="Show sums instead of jobs.")] = None,
) -> None:
    """Print a plan that was written with --out, or draw it: when each job runs where, under which limits.

    \b
    stepfare plan show plan.json
    stepfare plan show plan.json --team research
    stepfare plan show plan.json --group-by pool
    stepfare plan show plan.json -o gantt
    stepfare plan show plan.json --html tonight.html --against last
    """
    from router.config.plan_files import read_plan

    check_against(against, html)
    console.check_output_folders(html)
    plan = read_plan(file)
    _write_page(plan, html, against)
    console.out(_part_of(plan, output, team or [], job or [], by) if team or job or by else _text_of(plan, output))


def _part_of(plan: Plan, output: PlanFormat, teams: Sequence[str], names: Sequence[str], by: SumsBy | None) -> str:
    """Return some jobs of a plan, or sums over them. Raises InvalidInputError for what the plan does not have."""
    from router.render.plan_sums_text import jobs_of, jobs_text, sums_json, sums_text

    for option, asked, known in (
        ("--team", teams, sorted({each.team for each in plan.jobs})),
        ("--job", names, [each.job for each in plan.jobs]),
    ):
        missing = next((each for each in asked if each not in known), None)
        if missing is not None:
            near = get_close_matches(missing, known, 3) or known[:5]
            raise InvalidInputError.single(
                f"the plan has no {missing}", field=option, remedy=f"it has {', '.join(near)}"
            )
    chosen = jobs_of(plan, teams, names)
    if by is not None and output == "json":
        return sums_json(plan, chosen, by)
    if output != "table":
        raise InvalidInputError.single(
            f"{output} shows a plan whole",
            field="--output",
            remedy="leave --team and --job out, and --group-by but for json",
        )
    return sums_text(plan, chosen, by, console.screen()) if by else jobs_text(plan, chosen, console.screen())


def _text_of(plan: Plan, output: PlanFormat, lower: VariantResult | None = None) -> str:
    """Return the plan in the format asked for; tables and pictures take the width of the terminal.

    ``lower`` is the plan at the lower end of the interval of interruptions, to be shown beside it.
    """
    if lower is not None:
        from router.render.optimistic_text import optimistic_text, with_optimistic

        if output == "json":
            return with_optimistic(plan, lower)
        return f"{_text_of(plan, output)}\n{optimistic_text(plan, lower, console.screen())}"
    if output == "json":
        from router.planning.document.plan_json import plan_to_json

        return plan_to_json(plan)
    if output == "gantt":
        from router.render.gantt_text import gantt_text

        return gantt_text(plan, console.screen())
    from router.render.plan_text import table, wide

    return (wide if output == "wide" else table)(plan, console.screen())


def _write_page(plan: Plan, file: Path | None, against: str | None) -> None:
    """Write the page of the plan; nothing without a file. Its templates are loaded only then."""
    if file is not None:
        from router.render.tonight_page import tonight_page

        console.write_output_file(file, tonight_page(plan, since=changes_since(against, plan)).encode())
