"""Plan many jobs of which some run: those stay that would stay alone, unless a job of higher priority needs the room.

The columns know no levels of displaced jobs. So the protected jobs are pinned first. Only where a job is left out whose
priority is above that of a pinned one, those below it are let go and the night is planned again. Design note 045.
"""

from __future__ import annotations

from dataclasses import replace

from pricing.money import Usd
from router.planning.columns.search import PHASE, Progress, solve_by_columns
from router.planning.effort import Effort
from router.planning.precedence import displaced_jobs
from router.planning.problem import PlacementProblem
from router.planning.solve import PlacementSolution, count_left_out
from router.planning.stays import fitting_together, pinned, stay_of

_MOST_PINNED_AGAIN = 3


def solve_with_running_jobs(
    problem: PlacementProblem, effort: Effort, gap: float, progress: Progress
) -> PlacementSolution:
    """Return the plan of many jobs, in which none of equal or lower priority displaces a running one.

    The bound holds for plans with as many jobs left out. That no fewer jobs could be displaced is not proven.
    """
    if not problem.protected:
        return solve_by_columns(problem, effort, gap, progress)
    stays = [
        stay
        for job in problem.jobs
        if job.name in problem.stays | problem.protected and (stay := stay_of(problem, job))
    ]
    must = [stay for stay in stays if stay.job.name in problem.stays]
    able = [stay for stay in stays if stay.job.name in problem.protected]
    together = fitting_together(problem, able, beside=must)
    names = {stay.job.name for stay in together}
    found = _solve_pinned(problem, names, effort.within(1 / 2, 1 / 2), gap, progress)
    if len(together) < len(able):
        found = replace(found, stage_one_proven=False)
    needed = max((job.priority for job in problem.jobs if job.name not in found.runs), default=None)
    loose = {name for name in names if needed is not None and problem.job[name].priority < needed}
    if not loose:
        return found
    progress(f"{len(loose)} running jobs may be displaced for jobs of higher priority")
    freed = _solve_pinned(problem, names - loose, effort.within(1 / 2, 1 / 2), gap, progress)
    sure = found.stage_one_proven and freed.stage_one_proven
    if found.rank <= freed.rank:
        return replace(found, stage_one_proven=sure)
    best = _pinned_again(problem, names - loose, freed, effort, gap, progress)
    # That fewer could be displaced is not excluded: the proof is for the jobs left out alone.
    return replace(best, stage_one_proven=sure and not any(best.rank))


def _pinned_again(
    problem: PlacementProblem,
    kept: set[str],
    best: PlacementSolution,
    effort: Effort,
    gap: float,
    progress: Progress,
) -> PlacementSolution:
    """Return the plan with fewer jobs displaced, where pinning one of them leaves no further job out."""
    displaced = sorted(displaced_jobs(problem, best.runs) - kept, key=lambda name: (-problem.job[name].priority, name))
    names = kept | {name for name in problem.protected if name not in displaced and name in best.runs}
    for number, name in enumerate(displaced):
        if effort.late(PHASE):
            break
        if number >= _MOST_PINNED_AGAIN:
            effort.stopped(PHASE)
            break
        trial = _solve_pinned(problem, names | {name}, effort.within(1 / 2, 1 / 2), gap, progress)
        if trial.rank < best.rank:
            # The bound without the pin holds for all plans with as many jobs left out; with it, for fewer plans.
            bound = best.bound_usd if count_left_out(trial) == count_left_out(best) else Usd(0)
            best, names = replace(trial, bound_usd=bound), names | {name}
    return best


def _solve_pinned(
    problem: PlacementProblem, names: set[str], effort: Effort, gap: float, progress: Progress
) -> PlacementSolution:
    """Return the plan in which these protected jobs stay; it is judged by the levels of the whole problem."""
    found = solve_by_columns(pinned(problem, names), effort, gap, progress)
    return replace(found, problem=problem)
