"""Decide which running jobs keep their places: those that cannot resume always, others unless they would move alone.

A stay is one unbroken run from now on the machines that the job holds. Design note 045.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pricing.money import Usd
from pricing.places import RegionId
from pricing.units import BYTES_PER_GB
from router.jobs.spec import Job
from router.planning.alternatives import dearest_moves
from router.planning.candidates import Candidate, steps_to_do
from router.planning.costing import compute_usd, moves_of, objective_usd
from router.planning.effort import Effort
from router.planning.egress_caps import full_cap
from router.planning.formulation import formulate
from router.planning.left_shift import Load, add_load, earliest_run, room_for, run_from
from router.planning.problem import PlacementProblem, group_members
from router.planning.schedule import SlotHold, runs_of, starts_of

_PHASE = "staying"
_SAME = 1e-6  # relative; costs that differ by no more are the same but for the solver's arithmetic
_CENT = 1e-6  # dollars
_NODES = 200


@dataclass(frozen=True, slots=True)
class Stay:
    """The unbroken run of a job that goes on where it runs, its cost with moves, and what budgets count."""

    job: Job
    holds: tuple[SlotHold, ...]
    usd: float
    counted: Usd


def keep_running(problem: PlacementProblem, effort: Effort) -> PlacementProblem:
    """Return the problem with its stays: jobs that cannot resume hold nothing else, and others are protected.

    Of jobs that cannot resume, as many stay as fit together, by priority, then by name. A job that can resume is
    protected if it would stay were it alone.
    """
    stays = [stay for job in problem.jobs if (stay := stay_of(problem, job)) is not None]
    if not stays:
        return problem
    fixed = fitting_together(problem, (stay for stay in stays if stay.job.checkpoint is None))
    resumable = [stay for stay in stays if stay.job.checkpoint is not None]
    protected = frozenset(stay.job.name for stay in resumable if _prefers_to_stay(problem, stay, effort))
    return pinned(replace(problem, protected=protected), (stay.job.name for stay in fixed))


def pinned(problem: PlacementProblem, names: Iterable[str]) -> PlacementProblem:
    """Return the problem in which these jobs may only go on where they run."""
    chosen = frozenset(names)
    if not chosen:
        return problem
    candidates = {
        name: tuple(c for c in found if c.running or name not in chosen) for name, found in problem.candidates.items()
    }
    return replace(problem, candidates=candidates, stays=problem.stays | chosen)


def stay_of(problem: PlacementProblem, job: Job) -> Stay | None:
    """Return the job's stay; None where its window, limits or budgets do not allow it even if the job were alone."""
    here = _here(problem, job)
    if here is None:
        return None
    slots = problem.slots_for(job, here)
    if not slots or slots[0].index != 0 or slots[0].start != problem.now:
        return None
    holds = run_from(problem, job, here, {}, slots)
    if holds is None:
        return None
    runs = {job.name: runs_of(problem, job, holds)}
    counted = compute_usd(runs[job.name]) + dearest_moves(here)
    if job.budget is not None and counted > job.budget:
        return None
    if any(team.team == job.team and counted > team.budget - team.spent for team in problem.limits.teams):
        return None
    return Stay(job, holds, _cost(problem, job, holds), counted)


def fitting_together(problem: PlacementProblem, stays: Iterable[Stay], beside: Iterable[Stay] = ()) -> tuple[Stay, ...]:
    """Return the stays that the limits file and groups of jobs allow together, taken by priority, then by name.

    Those ``beside`` them are counted, and are not among them.
    """
    load: Load = {}
    groups = group_members(problem.jobs)
    homes: dict[str | None, RegionId] = {}
    left = {team.team: team.budget - team.spent for team in problem.limits.teams}
    for stay in beside:
        add_load(load, problem, stay.job, stay.holds, 1.0)
        if stay.job.group in groups:
            homes.setdefault(stay.job.group, problem.candidate(stay.job.name, stay.holds[0].key).region)
        if stay.job.team in left:
            left[stay.job.team] -= stay.counted
    kept = []
    for stay in sorted(stays, key=lambda s: (-s.job.priority, s.job.name)):
        here = problem.candidate(stay.job.name, stay.holds[0].key)
        team, group = stay.job.team, stay.job.group
        if group in groups and homes.get(group, here.region) != here.region:
            continue
        fits = full_cap(problem, here, load, stay.holds[0].slot.month) is None and all(
            room_for(problem, stay.job, here, load, hold.slot, hold.share) for hold in stay.holds
        )
        if not fits or (team in left and stay.counted > left[team]):
            continue
        add_load(load, problem, stay.job, stay.holds, 1.0)
        if group in groups:
            homes[group] = here.region
        if team in left:
            left[team] -= stay.counted
        kept.append(stay)
    return tuple(kept)


def _here(problem: PlacementProblem, job: Job) -> Candidate | None:
    """Return the candidate on which the job runs now."""
    return next((c for c in problem.candidates[job.name] if c.running), None)


def _cost(problem: PlacementProblem, job: Job, holds: tuple[SlotHold, ...]) -> float:
    """Return what the job counts alone with these holdings: machines, carbon, moves, thresholds of starts."""
    runs = runs_of(problem, job, holds)
    moves = Usd.total(move.cost_usd for move in moves_of(problem, {job.name: runs}))
    return (objective_usd(runs) + moves).dollars() + starts_of(runs) * job.gang.min_saving.dollars()


def _prefers_to_stay(problem: PlacementProblem, stay: Stay, effort: Effort) -> bool:
    """Return whether no schedule of the job alone costs less than its stay.

    Formulas decide most cases; where a cheaper place is too slow or too late for an unbroken run, the program of the
    job alone does. While that does not know, the job is protected.
    """
    job = stay.job
    most = stay.usd * (1 + _SAME) + _CENT
    cheaper = [c for c in problem.candidates[job.name] if not c.running and _least_usd(job, c) < most]
    if not cheaper and not dearest_moves(problem.candidate(job.name, stay.holds[0].key)).nanos:
        return True
    for candidate in cheaper:
        run = earliest_run(problem, job, candidate, {})
        if run is not None and _is_affordable(problem, job, candidate, run):
            cost = _cost(problem, job, run)
            if stay.usd > cost * (1 + _SAME) + _CENT:
                return False
    alone = replace(problem, jobs=(job,), candidates={job.name: problem.candidates[job.name]}, protected=frozenset())
    formulation = formulate(alone)
    placed = formulation.program.fixed(dict.fromkeys(formulation.layout.u.values(), 0.0))
    solution = effort.solve(_PHASE, placed, 0.0, None, _NODES)
    return not solution.values or stay.usd <= solution.objective * (1 + _SAME) + _CENT


def _least_usd(job: Job, c: Candidate) -> float:
    """Return a lower bound of what doing all steps on the candidate costs, moves at their cheapest tier."""
    steps = steps_to_do(job, running=False)
    moves = sum(
        min(tier.price.dollars() for tier in t.tariff.tiers) * t.volume_bytes / BYTES_PER_GB for t in c.transfers
    )
    return c.expected_objective(steps) + job.gang.min_saving.dollars() + moves


def _is_affordable(problem: PlacementProblem, job: Job, candidate: Candidate, run: tuple[SlotHold, ...]) -> bool:
    counted = compute_usd(runs_of(problem, job, run)) + dearest_moves(candidate)
    if job.budget is not None and counted > job.budget:
        return False
    return all(team.team != job.team or counted <= team.budget - team.spent for team in problem.limits.teams)
