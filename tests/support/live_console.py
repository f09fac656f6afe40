"""A console that a real server in this process serves on loopback, for clients that use the network."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from router.app.queries.context import QueryContext
from router.console.answers import AnswerCache
from router.console.app import make_console
from router.console.site import ConsoleSite


@contextmanager
def live_console(context: QueryContext) -> Iterator[str]:
    """Serve while the block runs, to whoever the context is of, and return the URL."""
    app = make_console(ConsoleSite(context, lambda _: context.identity, AnswerCache()))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(5)
