"""Ask the product's own code for its promises on jobs that run on a recorded pool, or on demand beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Final

import numpy as np

from pricing.book import PriceBook
from pricing.book_file import embedded_book
from pricing.hazard import HazardShape, deviation_of
from pricing.machines import Accelerator, Machine
from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market, Region, RegionId
from pricing.pool_experience import ExperienceKind, PoolExperience
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.find.candidates import CandidateFinder
from router.quotes.make_quote import DRAWS
from router.quotes.request import MarketInputs, QuoteProblem, QuoteRequest
from router.quotes.runner import QuoteClock
from router.quotes.statistics import quantiles
from router.spot.availability.observed import PoolObservation, summarise_observations
from router.spot.live.selection import default_run_policy
from router.spot.policies import QUOTED_RULE
from router.spot.policies.our_policy import QUOTED_DESCRIPTION, quoted_policy_for
from router.spot.simulator.inputs import HOUR_S, SimulationInputs
from router.spot.simulator.simulation import FullInfoPolicy
from router.spot.simulator.traces import Bools, Floats
from tests.bench.interruption_rules import UNKNOWN, WHOLE_DEVIATION, Recording, fit_middle

TICK_H: Final = 1 / 6
UP_TO: Final = 0.9  # the level of "up to"
_NOW: Final = datetime(2026, 11, 21, 18, tzinfo=UTC)
_DAY: Final = _NOW.date()
_LOOKED: Final = timedelta(hours=2)  # ago: too long to know the state of the pool at the start
_REGION: Final = "here"
_STEPS_PER_HOUR: Final = 1000.0


@dataclass(frozen=True, slots=True)
class JobShape:
    """A job: hours of work, hours to its deadline as a multiple of these, and on-demand's price over spot's.

    With ``like`` it has the confidence, checkpoint and start-up of that job.
    """

    work_h: float
    slack: float
    price_ratio: float
    like: Job | None = None

    @property
    def name(self) -> str:
        """Return what the job is called in tables."""
        if self.like is not None:
            return self.like.name
        return f"{self.work_h:g} h, due after {self.slack:g} of it, on demand {self.price_ratio:g} times spot"


@dataclass(frozen=True, eq=False, slots=True)
class Promise:
    """The promises on one job, and the inputs and policy with which they are played. Costs are in dollars.

    ``plan_usd`` is expected; ``reserved_h`` the time that the plan holds the place, ``refusal`` the probability that
    its fallback is refused. ``on_spot`` says that the plan takes spot, ``alone`` that spot without any fallback is as
    sure as the job asks. ``quote_usd`` are the quote's draws, in order. ``calm_usd`` is the cost on spot without an
    interruption, as advisor bands had it but for a few dollars. ``lost_usd`` is what the simulator bills for work that
    a launch may lose.
    """

    plan_usd: float
    plan_on_time: float
    reserved_h: float
    refusal: float
    on_spot: bool
    alone: bool
    quote_usd: Floats
    quote_on_time: float
    demand_usd: float
    calm_usd: float
    lost_usd: float
    like: SimulationInputs
    quoted_policy: FullInfoPolicy

    @property
    def up_to(self) -> float:
        """Return the cost that nine runs in ten do not exceed, as the quote says it."""
        return float(quantiles(self.quote_usd, (UP_TO,))[0])


class PoolPromises:
    """The product's promises on recorded pools; ``training`` are the recordings of which the past is known."""

    def __init__(self, training: Sequence[Recording]) -> None:
        self._middle = fit_middle(training)
        self._training = list(training)

    def promise(self, recording: Recording, shape: JobShape) -> Promise | None:
        """Return what plan and quote promise of a job on this pool or on demand; None where no spot is in time.

        All that is known of the product's promises is here.
        """
        problem = self._problem(recording, shape)
        steps, window_h = problem.steps, problem.window_h
        planned = problem.planned_option()
        in_time = [v for v in problem.venues if not v.sure and v.candidate.reserved_hours(steps) <= window_h]
        if planned is None or not in_time:
            return None
        spot = min(in_time, key=lambda v: v.whole_usd(steps))
        guard = spot.candidate.guard
        assert guard is not None
        menu = problem.planned_menu(spot)
        tick_s = round(tick_hours(recording) * HOUR_S)
        ticks = int(window_h * HOUR_S) // tick_s
        runner = problem.stage(menu, QuoteClock(tick_s, ticks), DRAWS)
        quoted = runner.play(ticks)
        return Promise(
            plan_usd=planned.whole_usd(steps),
            plan_on_time=guard.on_time_probability,
            reserved_h=spot.candidate.reserved_hours(steps),
            refusal=guard.refusal_probability,
            on_spot=not planned.sure,
            alone=not guard.reserves_fallback,
            quote_usd=np.sort(quoted.usd),
            quote_on_time=float(1 - quoted.late.mean()),
            demand_usd=min(v.whole_usd(steps) for v in menu if v.sure),
            calm_usd=spot.usd_per_hour * spot.hours(steps),
            lost_usd=spot.lost_hours * spot.usd_per_hour,
            like=runner.like,
            quoted_policy=runner.policy,
        )

    def _problem(self, recording: Recording, shape: JobShape) -> QuoteProblem:
        book = self._book(recording, shape)
        limits = Limits.none()
        finder = CandidateFinder(book, limits, _NOW, advisory=False)
        seen = {}
        if recording in self._training and (past := observe_first_half(recording)) is not None:
            seen = {"/".join((recording.pool[0], _REGION, zone_name(recording), _type(recording))): past}
        runs = default_run_policy(QUOTED_RULE)
        market_inputs = MarketInputs(
            finder, book, limits, _NOW, lambda _: seen, quoted_policy_for, QUOTED_DESCRIPTION, runs
        )
        deadline = _NOW + timedelta(hours=shape.work_h * shape.slack)
        return QuoteProblem(QuoteRequest(_job(recording, shape, deadline), deadline), market_inputs)

    def _book(self, recording: Recording, shape: JobShape) -> PriceBook:
        """Return a book of the pool and its on-demand machines, with the records of all known pools."""
        cloud, machine = recording.pool[0], _type(recording)
        spot = Offer(cloud, _REGION, zone_name(recording), machine, Market.SPOT, UsdPerHour.parse("1"), "made up", _DAY)
        price = UsdPerHour.parse(f"{shape.price_ratio:.6f}")
        on_demand = replace(spot, market=Market.ON_DEMAND, usd_per_hour=price)
        known = {r.kind: r for r in (*self._training, recording)}
        clouds = {kind[0] for kind in known}
        usual = embedded_book().risk
        edge = math.exp(WHOLE_DEVIATION / deviation_of(1 / math.e, math.e))
        priors = []
        for (owner, accelerator), market in product(known, (Market.SPOT, Market.ON_DEMAND)):
            row = replace(usual.prior(owner, accelerator, market), cloud=owner, accelerator=accelerator)
            if market is Market.SPOT:
                low, high = self._middle / edge, self._middle * edge
                row = replace(row, shape=HazardShape.FALLING.value, level=self._middle, low=low, high=high)
            priors.append(replace(row, market=market.value))
        return PriceBook(
            as_of=_NOW,
            offers=(spot, on_demand),
            machines=tuple(_machine(r) for r in known.values()),
            accelerators=tuple(_accelerator(name) for name in sorted({kind[1] for kind in known})),
            regions=tuple(
                Region(RegionId(c, _REGION), "US", "NA", "NA", "US", "", None, None, None, "made up", str(_DAY))
                for c in sorted(clouds)
            ),
            tariffs=(),
            priors=tuple(priors),
            records=tuple(_record(r) for r in self._training),
        )


