"""Where a job could run, as a quote sees it: a few places out of all candidates, priced and timed for a simulation.

Dollars and speeds are floats here: they enter statistics, never a bill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pricing.places import Market, RegionId
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.candidates import Candidate, steps_to_do
from router.planning.remaining_work import transfer_usd

MOST_SPOT: Final = 3
MOST_SURE: Final = 1  # beside the fastest
_A_REGION: Final = 2  # of spot: what befalls a region befalls all that is in it
_STREAMED: Final = "stream"


@dataclass(frozen=True, slots=True)
class Venue:
    """One place. ``sure``: on-demand or reserved; all else comes and goes.

    ``usd_per_hour`` is of the whole gang, streamed data included; a reservation counts at its amortised price.
    ``steps_per_hour`` holds while it runs, checkpoints taken; of what is sure, failures of machines taken too.
    ``lost_hours``: of work that a loss costs, half a checkpoint interval. ``moving_usd``: bringing data and checkpoint
    there, once; ``data_usd``: the data alone.
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
        """Where it is."""
        return self.candidate.region

    @property
    def pool(self) -> tuple[str, ...]:
        """Machines that come and go together."""
        found = {
            (p.offer.cloud, p.offer.region, p.offer.zone or "", p.offer.instance_type)
            for p in self.candidate.parts
            if self.sure or p.offer.market is Market.SPOT
        }
        return tuple(sorted("/".join(place) for place in found))

    @property
    def size(self) -> tuple[str, int]:
        """Accelerators of the gang."""
        return self.candidate.accelerator, self.candidate.accelerators

    def hours(self, steps: float) -> float:
        """Of ``steps`` where nothing comes in between."""
        return self.startup_hours + steps / self.steps_per_hour

    def whole_usd(self, steps: float) -> float:
        """Expected dollars of ``steps`` there alone; for ranking."""
        c = self.candidate
        each = self.usd_per_hour * c.billed_share / c.steps_per_hour
        return self.usd_per_hour * self.startup_hours + each * steps + self.moving_usd


def venue(job: Job, candidate: Candidate, limits: Limits) -> Venue:
    """A candidate as a venue."""
    risk, sure = candidate.risk, candidate.market is not Market.SPOT
    saving = risk.interval_hours / (risk.interval_hours + risk.stall_hours)
    speed = candidate.steps_per_hour if sure else risk.nominal_steps_per_hour * saving
    paid = [
        (t.what, transfer_usd(t.tariff, t.volume_bytes, limits).dollars()) for t in candidate.transfers if not t.free
    ]
    streamed = sum(usd for what, usd in paid if what == _STREAMED) / steps_to_do(job, running=False)
    return Venue(
        candidate=candidate,
        sure=sure,
        usd_per_hour=(candidate.amortised_usd_per_hour or candidate.usd_per_hour).dollars() + streamed * speed,
        steps_per_hour=speed,
        startup_hours=candidate.startup_hours,
        lost_hours=0.0 if sure else risk.interval_hours / 2 + risk.loss_extra_hours,
        moving_usd=sum(usd for what, usd in paid if what != _STREAMED),
        data_usd=sum(usd for what, usd in paid if what == "data"),
    )


def venues_of(
    job: Job, candidates: Sequence[Candidate], limits: Limits, hours: tuple[datetime, datetime] | None = None
) -> tuple[Venue, ...]:
    """All of them that a quote can tell something about, within ``hours``: :func:`untold` says why not the others.

    A job that cannot resume loses all its work with a spot machine, so none is left of these.
    """
    found = (venue(job, c, limits) for c in candidates if not untold(c, hours))
    return tuple(v for v in found if v.usd_per_hour > 0 and (v.sure or job.checkpoint is not None))


def untold(candidate: Candidate, hours: tuple[datetime, datetime] | None) -> str:
    """Return why a quote can say nothing of a reservation: no price, or dates too short for its window; "" where it
    can."""
    costs = {part.listing.cost for part in candidate.parts} - {None}
    if costs - {"amortised"}:
        word = "sunk" if "sunk" in costs else "unknown"
        return f"{candidate.key}: what it costs is {word}, so a quote has no price for it"
    if hours is not None and not candidate.covers(*hours):
        return f"{candidate.key}: its dates do not reach from the start to the deadline"
    return ""


def fastest(venues: Sequence[Venue], steps: float) -> Venue:
    """That is done first, the cheapest of several; of what is sure if anything is. ValueError for none."""
    sure = [v for v in venues if v.sure] or venues
    return min(sure, key=lambda v: (v.hours(steps), v.usd_per_hour, v.candidate.key))


def chosen(venues: Sequence[Venue], steps: float, hours: float) -> tuple[Venue, ...]:
    """A few to hold in mind within ``hours``: the fastest sure one first, the cheapest sure ones that are in time, and
    spot in different pools that is cheaper than those. Empty for none."""
    if not venues:
        return ()
    first = fastest(venues, steps)
    in_time = [v for v in venues if v.hours(steps) <= hours]
    sure = _cheapest([v for v in in_time if v.sure], steps)[:MOST_SURE]
    bar = sure[0].whole_usd(steps) if sure else first.whole_usd(steps)
    cheap = [v for v in in_time if not v.sure and (v.whole_usd(steps) < bar or not first.sure)]
    spot = _apart(_cheapest(cheap, steps), MOST_SPOT)
    found = {v.candidate.key: v for v in (first, *sure, *spot)}
    return tuple(found.values())


def _cheapest(venues: Sequence[Venue], steps: float) -> list[Venue]:
    return sorted(venues, key=lambda v: (v.whole_usd(steps), v.candidate.key))


def _apart(venues: Sequence[Venue], most: int) -> list[Venue]:
    """The first of each pool, a few of each region."""
    pools: set[str] = set()
    regions: dict[RegionId, int] = {}
    found: list[Venue] = []
    for v in venues:
        if len(found) < most and not pools & set(v.pool) and regions.get(v.region, 0) < _A_REGION:
            found.append(v)
            pools |= set(v.pool)
            regions[v.region] = regions.get(v.region, 0) + 1
    return found


def only(venues: Sequence[Venue], keep: Callable[[Venue], bool]) -> tuple[Venue, ...]:
    """Those that ``keep`` says yes to."""
    return tuple(v for v in venues if keep(v))
