"""Write the placement program of ``docs/design/placement-program.md``.

One function writes each family of variables and rows. Symbols. Variables: x[j,c,t] share of slot t that job j holds
candidate c (0/1 inside the horizon); z[j,c,t] a run of c starts in t; w[j,c] productive hours on c; y[j,r,m] job j
first uses region r in month m; u[j] job left out; v[k,t] dollars that commitments k cover. Parameters: h_t hours of
slot t, p $/h, κ billed hours an hour of w, g(α) steps/h, R start-up hours, S steps to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pricing.places import RegionId
from pricing.units import BYTES_PER_GB, gib_to_bytes
from router.jobs.spec import Job
from router.planning.find.affinity import affinity_of
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.transfers import checkpoint_home
from router.planning.problem.commitments import has_cover
from router.planning.problem.problem import PlacementProblem, Slot, free_starts, most_starts
from router.planning.problem.schedule import NOTHING, SlotHold
from router.planning.program.egress_rows import add_egress
from router.planning.rules.budgets import add_money_rows
from router.planning.rules.capacity import add_limit_rows
from router.planning.rules.commitments import CoverRows
from router.planning.rules.egress_caps import add_cap_rows, add_job_cap_rows, may_combine, month_matters
from router.planning.rules.job_groups import add_group_rows, group_members
from router.planning.rules.program import Program, ProgramBuilder, ProgramLayout


@dataclass(frozen=True, slots=True)
class Formulation:
    """The program and the layout of its variables."""

    program: Program
    layout: ProgramLayout


def formulate(problem: PlacementProblem) -> Formulation:
    """Write the program: minimise Σ (p + carbon)(κ w + R z) + egress + thresholds - Σ v over all rows.

    Jobs left out cost nothing in it: fix ``u``, or minimise it first.
    """
    builder, layout = ProgramBuilder(), ProgramLayout()
    members = group_members(problem.jobs)
    cover = CoverRows(builder, problem)
    for job in problem.jobs:
        layout.u[job.name] = builder.binary(f"u {job.name}")
        slots = problem.window(job)
        for candidate in problem.candidates[job.name]:
            slots_held = problem.slots_for(job, candidate)
            _add_candidate(builder, layout, problem, job, candidate, slots_held)
            if has_cover(problem.limits):
                cover.add_candidate(job, candidate, *_held_and_worked(layout, job, candidate, slots_held))
        if has_cover(problem.limits):
            cover.add_filling(job, _started(layout, problem, job))
        _add_steps(builder, layout, problem, job)
        _add_one_gang(builder, layout, problem, job, slots)
        _add_starts(builder, layout, problem, job)
        _add_regions(builder, layout, problem, job, slots, grouped=affinity_of(job) in members)
    add_group_rows(builder, layout, members)
    add_limit_rows(builder, layout, problem)
    add_egress(builder, layout.y, problem)
    add_cap_rows(builder, layout, problem)
    add_money_rows(builder, layout, problem)
    layout.covered.update(cover.write())
    return Formulation(builder.build(), layout)


def _add_candidate(
    builder: ProgramBuilder,
    layout: ProgramLayout,
    problem: PlacementProblem,
    job: Job,
    c: Candidate,
    slots: tuple[Slot, ...],
) -> None:
    """Add x, z, w of one candidate.

    starts      z_t >= x_t - x_(t-1), x before ``now`` is 1 where the job runs; z_t = 0 where no run may begin
    productive  w + R Σ z_t <= Σ h_t x_t
    used        w <= (S / g(α)) Σ z_t, more by the stretch held from now on where the job runs: what is used was started
    """
    most = steps_to_do(job, running=False) / c.on_time_steps_per_hour
    w = layout.w[job.name, c.key] = builder.variable(
        f"w {job.name} {c.key}", high=most, cost=c.objective_per_reserved_hour
    )
    held: list[tuple[int, float]] = []
    started: list[tuple[int, float]] = []
    previous: tuple[int, int] | None = None
    for slot in slots:
        whole = slot.order or job.checkpoint is None
        name = f"{job.name} {c.key} {slot.index}"
        x = layout.x[job.name, c.key, slot.index] = builder.variable(f"x {name}", high=1.0, integer=whole)
        held.append((x, slot.hours))
        terms = [(x, 1.0)]
        if previous is not None and previous[0] == slot.index - 1:
            terms.append((previous[1], -1.0))
        if problem.may_start(job, slot) and job.name not in problem.stays:
            z = builder.variable(f"z {name}", high=1.0, cost=c.objective_per_hour * c.startup_hours)
            layout.z[job.name, c.key, slot.index] = z
            layout.starts.setdefault(job.name, []).append((c.key, z))
            started.append((z, 1.0))
            terms.append((z, -1.0))
        if not (c.running and slot.index == 0):
            builder.row(f"starts {name}", terms, "<=", 0.0)
        previous = (slot.index, x)
    builder.row(
        f"productive {job.name} {c.key}",
        [(w, 1.0), *((z, c.startup_hours) for z, _ in started), *((x, -h) for x, h in held)],
        "<=",
        0.0,
    )
    here = _add_stretch(builder, job, c, [(x, slot) for (x, _), slot in zip(held, slots, strict=True)])
    if not c.running or here:
        builder.row(f"used {job.name} {c.key}", [(w, 1.0), *here, *((z, -most) for z, _ in started)], "<=", 0.0)


def _add_stretch(
    builder: ProgramBuilder, job: Job, c: Candidate, held: list[tuple[int, Slot]]
) -> list[tuple[int, float]]:
    """Add s_t <= x_t, s_t <= s_(t-1), the shares held without a pause from now on; return the terms -Σ h_t s_t.

    Beyond the horizon a start is a share as x is. Without these a job that runs now would restart there for nearly
    nothing. Nothing is added where the job does not run, or no slot is beyond the horizon.
    """
    if not c.running or all(slot.order for _, slot in held):
        return []
    terms: list[tuple[int, float]] = []
    for number, (x, slot) in enumerate(held):
        if slot.index != number:
            break
        share = builder.variable(f"stretch {job.name} {c.key} {slot.index}", high=1.0)
        builder.row(f"stretch {job.name} {c.key} {slot.index}", [(share, 1.0), (x, -1.0)], "<=", 0.0)
        if terms:
            builder.row(f"no pause {job.name} {c.key} {slot.index}", [(share, 1.0), (terms[-1][0], -1.0)], "<=", 0.0)
        terms.append((share, -slot.hours))
    return terms


def _held_and_worked(
    layout: ProgramLayout, job: Job, candidate: Candidate, slots: Iterable[Slot]
) -> tuple[Mapping[int, int], list[tuple[int, float]]]:
    """Return x of the candidate by slot index, and the terms of w + R Σ z."""
    held = {slot.index: layout.x[job.name, candidate.key, slot.index] for slot in slots}
    starts = [(z, candidate.startup_hours) for z, _ in _start_terms(layout, job, (candidate,))]
    return held, [(layout.w[job.name, candidate.key], 1.0), *starts]


def _started(layout: ProgramLayout, problem: PlacementProblem, job: Job) -> Mapping[str, list[int]]:
    """Return z of the job by candidate key, and x of the first slot of where it runs."""
    variables: dict[str, list[int]] = {}
    for key, z in layout.starts.get(job.name, ()):
        variables.setdefault(key, []).append(z)
    for candidate in problem.candidates[job.name]:
        x = layout.x.get((job.name, candidate.key, 0))
        if candidate.running and x is not None:
            variables.setdefault(candidate.key, []).append(x)
    return variables


def _add_steps(builder: ProgramBuilder, layout: ProgramLayout, problem: PlacementProblem, job: Job) -> None:
    """Add Σ g(α) w >= S (1 - u), divided by S."""
    terms = _steps_done(layout, problem, job, problem.candidates[job.name])
    builder.row(f"steps {job.name}", [*terms, (layout.u[job.name], 1.0)], ">=", 1.0)


def _steps_done(
    layout: ProgramLayout, problem: PlacementProblem, job: Job, candidates: Iterable[Candidate]
) -> list[tuple[int, float]]:
    """Return the share of the steps done on these candidates.

    A job that cannot resume and leaves its place repeats the steps that are done.
    """
    candidates = tuple(candidates)
    left = float(job.steps_left if _is_running(problem, job) else steps_to_do(job, running=False))
    terms = [(layout.w[job.name, c.key], c.on_time_steps_per_hour / left) for c in candidates]
    if job.checkpoint is None and _is_running(problem, job):
        again = (job.steps - job.steps_left) / left
        terms += [(z, -again) for z, _ in _start_terms(layout, job, candidates)]
    return terms


def _start_terms(layout: ProgramLayout, job: Job, candidates: Iterable[Candidate]) -> list[tuple[int, float]]:
    """Return Σ z of these candidates."""
    keys = {c.key for c in candidates}
    return [(z, 1.0) for key, z in layout.starts.get(job.name, ()) if key in keys]


def _is_running(problem: PlacementProblem, job: Job) -> bool:
    """Return whether the job runs now."""
    return any(c.running for c in problem.candidates[job.name])


def _held_terms(
    layout: ProgramLayout, job: Job, candidates: Iterable[Candidate], slot: Slot
) -> list[tuple[int, float]]:
    """Return Σ x of these candidates in the slot."""
    names = ((job.name, c.key, slot.index) for c in candidates)
    return [(layout.x[name], 1.0) for name in names if name in layout.x]


def _add_one_gang(
    builder: ProgramBuilder, layout: ProgramLayout, problem: PlacementProblem, job: Job, slots: tuple[Slot, ...]
) -> None:
    """Add Σ_c x_ct + u <= 1 in every slot."""
    for slot in slots:
        terms = _held_terms(layout, job, problem.candidates[job.name], slot)
        if terms:
            builder.row(f"one gang {job.name} {slot.index}", [*terms, (layout.u[job.name], 1.0)], "<=", 1.0)


def _add_starts(builder: ProgramBuilder, layout: ProgramLayout, problem: PlacementProblem, job: Job) -> None:
    """Add the rows of starts.

    Σ z + u >= 1 unless the job runs; without a checkpoint one run in all; ``min_saving`` for every start beyond the
    first, and no more of those than ``max_moves``.
    """
    starts = [(z, 1.0) for _, z in layout.starts.get(job.name, ())]
    runs = _is_running(problem, job)
    if not runs:
        builder.row(f"at least one start {job.name}", [*starts, (layout.u[job.name], 1.0)], ">=", 1.0)
    if job.checkpoint is None:
        here = [
            (layout.x[job.name, c.key, 0], 1.0)
            for c in problem.candidates[job.name]
            if c.running and (job.name, c.key, 0) in layout.x
        ]
        builder.row(f"one run {job.name}", starts + here, "<=", 1.0)
    if job.gang.min_saving.nanos > 0 and starts:
        more = builder.variable(f"more starts {job.name}", cost=job.gang.min_saving.dollars())
        builder.row(f"threshold {job.name}", [*starts, (more, -1.0)], "<=", float(free_starts(job)))
    most = most_starts(job)
    if most is not None and starts:
        builder.row(f"most starts {job.name}", starts, "<=", float(most))


def _add_regions(
    builder: ProgramBuilder,
    layout: ProgramLayout,
    problem: PlacementProblem,
    job: Job,
    slots: tuple[Slot, ...],
    *,
    grouped: bool,
) -> None:
    """Add the rows of regions.

    Σ_(c in r) x_ct <= Σ_(m up to t) y_rm; Σ_m y_rm <= 1; Σ_rm y_rm <= regions (1 - u). Over several months, y_rm needs
    a slot held in m: a move belongs to the month of its first use. With several regions, bytes moved stay under the
    job's egress cap, and a checkpoint that goes from one to another costs at least the cheaper direction.
    """
    by_region: dict[RegionId, list[Candidate]] = {}
    for c in problem.candidates[job.name]:
        by_region.setdefault(c.region, []).append(c)
    moving = any(month_matters(problem, c) for c in problem.candidates[job.name])
    if len(by_region) < 2 and not moving and not grouped:
        return
    months = sorted({slot.month for slot in slots})
    for region, members in sorted(by_region.items()):
        for month in months:
            name = f"y {job.name} {region} {month}"
            layout.y[job.name, region, month] = builder.binary(name)
        for slot in slots:
            held = _held_terms(layout, job, members, slot)
            if not held:
                continue
            upto = [(layout.y[job.name, region, m], -1.0) for m in months if m <= slot.month]
            builder.row(f"region {job.name} {region} {slot.index}", [*held, *upto], "<=", 0.0)
        if len(months) > 1:
            for month in months:
                inside = [
                    (x, -100.0) for s in slots if s.month == month for x, _ in _held_terms(layout, job, members, s)
                ]
                builder.row(
                    f"used in {job.name} {region} {month}",
                    [(layout.y[job.name, region, month], 1.0), *inside],
                    "<=",
                    0.0,
                )
        once = [(layout.y[job.name, region, m], 1.0) for m in months]
        builder.row(f"once {job.name} {region}", once, "<=", 1.0)
        if job.gang.regions == 1:
            _add_single_region(builder, layout, problem, job, members, once)
    everywhere = [(y, 1.0) for (name, _, _), y in layout.y.items() if name == job.name]
    builder.row(f"somewhere {job.name}", [*everywhere, (layout.u[job.name], 1.0)], ">=", 1.0)
    count = float(job.gang.regions)
    builder.row(f"regions {job.name}", [*everywhere, (layout.u[job.name], count)], "<=", count)
    if job.gang.regions > 1:
        _add_several_regions(builder, layout, problem, job, by_region, months)


def _add_single_region(
    builder: ProgramBuilder,
    layout: ProgramLayout,
    problem: PlacementProblem,
    job: Job,
    members: list[Candidate],
    y: list[tuple[int, float]],
) -> None:
    """Add rows for a job of one region: it does all steps there, and starts there (unless it runs there).

    Implied for whole y; in the relaxation it keeps a job from mixing regions that cannot carry it alone.
    """
    chosen = [(i, -a) for i, a in y]
    name = f"{job.name} {members[0].region}"
    builder.row(f"steps in {name}", [*_steps_done(layout, problem, job, members), *chosen], ">=", 0.0)
    if not any(c.running for c in members):
        builder.row(f"start in {name}", [*_start_terms(layout, job, members), *chosen], ">=", 0.0)


def _add_several_regions(
    builder: ProgramBuilder,
    layout: ProgramLayout,
    problem: PlacementProblem,
    job: Job,
    by_region: Mapping[RegionId, list[Candidate]],
    months: list[str],
) -> None:
    """Add rows for jobs of several regions: the egress cap, and the checkpoint's moves between two regions."""
    add_job_cap_rows(builder, layout, job, by_region)
    if job.checkpoint is None:
        return
    home = checkpoint_home(job)
    places = sorted(by_region)
    for i, first in enumerate(places):
        for second in places[i + 1 :]:
            used = [(layout.y[job.name, r, m], 1.0) for r in (first, second) for m in months]
            least = _least_between(problem, job, first, second)
            if not may_combine(problem.limits, first, second):
                builder.row(f"egress cap keeps {job.name} {first} {second}", used, "<=", 1.0)
            elif least is None:
                builder.row(f"no tariff {job.name} {first} {second}", used, "<=", 1.0)
            elif least > 0 and home not in (first, second):
                pair = builder.variable(f"pair {job.name} {first} {second}", cost=least)
                builder.row(f"pair {job.name} {first} {second}", [*used, (pair, -1.0)], "<=", 1.0)


