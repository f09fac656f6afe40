"""Compare plans with choosing in turn: three rules are carried out in the same simulated worlds.

    python -m tests.bench.rules [--nights 6] [--draws 10] [--first 1] [--jobs 30 60] [--shifted | --surprised]

Nights are those of :mod:`tests.bench.nights` with 30 to 60 jobs, without budgets, which only plans know; jobs may be
late where nothing holds their deadline, and such lateness is not counted against any rule. The rules are those of
:mod:`tests.support.rule_choices`: the cheapest sticker price in turn, the cheapest expected step in turn with an eye on
deadlines, and the plan of ``stepfare plan``; the last two also with the guard of deadlines that ``apply`` sets around
any policy. Worlds are those of :mod:`tests.support.rule_simulator`; each night is played in as many as there are draws,
by all rules in the same ones.

``--shifted`` is another market, known to all: prices times 0.7 to 1.4 by cloud, interruption rates doubled, speeds
times 0.8. ``--surprised`` is the same rates and speeds, of which no rule knows.

Intervals are of paired differences by bootstrap over whole nights. "Not worse" is an interval that does not lie above
zero.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np

import tests.support.made_up_book  # noqa: F401  (its machines have images)
from pricing.book import PriceBook
from router.jobs.spec import Job
from router.planning.planner import PlanRequest, make_plan
from router.prices.books import load_book
from router.spot.availability.calibration import Interval, bootstrap_interval
from tests.bench.nights import realistic_night
from tests.support.rule_choices import rules_of
from tests.support.rule_simulator import Outcome, RuleNight, World, simulate_rule
from tests.support.scenes import problem_of

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
LEAST_JOBS, MOST_JOBS = 30, 60
PRICES = (0.7, 1.4)
RATES, SPEEDS = 2, 0.8
LEVEL = 0.95
PAIRS = (
    ("plan", "sticker price"),
    ("plan", "cost a step"),
    ("plan, guarded", "sticker price"),
    ("plan, guarded", "cost a step"),
    ("plan, guarded", "cost a step, guarded"),
)


@dataclass(frozen=True)
class Played:
    """One night in one world: the outcome of each rule, and how many jobs the plan expects to be late.

    ``hopeless`` are jobs that no gang finishes in time, were it alone: to start them late is better than not at all,
    and no rule can do more.
    """

    night: int
    outcomes: dict[str, Outcome]
    promised_late: float = 0.0
    hopeless: frozenset[str] = frozenset()

    @property
    def finished_by_all(self) -> frozenset[str]:
        each = [{job for job, at in o.finish.items() if at is not None} for o in self.outcomes.values()]
        return frozenset.intersection(*map(frozenset, each))

    def figures(self, rule: str) -> dict[str, float]:
        found, common = self.outcomes[rule], self.finished_by_all
        shared = sum(found.usd[job] for job in common)
        late = found.late - self.hopeless
        return {
            "unplaced": float(len(found.unplaced)),
            "late": float(len(late)),
            "unplaced or late": float(len(found.unplaced | late)),
            "$ a job all finished": shared / max(1, len(common)),
            "$ in all": found.total_usd,
        }


def night_request(seed: int, jobs: int, *, shifted: bool) -> PlanRequest:
    """A night without budgets; ``shifted`` under another market."""
    night = realistic_night(jobs, seed, NOW)
    limits = night.limits.model_copy(update={"teams": ()})
    gap = timedelta(minutes=10)
    # As the sticker rule has it: better late than not at all. Choosing by the cost of a step leaves such jobs out.
    allowed = tuple(j if j.deadline is None else j.model_copy(update={"late": "allowed"}) for j in night.jobs)
    request = PlanRequest(allowed, load_book("embedded"), limits, NOW, gap=0.01, time_limit=gap, resolve_limits=0)
    if not shifted:
        return request
    slower = tuple(_slower(job) for job in request.jobs)
    return replace(request, jobs=slower, book=shifted_book(request.book, seed))


def shifted_book(book: PriceBook, seed: int) -> PriceBook:
    """The book with prices times a factor by cloud, and interruption rates doubled."""
    draw = random.Random(f"shift {seed}")
    factors = {cloud: Decimal(f"{draw.uniform(*PRICES):.3f}") for cloud in sorted({o.cloud for o in book.offers})}
    offers = [
        replace(
            offer,
            usd_per_hour=offer.usd_per_hour.scaled(factors[offer.cloud]),
            interruptions_per_hour=None
            if offer.interruptions_per_hour is None
            else offer.interruptions_per_hour * RATES,
        )
        for offer in book.offers
    ]
    priors = tuple(replace(p, level=p.level * RATES, low=p.low * RATES, high=p.high * RATES) for p in book.priors)
    signals = tuple(replace(s, level=s.level * RATES, low=s.low * RATES, high=s.high * RATES) for s in book.signals)
    return replace(book, offers=tuple(offers), priors=priors, signals=signals)


def _slower(job: Job) -> Job:
    """The job with as much more to do as machines are slower."""
    done = job.status.steps_done if job.status is not None else 0
    return job.model_copy(update={"steps": done + round((job.steps - done) / SPEEDS)})


def play(
    seed: int, jobs: int, draws: int, *, shifted: bool, surprised: bool, say: Callable[[str], None]
) -> list[Played]:
    """Plan a night once and play it in as many worlds as there are draws."""
    request = night_request(seed, jobs, shifted=shifted)
    began = time.monotonic()
    plan = make_plan(request)
    planned = time.monotonic() - began
    night = RuleNight.of(request.jobs, problem_of(request))
    chances = [job.on_time_probability for job in plan.jobs if job.job not in night.hopeless]
    promised = sum(1 - chance for chance in chances if chance is not None)
    played = []
    for draw in range(draws):
        factors = (float(RATES), SPEEDS) if surprised else (1.0, 1.0)
        world = World(1000 * seed + draw, request.book.risk, *factors)
        outcomes = {name: simulate_rule(night, world, rule) for name, rule in rules_of(night, plan).items()}
        played.append(Played(seed, outcomes, promised, night.hopeless))
    means = {rule: _means([one.figures(rule) for one in played]) for rule in played[0].outcomes}
    say(
        f"night {seed}, {jobs} jobs, planned in {planned:.0f} s, gap {plan.gap:.1%}, {len(plan.unplaced)} left out,"
        f" {promised:.1f} late as promised"
    )
    for rule, figures in means.items():
        say(f"  {rule:21}" + "".join(f"{name} {figure:,.1f}   " for name, figure in figures.items()))
    return played


def _means(figures: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.fmean(one[name] for one in figures) for name in figures[0]}


def compare(played: Sequence[Played], ours: str, rule: str) -> dict[str, Interval]:
    """Return intervals of ours less rule, by figure."""
    nights = np.array([one.night for one in played])
    pairs = [(one.figures(ours), one.figures(rule)) for one in played]
    return {
        name: bootstrap_interval(np.array([mine[name] - theirs[name] for mine, theirs in pairs]), nights, LEVEL)
        for name in pairs[0][0]
    }


def saving(one: Played, ours: str, rule: str) -> float:
    """Return the share that ours saves of what the rule pays for jobs that all finished."""
    common = one.finished_by_all
    theirs = sum(one.outcomes[rule].usd[job] for job in common)
    return 1 - sum(one.outcomes[ours].usd[job] for job in common) / theirs if theirs > 0 else 0.0


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What plans save over choosing in turn.")
    parser.add_argument("--nights", type=int, default=6)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=1, help="seed of the first night")
    parser.add_argument(
        "--jobs", type=int, nargs=2, default=(LEAST_JOBS, MOST_JOBS), help="jobs of the smallest and the largest night"
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--shifted", action="store_true", help="other prices, rates and speeds, known to all rules")
    kind.add_argument("--surprised", action="store_true", help="other rates and speeds that no rule knows")
    asked = parser.parse_args(arguments)
    least, most = asked.jobs
    played: list[Played] = []
    for number in range(asked.nights):
        jobs = least + (most - least) * number // max(1, asked.nights - 1)
        flags = {"shifted": asked.shifted, "surprised": asked.surprised}
        played += play(asked.first + number, jobs, asked.draws, **flags, say=_say)
    _say(f"RULES       {asked.nights} nights of {least} to {most} jobs, {asked.draws} worlds each")
    for rule in played[0].outcomes:
        figures = _means([one.figures(rule) for one in played])
        _say(f"  {rule:21}" + "".join(f"{name} {figure:,.2f}   " for name, figure in figures.items()))
    _say(f"  late as the plans' confidences promise: {statistics.fmean(one.promised_late for one in played):.2f}")
    for ours, rule in PAIRS:
        found = compare(played, ours, rule)
        _say(f"  {ours} less {rule}, 95 % interval over nights:")
        for name, interval in found.items():
            verdict = "better" if interval.high < 0 else "worse" if interval.low > 0 else "not worse"
            _say(f"    {name:22} {interval.mean:10,.2f}  [{interval.low:,.2f}, {interval.high:,.2f}]  {verdict}")
        worse = [name for name, interval in found.items() if interval.low > 0]
        _say(f"    not worse at the 95 % interval in any: {'yes' if not worse else 'no: ' + ', '.join(worse)}")
        saved = statistics.median(saving(one, ours, rule) for one in played)
        _say(f"    median saving on jobs that all finished: {saved:.1%}")


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
