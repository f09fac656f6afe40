"""``stepfare explain``: why a plan, or one of its jobs, is as it is."""

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
    """How an explanation is written."""

    TABLE = "table"
    JSON = "json"


def explain(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A plan (JSON).")],
    job: Annotated[str | None, typer.Argument(metavar="[JOB]", help="One job, in full.")] = None,
    output: Annotated[ExplainFormat, typer.Option("--output", "-o", help="Format.")] = ExplainFormat.TABLE,
) -> None:
    """Why a job is placed where it is, the runner-up, what was dropped, what each rule costs.

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
        console.out(json.dumps(document, indent=2, ensure_ascii=False))
        return
    console.out(plan_text(plan) if job is None else job_text(plan, job, _quoted(plan, job)))


def _quoted(plan: Plan, job: str) -> str:
    """The newest stored quote of this very job by the same deadline, beside what the plan expects; "" where there is
    none, or it says the same."""
    from router.config.quote_files import stored_quotes
    from router.prices.home import quotes_folder
    from router.render.quote_text import money

    made = next(summary for summary in plan.jobs if summary.job == job)
    same = [
        (name, q)
        for name, q, _ in stored_quotes(quotes_folder())
        if (q.job, q.job_digest, q.deadline) == (job, made.job_digest, made.deadline)
    ]
    if not same or same[-1][1].usd.mean == made.cost_usd:
        return ""
    name, quote = same[-1]
    return (
        f"{name} expects {money(quote.usd.mean)}, the mean of {quote.draws} simulated runs that may wait, move and go "
        f"on demand; the plan expects {money(made.cost_usd)} of the lines above"
    )
