"""Place jobs that several offers leave less sure than asked on one offer each, beside all others. Pure.

One offer is as sure as the job asks by construction; of several, each may make the job late.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from router.jobs.spec import Job
from router.planning.alternatives import best_single_run
from router.planning.costing import lines_of
from router.planning.left_shift import earliest_run
from router.planning.solve import PlacementSolution, with_holdings
from router.planning.summary import contexts_of


def unsplit_jobs(answer: PlacementSolution, split: Iterable[Job]) -> tuple[PlacementSolution, tuple[Job, ...]]:
    """Return the answer with these jobs on one offer each, the cheapest with room, and those that find none.

    The jobs with the highest priority choose first; all others stay where they are.
    """
    without: list[Job] = []
    for job in sorted(split, key=lambda j: (-j.priority, j.name)):
        problem = answer.problem
        lines = [line for name in sorted(answer.runs) for line in lines_of(problem, answer.runs[name])]
        (here,) = contexts_of((job,), problem, answer, lines)
        best = best_single_run(here, problem.all_candidates[job.name])
        holds = None if best is None else earliest_run(problem, job, best.candidate, here.load)
        if holds is None:
            without.append(job)
        else:
            answer = with_holdings(answer, {**answer.holdings, job.name: holds})
    return answer, tuple(without)


def without_jobs(answer: PlacementSolution, left_out: Iterable[Job]) -> PlacementSolution:
    """Return the answer without these jobs; that no answer could place them is not proven then."""
    names = {job.name for job in left_out}
    kept = {name: holds for name, holds in answer.holdings.items() if name not in names}
    return replace(with_holdings(answer, kept), stage_one_proven=answer.stage_one_proven and not names)
