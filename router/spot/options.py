"""Placement options for a policy: a candidate of the planner as a policy sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time

from pricing.places import Market
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.transfers import TRANSFER_GIB_PER_S, Transfer
from router.planning.problem.remaining_work import moves_usd, remaining_usd
from router.spot.availability.hazard_model import LossRates
from router.spot.policies.interface import AvailabilityEstimate, PlacementOption
from router.spot.venues import pool_keys, undisturbed_steps_per_hour

_STREAMED = "stream"
_CHECKPOINT = "checkpoint"


def build_option(candidate: Candidate, job: Job, limits: Limits) -> PlacementOption:
    """Return the placement option for the rest of the job at ``candidate``.

    ``job`` has the steps that are confirmed. Data that is streamed while the job runs delays nothing.
    """
    steps = steps_to_do(job, running=candidate.running)
    return PlacementOption(
        key=candidate.key,
        market=candidate.market,
        usd_per_hour=candidate.usd_per_hour,
        hours=candidate.run_hours(steps),
        startup_hours=candidate.startup_hours,
        expected_usd=remaining_usd(job, candidate, limits),
        transfer_hours=_transfer_hours(t for t in candidate.transfers if t.what != _STREAMED),
        losses=LossRates.of(candidate.gang_risk),
        knows_losses=candidate.gang_risk.knows_availability,
        moves_usd=moves_usd(candidate, limits),
        site=_machine_group(candidate),
        region=str(candidate.region),
        usd_since=_price_date(candidate),
        chances=_availability(candidate, steps),
    )


def checkpoint_transfer_hours(candidate: Candidate) -> float:
    """Return how long the transfer of the job's checkpoint to ``candidate`` takes; 0 where it is there."""
    return _transfer_hours(t for t in candidate.transfers if t.what == _CHECKPOINT)


def _transfer_hours(transfers: Iterable[Transfer]) -> float:
    return sum(t.gib for t in transfers) / TRANSFER_GIB_PER_S / 3600


def partition_options(
    every: Sequence[Candidate], open_candidates: Sequence[Candidate], job: Job, limits: Limits
) -> tuple[tuple[PlacementOption, ...], tuple[PlacementOption, ...]]:
    """Return the options of the candidates that are available now (``open_candidates``), and those of the others."""
    keys = {candidate.key for candidate in open_candidates}
    closed = tuple(build_option(candidate, job, limits) for candidate in every if candidate.key not in keys)
    return tuple(build_option(candidate, job, limits) for candidate in open_candidates), closed


def _machine_group(candidate: Candidate) -> str:
    """Return the name of these machines and numbers in their region, whatever the market.

    On-demand is mostly sold for a region, spot by zone.
    """
    machines: Counter[str] = Counter()
    for part in candidate.parts:
        machines[part.machine.instance_type] += part.machines
    kinds = " + ".join(f"{count} x {kind}" for kind, count in sorted(machines.items()))
    return f"{candidate.region} {kinds}"


def _availability(candidate: Candidate, steps: float) -> AvailabilityEstimate:
    """Return the availability estimate as a quote has it, see :func:`router.spot.venues.build_quote_option`."""
    if candidate.market is not Market.SPOT:
        return AvailabilityEstimate(steps / candidate.steps_per_hour)
    return AvailabilityEstimate(
        steady_hours=steps / undisturbed_steps_per_hour(candidate),
        lost_hours=candidate.risk.mean_loss_hours,
        pools=tuple(sorted(pool_keys(candidate, spot_alone=True))),
        back_hours=candidate.risk.recovery_hours,
    )


def _price_date(candidate: Candidate) -> datetime | None:
    """Return the day of the newest of its prices; None where one has no date."""
    days = [part.offer.as_of for part in candidate.parts]
    known = [day for day in days if day is not None]
    return datetime.combine(max(known), time(), UTC) if len(known) == len(days) else None
