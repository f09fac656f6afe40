"""Name the rows of earlier runs that a quote used, and by what they multiplied what job and book state. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from pricing.machines import Machine
from pricing.offers import Offer
from pricing.pool_experience import PoolExperience
from pricing.risk import TOLD_HOURS
from pricing.units import to_digits
from router.jobs.experience import Experience, LearnedSpeed, job_signature
from router.jobs.spec import Job
from router.jobs.speed import Speed, gang_speed
from router.quotes.quote import QuoteLearned, QuoteLearnedRate, QuoteLearnedSpeed
from router.quotes.request import QuoteProblem


def find_learned(problem: QuoteProblem) -> QuoteLearned | None:
    """Return the learned rows of the job and of the pools that it may use; None where there are none."""
    experience, book = problem.market_inputs.finder.experience, problem.market_inputs.book
    learned = experience.job(problem.job, book)
    known = [(row, _steps_per_hour(problem, learned, row)) for row in experience.speeds if row.job == problem.job.name]
    speeds = [(row, _speed(problem, row, steps)) for row, steps in known if steps is not None]
    counted = [(offer, machine, _rows_of(experience, offer)) for offer, machine in _offers(problem)]
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
        accelerator=row.accelerator,
        accelerators=row.accelerators,
        machines=row.machines,
        fabric=row.fabric,
        steps_per_hour=to_digits(steps_per_hour),
        factor=None if stated is None else to_digits(steps_per_hour / stated),
        runs=row.runs,
        first_at=row.first_at,
        last_at=row.last_at,
        attempts=row.attempts,
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
    """Yield the records of pools whose accelerators the job may use."""
    book, wanted = problem.market_inputs.book, {option.accelerator for option in problem.job.gang.options}
    for row in problem.market_inputs.finder.experience.pools:
        machine = book.machine(row.cloud, row.instance_type)
        if machine is not None and machine.accelerator in wanted:
            yield row


def _rows_of(experience: Experience, offer: Offer) -> tuple[PoolExperience, ...]:
    return tuple(row for row in experience.pools if row.concerns(offer))


def _offers(problem: QuoteProblem) -> Iterator[tuple[Offer, Machine]]:
    """Yield each pool of the job's options once, by name."""
    parts = {
        (o.cloud, o.region, o.zone or "", o.instance_type, o.market.value): (o, part.machine)
        for option in problem.venues
        for part in option.candidate.parts
        for o in (part.offer,)
    }
    yield from (each for _, each in sorted(parts.items(), key=lambda item: item[0]))
