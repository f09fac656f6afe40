"""Where jobs go on that lost their gang: all that wait for a place at one moment are planned together."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.places import RegionId
from router.coordinator.saves import saved_for
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.ledger.entry import Kind
from router.planning.candidates import Candidate, CandidateFinder
from router.planning.held import Held, held_use
from router.planning.reassign import Want, reassign
from router.planning.shared import Use
from router.planning.solver import PulpSolver, Solver
from router.planning.whats_left import checkpoint_interval, job_left, places_left
from router.quoting.places import place_of
from router.quoting.policy import Event, Greedy, Move, Observation, Place, Policy
from router.quoting.safety import SafetyNet
from router.running.chains import LEAST_INTERVAL_S, Chain, chain_of
from router.running.choices import Choice, choice_from
from router.running.deploying import Errand, Outcome, Placed, place
from router.running.kept_limits import limits_text
from router.running.lifecycle import Reason
from router.running.metering import in_month
from router.running.orders import Order
from router.running.quarantine import is_short
from router.running.site import Site
from router.running.workspaces import job_of
from router.state.records import Attempt, NodeRecord

TICK = timedelta(minutes=5)
_EVENTS = {Reason.INTERRUPTED.value: Event.INTERRUPTION, Reason.LOST.value: Event.LOST}


@dataclass(frozen=True, slots=True)
class Wanting:
    """A job that needs a place. ``leaving``: its gang that is still there, None where all is gone, or where it stays
    until the next is there. ``allowed``: keys of the only candidates; None: as the policy says."""

    chain: Chain
    leaving: Attempt | None = None
    allowed: frozenset[str] | None = None

    @property
    def last(self) -> Attempt:
        """Its newest attempt."""
        return self.chain.last


@dataclass(frozen=True, slots=True)
class Go:
    """There."""

    errand: Errand
    choice: Choice
    checkpoint_seconds: float | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Later:
    """Nowhere now."""

    why: str


@dataclass(frozen=True, slots=True)
class Never:
    """It will not go on."""

    why: str


Answer = Go | Later | Never


@dataclass(slots=True)
class Replanner:
    """``book``: the prices of now."""

    site: Site
    book: Callable[[], PriceBook]
    policy: Policy = field(default_factory=lambda: SafetyNet(Greedy()))
    solver: Solver = field(default_factory=lambda: PulpSolver("highs"))

    def replan(self, wanting: Sequence[Wanting]) -> list[Answer]:
        """An answer for each. One program for all jobs whose plans had the same limits."""
        answers: dict[int, Answer] = {}
        by_limits: dict[str, list[int]] = {}
        for number, want in enumerate(wanting):
            by_limits.setdefault(limits_text(self.site.store, want.last.plan), []).append(number)
        for text, numbers in by_limits.items():
            limits = Limits.model_validate_json(text)
            answers |= dict(zip(numbers, self._together([wanting[n] for n in numbers], limits), strict=True))
        return [answers[number] for number in range(len(wanting))]

    def placed(self, want: Wanting, go: Go) -> Placed | Outcome:
        """Writes the answer down, before anything is done."""
        del want
        return place(self.site, go.errand, go.choice, go.checkpoint_seconds)

    def _together(self, wanting: Sequence[Wanting], limits: Limits) -> list[Answer]:
        now, book = self.site.clock(), self.book()
        finder = CandidateFinder(book, limits, now, advisory=False)
        shortages = self.site.store.shortages(now)
        answers: dict[int, Answer] = {}
        wants: list[tuple[int, Want]] = []
        for number, want in enumerate(wanting):
            job = self._job(want)
            if isinstance(job, Never):
                answers[number] = job
                continue
            found = places_left(finder, job, lambda candidate: is_short(candidate, shortages))
            if want.allowed is not None:
                found = tuple(candidate for candidate in found if candidate.key in want.allowed)
            allowed = self._allowed(want, [place_of(candidate, job, limits) for candidate in found], job, now)
            if isinstance(allowed, Later):
                answers[number] = allowed
            else:
                most = None if job.budget is None else job.budget - self._spent(job)
                wants.append((number, Want(job, found, frozenset(allowed.to), allowed.late, most, want.last.id)))
        held = [self._held(wanting, book, limits)]
        money = self._money_left(limits, wanting, now)
        done = reassign([want for _, want in wants], limits, held, solver=self.solver, money_left=money)
        for number, want_ in wants:
            chosen = done.placed.get(want_.name)
            if chosen is not None:
                answers[number] = self._go(wanting[number], want_.job, chosen, book, now)
            elif want_.most_usd is not None and want_.most_usd.nanos <= 0:
                answers[number] = Never("its budget is spent")
            else:
                answers[number] = Later("every place that it may use is taken, or over its budget")
        return [answers[number] for number in range(len(wanting))]

    def _spent(self, job: Job) -> Usd:
        """By the ledger, whatever it was that the job was planned for."""
        return Usd.total(e.usd for e in self.site.store.ledger.entries(kind=Kind.METERED, job=job.name))

    def _money_left(self, limits: Limits, wanting: Sequence[Wanting], now: datetime) -> dict[str, Usd]:
        """What teams with a budget may still spend this month, beside what runs on, at its ceilings."""
        if not limits.teams:
            return {}
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        entries = self.site.store.ledger.entries(since=month, kind=Kind.METERED)
        leaving = {want.leaving.id for want in wanting if want.leaving is not None}
        staying = [a for a in self.site.store.attempts(alive=True) if a.id not in leaving]
        left = {}
        for budget in limits.teams:
            metered = Usd.total(in_month(e, now) for e in entries if e.team == budget.team)
            committed = Usd.total(a.at_risk_usd for a in staying if a.team == budget.team)
            left[budget.team] = budget.budget - max(metered, budget.spent) - committed
        return left

    def left_of(self, attempt: Attempt) -> Job | None:
        """What is left of its job from the last confirmed step; None where its specification is not known."""
        return self._left(chain_of(self.site.store, attempt))

    def limits_of(self, attempt: Attempt) -> Limits:
        """Those that its plan was accepted with."""
        return Limits.model_validate_json(limits_text(self.site.store, attempt.plan))

    def _left(self, chain: Chain) -> Job | None:
        last, text = chain.last, self.site.store.job(chain.last.job_digest)
        if text is None:
            return None
        plan = self.site.store.plan(last.plan)
        as_of = datetime.fromisoformat(json.loads(plan)["as_of"]).astimezone(UTC) if plan else last.created_at
        step = chain.before.step
        where = chain.attempts[chain.steps.index(step)]
        return job_left(job_of(text), step, RegionId(where.cloud, where.region) if step else None, as_of)

    def _job(self, want: Wanting) -> Job | Never:
        if want.chain.in_vain >= self.site.deploy.patience.tries:
            return Never(f"given up: {want.chain.in_vain} gangs one after the other saved nothing")
        return self._left(want.chain) or Never("its specification is not in the state")

    def _allowed(
        self, want: Wanting, places: Sequence[Place], job: Job, now: datetime
    ) -> Move | Later:  # fmt: skip
        deadline = None if job.deadline is None else job.deadline.at(now)
        event = _EVENTS.get(want.last.reason, Event.ENDED_SHORT)
        decision = self.policy.decide(Observation(now, deadline, TICK, event, None, tuple(places)))
        if isinstance(decision, Move):
            return decision
        return Later(getattr(decision, "why", "") or "no place is left")

    def _held(self, wanting: Sequence[Wanting], book: PriceBook, limits: Limits) -> Use:
        """What goes on running takes of the limits."""
        leaving = {want.leaving.id for want in wanting if want.leaving is not None}
        staying = [a for a in self.site.store.attempts(alive=True) if a.id not in leaving]
        machines = (
            Held(a.cloud, a.region, node.zone, node.instance_type, node.market, 1)
            for a in staying
            for node in self.site.store.nodes(a.id)
        )
        return held_use(machines, book, limits)

    def _go(self, want: Wanting, job: Job, chosen: Candidate, book: PriceBook, now: datetime) -> Answer:
        last = want.last
        hours = chosen.reserved_hours(max(1, job.steps_left))
        choice = choice_from(chosen, now, now + timedelta(hours=hours))
        order = Order(last.job, last.gang, last.start, choice.end, ())
        errand = Errand(last.plan, order, (choice,), job, last.job_digest, book)
        return Go(errand, choice, self._interval(want, job, chosen, book))

    def _interval(self, want: Wanting, job: Job, chosen: Candidate, book: PriceBook) -> float | None:
        """How often it is to save there; half of what it was where the time of a notice was too short to save."""
        last, part = want.last, chosen.parts[-1]
        best = checkpoint_interval(job, book, part.offer, part.machine, chosen.machines)
        known = [s for s in (best.total_seconds() if best else None, last.checkpoint_seconds) if s is not None]
        if last.order_id and saved_for(self.site.store, last.id, last.order_id).step is None:
            return max(LEAST_INTERVAL_S, min(known or [_ran_s(last)]) / 2)
        return min(known, default=None)


def _ran_s(attempt: Attempt) -> float:
    """How long it trained, for one that saved when it liked."""
    if attempt.met_at is None or attempt.gone_at is None:
        return 2 * LEAST_INTERVAL_S
    return (attempt.gone_at - attempt.met_at).total_seconds()


def same_machines(candidate: Candidate, attempt: Attempt, nodes: Sequence[NodeRecord]) -> bool:
    """Whether the candidate is what runs; an offer without a zone fits any."""
    if (candidate.region.cloud, candidate.region.region) != (attempt.cloud, attempt.region):
        return False
    wanted = Counter((node.instance_type, node.market, node.zone) for node in nodes)
    for part in candidate.parts:
        offer, left = part.offer, part.machines
        for key in [k for k in wanted if k[:2] == (offer.instance_type, offer.market)]:
            if offer.zone in (None, key[2]) or key[2] is None:
                taken = min(left, wanted[key])
                left, wanted[key] = left - taken, wanted[key] - taken
        if left:
            return False
    return not +wanted
