"""Run a coordinator: uvicorn in a thread of this process."""

from __future__ import annotations

import asyncio
import logging
import random
import resource
import socket
import ssl
import threading
from functools import partial
from pathlib import Path
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette

from router.agent.protocol import CHOSEN_PORTS
from router.coordinator.connections import (
    DEFAULT_LIMITS,
    Connection,
    ConnectionLimits,
    ConnectionRegistry,
    gate_handshakes,
)

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())

START_SECONDS = 10.0
# Seconds that answers under way have when serving ends; uvicorn accepts whole seconds only.
GRACE_SECONDS = 1
STOP_SECONDS = 2.0
BACKLOG = 2048
# Connections that the loop accepts at a time: those that are too many are closed afterwards, and need files until then.
ACCEPT_AT_ONCE = 64
_CHOICES = 20
MAX_OPEN_FILES = 65_536


class ListenError(Exception):
    """The coordinator cannot serve here; ``remedy`` says what to do."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy


class CoordinatorServer:
    """Serves ``app`` while the block runs.

    ``port`` 0 takes a free one. ``certificate`` (with its chain) and ``key`` are PEM files; with them it speaks https
    alone, without them http. ``limits``: what clients without a token may use. Entering raises :class:`ListenError`.

    Leaving takes at most two seconds, whatever is connected; answers under way then are finished or cut off.
    """

    def __init__(
        self,
        app: Starlette,
        host: str,
        port: int,
        certificate: Path | None = None,
        key: Path | None = None,
        limits: ConnectionLimits = DEFAULT_LIMITS,
    ) -> None:
        self._app, self._host, self._wanted, self._limits = app, host, port, limits
        self._certificate, self._key = certificate, key
        self._port = 0
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """Return the URL with the host that it was given."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._certificate else 'http'}://{host}:{self._port}"

    def __enter__(self) -> Self:
        self._check_certificate()
        listening = self._listen()
        self._port = listening.getsockname()[1]
        files: dict[str, Any] = {}
        if self._certificate is not None:
            files = {"ssl_certfile": str(self._certificate), "ssl_keyfile": str(self._key or self._certificate)}
        # uvicorn accepts any callable that creates a connection.
        connection: Any = partial(Connection, ConnectionRegistry(self._limits))
        config = uvicorn.Config(
            self._app,
            loop="asyncio",
            http=connection,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level=logging.CRITICAL,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=ACCEPT_AT_ONCE,
            timeout_graceful_shutdown=GRACE_SECONDS,
            headers=[("Connection", "close")],
            **files,
        )
        self._server = uvicorn.Server(config)
        ready = threading.Event()
        self._thread = threading.Thread(
            target=_serve, args=(self._server, listening, ready, self._limits), name="coordinator", daemon=True
        )
        self._thread.start()
        if not ready.wait(START_SECONDS) or not self._server.started:
            self._stop()
            listening.close()
            raise ListenError(f"{self.url}: the server did not start", "see the log of this process")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        assert self._server is not None
        assert self._thread is not None
        # Held requests are answered first, because stopping waits for them.
        close = getattr(self._app.state, "close", None)
        if close is not None:
            close()
        self._server.should_exit = True
        self._thread.join(STOP_SECONDS)

    def _listen(self) -> socket.socket:
        raise_file_limit()
        where = f"{self._host}:{self._wanted}"
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                self._host, self._wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
        except OSError as error:
            raise ListenError(f"{where}: {error.strerror}", "give an address of this machine to listen on") from None
        listening = socket.socket(family, kind, protocol)
        try:
            # The port of a server that was just stopped can be reused; one that is in use cannot.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._wanted or not _bind_below_ephemeral(listening, address):
                listening.bind(address)
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            remedy = "stop what listens there, or choose another address or port; ports below 1024 need privileges"
            raise ListenError(f"cannot listen on {where}: {error.strerror}", remedy) from None
        return listening

    def _check_certificate(self) -> None:
        if self._certificate is None:
            if self._key is not None:
                raise ListenError(
                    f"{self._key}: a key without a certificate", "give the certificate that belongs to it"
                )
            return
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            # Without this, a key with a passphrase would ask for it on the terminal.
            context.load_cert_chain(self._certificate, self._key, password=lambda: "")
        except (OSError, ValueError) as error:
            files = f"{self._certificate}, {self._key}" if self._key else str(self._certificate)
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
            remedy = (
                "give PEM files that this user can read: the certificate with its chain, and its key without passphrase"
            )
            raise ListenError(f"{files}: {reason or type(error).__name__}", remedy) from None


def raise_file_limit() -> None:
    """Raise the limit of open files, because each agent holds a connection open.

    Many systems let a process open 1,024 files until it asks for more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _bind_below_ephemeral(listening: socket.socket, address: tuple[Any, ...]) -> bool:
    """Bind to a free port below those that systems give to outgoing connections, and return whether one was free.

    Machines call this port for as long as they live: while their coordinator is down, a connection or another server
    must not be given it.
    """
    for port in random.SystemRandom().sample(CHOSEN_PORTS, _CHOICES):
        try:
            listening.bind((address[0], port, *address[2:]))
        except OSError:
            continue
        return True
    return False


def _serve(server: uvicorn.Server, listening: socket.socket, ready: threading.Event, limits: ConnectionLimits) -> None:
    async def run() -> None:
        gate_handshakes(limits)
        serving = asyncio.ensure_future(server.serve([listening]))
        while not (server.started or serving.done()):
            await asyncio.sleep(0.005)
        listening.listen(BACKLOG)
        ready.set()
        await serving
        for connection in list(server.server_state.connections):
            connection.transport.abort()
        # One pass of the loop closes them.
        await asyncio.sleep(0)

    try:
        asyncio.run(run())
    except Exception as error:
        _log.error("coordinator: %s", type(error).__name__)
    finally:
        ready.set()
