"""The attempts of one order, one after the other: how far they came, what the next one goes on from, how often it was
tried in vain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from router.controller.causes import Cause
from router.controller.lifecycle import GAVE_UP, GOES_ON, Reason, is_transient, kept_step, manifest_of
from router.controller.workspaces import Before
from router.state.records import Attempt, NodeRecord, Phase
from router.state.store import Store

_LONGEST_PAUSE = timedelta(minutes=15)
_FIRST_PAUSE = timedelta(seconds=15)
# However short a notice was, an interval below this would only ever save.
LEAST_INTERVAL_S = 10.0
_REFUSED = frozenset({Cause.SHORT.value, Cause.QUOTA.value, Cause.PRICE.value})


@dataclass(frozen=True, slots=True)
class Chain:
    """``attempts`` by number, at least one. Their machines' last words are in ``steps`` and ``manifests``: what each
    confirmed to have saved. ``transient``: the last one's training crashed in a way that need not happen again.
    ``nodes``: the machines of each, by rank."""

    attempts: tuple[Attempt, ...]
    steps: tuple[int, ...]
    manifests: tuple[str, ...]
    transient: bool = False
    nodes: tuple[tuple[NodeRecord, ...], ...] = ()

    @property
    def last(self) -> Attempt:
        """The newest."""
        return self.attempts[-1]

    @property
    def before(self) -> Before:
        """What the next attempt goes on from: the last confirmed step of any, and whoever may still be training."""
        alive = next((attempt for attempt in reversed(self.attempts) if not attempt.phase.is_over), self.last)
        return Before(alive.id, max(self.steps), self._manifest)

    @property
    def saved_by(self) -> Attempt:
        """In whose region the checkpoint lies that the next attempt goes on from: who saved it, or to whom it was
        copied."""
        step, manifest = max(self.steps), self._manifest
        known = zip(self.attempts, self.steps, self.manifests, strict=True)
        return next((a for a, at, its in known if (at, its) == (step, manifest)), self.last)

    @property
    def _manifest(self) -> str:
        """Of the last step; where it was copied, the newest copy. A job that begins anew has none."""
        if not max(self.steps):
            return ""
        known = zip(reversed(self.steps), reversed(self.manifests), strict=True)
        return next((its for at, its in known if at == max(self.steps) and its), "")

    @property
    def in_vain(self) -> int:
        """How many attempts at the end saved nothing. A place that had no machines is none: it is left alone for a
        while, and the next is tried at once."""
        return sum(attempt.reason not in _REFUSED for attempt in self._saved_nothing)

    @property
    def crashed_in_vain(self) -> int:
        """How many of those ended by a crash of the training itself: machines that were lost say nothing about it."""
        return sum(attempt.reason == Reason.FAILED for attempt in self._saved_nothing)

    @property
    def _saved_nothing(self) -> tuple[Attempt, ...]:
        came = [n for n, (a, step) in enumerate(zip(self.attempts, self.steps, strict=True), 1) if step > a.first_step]
        return self.attempts[came[-1] if came else 0 :]

    @property
    def again_at(self) -> datetime:
        """When the next attempt may begin: at once, and later the more were in vain."""
        gone = self.last.gone_at or self.last.created_at
        if self.in_vain <= 1:
            return gone
        return gone + min(_LONGEST_PAUSE, _FIRST_PAUSE * (1 << min(self.in_vain - 2, 10)))


def chain_of(store: Store, attempt: Attempt) -> Chain:
    """The chain that an attempt belongs to."""
    found = order_chain(store, attempt.plan, attempt.job, attempt.gang, attempt.start)
    assert found is not None
    return found


def order_chain(store: Store, plan: str, job: str, gang: str, start: datetime) -> Chain | None:
    """That of an order; None before its first attempt."""
    found = [a for a in store.attempts(plan=plan, job=job, gang=gang) if a.start == start]
    if not found:
        return None
    return _chain(found, {attempt.id: store.nodes(attempt.id) for attempt in found})


def chains_of(store: Store, attempts: Iterable[Attempt]) -> dict[str, Chain]:
    """The chains that these attempts belong to, by the attempt's id; none for a job whose attempts cannot be read."""
    wanted = tuple(attempts)
    if not wanted:
        return {}
    lives, machines = store.overview.lives(attempt.job for attempt in wanted)
    nodes: dict[str, list[NodeRecord]] = {}
    for node in machines:
        nodes.setdefault(node.attempt, []).append(node)
    orders: dict[tuple[str, str, str, datetime], list[Attempt]] = {}
    for life in lives:
        orders.setdefault(_order(life), []).append(life)
    # Of a job with an attempt that cannot be read nothing is known that could go on.
    chains = {order: _chain(orders[order], nodes) for order in {_order(a) for a in wanted} if order in orders}
    return {attempt.id: chains[_order(attempt)] for attempt in wanted if _order(attempt) in chains}


def _order(attempt: Attempt) -> tuple[str, str, str, datetime]:
    return attempt.plan, attempt.job, attempt.gang, attempt.start


def _chain(found: Iterable[Attempt], nodes: Mapping[str, Sequence[NodeRecord]]) -> Chain:
    attempts = tuple(sorted(found, key=lambda a: a.number))
    steps, manifests = [], []
    for attempt in attempts:
        its = nodes.get(attempt.id, ())
        steps.append(kept_step(attempt, its) if attempt.kept_step is None else attempt.kept_step)
        manifests.append(manifest_of(attempt, its))
    last = attempts[-1]
    machines = tuple(tuple(nodes.get(attempt.id, ())) for attempt in attempts)
    return Chain(attempts, tuple(steps), tuple(manifests), is_transient(last, machines[-1]), machines)


def waits(store: Store, attempts: Sequence[Attempt], *, crashes: int) -> tuple[Chain, ...]:
    """Of orders whose newest attempt is over (``attempts``), those that are to go on: machines were lost, none could be
    had, or the training crashed in a way that need not happen again, and fewer than ``crashes`` times in vain."""
    chains = chains_of(store, attempts)
    return tuple(chain for one, chain in chains.items() if chain.last.id == one and _goes_on(chain, crashes))


def give_up(store: Store, chain: Chain, reason: str, why: str, at: datetime) -> None:
    """The job of a chain does not go on; a chain that is not all over is left as it is."""

    def left(attempt: Attempt) -> Attempt | None:
        return replace(attempt, reason=reason, message=why) if attempt.phase is Phase.FAILED else None

    store.note(chain.last.id, GAVE_UP, at, why=why)
    store.update(chain.last.id, left)


def _goes_on(chain: Chain, crashes: int) -> bool:
    last = chain.last
    if last.phase is not Phase.FAILED or not all(attempt.phase.is_over for attempt in chain.attempts):
        return False
    # What never came up at all is for whoever applied the plan.
    if all(attempt.met_at is None for attempt in chain.attempts):
        return False
    if last.reason == Reason.FAILED and last.met_at is not None:
        return chain.transient and chain.crashed_in_vain < crashes
    # A gang that failed before it was whole says nothing about the training.
    return last.reason in GOES_ON or last.reason == Reason.FAILED
