"""Decide how a gang ended from how its ranks ended."""

from __future__ import annotations

from collections.abc import Sequence

from router.agent import protocol
from router.state.records import NodeRecord

# With these engines the job's command runs once, on rank 0, and the other ranks only serve it.
LEADER_ENGINES = ("ray", "slurm")


def gang_result(engine: str, nodes: Sequence[NodeRecord], *, ordered: bool) -> str:
    """Return ``finished``, a reason of :mod:`router.agent.protocol`, or "" while the result is open.

    ``nodes``: the whole gang by rank. ``ordered``: all ranks were told to stop; ranks that stopped then did as they
    were told, and the gang is ``stopped`` once all ended. Without an order a rank that stopped, or failed, decides for
    all. With an engine that has a leader, the leader's end is the gang's, and others only count if they fail before it.
    """
    has_leader = engine in LEADER_ENGINES
    if has_leader and nodes[0].ended_reason:
        return nodes[0].ended_reason
    reasons = [node.ended_reason for node in nodes]
    expected_reasons = {"", protocol.FINISHED, *([protocol.STOPPED] if ordered else [])}
    # A stop is more likely a consequence of another failure than its cause.
    failures = sorted(
        (reason for reason in reasons if reason not in expected_reasons), key=lambda r: r == protocol.STOPPED
    )
    if failures:
        return failures[0]
    if has_leader or not all(reasons):
        return ""
    return protocol.STOPPED if protocol.STOPPED in reasons else protocol.FINISHED
