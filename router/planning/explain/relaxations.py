"""Find the smallest change of one rule that would place a job, and the cost of rules to placed jobs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from pricing.money import NANOS_PER_CENT, Usd
from router.jobs.limits import Maintenance
from router.jobs.quantities import format_duration
from router.jobs.residency import Residency
from router.jobs.spec import Job, MarketRule
from router.planning.document.plan import ConstraintCost, Relaxation
from router.planning.find.affinity import affinity_of
from router.planning.find.allowances import least_allowance, own_allowance, with_allowance
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import find_for_plan, placement_type_of, rules_by_placement
from router.planning.find.dropped_listings import DroppedListing
from router.planning.find.limit_kinds import stated_limits
from router.planning.find.placement_type import JobPlacementType
from router.planning.find.shared_limits import ENOUGH, LimitCounter
from router.planning.problem.dominance import drop_dominated
from router.planning.problem.problem import Slot, most_starts, window
from router.planning.program.left_shift import earliest_run, may_begin, run_from
from router.planning.program.single_runs import (
    FARTHEST,
    JobContext,
    SingleRun,
    best_single_run,
    evaluate_single_run,
    fitting_runs,
    slots_past_deadline,
    soonest_run,
    without_maintenance,
)
from router.planning.rules.budgets import OWN_WORDS, team_row
from router.planning.rules.capacity import shortage
from router.planning.rules.egress_caps import cap_increase, full_cap, without_cap


def without_residency(job: Job) -> Job:
    """Return the job without residency rules."""
    return job.model_copy(update={"residency": Residency()})


def without_egress_cap(job: Job) -> Job:
    """Return the job without an egress cap."""
    return job.model_copy(update={"data": job.data.model_copy(update={"egress_cap": None}) if job.data else None})


def without_deadline(job: Job, now: datetime) -> Job:
    """Return the job without a deadline."""
    first, last = window(job, now)
    # A job without a deadline begins within max_wait: it may still begin whenever the deadline let it.
    wait = job.max_wait if last is None else max(job.max_wait, last - first)
    return job.model_copy(update={"deadline": None, "max_wait": wait})


def with_any_machines(job: Job) -> Job:
    """Return the job without a stated number of machines."""
    return job.model_copy(update={"gang": job.gang.model_copy(update={"machines": None})})


def without_placement(job: Job) -> Job:
    """Return the job without a placement that rules offers out."""
    return job.model_copy(update={"placement": "none"})


def relaxations_of(
    here: JobContext, candidates: Sequence[Candidate], dropped: Sequence[DroppedListing], finder: CandidateFinder
) -> tuple[Relaxation, ...]:
    """Return a relaxation for each rule whose change is enough on its own, the others held in place.

    Rules are the deadline, budgets, the job's own rules and the limits. ``dropped`` is what the job's rules ruled out.
    """
    relaxations: list[Relaxation | None] = [_later_deadline(here, candidates), *_more_money(here, candidates)]
    for change, words in _wider_rules(here.job, dropped):
        relaxations.append(_with_rules(here, change, words, candidates, finder))
    relaxations.append(_more_saves(here, candidates, finder))
    relaxations.append(_one_move(here, candidates))
    relaxations += _other_maintenance(here, candidates)
    relaxations.append(_more_egress(here, candidates))
    relaxations.append(_alone(here, candidates))
    relaxations.append(_more_room(here, candidates, finder))
    return tuple(r for r in relaxations if r is not None)


_ALLOW: Final = "allow {region}"


def _wider_rules(job: Job, dropped: Sequence[DroppedListing]) -> list[tuple[Job, str]]:
    """Return the job with one of its own rules dropped, for each such rule, with the change in words."""
    changes: list[tuple[Job, str]] = []
    if job.residency.allow or job.residency.deny:
        changes.append((without_residency(job), _ALLOW))
    if job.market.spot == "never":
        changes.append((job.model_copy(update={"market": MarketRule()}), "allow spot"))
    if job.market.spot == "only":
        changes.append((job.model_copy(update={"market": MarketRule()}), "allow on-demand"))
    if job.data is not None and job.data.egress_cap is not None:
        changes.append((without_egress_cap(job), "raise the egress cap to {gib:,.0f} GiB"))
    if job.max_price is not None:
        changes.append((job.model_copy(update={"max_price": None}), "{price}"))
    if job.gang.rdma == "required":
        gang = job.gang.model_copy(update={"rdma": "optional"})
        changes.append((job.model_copy(update={"gang": gang}), "do without an RDMA fabric"))
    if job.gang.machines is not None:
        changes.append((with_any_machines(job), "any number of machines"))
    if rules_by_placement(job, dropped):
        changes.append((without_placement(job), "placement none"))
    return changes


def _with_rules(
    here: JobContext, changed: Job, words: str, before: Sequence[Candidate], finder: CandidateFinder
) -> Relaxation | None:
    """Return the relaxation that the changed job brings: its best run on candidates that it did not have before.

    A gang that it had counts as new where its rates differ, as those of spot with a fallback behind it do.
    """
    known = {c.key: c for c in before}
    fresh = [c for c in find_for_plan(finder, changed)[0] if known.get(c.key) != c and c.provisionable]
    best = _one_region_more(here, changed, fresh, finder) if words == _ALLOW else best_single_run(here, fresh)
    if best is None:
        return None
    c = best.candidate
    text = words.format(region=c.region, gib=sum(t.gib for t in c.transfers), price=_price_words(c))
    return Relaxation(text, f"then {c.key}", best.cost)


_MOST_REGIONS: Final = 8  # that are tried alone


def _one_region_more(
    here: JobContext, free_job: Job, fresh: Sequence[Candidate], finder: CandidateFinder
) -> SingleRun | None:
    """Return the best run where one region alone is allowed, of the cheapest with all allowed; None if none fits.

    ``free_job`` may run anywhere, on ``fresh`` gangs. With one region allowed no pool or fallback of others is behind
    its gangs, so that it may cost more, or not fit.
    """
    best: SingleRun | None = None
    for _ in range(_MOST_REGIONS):
        cheapest = best_single_run(here, fresh)
        if cheapest is None or (best is not None and best.cost <= cheapest.cost):
            break
        region = cheapest.candidate.region
        residency = Residency.model_validate({"allow": [str(region)]})
        alone = free_job.model_copy(update={"residency": residency})
        run = best_single_run(here, [c for c in find_for_plan(finder, alone)[0] if c.provisionable])
        if run is not None and (best is None or run.cost < best.cost):
            best = run
        fresh = [c for c in fresh if c.region != region]
    return best


_CHECKPOINT_INTERVAL: Final = "checkpoint interval "
_SHORT_INTERVALS: Final = (timedelta(hours=1), timedelta(minutes=15))


def _with_interval(job: Job, interval: timedelta) -> Job:
    """Return the job with checkpoints so far apart; a job without any stays as it is."""
    checkpoint = job.checkpoint and job.checkpoint.model_copy(update={"interval": interval})
    return job.model_copy(update={"checkpoint": checkpoint})


def _more_saves(here: JobContext, candidates: Sequence[Candidate], finder: CandidateFinder) -> Relaxation | None:
    """Return the run of a job that loses less at once than with the interval that costs least in the mean.

    None for a job that states its interval, or has none.
    """
    job = here.job
    if job.deadline is None or job.checkpoint is None or job.checkpoint.interval is not None:
        return None
    longest = max((c.risk.interval_hours for c in candidates), default=math.inf)
    interval = next((each for each in _SHORT_INTERVALS if each / timedelta(hours=1) < longest), None)
    if interval is None:
        return None
    found = [c for c in find_for_plan(finder, _with_interval(job, interval))[0] if c.provisionable]
    best = best_single_run(here, found)
    if best is None:
        return None
    return Relaxation(f"{_CHECKPOINT_INTERVAL}{format_duration(interval)}", f"then {best.candidate.key}", best.cost)


def without_max_moves(job: Job) -> Job:
    """Return the job without a bound on its starts."""
    return job.model_copy(update={"gang": job.gang.model_copy(update={"max_moves": None})})


def _one_move(here: JobContext, candidates: Sequence[Candidate]) -> Relaxation | None:
    """Return the run that a job which may not move would have elsewhere; None where it may, or where none fits."""
    if most_starts(here.job) != 0:
        return None
    best = best_single_run(replace(here, job=without_max_moves(here.job)), candidates)
    return None if best is None else Relaxation("max_moves 1", f"then {best.candidate.key}", best.cost)


MOVE_MAINTENANCE = "move maintenance "


def _other_maintenance(here: JobContext, candidates: Sequence[Candidate]) -> list[Relaxation]:
    """Return each maintenance window without which the job would fit; where none is enough alone, all together."""
    windows = tuple(dict.fromkeys(window for c in candidates for window in c.closed))
    found = [_without(here, candidates, (window,)) for window in windows]
    if len(windows) > 1 and not any(found):
        found = [_without(here, candidates, windows)]
    return [r for r in found if r is not None]


def _without(here: JobContext, candidates: Sequence[Candidate], windows: tuple[Maintenance, ...]) -> Relaxation | None:
    best = best_single_run(here, [without_maintenance(c, windows) for c in candidates])
    if best is None:
        return None
    names = ", ".join(window.name for window in windows)
    return Relaxation(f"{MOVE_MAINTENANCE}{names}", f"then {best.candidate.key}", best.cost)


def _more_egress(here: JobContext, candidates: Sequence[Candidate]) -> Relaxation | None:
    """Return the least increase of one cloud's cap on egress, in whole gigabytes, with which some candidate fits."""
    problem, found = here.problem, []
    for cloud in sorted(problem.limits.egress_caps_gb):
        free = replace(here, problem=without_cap(problem, cloud))
        for run in fitting_runs(free, candidates):
            local = free.with_candidates([run.candidate])
            holds = earliest_run(local.problem, here.job, run.candidate, here.load)
            full = None if holds is None else full_cap(problem, run.candidate, here.load, holds[0].slot.month)
            if full is not None and full[0] == cloud:
                text = cap_increase(full[1], cloud)
                found.append((full[1], run.cost, Relaxation(text, f"then {run.candidate.key}", run.cost)))
    return min(found, key=lambda item: (*item[:2], item[2].detail))[2] if found else None


