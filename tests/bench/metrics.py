"""How long a scrape of the coordinator's metrics takes: 500 gangs of four machines that are alive and as many that are
over, each with an announcement and a checkpoint, in SQLite.

    python -m tests.bench.metrics [--gangs 500]
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from router.coordinator.metrics import Metrics
from router.state.records import NoticeRecord, Phase
from router.state.store import StateStore
from tests.support.state_values import HOUR, NOW, attempt, entry, node

MACHINES = 4
ROUNDS = 7


def main(gangs: int = 500) -> None:
    """Prints the figures."""
    with TemporaryDirectory(prefix="stepfare-bench-") as folder:
        path = Path(folder) / "state.db"
        with StateStore.open(f"sqlite:///{path}", now=NOW) as store:
            _fill(store, gangs)
            all_metrics = [Metrics(store, lambda: NOW, lambda: NOW, ticks=_counter()) for _ in range(ROUNDS)]
            first = [_timed(metrics) for metrics in all_metrics]
            again = [_timed(metrics) for metrics in all_metrics]
            size = len(all_metrics[0].text())
    print(f"METRICS ({gangs} gangs of {MACHINES} alive, {gangs} over; median of {ROUNDS}, slowest)")
    for name, times in (("first scrape of a process", first), ("later scrapes", again)):
        print(f"  {name:26}{statistics.median(times):8.3f} s {max(times):8.3f} s")
    print(f"  {'text':26}{size / 1024:8.1f} KiB")


def _counter() -> Any:
    """Moves on with each look, so that no text is taken from before."""
    ticks = iter(range(0, 10**6, 10))
    return lambda: float(next(ticks))


def _timed(metrics: Metrics) -> float:
    began = time.perf_counter()
    metrics.text()
    return time.perf_counter() - began


def _fill(store: StateStore, gangs: int) -> None:
    up: dict[str, Any] = {"made_at": NOW, "agent": "running", "heard_at": NOW}
    for number in range(2 * gangs):
        alive = number < gangs
        one = attempt(f"a{number}", phase=Phase.RUNNING, met_at=NOW, machines=MACHINES, job=f"job-{number % 150}")
        if not alive:
            one = replace(one, phase=Phase.FAILED, reason="interrupted", gone_at=NOW, last_step=9, kept_step=7)
        store.attempts.add(one, [node(one.id, rank, **up) for rank in range(MACHINES)])
        heard_at = NOW + timedelta(seconds=number)
        store.notices.add(NoticeRecord(one.id, 0, "n", "interruption", "aws", 120.0, "preempted", heard_at))
        store.journal.note(one.id, "saved", heard_at + timedelta(seconds=3), rank=0, id="n")
    store.ledger.add(
        [
            entry(
                f"m{number}-{rank}", attempt=f"a{gangs + number}", rank=rank, end=NOW + HOUR, lost_steps=2 * (rank == 0)
            )
            for number in range(gangs)
            for rank in range(MACHINES)
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How long a scrape of the coordinator's metrics takes.")
    parser.add_argument("--gangs", type=int, default=500)
    main(parser.parse_args().gangs)
