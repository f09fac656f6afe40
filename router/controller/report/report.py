"""Report which gangs run, until when, whether jobs will be in time and what they have cost, for people and programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import groupby
from typing import Any

from pricing.money import ZERO, Usd, UsdPerHour
from pricing.places import Market
from router.agent import protocol
from router.controller.history.attempt_history import deadline_of, order_key, resumable_histories
from router.controller.history.heartbeats import agreed_cost, find_gang_standstill, group_by_attempt
from router.controller.history.lifecycle import RESUMABLE_REASONS, last_step
from router.controller.history.metering import cost_so_far
from router.deploy.deploy_settings import Timeouts
from router.jobs.job_json import read_job
from router.jobs.quantities import LONGEST_RUN, Moment
from router.jobs.run_policy import RunPolicy
from router.jobs.standstill import Standstill, StandstillFinding
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind
from router.spot.policies import Rule
from router.state.records import Attempt, JournalEntry, NodeRecord, NoticeRecord, Phase
from router.state.store import StateStore

_USUAL = Standstill()


@dataclass(frozen=True, slots=True)
class OrderCost:
    """The agreed cost of an order, and what all its attempts have cost; reserved machines need no agreement."""

    agreed_usd: Usd = ZERO
    spent_usd: Usd = ZERO

    @property
    def is_over(self) -> bool:
        """Return whether it has cost more than was agreed to."""
        return self.agreed_usd < self.spent_usd and self.agreed_usd > ZERO


@dataclass(frozen=True, slots=True)
class GangReport:
    """An attempt with its machines.

    ``spent_usd``: cost until now. ``quiet``: time since the longest silent rank last called (None while none has
    called). ``waits``: the job is to resume and has no machines. ``standstill``: its training stands still.
    ``all_reduce``: the journal's details of what it measured before. ``order``: what was agreed to for all attempts of
    its order, and what they have cost.
    """

    attempt: Attempt
    nodes: tuple[NodeRecord, ...]
    spent_usd: Usd
    quiet: timedelta | None
    waits: bool = False
    standstill: StandstillFinding | None = None
    all_reduce: Mapping[str, Any] | None = None
    order: OrderCost = OrderCost()
    now: datetime | None = None

    @property
    def planned_end(self) -> datetime | None:
        """Return when it is to end as planned, None where it is over."""
        return None if self.attempt.phase.is_over else self.attempt.end

    @property
    def is_late(self) -> bool:
        """Return whether its machines exist after its planned end."""
        return self.planned_end is not None and self.now is not None and self.now > self.planned_end

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what a person should look at: standstill, lateness, cost over what was agreed to, a slow network."""
        late = f"late: its planned end was {self.attempt.end:%Y-%m-%d %H:%MZ}"
        dear = (
            f"over the agreed cost: ${self.order.spent_usd.dollars():,.2f} of ${self.order.agreed_usd.dollars():,.2f}"
        )
        stands = "" if self.standstill is None else self.standstill.text
        said = ((late, self.is_late), (dear, self.order.is_over), (stands, self.standstill is not None))
        slow = "" if self.all_reduce is None else self.all_reduce["problem"]
        return tuple(text for text, holds in (*said, (f"all-reduce: {slow}", slow)) if holds)

    @property
    def state(self) -> str:
        """Return the phase for a person.

        A released gang whose job resumes shows its reason or ``waits``, because that is no failure of the job.
        """
        is_released = self.attempt.phase is Phase.FAILED and self.attempt.reason in RESUMABLE_REASONS
        return "waits" if self.waits else self.attempt.reason if is_released else self.attempt.phase.value

    @property
    def policy(self) -> RunPolicy | None:
        """Return the policy that runs the attempt; None where none is recorded."""
        return RunPolicy.recorded(self.attempt.policy)

    @property
    def quoted_policy(self) -> RunPolicy | None:
        """Return the policy of the quote, where another one runs."""
        return RunPolicy.recorded(self.attempt.quoted_policy)

    @property
    def step(self) -> int | None:
        """Return the last step that was done, as far as its training reported or saved; None without a report."""
        told = any(node.step is not None or node.saved_step is not None for node in self.nodes)
        return last_step(self.attempt, self.nodes) if told else None

    @property
    def saved_step(self) -> int | None:
        """Return the last step that its training reported as saved; None without a report."""
        return max((node.saved_step for node in self.nodes if node.saved_step is not None), default=None)

    @property
    def unpriced(self) -> bool:
        """Return whether the gang has machines without a known price, which are in no sum."""
        return any(node.unpriced for node in self.nodes)

    @property
    def calling(self) -> int:
        """Return the number of ranks that have called at all."""
        return sum(bool(node.agent) for node in self.nodes)


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Attempts in the order in which they were begun, and their total cost ``spent_usd``."""

    gangs: tuple[GangReport, ...]
    spent_usd: Usd
    now: datetime


def build_status_report(
    store: StateStore,
    names: Sequence[str],
    now: datetime,
    timeouts: Timeouts,
    *,
    everything: bool,
    standstill: Standstill = _USUAL,
    admits: Callable[[str], bool] = lambda _: True,
) -> StatusReport:
    """Return the report of these jobs, attempts or plans (none: all), of the teams that ``admits`` lets pass.

    Of attempts that are over only the last of each job of a team is included, unless ``everything``.
    """
    if everything or names:
        found = store.attempts.named(names) if names else store.attempts.find()
        nodes = store.overview.nodes(attempt.id for attempt in found if admits(attempt.team))
    else:
        found, nodes = store.overview.current()
    attempts = [attempt for attempt in found if admits(attempt.team)]
    if not everything and not names:
        last = {(attempt.team, attempt.job): attempt.id for attempt in attempts}
        attempts = [a for a in attempts if not a.phase.is_over or last[a.team, a.job] == a.id]
    waiting_ids = {
        chain.last.id
        for chain in resumable_histories(store, _recently_ended(store, now, timeouts), crashes=timeouts.max_crashes)
    }
    orders = _order_costs(store, attempts, nodes, now)
    jobs = store.plans.jobs({attempt.job_digest for attempt in attempts if attempt.phase.is_up})
    measured = {entry.attempt: entry.details for entry in store.overview.notes((protocol.MEASURED,))}
    gangs = []
    for attempt in attempts:
        machines = tuple(nodes.get(attempt.id, ()))
        stands = find_gang_standstill(attempt, machines, jobs.get(attempt.job_digest), standstill)
        gang = report_gang(attempt, machines, now, waits=attempt.id in waiting_ids)
        finding = None if stands is None else stands.finding
        figure = measured.get(attempt.id)
        gangs.append(replace(gang, standstill=finding, all_reduce=figure, order=orders[attempt.id]))
    return StatusReport(tuple(gangs), Usd.total(gang.spent_usd for gang in gangs), now)


def _order_costs(
    store: StateStore, attempts: Sequence[Attempt], nodes: Mapping[str, Sequence[NodeRecord]], now: datetime
) -> dict[str, OrderCost]:
    """Return the cost of each attempt's order, by attempt; the attempts before a later one are read."""
    again = {attempt.job for attempt in attempts if attempt.number > 1}
    lives, machines = store.overview.lives(again) if again else ((), ())
    known = {**{attempt.id: attempt for attempt in attempts}, **{attempt.id: attempt for attempt in lives}}
    of_attempt = {**group_by_attempt(machines), **nodes}
    orders: dict[tuple[object, ...], list[Attempt]] = {}
    for attempt in known.values():
        orders.setdefault(order_key(attempt), []).append(attempt)
    costs = {}
    for key, members in orders.items():
        paid = [n for one in members for n in of_attempt.get(one.id, ()) if n.market is not Market.RESERVED]
        costs[key] = OrderCost(agreed_cost(members), cost_so_far(paid, now))
    return {attempt.id: costs[order_key(attempt)] for attempt in attempts}


