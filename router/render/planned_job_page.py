"""Draw the page of a job within a plan: where it is to run and why, what else it could do, what its rules cost."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from pricing.money import Usd
from router.planning.document.plan import JobSummary, Line, LineFallback, Plan
from router.planning.document.plan_facts import main_placement
from router.render.explain_text import DROPPED_WORDS, merged_fallbacks
from router.render.figures import MARKET_WORDS, chance, day_clock, signed_money
from router.render.pages import PageFrame, fill_template
from router.render.quote_list_page import QuoteListView
from router.render.tonight_view import WORTH_SHOWING


def planned_job_url(digest: str, job: str) -> str:
    """Return the URL of a job's page within a plan; its name may hold any characters."""
    return f"/plans/{digest}/jobs/{quote(job, safe='')}"


def planned_job_page(
    plan: Plan, digest: str, job: JobSummary, runs_url: str | None, frame: PageFrame, quotes: QuoteListView | None
) -> str:
    """Return the page of a job of the plan as HTML.

    ``runs_url`` is "" if it never ran, None if the reader may not know. ``quotes`` are those of the job.
    """
    name = job.job
    lines = [line for line in plan.lines if line.job == name]
    moves = [move for move in plan.moves if move.job == name]
    more, second = _next_best(job)
    left = next((left for left in plan.unplaced if left.job == name), None)
    return fill_template(
        "planned_job.html",
        frame=frame,
        plan=plan,
        plan_id=f"plan-{digest[:12]}",
        plan_url=f"/plans/{digest}",
        runs_url=runs_url,
        job=job,
        left=left,
        place=_place(lines, name),
        chance=chance(job.on_time_probability),
        asked=chance(job.confidence),
        next_more=more,
        next_words=second,
        bought=_bought(lines),
        market_words=MARKET_WORDS,
        moves_usd=Usd.total(move.cost_usd for move in moves),
        rules=[rule for rule in job.constraint_costs if rule.saving_usd.dollars() >= WORTH_SHOWING],
        dropped=[(row.offers, DROPPED_WORDS.get(row.reason, row.reason), row.example) for row in job.dropped],
        quotes=quotes,
        doubts=[note for note in job.notes if note],
    )


def _place(lines: Sequence[Line], name: str) -> str:
    place = main_placement(lines, name)
    if place is None:
        return ""
    kinds = " + ".join(dict.fromkeys(line.accelerator for line in lines if line.gang == lines[0].gang))
    return f"{place.cloud} {place.region} on {place.accelerators:,} {kinds}"


def _bought(lines: Sequence[Line]) -> list[tuple[str, Line | LineFallback, str, Usd]]:
    """Return what the plan buys for the job, then what it keeps behind it: the kind, the machines, when, the cost."""
    rows: list[tuple[str, Line | LineFallback, str, Usd]] = [
        (
            "order" if line.orderable else line.kind,
            line,
            f"{day_clock(line.start)} to {day_clock(line.end)}",
            line.cost_usd if line.fallback is None else line.cost_usd - line.fallback.cost_usd,
        )
        for line in lines
    ]
    rows += [("fallback", each, f"{each.probability:.0%} likely", each.cost_usd) for each in merged_fallbacks(lines)]
    return rows


def _next_best(job: JobSummary) -> tuple[str, str]:
    """Return how much more the best alternative costs and which it is, in words; "" where there is none."""
    second = job.runner_up
    if second is None or job.finish is None:
        return "", "nothing else serves it"
    where = f"{second.cloud} {second.region}, {second.accelerators:,} {second.accelerator}"
    words = f"{where}, {MARKET_WORDS[second.market]}"
    return signed_money(second.cost_usd - job.cost_usd), f"{words}; {second.lacks}" if second.lacks else words
