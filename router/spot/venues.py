"""Placement options of a quote: a few of all candidates, priced and timed for a simulation.

Dollars and speeds are floats here: they enter statistics, never a bill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pricing.places import Market, RegionId
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.transfers import transfer_usd

MOST_SPOT: Final = 3
MOST_SURE: Final = 1  # sure options beside the fastest
_A_REGION: Final = 2  # spot options of one region: an event there affects all of them
_STREAMED: Final = "stream"


@dataclass(frozen=True, slots=True)
class QuoteOption:
    """One placement option of a quote.

    ``sure`` says that it is on-demand or reserved; all other machines may be preempted.

    ``usd_per_hour`` is of the whole gang, streamed data included; a reservation counts at its amortised price.
    ``steps_per_hour`` holds while the job runs, checkpoints deducted; for a sure option failures of machines are
    deducted too. ``lost_hours`` is the work that a loss costs, half a checkpoint interval. ``moving_usd`` is the cost
    of bringing data and checkpoint there, once; ``data_usd`` is that of the data alone.
    """

    candidate: Candidate
    sure: bool
    usd_per_hour: float
    steps_per_hour: float
    startup_hours: float
    lost_hours: float
    moving_usd: float
    data_usd: float

    @property
    def region(self) -> RegionId:
        return self.candidate.region

    @property
    def pool(self) -> tuple[str, ...]:
        """The key of the machines that are lost and return together."""
        return tuple(sorted("/".join(place) for place in pool_keys(self.candidate, spot_alone=not self.sure)))

    @property
    def size(self) -> tuple[str, int]:
        return self.candidate.accelerator, self.candidate.accelerators

    def hours(self, steps: float) -> float:
        """Return the hours of ``steps`` where nothing interrupts them."""
        return self.startup_hours + steps / self.steps_per_hour

    def whole_usd(self, steps: float) -> float:
        """Return the expected dollars of ``steps`` there alone; for ranking."""
        c = self.candidate
        if c.guard is None:
            each = self.usd_per_hour * c.billed_share / c.steps_per_hour
        else:
            each = self.usd_per_hour * c.billed_per_reserved + c.fallback_usd_per_reserved_hour
            each /= c.on_time_steps_per_hour
        return self.usd_per_hour * self.startup_hours + each * steps + self.moving_usd


def undisturbed_steps_per_hour(candidate: Candidate) -> float:
    """Return the speed of a gang that nothing interrupts, checkpoints deducted."""
    risk = candidate.risk
    return risk.nominal_steps_per_hour * (risk.interval_hours / (risk.interval_hours + risk.stall_hours))


def pool_keys(candidate: Candidate, *, spot_alone: bool) -> set[tuple[str, str, str, str]]:
    """Return cloud, region, zone and machine type of the gang's machines, or of those on spot."""
    return {
        (p.offer.cloud, p.offer.region, p.offer.zone or "", p.offer.instance_type)
        for p in candidate.parts
        if not spot_alone or p.offer.market is Market.SPOT
    }


def build_quote_option(job: Job, candidate: Candidate, limits: Limits) -> QuoteOption:
    """Return a candidate as a quote option."""
    sure = candidate.market is not Market.SPOT
    speed = candidate.steps_per_hour if sure else undisturbed_steps_per_hour(candidate)
    paid = [
        (t.what, transfer_usd(t.tariff, t.volume_bytes, limits).dollars()) for t in candidate.transfers if not t.free
    ]
    streamed = sum(usd for what, usd in paid if what == _STREAMED) / steps_to_do(job, running=False)
    return QuoteOption(
        candidate=candidate,
        sure=sure,
        usd_per_hour=(candidate.amortised_usd_per_hour or candidate.usd_per_hour).dollars() + streamed * speed,
        steps_per_hour=speed,
        startup_hours=candidate.startup_hours,
        lost_hours=0.0 if sure else candidate.risk.mean_loss_hours,
        moving_usd=sum(usd for what, usd in paid if what != _STREAMED),
        data_usd=sum(usd for what, usd in paid if what == "data"),
    )


def build_quote_options(
    job: Job, candidates: Sequence[Candidate], limits: Limits, hours: tuple[datetime, datetime] | None = None
) -> tuple[QuoteOption, ...]:
    """Return all options for which a quote can be made within ``hours``.

    :func:`unquotable_reason` says why not for the others. A job that cannot resume loses all its work with a spot
    machine, so spot is left out for it.
    """
    options = (build_quote_option(job, c, limits) for c in candidates if not unquotable_reason(c, hours))
    return tuple(v for v in options if v.usd_per_hour > 0 and (v.sure or job.checkpoint is not None))


def unquotable_reason(candidate: Candidate, hours: tuple[datetime, datetime] | None) -> str:
    """Return why a quote can say nothing of a candidate, or "" where it can.

    The reasons are that it has no price, or that its dates are too short for the window. No recorded availability
    tells how two machine types are had together, so a quote counts on no such gang.
    """
    if len({part.offer.instance_type for part in candidate.parts}) > 1:
        return "gangs of two machine types: nothing is known of how both types are had together"
    costs = {part.listing.cost for part in candidate.parts} - {None}
    if costs - {"amortised"}:
        word = "sunk" if "sunk" in costs else "unknown"
        return f"{candidate.key}: what it costs is {word}, so a quote has no price for it"
    if hours is not None and not candidate.covers(*hours):
        return f"{candidate.key}: its dates do not cover the time from the start to the deadline"
    return ""


def find_fastest(venues: Sequence[QuoteOption], steps: float) -> QuoteOption:
    """Return the option that is done first, the cheapest of several, a sure one if there is any.

    Raise ValueError without options.
    """
    sure = [v for v in venues if v.sure] or venues
    return min(sure, key=lambda v: (v.hours(steps), v.usd_per_hour, v.candidate.key))


def shortlist_options(venues: Sequence[QuoteOption], steps: float, hours: float) -> tuple[QuoteOption, ...]:
    """Return the few options worth simulating within ``hours``; empty without options.

    They are the fastest sure one first, the cheapest sure ones that are in time, and spot in different pools that is
    cheaper than those.
    """
    if not venues:
        return ()
    first = find_fastest(venues, steps)
    in_time = [v for v in venues if v.hours(steps) <= hours]
    sure = _cheapest([v for v in in_time if v.sure], steps)[:MOST_SURE]
    bar = sure[0].whole_usd(steps) if sure else first.whole_usd(steps)
    cheap = [v for v in in_time if not v.sure and (v.whole_usd(steps) < bar or not first.sure)]
    spot = _pick_distinct_pools(_cheapest(cheap, steps), MOST_SPOT)
    shortlist = {v.candidate.key: v for v in (first, *sure, *spot)}
    return tuple(shortlist.values())


def _cheapest(venues: Sequence[QuoteOption], steps: float) -> list[QuoteOption]:
    return sorted(venues, key=lambda v: (v.whole_usd(steps), v.candidate.key))


def _pick_distinct_pools(venues: Sequence[QuoteOption], max_options: int) -> list[QuoteOption]:
    """Return the first option of each pool, a few of each region, ``max_options`` in all."""
    pools: set[str] = set()
    regions: dict[RegionId, int] = {}
    picked: list[QuoteOption] = []
    for v in venues:
        if len(picked) < max_options and not pools & set(v.pool) and regions.get(v.region, 0) < _A_REGION:
            picked.append(v)
            pools |= set(v.pool)
            regions[v.region] = regions.get(v.region, 0) + 1
    return picked
