"""Hard budgets of teams as limits of what is planned. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pricing.money import ZERO, Usd
from router.jobs.limits import Limits, TeamBudget
from router.ledger.budget import Budget, Scope, Spent


@dataclass(frozen=True, slots=True)
class Source:
    """Where the budget of a team comes from: ``hard`` (`stepfare budget`) or the limits file; ``counted``: what is
    spent was looked up, and not said by the file."""

    team: str
    usd: Usd
    spent: Usd
    hard: bool
    counted: bool


def with_hard(limits: Limits, budgets: Iterable[Budget]) -> Limits:
    """The limits with the hard budgets of teams in them: the lower of the two where the file has one. ``budgets`` are
    those that hold in the month."""
    hard = {each.name: each.usd for each in budgets if each.hard and each.scope is Scope.TEAM and each.usd is not None}
    if not hard:
        return limits
    known = [_lowered(team, hard.pop(team.team, None)) for team in limits.teams]
    new = [TeamBudget(team=name, budget=usd) for name, usd in sorted(hard.items())]
    return limits.model_copy(update={"teams": (*known, *new)})


def with_spent(limits: Limits, spent: Spent) -> Limits:
    """The limits with what teams have spent, where the file does not say it."""
    teams = tuple(_counted(team, spent) for team in limits.teams)
    return limits.model_copy(update={"teams": teams})


def sources(before: Limits, after: Limits) -> tuple[Source, ...]:
    """Of each team whose budget or spending is not the file's alone: ``before`` the limits file, ``after`` with both
    functions above."""
    if after is before:
        return ()
    told = {team.team: team for team in before.teams}
    found = []
    for team in after.teams:
        file = told.get(team.team)
        hard = file is None or team.budget != file.budget
        counted = file is None or "spent" not in file.model_fields_set
        if hard or counted:
            found.append(Source(team.team, team.budget, team.spent, hard, counted))
    return tuple(found)


def _lowered(team: TeamBudget, hard: Usd | None) -> TeamBudget:
    return team if hard is None or hard >= team.budget else team.model_copy(update={"budget": hard})


def _counted(team: TeamBudget, spent: Spent) -> TeamBudget:
    if "spent" in team.model_fields_set:
        return team
    usd = Usd.total(amount for (name, _), amount in spent.items() if name == team.team)
    return team.model_copy(update={"spent": max(usd, ZERO)})
