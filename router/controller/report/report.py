"""Report which gangs run and what they have cost, for people and programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pricing.money import Usd
from router.controller.history.attempt_history import deadline_of, resumable_histories
from router.controller.history.lifecycle import RESUMABLE_REASONS, last_step
from router.controller.history.metering import cost_so_far
from router.deploy.deploy_settings import Timeouts
from router.jobs.quantities import LONGEST_RUN
from router.jobs.run_policy import RunPolicy
from router.spot.policies.rules import Rule
from router.state.records import Attempt, NodeRecord, Phase
from router.state.store import StateStore


@dataclass(frozen=True, slots=True)
class GangReport:
    """An attempt with its machines.

    ``spent_usd``: cost until now. ``quiet``: time since the longest silent rank last called (None while none has
    called). ``waits``: the job is to resume and has no machines.
    """

    attempt: Attempt
    nodes: tuple[NodeRecord, ...]
    spent_usd: Usd
    quiet: timedelta | None
    waits: bool = False

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
    gangs = tuple(
        report_gang(attempt, tuple(nodes.get(attempt.id, ())), now, waits=attempt.id in waiting_ids)
        for attempt in attempts
    )
    return StatusReport(gangs, Usd.total(gang.spent_usd for gang in gangs), now)


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
    """Return the report of one attempt with its machines."""
    heard = [node.heard_at for node in nodes if node.heard_at is not None]
    quiet = None if not heard or attempt.phase.is_over else max(now - min(heard), timedelta(0))
    return GangReport(attempt, nodes, cost_so_far(nodes, now), quiet, waits)
