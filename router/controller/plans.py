"""Plans as the controller takes them: orders of gangs, the limits stored with them, the last one of a name.

A job that has to move stays within the limits of its plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING

from pricing.money import NANOS_PER_CENT, ZERO, Usd, UsdPerHour
from router.jobs.limits import Limits, TeamBudget
from router.jobs.spec import Job, Status
from router.ledger.budget import Budget, Scope, SpentByOwner
from router.planning.document.plan import Line, Plan
from router.planning.document.plan_json import plan_from_json
from router.planning.document.restricted_limits import limits_digest, limits_text
from router.state.store import StateStore

if TYPE_CHECKING:
    from router.state.data_copies import DataCopy


@dataclass(frozen=True, slots=True)
class Order:
    """One gang for one span of time: one line, two with an on-demand core, or one per zone or machine type."""

    job: str
    gang: str
    start: datetime
    end: datetime
    lines: tuple[Line, ...]

    @property
    def machines(self) -> int:
        return sum(line.machines for line in self.lines)

    @property
    def expected_usd(self) -> Usd:
        return Usd.total(line.cost_usd for line in self.lines)

    @property
    def at_risk_usd(self) -> Usd:
        """Return the most that the gang may cost: the ceiling of every line for all its time."""
        return Usd.total(line.at_risk_usd for line in self.lines)

    @property
    def ceiling(self) -> UsdPerHour:
        """Return the highest price per hour at which the gang may still be bought."""
        return UsdPerHour(sum(line.max_usd_per_hour.nanos for line in self.lines))


def orders_of(plan: Plan) -> tuple[Order, ...]:
    """Return the gangs of the plan that can be ordered, by start, job and gang.

    Lines of the outlook and lines that are only shown are left out.
    """

    def key(line: Line) -> tuple[str, str, datetime, datetime]:
        return (line.job, line.gang, line.start, line.end)

    lines = sorted((line for line in plan.lines if line.orderable), key=key)
    orders = [Order(*order, tuple(group)) for order, group in groupby(lines, key)]
    return tuple(sorted(orders, key=lambda order: (order.start, order.job, order.gang)))


def with_known_copies(job: Job, copies: Iterable[DataCopy]) -> Job:
    """Return the job with the regions of these copies of its data in ``status.data_in``, which the planner reads."""
    data = job.data
    if data is None or data.mode != "copy":
        return job
    status = job.status or Status()
    regions = {copy.place for copy in copies if copy.uri == data.uri and copy.place != data.at} - {*status.data_in}
    if not regions:
        return job
    return job.model_copy(
        update={"status": status.model_copy(update={"data_in": tuple(sorted({*status.data_in, *regions}))})}
    )


def as_planned(job: Job, planned: Job | None) -> Job:
    """Return a job file's job with the copies of its data that its plan knew, where nothing else differs."""
    if planned is None or planned.status is None:
        return job
    status = (job.status or Status()).model_copy(update={"data_in": planned.status.data_in})
    same = job.model_copy(update={"status": status})
    return same if same.digest == planned.digest else job


# Names of values in the state.
_STORED, _MADE, _OF_DIGEST = "limits {}", "made limits {}", "limits of digest {}"


def store_limits(store: StateStore, plan: str, limits: Limits) -> None:
    """Store the limits of a plan; a later acceptance of the same plan replaces them."""
    store.values.set(_STORED.format(plan), limits.to_json())


def has_limits(store: StateStore, plan: str) -> bool:
    return store.values.get(_STORED.format(plan)) is not None


def limits_json(store: StateStore, plan: str) -> str:
    """Return the stored limits as JSON, or empty limits where none are stored.

    The same limits always give the same text.
    """
    return store.values.get(_STORED.format(plan)) or Limits.none().to_json()


def store_made_limits(store: StateStore, plan: str, limits: Limits) -> None:
    """Store the limits that a plan was made with; unlike :func:`store_limits` no acceptance changes them."""
    store.values.set(_MADE.format(plan), put_limits(store, limits))


def made_limits(store: StateStore, plan: str) -> Limits:
    """Return the limits that a plan was made with; where another state made it, those stored last with it."""
    return _find_made_limits(store, plan) or Limits.none()


def _find_made_limits(store: StateStore, plan: str) -> Limits | None:
    digest = store.values.get(_MADE.format(plan))
    limits = None if digest is None else find_limits(store, digest)
    if limits is None and has_limits(store, plan):
        return Limits.model_validate_json(limits_json(store, plan))
    return limits


def knows_limits(store: StateStore, plan: Plan, digest: str) -> bool:
    """Return whether the limits that a plan was made with are stored, or it was made without any."""
    stated = plan.inputs.limits_digest != Limits.none().digest
    return not stated or _find_made_limits(store, digest) is not None


