"""The independent checker finds planted violations, and nothing in plans that keep their promises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import groupby
from typing import Any

import pytest

from pricing.money import Usd, UsdPerHour
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.document.plan import JobSummary, Line, LineFallback, Plan, PlannedMove, Unplaced
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import find_for_plan
from tests.support import made_up_book as shop
from tests.support.brute_force import Solution, moved_bytes, optimum
from tests.support.check_money import expected_moves
from tests.support.checker import check_plan
from tests.support.instances import Instance, make_instance
from tests.support.made_up_jobs import make_limits, simple_job
from tests.support.nights import NO_INPUTS, NO_USAGE
from tests.support.plan_view import HOUR, View, exact_hours, starting_time
from tests.support.schedules import dates_of, fallback_usd_per_step, own_slots, slot_edges, standing
from tests.support.shipping import Need
from tests.support.solved_instances import problem_of, solve
from tests.support.tariff_oracle import Shipment, bill, meter_name

Run = tuple[int, datetime, datetime]


def hand_plan(instance: Instance, best: Solution) -> Plan:
    """The optimum as a plan whose bound is its own value."""
    edges = slot_edges(
        instance.now,
        instance.now + instance.horizon,
        instance.slot,
        dates_of(*instance.limits.reservations, *instance.limits.maintenance, *instance.limits.commitments),
    )
    jobs = {job.name: job for job in instance.jobs}
    lines: list[Line] = []
    threshold = 0
    for name, slots in best.choice:
        if slots is None:
            continue
        made, starts = _lines(instance, jobs[name], _runs(slots, own_slots(jobs[name], edges, instance.now)))
        lines += made
        threshold += starts * jobs[name].gang.min_saving.nanos
    empty = _plan(instance, jobs, best, lines, [], threshold)
    view = View(empty, instance.jobs, instance.book, instance.limits, False, None)
    return _plan(instance, jobs, best, lines, _moves(instance, view), threshold)


def _runs(slots: Sequence[int], own: Sequence[tuple[datetime, datetime] | None]) -> list[Run]:
    runs, at = [], 0
    for candidate, group in groupby(slots):
        length = len(list(group))
        first, last = own[at], own[at + length - 1]
        if candidate >= 0 and first is not None and last is not None:
            runs.append((candidate, first[0], last[1]))
        at += length
    return runs


def _lines(instance: Instance, job: Job, runs: Sequence[Run]) -> tuple[list[Line], int]:
    finder = CandidateFinder(instance.book, instance.limits, instance.now, advisory=False)
    kept, _ = find_for_plan(finder, job)
    place = job.status.running if job.status is not None else None
    here = standing(place, kept)
    stays = [start == instance.now and c in here for c, start, _ in runs]
    paid = len(runs) - sum(stays)
    whole = job.checkpoint is None and not any(stays)
    left = float(job.steps if whole else job.steps_left)
    worked = [0.0] * len(runs)
    for r in sorted(range(len(runs)), key=lambda r: _dearness(kept[runs[r][0]])):
        candidate, start, end = runs[r]
        room = (end - start) / HOUR - (0.0 if stays[r] else starting_time(job) / HOUR)
        rate = kept[candidate].on_time_steps_per_hour
        worked[r] = min(room, left / rate)
        left -= worked[r] * rate
    lines: list[Line] = []
    for r, (candidate, start, end) in enumerate(runs):
        lines += _run_lines(job, kept[candidate], start, end, worked[r], startup=not stays[r])
    return lines, paid if place is not None else max(0, len(runs) - 1)


def _dearness(candidate: Candidate) -> float:
    own = candidate.usd_per_hour.dollars() * candidate.billed_share / candidate.steps_per_hour
    return own + fallback_usd_per_step(candidate)


def _fallback(candidate: Candidate, worked: float) -> LineFallback | None:
    """The fallback of a guarded run that works so many hours."""
    behind, guard = candidate.fallback, candidate.guard
    if behind is None or guard is None:
        return None
    part, hours = behind.parts[-1], Fraction(worked * guard.hours_per_reserved)
    moves = candidate.fallback_moves.nanos * worked
    return LineFallback(
        cloud=part.offer.cloud,
        region=part.offer.region,
        zone=part.offer.zone,
        instance_type=part.offer.instance_type,
        market=part.offer.market.value,
        machines=behind.machines,
        accelerator=behind.accelerator,
        accelerators=behind.accelerators,
        usd_per_hour=behind.usd_per_hour,
        max_usd_per_hour=behind.usd_per_hour,
        hours=hours,
        cost_usd=Usd(round(behind.usd_per_hour.nanos * hours) + round(moves)),
        probability=guard.probability,
        refusal_probability=guard.refusal_probability,
        reserved=guard.reserves_fallback,
    )


def _run_lines(
    job: Job, candidate: Candidate, start: datetime, end: datetime, worked: float, *, startup: bool
) -> list[Line]:
    paid = exact_hours(starting_time(job)) if startup else Fraction(0)
    share = candidate.billed_share * candidate.on_time_steps_per_hour / candidate.steps_per_hour
    hours = paid + Fraction(worked * share)
    lines = []
    for position, part in enumerate(candidate.parts):
        price = part.offer.usd_per_hour.times(part.machines)
        behind = _fallback(candidate, worked) if position == len(candidate.parts) - 1 else None
        lines.append(
            Line(
                job=job.name,
                gang=f"{job.name}/{candidate.key}",
                kind="order",
                provisionable=True,
                max_usd_per_hour=price,
                cloud=part.offer.cloud,
                region=part.offer.region,
                zone=part.offer.zone,
                instance_type=part.offer.instance_type,
                market=part.offer.market.value,
                machines=part.machines,
                accelerator=part.machine.accelerator,
                accelerators=part.machines * part.machine.accelerator_count,
                start=start,
                end=end,
                hours=hours,
                share=1.0,
                startup=startup,
                usd_per_hour=price,
                amortised_usd_per_hour=None
                if part.listing.amortised is None
                else part.listing.amortised.times(part.machines),
                steps=0 if position else -int(-worked * candidate.on_time_steps_per_hour // 1),
                steps_per_hour=candidate.steps_per_hour,
                on_time_steps_per_hour=candidate.on_time_steps_per_hour,
                billed_share=candidate.billed_share,
                usd_per_step=None,
                cost_usd=Usd(round(price.nanos * hours) + (0 if behind is None else behind.cost_usd.nanos)),
                fallback=behind,
                price_as_of="2026-11-01",
                price_source=part.offer.source,
                weak="",
                reservation_cost=part.listing.cost or "",
            )
        )
    return lines


def _moves(instance: Instance, view: View) -> list[PlannedMove]:
    wanted = [(job, month, to, need) for job in instance.jobs for month, to, need in expected_moves(view, job)]
    groups: dict[tuple[str, str], list[tuple[Job, str, Need]]] = {}
    shipments = []
    for job, month, to, need in wanted:
        assert need.tariff is not None
        shipments.append(Shipment(need.tariff, month, need.volume))
        groups.setdefault((month, meter_name(need.tariff)), []).append((job, str(to), need))
    bills = bill(
        shipments,
        tariffs=instance.book.tariffs,
        this_month=instance.now.strftime("%Y-%m"),
        moved_bytes=moved_bytes(instance.limits),
    )
    moves = []
    for (month, meter), items in sorted(groups.items(), key=lambda group: group[0]):
        parts = Usd(round(bills[month, meter])).split([need.volume for _, _, need in items])
        moves += [
            PlannedMove(job.name, need.what, str(need.source), place, need.gib, month, meter, cost)
            for (job, place, need), cost in zip(items, parts, strict=True)
        ]
    return moves


def _plan(
    instance: Instance,
    jobs: dict[str, Job],
    best: Solution,
    lines: list[Line],
    moves: list[PlannedMove],
    threshold: int,
) -> Plan:
    total = Usd.total([line.cost_usd for line in lines] + [move.cost_usd for move in moves])
    out = [jobs[name] for name, slots in best.choice if slots is None]
    return Plan(
        as_of=instance.now,
        expires_at=instance.now + timedelta(hours=1),
        book_digest=instance.book.digest,
        book_as_of=instance.book.as_of,
        horizon_start=instance.now,
        horizon_end=instance.now + instance.horizon,
        status="optimal",
        stage_one_proven=True,
        time_limit_hit=False,
        cost_usd=total,
        orders_usd=total,
        threshold_usd=Usd(threshold),
        bound_usd=total + Usd(threshold),
        gap=0.0,
        gap_asked=0.005,
        solver="by hand",
        lines=tuple(lines),
        moves=tuple(moves),
        unplaced=tuple(Unplaced(job.name, job.team, job.priority, "no room", ()) for job in out),
        shadow_prices=(),
        jobs=tuple(_summary(job, lines, moves, instance.now) for job in instance.jobs),
        inputs=NO_INPUTS,
        usage=NO_USAGE,
    )


def _summary(job: Job, lines: list[Line], moves: list[PlannedMove], now: datetime) -> JobSummary:
    own = [line.cost_usd for line in lines if line.job == job.name]
    own += [move.cost_usd for move in moves if move.job == job.name]
    return JobSummary(
        job=job.name,
        job_digest=job.digest,
        team=job.team,
        project=None,
        cost_usd=Usd.total(own),
        usd_per_step=None,
        steps=job.steps_left,
        start=None,
        finish=None,
        deadline=None if job.deadline is None else job.deadline.at(now),
        confidence=job.confidence,
        on_time_probability=None,
        runner_up=None,
        alternatives=(),
        constraint_costs=(),
        dropped=(),
        notes=(),
    )


NOW = datetime(2026, 11, 12, 18, tzinfo=UTC)
H100 = ("H100", 8)


def scenario() -> Instance:
    """Three jobs: one on the cheap spot pool of one machine, one after it, one across regions with its data."""
    offers = [
        shop.offer("aws/north-1", "p9.48xlarge", "spot", "20", cap=1, interruptions=0.0),
        shop.offer("aws/north-1", "p9.48xlarge", "on_demand", "60", cap=2),
        shop.offer("gcp/lake-1", "a9-highgpu-8g", "on_demand", "50", cap=1),
        shop.offer("lambda/bay-1", "gpu_8x_h9", "on_demand", "1"),
    ]
    saved = {"checkpoint": {"size_gib": 10.0, "write_gib_per_s": 10.0}, "startup_minutes": 6}
    jobs = (
        simple_job("early", H100, steps=1500, steps_per_hour=1000, deadline=NOW + 2 * HOUR, **saved),
        simple_job("later", H100, steps=1200, steps_per_hour=1000, deadline=NOW + 4 * HOUR, **saved),
        simple_job(
            "far",
            H100,
            steps=800,
            steps_per_hour=1000,
            deadline=NOW + HOUR,
            startup_minutes=6,
            residency={"deny": ["aws"]},
            data={"uri": "s3://x", "at": "aws/north-1", "gib": 200.0},
            budget="120",
        ),
    )
    limits = make_limits(
        {
            "limits": [{"name": "spot", "cloud": "aws", "market": "spot", "amount": 8, "unit": "accelerators"}],
            "teams": [{"team": "red", "budget": "400"}],
        }
    )
    return Instance(0, jobs, shop.book(offers), limits, NOW, 4 * HOUR, HOUR)


@pytest.fixture(scope="module")
def instance() -> Instance:
    return scenario()


@pytest.fixture(scope="module")
def plan(instance: Instance) -> Plan:
    return hand_plan(instance, optimum(problem_of(instance)))


def found(plan: Plan, instance: Instance, **changed: Any) -> str:
    jobs: tuple[Job, ...] = changed.get("jobs", instance.jobs)
    limits: Limits = changed.get("limits", instance.limits)
    return "\n".join(check_plan(plan, jobs, instance.book, limits, slot=instance.slot))


def test_a_plan_that_keeps_its_promises_passes(plan: Plan, instance: Instance) -> None:
    assert found(plan, instance) == ""
    assert [line.region for line in plan.lines if line.job == "far"] == ["lake-1"]
    assert sum(line.market == "spot" for line in plan.lines) == 2
    assert len(plan.moves) == 1
    assert not plan.unplaced


@pytest.mark.slow
def test_optima_of_random_instances_pass() -> None:
    """The brute force and the checker read the design note alike."""
    for seed in range(40):
        solved = solve(seed)
        made = solved.instance
        drawn = hand_plan(made, solved.best)
        assert check_plan(drawn, made.jobs, made.book, made.limits, slot=made.slot) == [], seed
        assert abs(drawn.cost_usd.dollars() - solved.best.cost) < 1e-6
        assert abs(drawn.threshold_usd.dollars() - solved.best.threshold) < 1e-6


def line_of(plan: Plan, job: str) -> Line:
    return next(line for line in plan.lines if line.job == job)


def with_line(plan: Plan, job: str, **fields: Any) -> Plan:
    """One job's line changed."""
    lines = tuple(replace(line, **fields) if line.job == job else line for line in plan.lines)
    return replace(plan, lines=lines)


