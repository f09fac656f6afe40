"""Record what a plan was made with beside jobs and prices: its limits, its budgets, and what each gang takes of them.

Comparing two plans needs this. It stands outside the plan's digest: it decides nothing, and plans made before it exist
without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pricing.money import Usd

if TYPE_CHECKING:
    # A plan holds these values, and reading one needs no solver.
    from router.jobs.limits import Limits
    from router.planning.problem import PlacementProblem
    from router.planning.schedule import ScheduledRun


@dataclass(frozen=True, slots=True)
class LimitAmount:
    """How much a limit allows at every instant, in ``unit``; also the capacity of an offer that a gang uses."""

    name: str
    amount: int
    unit: str


@dataclass(frozen=True, slots=True)
class TeamMoney:
    """The budget of a team, and what of it was spent before the plan."""

    team: str
    budget_usd: Usd
    spent_usd: Usd


@dataclass(frozen=True, slots=True)
class GangUse:
    """How much one gang of the plan takes of a limit while it holds its machines."""

    gang: str
    limit: str
    amount: int


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The limits of a plan by name, the budgets by team, and their use by gang; all sorted.

    ``limits_digest`` covers the whole limits file with hard budgets, spending and shortages, as it was planned with.
    """

    limits_digest: str
    limits: tuple[LimitAmount, ...]
    teams: tuple[TeamMoney, ...]
    use: tuple[GangUse, ...]


def plan_inputs(
    limits: Limits, problem: PlacementProblem, runs: Mapping[str, Sequence[ScheduledRun]], teams: frozenset[str]
) -> PlanInputs:
    """Return the inputs of a plan with these runs; gangs are named and numbered as its lines are.

    Of the budgets, those of ``teams`` count; of the capacities of offers, those that a gang uses.
    """
    use = [
        GangUse(f"{name}/{number}", limit, amount)
        for name, found in runs.items()
        for number, run in enumerate(found, start=1)
        for limit, amount in problem.use[name, run.candidate.key].items()
    ]
    amounts = {limit.name: LimitAmount(limit.name, limit.amount, limit.unit) for limit in limits.limits}
    for taken in use:
        shared = problem.shared[taken.limit]
        amounts.setdefault(taken.limit, LimitAmount(shared.name, shared.amount, shared.unit))
    return PlanInputs(
        limits_digest=hashlib.sha256(limits.model_dump_json().encode()).hexdigest(),
        limits=tuple(amounts[name] for name in sorted(amounts)),
        teams=tuple(
            TeamMoney(t.team, t.budget, t.spent) for t in sorted(limits.teams, key=lambda t: t.team) if t.team in teams
        ),
        use=tuple(sorted(use, key=lambda u: (u.gang, u.limit))),
    )
