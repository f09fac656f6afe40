"""Two gangs of one job never train at once: one that goes on from another waits for its end, and goes on from all that
it saved."""

from __future__ import annotations

from router.state.records import Attempt
from router.state.store import Store


def in_the_way(store: Store, attempt: Attempt) -> str:
    """The id of an attempt that this one goes on from, itself or by way of others, and that may still train: it is not
    over, and not every rank of it said that it ended; or that saved more than this one was told to go on from: whoever
    hands over is about to say so. "" where there is none, and then there never will be one."""
    known = {attempt.id}
    name = attempt.resumes
    while name and name not in known:
        known.add(name)
        before = store.attempt(name)
        if before is None:
            return ""
        saved = before.kept_step
        if not before.phase.is_over:
            nodes = store.nodes(name)
            if not all(node.ended_reason for node in nodes):
                return name
            saved = max((node.saved_step for node in nodes if node.saved_step is not None), default=None)
        if saved is not None and saved > attempt.first_step:
            return name
        name = before.resumes
    return ""
