"""Repair the plan after the program stopped within its gap: move a job to a cheaper place, the others held."""

from __future__ import annotations

from router.planning.problem.schedule import SlotHold
from router.planning.program.effort import Effort
from router.planning.program.left_shift import earliest_run
from router.planning.program.single_runs import job_context, rank_candidates
from router.planning.program.solve import PlacementSolution, compacted, with_holdings
from router.planning.rules.budgets import overspends

_PHASE = "repairs"
_TRIED = 8
_WORTH = 10_000_000  # nano-dollars: a cent


def improve_places(answer: PlacementSolution, effort: Effort) -> PlacementSolution:
    """Return the same jobs placed, never dearer; jobs that run now stay.

    Exact: each change is accepted by the re-priced total.
    """
    problem = answer.problem
    best = answer
    for job in problem.jobs:
        holds = best.holdings.get(job.name)
        if holds is None or any(problem.candidate(job.name, key).running for key in sorted({h.key for h in holds})):
            continue
        if effort.late(_PHASE):
            break
        context = job_context(problem, job, best.holdings)
        region = context.mates_region
        for candidate in rank_candidates(job, problem.all_candidates[job.name])[:_TRIED]:
            if candidate.running or {h.key for h in holds} == {candidate.key} or region not in (None, candidate.region):
                continue
            holdings = earliest_run(problem, job, candidate, context.load)
            if holdings is None:
                continue
            changed = _with_job_holdings(best, job.name, holdings)
            if changed.spent.nanos < best.spent.nanos - _WORTH and not overspends(problem, changed.runs, job.name):
                best = changed
    if best is answer:
        return answer
    return with_holdings(best, compacted(problem, best.holdings))


def _with_job_holdings(answer: PlacementSolution, job: str, holds: tuple[SlotHold, ...]) -> PlacementSolution:
    return with_holdings(answer, {**answer.holdings, job: holds})
