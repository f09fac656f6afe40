"""Rules played in one simulated world: limits hold at every moment, money adds up, and all meet the same future."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import pytest

from pricing.places import Market
from pricing.risk import ACCELERATOR_HOURS_PER_FAILURE
from router.planning.planner import make_plan
from tests.bench.nights import mid_size_request
from tests.bench.rules import RATES, SPEEDS, Played, compare, night_request, saving
from tests.support.rule_choices import StepRule, rules_of
from tests.support.rule_simulator import TICK, Outcome, RuleNight, World, simulate_rule
from tests.support.scenes import problem_of

NIGHTS = (3, 19, 40)


def outcomes_of(seed: int, draw: int) -> tuple[RuleNight, World, Mapping[str, Outcome]]:
    """A night of middling size, planned and played by all rules in one world."""
    request = mid_size_request(seed)
    night = RuleNight.of(request.jobs, problem_of(request))
    world = World(draw, request.book.risk)
    rules = rules_of(night, make_plan(request))
    return night, world, {name: simulate_rule(night, world, rule) for name, rule in rules.items()}


def wrong(night: RuleNight, world: World, found: Outcome) -> list[str]:
    """Describe where an outcome breaks what the simulator promises."""
    return [*_broken_limits(night, found), *_broken_lives(night, world, found), *_broken_money(night, world, found)]


def _broken_limits(night: RuleNight, found: Outcome) -> list[str]:
    key = {(job, c.key): c for job, candidates in night.candidates.items() for c in candidates}
    words = []
    for moment in sorted({life.start for life in found.lives}):
        used: dict[str, int] = {}
        for life in found.lives:
            if life.start <= moment < life.until:
                for name, amount in night.use(life.job, key[life.job, life.key]).items():
                    used[name] = used.get(name, 0) + amount
        words += [
            f"{name}: {amount} at {moment}"
            for name, amount in used.items()
            if amount > night.problem.shared[name].amount
        ]
    return words


def _broken_lives(night: RuleNight, world: World, found: Outcome) -> list[str]:
    """One gang at a time, within the job's window; interrupted exactly where the world says so."""
    key = {(job, c.key): c for job, candidates in night.candidates.items() for c in candidates}
    earliest = {job.name: night.earliest(job) for job in night.jobs}
    words = []
    for job in found.started:
        lives = [life for life in found.lives if life.job == job]
        words += [
            f"{job}: {after.start} before {before.end}"
            for before, after in pairwise(lives)
            if after.start < before.end - 1e-9
        ]
        words += [f"{job}: {life.start} before its earliest start" for life in lives if life.start < earliest[job]]
        for life in lives:
            candidate = key[job, life.key]
            first, last = round(life.start / TICK), math.ceil(life.end / TICK - 1e-9)
            hits = [
                t * TICK + at for t in range(first, last) if (at := world.interruption(job, candidate, t)) is not None
            ]
            hits = [at for at in hits if at <= life.end + 1e-9]
            if life.interrupted != bool(hits) or any(abs(at - life.end) > 1e-9 for at in hits):
                words.append(
                    f"{job}: ends at {life.end}, interrupted {life.interrupted}, the world interrupts at {hits}"
                )
            if world.is_gone(candidate, first):
                words.append(f"{job}: starts at {life.start} on an offer that is gone")
    return words


def _broken_money(night: RuleNight, world: World, found: Outcome) -> list[str]:
    """Each life costs its hours at the price of the day; jobs cost their lives and moves."""
    key = {(job, c.key): c for job, candidates in night.candidates.items() for c in candidates}
    words = []
    usd = dict(found.moves_usd)
    for life in found.lives:
        usd[life.job] = usd.get(life.job, 0.0) + life.usd
        ticks = range(round(life.start / TICK), math.ceil(life.end / TICK - 1e-9))
        rates = [world.usd_per_hour(key[life.job, life.key], t) for t in ticks]
        expected = sum(rate * min(TICK, life.end - t * TICK) for rate, t in zip(rates, ticks, strict=True))
        if not math.isclose(life.usd, expected, rel_tol=1e-9, abs_tol=1e-6):
            words.append(f"{life.job}: {life.usd} for hours worth {expected}")
    words += [
        f"{job}: {found.usd[job]} of {usd.get(job, 0.0)}"
        for job in found.finish
        if not math.isclose(found.usd[job], usd.get(job, 0.0), rel_tol=1e-9, abs_tol=1e-9)
    ]
    return words


def violations(seed: int, draw: int) -> dict[str, list[str]]:
    night, world, found = outcomes_of(seed, draw)
    return {name: words for name, outcome in found.items() if (words := wrong(night, world, outcome))}


def test_limits_hold_and_money_adds_up_on_a_night() -> None:
    assert violations(NIGHTS[0], 1) == {}


@pytest.mark.slow
def test_limits_hold_and_money_adds_up_on_nights_and_worlds() -> None:
    found = {(seed, draw): words for seed in NIGHTS for draw in range(3) if (words := violations(seed, draw))}
    assert found == {}


def test_a_rule_compared_with_itself_has_no_difference() -> None:
    request = mid_size_request(NIGHTS[0])
    night = RuleNight.of(request.jobs, problem_of(request))
    played = []
    for draw in range(3):
        one, two = (simulate_rule(night, World(draw, request.book.risk), StepRule(night)) for _ in range(2))
        assert one == two
        played.append(Played(draw, {"plan": one, "cost a step": two}))
    assert {(i.low, i.high) for i in compare(played, "plan", "cost a step").values()} == {(0.0, 0.0)}
    assert [saving(one, "plan", "cost a step") for one in played] == [0.0] * 3


def test_the_shifted_market_has_other_prices_twice_the_interruptions_and_slower_machines() -> None:
    plain, shifted = (night_request(1, 30, shifted=shifted) for shifted in (False, True))
    prices = [
        after.usd_per_hour.nanos / before.usd_per_hour.nanos
        for before, after in zip(plain.book.offers, shifted.book.offers, strict=True)
    ]
    assert 0.69 < min(prices) < 0.95
    assert 1.05 < max(prices) < 1.41
    steps = [after.steps / before.steps for before, after in zip(plain.jobs, shifted.jobs, strict=True)]
    assert max(steps) == pytest.approx(1 / SPEEDS, rel=0.05)
    for offer in plain.book.offers:
        machine = plain.book.machine(offer.cloud, offer.instance_type)
        if machine is not None and offer.market is Market.SPOT:
            hardware = machine.accelerator_count / ACCELERATOR_HOURS_PER_FAILURE
            before, after = (
                book.risk.gang(now, machine, 1).per_hour_over(8.0) - hardware
                for book in (plain.book, shifted.book)
                for now in book.offers
                if now.key == offer.key
            )
            assert after == pytest.approx(float(RATES) * before, rel=0.02)
            break