LEAVE_GROUP = "leave group "


def _alone(here: JobContext, candidates: Sequence[Candidate]) -> Relaxation | None:
    """Return the run that the job would have outside its group; None where the group sets no bound, or none fits."""
    if here.mates_region is None:
        return None
    best = best_single_run(replace(here, mates_region=None), candidates)
    if best is None:
        return None
    return Relaxation(f"{LEAVE_GROUP}{affinity_of(here.job)}", f"then {best.candidate.key}", best.cost)


def _later_deadline(here: JobContext, candidates: Sequence[Candidate]) -> Relaxation | None:
    """Return the fewest whole hours more until some candidate finishes.

    For a job without a deadline: until some candidate may begin.
    """
    job, problem = here.job, here.problem
    last = window(job, problem.now)[1]
    if last is None:
        return _longer_wait(here, candidates)
    best = soonest_run(here, candidates)
    if best is None or best.finish is None or best.finish <= last:
        return None
    more = max(1, math.ceil((best.finish - last) / timedelta(hours=1) - 1e-9))
    return Relaxation(f"+{more} h", f"deadline {more} h later, then {best.candidate.key}", best.cost)


def _longer_wait(here: JobContext, candidates: Sequence[Candidate]) -> Relaxation | None:
    """Return the least longer ``max_wait``, in whole hours, with which some candidate may begin."""
    job, first = here.job, window(here.job, here.problem.now)[0]
    if not here.load and all(c.dates[0] is None and not c.closed for c in candidates):
        return None
    without_max_wait = replace(here, job=job.model_copy(update={"max_wait": FARTHEST}))
    local = without_max_wait.with_candidates(candidates)
    slots = slots_past_deadline(here, first)
    best: tuple[datetime, Usd, Candidate] | None = None
    for c in candidates:
        holds = earliest_run(local.problem, local.job, c, local.load, slots)
        if holds is None or (best is not None and holds[0].slot.start > best[0]):
            continue
        run = evaluate_single_run(local, c, slots)
        if not run.lacks and (best is None or (holds[0].slot.start, run.cost, c.key) < (*best[:2], best[2].key)):
            best = (holds[0].slot.start, run.cost, c)
    if best is None or best[0] < first + job.max_wait or best[0] == first:
        return None
    wait = job.max_wait + timedelta(hours=math.floor((best[0] - first - job.max_wait) / timedelta(hours=1) + 1e-9) + 1)
    return Relaxation(f"max_wait {format_duration(wait)}", f"then {best[2].key} from {best[0]:%d %H:%M}Z", best[1])


