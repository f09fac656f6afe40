"""Explanation of a quote: the parts of its cost, what moves it, the conditions on which it holds, and what it rests on.

Rows of earlier runs that it used are named, with the factor by which they multiplied what job and book state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from pricing.machines import Machine
from pricing.money import Usd
from pricing.offers import Offer, is_stale
from pricing.pool_experience import PoolExperience
from pricing.risk import TOLD_HOURS
from pricing.units import to_digits
from router.jobs.experience import Experience, LearnedSpeed, job_signature
from router.jobs.spec import Job
from router.jobs.speed import Speed, gang_speed
from router.quotes.curve import SimulatedDeadline
from router.quotes.quote import Driver, Other, QuoteEvidence, QuoteLearned, QuoteLearnedRate, QuoteLearnedSpeed
from router.quotes.request import QuoteProblem, format_offer, option_keys
from router.quotes.runner import ScenarioOutcomes, ScenarioRunner
from router.quotes.statistics import quantiles, summarise_usd, to_moment, to_usd, wilson_interval
from router.spot.availability.fit import AvailabilityFit
from router.spot.availability.observed import OptionAvailability
from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.traces import Floats
from router.spot.venues import QuoteOption

_SIZES: Final = 2
_TOLD_TICK_S: Final = HOUR_S // 2  # of a simulation, from which on losses between two ticks are worth telling
_LEAST_SHARE: Final = 0.005
# What a quote says of a learned speed as it was learned.
_AS_LEARNED: Final = ("accelerator", "accelerators", "machines", "fabric", "runs", "first_at", "last_at", "attempts")
_WORDS: Final = {
    "slow": "the job may be slower than its profile says",
    "sure": "spot may be scarce, and on-demand steps in",
    "launches": "spot may be lost often: each start costs start-up and lost work",
}


@dataclass(frozen=True, slots=True)
class QuoteChange:
    """The job with one thing changed, and its options then; ``allowed`` by the job's own rules."""

    what: str
    menu: tuple[QuoteOption, ...]
    allowed: bool = True

    @property
    def key(self) -> tuple[str, ...]:
        return option_keys(self.menu)


def compute_drivers(s: SimulatedDeadline) -> tuple[Driver, ...]:
    """Return the parts of the expected cost that is quoted, to the cent, the largest first.

    They add up to it but for start-ups and lost work, those of the simulated runs, which are part of the machines.
    Where earlier quotes did not hold, the simulation is read at other levels: all parts alike.
    """
    got, mean = s.played, to_usd(float(s.usd.mean()))
    total = float(got.usd.mean())
    if mean is None or not np.isfinite(total) or total <= 0 or not mean.nanos:
        return ()
    read = mean.dollars() / total
    venues = s.stage.venues
    spot, egress = float(got.spot_usd.mean()), float(got.egress_usd.mean())
    waste = sum(float(usd.mean()) for usd in s.stage.waste_usd(got))
    sure = "on-demand machines" if any(not v.sure for v in venues) else "machines on demand"
    parts = [("spot machines", spot), (sure, total - spot - egress), ("moving data and checkpoints", egress)]
    priced_parts = [
        (what, part) for what, dollars in parts if (part := to_usd(dollars * read)) is not None and part.nanos > 0
    ]
    priced_parts.sort(key=lambda part: -part[1].nanos)
    rest = mean - Usd.total(part for _, part in priced_parts[1:])
    parts_quoted = [
        Driver(what, part, part.nanos / mean.nanos) for what, part in [(priced_parts[0][0], rest), *priced_parts[1:]]
    ]
    share = waste / total
    if share >= _LEAST_SHARE:
        parts_quoted.append(Driver("of these: start-ups and lost work", to_usd(share * mean.dollars()), share))
    return tuple(parts_quoted)


def describe_dearest_risk(got: ScenarioOutcomes) -> str:
    """Return in words the cause that correlates most with the cost over the draws; "" where none does."""
    ran = np.maximum(got.spot_ticks + got.on_demand_ticks, 1)
    causes = {"slow": got.slow, "sure": got.on_demand_ticks / ran, "launches": got.launches.astype(np.float64)}
    strength = {name: _correlation(values, got.usd) for name, values in causes.items()}
    worst = max(strength, key=lambda name: strength[name])
    return (
        f"{_WORDS[worst]} (goes with {strength[worst]:.0%} of what the cost varies)" if strength[worst] > 0.01 else ""
    )


def _uncertainty(fit: AvailabilityFit | None) -> str:
    if fit is None:
        return "how far spot availability drifts is assumed, not learned from your history: run stepfare quotes fit"
    days = max(1, (fit.until - fit.since).days)
    learned = f"were learned from {days} days of {fit.pools} pools"
    return f"how far spot availability drifts, and how wide the range is, {learned}"


def _correlation(values: Floats, dollars: Floats) -> float:
    """Return the share of the cost's variance that a straight line through ``values`` explains, where it rises."""
    finite = np.isfinite(dollars)
    if finite.sum() < 3 or np.ptp(values[finite]) == 0 or np.ptp(dollars[finite]) < 1e-9:
        return 0.0
    r = float(np.corrcoef(values[finite], dollars[finite])[0, 1])
    return max(r, 0.0) ** 2


