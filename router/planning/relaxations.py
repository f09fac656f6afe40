"""The smallest change of one rule that would place a job, and what a rule costs a job that is placed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from pricing.money import Usd
from router.jobs.residency import Residency
from router.jobs.spec import Job, MarketRule
from router.planning.alternatives import Alone, Around, alone, best_alone, fitting, ranked
from router.planning.candidates import Candidate, CandidateFinder, steps_to_do
from router.planning.plan import ConstraintCost, Relaxation
from router.planning.scene import window
from router.planning.slots import Slot, make_slots

_FARTHEST = timedelta(days=60)
_TRIED = 16


def without_residency(job: Job) -> Job:
    """The job allowed anywhere."""
    return job.model_copy(update={"residency": Residency()})


def without_egress_cap(job: Job) -> Job:
    """The job free to move any volume."""
    return job.model_copy(update={"data": job.data.model_copy(update={"egress_cap": None}) if job.data else None})


def relaxations_of(here: Around, candidates: Sequence[Candidate], finder: CandidateFinder) -> tuple[Relaxation, ...]:
    """One for each rule that is enough on its own, the others held in place: later deadline, more budget,
    wider rules."""
    found: list[Relaxation | None] = [_later(here, candidates), *_richer(here, candidates)]
    for change, words in _wider(here.job):
        found.append(_with_rules(here, change, words, candidates, finder))
    found.append(_roomier(here, candidates))
    return tuple(r for r in found if r is not None)


def _wider(job: Job) -> list[tuple[Job, str]]:
    changes: list[tuple[Job, str]] = []
    if job.residency.allow or job.residency.deny:
        changes.append((without_residency(job), "allow {region}"))
    if job.market.spot == "never":
        changes.append((job.model_copy(update={"market": MarketRule()}), "allow spot"))
    if job.market.spot == "only":
        changes.append((job.model_copy(update={"market": MarketRule()}), "allow on-demand"))
    if job.data is not None and job.data.egress_cap is not None:
        changes.append((without_egress_cap(job), "raise the egress cap to {gib:,.0f} GiB"))
    if job.gang.rdma == "required":
        gang = job.gang.model_copy(update={"rdma": "optional"})
        changes.append((job.model_copy(update={"gang": gang}), "do without an RDMA fabric"))
    return changes


def _with_rules(
    here: Around, changed: Job, words: str, before: Sequence[Candidate], finder: CandidateFinder
) -> Relaxation | None:
    known = {c.key for c in before}
    fresh = [c for c in finder.find(changed)[0] if c.key not in known and c.provisionable]
    best = best_alone(here, fresh)
    if best is None:
        return None
    c = best.candidate
    text = words.format(region=c.region, gib=sum(t.gib for t in c.transfers))
    return Relaxation(text, f"then {c.key}", best.cost)


def _later(here: Around, candidates: Sequence[Candidate]) -> Relaxation | None:
    """Fewest whole hours more until some candidate finishes."""
    job, scene = here.job, here.scene
    first, last = window(job, scene.now)
    if last is None:
        return None
    slots = _beyond(here, first)
    local = here.with_candidates(candidates)
    fastest = sorted(candidates, key=lambda c: (-c.on_time_steps_per_hour, c.usd_per_step, c.key))[:_TRIED]
    tried = [alone(local, c, slots) for c in {c.key: c for c in [*fastest, *ranked(job, candidates)[:4]]}.values()]
    done = [a for a in tried if a.finish is not None and not a.lacks]
    best = min(done, key=lambda a: (a.finish or last, a.cost, a.candidate.key), default=None)
    if best is None or best.finish is None or best.finish <= last:
        return None
    more = max(1, math.ceil((best.finish - last) / timedelta(hours=1) - 1e-9))
    return Relaxation(f"+{more} h", f"deadline {more} h later, then {best.candidate.key}", best.cost)


def _beyond(here: Around, first: datetime) -> tuple[Slot, ...]:
    """Hours from the job's first instant to well past its deadline; limits count where the plan's slots reach."""
    scene = here.scene
    known = [s for s in scene.slots if s.start >= first]
    end = scene.slots[-1].end
    more = make_slots(end, timedelta(hours=1), _FARTHEST, (), end + _FARTHEST)
    offset = scene.slots[-1].index + 1
    return (*known, *(Slot(offset + s.index, s.start, s.end, s.order) for s in more))


def _richer(here: Around, candidates: Sequence[Candidate]) -> list[Relaxation]:
    """The least more of the job's own budget, and of its team's, that is enough while the other one stays."""
    job, found = here.job, []
    if job.budget is not None:
        free = replace(here, job=job.model_copy(update={"budget": None}))
        found.append(_raised(free, candidates, job.budget, "budget of the job"))
    if here.team_left is not None:
        free = replace(here, team_left=None)
        found.append(_raised(free, candidates, here.team_left, f"budget of team {job.team}"))
    return [r for r in found if r is not None]


def _raised(free: Around, candidates: Sequence[Candidate], budget: Usd, words: str) -> Relaxation | None:
    """What is missing of ``budget`` where budgets count the job least; ``free`` is without that budget."""
    best = min(fitting(free, candidates), key=lambda a: (a.counted, a.cost, a.candidate.key), default=None)
    if best is None or best.counted <= budget:
        return None
    return Relaxation(f"+{_dollars(best.counted - budget)}", f"{words}, then {best.candidate.key}", best.cost)


def _dollars(amount: Usd) -> str:
    """Rounded up to the cent: less would not be enough."""
    return f"${math.ceil(amount.nanos / 10_000_000) / 100:,.2f}"


def _roomier(here: Around, candidates: Sequence[Candidate]) -> Relaxation | None:
    """The cheapest candidate that would fit were nobody else there, and what it needs more of."""
    best = best_alone(replace(here, load={}), candidates)
    if best is None or not here.load:
        return None
    short = [
        (name, amount)
        for name, amount in sorted(here.scene.use.get((here.job.name, best.candidate.key), {}).items())
        if any(
            here.load.get((name, s.index), 0.0) + amount > here.scene.shared[name].amount + 1e-6
            for s in here.scene.window(here.job)
        )
    ]
    if not short:
        return None
    text = ", ".join(f"+{amount} {here.scene.shared[name].unit} of {name}" for name, amount in short)
    return Relaxation(text, f"then {best.candidate.key}", best.cost)


def constraint_costs(
    here: Around, cost: Usd, candidates: Sequence[Candidate], finder: CandidateFinder
) -> tuple[ConstraintCost, ...]:
    """What residency, deadline and egress cap cost the job: its cost less that of its best single run without the rule.

    The others are held in place; a rule whose absence saves nothing costs zero and says so.
    """
    found: list[ConstraintCost] = []
    job = here.job
    if job.residency.allow or job.residency.deny:
        found.append(_cost_of(here, "residency", cost, _provisionable(finder, without_residency(job)), None))
    if job.data is not None and job.data.egress_cap is not None:
        found.append(_cost_of(here, "egress cap", cost, _provisionable(finder, without_egress_cap(job)), None))
    if job.deadline is not None:
        slots = _beyond(here, window(job, here.scene.now)[0])
        found.append(_cost_of(here, "deadline", cost, candidates, slots))
    return tuple(found)


def _provisionable(finder: CandidateFinder, job: Job) -> list[Candidate]:
    return [c for c in finder.find(job)[0] if c.provisionable]


def _cost_of(
    here: Around, rule: str, cost: Usd, candidates: Sequence[Candidate], slots: Sequence[Slot] | None
) -> ConstraintCost:
    best: Alone | None = best_alone(here, candidates, slots)
    if best is None or best.cost >= cost:
        return ConstraintCost(rule, Usd(0), "")
    finish = f", done {best.finish:%Y-%m-%d %H:%M}Z" if best.finish else ""
    return ConstraintCost(rule, cost - best.cost, f"{best.candidate.key}{finish}")


def least_hours(job: Job, candidates: Sequence[Candidate]) -> float:
    """Hours of the fastest candidate, start-up included, with the job's confidence."""
    return min((c.reserved_hours(steps_to_do(job, running=c.running)) for c in candidates), default=math.inf)
