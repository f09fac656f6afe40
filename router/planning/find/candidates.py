"""Find the offers that can run a job, priced and timed, and give a reason for each that cannot."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property

from pricing.book import PriceBook
from pricing.machines import Accelerator, Machine
from pricing.money import Usd, UsdPerHour
from pricing.places import Market, Region, RegionId
from pricing.risk import GangRisk
from router.jobs.experience import Experience
from router.jobs.gang import GangOption
from router.jobs.limits import Limits
from router.jobs.measured_speed import explain_network
from router.jobs.spec import Job
from router.jobs.speed import Speed, UnknownSpeed, gang_speed
from router.jobs.workload import Workload
from router.planning.find.candidate import SURELY, Candidate, GangPart, refuse_order, steps_to_do
from router.planning.find.dropped_listings import DroppedListing
from router.planning.find.fallbacks import Fallback, FallbackFinder
from router.planning.find.feasibility import ListingRefusal, price_refusal, refusal
from router.planning.find.gang_offers import GangOffer, GangOffers, join_doubts
from router.planning.find.gang_rates import TYPICAL_LIFE, GangRates, RateFinder, RateRequest, RunTerms, stated_risk
from router.planning.find.listings import OfferListing, Spread, listings_by_accelerator, spreads
from router.planning.find.machine_mixes import MachinePair, machine_pairs, mixed_gangs, running_split
from router.planning.find.other_spot_pools import OtherPoolFinder
from router.planning.find.placement_rule import placement_refusal
from router.planning.find.shared_limits import LimitCounter
from router.planning.find.transfers import (
    Routes,
    Transfer,
    UnknownTariff,
    cap_exceeded,
    cloud_cap_exceeded,
    transfers_into,
)

_HOUR = timedelta(hours=1)
_SpeedKey = tuple[str, str, int, float | None]
_FREE = UsdPerHour(0)


@dataclass(frozen=True, slots=True)
class _JobFindings:
    """Results that the candidates of one job share: rates, ways out, speeds by machine, transfers by region."""

    rates: RateFinder
    fallbacks: FallbackFinder
    others: OtherPoolFinder
    speeds: dict[_SpeedKey, Speed | UnknownSpeed]
    moves: dict[RegionId, tuple[Transfer, ...] | ListingRefusal] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _PermittedGang:
    """A gang on which the job may run: its risk, how fast the job is there, and what has to be moved."""

    option: GangOption
    gang: GangOffer
    risk: GangRisk
    speed: Speed
    transfers: tuple[Transfer, ...]

    @property
    def lost_per_hour(self) -> float:
        """Return how often the gang is interrupted in a typical life."""
        return self.gang.lost_per_hour if self.risk is self.gang.risk else self.risk.per_hour_over(TYPICAL_LIFE)


@dataclass(frozen=True, slots=True)
class _UnratedGang:
    """A permitted gang with what its rates depend on, and the names of its ways out."""

    permitted: _PermittedGang
    request: RateRequest
    behind: Fallback | None
    next_pool: str


def candidates_for(
    job: Job, book: PriceBook, limits: Limits, now: datetime, advisory: bool
) -> tuple[tuple[Candidate, ...], tuple[DroppedListing, ...]]:
    """Return the candidates of one job sorted by key, and the listings that were dropped.

    Offers that cannot be ordered from here are dropped with code ``advisory`` unless ``advisory``.
    """
    finder = CandidateFinder(book, limits, now, advisory=advisory)
    return finder.find(job)


class CandidateFinder:
    """Finds candidates for many jobs against one book and caches what depends on the book alone.

    With ``experience`` the speeds and interruption rates of earlier runs count instead of what jobs and book state.
    With ``risk_quantile`` the interruptions of each spot pool count as known, at this quantile of what is believed.
    Without ``refuses_long`` gangs count that need longer than any plan, but for those on spot alone.
    """

    def __init__(
        self,
        book: PriceBook,
        limits: Limits,
        now: datetime,
        *,
        advisory: bool,
        experience: Experience | None = None,
        orders_advisory: bool | None = None,
        risk_quantile: float | None = None,
        raises_limits: bool = False,
        refuses_long: bool = True,
    ) -> None:
        self._book = book
        self._refuses_long = refuses_long
        self._risk_quantile = risk_quantile
        # A plan finds what it cannot order, too, and shows it without choosing it.
        self.orders_advisory = advisory if orders_advisory is None else orders_advisory
        self.experience = experience or Experience()
        self._limits = limits
        self._counter = LimitCounter(limits, is_raised=raises_limits)
        self.now = now
        self._advisory = advisory
        self.listings: Mapping[str, tuple[OfferListing, ...]] = {
            name: tuple(map(self._with_measured_network, found))
            for name, found in listings_by_accelerator(book, limits).items()
        }
        self._gangs = GangOffers(book, limits, self.experience, risk_quantile)
        self._rates: dict[RunTerms, RateFinder] = {}
        self._routes = Routes(book, limits)
        self._speeds: dict[Workload, dict[_SpeedKey, Speed | UnknownSpeed]] = {}
        # Keyed by identity because listings are slow to hash; these live as long as the finder.
        self._order = {id(each): _order_of_look(each) for found in self.listings.values() for each in found}

    @cached_property
    def without_amounts(self) -> CandidateFinder:
        """Return the same finder with every limit of the file raised beyond need; caps of offers stay."""
        raised = CandidateFinder(
            self._book,
            self._limits,
            self.now,
            advisory=self._advisory,
            experience=self.experience,
            orders_advisory=self.orders_advisory,
            risk_quantile=self._risk_quantile,
            raises_limits=True,
            refuses_long=self._refuses_long,
        )
        raised._rates, raised._routes = self._rates, self._routes
        raised._speeds = self._speeds
        return raised

    def _with_measured_network(self, listing: OfferListing) -> OfferListing:
        offer = listing.offer
        machine = self.experience.machine(listing.machine, offer.region, offer.zone)
        return listing if machine is listing.machine else replace(listing, machine=machine)

    @property
    def book(self) -> PriceBook:
        """Return the price book in which it finds."""
        return self._book

    def with_learned_speeds(self, job: Job) -> Job:
        """Return the job with the speeds of its earlier runs."""
        return self.experience.job(job, self._book)

    def find(
        self, job: Job, *, most_spot: int | None = None, below: Usd | None = None
    ) -> tuple[tuple[Candidate, ...], tuple[DroppedListing, ...]]:
        """Return candidates and dropped listings of one job, as :func:`candidates_for`.

        With ``most_spot`` only gangs on one offer are looked at, and for each option no more once so many are on spot,
        the cheapest: they take most of the time. With ``below`` none of the spot gangs on one offer is looked at whose
        steps alone cost that much.
        """
        candidates: list[Candidate] = []
        dropped: list[DroppedListing] = []
        rates = self._rates_of(job)
        fallbacks, others = FallbackFinder(rates.terms.window_hours, self._routes), OtherPoolFinder(job, self._routes)
        job = self.with_learned_speeds(job)
        findings = _JobFindings(rates, fallbacks, others, self._speeds.setdefault(job.workload, {}))
        found = [(option, each) for option in job.gang.options for each in self.listings.get(option.accelerator, ())]
        found.sort(key=lambda pair: self._order[id(pair[1])])
        permitted = [self._permit_listing(job, option, listing, findings) for option, listing in found]
        for (option, listing), each in zip(found, permitted, strict=True):
            if isinstance(each, _PermittedGang) and not self._needs_more(job, option, listing):
                part = each.gang.parts[-1]
                others.add(part, each.option.count, each.speed, each.lost_per_hour, each.transfers)
        gangs: dict[bool, list[tuple[GangOption, _PermittedGang | DroppedListing]]] = {False: [], True: []}
        for (option, listing), each in zip(found, permitted, strict=True):
            if below is None or isinstance(each, DroppedListing) or not self._is_as_dear(job, each, below):
                gangs[listing.offer.market is Market.SPOT].append((option, each))
        # Gangs on spot fall back on those on demand.
        for on_spot in (False, True):
            for result in self._look_at(job, gangs[on_spot], findings, most_spot if on_spot else None):
                if isinstance(result, DroppedListing):
                    dropped.append(result)
                    continue
                candidates.append(result)
                if result.market is Market.ON_DEMAND and result.provisionable:
                    findings.fallbacks.add(result)
        if most_spot is None:
            several = [] if job.gang.same_zone else self._over_zones(job, findings)
            several += self._over_types(job, findings) if job.gang.mixed else []
            candidates += [each for each in self._with_rates(job, several, findings) if isinstance(each, Candidate)]
        findings.rates.forget_figures()
        return _with_running(job, sorted(candidates, key=lambda c: c.key), self.now), tuple(dropped)

    def _look_at(
        self,
        job: Job,
        gangs: Sequence[tuple[GangOption, _PermittedGang | DroppedListing]],
        findings: _JobFindings,
        max_per_option: int | None,
    ) -> Iterator[Candidate | DroppedListing]:
        """Yield candidates in the order of gangs, at most ``max_per_option`` of each option, and what is dropped."""
        looked, ahead = Counter[GangOption](), dict[int, _PermittedGang]()
        for at, (option, gang) in enumerate(gangs):
            if isinstance(gang, _PermittedGang) and (max_per_option is None or looked[option] < max_per_option):
                looked[option] += 1
                ahead[at] = gang
        rated = dict(zip(ahead, self._with_rates(job, list(ahead.values()), findings), strict=True))
        candidates = Counter[GangOption]()
        for at, (option, gang) in enumerate(gangs):
            if max_per_option is not None and candidates[option] == max_per_option:
                continue
            if isinstance(gang, _PermittedGang) and at not in rated:
                (rated[at],) = self._with_rates(job, [gang], findings)
            result = gang if isinstance(gang, DroppedListing) else rated[at]
            candidates[option] += isinstance(result, Candidate)
            yield result

    def _rates_of(self, job: Job) -> RateFinder:
        """Return the rates of all jobs with these terms: a variant of a job with another rule has the same ones."""
        terms = RunTerms(
            job.checkpoint, job.interruptions, job.restart_time, job.confidence, _window_hours(job, self.now)
        )
        return self._rates.setdefault(terms, RateFinder(terms, self._refuses_long))

    def _needs_more(self, job: Job, option: GangOption, listing: OfferListing) -> bool:
        """Return whether only raised limits have room for the gang: one that is raised makes none in other pools."""
        return self._counter.is_raised and refusal(job, option, listing, self._limits) is not None

    def _permit_listing(
        self,
        job: Job,
        option: GangOption,
        listing: OfferListing,
        findings: _JobFindings,
    ) -> _PermittedGang | DroppedListing:
        """Return the gang on one listing, or why it is dropped."""
        refused = refusal(job, option, listing, self._limits, self._counter.by_machine(listing, job.team))
        if refused is not None:
            return DroppedListing(refused.code, refused.reason, listing, option.count)
        misplaced = placement_refusal(job, option, (listing,), self._book)
        if misplaced is not None:
            return DroppedListing(misplaced.code, misplaced.reason, listing, option.count)
        machines = option.count // listing.machine.accelerator_count
        spread = self._split_on_demand_core(job, listing, machines)
        if isinstance(spread, ListingRefusal):
            return DroppedListing(spread.code, spread.reason, listing, option.count)
        return self._permit_gang(job, option, spread, findings)

    def _over_zones(self, job: Job, findings: _JobFindings) -> list[_PermittedGang]:
        """Return gangs that no zone holds alone; a job with an on-demand core stays in one zone."""
        gangs: list[_PermittedGang | DroppedListing] = []
        if job.gang.on_demand_share > 0:
            return []
        for option in job.gang.options:
            for spread in spreads(self.listings.get(option.accelerator, ()), option.count):
                if any(self._refused_whole(job, option, zone) for zone, _ in spread):
                    continue
                if placement_refusal(job, option, tuple(zone for zone, _ in spread), self._book) is not None:
                    continue
                gangs.append(self._permit_gang(job, option, spread, findings))
        return [each for each in gangs if isinstance(each, _PermittedGang)]

    def _refused_whole(self, job: Job, option: GangOption, zone: OfferListing) -> bool:
        """Return whether a rule forbids the whole gang in one of its zones, whatever machines the zone has."""
        counted = [use for use in self._counter.by_machine(zone, job.team) if use.limit.is_stated]
        return refusal(job, option, zone, self._limits, counted) is not None

    def _over_types(self, job: Job, findings: _JobFindings) -> list[_PermittedGang]:
        """Return gangs of two machine types of one family; a spot gang with an on-demand core has one type."""
        gangs: list[_PermittedGang | DroppedListing] = []
        options = {(option.accelerator, option.count): option for option in job.gang.options}
        sizes = sorted({option.count for option in job.gang.options})
        for pair, count in ((pair, count) for pair in self._pairs for count in sizes):
            wanted = [options.get((each.machine.accelerator, count)) for each in pair.listings]
            if any(
                option is None or self._rules_out(job, option, each)
                for option, each in zip(wanted, pair.listings, strict=True)
            ):
                continue
            if job.gang.on_demand_share > 0 and pair.cheaper.offer.market is Market.SPOT:
                continue
            option, machines = (
                options[pair.cheaper.machine.accelerator, count],
                count // pair.cheaper.machine.accelerator_count,
            )
            uses = [self._counter.by_machine(each, job.team) for each in pair.listings]
            mixes = mixed_gangs(pair, machines, uses, running_split(job, pair))
            gangs += [self._permit_gang(job, option, spread, findings) for spread in mixes]
        return [each for each in gangs if isinstance(each, _PermittedGang)]

    @cached_property
    def _pairs(self) -> tuple[MachinePair, ...]:
        return machine_pairs((each for found in self.listings.values() for each in found), self._limits)

    def _rules_out(self, job: Job, option: GangOption, listing: OfferListing) -> bool:
        """Return whether a rule, other than a limit or a lack of machines, forbids the gang on one listing."""
        refused = refusal(job, option, listing, self._limits, ())
        return refused is not None or placement_refusal(job, option, (listing,), self._book) is not None

    def _permit_gang(
        self, job: Job, option: GangOption, spread: Spread, findings: _JobFindings
    ) -> _PermittedGang | DroppedListing:
        """Return the gang of these machines with its speed and moves, or why it is dropped."""
        listing, _ = spread[-1]
        if not self._advisory and not all(each.offer.provisionable for each, _ in spread):
            why = refuse_order((each.offer for each, _ in spread), "counts it")
            return DroppedListing("advisory", why, listing, option.count)
        speed = _speed_of(job, spread, findings, self._book.accelerators)
        if isinstance(speed, UnknownSpeed):
            return DroppedListing("speed", speed.reason, listing, option.count)
        place = listing.region.id
        if place not in findings.moves:
            findings.moves[place] = self._transfers(job, listing.region)
        transfers = findings.moves[place]
        if isinstance(transfers, ListingRefusal):
            return DroppedListing(transfers.code, transfers.reason, listing, option.count)
        gang = self._gangs.gang(spread, option.count)
        # The job file goes before the book and what was counted.
        risk = stated_risk(job, gang.parts, gang.risk) or gang.risk
        return _PermittedGang(option, gang, risk, speed, transfers)

    def _transfers(self, job: Job, region: Region) -> tuple[Transfer, ...] | ListingRefusal:
        """Return what has to be moved into a region, or why it may not be."""
        transfers = transfers_into(job, region, self._book)
        if isinstance(transfers, UnknownTariff):
            return ListingRefusal("egress unknown", transfers.reason)
        cap_reason = cap_exceeded(job, transfers)
        if cap_reason is not None:
            return ListingRefusal("egress cap", cap_reason)
        above = cloud_cap_exceeded(self._limits, transfers, region.id)
        return ListingRefusal("egress cap of a cloud", above) if above else transfers

    def _split_on_demand_core(self, job: Job, listing: OfferListing, machines: int) -> Spread | ListingRefusal:
        """Return the whole gang on one offer, or the requested on-demand core with the rest on spot."""
        share = job.gang.on_demand_share
        core = math.ceil(share * machines - 1e-9)
        if listing.offer.market is not Market.SPOT or core == 0:
            return ((listing, machines),)
        if core >= machines:
            return ListingRefusal("core", "the on-demand core is the whole gang")
        for other in self.listings[listing.machine.accelerator]:
            same = (other.offer.cloud, other.offer.region, other.offer.zone, other.offer.instance_type)
            if other.offer.market is Market.ON_DEMAND and same == (
                listing.offer.cloud,
                listing.offer.region,
                listing.offer.zone,
                listing.offer.instance_type,
            ):
                return price_refusal(job, other) or ((other, core), (listing, machines - core))
        return ListingRefusal("core", "no on-demand offer beside the spot one for the core")

    def _with_rates(
        self, job: Job, permitted: Sequence[_PermittedGang], findings: _JobFindings
    ) -> list[Candidate | DroppedListing]:
        """Return the candidates with their rates, or why they are too slow or too risky."""
        gangs = [self._unrated(job, each, findings) for each in permitted]
        rates = findings.rates.rates([gang.request for gang in gangs])
        return [self._candidate(job, gang, own) for gang, own in zip(gangs, rates, strict=True)]

    def _unrated(self, job: Job, permitted: _PermittedGang, findings: _JobFindings) -> _UnratedGang:
        """Return a gang with what its rates depend on."""
        option, gang, speed = permitted.option, permitted.gang, permitted.speed
        part, usd_per_hour = gang.parts[-1], gang.usd_per_hour.dollars()
        here = _runs_here(job, gang.parts, self.now)
        steps = steps_to_do(job, running=here)
        behind, other = None, None
        if part.offer.market is Market.SPOT:
            behind = findings.fallbacks.find(job, part.listing.region.id, steps)
            other = findings.others.find(part, option.count, speed, permitted.lost_per_hour, usd_per_hour, steps)
        request = RateRequest(
            speed=speed,
            risk=permitted.risk,
            steps=steps,
            usd_per_hour=usd_per_hour,
            spot=part.offer.market is Market.SPOT,
            fallback=None if behind is None else behind.gang,
            others=None if other is None else other[1],
            age_hours=_age_hours(job, self.now) if here else 0.0,
        )
        return _UnratedGang(permitted, request, behind, "" if other is None else other[0])

    def _candidate(
        self, job: Job, unrated: _UnratedGang, rates: GangRates | ListingRefusal
    ) -> Candidate | DroppedListing:
        """Return the candidate that is a gang with its rates."""
        permitted, request, behind = unrated.permitted, unrated.request, unrated.behind
        option, gang = permitted.option, permitted.gang
        if isinstance(rates, ListingRefusal):
            return DroppedListing(rates.code, rates.reason, gang.parts[-1].listing, option.count)
        stated = request.risk is not gang.risk
        guarded = behind if rates.guard is not None else None
        return Candidate(
            key=gang.name,
            job=job.name,
            region=gang.parts[-1].offer.region_id,
            parts=gang.parts,
            accelerator=option.accelerator,
            accelerators=option.count,
            usd_per_hour=gang.usd_per_hour,
            amortised_usd_per_hour=gang.amortised_usd_per_hour,
            steps_per_hour=rates.steps_per_hour,
            on_time_steps_per_hour=rates.on_time_steps_per_hour,
            billed_share=rates.billed_share,
            startup=job.start_time,
            risk=rates.risk,
            gang_risk=request.risk,
            transfers=permitted.transfers,
            running=False,
            speed_basis=permitted.speed.basis,
            speed_evidence=permitted.speed.evidence,
            weak=gang.weak if not stated else join_doubts(p.offer.weak for p in gang.parts),
            external=gang.external,
            risk_basis=gang.risk_basis if not stated else _stated_basis(job),
            guard=rates.guard,
            next_pool=unrated.next_pool,
            next_pool_hours=1.0 if request.others is None else request.others.price_ratio,
            fallback=None if guarded is None else guarded.candidate,
            fallback_moves=_FREE if guarded is None else _moves_rate(rates, guarded.moved, request.steps),
        )

    def _is_as_dear(self, job: Job, permitted: _PermittedGang, below: Usd) -> bool:
        """Return whether the job's steps on a spot gang cost so much without interruptions, external cost apart."""
        gang = permitted.gang
        if gang.parts[-1].offer.market is not Market.SPOT or gang.external is not None:
            return False
        hours = steps_to_do(job, running=False) / permitted.speed.steps_per_hour
        return gang.usd_per_hour.dollars() * hours * SURELY > below.dollars()


