"""Hundreds of gangs are told in one second that a machine of theirs is taken back: until every rank is told to save.

    python -m tests.bench.orders [--gangs 500] [--ranks 2]

Run from the repository's root. The agents are one process with an event loop that says what agents say, heartbeats too;
the coordinator is the real one, over loopback, with a state of SQLite on the disk of the temporary folder. "Told" is
when rank 0 of a gang begins to send its notice: at a random moment of one second, or all at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from router.agent.messenger import HOLD_SECONDS
from router.coordinator.app import make_app
from router.coordinator.handlers import AgentMessageHandler
from router.coordinator.server import CoordinatorServer
from router.state.records import Phase
from router.state.store import StateStore
from tests.support.coordinations import NOW, TOKEN, gang_records

GANGS, RANKS = 500, 2
HEARTBEAT_SECONDS, SETTLE_SECONDS = 10.0, 5.0
SPREADS = (1.0, 0.0)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description="How soon every rank of many gangs is told to save.")
    parser.add_argument("--gangs", type=int, default=GANGS)
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--be-agents", nargs=2, metavar=("URL", "SPREAD"), help="be the agents; prints seconds")
    asked = parser.parse_args(arguments)
    if asked.be_agents:
        url, spread = asked.be_agents
        print(json.dumps(asyncio.run(_agents(url, float(spread), asked.gangs, asked.ranks))))
        return
    for spread in SPREADS:
        with TemporaryDirectory() as folder:
            _measure(Path(folder), spread, asked.gangs, asked.ranks)


def _measure(folder: Path, spread: float, gangs: int, ranks: int) -> None:
    with StateStore.open(f"sqlite:///{folder / 'state.db'}", now=NOW) as store:
        for gang in range(gangs):
            attempt, nodes = gang_records(ranks, name=f"gang-{gang}")
            store.attempts.add(replace(attempt, phase=Phase.RUNNING, met_at=NOW), nodes)
        attendance = AgentMessageHandler(store, folder / "logs", lambda: datetime.now(UTC))
        with CoordinatorServer(make_app(attendance, b"agent", store.id), "127.0.0.1", 0) as server:
            counts = ["--gangs", str(gangs), "--ranks", str(ranks)]
            command = [sys.executable, "-m", "tests.bench.orders", *counts, "--be-agents", server.url, str(spread)]
            busy = time.process_time()
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            busy = time.process_time() - busy
        noticed = [found.phase is Phase.NOTICED and found.order_id for found in store.attempts.find()]
        assert all(noticed)
        assert len(noticed) == gangs
    found = json.loads(done.stdout)
    waits = found["waits"]
    assert len(waits) == gangs * ranks
    cuts = statistics.quantiles(waits, n=100)
    print(
        f"{gangs} gangs of {ranks} told {f'within {spread:g} s' if spread else 'at once'}: all have the order "
        f"{found['whole']:.2f} s after the first was told; each after {statistics.median(waits):.2f} s, "
        f"p99 {cuts[98]:.2f} s, slowest {max(waits):.2f} s; coordinator busy {busy:.1f} s, "
        f"load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


async def _agents(url: str, spread: float, gangs: int, ranks: int) -> dict[str, object]:
    """Seconds from the notice of a gang to the order of each of its ranks, and of the whole."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    names = [(f"gang-{gang}", rank) for gang in range(gangs) for rank in range(ranks)]
    told: dict[str, float] = {}
    dice = random.Random(7)
    beats = [asyncio.create_task(_beat(url, name, rank, dice.uniform(0, HEARTBEAT_SECONDS))) for name, rank in names]
    hears = [asyncio.create_task(_hear(url, name, rank)) for name, rank in names]
    await asyncio.sleep(SETTLE_SECONDS + len(names) / 500)
    moments = [dice.uniform(0.0, spread) for _ in range(gangs)]
    notices = [_tell(url, f"gang-{gang}", moments[gang], told) for gang in range(gangs)]
    await asyncio.gather(*notices)
    heard = await asyncio.gather(*hears)
    for beat in beats:
        beat.cancel()
    waits = [at - told[name] for (name, _), at in zip(names, heard, strict=True)]
    return {"waits": waits, "whole": max(heard) - min(told.values())}


async def _hear(url: str, name: str, rank: int) -> float:
    """When the rank has its order."""
    while True:
        answer = await _post(url, name, rank, "orders", {"seen": "", "wait": HOLD_SECONDS})
        if answer["order"] == "checkpoint":
            assert answer["id"] == f"taken-{name}"
            return time.monotonic()
        await asyncio.sleep(answer.get("retry_seconds", 0.2))


async def _beat(url: str, name: str, rank: int, first: float) -> None:
    await asyncio.sleep(first)
    for sequence in range(1, 10**6):
        await _post(url, name, rank, "heartbeat", {"state": "running", "sequence": sequence, "uptime_seconds": 1.0})
        await asyncio.sleep(HEARTBEAT_SECONDS)


async def _tell(url: str, name: str, after: float, told: dict[str, float]) -> None:
    await asyncio.sleep(after)
    told[name] = time.monotonic()
    more = {"kind": "interruption", "source": "sandbox", "seconds": 120.0, "what": "preempted"}
    await _post(url, name, 0, "notice", {"id": f"taken-{name}", **more})


async def _post(url: str, name: str, rank: int, what: str, body: dict[str, object]) -> dict[str, Any]:
    place = urlsplit(url)
    data = json.dumps({"protocol": 1, "incarnation": f"life-{rank}", **body}).encode()
    head = (
        f"POST /v1/attempts/{name}/ranks/{rank}/{what} HTTP/1.1\r\nHost: {place.netloc}\r\nConnection: close\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    try:
        writer.write(head.encode() + data)
        answer = await reader.read()
    finally:
        writer.close()
    status, _, text = answer.partition(b"\r\n\r\n")
    assert b" 200 " in status.split(b"\r\n")[0], status
    said: dict[str, Any] = json.loads(text)
    return said


if __name__ == "__main__":
    main(sys.argv[1:])
