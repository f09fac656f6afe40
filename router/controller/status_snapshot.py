"""All that a pass over gangs looks at, read in a handful of queries however many gangs there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from router.coordinator.saves import Answers, saved_for_all
from router.state.records import Attempt, NodeRecord, NoticeRecord, Phase
from router.state.store import Store


@dataclass(frozen=True, slots=True)
class Picture:
    """``alive``: attempts that are not over, by the time they were made and id. By attempt: the machines, by rank; what
    was announced to them; for those in CHECKPOINTING, what they answered to the order to save."""

    alive: tuple[Attempt, ...]
    nodes: Mapping[str, Sequence[NodeRecord]]
    notices: Mapping[str, Sequence[NoticeRecord]]
    answers: Mapping[str, Answers]


def picture(store: Store, plan: str | None = None) -> Picture:
    """Of the attempts of a plan (None: of all) as they are now. StateError."""
    # Before the attempts, so that what a notice changed of its attempt is seen with it.
    notices = store.overview.notices()
    attempts, nodes = store.overview.alive()
    alive = tuple(attempt for attempt in attempts if plan in (None, attempt.plan))
    orders = {a.id: a.order_id for a in alive if a.phase is Phase.CHECKPOINTING and a.order_id}
    return Picture(alive, _grouped(nodes), _grouped(notices), saved_for_all(store, orders))


class _OfAttempt(Protocol):
    @property
    def attempt(self) -> str: ...


_T = TypeVar("_T", bound=_OfAttempt)


def _grouped(records: Iterable[_T]) -> dict[str, list[_T]]:
    found: dict[str, list[_T]] = {}
    for record in records:
        found.setdefault(record.attempt, []).append(record)
    return found
