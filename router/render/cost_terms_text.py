"""The terms of a cost as text: where the money of a job, a team or a plan goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from router.planning.cost_terms import add_terms
from router.planning.plan import Plan
from router.planning.plan_usage import JobCostTerms
from router.render.tables import PLAIN, Screen, format_table, format_usd, wrap_text

TERM_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "compute_usd": "steps that last",
        "lost_work_usd": "work lost to interruptions",
        "checkpoints_usd": "checkpoints",
        "restarts_usd": "restarts after interruptions",
        "startups_usd": "start-ups",
        "moves_usd": "moving data",
        "stream_usd": "streaming data",
    }
)
_COLUMNS = ("TEAM", "COMPUTE", "LOST WORK", "CHECKPOINTS", "RESTARTS", "START-UPS", "MOVES", "STREAM", "COST")


def job_terms_text(plan: Plan, job: str) -> str:
    """Return the terms of one job's cost; empty where the plan has none for it."""
    terms = next((t for t in _terms_of(plan) if t.job == job), None)
    if terms is None or not terms.together_usd.nanos:
        return ""
    whole = terms.together_usd.nanos
    amounts = ((words, getattr(terms, name)) for name, words in TERM_WORDS.items())
    parts = (f"{words} {format_usd(usd)} ({usd.nanos / whole:.1%})" for words, usd in amounts if usd.nanos)
    return "\n".join(["Where its cost goes", wrap_text(", ".join(parts), "  ")])


def team_terms_table(plan: Plan, screen: Screen = PLAIN) -> str:
    """Return the terms of the cost of each team and of the plan; empty where the plan has none."""
    found = {terms.job: terms for terms in _terms_of(plan)}
    if not found:
        return ""
    teams: dict[str, list[JobCostTerms]] = {}
    for job in plan.jobs:
        if job.job in found:
            teams.setdefault(job.team, []).append(found[job.job])
    rows = [_row(add_terms(own, team)) for team, own in sorted(teams.items())]
    rows.append(_row(add_terms(tuple(found.values()), "all")))
    return format_table(_COLUMNS, rows, frozenset(_COLUMNS[1:]), {}, screen)


def _terms_of(plan: Plan) -> Sequence[JobCostTerms]:
    return () if plan.usage is None else plan.usage.cost_terms


def _row(terms: JobCostTerms) -> tuple[str, ...]:
    amounts = (getattr(terms, name) for name in TERM_WORDS)
    return (terms.job, *(format_usd(usd) if usd.nanos else "" for usd in amounts), format_usd(terms.together_usd))
