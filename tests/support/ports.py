"""Ports of this machine for servers that a test starts later."""

from __future__ import annotations

from router.agent.rendezvous import find_free_port


def free_port() -> int:
    """A TCP port that nobody uses now, and that no outgoing connection is given until its server listens."""
    return find_free_port()