def build_alternative(what: str, s: SimulatedDeadline, start: datetime) -> Other:
    """Return the simulation as an alternative."""
    cost, finish = summarise_usd(s.usd), to_moment(start, float(quantiles(s.finish_s, (0.5,))[0]))
    draws = s.usd.size
    low, high = wilson_interval(s.on_time, draws)
    return Other(what, cost.p50, cost.p90, s.on_time, finish, draws, low, high, cost.mean)


def propose_changes(problem: QuoteProblem, menu: Sequence[QuoteOption]) -> list[QuoteChange]:
    """Return the same job with one thing changed, for several changes."""
    steps, hours = problem.steps, problem.window_h
    changes: list[QuoteChange] = []

    def add(what: str, venues: Sequence[QuoteOption], *, allowed: bool = True) -> None:
        picked = problem.menu(venues, steps, hours)
        if picked and picked[0].hours(steps) <= hours:
            changes.append(QuoteChange(what, picked, allowed))

    spot = [v for v in menu if not v.sure]
    if spot:
        add("on-demand alone", [v for v in problem.venues if v.sure])
    elif problem.job.market.spot == "never" and problem.job.checkpoint is not None:
        market = problem.job.market.model_copy(update={"spot": "allowed"})
        add("with spot allowed", problem.again(market=market), allowed=False)
    own = {v.size for v in menu}
    best = min(menu, key=lambda v: v.whole_usd(steps))
    add(f"without {best.region}", [v for v in problem.venues if v.region != best.region and v.size in own])
    clouds = sorted({v.candidate.offer.cloud for v in menu})
    for cloud in clouds if len(clouds) > 1 else ():
        add(f"on {cloud} alone", [v for v in problem.venues if v.candidate.offer.cloud == cloud and v.size in own])
    alone = list_single_sizes(problem, menu)
    return changes + [QuoteChange(what, venues) for what, venues in alone if venues != tuple(menu)]


def list_single_sizes(
    problem: QuoteProblem, menu: Sequence[QuoteOption], hours: float | None = None
) -> list[tuple[str, tuple[QuoteOption, ...]]]:
    """Return the same job on one gang size, for each of the cheapest sizes.

    It is empty where no other size than those of ``menu`` is available. ``hours`` is the time to the deadline; None: to
    that of the request.
    """
    steps, hours = problem.steps, problem.window_h if hours is None else hours
    sizes = {v.size for v in problem.venues}
    if {v.size for v in menu} == sizes and len(sizes) == 1:
        return []
    ranked = sorted(sizes, key=lambda s: (min(v.whole_usd(steps) for v in problem.venues if v.size == s), s))
    menus: list[tuple[str, tuple[QuoteOption, ...]]] = []
    for kind, count in ranked:
        picked = problem.menu([v for v in problem.venues if v.size == (kind, count)], steps, hours)
        if len(menus) < _SIZES and picked and picked[0].hours(steps) <= hours:
            menus.append((f"on {count} {kind} alone", picked))
    return menus


def describe_evidence(
    menu: Sequence[QuoteOption], basis: OptionAvailability, fit: AvailabilityFit | None
) -> QuoteEvidence:
    """Return what was watched of the spot places, and what was learned from it."""
    spot = sum(not v.sure for v in menu)
    if fit is None or not basis.observed:
        return QuoteEvidence(spot, basis.observed_count)
    return QuoteEvidence(spot, basis.observed_count, max(1, (fit.until - fit.since).days), fit.pools)


def _refusals(menu: Sequence[QuoteOption]) -> str:
    """Return that a plan counts refusals, where it does: so it is less sure than a quote of the same job."""
    guards = [v.candidate.guard for v in menu if v.candidate.guard is not None]
    most = max((guard.refusal_probability for guard in guards), default=0.0)
    return f"; a plan takes them to be refused {most:.0%} of the times" if most else ""


