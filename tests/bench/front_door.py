"""Measure a crowd at the door of the two servers: memory, and how long `/health` takes meanwhile, over real sockets.

    python -m tests.bench.front_door [--connections 4000] [--seconds 10] [--files N] [--tls] [--crowds WORD ...]

Each row is a server of its own. Connections that the server closes are opened again, as long as the row lasts. The
clients are on the same machine, and on its processors. `--tls`: both servers speak https with their
own certificate.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import re
import resource
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

from tests.support.certificates import write_certificate
from tests.support.coordinations import ATTEMPT, TOKEN, scene
from tests.support.listening import listening_port

CONNECTIONS, SECONDS = 4000, 10.0
# What the project asks for (issue 32).
MOST_MIB = 300
_COMMAND = str(Path(sys.executable).with_name("stepfare"))
_PIECE = b"x" * 32_768
_BODY = 500_000


@dataclass(frozen=True, slots=True)
class Server:
    """A server in a process of its own; ``path`` takes bodies, ``token`` is one that it knows."""

    name: str
    pid: int
    port: int
    health: str
    path: str
    token: str
    authority: Path | None = None

    @property
    def context(self) -> ssl.SSLContext | None:
        """Return a context that trusts its certificate; None over plain http."""
        return None if self.authority is None else ssl.create_default_context(cafile=self.authority)

    def memory_mib(self, what: str = "VmHWM") -> float:
        """Return the most resident memory that it has had so far."""
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        found = re.search(rf"^{what}:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1024


@dataclass(frozen=True, slots=True)
class Crowd:
    """A kind of client: the head it sends, and how many pieces of body, or of an endless header, after that."""

    name: str
    head: str
    pieces: int
    shows_token: bool = False

    def first(self, server: Server) -> bytes:
        """Return what is sent first."""
        token = f"Authorization: Bearer {server.token}\r\n" if self.shows_token else ""
        return self.head.format(path=server.path, token=token, length=_BODY).encode()


_HEAD = "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{token}"
_WHOLE = _HEAD + "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
CROWDS = (
    Crowd("half heads", _HEAD + "X-Half: " + "x" * 30_000, 0),
    Crowd("half heads, token", _HEAD + "X-Half: " + "x" * 30_000, 0, shows_token=True),
    Crowd("endless heads", _HEAD + "X-Endless: ", 4),
    Crowd("half bodies", _WHOLE, 8),
    Crowd("half bodies, token", _WHOLE, 8, shows_token=True),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a crowd: memory at rest and at most; requests for health: how many, how many failed, the slowest."""

    rest_mib: float
    most_mib: float
    asked: int
    failed: int
    slowest: float


@contextmanager
def console(folder: Path, files: int | None = None, *, tls: bool = False) -> Iterator[Server]:
    certificate = None
    if tls:
        certificate, key = write_certificate(folder)
        text = f"console: {{certificate: {certificate}, key: {key}}}\n"
        (folder / "deploy.yaml").write_text(text, encoding="utf-8")
    environment = {**os.environ, "STEPFARE_HOME": str(folder)}
    words = [_COMMAND, "token", "make", "crowd", "--grant", "planner", "-o", "json"]
    said = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
    found = re.search(r'"secret": "([^"]+)"', said)
    assert found is not None, said
    words = [_COMMAND, "serve", "--port", "0"]
    with _running(words, environment, files) as (process, port):
        yield Server("console", process.pid, port, "/health", "/api/v1/plans", found[1], certificate)


@contextmanager
def coordinator(folder: Path, files: int | None = None, *, tls: bool = False) -> Iterator[Server]:
    files_of_tls = write_certificate(folder) if tls else ()
    certificate = files_of_tls[0] if files_of_tls else None
    words = [sys.executable, "-m", "tests.bench.front_door", "--coordinator", str(folder), *map(str, files_of_tls)]
    with _running(words, dict(os.environ), files) as (process, port):
        path = f"/v1/attempts/{ATTEMPT}/ranks/0/logs"
        yield Server("coordinator", process.pid, port, "/v1/health", path, TOKEN, certificate)