def _recently_ended(store: StateStore, now: datetime, timeouts: Timeouts) -> list[Attempt]:
    """Return the last attempts of jobs that may resume: recently ended, or waiting for spot until their deadline."""
    ended = store.attempts.ended_last(now - LONGEST_RUN)
    return [a for a in ended if (a.gone_at or now) >= now - timeouts.retry_for or _waits_long(store, a, now)]


def _waits_long(store: StateStore, attempt: Attempt, now: datetime) -> bool:
    policy = RunPolicy.recorded(attempt.policy)
    if policy is None or policy.name == Rule.GREEDY:
        return False
    return (deadline_of(store, attempt) or now) > now


def report_gang(attempt: Attempt, nodes: tuple[NodeRecord, ...], now: datetime, *, waits: bool = False) -> GangReport:
    heard = [node.heard_at for node in nodes if node.heard_at is not None]
    quiet = None if not heard or attempt.phase.is_over else max(now - min(heard), timedelta(0))
    return GangReport(attempt, nodes, cost_so_far(nodes, now), quiet, waits, now=now)


# Agents call every few seconds; a rank that has not called for this long is worth a look.
SILENT_AFTER = timedelta(minutes=1)
_NOTICED = (Phase.NOTICED, Phase.CHECKPOINTING, Phase.MIGRATING)


