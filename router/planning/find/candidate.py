"""Define a candidate: a gang that could run a job, priced and timed, with the fallback behind it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from pricing.machines import Machine
from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market, RegionId
from pricing.risk import GangRisk
from router.jobs.goodput import GangRunRisk
from router.jobs.limits import Maintenance
from router.jobs.spec import Job
from router.jobs.speed import SpeedEvidence
from router.planning.find.emissions import ExternalCost
from router.planning.find.gang_rates import GuardTerms
from router.planning.find.listings import OfferListing
from router.planning.find.transfers import Transfer

_FREE = UsdPerHour(0)
SURELY: Final = 1 - 1e-6  # of the cost of its steps: a run costs at least this much


def refuse_order(offers: Iterable[Offer], advice: str) -> str:
    """Return the words for offers that cannot be ordered, with what each lacks where more is known than its cloud."""
    why = "; ".join(dict.fromkeys(reason for offer in offers if (reason := offer.unmade)))
    return f"cannot be ordered from here{why and f': {why}'} (--advisory {advice})"


@dataclass(frozen=True, slots=True)
class GangPart:
    """``machines`` machines of one offer, whose price is the marginal one after discounts."""

    offer: Offer
    machine: Machine
    machines: int
    listing: OfferListing


@dataclass(frozen=True)
class Candidate:
    """A gang that could run a job: one offer, an on-demand core (first part) with the rest on spot, or several parts.

    Several parts are of several zones, or of two machine types (the cheaper one last).

    Rates as in design note placement-program: ``steps_per_hour`` g is expected, ``on_time_steps_per_hour`` g(α) is
    reached with the job's confidence (equal without a deadline), ``billed_share`` b of run time is billed. ``running``
    marks where the job runs now. ``weak`` says why to doubt price or risk, ``risk_basis`` how often the gang is
    interrupted, within which interval and by which evidence. ``external`` is None where the limits weigh no cost
    to others; where they do, the objective counts ``external.usd_per_hour`` beside the price, which budgets do not.

    A spot gang of a job that resumes runs under the deadline guard: ``guard`` says how much of the ``fallback``, an
    on-demand candidate of the job, is expected for each productive hour reserved, and ``fallback_moves`` what moving
    there is expected to cost for it. Its g(α) is then what fills the time in which the guard holds the deadline.
    ``next_pool`` names the spot pool to which it goes from a bad one, "" where no offer has one; an hour there counts
    as ``next_pool_hours`` of the gang's.
    """

    key: str
    job: str
    region: RegionId
    parts: tuple[GangPart, ...]
    accelerator: str
    accelerators: int
    usd_per_hour: UsdPerHour
    amortised_usd_per_hour: UsdPerHour | None
    steps_per_hour: float
    on_time_steps_per_hour: float
    billed_share: float
    startup: timedelta
    risk: GangRunRisk
    transfers: tuple[Transfer, ...]
    running: bool
    speed_basis: str
    speed_evidence: SpeedEvidence
    weak: str
    gang_risk: GangRisk
    external: ExternalCost | None = None
    risk_basis: str = ""
    guard: GuardTerms | None = None
    next_pool: str = ""
    next_pool_hours: float = 1.0
    fallback: Candidate | None = None
    fallback_moves: UsdPerHour = _FREE

    @property
    def startup_hours(self) -> float:
        """Return the start-up time in hours."""
        return self.startup / timedelta(hours=1)

    @property
    def billed_per_reserved(self) -> float:
        """Return κ, the hours expected to be billed for each productive hour reserved."""
        return self.billed_share * self.on_time_steps_per_hour / self.steps_per_hour

    @property
    def usd_per_reserved_hour(self) -> float:
        """Return the expected marginal dollars for each productive hour reserved; for the program only."""
        return self.usd_per_hour.dollars() * self.billed_per_reserved + self.fallback_usd_per_reserved_hour

    @property
    def fallback_per_reserved(self) -> float:
        """Return the hours of the fallback expected to be billed for each productive hour reserved; 0 without one."""
        return 0.0 if self.guard is None or self.fallback is None else self.guard.hours_per_reserved

    @property
    def kept_free(self) -> tuple[GangPart, ...]:
        """Return the machines of a fallback that limits keep free for it."""
        kept = self.fallback is not None and self.guard is not None and self.guard.reserves_fallback
        return self.fallback.parts if kept and self.fallback is not None else ()

    @property
    def fallback_usd_per_reserved_hour(self) -> float:
        """Return what the fallback is expected to cost for each productive hour reserved, moves included."""
        if self.fallback is None:
            return 0.0
        return self.fallback.usd_per_hour.dollars() * self.fallback_per_reserved + self.fallback_moves.dollars()

    @cached_property
    def objective_per_hour(self) -> float:
        """Return the dollars an hour that the objective counts: price and weighed external cost."""
        more = 0 if self.external is None else self.external.usd_per_hour.nanos
        return UsdPerHour(self.usd_per_hour.nanos + more).dollars()

    @property
    def objective_per_reserved_hour(self) -> float:
        """Return what the objective counts for each productive hour reserved; for the program only."""
        objective = self.objective_per_hour * self.billed_per_reserved
        if self.fallback is None:
            return objective
        return objective + self.fallback.objective_per_hour * self.fallback_per_reserved + self.fallback_moves.dollars()

    @property
    def usd_per_step(self) -> float:
        """Return the marginal dollars a step without start-up and moves; for ranking only."""
        if self.fallback is not None:
            return self.usd_per_reserved_hour / self.on_time_steps_per_hour
        return self.usd_per_hour.dollars() * self.billed_share / self.steps_per_hour

    @property
    def objective_per_step(self) -> float:
        """Return what the objective counts for a step, without start-up and moves; for ranking only."""
        if self.fallback is not None:
            return self.objective_per_reserved_hour / self.on_time_steps_per_hour
        return self.objective_per_hour * self.billed_share / self.steps_per_hour

    @cached_property
    def dates(self) -> tuple[datetime | None, datetime | None]:
        """Return from when until when all parts are available; None is open."""
        starts = [p.listing.start for p in self.parts if p.listing.start is not None]
        ends = [p.listing.until for p in self.parts if p.listing.until is not None]
        return max(starts, default=None), min(ends, default=None)

    @cached_property
    def closed(self) -> tuple[Maintenance, ...]:
        """Return the maintenance windows of all parts, each once, in order of time."""
        windows = dict.fromkeys(window for part in self.parts for window in part.listing.closed)
        return tuple(sorted(windows, key=lambda window: (window.start, window.until, window.name)))

    def covers(self, start: datetime, end: datetime) -> bool:
        """Return whether all parts are available from ``start`` until ``end``."""
        return all(part.listing.covers(start, end) for part in self.parts)

    @property
    def amortised_usd_per_step(self) -> float | None:
        """Return the dollars a step at amortised prices, as ``usd_per_step``; None where a price is unknown."""
        rate = self.amortised_usd_per_hour
        if rate is None:
            return None
        fallback = self.fallback_usd_per_reserved_hour / self.on_time_steps_per_hour
        return rate.dollars() * self.billed_share / self.steps_per_hour + fallback

    @property
    def provisionable(self) -> bool:
        """Return whether every part can be ordered."""
        return all(part.offer.provisionable for part in self.parts)

    @property
    def order_refusal(self) -> str:
        """Return why it cannot be ordered; "" where it can."""
        return "" if self.provisionable else refuse_order((part.offer for part in self.parts), "plans with it")

    @property
    def market(self) -> Market:
        """Return the market of the part with the larger risk: spot for a mix."""
        return self.parts[-1].offer.market

    @property
    def machines(self) -> int:
        """Return the number of machines of all parts."""
        return sum(part.machines for part in self.parts)

    @cached_property
    def offer(self) -> Offer:
        """Return the last part's offer, which names place, type and market."""
        return self.parts[-1].offer

    def run_hours(self, steps: float) -> float:
        """Return the hours of work for ``steps`` with the job's confidence, start-up excluded.

        Of a guarded gang they are hours without any interruption: its guard waits for those.
        """
        if self.guard is None:
            return steps / self.on_time_steps_per_hour
        saving = self.risk.interval_hours / (self.risk.interval_hours + self.risk.stall_hours)
        return steps / (self.risk.nominal_steps_per_hour * saving) * self.guard.slow_share

    def reserved_hours(self, steps: float) -> float:
        """Return the hours to hold for ``steps`` in one run, start-up included."""
        return self.startup_hours + steps / self.on_time_steps_per_hour

    def expected_usd(self, steps: float) -> float:
        """Return the marginal dollars of ``steps`` in one run, start-up included, moves excluded; for ranking only."""
        return self.usd_per_hour.dollars() * self.startup_hours + self.usd_per_step * steps

    def expected_objective(self, steps: float) -> float:
        """Return the same as the objective counts it, external cost included."""
        return self.objective_per_hour * self.startup_hours + self.objective_per_step * steps


def steps_to_do(job: Job, *, running: bool) -> int:
    """Return the steps left where the job resumes or keeps running; all steps where it must start over."""
    return job.steps_left if running or job.checkpoint is not None else job.steps


def least_hours(job: Job, candidates: Sequence[Candidate]) -> float:
    """Return the hours of the fastest candidate, start-up included, with the job's confidence."""
    return min((c.reserved_hours(steps_to_do(job, running=c.running)) for c in candidates), default=math.inf)
