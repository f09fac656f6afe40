"""Keep two gangs of one job from training at once: a successor waits for the end of its predecessor.

It then resumes from all that the predecessor saved.
"""

from __future__ import annotations

from router.state.records import Attempt
from router.state.store import StateStore


def blocking_attempt(store: StateStore, attempt: Attempt) -> str:
    """Return the id of an earlier attempt that blocks this one, "" where none does; then none ever will.

    The attempt resumes from the blocking one, directly or by way of others. An earlier attempt blocks while it may
    still train: it is not over, and not every rank of it reported its end. It also blocks if it saved more than this
    attempt was told to resume from, because whoever hands over is about to say so.
    """
    visited = {attempt.id}
    name = attempt.resumes
    while name and name not in visited:
        visited.add(name)
        earlier = store.attempts.get(name)
        if earlier is None:
            return ""
        saved_step = earlier.kept_step
        if not earlier.phase.is_over:
            nodes = store.attempts.nodes(name)
            if not all(node.ended_reason for node in nodes):
                return name
            saved_step = max((node.saved_step for node in nodes if node.saved_step is not None), default=None)
        if saved_step is not None and saved_step > attempt.first_step:
            return name
        name = earlier.resumes
    return ""