@dataclass(frozen=True, slots=True)
class PlanPromise:
    """An accepted plan's statement on a job: when it is done, and how likely in time; None is not said."""

    finish: datetime | None = None
    chance: float | None = None
    confidence: float | None = None


# When a plan was made, None unknown, and what it says of each job.
_Promises = tuple[datetime | None, Mapping[str, PlanPromise]]
_PROMISES: dict[str, _Promises] = {}
_MOST_PLANS = 64


@dataclass(frozen=True, slots=True)
class GangOutlook:
    """A gang as of ``now``, with its job's deadline, what its plan said, and its end at the pace of the last report.

    ``paced_end`` is None unless it trains and says how long a step takes; ``steps`` are those of the whole job.
    """

    gang: GangReport
    deadline: datetime | None
    promise: PlanPromise
    paced_end: datetime | None
    now: datetime
    steps: int | None = None

    @property
    def done(self) -> float | None:
        """Return the share of the job's steps that are done; None where nobody said how many."""
        if self.gang.attempt.result == "finished":
            return 1.0
        if not self.steps or self.gang.step is None:
            return None
        return min(self.gang.step / self.steps, 1.0)

    @property
    def early(self) -> timedelta | None:
        """Return how long before its deadline the training finished, negative after it; None where it did not."""
        attempt = self.gang.attempt
        ended = attempt.result_at or attempt.gone_at
        if self.deadline is None or attempt.result != "finished" or ended is None:
            return None
        return self.deadline - ended

    @property
    def is_live(self) -> bool:
        """Return whether machines exist, or may."""
        return not self.gang.attempt.phase.is_over

    @property
    def until(self) -> datetime | None:
        """Return when the job is expected to be done: by its pace, else as its plan says.

        None for a job that is over, and where the plan's time has passed.
        """
        if not (self.is_live or self.gang.waits):
            return None
        planned = self.promise.finish
        return self.paced_end or (planned if planned is not None and planned > self.now else None)

    @property
    def is_silent(self) -> bool:
        """Return whether a rank that has called before has not called for a minute."""
        return self.gang.quiet is not None and self.gang.quiet >= SILENT_AFTER

    @property
    def is_noticed(self) -> bool:
        """Return whether the gang saves or moves because a machine is to go."""
        return self.gang.attempt.phase in _NOTICED

    @property
    def is_late(self) -> bool:
        """Return whether it goes on after its deadline, or is expected to."""
        if self.deadline is None or not (self.is_live or self.gang.waits):
            return False
        return (self.until or self.now) > self.deadline