def _least_between(problem: PlacementProblem, job: Job, first: RegionId, second: RegionId) -> float | None:
    """Return the least dollars for the checkpoint between two regions, a lower bound.

    The cheapest tier of the cheaper direction counts. None when a tariff is unknown.
    """
    one, two = problem.book.region(first), problem.book.region(second)
    if one is None or two is None or job.checkpoint is None:
        return None
    there, back = problem.book.egress.between(one, two), problem.book.egress.between(two, one)
    if there is None or back is None:
        return None
    cheapest = min(tier.price.dollars() for tariff in (there, back) for tier in tariff.tiers)
    return cheapest * gib_to_bytes(job.checkpoint.size_gib) / BYTES_PER_GB


def holdings_of(
    problem: PlacementProblem, layout: ProgramLayout, values: Sequence[float]
) -> dict[str, tuple[SlotHold, ...]]:
    """Return what each placed job holds in the program's answer."""
    slots = {(job.name, slot.index): slot for job in problem.jobs for slot in problem.window(job)}
    holdings: dict[str, list[SlotHold]] = {}
    for (job, key, index), x in layout.x.items():
        value = values[x]
        slot = slots[job, index]
        whole = slot.order or problem.job[job].checkpoint is None
        if whole:
            value = float(round(value))
        if value > NOTHING and values[layout.u[job]] < 0.5:
            holdings.setdefault(job, []).append(SlotHold(slot, key, min(value, 1.0)))
    return {job: tuple(sorted(holds, key=lambda h: (h.slot.index, h.key))) for job, holds in holdings.items()}