def _more_money(here: JobContext, candidates: Sequence[Candidate]) -> list[Relaxation]:
    """Return the least increase of the job's own budget, and of its team's, that is enough alone."""
    job, found = here.job, []
    allowed = own_allowance(job)
    if allowed is not None:
        free = replace(here, job=with_allowance(job, None))
        found.append(_increase_of(allowed, free, candidates, OWN_WORDS))
    if here.team_left is not None:
        free = replace(here, team_left=None)
        found.append(_increase_of(here.team_left, free, candidates, team_row(job.team)))
    return [r for r in found if r is not None]


def _increase_of(allowed: Usd, free: JobContext, candidates: Sequence[Candidate], words: str) -> Relaxation | None:
    """Return what is missing of an allowance where the job counts for least; ``free`` is without the allowance."""
    best = min(fitting_runs(free, candidates), key=lambda a: (a.counted, a.cost, a.candidate.key), default=None)
    if best is None or best.counted <= allowed:
        return None
    return Relaxation(f"+{_dollars(best.counted - allowed)}", f"{words}, then {best.candidate.key}", best.cost)


def _dollars(amount: Usd) -> str:
    """Format dollars rounded up to the cent: less would not be enough."""
    return f"${math.ceil(amount.nanos / 10_000_000) / 100:,.2f}"


