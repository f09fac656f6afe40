"""The simulator in which rules are compared: time, money and lost work of one job by hand, and equal worlds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from pricing.offers import Offer
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate
from router.planning.planner import make_plan
from tests.support.made_up_book import offer
from tests.support.made_up_jobs import make_job
from tests.support.rule_choices import GuardedRule, PlanRule, StepRule, StickerRule
from tests.support.rule_simulator import TICK, Outcome, Rule, RuleNight, World, simulate_rule
from tests.support.scenes import NORTH, a_job, a_request, problem_of

ONE_SPOT = offer("aws/north-1", "p9.48xlarge", "spot", "20", cap=1, interruptions=0.02)
SLOW = offer("aws/south-1", "g9.48xlarge", "on_demand", "30")
CHECKPOINT = {"size_gib": 10, "interval": "1h"}


class Calm(World):
    """A world in which nothing is ever gone, and gangs are interrupted in the named ticks alone, in their middle."""

    def interruption(self, job: str, candidate: Candidate, tick: int) -> float | None:
        return TICK / 2 if tick in INTERRUPTED.get(job, ()) else None

    def wait(self, job: str, candidate: Candidate, tick: int) -> float:
        return 0.5

    def is_gone(self, candidate: Candidate, tick: int) -> bool:
        return False


INTERRUPTED = {"hit": (17,)}


def night_of(jobs: list[Job], offers: list[Offer]) -> RuleNight:
    request = a_request(jobs, offers)
    return RuleNight.of(request.jobs, problem_of(request))


def played(night: RuleNight, rule: Rule, world: World | None = None) -> Outcome:
    return simulate_rule(night, world or calm(night), rule)


def calm(night: RuleNight) -> World:
    return Calm(1, night.problem.book.risk, noise=0.0)


def test_a_job_that_nothing_disturbs_takes_its_start_up_its_steps_and_its_checkpoints() -> None:
    night = night_of([a_job("a", steps=300, checkpoint=CHECKPOINT)], [NORTH])
    found = played(night, StepRule(night))
    stall = night.candidates["a"][0].risk.stall_hours
    # Three hours of compute; nothing is written after the last one.
    assert found.finish["a"] == pytest.approx(0.2 + 3 + 2 * stall)
    assert found.total_usd == pytest.approx(60 * (0.2 + 3 + 2 * stall))
    assert (found.unplaced, found.late) == (frozenset(), frozenset())


@pytest.mark.parametrize(("checkpoint", "kept"), [(CHECKPOINT, 4.0), (None, 0.0)])
def test_an_interruption_loses_the_work_since_the_last_checkpoint(checkpoint: object, kept: float) -> None:
    job = a_job("hit", steps=500).model_copy(update={"checkpoint": None})
    if checkpoint is not None:
        job = a_job("hit", steps=500, checkpoint=checkpoint)
    night = night_of([job], [NORTH])
    stall = night.candidates["hit"][0].risk.stall_hours
    found = played(night, StepRule(night))
    first, second = found.lives
    assert first.interrupted
    assert first.end == pytest.approx(17 * TICK + TICK / 2)
    begin = 5.0  # half an hour later, at the next tick
    left = 5 - kept
    again = left + (max(0, round(left) - 1) * stall if checkpoint is not None else 0)
    assert second.start == pytest.approx(begin)
    assert found.finish["hit"] == pytest.approx(begin + 0.2 + again)
    assert found.total_usd == pytest.approx(60 * (first.end + 0.2 + again))


def test_sticker_price_takes_the_slow_machine_and_is_late_where_the_cheaper_step_is_on_time() -> None:
    speeds = {"H100": 100.0, "A100-80GB": 30.0}
    fields = {
        "name": "a",
        "steps": 700,
        "options": [(accelerator, 8) for accelerator in speeds],
        "profile": [{"accelerator": a, "count": 8, "steps_per_hour": speed} for a, speed in speeds.items()],
        "checkpoint": CHECKPOINT,
        "deadline": "+9h",
    }
    night = night_of([make_job(fields)], [NORTH, SLOW])
    sticker, step = played(night, StickerRule(night)), played(night, StepRule(night))
    assert (sticker.lives[0].key.split("/")[2], step.lives[0].key.split("/")[2]) == ("g9.48xlarge", "p9.48xlarge")
    assert sticker.late == {"a"}
    assert not step.late
    assert sticker.total_usd > step.total_usd


def test_jobs_wait_for_the_only_machine_in_turn_of_priority_and_name() -> None:
    jobs = [a_job(name, steps=100, priority=priority) for name, priority in (("a", 0), ("b", 1), ("c", 0))]
    night = night_of(jobs, [replace(NORTH, machines_cap=1)])
    found = played(night, StickerRule(night))
    assert [life.job for life in found.lives] == ["b", "a", "c"]
    for before, after in pairwise(found.lives):
        assert after.start == before.until


def test_a_deadline_that_nothing_meets_leaves_a_job_unplaced_by_steps_and_late_by_price() -> None:
    night = night_of([a_job("a", steps=600, deadline="+5h")], [NORTH])
    assert played(night, StepRule(night)).unplaced == {"a"}
    assert played(night, StickerRule(night)).late == {"a"}


def test_a_plan_is_carried_out_at_its_times() -> None:
    jobs = [a_job(name, steps=150, deadline="+6h") for name in "ab"]
    request = a_request(jobs, [replace(NORTH, machines_cap=1)])
    night = RuleNight.of(request.jobs, problem_of(request))
    plan = make_plan(request)
    found = played(night, PlanRule(night, plan))
    starts = {line.job: (line.start - plan.as_of) / timedelta(hours=1) for line in plan.lines}
    assert {life.job: life.start for life in found.lives} == starts
    assert found.late == frozenset()


class Slow(Calm):
    """A calm world in which spot is interrupted every hour and a half from the second on."""

    def interruption(self, job: str, candidate: Candidate, tick: int) -> float | None:
        return TICK / 2 if candidate.market == "spot" and tick % 6 == 5 else None


@pytest.mark.parametrize("deadline", ["+9h", "+11h", "+14h", "+20h"])
def test_the_guard_goes_on_demand_at_the_last_moment_and_is_in_time(deadline: str) -> None:
    night = night_of([a_job("a", steps=600, deadline=deadline, checkpoint=CHECKPOINT)], [ONE_SPOT, NORTH])
    world = Slow(1, night.problem.book.risk, noise=0.0)
    plain = played(night, StickerRule(night), world)
    guarded = played(night, GuardedRule(night, StickerRule(night)), world)
    assert plain.late == {"a"}
    assert guarded.late == frozenset()
    assert guarded.lives[0].key.split("/")[3] == "spotx8"
    last = guarded.lives[-1]
    assert "on_demand" in last.key
    # Not sooner than needed: three ticks later it would have been late.
    assert last.end > night.deadline(night.jobs[0]) - 5 * TICK


def test_the_same_seed_is_the_same_world_whoever_asks_first() -> None:
    night = night_of([a_job("a"), a_job("b")], [ONE_SPOT, NORTH])
    spot = next(c for c in night.candidates["a"] if c.market == "spot")
    one, two = (World(7, night.problem.book.risk) for _ in range(2))
    ticks = range(0, 2000, 7)

    def asked(world: World, order: Iterable[int]) -> dict[int, tuple[object, ...]]:
        return {
            t: (
                world.interruption("a", spot, t),
                world.wait("a", spot, t),
                world.is_gone(spot, t),
                world.usd_per_hour(spot, t),
                world.speed("a", spot),
            )
            for t in order
        }

    assert asked(one, ticks) == asked(two, reversed(ticks))
    other = asked(World(8, night.problem.book.risk), ticks)
    assert other != asked(one, ticks)


def test_spot_is_interrupted_and_gone_as_often_as_the_book_says_and_its_price_is_the_books_on_average() -> None:
    night = night_of([a_job("a")], [replace(ONE_SPOT, interruptions_per_hour=0.1)])
    (spot,) = night.candidates["a"]
    worlds = [World(seed, night.problem.book.risk) for seed in range(60)]
    ticks = range(4000)
    hit = sum(world.interruption("a", spot, t) is not None for world in worlds for t in ticks)
    expected = spot.gang_risk.per_hour_over(8.0) * TICK * len(worlds) * len(ticks)
    assert hit == pytest.approx(expected, rel=0.05)
    one = night.problem.book.risk.gang(spot.parts[0].offer, spot.parts[0].machine, 1)
    gone = sum(world.is_gone(spot, t) for world in worlds for t in ticks) / (len(worlds) * len(ticks))
    rate = one.per_hour_over(8.0)
    share = rate * one.recovery_hours / (1 + rate * one.recovery_hours)
    assert gone == pytest.approx(share, rel=0.1)
    mean = sum(world.usd_per_hour(spot, t) for world in worlds for t in range(0, 4000, 96)) / (60 * 42)
    assert mean == pytest.approx(20, rel=0.02)
