"""Place jobs that several offers leave less sure than asked again, beside all others.

One offer is as sure as the job asks by construction; of several, each may make the job late. So such a job runs on one,
or on several with more time than it asks for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from router.jobs.spec import Job
from router.planning.find.allowances import least_allowance, with_allowance
from router.planning.problem.commitments import has_cover
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import SlotHold
from router.planning.program.effort import Effort
from router.planning.program.formulation import formulate, holdings_of
from router.planning.program.left_shift import earliest_run
from router.planning.program.single_runs import JobContext, best_single_run, contexts_of
from router.planning.program.solve import PlacementSolution, with_holdings

CONFIDENCE = "confidence"  # the phase of the effort
_GAP, _NODES = 1e-3, 200  # of the program of one job


def tighter_confidence(confidence: float) -> float:
    """Return the confidence that is asked instead, so that several offers keep the one that the job asks: half way."""
    return 1 - (1 - confidence) / 2


def unsplit_jobs(answer: PlacementSolution, split: Iterable[Job]) -> tuple[PlacementSolution, tuple[Job, ...]]:
    """Return the answer with these jobs on one offer each, the cheapest with room, and those that find none.

    The jobs with the highest priority choose first; all others stay where they are.
    """
    without: list[Job] = []
    for job in sorted(split, key=lambda j: (-j.priority, j.name)):
        problem, here = answer.problem, _context(answer, job)
        best = best_single_run(here, problem.all_candidates[job.name])
        holds = None if best is None else earliest_run(problem, job, best.candidate, here.load)
        if holds is None:
            without.append(job)
        else:
            answer = with_holdings(answer, {**answer.holdings, job.name: holds})
    return answer, tuple(without)


def replan_jobs(
    answer: PlacementSolution, problem: PlacementProblem, split: Iterable[Job], effort: Effort
) -> PlacementSolution | None:
    """Return the answer with these jobs placed anew among their candidates of ``problem``, all others as they are.

    None where one finds no place there, or where spend is committed, which a job alone does not see.
    """
    ordered = sorted(split, key=lambda j: (-j.priority, j.name))
    names = {job.name for job in ordered}
    others = {name: holds for name, holds in answer.holdings.items() if name not in names}
    if has_cover(problem.limits) or not names | others.keys() <= problem.job.keys():
        return None
    answer = with_holdings(replace(answer, problem=problem), others)
    for job in ordered:
        holds = _place_alone(_context(answer, job), effort)
        if holds is None:
            return None
        answer = with_holdings(answer, {**answer.holdings, job.name: holds})
    return answer


def _context(answer: PlacementSolution, job: Job) -> JobContext:
    """Return the job's context beside what the others hold in the answer."""
    problem = answer.problem
    (here,) = contexts_of((job,), problem, answer)
    return here


def _place_alone(here: JobContext, effort: Effort) -> tuple[SlotHold, ...] | None:
    """Return the cheapest holdings of the job in what the others leave, by its own program; None where none fits."""
    job, problem = here.job, here.problem
    candidates = tuple(c for c in problem.candidates.get(job.name, ()) if here.mates_region in (None, c.region))
    if not candidates:
        return None
    alone = replace(
        problem,
        jobs=(with_allowance(job, least_allowance(job, here.team_left)),),
        candidates={job.name: candidates},
        limits=problem.limits.model_copy(update={"teams": ()}),
        held=here.load,
    )
    formulation = formulate(alone)
    program = formulation.program.fixed({formulation.layout.u[job.name]: 0.0})
    solution = effort.solve(CONFIDENCE, program, _GAP, None, _NODES)
    return holdings_of(alone, formulation.layout, solution.values).get(job.name) if solution.values else None


def without_jobs(answer: PlacementSolution, left_out: Iterable[Job]) -> PlacementSolution:
    """Return the answer without these jobs; that no answer could place them is not proven then."""
    names = {job.name for job in left_out}
    kept = {name: holds for name, holds in answer.holdings.items() if name not in names}
    return replace(with_holdings(answer, kept), stage_one_proven=answer.stage_one_proven and not names)
