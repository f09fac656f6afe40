"""Report which gangs run and what they have cost, for people and programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pricing.money import ZERO, Usd
from pricing.places import Market
from router.agent import protocol
from router.controller.history.attempt_history import deadline_of, order_key, resumable_histories
from router.controller.history.heartbeats import group_by_attempt
from router.controller.history.lifecycle import RESUMABLE_REASONS, last_step
from router.controller.history.metering import cost_so_far
from router.controller.history.standstill import agreed_cost, find_gang_standstill
from router.deploy.deploy_settings import Timeouts
from router.jobs.quantities import LONGEST_RUN
from router.jobs.run_policy import RunPolicy
from router.jobs.standstill import Standstill, StandstillFinding
from router.spot.policies.rules import Rule
from router.state.records import Attempt, NodeRecord, Phase
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