def zone_name(recording: Recording) -> str:
    """Return a zone of its own for each recording: what a pool did months before is another pool of its kind."""
    return f"{recording.folder} {recording.name}"


def _type(recording: Recording) -> str:
    return f"{recording.pool[2]}.machine".lower()


def _accelerator(name: str) -> Accelerator:
    return Accelerator(name, 16, 900.0, 125.0, None, None, name, "made up", str(_DAY), True)


def _machine(recording: Recording) -> Machine:
    return Machine(
        cloud=recording.pool[0],
        instance_type=_type(recording),
        accelerator=recording.pool[2],
        accelerator_count=1,
        accelerator_memory_gib=16,
        vcpus=None,
        memory_gib=None,
        intra_node_interconnect=None,
        intra_node_gb_per_s=None,
        inter_node_gbps=400.0,
        fabric="efa",
        local_nvme_gib=None,
        source="made up",
        as_of=str(_DAY),
        checked=True,
    )


def _record(recording: Recording) -> PoolExperience:
    seen = recording.first
    return PoolExperience(
        cloud=recording.pool[0],
        region=_REGION,
        zone=zone_name(recording),
        instance_type=_type(recording),
        market=Market.SPOT,
        machines=recording.machines,
        hours=seen.hours,
        exposure=seen.operational,
        interruptions=seen.losses,
        runs=seen.lives,
        first_at=_NOW - timedelta(hours=recording.half * recording.tick_h) - _LOOKED,
        last_at=_NOW - _LOOKED,
        kind=ExperienceKind.AVAILABILITY,
        waited_hours=seen.waited_hours,
        waits=seen.waits,
    )


def _job(recording: Recording, shape: JobShape, deadline: datetime) -> Job:
    speed = {
        "accelerator": recording.pool[2],
        "count": recording.machines,
        "steps_per_hour": _STEPS_PER_HOUR,
        "relative_error": 0.0,
    }
    like = shape.like
    stated: dict[str, object] = (
        {"checkpoint": {"size_gib": 20}}
        if like is None
        else {"confidence": like.confidence, "checkpoint": like.checkpoint, "startup": like.startup, "idle": like.idle}
    )
    return Job.model_validate(
        {
            "name": "promised",
            "team": "bench",
            "steps": round(shape.work_h * _STEPS_PER_HOUR),
            "deadline": deadline.isoformat(),
            "workload": {"profile": [speed]},
            "gang": {"accelerators": f"{recording.pool[2]}:{recording.machines}"},
            **stated,
        }
    )


def tick_hours(recording: Recording) -> float:
    """Return the tick on which a recording is played: its own, or several of them that make about TICK_H."""
    return recording.tick_h * _ticks_joined(recording)


def _ticks_joined(recording: Recording) -> int:
    return max(1, round(TICK_H / recording.tick_h))


def availability(recording: Recording) -> Bools:
    """Return by tick of playing whether the gang could be had all through it; a gap is as what was probed before."""
    counts = recording.counts.copy()
    for i in np.flatnonzero(counts == UNKNOWN):
        counts[i] = counts[i - 1] if i else 0
    joined = _ticks_joined(recording)
    whole = counts.size // joined * joined
    return np.asarray((counts[:whole].reshape(-1, joined) >= recording.machines).all(axis=1), dtype=np.bool_)


def observe_first_half(recording: Recording) -> PoolObservation | None:
    """Return the first half as the product sums up what it observed."""
    tick = timedelta(hours=recording.tick_h)
    until = _NOW - _LOOKED
    seen = [
        (until - (recording.half - i) * tick, bool(count >= recording.machines))
        for i, count in enumerate(recording.counts[: recording.half + 1])
        if count != UNKNOWN
    ]
    return summarise_observations(seen, tick * 1.5)