def shifted(plan: Plan, job: str, by: timedelta) -> Plan:
    line = line_of(plan, job)
    return with_line(plan, job, start=line.start + by, end=line.end + by)


def doubled(plan: Plan) -> Plan:
    twin = replace(line_of(plan, "later"), gang="later/2")
    return replace(plan, lines=(*plan.lines, twin))


def fewer_steps(plan: Plan) -> Plan:
    """Works and says less than the job needs, consistently."""
    line = line_of(plan, "later")
    start, half = Fraction(1, 10), (line.hours - Fraction(1, 10)) / 2
    cost = Usd(round(line.usd_per_hour.nanos * (start + half)))
    return with_line(plan, "later", hours=start + half, steps=line.steps // 2, cost_usd=cost)


def in_other_place(plan: Plan) -> Plan:
    return with_line(plan, "far", cloud="aws", region="north-1", instance_type="p9.48xlarge", market="on_demand")


def elsewhere(plan: Plan) -> Plan:
    return with_line(plan, "later", cloud="lambda", region="bay-1", instance_type="gpu_8x_h9", market="on_demand")


def dearer_move(plan: Plan) -> Plan:
    more = Usd(plan.moves[0].cost_usd.nanos + 3)
    return replace(plan, moves=(replace(plan.moves[0], cost_usd=more),), cost_usd=Usd(plan.cost_usd.nanos + 3))


def with_other_job_cost(plan: Plan) -> Plan:
    return replace(plan, jobs=(replace(plan.jobs[0], cost_usd=Usd(1)), *plan.jobs[1:]))


MUTATIONS: tuple[tuple[str, str, Callable[[Plan], Plan]], ...] = (
    ("a shared pool used twice", "check_shared", lambda p: shifted(p, "later", -2 * HOUR)),
    ("past its deadline", "after its deadline", lambda p: shifted(p, "early", HOUR)),
    ("before now", "starts before now", lambda p: shifted(p, "early", -HOUR)),
    ("off the slot edges", "does not begin on a slot edge", lambda p: shifted(p, "later", HOUR / 4)),
    ("twice at once", "gangs at once", doubled),
    ("start-up not paid", "start-up False", lambda p: with_line(p, "early", startup=False)),
    ("too few steps", "of 1200", fewer_steps),
    ("steps not worked for", "says 9999 steps", lambda p: with_line(p, "early", steps=9999)),
    ("longer than held", "h held", lambda p: with_line(p, "early", end=NOW + HOUR)),
    ("where residency forbids", "is not permitted", in_other_place),
    ("where nothing can be ordered", "cannot be carried out", elsewhere),
    ("another gang size", "was not asked for", lambda p: with_line(p, "early", machines=2, accelerators=16)),
    ("wrong accelerators", "are not 24", lambda p: with_line(p, "early", accelerators=24)),
    ("a price nobody offers", "the offer is", lambda p: with_line(p, "early", usd_per_hour=UsdPerHour(19 * 10**9))),
    ("a nano-dollar too much", "check_line_costs", lambda p: with_line(p, "early", cost_usd=Usd(1))),
    ("a total that does not add up", "add up", lambda p: replace(p, cost_usd=Usd(p.cost_usd.nanos + 1))),
    ("orders that do not add up", "orders", lambda p: replace(p, orders_usd=Usd(p.orders_usd.nanos + 1))),
    ("a job of another cost", "its lines and moves", with_other_job_cost),
    ("a move forgotten", "needs", lambda p: replace(p, moves=())),
    ("a move too dear", "nano-dollars", dearer_move),
    ("another month", "needs", lambda p: replace(p, moves=(replace(p.moves[0], month="2026-12"),))),
    ("another meter", "meter", lambda p: replace(p, moves=(replace(p.moves[0], meter="aws free"),))),
    ("a bound above the cost", "bound", lambda p: replace(p, bound_usd=p.cost_usd + Usd(10**9))),
    ("a gap that the figures deny", "figures say", lambda p: replace(p, gap=0.001)),
    ("optimal without proof", "stage one", lambda p: replace(p, stage_one_proven=False)),
    ("thresholds", "thresholds", lambda p: replace(p, threshold_usd=Usd(5))),
    ("a job lost", "are not", lambda p: replace(p, lines=tuple(x for x in p.lines if x.job != "early"))),
    ("a spot pool of another offer", "nobody sells", lambda p: with_line(p, "early", zone="north-1z")),
    ("an outlook inside the horizon", "is not what the horizon", lambda p: with_line(p, "early", kind="outlook")),
    ("an unpaid reservation", "is no reservation", lambda p: with_line(p, "early", market="reserved")),
)  # fmt: skip


@pytest.mark.parametrize(("what", "words", "change"), MUTATIONS, ids=[m[0] for m in MUTATIONS])
def test_planted_violations_are_found(
    plan: Plan, instance: Instance, what: str, words: str, change: Callable[[Plan], Plan]
) -> None:
    assert words in found(change(plan), instance), what


def changed_job(instance: Instance, name: str, **fields: Any) -> tuple[Job, ...]:
    return tuple(
        Job.model_validate(job.model_dump(mode="json") | fields) if job.name == name else job for job in instance.jobs
    )


@pytest.mark.parametrize(
    ("words", "name", "fields"),
    [
        ("on spot, which the job forbids", "early", {"market": {"spot": "never"}}),
        ("wants spot only", "far", {"market": {"spot": "only"}}),
        ("of a budget", "early", {"budget": "10"}),
        ("before its earliest start", "early", {"earliest_start": "2026-11-12T19:00Z"}),
        ("core of", "early", {"gang": {"accelerators": "H100:8", "on_demand_share": 0.5}}),
        ("was not asked for", "early", {"gang": {"accelerators": "H100:16"}}),
    ],
)
def test_rules_of_a_job_are_checked(
    plan: Plan, instance: Instance, words: str, name: str, fields: dict[str, Any]
) -> None:
    """The same plan against a stricter job."""
    assert words in found(plan, instance, jobs=changed_job(instance, name, **fields))


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("of 0 machines", {"limits": [{"name": "none", "cloud": "gcp", "amount": 0, "unit": "machines"}]}),
        ("of 191 vcpus", {"limits": [{"name": "few", "region": "north-1", "amount": 191, "unit": "vcpus"}]}),
        ("is not an allowed cloud", {"clouds": ["aws"]}),
        ("of a budget", {"teams": [{"team": "red", "budget": "100", "spent": "50"}]}),
        ("the offer is", {"discounts": [{"cloud": "gcp", "percent": 10}]}),
        ("nano-dollars", {"egress_month_to_date_gb": {"aws": "100"}}),
    ],
)
def test_the_limits_file_is_checked(plan: Plan, instance: Instance, words: str, fields: dict[str, Any]) -> None:
    """The same plan against stricter limits."""
    assert words in found(plan, instance, limits=make_limits(fields))


def test_instances_are_repeatable() -> None:
    """The same seed gives the same instance."""
    one, two = make_instance(11), make_instance(11)
    assert one.jobs == two.jobs
    assert one.book.digest == two.book.digest
    assert one.limits == two.limits
