"""How fast `stepfare serve` answers many readers over a large state while it changes.

    python -m tests.bench.console_load [--readers 50] [--seconds 60] [--pause 5] [--rows 1000000] [--gangs 1000]
        [--examples 24] [--copies 44]

Readers ask one thing after the other and look at each answer for five seconds, each with its own token over its own
connection; one in five sees one team alone. `--pause 0` asks without thinking, for which there is no bar. Beside them
the ledger and the audit log grow once a second.
Every page was asked for once before by each kind of reader: that time is printed, and not counted. The client is one
cheap process on the same machine. The state is made once (some minutes) and kept; see tests/bench/console_state.py.
The exit code is 1 where an answer was not as it should be.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pricing.money import ZERO
from router.state.access_tokens import NewToken, TokenKind
from router.state.store import StateStore
from tests.bench.console_state import GANGS, ROWS, StateSize, large_home, ledger_entry, opened
from tests.bench.plan_page import COPIES, EXAMPLES
from tests.support.listening import listening_port

READERS, SECONDS, PAUSE = 50, 60.0, 5.0
# What the project asks for, with that pause.
P99_MS = 250
_COMMAND = str(Path(sys.executable).with_name("stepfare"))
AUDIT = "/audit"
# Paths, and how often each is asked for.
_MIX: tuple[tuple[str, int], ...] = (
    ("/tonight", 6),
    ("/plans/{plan}", 3),
    ("/plans/{plan}/diff", 1),
    ("/plans", 2),
    ("/jobs", 4),
    ("/jobs/job-1", 1),
    ("/jobs/{over}", 1),
    ("/attempts/a1", 1),
    (AUDIT, 1),
    ("/prices", 3),
    ("/quotes", 1),
    ("/spend/2026-11", 4),
    ("/spend/2026-11/team/speech", 2),
    ("/budgets?month=2026-11", 2),
    ("/waste?month=2026-11", 1),
    ("/api/v1/jobs", 2),
    ("/api/v1/plans", 2),
    ("/api/v1/plans/{plan}", 1),
    ("/api/v1/prices/latest?accelerator=H100", 2),
    ("/api/v1/showback?month=2026-11", 1),
    ("/static/pages.css?v", 1),
)
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_GRANTS = (("admin",), ("viewer",), ("viewer", "finance"), ("planner",), ("viewer:speech",))
_AUDITORS = (("admin",), ("viewer", "finance"))


class BadAnswerError(Exception):
    """An answer is not of status 200; the message names it."""


@dataclass
class Connection(asyncio.Protocol):
    """A connection that stays open until the server closes it, which it does after a while; one question at a time."""

    done: asyncio.Future[bytes] | None = None
    transport: asyncio.Transport | None = None
    _got: bytearray = field(default_factory=bytearray)
    _needed: int = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._got += data
        if self._needed < 0 and (end := self._got.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._got, 0, end)
            assert length is not None, bytes(self._got[:end])
            self._needed = end + 4 + int(length[1])
        if 0 <= self._needed <= len(self._got):
            head, self._got, self._needed = bytes(self._got[:15]), bytearray(), -1
            if self.done is not None and not self.done.done():
                self.done.set_result(head)

    def connection_lost(self, error: Exception | None) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_exception(error or ConnectionError("closed"))

    @property
    def is_closed(self) -> bool:
        """Return whether the server has closed it."""
        return self.transport is None or self.transport.is_closing()

    async def ask(self, path: str, token: str) -> None:
        """Ask and read the whole answer. BadAnswerError for anything but 200."""
        assert self.transport is not None
        self.done = asyncio.get_running_loop().create_future()
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/html\r\nAccept-Encoding: gzip\r\n"
        self.transport.write(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
        answer = await self.done
        if not answer.startswith(b"HTTP/1.1 200"):
            raise BadAnswerError(f"{path}: {answer.decode('latin-1')}")


async def _connect(host: str, port: int) -> Connection:
    return (await asyncio.get_running_loop().create_connection(Connection, host, port))[1]


@dataclass
class Counts:
    """Milliseconds of each answer by path, and what went wrong."""

    took: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    errors: list[str] = field(default_factory=list)


async def read(
    host: str, port: int, tokens: Sequence[str], paths: Sequence[str], seconds: float, pause: float
) -> Counts:
    """Let one reader a token ask until the time is over."""
    counts = Counts()
    until = time.perf_counter() + seconds

    async def one(number: int, token: str) -> None:
        connection, at, own = await _connect(host, port), number * 7, permitted(paths, number)
        while time.perf_counter() < until:
            path = own[at % len(own)]
            at += 1
            began = time.perf_counter()
            try:
                if connection.is_closed:
                    connection = await _connect(host, port)
                try:
                    await connection.ask(path, token)
                except ConnectionError:  # closed while the question was under way: browsers ask once more
                    connection = await _connect(host, port)
                    await connection.ask(path, token)
            except (OSError, BadAnswerError) as error:
                counts.errors.append(str(error))
            counts.took[path].append((time.perf_counter() - began) * 1000)
            if pause:
                await asyncio.sleep(pause)
        if connection.transport is not None:
            connection.transport.close()

    # People do not begin all at once.
    async def begin_later(number: int, token: str) -> None:
        await asyncio.sleep(pause * number / len(tokens))
        await one(number, token)

    await asyncio.gather(*(begin_later(number, token) for number, token in enumerate(tokens)))
    return counts


async def warm(host: str, port: int, tokens: Sequence[str], paths: Sequence[str]) -> Counts:
    """Let one reader of each kind ask for every page once, one after the other."""
    counts = Counts()
    connection = await _connect(host, port)
    for path in dict.fromkeys(paths):
        for number, token in enumerate(tokens[: len(_GRANTS)]):
            if path not in permitted(paths, number):
                continue
            began = time.perf_counter()
            try:
                await connection.ask(path, token)
            except BadAnswerError as error:
                counts.errors.append(str(error))
            counts.took[path].append((time.perf_counter() - began) * 1000)
    return counts


def permitted(paths: Sequence[str], number: int) -> list[str]:
    """The paths that the reader of that number may ask for."""
    return [path for path in paths if path != AUDIT or _GRANTS[number % len(_GRANTS)] in _AUDITORS]


def mixed(plan: str, over: str) -> list[str]:
    """The paths as often as they are asked for, spread evenly; ``over`` is a job that is over."""
    total = sum(weight for _, weight in _MIX)
    spread = [((turn + 0.5) / weight, path) for path, weight in _MIX for turn in range(weight)]
    assert len(spread) == total
    return [path.format(plan=plan, over=over) for _, path in sorted(spread)]


@contextlib.contextmanager
def serving(home: Path, *options: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Run the server, and return its port and its process."""
    words = [_COMMAND, "serve", "--port", "0", *options]
    environment = {**os.environ, "STEPFARE_HOME": str(home)}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            port = listening_port(process)
            threading.Thread(target=_drain, args=(process,), daemon=True).start()
            yield port, process
        finally:
            process.terminate()


