"""State in a plan what its gangs cost others, which nobody pays: grams of CO2e and what they count.

Each function returns fields of the plan by name, None where the limits weigh nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TypedDict

from pricing.money import Usd
from router.jobs.limits import Limits
from router.planning.document.plan import Line, Plan, PlanCarbon
from router.planning.find.candidate import GangPart
from router.planning.find.emissions import ExternalCost
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import ScheduledRun


class ExternalFigures(TypedDict):
    """Fields of a job's summary and of an alternative."""

    grams_co2e: int | None
    carbon_usd: Usd | None


class ExternalLineFigures(ExternalFigures):
    """Fields of a line."""

    carbon_doubt: str


class ExternalPlanFigures(TypedDict):
    """Fields of a plan."""

    carbon: PlanCarbon | None


def external_of_line(
    problem: PlacementProblem, run: ScheduledRun, part: GangPart, *, falls_back: bool
) -> ExternalLineFigures:
    """Return the figures of one part of a gang, to the gram, with those of the run's fallback where the line has it."""
    cost = problem.external_costs.of_machines([(part.machines, part.machine, part.listing.region)])
    if cost is None:
        return {"grams_co2e": None, "carbon_usd": None, "carbon_doubt": ""}
    grams, usd = cost.grams_over(run.billed), cost.usd_per_hour.over(run.billed)
    behind = None if not falls_back or run.candidate.fallback is None else run.candidate.fallback.external
    if behind is not None:
        grams += behind.grams_over(run.fallback_billed)
        usd += behind.usd_per_hour.over(run.fallback_billed)
    return {"grams_co2e": round(grams), "carbon_usd": usd, "carbon_doubt": cost.doubt}


def external_of_gang(cost: ExternalCost | None, billed: timedelta) -> ExternalFigures:
    """Return the figures of a gang that is billed for so long."""
    if cost is None:
        return {"grams_co2e": None, "carbon_usd": None}
    return {"grams_co2e": round(cost.grams_over(billed)), "carbon_usd": cost.usd_per_hour.over(billed)}


def external_of_job(problem: PlacementProblem, lines: Sequence[Line]) -> ExternalFigures:
    """Return the sums of the figures of a job's lines."""
    if not problem.external_costs.are_weighed:
        return {"grams_co2e": None, "carbon_usd": None}
    return {"grams_co2e": _grams(lines), "carbon_usd": external_usd_of(lines)}


def external_of_plan(limits: Limits, lines: Sequence[Line]) -> ExternalPlanFigures:
    """Return the sums of the figures of all lines, with the weight that the limits state."""
    weight = limits.carbon
    return {"carbon": None if weight is None else _sum_of(weight.usd_per_tonne, lines)}


def external_of_part(plan: Plan, lines: Sequence[Line]) -> ExternalPlanFigures:
    """Return the same of some lines of a plan."""
    return {"carbon": None if plan.carbon is None else _sum_of(plan.carbon.usd_per_tonne, lines)}


def _sum_of(usd_per_tonne: Usd, lines: Sequence[Line]) -> PlanCarbon:
    return PlanCarbon(usd_per_tonne, _grams(lines), external_usd_of(lines))


def _grams(lines: Iterable[Line]) -> int:
    return sum(line.grams_co2e or 0 for line in lines)


def external_usd_of(lines: Iterable[Line]) -> Usd:
    """Return what the objective counts of the lines beside their cost."""
    return Usd.total(line.carbon_usd for line in lines if line.carbon_usd is not None)


def doubts_of_external(lines: Iterable[Line]) -> tuple[str, ...]:
    """Return the figures that stand in for unknown ones, each once."""
    return tuple(dict.fromkeys(line.carbon_doubt for line in lines if line.carbon_doubt))
