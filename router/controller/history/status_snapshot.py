"""Read all that a pass over gangs needs, in a few queries however many gangs there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from router.coordinator.saves import SaveAnswers, save_answers_by_attempt
from router.state.records import Attempt, NodeRecord, NoticeRecord, Phase
from router.state.store import StateStore


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """The state of living attempts at one moment.

    ``alive``: attempts that are not over, by creation time and id. By attempt: ``nodes``, the machines by rank;
    ``notices`` to them; ``answers`` to the order to save, for those in CHECKPOINTING.
    """

    alive: tuple[Attempt, ...]
    nodes: Mapping[str, Sequence[NodeRecord]]
    notices: Mapping[str, Sequence[NoticeRecord]]
    answers: Mapping[str, SaveAnswers]


def take_snapshot(store: StateStore, plan: str | None = None) -> StatusSnapshot:
    """Return the snapshot of a plan's attempts (None: of all). StateError."""
    # Notices are read before the attempts, so that what a notice changed of its attempt is seen with it.
    notices = store.overview.notices()
    attempts, nodes = store.overview.alive()
    alive = tuple(attempt for attempt in attempts if plan in (None, attempt.plan))
    orders = {a.id: a.order_id for a in alive if a.phase is Phase.CHECKPOINTING and a.order_id}
    return StatusSnapshot(
        alive, _group_by_attempt(nodes), _group_by_attempt(notices), save_answers_by_attempt(store, orders)
    )


class _OfAttempt(Protocol):
    @property
    def attempt(self) -> str: ...


_T = TypeVar("_T", bound=_OfAttempt)


def _group_by_attempt(records: Iterable[_T]) -> dict[str, list[_T]]:
    groups: dict[str, list[_T]] = {}
    for record in records:
        groups.setdefault(record.attempt, []).append(record)
    return groups
