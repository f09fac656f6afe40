"""The rendezvous of all ranks: each says hello until the coordinator has heard them all and names rank 0's address."""

from __future__ import annotations

import queue
import random
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from router.agent.calls import Backoff, CoordinatorAwayError, CoordinatorClient
from router.agent.config import AgentConfig
from router.agent.protocol import CHOSEN_PORTS, MEASURE, MEASURES
from router.agent.supervise import AgentEvent


class GangIncompleteError(Exception):
    """The other ranks did not come within the time limit."""


class RendezvousStoppedError(Exception):
    """An event came in that ends the waiting; it is in ``event``."""

    def __init__(self, event: AgentEvent) -> None:
        super().__init__(event.kind)
        self.event = event


class RendezvousResult(NamedTuple):
    """The result once all ranks have called.

    ``config`` names rank 0's address and port, and the last checkpoint that is confirmed by now. ``addresses`` are
    those of all ranks in their order; empty where the coordinator does not send them.
    """

    config: AgentConfig
    addresses: tuple[str, ...] = ()


def own_address(config: AgentConfig) -> str:
    """Return the address by which other machines reach this one. Raises ``OSError`` without a route.

    It is the configured one, else that of the route to the coordinator. Nothing is sent.
    """
    if config.address is not None:
        return config.address
    url = urlsplit(config.coordinator)
    port = url.port or (443 if url.scheme == "https" else 80)
    family, kind, _, _, target = socket.getaddrinfo(url.hostname, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])


def find_free_port() -> int:
    """Return a TCP port that is free at this moment, as is the next one."""
    for port in random.SystemRandom().sample(CHOSEN_PORTS, 100):
        with socket.socket() as first, socket.socket() as second:
            try:
                first.bind(("", port))
                second.bind(("", port + 1))
            except OSError:
                continue
            return port
    raise OSError("no two free ports side by side")


def join_gang(
    config: AgentConfig,
    coordinator: CoordinatorClient,
    hello: dict[str, Any],
    events: queue.SimpleQueue[AgentEvent],
    note: Callable[[str], None],
    ask: Callable[[AgentEvent], bool],
    measure: Callable[[RendezvousResult], None] | None = None,
) -> RendezvousResult:
    """Say hello until all ranks have called, and return where rank 0 is.

    ``ask`` takes the events that do not end the waiting. ``measure`` is called once all ranks are there, before they
    are told to go; what it raises ends the waiting. Raises :class:`GangIncompleteError`,
    :class:`RendezvousStoppedError`, and :class:`~router.agent.calls.CoordinatorRefusalError`.
    """
    limit = time.monotonic() + config.gang_seconds
    backoff = Backoff(min(1.0, config.heartbeat_seconds), 15.0, random.Random())
    body = dict(hello)
    if measure is not None:
        body[MEASURES] = True
    if config.rank == 0 and config.master_address is None:
        body["master_port"] = config.master_port or find_free_port()
    while True:
        try:
            body["address"] = own_address(config)
            answer = coordinator.post("hello", body)
            if answer.get("go") is True:
                return _parse_place(config, answer)
            if measure is not None and isinstance(where := answer.get(MEASURE), dict):
                began = time.monotonic()
                measure(_parse_place(config, where))
                measure, body[MEASURES] = None, False
                limit += time.monotonic() - began
                continue
            backoff.reset()
            retry_seconds = answer.get("retry_seconds")
            wait = min(30.0, max(0.01, retry_seconds)) if isinstance(retry_seconds, (int, float)) else 2.0
        except (CoordinatorAwayError, OSError) as away:
            note(f"hello: {away}")
            wait = getattr(away, "wait", None) or backoff.next()
        remaining = limit - time.monotonic()
        if remaining <= 0:
            raise GangIncompleteError(f"the {config.nodes} ranks did not meet within {config.gang_seconds:g} s")
        _pause(events, min(wait, remaining), ask)


def _pause(events: queue.SimpleQueue[AgentEvent], seconds: float, ask: Callable[[AgentEvent], bool]) -> None:
    # A notice does not end the waiting: the coordinator decides what a preempted machine means for its gang.
    limit = time.monotonic() + seconds
    while (remaining := limit - time.monotonic()) > 0:
        try:
            event = events.get(timeout=remaining)
        except queue.Empty:
            return
        if not ask(event):
            raise RendezvousStoppedError(event)


def _parse_place(config: AgentConfig, answer: dict[str, Any]) -> RendezvousResult:
    step, manifest, listed = (answer.get(name) for name in ("resume_step", "resume_manifest", "addresses"))
    if isinstance(step, int) and isinstance(manifest, str) and step >= 0:
        config = replace(config, resume_step=step, resume_manifest=manifest)
    if config.master_address is None:
        address, port = answer.get("master_address"), answer.get("master_port")
        if not isinstance(address, str) or not address or not isinstance(port, int) or not 0 < port < 65536:
            raise CoordinatorAwayError("hello: the answer does not say where rank 0 is")
        config = replace(config, master_address=address, master_port=port)
    if not isinstance(listed, list) or len(listed) != config.nodes or not all(isinstance(a, str) and a for a in listed):
        listed = []
    return RendezvousResult(config, tuple(listed))
