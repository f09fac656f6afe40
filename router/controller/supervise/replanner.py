"""Place interrupted gangs again: all jobs that wait for a place at one moment are planned together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.places import RegionId
from pricing.units import format_count
from router.controller.context import ControllerContext
from router.controller.history.attempt_history import MIN_CHECKPOINT_INTERVAL_S, AttemptHistory, plan_time
from router.controller.history.job_history import with_history
from router.controller.history.lifecycle import ReleaseReason
from router.controller.history.metering import cost_so_far
from router.controller.history.run_records import EarlierRuns, job_as_measured
from router.controller.plans import Order, apply_hard_budgets, limits_json, with_known_copies
from router.controller.provision.provision_order import (
    PlacedAttempt,
    ProvisionRequest,
    ProvisionResult,
    record_attempts,
)
from router.controller.provision.quarantine import current_shortages
from router.controller.workspace.placement_options import placement_from
from router.coordinator.saves import SaveAnswers, save_answers_by_attempt
from router.jobs.experience import Experience
from router.jobs.job_json import read_job
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.ledger.budget import budgets_in_force
from router.ledger.entry import LedgerEntryKind
from router.ledger.month import Month
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.candidates import CandidateFinder
from router.planning.find.shared_limits import LimitUse
from router.planning.improve.replacement import PlacementRequest, place_gangs
from router.planning.problem.current_use import RunningMachines, running_use
from router.planning.problem.remaining_work import fits_reservations, interval_at, remaining_job
from router.planning.program.solver import PulpSolver, Solver
from router.spot.options import partition_options
from router.spot.policies.deadline_guard import DeadlineGuard
from router.spot.policies.greedy import GreedyPolicy
from router.spot.policies.interface import MoveDecision, Observation, Policy, PolicyEvent
from router.state.records import Attempt, NodeRecord, Shortage

TICK = timedelta(minutes=5)
_LATELY = timedelta(days=1)
_EVENTS = {ReleaseReason.INTERRUPTED.value: PolicyEvent.INTERRUPTION, ReleaseReason.LOST.value: PolicyEvent.LOST}


@dataclass(frozen=True, slots=True)
class PendingGang:
    """A job that needs a place.

    ``leaving``: its gang that still exists; None where all machines are gone, or where the gang stays until the next
    one is ready. ``wish``: where the policy wants the job to go; None: the policy is asked now.
    """

    chain: AttemptHistory
    leaving: Attempt | None = None
    wish: MoveDecision | None = None

    @property
    def last(self) -> Attempt:
        return self.chain.last


@dataclass(frozen=True, slots=True)
class PlacementAccepted:
    """The job gets the only place of the request."""

    request: ProvisionRequest


@dataclass(frozen=True, slots=True)
class PlacementDeferred:
    """The job gets no place now."""

    why: str


@dataclass(frozen=True, slots=True)
class PlacementRejected:
    """The job will not resume."""

    why: str


class _Found(NamedTuple):
    """The candidates of a job that needs a place: all, and those that may be tried now."""

    job: Job
    all_candidates: tuple[Candidate, ...]
    open_candidates: tuple[Candidate, ...]

    def within(self, regions: frozenset[RegionId]) -> _Found:
        kept = (tuple(c for c in each if c.region in regions) for each in (self.all_candidates, self.open_candidates))
        return _Found(self.job, *kept)


ReplanAnswer = PlacementAccepted | PlacementDeferred | PlacementRejected
AliveGangs = tuple[Sequence[Attempt], Sequence[NodeRecord]]


@dataclass(slots=True)
class Replanner:
    """Finds places for jobs that lost their gang or want to move.

    ``book`` returns the current prices. ``recorded`` returns the policy that an attempt was begun with; where that is
    None, ``policy`` decides. ``earlier`` knows what earlier nights taught; without it only a job's own gangs count.
    """

    site: ControllerContext
    book: Callable[[], PriceBook]
    policy: Policy = field(default_factory=lambda: DeadlineGuard(GreedyPolicy()))
    solver: Solver = field(default_factory=lambda: PulpSolver("highs"))
    recorded: Callable[[Attempt], Policy | None] = lambda _: None
    earlier: EarlierRuns | None = None
    _plans_as_of: dict[str, datetime] = field(default_factory=dict)

    def replan(self, pending: Sequence[PendingGang]) -> list[ReplanAnswer]:
        """Return an answer for each job. Jobs whose plans had the same limits are solved as one program."""
        answers: dict[int, ReplanAnswer] = {}
        by_limits: dict[str, list[int]] = {}
        texts = {plan: limits_json(self.site.store, plan) for plan in {want.last.plan for want in pending}}
        for number, want in enumerate(pending):
            by_limits.setdefault(texts[want.last.plan], []).append(number)
        for text, numbers in by_limits.items():
            limits = Limits.model_validate_json(text)
            answers |= dict(zip(numbers, self._replan_under_limits([pending[n] for n in numbers], limits), strict=True))
        return [answers[number] for number in range(len(pending))]

    def placed(self, going: Sequence[tuple[PendingGang, PlacementAccepted]]) -> list[PlacedAttempt | ProvisionResult]:
        """Record the accepted placements, all at once, before anything is provisioned."""
        return record_attempts(self.site, [(go.request, want.chain) for want, go in going])

    def _replan_under_limits(self, pending: Sequence[PendingGang], limits: Limits) -> list[ReplanAnswer]:
        now, book = self.site.clock(), self.book()
        finder = self.finder(limits)
        short, lately = current_shortages(self.site), self.lately()
        jobs = self.site.store.plans.jobs({want.last.job_digest for want in pending})
        alive = self.site.store.overview.alive()
        answers: dict[int, ReplanAnswer] = {}
        wants: list[tuple[int, PlacementRequest]] = []
        leaving = {want.leaving.id for want in pending if want.leaving is not None}
        staying = {attempt.id: attempt for attempt in alive[0] if attempt.id not in leaving}
        found: dict[int, _Found] = {}
        for number, want in enumerate(pending):
            job = self._remaining_job(want, jobs)
            if isinstance(job, PlacementRejected):
                answers[number] = job
                continue
            all_candidates = tuple(c for c in finder.find(job)[0] if fits_reservations(c, job, now))
            closed = short.under(self.policy_for(want.last))
            open_candidates = tuple(candidate for candidate in all_candidates if not closed.has(candidate))
            if want.wish is not None:
                open_candidates = tuple(candidate for candidate in open_candidates if candidate.key in want.wish.to)
            found[number] = _Found(job, all_candidates, open_candidates)
        uses = [_use_of_limits(staying, alive[1], book, limits)]
        found = self._keep_groups(found, limits, uses, staying.values())
        for number, (job, all_candidates, open_candidates) in found.items():
            want = pending[number]
            allowed = self._ask_policy(want, all_candidates, open_candidates, job, limits, lately)
            if isinstance(allowed, PlacementDeferred):
                answers[number] = allowed
            else:
                budget_left = None if job.budget is None else job.budget - self._spent_on(job, alive, now)
                order = allowed.to if allowed.ordered else ()
                wants.append(
                    (
                        number,
                        PlacementRequest(
                            job, open_candidates, frozenset(allowed.to), allowed.late, budget_left, want.last.id, order
                        ),
                    )
                )
        money_left = self._money_left(limits, staying.values(), alive, now)
        placements = place_gangs([want for _, want in wants], limits, uses, solver=self.solver, money_left=money_left)
        saved = save_answers_by_attempt(
            self.site.store, {want.last.id: want.last.order_id for want in pending if want.last.order_id}
        )
        for number, placement_request in wants:
            chosen = placements.placed.get(placement_request.name)
            if chosen is not None:
                answers[number] = self._accept(pending[number], placement_request.job, chosen, book, saved)
            elif placement_request.most_usd is not None and placement_request.most_usd.nanos <= 0:
                answers[number] = PlacementRejected("its budget is spent")
            else:
                answers[number] = PlacementDeferred("every place that it may use is taken, or over its budget")
        return [answers[number] for number in range(len(pending))]

    def _keep_groups(
        self, choices: Mapping[int, _Found], limits: Limits, uses: Sequence[LimitUse], staying: Collection[Attempt]
    ) -> dict[int, _Found]:
        """Return the candidates of jobs in groups without those in other regions than their group's."""
        members = {
            number: GroupMember(one.job, one.open_candidates, self.mates_in(one.job, staying))
            for number, one in choices.items()
            if one.job.group is not None
        }

        def place(some: Sequence[GroupMember]) -> tuple[int, Usd]:
            wants = [PlacementRequest(member.job, member.open_candidates) for member in some]
            placements = place_gangs(wants, limits, uses, solver=self.solver)
            return len(placements.placed), Usd.total(placements.expected_usd.values())

        regions = regions_of_groups(members, place)
        return {number: one.within(regions[number]) if number in regions else one for number, one in choices.items()}

    def mates_in(self, job: Job, alive: Collection[Attempt]) -> frozenset[RegionId]:
        """Return the regions where gangs of other jobs of its group are; empty for a job without a group."""
        if job.group is None:
            return frozenset()
        others = [attempt for attempt in alive if attempt.job != job.name]
        texts = self.site.store.plans.jobs({attempt.job_digest for attempt in others})
        groups = {digest: mate.group for digest, text in texts.items() if (mate := read_job(text)) is not None}
        return frozenset(RegionId(a.cloud, a.region) for a in others if groups.get(a.job_digest) == job.group)

    def _spent_on(self, job: Job, alive: AliveGangs, now: datetime) -> Usd:
        """Return what the job has cost by the ledger, and by its machines that still exist, whatever their plan."""
        entries = self.site.store.ledger.entries(kind=LedgerEntryKind.METERED, job=job.name)
        mine = {attempt.id for attempt in alive[0] if attempt.job == job.name}
        return Usd.total(e.usd for e in entries) + cost_so_far([node for node in alive[1] if node.attempt in mine], now)

    def _money_left(
        self, limits: Limits, staying: Collection[Attempt], alive: AliveGangs, now: datetime
    ) -> dict[str, Usd]:
        """Return what each team with a budget may still spend this month.

        What keeps running counts at its ceilings, and what leaves with what it has cost.
        """
        teams = apply_hard_budgets(limits, budgets_in_force(self.site.store.budgets.all(), Month.of(now))).teams
        if not teams:
            return {}
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        entries = self.site.store.ledger.entries(since=month, kind=LedgerEntryKind.METERED)
        staying_ids, remaining = {attempt.id for attempt in staying}, {}
        for budget in teams:
            metered = Usd.total(e.usd_in(Month.of(now)) for e in entries if e.team == budget.team)
            committed = Usd.total(a.at_risk_usd for a in staying if a.team == budget.team)
            leaving = {a.id for a in alive[0] if a.team == budget.team and a.id not in staying_ids}
            committed += cost_so_far([node for node in alive[1] if node.attempt in leaving], now)
            remaining[budget.team] = budget.budget - max(metered, budget.spent) - committed
        return remaining

    def policy_for(self, attempt: Attempt) -> Policy:
        """Return the policy that runs an attempt and the next attempts of its job."""
        return self.recorded(attempt) or self.policy

    def finder(self, limits: Limits) -> CandidateFinder:
        book = self.book()
        return CandidateFinder(book, limits, self.site.clock(), advisory=False, experience=self.counted_pools(book))

    def counted_pools(self, book: PriceBook) -> Experience:
        """Return interruptions and networks as counted and measured in pools. Speeds are in the jobs already."""
        return Experience() if self.earlier is None else self.earlier.pools(book)

    def left_of(self, chain: AttemptHistory) -> Job | None:
        """Return the remaining work of the job from its last confirmed step, at the speed that gangs showed.

        Its own gangs count before those of earlier runs. None where its specification is not known.
        """
        last = chain.last
        return self._remaining_work(chain, self.site.store.plans.job(last.job_digest))

    def stated_job(self, attempt: Attempt) -> Job | None:
        """Return the attempt's job as it is stored; None where its specification is not known."""
        return read_job(self.site.store.plans.job(attempt.job_digest))

    def limits_of(self, attempt: Attempt) -> Limits:
        return Limits.model_validate_json(limits_json(self.site.store, attempt.plan))

    def _remaining_work(self, chain: AttemptHistory, text: str | None) -> Job | None:
        job = read_job(text)
        if job is None:
            return None
        step, where = chain.before.step, chain.saved_by
        there = RegionId(where.cloud, where.region) if step else None
        book = self.book()
        earlier = () if self.earlier is None else self.earlier.speeds(job, book)
        job = job_as_measured(job, chain, book, earlier)
        job = with_known_copies(job, self.site.store.data_copies.usable(self.site.clock()))
        return remaining_job(job, step, there, self._plan_time(chain.last))

    def _plan_time(self, attempt: Attempt) -> datetime:
        """Return when the attempt's plan was made; cached, because a plan never changes."""
        if attempt.plan not in self._plans_as_of:
            self._plans_as_of[attempt.plan] = plan_time(self.site.store, attempt)
        return self._plans_as_of[attempt.plan]

    def _remaining_job(self, want: PendingGang, jobs: Mapping[str, str]) -> Job | PlacementRejected:
        if want.chain.in_vain >= self.site.deploy.timeouts.tries:
            return PlacementRejected(f"given up: {format_count(want.chain.in_vain, 'gang')} in a row saved nothing")
        return self._remaining_work(want.chain, jobs.get(want.last.job_digest)) or PlacementRejected(
            "its specification is not in the state, or cannot be read (`stepfare state restore`)"
        )

    def lately(self) -> tuple[Shortage, ...]:
        """Return the pools that ran short in the last day, for anybody's gangs."""
        return self.site.store.shortages.found_since(self.site.clock() - _LATELY)

    def has_time(self, attempt: Attempt) -> bool:
        """Return whether the attempt's job has a deadline that is still ahead."""
        job = self.stated_job(attempt)
        deadline = None if job is None else job.deadline
        return deadline is not None and deadline.at(self._plan_time(attempt)) > self.site.clock()

    def _ask_policy(
        self,
        want: PendingGang,
        all_candidates: Sequence[Candidate],
        open_candidates: Sequence[Candidate],
        job: Job,
        limits: Limits,
        recent_shortages: Sequence[Shortage],
    ) -> MoveDecision | PlacementDeferred:
        if want.wish is not None and want.wish.ordered:
            return want.wish if open_candidates else PlacementDeferred("none of the places that it wants is left")
        now = self.site.clock()
        deadline = None if job.deadline is None else job.deadline.at(now)
        event = _EVENTS.get(want.last.reason, PolicyEvent.ENDED_SHORT)
        places, closed = partition_options(all_candidates, open_candidates, job, limits)
        observation = Observation(now, deadline, TICK, event, None, places, closed=closed)
        observation = with_history(observation, want.chain, job, all_candidates, recent_shortages)
        decision = self.policy_for(want.last).decide(observation)
        if isinstance(decision, MoveDecision):
            return decision
        return PlacementDeferred(getattr(decision, "why", "") or "no place is left")

    def _accept(
        self, want: PendingGang, job: Job, chosen: Candidate, book: PriceBook, saved: Mapping[str, SaveAnswers]
    ) -> ReplanAnswer:
        last, now = want.last, self.site.clock()
        hours = chosen.reserved_hours(max(1, job.steps_left))
        choice = placement_from(chosen, now, now + timedelta(hours=hours))
        order = Order(last.job, last.gang, last.start, choice.end, ())
        return PlacementAccepted(
            ProvisionRequest(
                last.plan,
                order,
                (choice,),
                job,
                last.job_digest,
                book,
                last.created_at,
                _save_interval(last, job, chosen, saved.get(last.id)),
                (last.policy, last.quoted_policy),
            )
        )


