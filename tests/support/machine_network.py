"""A network namespace of a test's machines, and the servers that this process runs in it under the names of others."""

from __future__ import annotations

import ctypes
import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

from tests.support.debian_root import DebianRoot

_CLONE_NEWNET = 0x40000000
LINK_LOCAL = "169.254.169.254"
Result = TypeVar("Result")


class MachineNetwork:
    """A network of its own with loopback and the address of metadata services; nothing leads out of it."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = _run_in_thread(self._make)

    def _make(self) -> int:
        self._check(self._libc.unshare(_CLONE_NEWNET))
        for line in ("link set lo up", f"address add {LINK_LOCAL}/32 dev lo"):
            subprocess.run(["ip", *line.split()], check=True, capture_output=True)
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    def run(self, action: Callable[[], Result]) -> Result:
        """Run the action in this network: sockets that it makes belong to it for ever."""

        def inside() -> Result:
            self._check(self._libc.setns(self.descriptor, _CLONE_NEWNET))
            return action()

        return _run_in_thread(inside)

    def close(self) -> None:
        os.close(self.descriptor)

    def _check(self, code: int) -> None:
        if code:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _run_in_thread(action: Callable[[], Result]) -> Result:
    """Run the action in a thread, since namespaces are a thread's: this one stays where it is."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.extend([action(), None])
        except BaseException as error:
            results.extend([None, error])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if results[1] is not None:
        raise results[1]
    found: Result = results[0]
    return found


@dataclass
class VendorServers:
    """The archives of Docker and NVIDIA, and the registry of the job's image, over https under their own names.

    ``refused``: the status that a host answers with instead, by host. ``asked``: what was asked for.
    """

    root: DebianRoot
    refused: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @contextmanager
    def serving(self, network: MachineNetwork) -> Iterator[VendorServers]:
        """Serve in the network while the block runs."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host = self.headers.get("Host", "")
                outer.asked.append(f"{host}{self.path}")
                status, data = outer.answer(host, self.path)
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """A client that left."""

        server = network.run(lambda: Server(("127.0.0.1", 443), Handler))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.root.certificate, self.root.key)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    def answer(self, host: str, path: str) -> tuple[int, bytes]:
        """(status, body)."""
        if host in self.refused:
            return self.refused[host], b"{}"
        if path.startswith("/v2/"):
            return 200, b"{}"
        file = self.root.archive / host / unquote(path).lstrip("/")
        known = file.resolve().is_relative_to(self.root.archive) and file.is_file()
        return (200, Path(file).read_bytes()) if known else (404, b"")