def _more_room(here: JobContext, candidates: Sequence[Candidate], finder: CandidateFinder) -> Relaxation | None:
    """Return the least increase of a limit that makes room beside the other jobs.

    One limit is preferred to several, then the cheapest. Gangs that are larger than a limit of the file count, too:
    they are no candidates before it is raised.
    """
    larger = _larger_candidates(here, candidates, finder)
    known = {c.key for c in candidates}
    kept = here.problem.candidates.get(here.job.name, ()) if here.load else ()
    wide = here.with_candidates([*here.problem.all_candidates.get(here.job.name, ()), *larger])
    unlimited = {name: replace(limit, amount=ENOUGH) for name, limit in wide.problem.shared.items()}
    empty = replace(wide, load={}, problem=replace(wide.problem, shared=unlimited))
    least: dict[tuple[str, ...], tuple[list[int], Usd, str]] = {}
    for c in (*(c for c in kept if c.key in known), *larger):
        short = _run_shortage(wide, empty, c)
        if not short:
            continue
        run = evaluate_single_run(empty, c)
        if run.finish is None or run.lacks:
            continue
        names = tuple(sorted(short))
        this = ([short[name] for name in names], run.cost, c.key)
        if len(names) == 1:
            this = _increase_in_pieces(wide, run, names[0], short[names[0]]) or this
        least[names] = min(least.get(names, this), this)
    if not least:
        return None
    names = min(least, key=lambda names: (len(names), *least[names][1:]))
    amounts, cost, key = least[names]
    shared = wide.problem.shared
    text = ", ".join(f"+{more} {shared[name].unit} of {name}" for name, more in zip(names, amounts, strict=True))
    return Relaxation(text, f"then {key}", cost)