def _save_interval(last: Attempt, job: Job, chosen: Candidate, answers: SaveAnswers | None) -> float | None:
    """Return how often the job is to save there at first, in seconds: half where a notice was too short to save."""
    best = interval_at(job, chosen.gang_risk.per_hour_at(0.0))
    intervals = [s for s in (best.total_seconds() if best else None, last.checkpoint_seconds) if s is not None]
    if answers is not None and answers.step is None:
        # One that saved when it liked counts by how long it trained.
        trained = None if last.met_at is None or last.gone_at is None else (last.gone_at - last.met_at).total_seconds()
        before = min(intervals, default=2 * MIN_CHECKPOINT_INTERVAL_S if trained is None else trained)
        return max(MIN_CHECKPOINT_INTERVAL_S, before / 2)
    return min(intervals, default=None)


def _use_of_limits(
    staying: Mapping[str, Attempt], nodes: Sequence[NodeRecord], book: PriceBook, limits: Limits
) -> LimitUse:
    pools = Counter(
        (
            staying[n.attempt].cloud,
            staying[n.attempt].region,
            n.zone,
            n.instance_type,
            n.market,
            staying[n.attempt].team,
        )
        for n in nodes
        if n.attempt in staying
    )
    return running_use(
        (RunningMachines(*pool[:5], machines, pool[5]) for pool, machines in pools.items()), book, limits
    )


