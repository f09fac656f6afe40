"""A process that writes to states and kills itself in the middle: `python -m` this module, `WHAT FIRST STRIDE URL...`.

Every statement (BEGIN and COMMIT are two) is a point before it: between two statements nothing happens that a database
or a file could tell. A file that is put on the disk or named is a point before it and one after it. Points are counted
from 0 over all STEPS, over opening where WHAT is `open`, over those of books_steps where it is `books FOLDER`, over
restoring a backup where it is `restore FILE`. At the first URL it dies at the point FIRST, at each other one STRIDE
points later.
It writes one JSON line a URL: how many steps were acknowledged, and whether it died before they were all done.
The processes that die are forked from one that has imported everything.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import alembic.command  # noqa: F401  imported once, before the forks
from sqlalchemy import Engine, event

from pricing.money import Usd
from router.state.records import Phase
from router.state.store import StateStore
from tests.support import books_steps
from tests.support.repository import ROOT
from tests.support.state_values import HOUR, NOW, attempt, entry, node, shortage

_TIME_LIMIT = 300
_AT_ONCE = 10

STEPS: tuple[Callable[[StateStore], object], ...] = (
    lambda s: s.plans.put_plan("d", "text", NOW),
    lambda s: s.plans.put_jobs({"j1": "{}", "j2": "{}", "j3": "{}"}, NOW),
    lambda s: s.attempts.add(attempt(), [node(), node(rank=1)]),
    lambda s: s.journal.note("a1", "applying", NOW, machines=2),
    lambda s: s.attempts.change(attempt(), phase=Phase.READY, message="ready", made_at=NOW),
    lambda s: s.attempts.set_node("a1", 1, agent="running", heard_at=NOW),
    lambda s: s.ledger.append([entry("k1"), entry("k2"), entry("k3")], after=0),
    lambda s: s.ledger.add([entry("k3"), entry("k4"), entry("k5")]),
    lambda s: s.audit.add("anna", "apply", "d", Usd(1), NOW),
    lambda s: s.audit.add("anna", "destroy", "d", Usd(1), NOW),
    lambda s: s.shortages.remember(shortage("a")),
    # Forgets the one before, which is past by then.
    lambda s: s.shortages.remember(shortage("b", at=NOW + 2 * HOUR)),
    lambda s: s.values.set("coordinator_port", "1"),
)


def seen(store: StateStore) -> tuple[object, ...]:
    jobs = tuple(store.plans.job(f"j{i}") for i in (1, 2, 3))
    facts = (store.plans.plan("d"), jobs, store.values.get("coordinator_port"), store.shortages.in_force(NOW))
    return (
        *facts,
        store.attempts.find(),
        store.attempts.nodes("a1"),
        store.journal.entries(),
        store.ledger.entries(),
        store.audit.entries(),
    )


def seen_after_each(url: str) -> list[tuple[object, ...]]:
    """What is seen after 0, 1, 2 ... steps, when nobody dies."""
    with StateStore.open(url, now=NOW) as store:
        views = [seen(store)]
        for step in STEPS:
            step(store)
            views.append(seen(store))
    return views


def crash(
    new_url: Callable[[], str],
    *,
    opening: bool = False,
    stride: int = 1,
    what: str = "write",
    where: Path | None = None,
) -> Iterator[tuple[str, int, bool]]:
    """Runs such processes until one comes through: for each the URL, the steps it acknowledged, whether it died.
    ``where``: the FOLDER, in which each has one of its own, called as its place in the order; or the FILE."""
    first, died = 0, True
    while died:
        urls = [new_url() for _ in range(_AT_ONCE)]
        arguments = ["open" if opening else f"{what} {where or ''}".strip(), str(first), str(stride), *urls]
        command = [sys.executable, "-m", "tests.support.state_crashes", *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=_TIME_LIMIT)
        for url, line in zip(urls, map(json.loads, done.stdout.splitlines()), strict=False):
            died = line["died"]
            yield url, line["acknowledged"], died
        first += _AT_ONCE * stride


def _main(what: str, first: str, stride: str, *urls: str) -> None:
    died, point = True, int(first)
    for url in urls:
        if not died:
            break
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _work(url, point, writing, what)
        os.close(writing)
        with os.fdopen(reading, "rb") as told:
            acknowledged = len(told.read())
        status = os.waitpid(child, 0)[1]
        died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not died and os.waitstatus_to_exitcode(status) != 0:
            sys.exit(f"point {point}: {status}")
        print(json.dumps({"acknowledged": acknowledged, "died": died}), flush=True)
        point += int(stride)


def _work(url: str, point: int, told: int, what: str) -> None:
    kind, _, where = what.partition(" ")
    if kind == "open":
        _die_at(point)
        StateStore.open(url, now=NOW).close()
        os._exit(0)
    folder = Path(where) / str(point)
    if kind == "books":
        folder.mkdir(parents=True)
    steps: Mapping[str, Sequence[Callable[[StateStore], object]]] = {
        "write": STEPS,
        "books": [partial(_in_folder, step, folder) for step in books_steps.STEPS],
        "restore": [lambda store: store.backups.restore(Path(where))],
    }
    with StateStore.open(url, now=NOW) as store:
        _die_at(point)
        for step in steps[kind]:
            step(store)
            os.write(told, b".")
    os._exit(0)


def _in_folder(step: Callable[[StateStore, Path], object], folder: Path, store: StateStore) -> None:
    step(store, folder)


def _die_at(point: int) -> None:
    passed = -1

    def one(*_given: object) -> None:
        nonlocal passed
        passed += 1
        if passed == point:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("before_cursor_execute", "commit"):
        event.listen(Engine, name, one)

    def around(does: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*given: Any, **named: Any) -> object:
            one()
            result = does(*given, **named)
            one()
            return result

        return wrapped

    os.replace = around(os.replace)  # type: ignore[assignment]
    os.fsync = around(os.fsync)  # type: ignore[assignment]


if __name__ == "__main__":
    _main(*sys.argv[1:])
