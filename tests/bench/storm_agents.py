"""The agents of hundreds of gangs, in one process with one event loop: they say what agents say, over HTTP.

Told so on standard input, a machine of every gang is announced to be taken back within the same second; every rank that
is told to save says after a moment that it has. Moments are of the system's monotonic clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sys
import time
from dataclasses import asdict, dataclass, field

from router.agent.messenger import HOLD_SECONDS
from tests.bench.orders import HEARTBEAT_SECONDS, _post

STEP = 1000
# What a training takes to write a checkpoint, in seconds: from, to.
SAVING = (0.2, 1.0)


@dataclass(slots=True)
class Moments:
    """When it was told of each gang, and when each rank was told to save and its word that it has was taken."""

    told: dict[str, float] = field(default_factory=dict)
    ordered: dict[str, float] = field(default_factory=dict)
    saved: dict[str, float] = field(default_factory=dict)


async def storm(url: str, gangs: int, ranks: int, spread: float) -> None:
    """Beats; says "ready" when every rank waits for orders; after a line on standard input it begins. Prints the
    moments when all have saved, and goes on beating until standard input ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    names = [(f"gang-{gang:03}", rank) for gang in range(gangs) for rank in range(ranks)]
    dice = random.Random(11)
    found = Moments()
    tasks = [asyncio.create_task(_beat(url, name, rank, dice.uniform(0, HEARTBEAT_SECONDS))) for name, rank in names]
    saves = [asyncio.create_task(_save(url, name, rank, dice.uniform(*SAVING), found)) for name, rank in names]
    await asyncio.sleep(HEARTBEAT_SECONDS)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await asyncio.gather(*(_tell(url, name, dice.uniform(0, spread), found) for name in sorted({n for n, _ in names})))
    await asyncio.gather(*saves)
    print(json.dumps(asdict(found)), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()


async def _beat(url: str, name: str, rank: int, first: float) -> None:
    await asyncio.sleep(first)
    said = {"state": "running", "uptime_seconds": 1.0}
    for sequence in range(1, 10**6):
        try:
            await _post(url, name, rank, "heartbeat", {**said, "sequence": sequence, "step": STEP})
        except AssertionError:
            return  # its attempt is over
        await asyncio.sleep(HEARTBEAT_SECONDS)


async def _tell(url: str, name: str, after: float, found: Moments) -> None:
    await asyncio.sleep(after)
    found.told[name] = time.monotonic()
    notice = {"kind": "interruption", "source": "sandbox", "seconds": 120.0, "what": "preempted"}
    await _post(url, name, 0, "notice", {"id": f"taken-{name}", **notice})


async def _save(url: str, name: str, rank: int, takes: float, found: Moments) -> None:
    while True:
        answer = await _post(url, name, rank, "orders", {"seen": "", "wait": HOLD_SECONDS})
        if answer["order"] == "checkpoint":
            break
        await asyncio.sleep(answer.get("retry_seconds", 0.2))
    found.ordered[f"{name} {rank}"] = time.monotonic()
    await asyncio.sleep(takes)
    body = {"id": answer["id"], "step": STEP, "manifest": f"/saved/{name}/{STEP}.json", "seconds": takes}
    try:
        await _post(url, name, rank, "saved", body)
    except AssertionError:
        return  # another rank said so before, and its gang is gone already
    found.saved[f"{name} {rank}"] = time.monotonic()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--gangs", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--spread", type=float, required=True)
    asked = parser.parse_args()
    asyncio.run(storm(asked.url, asked.gangs, asked.ranks, asked.spread))


if __name__ == "__main__":
    main()
