"""Serve an application with uvicorn until the process is told to stop; answers under way are finished."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from router.console.site import Readiness
from router.coordinator.connections import (
    DEFAULT_LIMITS,
    Connection,
    ConnectionLimits,
    ConnectionRegistry,
    gate_handshakes,
)
from router.coordinator.server import ACCEPT_AT_ONCE, BACKLOG, ListenError, raise_file_limit

GRACE_SECONDS = 10
# After SIGTERM connections are accepted for so long of the grace, so that a proxy that asks for /ready every 2 s hears
# that the server stops before a connection is refused. Nobody waits for that after Ctrl-C.
DRAIN_SECONDS = 3
# Browsers come a few at a time; thousands of agents never call here.
LIMITS = replace(DEFAULT_LIMITS, per_address=512, strangers=1024, sending=512, storm_seconds=0.0, token_path=b"/")
# Each takes some 70 KiB while it sends a body, token or not.
ENCRYPTED_CONNECTIONS = 1024
SWITCH_SECONDS = 0.001
# The exit code of a process that was told to stop twice, and left its answers unfinished.
INTERRUPTED = 130
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_REASONS = {
    errno.EADDRINUSE: ("another program listens there", "end it, or give another --port; --port 0 takes a free one"),
    errno.EADDRNOTAVAIL: ("this machine has no such address", "give --host an address of this machine"),
    errno.EACCES: ("this user may not listen there", "give a --port above 1023"),
}


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Listen on an address while the block runs. ListenError where it cannot be had."""
    raise_file_limit()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as opened:
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind((host.strip("[]"), port))
            opened.listen(BACKLOG)
        except (OSError, UnicodeError) as error:
            number = error.errno if isinstance(error, OSError) else None
            what, remedy = _REASONS.get(number or 0, ("is no address of this machine", "give --host an IP address"))
            raise ListenError(f"{_shown(host)}:{port}: {what}", remedy) from None
        yield opened


def server_config(
    app: FastAPI, tls: tuple[str, str] | None = None, proxies: Sequence[str] = (), limits: ConnectionLimits = LIMITS
) -> uvicorn.Config:
    """Return how uvicorn serves a console: behind the limits that the coordinator has too.

    ``tls``, ``proxies``: see :func:`run_server`.
    """
    if tls:
        limits = replace(limits, connections=limits.connections or ENCRYPTED_CONNECTIONS)
    # All clients of a proxy have its address.
    limits = replace(limits, per_address=limits.strangers) if proxies else limits
    # uvicorn accepts any callable that creates a connection.
    connection: Any = partial(Connection, ConnectionRegistry(limits))
    return uvicorn.Config(
        app,
        loop="asyncio",
        http=connection,
        ws="none",
        backlog=ACCEPT_AT_ONCE,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )


def run_server(
    app: FastAPI,
    opened: socket.socket,
    announce: Callable[[str], None],
    readiness: Readiness,
    *,
    on_drain: Callable[[], None] = lambda: None,
    tls: tuple[str, str] | None = None,
    proxies: Sequence[str] = (),
) -> None:
    """Serve until SIGINT or SIGTERM, then finish the answers under way; a second signal ends the process at once.

    ``on_drain`` is called when the first signal came, while answers go on; it must not wait.
    ``tls``: files of the certificate and its key. ``proxies``: addresses whose X-Forwarded-For is believed.
    """
    host, port = opened.getsockname()[:2]
    config = server_config(app, tls, proxies)
    announce(f"{'https' if tls else 'http'}://{_shown(host)}:{port}/")
    # What was imported and made until here stays; the collector need not look at it again.
    gc.collect()
    gc.freeze()
    # The loop waits at most so long for a thread that computes, each time that it has let go of the interpreter.
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        _Server(config, readiness, on_drain).run(sockets=[opened])
    finally:
        gc.unfreeze()


class _Server(uvicorn.Server):
    """Ends by a signal with the caller going on, where uvicorn's own raises the signal once more."""

    def __init__(self, config: uvicorn.Config, readiness: Readiness, on_drain: Callable[[], None]) -> None:
        super().__init__(config)
        connection: Any = config.http
        self._limits: ConnectionLimits = connection.args[0].limits
        self._readiness = readiness
        self._on_drain = on_drain
        self._is_told = False
        self._accepts_until = float("-inf")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        gate_handshakes(self._limits)
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)

    async def on_tick(self, counter: int) -> bool:
        """Return whether to accept no more connections; uvicorn asks ten times a second."""
        ends = await super().on_tick(counter)
        if not self._readiness.is_draining:
            return ends
        if not self._is_told:
            # Not in the handler of the signal: it may interrupt whoever has a lock that this needs.
            self._is_told = True
            self._on_drain()
        return time.monotonic() >= self._accepts_until

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Answer signals while the block runs."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in _SIGNALS}
        try:
            yield
        finally:
            # Until the process has ended a second signal still ends it at once.
            for each, handler in before.items():
                signal.signal(each, _leave if self.should_exit else handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop; leave at once where that has begun before."""
        if self.should_exit:
            _leave(sig, frame)
        if sig == signal.SIGTERM:
            self._accepts_until = time.monotonic() + DRAIN_SECONDS
            self.config.timeout_graceful_shutdown = GRACE_SECONDS - DRAIN_SECONDS
        self._readiness.drain()
        self.should_exit = True


def _leave(_sig: int, _frame: FrameType | None) -> None:
    # Nothing is lost: what is not committed was not acknowledged, and a task goes back to the queue after a while.
    os._exit(INTERRUPTED)


def _shown(host: str) -> str:
    return f"[{host.strip('[]')}]" if ":" in host else host