@contextmanager
def _running(
    words: list[str], environment: dict[str, str], files: int | None
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    if files is not None:
        words = ["prlimit", f"--nofile={files}:{files}", *words]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            port = listening_port(process)
            assert process.stderr is not None
            # Nobody must wait for a pipe that is full.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield process, port
        finally:
            process.kill()


def measure(server: Server, crowd: Crowd, connections: int, seconds: float) -> Cost:
    """Return what the crowd cost the server within that time."""
    # The crowd is another process: who asks for health would wait for thousands of clients in its own.
    spawn = multiprocessing.get_context("spawn")
    come = spawn.Process(target=_send_crowd, args=(server, crowd, connections, seconds))
    rest = server.memory_mib("VmRSS")
    come.start()
    times = list(_ask_health(server, come))
    come.join()
    answered = [each for each in times if each is not None]
    return Cost(rest, server.memory_mib(), len(times), len(times) - len(answered), max(answered, default=0.0))


def _ask_health(server: Server, meanwhile: BaseProcess) -> Iterator[float | None]:
    """Ask for health ten times a second at most; yield the seconds of each answer, None for one that did not come."""
    https = urllib.request.HTTPSHandler(context=server.context)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
    url = f"http{'s' if server.authority else ''}://127.0.0.1:{server.port}{server.health}"
    while meanwhile.is_alive():
        began = time.monotonic()
        try:
            with opener.open(url, timeout=30) as answer:
                answer.read()
            yield time.monotonic() - began
        except OSError:
            yield None
        meanwhile.join(0.1)


def _send_crowd(server: Server, crowd: Crowd, connections: int, seconds: float) -> None:
    asyncio.run(_come(server, crowd, connections, seconds))


async def _come(server: Server, crowd: Crowd, connections: int, seconds: float) -> None:
    ends = asyncio.get_running_loop().time() + seconds
    first, context = crowd.first(server), server.context

    async def one() -> None:
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=4096, ssl=context)
                try:
                    writer.write(first)
                    for _ in range(crowd.pieces):
                        writer.write(_PIECE)
                        await writer.drain()
                    while await reader.read(4096):
                        pass
                finally:
                    writer.transport.abort()
            await asyncio.sleep(0.5)

    clients = [asyncio.create_task(one()) for _ in range(connections)]
    await asyncio.sleep(ends - asyncio.get_running_loop().time())
    for client in clients:
        client.cancel()
    await asyncio.gather(*clients, return_exceptions=True)


def _serve_coordinator(folder: Path, certificate: tuple[Path, Path] | None) -> None:
    with scene(folder, 1) as made, made.serving(certificate=certificate) as server:
        print(f"listening on {server.url}", file=sys.stderr, flush=True)
        threading.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--files", type=int, help="files that each server may open; default: as this process may")
    parser.add_argument("--tls", action="store_true", help="https with a certificate of the servers' own")
    parser.add_argument(
        "--crowds", nargs="+", default=[""], metavar="WORD", help="only those whose name has one of these"
    )
    parser.add_argument("--coordinator", type=Path, nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.coordinator is not None:
        folder, *files = given.coordinator
        _serve_coordinator(folder, (files[0], files[1]) if files else None)
        return
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"{'server':<12}{'crowd':<20}{'rest MiB':>9}{'most MiB':>9}{'health':>7}{'failed':>7}{'slowest s':>10}")
    for run in (console, coordinator):
        for crowd in (each for each in CROWDS if any(word in each.name for word in given.crowds)):
            with tempfile.TemporaryDirectory() as folder, run(Path(folder), given.files, tls=given.tls) as server:
                cost = measure(server, crowd, given.connections, given.seconds)
            figures = f"{cost.rest_mib:>9.0f}{cost.most_mib:>9.0f}{cost.asked:>7}{cost.failed:>7}{cost.slowest:>10.2f}"
            print(f"{server.name:<12}{crowd.name:<20}{figures}", flush=True)


if __name__ == "__main__":
    main()