def _order_of_look(listing: OfferListing) -> tuple[bool, float]:
    """Return where a listing stands in the look at offers: gangs on spot, cheapest first, fall back on those before."""
    spot = listing.offer.market is Market.SPOT
    return spot, listing.offer.usd_per_hour.nanos / listing.machine.accelerator_count if spot else 0.0


def _speed_of(
    job: Job, spread: Spread, findings: _JobFindings, accelerators: tuple[Accelerator, ...]
) -> Speed | UnknownSpeed:
    """Return the speed of a gang: of machine types the slowest that the whole gang would have on one of them.

    The relative error of a mix is the larger one.
    """
    machines, speeds = sum(count for _, count in spread), {}
    for listing, _ in spread:
        offer = listing.offer
        # The network differs by place where gangs measured it.
        key = (offer.cloud, offer.instance_type, machines, listing.machine.inter_node_gbps)
        if key not in findings.speeds:
            found = gang_speed(job.workload, listing.machine, machines, listing.accelerator, accelerators)
            findings.speeds[key] = _over_usable_fabric(found, listing.machine, machines)
        speed = findings.speeds[key]
        if isinstance(speed, UnknownSpeed):
            return speed
        speeds[offer.instance_type] = speed
    slowest = min(speeds, key=lambda name: (speeds[name].steps_per_hour, name))
    if len(speeds) == 1:
        return speeds[slowest]
    error = max(speed.relative_error for speed in speeds.values())
    basis = f"that of {slowest} alone: {speeds[slowest].basis}"
    return replace(speeds[slowest], relative_error=error, basis=basis, exact=False)