MOST_REGIONS = 6


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A job of a group that needs a place.

    ``open_candidates`` are those that it could take now. ``mates_in`` are the regions of the group's gangs that keep
    running.
    """

    job: Job
    open_candidates: tuple[Candidate, ...]
    mates_in: frozenset[RegionId] = frozenset()


# The number of members that find a place together, and their expected dollars.
Trial = Callable[[Sequence[GroupMember]], tuple[int, Usd]]


def regions_of_groups(members: Mapping[int, GroupMember], place: Trial) -> Mapping[int, frozenset[RegionId]]:
    """Return the regions that each member may go to, by its number; one that is alone may go anywhere and is left out.

    Where gangs of the group keep running, it is their region. Else it is the region where most of those that wait find
    a place by ``place``, then where they cost least; the ``MOST_REGIONS`` that look best are tried.
    """
    regions: dict[int, frozenset[RegionId]] = {}
    waiting: dict[str, list[int]] = {}
    for number, member in members.items():
        if member.mates_in:
            regions[number] = member.mates_in
        elif member.job.group is not None:
            waiting.setdefault(member.job.group, []).append(number)
    for numbers in waiting.values():
        if len(numbers) > 1:
            region = _common_region([members[number] for number in numbers], place)
            regions |= dict.fromkeys(numbers, frozenset() if region is None else frozenset({region}))
    return regions


def _common_region(members: Sequence[GroupMember], place: Trial) -> RegionId | None:
    least: dict[RegionId, list[float]] = {}
    for member in members:
        costs: dict[RegionId, float] = {}
        for c in member.open_candidates:
            usd = c.expected_usd(steps_to_do(member.job, running=c.running))
            usd += sum(t.dearest.dollars() for t in c.transfers)
            costs[c.region] = min(usd, costs.get(c.region, usd))
        for region, usd in costs.items():
            least.setdefault(region, []).append(usd)
    ranked = sorted(least, key=lambda region: (-len(least[region]), sum(least[region]), region))[:MOST_REGIONS]
    found: dict[RegionId, tuple[int, Usd]] = {}
    for region in ranked:
        there = [
            replace(member, open_candidates=tuple(c for c in member.open_candidates if c.region == region))
            for member in members
        ]
        found[region] = place(there)
    return min(ranked, key=lambda region: (-found[region][0], found[region][1]), default=None)
