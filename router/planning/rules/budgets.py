"""Bound what jobs may cost: each by its own budget, the jobs of a team together by what the team has left.

Budgets count compute, start-ups and fallbacks, and moves at the dearest tier of their tariff: a job that really costs
less may count for more. Carbon is no money.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pricing.money import Usd
from router.jobs.spec import Job
from router.planning.find.allowances import team_allowances
from router.planning.find.candidate import Candidate
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.run_costs import compute_usd
from router.planning.problem.schedule import ScheduledRun
from router.planning.rules.program import ProgramBuilder, ProgramLayout

Runs = Sequence[ScheduledRun]


def dearest_moves(candidate: Candidate) -> Usd:
    """Return the cost of moving to the candidate's region as budgets count it, whatever else moves."""
    return Usd.total(t.dearest for t in candidate.transfers)


def counted_usd(runs: Runs) -> Usd:
    """Return a placed job's cost as budgets count it: compute, and moves into each region at their dearest tier."""
    regions = {run.candidate.region: run.candidate for run in runs}
    return compute_usd(runs) + Usd.total(dearest_moves(c) for c in regions.values())


def team_left(problem: PlacementProblem, job: Job, counted: Mapping[str, Usd]) -> Usd | None:
    """Return what the other placed jobs of the team leave of its budget; None when it has none.

    ``counted`` is what each placed job counts (:func:`counted_usd`), by name.
    """
    budget = team_allowances(problem.limits).get(job.team)
    if budget is None:
        return None
    others = (usd for name, usd in counted.items() if name != job.name and problem.job[name].team == job.team)
    return budget - Usd.total(others)


def overspends(problem: PlacementProblem, runs: Mapping[str, Runs], name: str) -> bool:
    """Return whether a placed job's own budget is exceeded, or its team's; ``runs`` are those of all placed jobs."""
    job = problem.job[name]
    if job.budget is not None and counted_usd(runs[name]) > job.budget:
        return True
    budget = team_allowances(problem.limits).get(job.team)
    members = [other for other in runs if problem.job[other].team == job.team] if budget is not None else []
    return budget is not None and Usd.total(counted_usd(runs[other]) for other in members) > budget


def excess_of(job: Job, counted: Usd, remaining_usd: Usd | None) -> str:
    """Return which budget a run of the job exceeds, and by how much ("" for none); ``remaining_usd`` is its team's."""
    if job.budget is not None and counted > job.budget:
        return f"over the job's budget by ${(counted - job.budget).dollars():,.2f}"
    if remaining_usd is not None and counted > remaining_usd:
        return f"over the budget of team {job.team} by ${(counted - remaining_usd).dollars():,.2f}"
    return ""


def raised_allowance(problem: PlacementProblem, row: str, usd: Usd) -> PlacementProblem:
    """Return the problem in which the team whose budget has this row may spend so much more."""
    teams = tuple(
        team.model_copy(update={"budget": team.budget + usd}) if team_row(team.team) == row else team
        for team in problem.limits.teams
    )
    return replace(problem, limits=problem.limits.model_copy(update={"teams": teams}))


def paid_terms(problem: PlacementProblem, layout: ProgramLayout, job: Job) -> list[tuple[int, float]]:
    """Return the money for compute and start-ups of a job by variable; carbon is no money."""
    candidates = {c.key: c for c in problem.candidates[job.name]}
    terms = [(layout.w[job.name, key], c.usd_per_reserved_hour) for key, c in candidates.items()]
    starts = layout.starts.get(job.name, ())
    return terms + [(z, candidates[key].usd_per_hour.dollars() * candidates[key].startup_hours) for key, z in starts]


def cost_terms(problem: PlacementProblem, layout: ProgramLayout, job: Job) -> list[tuple[int, float]]:
    """Return a job's dollars as a budget counts them: compute and start-ups, moves at the dearest tier."""
    terms = paid_terms(problem, layout, job)
    dearest = {c.region: sum(t.dearest.dollars() for t in c.transfers) for c in problem.candidates[job.name]}
    terms += [(y, dearest[region]) for (name, region, _), y in layout.y.items() if name == job.name]
    return [(i, cost) for i, cost in terms if cost]


def add_money_rows(builder: ProgramBuilder, layout: ProgramLayout, problem: PlacementProblem) -> None:
    """Add Σ cost <= budget of a job, and of a team (less what it has spent)."""
    terms = {job.name: cost_terms(problem, layout, job) for job in problem.jobs}
    for job in problem.jobs:
        if job.budget is not None:
            builder.row(f"budget {job.name}", terms[job.name], "<=", job.budget.dollars())
    for team in problem.limits.teams:
        together = [t for job in problem.jobs if job.team == team.team for t in terms[job.name]]
        builder.row(team_row(team.team), together, "<=", (team.budget - team.spent).dollars())


OWN_WORDS = "budget of the job"


def team_row(team: str) -> str:
    """Return the name of the row of a team's budget."""
    return f"budget of team {team}"
