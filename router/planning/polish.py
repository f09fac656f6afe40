"""Small repairs after the program stopped within its gap: a job whose best other place, the others held, is
cheaper goes there."""

from __future__ import annotations

from dataclasses import replace

from router.planning.alternatives import around, ranked
from router.planning.compaction import compacted, earliest_run
from router.planning.schedule import Hold, runs_of
from router.planning.stages import Answer, threshold_of

_TRIED = 8
_WORTH = 10_000_000  # nano-dollars: a cent


def polished(answer: Answer) -> Answer:
    """The same jobs placed, never dearer; jobs that run now stay. Exact: each change is accepted by the
    re-priced total."""
    scene = answer.scene
    best = answer
    for job in scene.jobs:
        holds = best.holdings.get(job.name)
        if holds is None or any(scene.candidate(job.name, key).running for key in sorted({h.key for h in holds})):
            continue
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
    return _rebuilt(best, compacted(scene, best.holdings))


def _with(answer: Answer, job: str, holds: tuple[Hold, ...]) -> Answer:
    return _rebuilt(answer, {**answer.holdings, job: holds})


def _rebuilt(answer: Answer, holdings: dict[str, tuple[Hold, ...]]) -> Answer:
    scene = answer.scene
    runs = {
        name: answer.runs[name] if holds is answer.holdings.get(name) else runs_of(scene, scene.job[name], holds)
        for name, holds in holdings.items()
    }
    return replace(answer, runs=runs, holdings=holdings, threshold=threshold_of(scene, runs))


def _over_budget(answer: Answer, name: str) -> bool:
    """Whether the job's own budget is broken, moves at their dearest; a team's cannot be, as the total fell by
    this job alone."""
    job = answer.scene.job[name]
    if job.budget is None:
        return False
    return (
        sum(r.candidate.expected_usd(r.steps) for r in answer.runs[name])
        + sum(t.dearest.dollars() for t in answer.runs[name][0].candidate.transfers)
        > job.budget.dollars()
    )
