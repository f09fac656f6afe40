"""Keep a running job in its place unless moving is proven to save its ``min_saving``.

So no job flips between places within the gap.
"""

from __future__ import annotations

from router.planning.problem.problem import PlacementProblem
from router.planning.problem.schedule import ScheduledRun
from router.planning.program.effort import Effort
from router.planning.program.formulation import Formulation
from router.planning.program.solve import PlacementSolution, most_to_stay, solve_again
from router.planning.rules.program import ConstraintRow


def keep_places(
    problem: PlacementProblem, formulation: Formulation, effort: Effort, gap: float, answer: PlacementSolution
) -> PlacementSolution:
    """Return the answer, or one with the moved jobs held in place where that costs at most :func:`most_to_stay`."""
    moved = [job.name for job in problem.jobs if _left_its_place(problem, job.name, answer.runs.get(job.name, ()))]
    if not moved or answer.stage_two is None:
        return answer
    rows = []
    for name in moved:
        here = next(c for c in problem.candidates[name] if c.running)
        x = formulation.layout.x.get((name, here.key, 0))
        if x is not None:
            rows.append(ConstraintRow(f"stay {name}", ((x, 1.0),), ">=", 1.0))
    unmoved = solve_again(problem, formulation, answer.stage_two.with_rows(rows), effort, gap, answer)
    if unmoved is None:
        return answer
    most = most_to_stay(answer.spent.nanos, answer.bound_usd.nanos, gap)
    return unmoved if unmoved.spent.nanos <= most else answer


def _left_its_place(problem: PlacementProblem, name: str, runs: tuple[ScheduledRun, ...]) -> bool:
    here = next((c for c in problem.candidates[name] if c.running), None)
    return here is not None and bool(runs) and not (runs[0].candidate.running and runs[0].startups == 0)
