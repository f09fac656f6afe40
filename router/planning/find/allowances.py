"""State how much money a job may count for: by its own budget, and by what its team's budget has left. Pure.

The rule is :mod:`router.planning.rules.budgets`; others ask for allowances alone, None where nothing bounds a job.
"""

from __future__ import annotations

from collections.abc import Mapping

from pricing.money import Usd
from router.jobs.limits import Limits
from router.jobs.spec import Job


def own_allowance(job: Job) -> Usd | None:
    """Return the most that the job may count for by its own rule."""
    return job.budget


def with_allowance(job: Job, usd: Usd | None) -> Job:
    """Return the job with another allowance of its own."""
    return job.model_copy(update={"budget": usd})


def team_allowances(limits: Limits) -> Mapping[str, Usd]:
    """Return what each team with a budget has not spent."""
    return {team.team: team.budget - team.spent for team in limits.teams}


def has_allowance(limits: Limits, job: Job) -> bool:
    """Return whether an allowance bounds the job: its own, or its team's."""
    return job.budget is not None or any(team.team == job.team for team in limits.teams)


def least_allowance(job: Job, team_left: Usd | None) -> Usd | None:
    """Return the smaller of the job's own allowance and of what is left of its team's."""
    return min((usd for usd in (job.budget, team_left) if usd is not None), default=None)
