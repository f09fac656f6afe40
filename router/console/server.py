"""Serve an application with uvicorn until the process is told to stop; answers under way are finished."""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from router.console.readiness import Readiness
from router.coordinator.server import ListenError

GRACE_SECONDS = 10
BACKLOG = 512
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


def run_server(
    app: FastAPI,
    opened: socket.socket,
    announce: Callable[[str], None],
    readiness: Readiness,
    *,
    tls: tuple[str, str] | None = None,
    proxies: Sequence[str] = (),
) -> None:
    """Serve until SIGINT or SIGTERM, then finish the answers under way; a second signal ends the process at once.

    ``tls``: files of the certificate and its key. ``proxies``: addresses whose X-Forwarded-For is believed.
    """
    host, port = opened.getsockname()[:2]
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    announce(f"{'https' if tls else 'http'}://{_shown(host)}:{port}/")
    # What was imported and made until here stays; the collector need not look at it again.
    gc.collect()
    gc.freeze()
    # The loop waits at most so long for a thread that computes, each time that it has let go of the interpreter.
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        _Server(config, readiness).run(sockets=[opened])
    finally:
        gc.unfreeze()


class _Server(uvicorn.Server):
    """Ends by a signal with the caller going on, where uvicorn's own raises the signal once more."""

    def __init__(self, config: uvicorn.Config, readiness: Readiness) -> None:
        super().__init__(config)
        self._readiness = readiness

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
        self._readiness.drain()
        self.should_exit = True


def _leave(_sig: int, _frame: FrameType | None) -> None:
    # Nothing is lost: what is not committed was not acknowledged, and a task goes back to the queue after a while.
    os._exit(INTERRUPTED)


def _shown(host: str) -> str:
    return f"[{host.strip('[]')}]" if ":" in host else host