def _over_usable_fabric(speed: Speed | UnknownSpeed, machine: Machine, machines: int) -> Speed | UnknownSpeed:
    """Return the speed; where the fabric of several machines is not counted on, it says so."""
    lost = explain_network(machine) if machines > 1 else ""
    if not lost:
        return speed
    if isinstance(speed, UnknownSpeed):
        return UnknownSpeed(f"{speed.reason}; {lost}")
    return replace(speed, basis=f"{speed.basis}, over {machine.fabric}: {lost}")


def _window_hours(job: Job, now: datetime) -> float | None:
    """Return the hours from the end of the first start-up to the deadline; None without a deadline."""
    if job.deadline is None:
        return None
    first = max(now, job.earliest_start.at(now)) if job.earliest_start else now
    started = timedelta(0) if job.status is not None and job.status.running is not None else job.start_time
    return (job.deadline.at(now) - first - started) / _HOUR


def _moves_rate(rates: GangRates, moved: Usd, steps: int) -> UsdPerHour:
    """Return what moving to the fallback is expected to cost for each productive hour reserved."""
    if rates.guard is None or not moved.nanos:
        return _FREE
    reserved = steps / rates.on_time_steps_per_hour
    return UsdPerHour(round(moved.nanos * rates.guard.probability / reserved))


