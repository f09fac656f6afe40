"""Staying with gangs until they are over: their phase as the ranks tell it, and their release when the training
ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime

from router.agent import states
from router.running.release import NotReleasedError, release
from router.running.site import Site
from router.state.records import Attempt, NodeRecord, Phase

Locked = Callable[[], AbstractContextManager[object]]


@dataclass(slots=True)
class Silence:
    """How long each rank has not called, by this process's own clock: theirs are not to be trusted, and a cloud's may
    be sped up."""

    limit_s: float
    _heard: dict[tuple[str, int], tuple[datetime | None, float]] = field(default_factory=dict)

    def lost(self, attempt: Attempt, nodes: Sequence[NodeRecord]) -> list[int]:
        """The ranks that have been silent for too long and have not ended."""
        now = time.monotonic()
        lost = []
        for node in nodes:
            known, since = self._heard.get((attempt.id, node.rank), (None, now))
            if (attempt.id, node.rank) not in self._heard or known != node.heard_at:
                self._heard[attempt.id, node.rank] = (node.heard_at, now)
                continue
            if node.agent not in (states.ENDED, states.FAILED) and now - since > self.limit_s:
                lost.append(node.rank)
        return lost


def settle(site: Site, attempt: Attempt, silence: Silence) -> Attempt:
    """One look at an attempt: what its ranks said becomes its phase, and one that ended is released.
    NotReleasedError."""
    nodes = site.store.nodes(attempt.id)
    if attempt.result:
        fine = attempt.result == states.FINISHED
        site.tell(attempt.job, f"{attempt.id} {'finished' if fine else attempt.result}, releasing its machines")
        return release(site, attempt, "finished" if fine else "failed", how_it_ended(nodes, attempt.result))
    if attempt.phase is Phase.READY and _all_began(nodes):
        site.tell(attempt.job, f"{attempt.id} runs on {attempt.machines} machines")
        return site.store.update(
            attempt.id, lambda a: replace(a, phase=Phase.RUNNING) if a.phase is Phase.READY else None
        )
    if attempt.phase in (Phase.READY, Phase.RUNNING) and (lost := silence.lost(attempt, nodes)):
        ranks = ", ".join(map(str, lost))
        site.tell(attempt.job, f"{attempt.id}: rank {ranks} has not called for {silence.limit_s:g} s, releasing")
        return release(site, attempt, "unhealthy", f"rank {ranks} was lost")
    return attempt


def _all_began(nodes: Sequence[NodeRecord]) -> bool:
    """A rank may be done before the last one begins."""
    return all(node.agent in (states.RUNNING, states.ENDED) for node in nodes)


def how_it_ended(nodes: Sequence[NodeRecord], result: str) -> str:
    """The training's end in words: the first rank that failed says why."""
    for node in nodes:
        if node.ended_reason not in ("", states.FINISHED, states.STOPPED):
            code = "" if node.exit_code is None else f" with exit code {node.exit_code}"
            return f"rank {node.rank} {node.ended_reason}{code} {node.ended_message}".rstrip()
    return result


def pass_over(site: Site, attempts: Sequence[Attempt], silence: Silence, locked: Locked) -> None:
    """Settles each of these attempts that has to be; ``locked`` is entered before anything is changed."""
    for attempt in attempts:
        if not attempt.phase.is_over and _needs_a_look(site, attempt, silence):
            with locked():
                _settled(site, attempt, silence)


def _needs_a_look(site: Site, attempt: Attempt, silence: Silence) -> bool:
    if attempt.phase in (Phase.PLANNED, Phase.PROVISIONING, Phase.RELEASING):
        return False
    nodes = site.store.nodes(attempt.id)
    if attempt.result or bool(silence.lost(attempt, nodes)):
        return True
    return attempt.phase is Phase.READY and _all_began(nodes)


def _settled(site: Site, attempt: Attempt, silence: Silence) -> None:
    current = site.store.attempt(attempt.id)
    if current is None or current.phase not in (Phase.READY, Phase.RUNNING):
        return
    try:
        settle(site, current, silence)
    except NotReleasedError as error:
        site.tell(attempt.job, f"not released: {error}")