@dataclass(frozen=True, slots=True)
class JobsReport:
    """The gangs of a status with their outlooks, in the same order; ``status`` has the sums."""

    status: StatusReport
    outlooks: tuple[GangOutlook, ...]

    @property
    def live(self) -> tuple[GangOutlook, ...]:
        return tuple(each for each in self.outlooks if each.is_live)

    @property
    def waiting(self) -> tuple[GangOutlook, ...]:
        """Return the last gangs of jobs that are to resume and have no machines."""
        return tuple(each for each in self.outlooks if each.gang.waits)

    @property
    def over(self) -> tuple[GangOutlook, ...]:
        """Return gangs that are over and whose jobs do not resume, the last first."""
        done = [each for each in self.outlooks if not each.is_live and not each.gang.waits]
        return tuple(
            sorted(
                done, key=lambda outlook: outlook.gang.attempt.gone_at or outlook.gang.attempt.created_at, reverse=True
            )
        )

    @property
    def places(self) -> int:
        return len({(each.gang.attempt.cloud, each.gang.attempt.region) for each in self.live})

    @property
    def usd_per_hour(self) -> UsdPerHour:
        """Return the price of all live gangs for an hour, without machines whose price is not known."""
        return UsdPerHour(sum(each.gang.attempt.usd_per_hour.nanos for each in self.live))

    @property
    def live_usd(self) -> Usd:
        """Return what the live gangs have cost until now."""
        return Usd.total(each.gang.spent_usd for each in self.live)

    @property
    def unpriced(self) -> int:
        """Return the number of live gangs with machines without a known price."""
        return sum(each.gang.unpriced for each in self.live)


@dataclass(frozen=True, slots=True)
class CostLine:
    """The metered cost of one item and use in one place; ``unpriced``: entries without a known price, in no sum."""

    item: str
    use: str
    where: str
    quantity: Fraction
    unit: str
    usd: Usd
    unpriced: int
    waste: bool


@dataclass(frozen=True, slots=True)
class AttemptReport:
    """An attempt with all that is recorded of it; ``costs`` is what the ledger has metered, empty while it runs."""

    outlook: GangOutlook
    notices: tuple[NoticeRecord, ...]
    journal: tuple[JournalEntry, ...]
    costs: tuple[CostLine, ...]

    @property
    def metered_usd(self) -> Usd:
        return Usd.total(each.usd for each in self.costs)

    @property
    def spent_usd(self) -> Usd:
        """Return what the ledger has metered; before it has, what the machines have cost until now."""
        return self.metered_usd if self.costs else self.outlook.gang.spent_usd

    @property
    def unpriced(self) -> bool:
        """Return whether something of it has no known price."""
        return self.outlook.gang.unpriced or any(each.unpriced for each in self.costs)


@dataclass(frozen=True, slots=True)
class JobReport:
    """All attempts of a job, in order. ``runs`` groups them by the plan that ordered them."""

    name: str
    attempts: tuple[AttemptReport, ...]
    now: datetime

    @property
    def last(self) -> AttemptReport:
        return self.attempts[-1]

    @property
    def runs(self) -> tuple[tuple[AttemptReport, ...], ...]:
        """Return the attempts that each plan ordered, in the order of the last ones."""
        by_plan: dict[tuple[str, str], tuple[AttemptReport, ...]] = {}
        for each in self.attempts:
            key = run_key(each.outlook.gang.attempt)
            by_plan[key] = (*by_plan.pop(key, ()), each)  # The run of the last attempt is the last.
        return tuple(by_plan.values())

    @property
    def spent_usd(self) -> Usd:
        """Return the cost of all attempts until now, exact."""
        return Usd.total(each.spent_usd for each in self.attempts)


def run_key(attempt: Attempt) -> tuple[str, str]:
    """Return what the attempts of one run of a job share: plan and gang."""
    return attempt.plan, attempt.gang


def build_outlooks(store: StateStore, gangs: Sequence[GangReport], now: datetime) -> tuple[GangOutlook, ...]:
    """Return the outlook of each gang; what its job or its plan does not say any more is None."""
    jobs = store.plans.jobs({gang.attempt.job_digest for gang in gangs})
    plans = {digest: _promises_of(store, digest) for digest in {gang.attempt.plan for gang in gangs}}
    return tuple(_outlook(gang, jobs.get(gang.attempt.job_digest), plans[gang.attempt.plan], now) for gang in gangs)


def _promises_of(store: StateStore, digest: str) -> _Promises:
    # The text of a plan of many jobs takes long to read, and what a digest stands for never changes.
    promises = _PROMISES.get(digest)
    if promises is None:
        text = store.plans.plan(digest)
        if text is None:
            return None, {}
        promises = _PROMISES[digest] = _read_promises(text)
        while len(_PROMISES) > _MOST_PLANS:
            _PROMISES.pop(next(iter(_PROMISES)), None)
    return promises


