"""Add up what a plan uses of each limit over time, and of each team's budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from pricing.money import Usd, divide_half_even
from pricing.units import BYTES_PER_GB, BYTES_PER_GIB
from router.jobs.limits import Limits, TeamBudget
from router.planning.document.plan import JobSummary, Line, PlannedMove, ShadowPrice
from router.planning.document.plan_usage import EgressUsage, LimitUsage, TeamUsage, UseStep
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import ScheduledRun

_TIGHT = 1e-6
_MICRO = timedelta(microseconds=1)


def limits_used(
    problem: PlacementProblem, runs: Iterable[ScheduledRun], shadow: Sequence[ShadowPrice]
) -> tuple[LimitUsage, ...]:
    """Return the limits that are full at some time or have a shadow price, by name. Budgets are not among them."""
    uses: dict[str, list[UseStep]] = {}
    for run in runs:
        for name, amount in problem.use[run.job, run.candidate.key].items():
            uses.setdefault(name, []).append(UseStep(run.start, run.end, amount * run.share))
    steps = {name: add_up_use(found) for name, found in uses.items()}
    full = {name for name, found in steps.items() if max(s.used for s in found) >= problem.shared[name].amount - _TIGHT}
    names = sorted(full | {price.limit for price in shadow if price.limit in problem.shared})
    return tuple(
        LimitUsage(
            limit.name,
            limit.kind,
            limit.cloud,
            limit.region,
            limit.market,
            unit=limit.unit,
            amount=limit.amount,
            full=limit.name in full,
            use=steps.get(limit.name, ()),
        )
        for limit in (problem.shared[name] for name in names)
    )


def add_up_use(uses: Sequence[UseStep]) -> tuple[UseStep, ...]:
    """Return the sum of overlapping uses as steps in time order; equal neighbours are one step."""
    starts: dict[datetime, list[UseStep]] = {}
    for use in uses:
        starts.setdefault(use.start, []).append(use)
    active: list[UseStep] = []
    steps: list[UseStep] = []
    for start, end in pairwise(sorted({edge for use in uses for edge in (use.start, use.end)})):
        active = [use for use in active if use.end > start] + starts.get(start, [])
        used = round(math.fsum(use.used for use in active), 6)
        if not used:
            continue
        if steps and steps[-1].end == start and steps[-1].used == used:
            steps[-1] = UseStep(steps[-1].start, end, used)
        else:
            steps.append(UseStep(start, end, used))
    return tuple(steps)


def teams_used(
    teams: Iterable[TeamBudget],
    jobs: Iterable[JobSummary],
    lines: Sequence[Line],
    moves: Sequence[PlannedMove],
    now: datetime,
) -> tuple[TeamUsage, ...]:
    """Return what the plan adds to the spending of each team that has a budget, by team."""
    team_of = {job.job: job.team for job in jobs}
    return tuple(
        _team_used(
            each,
            [line for line in lines if team_of[line.job] == each.team],
            [move for move in moves if team_of[move.job] == each.team],
            now,
        )
        for each in sorted(teams, key=lambda t: t.team)
    )


def _team_used(budget: TeamBudget, lines: Sequence[Line], moves: Sequence[PlannedMove], now: datetime) -> TeamUsage:
    ordered = regions_of_orders(lines)
    later = [_within_month(line, now) for line in lines if line.kind == "outlook"]
    month = month_of(now)
    later += [m.cost_usd for m in moves if (m.job, m.to) not in ordered and m.month == month]
    return TeamUsage(budget.team, budget.budget, budget.spent, orders_cost(lines, moves), Usd.total(later))


def orders_cost(lines: Sequence[Line], moves: Sequence[PlannedMove]) -> Usd:
    """Return the cost of the orders: their lines, and the moves into regions that a job's orders use."""
    ordered = regions_of_orders(lines)
    orders = [line.cost_usd for line in lines if line.kind == "order"]
    return Usd.total([*orders, *(m.cost_usd for m in moves if (m.job, m.to) in ordered)])


def regions_of_orders(lines: Iterable[Line]) -> frozenset[tuple[str, str]]:
    """Return job and ``cloud/region`` of every order."""
    return frozenset((line.job, f"{line.cloud}/{line.region}") for line in lines if line.kind == "order")


def month_of(moment: datetime) -> str:
    """Return the calendar month in UTC, ``2026-11``."""
    return moment.astimezone(UTC).strftime("%Y-%m")


def end_of_month(moment: datetime) -> datetime:
    """Return the first instant (UTC) of the next calendar month."""
    at = moment.astimezone(UTC)
    return datetime(at.year + at.month // 12, at.month % 12 + 1, 1, tzinfo=UTC)


def _within_month(line: Line, now: datetime) -> Usd:
    """Return the part of a line's cost that falls into the month of ``now``, by its share of time."""
    whole = line.end - line.start
    inside = min(line.end, end_of_month(now)) - line.start
    if not whole or inside >= whole:
        return line.cost_usd
    return Usd(divide_half_even(line.cost_usd.nanos * max(inside // _MICRO, 0), whole // _MICRO))


def egress_used(limits: Limits, moves: Iterable[PlannedMove], now: datetime) -> tuple[EgressUsage, ...]:
    """Return what leaves each capped cloud, by cloud and month: the month of ``now``, and each in which more leaves."""
    month = month_of(now)
    added = {(cloud, month): 0.0 for cloud in limits.egress_caps_gb}
    for move in moves:
        cloud = move.source.partition("/")[0]
        if cloud in limits.egress_caps_gb and cloud != move.to.partition("/")[0]:
            added[cloud, move.month] = added.get((cloud, move.month), 0.0) + move.gib * BYTES_PER_GIB / BYTES_PER_GB
    moved = limits.egress_month_to_date_gb
    return tuple(
        EgressUsage(
            cloud,
            at,
            cap_gb=float(limits.egress_caps_gb[cloud]),
            before_gb=float(moved.get(cloud, 0)) if at == month else 0.0,
            plan_gb=round(gb, 6),
        )
        for (cloud, at), gb in sorted(added.items())
    )
