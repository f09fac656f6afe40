"""Write a part of a plan as text: the jobs of some teams, and sums by team or by pool. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pricing.money import Usd
from pricing.units import format_count
from router.planning.document.plan import JobSummary, Plan
from router.render.plan_text import jobs_table
from router.render.record_table import RecordTable, TableColumn
from router.render.tables import MARKETS, PLAIN, Screen, format_usd, wrap_text

SumsBy = Literal["team", "pool"]
_MOVES: Final = "moving data"


@dataclass(frozen=True, slots=True)
class PlanSum:
    """The jobs of one team, or the lines in one pool, summed up; ``gpu_hours`` are those expected to be billed."""

    name: str
    jobs: frozenset[str]
    left_out: frozenset[str]
    gpu_hours: float
    cost_usd: Usd


def jobs_of(plan: Plan, teams: Collection[str], names: Collection[str]) -> tuple[JobSummary, ...]:
    """Return the jobs of these teams and of these names; an empty collection rules nothing out."""
    return tuple(job for job in plan.jobs if (not teams or job.team in teams) and (not names or job.job in names))


def plan_sums(plan: Plan, jobs: Sequence[JobSummary], by: SumsBy) -> tuple[PlanSum, ...]:
    """Return sums over the jobs, dearest first; those by pool have moves of data in a row of their own."""
    team = {job.job: job.team for job in jobs}
    sums: dict[str, PlanSum] = {}

    def add(name: str, job: str, gpu_hours: float, usd: Usd, *, placed: bool = True) -> None:
        old = sums.get(name, PlanSum(name, frozenset(), frozenset(), 0.0, Usd(0)))
        jobs, left_out = (old.jobs | {job}, old.left_out) if placed else (old.jobs, old.left_out | {job})
        sums[name] = PlanSum(name, jobs, left_out, old.gpu_hours + gpu_hours, old.cost_usd + usd)

    for line in (line for line in plan.lines if line.job in team):
        pool = f"{line.cloud}/{line.region} {line.accelerator} {MARKETS[line.market]}"
        hours = float(line.hours) * line.accelerators
        add(pool if by == "pool" else team[line.job], line.job, hours, line.cost_usd)
    for move in (move for move in plan.moves if move.job in team):
        add(_MOVES if by == "pool" else team[move.job], move.job, 0.0, move.cost_usd)
    for left in (left for left in plan.unplaced if left.job in team and by == "team"):
        add(left.team, left.job, 0.0, Usd(0), placed=False)
    return tuple(sorted(sums.values(), key=lambda row: (-row.cost_usd.nanos, row.name)))


def sums_text(plan: Plan, jobs: Sequence[JobSummary], by: SumsBy, screen: Screen = PLAIN) -> str:
    """Return a table of the sums, and what they come to of the plan's total."""
    return f"{_sums_table(by).text(plan_sums(plan, jobs, by), screen)}\n\n{_share_of_plan(plan, jobs)}\n"


def sums_json(plan: Plan, jobs: Sequence[JobSummary], by: SumsBy) -> str:
    """Return the sums as a list of objects; dollars are decimal text."""
    return json.dumps(_sums_table(by).records(plan_sums(plan, jobs, by)), indent=2) + "\n"


def _sums_table(by: SumsBy) -> RecordTable[PlanSum]:
    left: TableColumn[PlanSum] = TableColumn(
        "left_out", lambda row: row.left_out, "LEFT OUT", _count, right=True, plain=sorted
    )
    return RecordTable(
        (
            TableColumn(by, lambda row: row.name, by.upper()),
            TableColumn("jobs", lambda row: row.jobs, "JOBS", _count, right=True, plain=sorted),
            *([left] if by == "team" else []),
            TableColumn(
                "gpu_hours",
                lambda row: row.gpu_hours,
                "GPU HOURS",
                "{:,.0f}".format,
                right=True,
                plain=lambda hours: round(hours, 6),
            ),
            TableColumn("cost_usd", lambda row: row.cost_usd, "COST", format_usd, right=True),
        )
    )


def _count(names: frozenset[str]) -> str:
    return str(len(names))


def jobs_text(plan: Plan, jobs: Sequence[JobSummary], screen: Screen = PLAIN) -> str:
    """Return the rows of some jobs, why others of them are left out, and what they come to of the plan's total."""
    names = {job.job for job in jobs}
    left = [wrap_text(f"left out: {each.job}, {each.reason}", "  ") for each in plan.unplaced if each.job in names]
    parts = [jobs_table(plan, jobs, screen), "\n".join(left), _share_of_plan(plan, jobs)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _share_of_plan(plan: Plan, jobs: Sequence[JobSummary]) -> str:
    cost = Usd.total(job.cost_usd for job in jobs)
    own = f"{len(jobs)} of " if len(jobs) < len(plan.jobs) else ""
    return f"{own}{format_count(len(plan.jobs), 'job')}: {format_usd(cost)} of {format_usd(plan.cost_usd)}"
