"""Command ``stepfare explain``: explain the placements of a plan, or of one of its jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pricing.book_check import did_you_mean
from pricing.places import Market
from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.completion import complete_books, complete_paths, complete_plan_jobs
from router.cli.options import TableOutput, option_error
from router.cli.planning_options import PlanFileArgument, parse_slot, parse_time_limit
from router.cli.site_options import ask_state, list_own_quotes, open_state_if_any
from router.planning.document.plan_terms import SLOT, TIME_LIMIT

if TYPE_CHECKING:
    from router.jobs.spec import Job
    from router.planning.document.plan import Plan
    from router.planning.planner import PlanRequest
    from router.planning.what_if.constraint_prices import ConstraintPrice
    from router.planning.what_if.gang_worth import GangWorth


def explain(
    file: PlanFileArgument,
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", autocompletion=complete_plan_jobs, help="Explain this job in full."),
    ] = None,
    jobs: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            autocompletion=complete_paths,
            help="Job files of the plan: plan again without each rule of JOB; repeatable.",
        ),
    ] = None,
    limits: Annotated[Path | None, typer.Option(metavar="FILE", help="Limits file of the plan, beside --jobs.")] = None,
    book: Annotated[
        str, typer.Option(metavar="BOOK", autocompletion=complete_books, help="Price book of the plan, if not stored.")
    ] = "latest",
    slot: Annotated[str, typer.Option(metavar="DURATION", help="Slot of the plan, beside --jobs.")] = SLOT.text,
    time_limit: Annotated[
        str, typer.Option(metavar="DURATION", help="Time limit of each plan, beside --jobs.")
    ] = TIME_LIMIT.text,
    output: TableOutput = "table",
) -> None:
    """Explain where jobs are placed and why, the runner-up, the rejected offers, and what rules and changes are worth.

    \b
    stepfare explain plan.json
    stepfare explain plan.json llama3-70b-sft-code
    stepfare explain plan.json llama3-70b-sft-code -o json
    stepfare explain plan.json llama3-70b-sft-code --jobs jobs/ --limits l.yaml

    For a job on spot under the deadline guard it shows, too, what an hour of deadline, a point of confidence and better
    knowledge of the pool (the ends of the 80 % interval of its interruptions) are worth on the gang that was chosen:
    for this gang alone, other jobs held fixed. The state has to know the plan, or --jobs its files.
    With --jobs the night is planned again without each rule of the job, one rule at a time, and the whole plans are
    compared: other jobs may move. That takes as long as a plan for each rule. Nothing is stored.
    """
    from router.config.plan_files import read_plan
    from router.planning.document.plan_json import plan_content
    from router.render.explain_text import (
        job_text,
        plan_text,
        prices_text,
        unknown_text,
        worth_content,
        worth_text,
    )
    from router.render.record_table import json_document, plain_value

    plan = read_plan(file)
    names = [summary.job for summary in plan.jobs]
    if job is not None and job not in names:
        raise InvalidInputError.single(
            f"the plan has no job {job!r}", where=str(file), field="JOB", remedy=did_you_mean(job, names)
        )
    request = _request_of_files(plan, job, jobs, limits, book, slot, time_limit)
    prices = None if request is None or job is None else _constraint_prices(request, job)
    worth, unknown = (None, "") if job is None else _gang_worth(plan, job, request, book)
    if output == "json":
        content = plan_content(plan)

        def of_job(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [row for row in rows if job in (None, row["job"])]

        document = {
            "plan_id": content["plan_id"],
            **{name: of_job(content[name]) for name in ("jobs", "lines", "moves", "unplaced")},
            "shadow_prices": content["shadow_prices"],
        }
        for name in ("cost_terms", "placement_types", "speeds"):
            if name in content.get("usage", {}):
                document[name] = of_job(content["usage"][name])
        if worth is not None or unknown:
            document["gang_worth"] = {"unknown": unknown} if worth is None else worth_content(worth)
        if prices is not None:
            document["constraint_prices"] = plain_value(prices)
        console.out(json_document(document, ascii_only=False))
        return
    parts = [plan_text(plan) if job is None else job_text(plan, job, _quoted(plan, job), console.screen())]
    if worth is not None or unknown:
        parts.append(unknown_text(unknown) if worth is None else worth_text(worth, console.screen()))
    if prices is not None:
        parts.append(prices_text(prices))
    console.out("\n".join(parts))


def _request_of_files(
    plan: Plan, job: str | None, jobs: list[str] | None, limits: Path | None, book: str, slot: str, time_limit: str
) -> PlanRequest | None:
    """Return the request of the plan from its files; None where none are named."""
    if not jobs:
        if limits is not None:
            raise option_error("--limits", "counts only beside job files", "add --jobs PATH")
        return None
    if job is None:
        raise option_error("--jobs", "prices the rules of one job", "name JOB")
    from router.app.plan_rerun import PlanFiles, planned_jobs, rebuild_request

    files = PlanFiles(tuple(jobs), book, limits)
    unknown = "the copies of data that the plan knew are not known"
    nothing: dict[str, Job] = {}
    planned = ask_state(lambda store: planned_jobs(plan, store), nothing, unknown)
    request, same_limits = rebuild_request(plan, files, parse_slot(slot), parse_time_limit(time_limit), planned)
    if not same_limits:
        console.note(
            "the limits are not those of the plan: it counted hard budgets, spending or shortages that no file has, "
            "or --limits is missing or was changed"
        )
    return request


def _constraint_prices(request: PlanRequest, job: str) -> tuple[ConstraintPrice, ...]:
    from router.planning.what_if.constraint_prices import constraint_prices

    with console.progress(f"planning again without each rule of {job}"):
        return constraint_prices(request, job)


def _gang_worth(plan: Plan, job: str, request: PlanRequest | None, book: str) -> tuple[GangWorth | None, str]:
    """Return what changes are worth to the job on its spot gang; None with the reason, "" where it has no such gang."""
    from router.app.plan_rerun import stored_request
    from router.planning.what_if.gang_worth import gang_worth, spot_gang

    if not spot_gang([line for line in plan.lines if line.job == job]):
        return None, ""
    if request is None:
        try:
            with open_state_if_any() as store:
                request = stored_request(plan, job, book, store)
        except (console.CommandError, InvalidInputError) as error:
            return None, str(error)
    return gang_worth(request, plan, job), ""


def _quoted(plan: Plan, job: str) -> str:
    """Return a comparison of the plan's cost with the newest stored quote of the same job and deadline.

    Empty if there is no such quote, or if both name the same cost.
    """
    from router.render.quote_text import format_cost

    job_summary = next(summary for summary in plan.jobs if summary.job == job)
    quotes = list_own_quotes(job)
    matching = [
        (each.name, each.quote)
        for each in quotes
        if (each.quote.job_digest, each.quote.deadline) == (job_summary.job_digest, job_summary.deadline)
    ]
    if not matching or matching[-1][1].usd.mean == job_summary.cost_usd:
        return ""
    name, quote = matching[-1]
    ways = (
        "wait, move and go on demand"
        if any(place.market == Market.ON_DEMAND for place in quote.places)
        else "wait and move"
    )
    told = (
        f"{name} expects {format_cost(quote.usd.mean)}, the mean of {quote.draws} simulated runs that may {ways}; the "
        f"plan expects {format_cost(job_summary.cost_usd)} of the lines above"
    )
    if quote.place_usd is None or quote.plan_usd is None:
        return told
    error = "" if quote.place_error_usd is None else f" (±{format_cost(quote.place_error_usd)})"
    return (
        f"{told}. On the place of a plan of this job alone, such runs cost {format_cost(quote.place_usd)}{error} where "
        f"the plan expects {format_cost(quote.plan_usd)}; what else the quote saves, its other places save"
    )