def _increase_in_pieces(
    here: JobContext, run: SingleRun, name: str, increase_alone: int
) -> tuple[list[int], Usd, str] | None:
    """Return an increase of one limit below ``increase_alone``, for a job that resumes and runs in several pieces.

    The runs lie in what the other jobs leave, and each pays a start. None where nothing less is enough, or where the
    budgets do not carry the further starts.
    """
    problem, job, c = here.problem, here.job, run.candidate
    if job.checkpoint is None:
        return None
    need = steps_to_do(job, running=c.running) / c.on_time_steps_per_hour
    lacking = [(slot, shortage(problem, job, c, here.load, [(slot, 1.0)])) for slot in problem.slots_for(job, c)]
    alone_short = [(slot, short.get(name, 0) if short.keys() <= {name} else increase_alone) for slot, short in lacking]
    for more in sorted({short for _, short in alone_short if 0 < short < increase_alone}):
        pieces: list[list[Slot]] = []
        for slot in (slot for slot, short in alone_short if short <= more):
            if pieces and pieces[-1][-1].index == slot.index - 1:
                pieces[-1].append(slot)
            elif may_begin(problem, job, c, slot):
                pieces.append([slot])
        worked = sorted((sum(s.hours for s in piece) - c.startup_hours for piece in pieces), reverse=True)
        count = next((n for n in range(1, len(worked) + 1) if sum(worked[:n]) >= need - 1e-9), None)
        if count is None:
            continue
        extra = c.usd_per_hour.over((count - 1) * c.startup)
        allowed = least_allowance(job, here.team_left)
        fits = allowed is None or run.counted + extra <= allowed
        return ([more], run.cost + extra, c.key) if fits else None
    return None


def _larger_candidates(
    here: JobContext, candidates: Sequence[Candidate], finder: CandidateFinder
) -> tuple[Candidate, ...]:
    """Return candidates that only the limits of the file exclude, without those that others of them dominate."""
    job, limits = here.job, here.problem.limits
    if not any(stated_limits(limits)):
        return ()
    known = {c.key for c in candidates}
    excluded = [c for c in find_for_plan(finder.without_amounts, job)[0] if c.key not in known and c.provisionable]
    counter = LimitCounter(limits)
    use = {(job.name, c.key): counter.use(c, job.team) for c in excluded}
    return drop_dominated(job, excluded, use, frozenset(name for taken in use.values() for name in taken))


def _run_shortage(here: JobContext, empty: JobContext, candidate: Candidate) -> dict[str, int] | None:
    """Return by limit what one unbroken run of the candidate lacks beside the other jobs.

    The start that lacks least counts. None where no run fits the window at all; ``empty`` is the same with enough of
    everything and without the other jobs.
    """
    problem, job = here.problem, here.job
    window = problem.slots_for(job, candidate)
    best: dict[str, int] | None = None
    for first, slot in enumerate(window):
        begins = may_begin(problem, job, candidate, slot)
        holds = run_from(empty.problem, job, candidate, {}, window[first:]) if begins else None
        if holds is None and begins and candidate.closed:
            continue
        if holds is None:
            break
        short = shortage(problem, job, candidate, here.load, [(hold.slot, hold.share) for hold in holds])
        if best is None or (len(short), sum(short.values())) < (len(best), sum(best.values())):
            best = short
    return best


