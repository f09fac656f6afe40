"""Commands ``stepfare plan``, ``plan show``, ``list`` and ``diff``: place jobs at the least cost; compare plans."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pricing.problems import InvalidInputError
from pricing.units import format_count
from router.cli import console
from router.cli.completion import complete_plan_words
from router.cli.options import OUTPUT, TableOutput, option_error, parse_now, parse_usd_option, wall_clock
from router.cli.planning_options import PlanFileArgument, PlanningOptions, load_present_state, report_plan_inputs
from router.cli.site_options import ask_state, load_previous_plan, open_query_context, open_state_if_any, store_plan
from router.planning.document.plan_terms import TRIAL
from router.prices.data_folders import check_home
from router.render.record_table import RecordTable, TableColumn
from router.render.tables import format_timestamp, format_usd

if TYPE_CHECKING:
    from router.planning.document.plan import Plan
    from router.planning.planner import PlanRequest, Timings
    from router.planning.what_if.what_if_comparison import VariantResult
    from router.render.since_view import SinceView
    from router.state.plans import ListedPlan

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
    prepared = plan_request(
        paths, planning.book, planning.limits, moment, options, state.shortages, state.add_to, state.copies
    )
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
    lower = None
    if optimistic:
        from router.app.plan_rerun import compare_lower_end

        with console.progress("planning again with every spot pool at the lower end of its interval"):
            lower = compare_lower_end(request, placement_plan)
    console.out(_text_of(placement_plan, output, lower))
    if request.previous is not None:
        _note_kept_places(request.previous, placement_plan)
    if placement_plan.time_limit_hit:
        _note_longer_limit(request.time_limit, timings)
    _write_metrics(placement_plan, timings, began, metrics, prometheus)
    return console.ExitCode.UNPLACED if placement_plan.unplaced else console.ExitCode.OK


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


def list_plans(
    name: Annotated[str | None, typer.Option(metavar="NAME", help="List the plans of this name instead.")] = None,
    output: TableOutput = "table",
) -> None:
    """List the names of the plans that were written, each with its last plan; or all plans of one name.

    \b
    stepfare plan list
    stepfare plan list --name night
    stepfare plan list -o json
    """
    from router.app.queries.plans import MOST_PLANS, list_last_plans
    from router.app.queries.plans import list_plans as list_made_plans

    check_home()
    with open_query_context(wall_clock()) as context:
        plans = list_last_plans(context) if name is None else list_made_plans(context, MOST_PLANS, name=name)
    empty = "no plan was written" if name is None else f"no plan named {name} was written"
    console.print_table(output, "plans", _PLANS, plans, empty)


_PLANS: RecordTable[ListedPlan] = RecordTable(
    (
        TableColumn("name", lambda plan: plan.name, "NAME", width=16),
        TableColumn("plan_id", lambda plan: plan.plan_id, "PLAN"),
        TableColumn("digest", lambda plan: plan.digest),
        TableColumn("as_of", lambda plan: plan.as_of, "FOR", format_timestamp),
        TableColumn("made_at", lambda plan: plan.made_at),
        TableColumn("made_by", lambda plan: plan.made_by, "BY", width=16),
        TableColumn("jobs", lambda plan: plan.jobs),
        TableColumn("", lambda plan: f"{plan.placed} of {plan.jobs}", "PLACED"),
        TableColumn("placed", lambda plan: plan.placed),
        TableColumn("cost_usd", lambda plan: plan.cost_usd, "COST", format_usd, right=True),
    )
)


AgainstOption = Annotated[
    str | None,
    typer.Option(
        metavar="last|FILE",
        help="Show on the page of --html what changed since the plan of its name of the night before, or a file.",
    ),
]


def check_against(against: str | None, html: Path | None) -> None:
    """Raise InvalidInputError for ``--against`` without a page."""
    if against is not None and html is None:
        raise InvalidInputError.single("is shown on a page alone", field="--against", remedy="add --html FILE")


def changes_since(against: str | None, plan: Plan) -> SinceView | None:
    """Return what changed since the plan that ``--against`` names; None without one.

    InvalidInputError for a file that is no plan; CommandError for a state that cannot be read.
    """
    if against is None:
        return None
    from router.config.plan_files import read_plan
    from router.planning.document.plan_json import plan_content
    from router.planning.explain.changes import plan_diff
    from router.render.since_view import since_view

    before = _last_plan(plan) if against == "last" else read_plan(Path(against))
    if before is None:
        console.note(f"no plan named {plan.name} of an earlier night is stored: the page says nothing of changes")
        return None
    diff = plan_diff(before, plan, find_changed_fields(before, plan))
    return since_view(diff, before, plan_content(before)["digest"], plan)


def _last_plan(plan: Plan) -> Plan | None:
    from router.app.queries.plans import previous_digest, whole_plan

    with open_state_if_any() as store:
        digest = previous_digest(store, plan.as_of, plan.name)
        return None if digest is None else whole_plan(store, digest)


def find_changed_fields(before: Plan, after: Plan) -> dict[str, tuple[str, ...]]:
    """Return the changed fields of each changed job whose two specifications are stored in the state.

    A state that is missing or cannot be read names no fields: comparing plans does not need one.
    """
    from router.app.queries.plans import changed_fields

    old = {job.job: job.job_digest for job in before.jobs}
    if all(old.get(job.job, job.job_digest) == job.job_digest for job in after.jobs):
        return {}
    unknown = "which fields of the changed jobs differ is not known"
    return ask_state(lambda store: changed_fields(store, before, after), {}, unknown)


PlanDiffFormat = Literal["table", "wide", "json", "markdown"]


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="The older plan (JSON).")],
    after: Annotated[Path, typer.Argument(metavar="B", help="The newer plan (JSON).")],
    output: Annotated[PlanDiffFormat, OUTPUT] = "table",
) -> None:
    """Compare two plans and explain the changes: causes first, then what follows from them.

    Causes are a job that is new, gone or changed, a price, a limit, a budget, time that has passed, or another job's
    change. Where neither plan shows one, the change is within the gap of both. Jobs that only start at other times, at
    the same place and cost, are one line.

    \b
    stepfare plan diff yesterday.json today.json
    stepfare plan diff a.json b.json -o wide
    stepfare plan diff a.json b.json -o json
    stepfare plan diff base.json change.json -o markdown
    """
    from router.config.plan_files import read_plan
    from router.planning.explain.changes import plan_diff
    from router.render.plan_diff_text import diff_json, diff_markdown, diff_text

    old, new = read_plan(before), read_plan(after)
    found = plan_diff(old, new, find_changed_fields(old, new))
    if output == "json":
        console.out(diff_json(found))
    elif output == "markdown":
        console.out(diff_markdown(found))
    else:
        console.out(diff_text(found, console.screen(), wide=output == "wide"))
