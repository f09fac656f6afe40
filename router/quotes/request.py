"""Requests for quotes, and the inputs that all quotes of a command share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from pricing.book import PriceBook
from pricing.places import RegionId
from pricing.units import to_digits
from router.jobs.limits import Limits
from router.jobs.quantities import Moment
from router.jobs.run_policy import RunPolicy
from router.jobs.spec import LEAST_CONFIDENCE, Job
from router.planning.document.restricted_limits import limits_digest
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.candidates import CandidateFinder
from router.planning.find.derived_placement import find_for_plan
from router.planning.find.dropped_listings import DroppedListing, no_offer_reason
from router.planning.find.gang_rates import TOO_RISKY
from router.planning.find.transfers import checkpoint_transfer, transfer_usd
from router.quotes.quote import LimitsPlan, QuoteLimits, Refused, Somewhere
from router.quotes.runner import PolicyFactory, QuoteClock, ScenarioRunner
from router.quotes.statistics import QuoteLevels, to_usd
from router.spot.availability.fit import AvailabilityFit
from router.spot.availability.hazard_model import HazardModel
from router.spot.availability.observed import OptionAvailability, PoolObservation, estimate_availability
from router.spot.simulator.inputs import SimulationInputs
from router.spot.simulator.simulation import FullInfoPolicy
from router.spot.venues import (
    QuoteOption,
    build_quote_option,
    build_quote_options,
    find_fastest,
    shortlist_options,
    unquotable_reason,
)

_REASONS: Final = 4
_MENUS_TRIED: Final = 32  # regions tried in turn until all options of a choice are linked
OptionObservations = Callable[[Sequence[QuoteOption]], Mapping[str, PoolObservation]]


@dataclass(frozen=True, slots=True)
class QuoteRequest:
    """A request: one job by one deadline.

    ``files`` are where the job is written, to find it again when the quote is accepted. ``limits`` are those to accept
    it under, and ``limits_plan`` the plan that they are of; None where no limits were asked for.
    """

    job: Job
    deadline: datetime
    files: tuple[str, ...] = ()
    limits: Limits | None = None
    limits_plan: LimitsPlan | None = None

    @property
    def quoted_limits(self) -> QuoteLimits | None:
        """Return what the quote says of its limits."""
        if self.limits is None:
            return None
        return QuoteLimits(limits_digest(self.limits), self.limits == Limits.none(), self.limits_plan)


@dataclass(frozen=True, slots=True)
class MarketInputs:
    """The inputs that all quotes of a command share.

    ``seen`` returns the recorded observations of the pools of these options. ``policy_name`` describes ``policy_for``
    in words. ``fit`` is what was learned of recorded availability, where it is fresh. ``run_policy`` is what runs an
    accepted quote.
    """

    finder: CandidateFinder
    book: PriceBook
    limits: Limits
    now: datetime
    seen: OptionObservations
    policy_for: PolicyFactory
    policy_name: str
    run_policy: RunPolicy
    seed: int = 0
    fit: AvailabilityFit | None = None


class QuoteProblem:
    """The quote problem of one job: its options, and scenario runners for them."""

    def __init__(self, ask: QuoteRequest, market_inputs: MarketInputs) -> None:
        self.market_inputs, self.ask = market_inputs, ask
        earliest = ask.job.earliest_start
        self.start = market_inputs.now if earliest is None else max(market_inputs.now, earliest.at(market_inputs.now))
        self.job = ask.job.model_copy(update={"deadline": Moment(absolute=ask.deadline)})
        self.steps = steps_to_do(ask.job, running=False)
        self.candidates, self.dropped = find_for_plan(market_inputs.finder, self.job)
        hours = (self.start, max(self.start, ask.deadline))
        self.venues = self._options_of(self.job, self.candidates, self.dropped)
        self.untold = tuple(filter(None, (unquotable_reason(c, hours) for c in self.candidates)))
        self.horizon_s = 0
        self.least_steps = self.steps
        self._availability: dict[tuple[str, ...], OptionAvailability] = {}
        self._policies: dict[tuple[str, ...], FullInfoPolicy] = {}
        self._linked: dict[tuple[RegionId, RegionId], bool] = {}

    def _options_of(
        self, job: Job, candidates: Sequence[Candidate], dropped: Sequence[DroppedListing]
    ) -> tuple[QuoteOption, ...]:
        """Return the options of the job, gangs among them that a plan does not take as sure as the job asks.

        Scenarios show how sure a quote is on those; each has a fallback.
        """
        offered = list(candidates)
        if any(drop.code == TOO_RISKY for drop in dropped):
            unsure = job.model_copy(update={"confidence": LEAST_CONFIDENCE})
            sure = {c.key for c in candidates}
            gangs = find_for_plan(self.market_inputs.finder, unsure)[0]
            offered += [c for c in gangs if c.fallback is not None and c.key not in sure]
        hours = (self.start, max(self.start, self.ask.deadline))
        return build_quote_options(job, offered, self.market_inputs.limits, hours)

    @property
    def window_h(self) -> float:
        """The hours from the start to the deadline."""
        return (self.ask.deadline - self.start) / timedelta(hours=1)

    def after(self, hours: float) -> datetime:
        """Return the time ``hours`` after the start, to the next second."""
        return self.start + timedelta(seconds=math.ceil(hours * 3600))

    def again(self, **changes: object) -> tuple[QuoteOption, ...]:
        """Return the options of the job with some fields changed."""
        job = self.job.model_copy(update=changes)
        return self._options_of(job, *find_for_plan(self.market_inputs.finder, job))

    def refused(self) -> Refused | None:
        """Return why there can be no quote; None where there can."""
        name = self.ask.job.name
        if self.steps == 0:
            return Refused(name, "has no steps left", "nothing is to be done")
        if self.window_h <= 0:
            return Refused(name, "its deadline is not after its start", "ask for a later one with --by")
        if not self.candidates:
            what = no_offer_reason(self.job, self.market_inputs.finder.book, self.dropped)
            return Refused(name, what, "see the reasons", reasons=summarise_reasons(self.dropped))
        if not self.venues and self.untold and len(self.untold) == len(self.candidates):
            what = "it fits reservations, or gangs of two machine types, of which a quote can say nothing"
            remedy = "plan it; or state usd_per_hour and dates that reach"
            return Refused(name, what, remedy, reasons=tuple(dict.fromkeys(self.untold)))
        if not self.venues:
            what = "it may run on spot alone and cannot resume: each loss begins all over"
            return Refused(name, what, "add `checkpoint:`, or `market: {spot: allowed}`")
        best = find_fastest(self.venues, self.steps)
        hours = best.hours(self.steps)
        if hours <= self.window_h:
            return None
        what = f"cannot be done by then: {hours:.1f} h on the fastest, {self.window_h:.1f} h left"
        remedy, usd = "ask for a later deadline with --by", to_usd(best.whole_usd(self.steps))
        return Refused(name, what, remedy, self.after(hours), usd, best.candidate.key)

    def stage(self, venues: Sequence[QuoteOption], clock: QuoteClock, draws: int, seed: int = 0) -> ScenarioRunner:
        """Return a scenario runner of these options.

        All runners of the same options share one policy: it is made for ``horizon_s``, the longest window of any of
        them (0: the first one's own), and the slack that ``least_steps`` leave in it.
        """
        market_inputs = self.market_inputs
        availability = self.availability(venues)
        key = option_keys(venues)

        def policy_for(hazard_model: HazardModel, like: SimulationInputs) -> FullInfoPolicy:
            if key not in self._policies:
                share = self.least_steps / max(self.steps, 1)
                deadline_s = max(like.task.deadline_s, self.horizon_s)
                task = replace(like.task, work_s=max(1, int(like.task.work_s * share)), deadline_s=deadline_s)
                self._policies[key] = market_inputs.policy_for(hazard_model, replace(like, task=task))
            return self._policies[key]

        return ScenarioRunner(
            self.job,
            self.steps,
            venues,
            availability,
            clock,
            draws,
            market_inputs.seed + seed,
            self.move_usd,
            policy_for,
        )

    def availability(self, venues: Sequence[QuoteOption]) -> OptionAvailability:
        """Return the expected availability of these options."""
        key = option_keys(venues)
        if key not in self._availability:
            self._availability[key] = estimate_availability(
                venues, self.market_inputs.seen(self.venues), self.market_inputs.now, self.market_inputs.fit
            )
        return self._availability[key]

    def levels(self, venues: Sequence[QuoteOption]) -> QuoteLevels:
        """Return how draws there are read: as past quotes held, where availability was observed and learned from."""
        fit = self.market_inputs.fit
        if fit is None or not self.availability(venues).observed:
            return QuoteLevels()
        return QuoteLevels(fit.cost, fit.finish)

    def move_usd(self, source: RegionId, to: RegionId) -> float:
        """Return the cost of one move of the checkpoint; infinite where no tariff is known."""
        try:
            moved = checkpoint_transfer(self.job, source, to, self.market_inputs.book)
        except LookupError:
            return float("inf")
        if moved is None:
            return 0.0
        return transfer_usd(moved.tariff, moved.volume_bytes, self.market_inputs.limits).dollars()

    def linked(self, a: RegionId, b: RegionId) -> bool:
        """Return whether moving the checkpoint has a known price both ways."""
        if a == b:
            return True
        key = (min(a, b), max(a, b))
        if key not in self._linked:
            self._linked[key] = math.isfinite(self.move_usd(a, b)) and math.isfinite(self.move_usd(b, a))
        return self._linked[key]

    def menus(self, venues: Sequence[QuoteOption], steps: float, hours: float) -> tuple[tuple[QuoteOption, ...], ...]:
        """Return choices of a few options within ``hours``, the most promising first; empty without options.

        All options of a choice are linked to each other, and no choice is a part of another. There is one choice where
        all that look good are linked; else there is one for each way to keep a region and the regions linked to it.
        """
        choices: dict[tuple[str, ...], tuple[QuoteOption, ...]] = {}
        todo: list[tuple[RegionId, ...]] = [()]
        seen: set[frozenset[RegionId]] = set()
        while todo and len(seen) < _MENUS_TRIED:
            regions_required = todo.pop(0)
            if frozenset(regions_required) in seen:
                continue
            seen.add(frozenset(regions_required))
            among = (
                [v for v in venues if all(self.linked(v.region, a) for a in regions_required)]
                if regions_required
                else venues
            )
            picked = shortlist_options(among, steps, hours)
            regions = list(dict.fromkeys(v.region for v in picked))
            unlinked = [a for a in regions if not all(self.linked(a, b) for b in regions)]
            if picked and not unlinked:
                choices[option_keys(picked)] = picked
            todo += [(*regions_required, a) for a in unlinked]
        return tuple(sorted(choices.values(), key=lambda menu: _promise_order(menu, steps, hours)))

    def menu(self, venues: Sequence[QuoteOption], steps: float, hours: float) -> tuple[QuoteOption, ...]:
        """Return the most promising of :meth:`menus`; empty without options."""
        return next(iter(self.menus(venues, steps, hours)), ())

    def planned_option(self) -> QuoteOption | None:
        """Return the option that a plan of this job alone takes: the cheapest that is done with its confidence."""
        sure = {c.key for c in self.candidates}
        fits = [
            v
            for v in self.venues
            if v.candidate.key in sure and v.candidate.reserved_hours(self.steps) <= self.window_h
        ]
        return min(fits, key=lambda v: (v.whole_usd(self.steps), v.candidate.key), default=None)

    def planned_menu(self, planned: QuoteOption) -> tuple[QuoteOption, ...]:
        """Return the options of the plan's one place: the gang, and the fallback behind it where it has one."""
        behind = planned.candidate.fallback
        return (
            (planned,) if behind is None else (build_quote_option(self.job, behind, self.market_inputs.limits), planned)
        )

    def somewhere(self, venues: Sequence[QuoteOption]) -> tuple[Somewhere, ...]:
        """Return the options as a quote names them."""
        basis = self.availability(venues).basis
        return tuple(_to_somewhere(v, words) for v, words in zip(venues, basis, strict=True))


def _promise_order(menu: Sequence[QuoteOption], steps: float, hours: float) -> tuple[bool, float, tuple[str, ...]]:
    """Return the sort key of choices: those in time first, then by their least possible cost."""
    late = menu[0].hours(steps) > hours
    return late, min(v.whole_usd(steps) for v in menu), option_keys(menu)


def option_keys(venues: Sequence[QuoteOption]) -> tuple[str, ...]:
    """Return the keys that tell choices of options apart."""
    return tuple(v.candidate.key for v in venues)


def format_offer(candidate: Candidate) -> str:
    """Return ``aws/us-east-1/p5.48xlarge``, with the zone where the offer has one."""
    offer = candidate.offer
    return "/".join(p for p in (offer.cloud, offer.region, offer.zone, offer.instance_type) if p)


def _to_somewhere(v: QuoteOption, basis: str) -> Somewhere:
    offer, c = v.candidate.offer, v.candidate
    price = to_usd(v.usd_per_hour)
    assert price is not None
    return Somewhere(
        where=format_offer(c),
        market=offer.market.value,
        accelerator=c.accelerator,
        accelerators=c.accelerators,
        usd_per_hour=price,
        steps_per_hour=v.steps_per_hour,
        price_as_of=offer.as_of.isoformat() if offer.as_of else "undated",
        weather=basis,
        weak=c.weak,
        speed_evidence=c.speed_evidence,
        speed_basis=c.speed_basis,
        relative_error=to_digits(c.risk.relative_error),
    )


def summarise_reasons(dropped: Sequence[DroppedListing]) -> tuple[str, ...]:
    """Return the commonest reasons for which offers were left out, each with an example."""
    count = Counter(d.code for d in dropped)
    example = {d.code: f"{d.reason} ({d.listing.name})" for d in reversed(dropped)}
    return tuple(f"{n:,} offers: {example[code]}" for code, n in count.most_common(_REASONS))