def _drain(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        print(f"  server: {line.rstrip()}", flush=True)


@contextlib.contextmanager
def writing(store: StateStore) -> Iterator[list[float]]:
    """Add to the ledger and the audit log once a second, in a thread; how long each took in milliseconds."""
    ended, took = threading.Event(), list[float]()
    first = store.ledger.head()

    def run() -> None:
        number = first
        while not ended.wait(1.0):
            began = time.perf_counter()
            store.ledger.add([ledger_entry(number)])
            store.audit.add("bench", "load", "", ZERO, datetime.now(UTC), number=number)
            took.append((time.perf_counter() - began) * 1000)
            number += 1

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield took
    finally:
        ended.set()
        thread.join()


def make_tokens(store: StateStore, count: int) -> list[str]:
    """A token for each reader, valid for an hour."""
    now = datetime.now(UTC)
    return [
        store.access_tokens.make(
            NewToken(TokenKind.TOKEN, f"reader-{number}", _GRANTS[number % len(_GRANTS)], now + timedelta(hours=1)),
            "bench",
            now,
        )[0]
        for number in range(count)
    ]


def report(counts: Counts, seconds: float) -> Iterator[str]:
    every = sorted(each for took in counts.took.values() for each in took)
    for path, took in sorted(counts.took.items()):
        took.sort()
        shown = re.sub(r"[0-9a-f]{64}", "DIGEST", path)
        yield f"  {shown:40} {len(took):6,} {_at(took, 0.5):8.1f} {_at(took, 0.99):8.1f} {took[-1]:8.1f}"
    yield (
        f"  all {len(every):,} answers, {len(every) / seconds:,.0f} a second; p50 {_at(every, 0.5):.0f} ms, "
        f"p99 {_at(every, 0.99):.0f} ms (wanted: {P99_MS} or less), worst {every[-1]:.0f} ms, "
        f"{len(counts.errors)} errors"
    )
    yield from (f"  {error}" for error in counts.errors[:5])


def _at(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; return 1 where an answer was not as it should be."""
    parser = argparse.ArgumentParser(description="How fast the console answers many readers.")
    parser.add_argument("--readers", type=int, default=READERS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--pause", type=float, default=PAUSE, help="seconds between an answer and the next question")
    parser.add_argument("--rows", type=int, default=ROWS, help="of the ledger, 128 at least")
    parser.add_argument("--gangs", type=int, default=GANGS, help="10 at least; each fifth of them runs")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="how many of the example jobs the plan has")
    parser.add_argument("--copies", type=int, default=COPIES, help="how many times each of them")
    asked = parser.parse_args(arguments)
    size = StateSize(asked.rows, asked.gangs, asked.examples, asked.copies)
    home = large_home(size)
    with opened(home) as store, serving(home) as (port, process):
        plan = store.made_plans.newest(1)[0].digest
        paths, tokens = mixed(plan, f"job-{size.gangs - size.running + 1}"), make_tokens(store, asked.readers)
        print(f"CONSOLE ({asked.readers} readers, {store.ledger.head():,} ledger rows, load {os.getloadavg()[0]:.1f})")
        began = time.perf_counter()
        first = asyncio.run(warm("127.0.0.1", port, tokens, paths))
        print(f"  first answers, one after the other: {time.perf_counter() - began:.1f} s", flush=True)
        for line in report(first, time.perf_counter() - began):
            print(line, flush=True)
        with writing(store) as written:
            counts = asyncio.run(read("127.0.0.1", port, tokens, paths, asked.seconds, asked.pause))
        print("  by path: answers, p50, p99, worst (ms)")
        for line in report(counts, asked.seconds):
            print(line)
        print(f"  {len(written)} writes beside them, the slowest {max(written, default=0):.0f} ms")
        print(f"  the server's memory: {_memory(process.pid)} MiB")
    return 1 if first.errors or counts.errors else 0


def _memory(pid: int) -> int:
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    return 0 if found is None else int(found[1]) // 1024


if __name__ == "__main__":
    sys.exit(main())