def _stated_basis(job: Job) -> str:
    stated = job.interruptions.per_hour if job.interruptions is not None else None
    return f"interrupted {stated:g} times an hour: the job file"


def _runs_here(job: Job, parts: tuple[GangPart, ...], now: datetime) -> bool:
    """Return whether the job's status says that it runs on exactly these parts (an unknown zone fits any).

    A job that may not run yet cannot go on: wherever it runs, it has to start again.
    """
    placement = job.status.running if job.status else None
    if placement is None or (job.earliest_start is not None and job.earliest_start.at(now) > now):
        return False
    offer, by_type = parts[-1].offer, {part.offer.instance_type: 0 for part in parts}
    for part in parts:
        by_type[part.offer.instance_type] += part.machines * part.machine.accelerator_count
    same = (offer.cloud, offer.region, offer.market, by_type) == (
        placement.cloud,
        placement.region,
        placement.market,
        placement.accelerators_by_type,
    )
    return same and (placement.zone is None or offer.zone is None or placement.zone == offer.zone)


def _age_hours(job: Job, now: datetime) -> float:
    """Return how long the job has run where it runs now; 0 where its status does not say since when."""
    since = None if job.status is None or job.status.running is None else job.status.running.since
    return 0.0 if since is None else max(0.0, (now - since) / _HOUR)


def _with_running(job: Job, candidates: list[Candidate], now: datetime) -> tuple[Candidate, ...]:
    """Mark the candidate on which the job runs now.

    That is the one in the stated zone if it is there, else the first by key that fits.
    """
    placement = job.status.running if job.status else None
    indexes = [i for i, c in enumerate(candidates) if _runs_here(job, c.parts, now)]
    if placement is None or not indexes:
        return tuple(candidates)
    index = min(indexes, key=lambda i: (candidates[i].offer.zone != placement.zone, i))
    return (*candidates[:index], replace(candidates[index], running=True), *candidates[index + 1 :])
