"""How a gang went, from how its ranks went."""

from __future__ import annotations

from collections.abc import Sequence

from router.agent import states
from router.state.records import NodeRecord

# Here the job's command runs once, on rank 0, and the other ranks only serve it.
LEADER_ENGINES = ("ray", "slurm")


def verdict(engine: str, nodes: Sequence[NodeRecord], *, ordered: bool) -> str:
    """``finished``, a reason of :mod:`router.agent.states`, or "" while it is open. ``nodes``: the whole gang by rank.

    ``ordered``: everybody was told to stop; ranks that stopped then did as they were told, and the gang is ``stopped``
    once all ended. Without an order a rank that stopped, or failed, decides for all. With an engine that has a leader,
    the leader's end is the gang's, and others only count if they fail before it.
    """
    led = engine in LEADER_ENGINES
    if led and nodes[0].ended_reason:
        return nodes[0].ended_reason
    reasons = [node.ended_reason for node in nodes]
    accepted = {"", states.FINISHED, *([states.STOPPED] if ordered else [])}
    # One that was stopped is more likely to have followed from the other failure than the other way round.
    failures = sorted((reason for reason in reasons if reason not in accepted), key=lambda r: r == states.STOPPED)
    if failures:
        return failures[0]
    if led or not all(reasons):
        return ""
    return states.STOPPED if states.STOPPED in reasons else states.FINISHED
