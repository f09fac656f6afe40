"""Command ``stepfare explain``: explain the placements of a plan, or of one of its jobs."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pricing.book_check import did_you_mean
from pricing.problems import InvalidInputError
from router.cli import console

if TYPE_CHECKING:
    from router.planning.plan import Plan


class ExplainFormat(StrEnum):
    """Output format of an explanation."""

    TABLE = "table"
    JSON = "json"


def explain(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A plan (JSON).")],
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="Explain this job in full.")] = None,
    output: Annotated[ExplainFormat, typer.Option("--output", "-o", help="Format.")] = ExplainFormat.TABLE,
) -> None:
    """Explain where jobs are placed and why, the runner-up, the rejected offers, and what each rule costs.

    \b
    stepfare explain plan.json
    stepfare explain plan.json llama3-70b-sft-code
    stepfare explain plan.json llama3-70b-sft-code -o json
    """
    from router.config.plan_files import read_plan
    from router.planning.plan_json import plan_content
    from router.render.explain_text import job_text, plan_text

    plan = read_plan(file)
    names = [summary.job for summary in plan.jobs]
    if job is not None and job not in names:
        raise InvalidInputError.single(
            f"the plan has no job {job!r}", where=str(file), field="JOB", remedy=did_you_mean(job, names)
        )
    if output is ExplainFormat.JSON:
        content = plan_content(plan)
        chosen = [j for j in content["jobs"] if job in (None, j["job"])]
        left_out = [u for u in content["unplaced"] if job in (None, u["job"])]
        lines = [x for x in content["lines"] if job in (None, x["job"])]
        moves = [m for m in content["moves"] if job in (None, m["job"])]
        document = {
            "schema_version": 1,
            "plan_id": content["plan_id"],
            "jobs": chosen,
            "lines": lines,
            "moves": moves,
            "unplaced": left_out,
            "shadow_prices": content["shadow_prices"],
        }
        for name in ("cost_terms", "placement_types"):
            if name in content.get("usage", {}):
                document[name] = [each for each in content["usage"][name] if job in (None, each["job"])]
        console.out(json.dumps(document, indent=2, ensure_ascii=False))
        return
    console.out(plan_text(plan) if job is None else job_text(plan, job, _quoted(plan, job), console.screen()))


def _quoted(plan: Plan, job: str) -> str:
    """Return a comparison of the plan's cost with the newest stored quote of the same job and deadline.

    Empty if there is no such quote, or if both name the same cost.
    """
    from router.config.plan_files import stored_quotes
    from router.prices.data_folders import quotes_folder
    from router.render.quote_text import format_cost

    job_summary = next(summary for summary in plan.jobs if summary.job == job)
    matching = [
        (name, q)
        for name, q, _ in stored_quotes(quotes_folder())
        if (q.job, q.job_digest, q.deadline) == (job, job_summary.job_digest, job_summary.deadline)
    ]
    if not matching or matching[-1][1].usd.mean == job_summary.cost_usd:
        return ""
    name, quote = matching[-1]
    return (
        f"{name} expects {format_cost(quote.usd.mean)}, the mean of {quote.draws} simulated runs that may wait, move "
        f"and go "
        f"on demand; the plan expects {format_cost(job_summary.cost_usd)} of the lines above"
    )
