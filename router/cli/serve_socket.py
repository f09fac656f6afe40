"""Open the socket of `stepfare serve`, and say what to do where it cannot be had."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from router.cli.console import CommandError


@contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """Listen on an address while the block runs. CommandError where it cannot be had."""
    from router.console.server import listening
    from router.coordinator.server import ListenError

    with ExitStack() as stack:
        try:
            opened = stack.enter_context(listening(host, port))
        except ListenError as error:
            raise CommandError(error.what, remedy=error.remedy) from None
        yield opened