def _outlook(gang: GangReport, job: str | None, plan: _Promises, now: datetime) -> GangOutlook:
    attempt, (as_of, promises) = gang.attempt, plan
    steps, deadline = (None, None) if job is None else _read_goal(job)
    return GangOutlook(
        gang,
        None if deadline is None else deadline.at(as_of or attempt.created_at),
        promises.get(attempt.job, PlanPromise()),
        None if steps is None else _paced_end(gang, steps, now),
        now,
        steps,
    )


def _paced_end(gang: GangReport, steps: int, now: datetime) -> datetime | None:
    paces = [node.step_seconds for node in gang.nodes if node.step_seconds is not None]
    if gang.attempt.phase is not Phase.RUNNING or not paces or gang.step is None:
        return None
    try:
        return now + timedelta(seconds=max(steps - gang.step, 0) * max(paces))
    except OverflowError:
        return None


@lru_cache(maxsize=4096)
def _read_goal(text: str) -> tuple[int | None, Moment | None]:
    """Return the steps and the deadline of a job's specification; an unreadable one says neither."""
    job = read_job(text)
    return (None, None) if job is None else (job.steps, job.deadline)


def _read_promises(text: str) -> _Promises:
    """Return when a plan was made and what it says of each job; an unreadable one says nothing."""
    try:
        content = json.loads(text)
        as_of = datetime.fromisoformat(content["as_of"]).astimezone(UTC)
        return as_of, {str(job["job"]): _promise(job) for job in content["jobs"]}
    except (ValueError, KeyError, TypeError):
        return None, {}


def _promise(job: Mapping[str, object]) -> PlanPromise:
    finish, chance, confidence = (job.get(name) for name in ("finish", "on_time_probability", "confidence"))
    return PlanPromise(
        datetime.fromisoformat(finish).astimezone(UTC) if isinstance(finish, str) else None,
        float(chance) if isinstance(chance, int | float) else None,
        float(confidence) if isinstance(confidence, int | float) else None,
    )


def build_attempt_report(
    outlook: GangOutlook,
    notices: Iterable[NoticeRecord],
    journal: Iterable[JournalEntry],
    entries: Iterable[LedgerEntry],
) -> AttemptReport:
    """Return the report of an attempt; of the entries only those metered for it count."""
    name = outlook.gang.attempt.id
    metered = [entry for entry in entries if entry.attempt == name and entry.kind is LedgerEntryKind.METERED]
    return AttemptReport(
        outlook,
        tuple(each for each in notices if each.attempt == name),
        tuple(each for each in journal if each.attempt == name),
        sum_costs(metered),
    )


def sum_costs(entries: Iterable[LedgerEntry]) -> tuple[CostLine, ...]:
    """Return exact sums by item, use and place, in the order of items, the dearest use first."""

    def group(entry: LedgerEntry) -> tuple[str, str, str, str]:
        use = "" if entry.use is None else entry.use.value
        place = f"{entry.cloud}/{entry.region}".strip("/")
        return entry.what.value, use, entry.reference or place, entry.unit

    lines = []
    for (item, use, where, unit), found in groupby(sorted(entries, key=group), key=group):
        same = list(found)
        quantity = sum((e.hours if e.hours else e.quantity for e in same), Fraction(0))
        waste = any(e.use is not None and e.use.is_waste for e in same)
        usd, unpriced = Usd.total(e.usd for e in same), sum(e.unpriced for e in same)
        lines.append(CostLine(item, use, where, quantity, unit, usd, unpriced, waste))
    machine = CostItem.MACHINE.value
    return tuple(
        sorted(lines, key=lambda line: (line.item != machine, line.item, -line.usd.nanos, line.use, line.where))
    )


def sum_by_item(costs: Iterable[CostLine]) -> Mapping[str, Usd]:
    sums: Counter[str] = Counter()
    for line in costs:
        sums[line.item] += line.usd.nanos
    return {item: Usd(nanos) if nanos else ZERO for item, nanos in sums.items()}
