"""Serve an application with uvicorn until the process is told to stop; answers under way are finished."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

import uvicorn
from fastapi import FastAPI

GRACE_SECONDS = 10
BACKLOG = 512


def run_server(
    app: FastAPI,
    host: str,
    port: int,
    announce: Callable[[str], None],
    *,
    tls: tuple[str, str] | None = None,
    proxies: Sequence[str] = (),
) -> None:
    """Serve until SIGINT or SIGTERM. OSError where the address cannot be had.

    ``tls``: files of the certificate and its key. ``proxies``: addresses whose X-Forwarded-For is believed.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
        shown = f"[{host}]" if ":" in host else host
        announce(f"{'https' if tls else 'http'}://{shown}:{listening.getsockname()[1]}/")
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
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        listening.close()
