"""Small repairs after the program stopped within its gap: a job whose best other place, the others held, is
cheaper goes there."""

from __future__ import annotations

from pricing.money import Usd
from router.planning.alternatives import around, dearest_moves, ranked
from router.planning.costing import compute_usd
from router.planning.effort import Effort
from router.planning.left_shift import compacted, earliest_run
from router.planning.schedule import Hold
from router.planning.solve import Answer, with_holdings

_PHASE = "repairs"
_TRIED = 8
_WORTH = 10_000_000  # nano-dollars: a cent


def polished(answer: Answer, effort: Effort) -> Answer:
    """The same jobs placed, never dearer; jobs that run now stay. Exact: each change is accepted by the
    re-priced total."""
    scene = answer.scene
    best = answer
    for job in scene.jobs:
        holds = best.holdings.get(job.name)
        if holds is None or any(scene.candidate(job.name, key).running for key in sorted({h.key for h in holds})):
            continue
        if effort.late(_PHASE):
            break
        here = around(scene, job, best.holdings)
        for candidate in ranked(job, scene.all_candidates[job.name])[:_TRIED]:
            if candidate.running or {h.key for h in holds} == {candidate.key}:
                continue
            found = earliest_run(scene, job, candidate, here.load)
            if found is None:
                continue
            other = _with(best, job.name, found)
            if other.spent.nanos < best.spent.nanos - _WORTH and not _over_budget(other, job.name):
                best = other
    if best is answer:
        return answer
    return with_holdings(best, compacted(scene, best.holdings))


def _with(answer: Answer, job: str, holds: tuple[Hold, ...]) -> Answer:
    return with_holdings(answer, {**answer.holdings, job: holds})


def _over_budget(answer: Answer, name: str) -> bool:
    """Whether the job's own budget is broken, or its team's: moves count at their dearest, so that a job that really
    costs less may count for more."""
    scene = answer.scene
    job = scene.job[name]
    if job.budget is not None and _counted(answer, name) > job.budget:
        return True
    team = next((t for t in scene.limits.teams if t.team == job.team), None)
    if team is None:
        return False
    members = [other for other in answer.runs if scene.job[other].team == job.team]
    return Usd.total(_counted(answer, other) for other in members) > team.budget - team.spent


def _counted(answer: Answer, name: str) -> Usd:
    """A placed job as budgets count it: compute, and the moves into each region it uses at their dearest."""
    runs = answer.runs[name]
    regions = {run.candidate.region: run.candidate for run in runs}
    return compute_usd(runs) + Usd.total(dearest_moves(c) for c in regions.values())