def put_limits(store: StateStore, limits: Limits) -> str:
    """Store limits under their digest, and return it; repeating it is harmless."""
    digest = limits_digest(limits)
    store.values.set(_OF_DIGEST.format(digest), limits_text(limits))
    return digest


def find_limits(store: StateStore, digest: str) -> Limits | None:
    """Return the limits of that digest, None where they are not stored."""
    text = store.values.get(_OF_DIGEST.format(digest))
    return None if text is None else Limits.model_validate_json(text)


@dataclass(frozen=True, slots=True)
class BudgetSource:
    """The origin of a team's budget and spending.

    ``hard``: the budget is a hard one (`stepfare budget`) and not the limits file's. ``counted``: the spending was
    looked up and not stated by the file.
    """

    team: TeamBudget
    hard: bool
    counted: bool


@dataclass(frozen=True, slots=True)
class BudgetConstraints:
    """The budgets in force in the current month, and what is spent by now."""

    budgets: tuple[Budget, ...] = ()
    spent: SpentByOwner = field(default_factory=dict)

    def limits(self, limits: Limits) -> Limits:
        """Return the limits with the hard budgets of teams added.

        What teams have spent is added too, where the file does not state it.
        """
        return fill_spending(apply_hard_budgets(limits, self.budgets), self.spent)


def apply_hard_budgets(limits: Limits, budgets: Iterable[Budget]) -> Limits:
    """Return the limits with the hard budgets of teams; where the file has one too, the lower wins.

    ``budgets`` are those that hold in the month.
    """
    hard = {each.name: each.usd for each in budgets if each.hard and each.scope is Scope.TEAM and each.usd is not None}
    if not hard:
        return limits
    known = [
        team.model_copy(update={"budget": min(team.budget, hard.pop(team.team, team.budget))}) for team in limits.teams
    ]
    new = [TeamBudget(team=name, budget=usd) for name, usd in sorted(hard.items())]
    return limits.model_copy(update={"teams": (*known, *new)})


def fill_spending(limits: Limits, spent: SpentByOwner) -> Limits:
    """Return the limits with the spending of teams filled in where the file does not state it."""
    counted: dict[str, Usd] = {}
    for (name, _), usd in spent.items():
        counted[name] = counted.get(name, ZERO) + usd
    teams = [
        team
        if "spent" in team.model_fields_set
        else team.model_copy(update={"spent": max(counted.get(team.team, ZERO), ZERO)})
        for team in limits.teams
    ]
    return limits.model_copy(update={"teams": tuple(teams)})


def fill_recent_use(limits: Limits, used: Iterable[tuple[str, datetime, Usd]], now: datetime) -> Limits:
    """Return the limits with the recent use of teams filled in where the file does not state it.

    ``used``: team, moment and dollars; each counts half after a half-life. Sums are rounded to cents.
    """
    fair = limits.fair_share
    if fair is None:
        return limits
    totals: dict[str, float] = {}
    for team, at, usd in used:
        if team and team not in fair.recent_usd:
            age = max(0.0, (now - at) / fair.half_life)
            totals[team] = totals.get(team, 0.0) + usd.nanos * 2.0**-age
    counted = {team: Usd(round(nanos / NANOS_PER_CENT) * NANOS_PER_CENT) for team, nanos in sorted(totals.items())}
    recent = {**{team: usd for team, usd in counted.items() if usd > ZERO}, **fair.recent_usd}
    return limits.model_copy(update={"fair_share": fair.model_copy(update={"recent_usd": recent})})


def budget_sources(before: Limits, after: Limits) -> tuple[BudgetSource, ...]:
    """Return the source of every team budget or spending that does not come from the limits file alone.

    ``before``: the limits file; ``after``: the limits after :func:`apply_hard_budgets` and :func:`fill_spending`.
    """
    if after is before:
        return ()
    file_teams = {team.team: team for team in before.teams}
    changed = []
    for team in after.teams:
        file = file_teams.get(team.team)
        hard = file is None or team.budget != file.budget
        counted = file is None or "spent" not in file.model_fields_set
        if hard or counted:
            changed.append(BudgetSource(team, hard, counted))
    return tuple(changed)


_NO_TIME = timedelta(microseconds=1)


def last_plan(store: StateStore, name: str, now: datetime) -> Plan | None:
    """Return the later one of the last plan of a name that was written and the last that was applied; None without any.

    Later is the plan made for the later moment; those for moments after ``now`` do not count. Raises InvalidInputError
    for a plan that this version cannot read.
    """
    written = store.made_plans.newest(1, before=now + _NO_TIME, name=name)
    texts = [store.made_plans.text(row.digest) for row in written]
    applied = store.plans.newest()
    plans = [plan_from_json(text, "the last plan in the state") for text in texts if text is not None]
    if applied is not None:
        plan = plan_from_json(applied, "the last applied plan in the state")
        plans += [plan] if plan.name == name and plan.as_of <= now else []
    return max(plans, key=lambda plan: plan.as_of, default=None)