def _price_words(c: Candidate) -> str:
    """Return the least ``max_price`` in whole cents that allows the candidate and its fallback."""
    parts = (*c.parts, *(() if c.fallback is None else c.fallback.parts))
    each = [(part.listing.amortised, part.machine.accelerator_count) for part in parts]
    cents = [-(-price.nanos // (count * NANOS_PER_CENT)) for price, count in each if price is not None]
    return f"max_price ${max(cents) / 100:.2f}" if len(cents) == len(each) else "no max_price"


def constraint_costs(
    here: JobContext,
    cost: Usd,
    candidates: Sequence[Candidate],
    dropped: Sequence[DroppedListing],
    finder: CandidateFinder,
) -> tuple[ConstraintCost, ...]:
    """Return the cost to the job of residency, placement, egress cap, ``max_moves: 0``, group and deadline.

    Each is ``cost`` less that of the job's best single run without the rule, the others held in place. ``cost`` is the
    least with all rules, moves priced as the context prices them: what a plan within its gap missed is no rule's cost.
    A rule whose absence saves less than a cent costs zero and says so.
    """
    costs: list[ConstraintCost] = []
    job, had = here.job, frozenset(c.key for c in candidates)
    if job.residency.allow or job.residency.deny:
        costs.append(
            _cost_of(here, "residency", cost, _provisionable(finder, without_residency(job), cost), None, had=had)
        )
    if rules_by_placement(job, dropped):
        costs.append(
            _cost_of(here, "placement", cost, _provisionable(finder, without_placement(job), cost), None, had=had)
        )
    if job.data is not None and job.data.egress_cap is not None:
        costs.append(_cost_of(here, "egress cap", cost, _provisionable(finder, without_egress_cap(job), cost), None))
    if here.mates_region is not None:
        costs.append(_cost_of(replace(here, mates_region=None), "group", cost, candidates, None))
    if most_starts(job) == 0:
        costs.append(_cost_of(replace(here, job=without_max_moves(job)), "max_moves", cost, candidates, None))
    if job.deadline is not None:
        now = here.problem.now
        # A guarded gang also costs the fallback that keeps its deadline; without one it is found anew, and unguarded.
        is_guarded = any(c.guard is not None for c in candidates)
        free: Sequence[Candidate] = candidates
        if is_guarded:
            kind = placement_type_of(finder, job, candidates, dropped)
            free = _provisionable(finder, without_deadline(job, now), cost, kind)
        first, last = window(job, now)
        costs.append(_cost_of(here, "deadline", cost, free, slots_past_deadline(here, first), last))
    return tuple(costs)


def _provisionable(
    finder: CandidateFinder, job: Job, below: Usd, kind: JobPlacementType | None = None
) -> list[Candidate]:
    """Return what can be ordered for a job with one rule less, without spot gangs that cost so much."""
    return [c for c in find_for_plan(finder, job, below=below, kind=kind)[0] if c.provisionable]


def _cost_of(
    here: JobContext,
    rule: str,
    cost: Usd,
    candidates: Sequence[Candidate],
    slots: Sequence[Slot] | None,
    deadline: datetime | None = None,
    had: frozenset[str] = frozenset(),
) -> ConstraintCost:
    """Return the cost of a rule; ``deadline`` is the one whose absence is priced, None for any other rule.

    ``had`` are the gangs that the job has with the rule, too: without it all pools are behind them.
    """
    best = best_single_run(here, candidates, slots, below=cost)
    if best is None or (cost - best.cost).nanos < NANOS_PER_CENT:
        return ConstraintCost(rule, Usd(0), "")
    keeps_it = deadline is not None and best.finish is not None and best.finish <= deadline
    if keeps_it and best.candidate.guard is None:
        return ConstraintCost(rule, Usd(0), "")
    # Under the guard the end is what is reserved: without a deadline the run may wait longer for spot.
    instead = f"{best.candidate.key}, with no fallback to keep it" if keeps_it else place_and_finish(best)
    if best.candidate.key in had:
        instead += ", with all pools to go on in"
    return ConstraintCost(rule, cost - best.cost, instead)


def place_and_finish(run: SingleRun) -> str:
    """Return the candidate of the run and when it is done."""
    finish = f", done {run.finish:%Y-%m-%d %H:%M}Z" if run.finish else ""
    return f"{run.candidate.key}{finish}"