def list_conditions(problem: QuoteProblem, stage: ScenarioRunner, policy: str) -> tuple[str, ...]:
    """Return the conditions on which the quote holds that was simulated by ``stage``."""
    menu, availability, tick_s = stage.venues, stage.availability, stage.clock.tick_s
    sentences = [f"started at {problem.start:%Y-%m-%d %H:%MZ}, run by {policy}"]
    if any(v.sure for v in menu):
        sentences.append(f"on-demand machines can be had when they are needed{_refusals(menu)}")
    else:
        sentences.append("spot alone: nothing makes sure that it is ever done")
    sentences.append("prices stay as they are in the price book")
    stale = sorted({format_offer(v.candidate) for v in menu if any(is_stale(p.offer) for p in v.candidate.parts)})
    if stale:
        sentences.append(f"prices that could not be refreshed hold: {', '.join(stale)}")
    if len({v.region for v in menu}) > problem.job.gang.regions:
        sentences.append(
            "lost machines may be replaced in another region: `gang.regions` and `max_moves` bind a plan alone"
        )
    if problem.job.data is not None and problem.job.data.mode == "copy":
        sentences.append(
            "the data are in the first region when it starts; copying them there is in the cost, not in the time"
        )
    if any(not v.sure for v in menu) and not availability.observed:
        sentences.append("spot was never observed here: its availability, and how wide the range is, come from a prior")
    if any(not v.sure for v in menu) and availability.observed:
        sentences.append(_uncertainty(problem.market_inputs.fit))
    if any(not v.sure for v in menu) and tick_s > _TOLD_TICK_S:
        steps = f"simulated in steps of {tick_s / HOUR_S:.1f} h"
        sentences.append(f"{steps}: what is lost to shorter runs on spot is not counted")
    if problem.ask.job.checkpoint is None and problem.ask.job.market.spot != "never":
        sentences.append("without a checkpoint the job would lose all its work with a spot machine: none is counted on")
    return tuple(sentences)


def find_learned(problem: QuoteProblem) -> QuoteLearned | None:
    """Return the learned rows of the job and of the pools that it may use; None where there are none."""
    experience, book = problem.market_inputs.finder.experience, problem.market_inputs.book
    learned = experience.job(problem.job, book)
    known = [(row, _steps_per_hour(problem, learned, row)) for row in experience.speeds if row.job == problem.job.name]
    speeds = [(row, _speed(problem, row, steps)) for row, steps in known if steps is not None]
    counted = [
        (offer, machine, tuple(row for row in experience.pools if row.concerns(offer)))
        for offer, machine in _offers(problem)
    ]
    rates = [_rate(problem, offer, machine, found) for offer, machine, found in counted if found]
    if not speeds and not rates:
        return None
    return QuoteLearned(
        job_signature=job_signature(problem.ask.job),
        points=len(speeds),
        # Records of other pools of these accelerators count too, through the levels of risk; as in a plan.
        digest=Experience(tuple(row for row, _ in speeds), tuple(_pools_of(problem))).digest,
        speeds=tuple(speed for _, speed in speeds),
        rates=tuple(rates),
    )


def _speed(problem: QuoteProblem, row: LearnedSpeed, steps_per_hour: float) -> QuoteLearnedSpeed:
    stated = _steps_per_hour(problem, problem.job, row)
    return QuoteLearnedSpeed(
        **{name: getattr(row, name) for name in _AS_LEARNED},
        steps_per_hour=to_digits(steps_per_hour),
        factor=None if stated is None else to_digits(steps_per_hour / stated),
    )


def _steps_per_hour(problem: QuoteProblem, job: Job, row: LearnedSpeed) -> float | None:
    machine = problem.market_inputs.book.machine(row.cloud, row.instance_type)
    accelerator = problem.market_inputs.book.accelerator(row.accelerator)
    if machine is None or accelerator is None:
        return None
    found = gang_speed(job.workload, machine, row.machines, accelerator, problem.market_inputs.book.accelerators)
    return found.steps_per_hour if isinstance(found, Speed) else None


def _rate(problem: QuoteProblem, offer: Offer, machine: Machine, rows: tuple[PoolExperience, ...]) -> QuoteLearnedRate:
    return QuoteLearnedRate(
        cloud=offer.cloud,
        region=offer.region,
        zone=offer.zone,
        instance_type=offer.instance_type,
        market=offer.market.value,
        factor=to_digits(_rate_factor(problem, offer, machine)),
        hours=to_digits(sum(row.hours for row in rows)),
        interruptions=to_digits(sum(row.interruptions for row in rows)),
        runs=sum(row.runs for row in rows),
        first_at=min(row.first_at for row in rows),
        last_at=max(row.last_at for row in rows),
    )


def _rate_factor(problem: QuoteProblem, offer: Offer, machine: Machine) -> float:
    """Return by how much earlier runs raised or lowered the rate of interruptions in the first hours of a life."""
    experience, book = problem.market_inputs.finder.experience, problem.market_inputs.book
    known, assumed = (risk.gang(offer, machine, 1) for risk in (experience.risk(book), book.risk))
    return known.per_hour_over(TOLD_HOURS) / assumed.per_hour_over(TOLD_HOURS)


def _pools_of(problem: QuoteProblem) -> Iterator[PoolExperience]:
    book, wanted = problem.market_inputs.book, {option.accelerator for option in problem.job.gang.options}
    for row in problem.market_inputs.finder.experience.pools:
        machine = book.machine(row.cloud, row.instance_type)
        if machine is not None and machine.accelerator in wanted:
            yield row


def _offers(problem: QuoteProblem) -> Iterator[tuple[Offer, Machine]]:
    """Yield each pool of the job's options once, by name."""
    parts = {
        (o.cloud, o.region, o.zone or "", o.instance_type, o.market.value): (o, part.machine)
        for option in problem.venues
        for part in option.candidate.parts
        for o in (part.offer,)
    }
    yield from (each for _, each in sorted(parts.items(), key=lambda item: item[0]))
