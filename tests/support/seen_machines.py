"""What was ever seen to exist: machines of the sandbox, looked for by their marks many times a second."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

from tests.support.deployed import environments

_PAUSE_S = 0.03
Machine = tuple[str, int]


@dataclass(frozen=True)
class Marked:
    """A process with the marks of a machine. ``up``: it is the machine itself, not the script that starts it.
    ``trains``: of its training."""

    state: str
    attempt: str
    rank: int
    node_id: str
    up: bool
    trains: bool


def marked() -> list[Marked]:
    return [one for _, environment in environments() if (one := _marked(environment)) is not None]


def _marked(environment: bytes) -> Marked | None:
    if b"STEPFARE_NODE_ID=" not in environment:
        return None
    items = environment.decode(errors="replace").split("\0")
    marks = {name: value for name, is_pair, value in (item.partition("=") for item in items) if is_pair}
    up = "STEPFARE_NODE_FOLDER" in marks and "STEPFARE_WANTED" not in marks
    return Marked(
        marks.get("STEPFARE_STATE", ""),
        marks.get("STEPFARE_ATTEMPT", ""),
        int(marks.get("STEPFARE_RANK", "-1")),
        marks["STEPFARE_NODE_ID"],
        up,
        "STEPFARE_CONTROL" in marks,
    )


@dataclass
class SeenMachines:
    """Looks while the block runs. By state: ``seen`` machines (attempt, rank) that were up, ``begun`` those of which at
    least the start was seen, ``doubles`` what must never be. ``pause_s``: between two looks."""

    seen: dict[str, set[Machine]] = field(default_factory=lambda: defaultdict(set))
    begun: dict[str, set[Machine]] = field(default_factory=lambda: defaultdict(set))
    doubles: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    looks: int = 0
    pause_s: float = _PAUSE_S
    _now: list[Marked] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._go_on, name="seen_machines", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        assert self._thread is not None
        self._thread.join()

    def up(self, state: str) -> set[Machine]:
        """The machines of a state that were up at the last look."""
        return {(one.attempt, one.rank) for one in self._now if one.state == state and one.up}

    def starting(self, state: str) -> set[Machine]:
        """Those that were up or about to be."""
        return {(one.attempt, one.rank) for one in self._now if one.state == state}

    def _go_on(self) -> None:
        while not self._ended.wait(self.pause_s):
            self._look()

    def _look(self) -> None:
        self._now = found = marked()
        self.looks += 1
        ids: dict[tuple[str, Machine], set[str]] = defaultdict(set)
        gangs: dict[tuple[str, str], set[str]] = defaultdict(set)
        for one in found:
            machine = (one.attempt, one.rank)
            self.begun[one.state].add(machine)
            if one.up:
                self.seen[one.state].add(machine)
                ids[one.state, machine].add(one.node_id)
            if one.trains:
                # The next gang's machines may be there before the last one's are gone. An attempt is named after its
                # job, then a digest.
                gangs[one.state, one.attempt.rpartition("-")[0]].add(one.attempt)
        for (state, (attempt, rank)), some in ids.items():
            if len(some) > 1:
                self.doubles[state].add(f"{len(some)} machines for rank {rank} of {attempt}")
        for (state, job), attempts in gangs.items():
            if len(attempts) > 1:
                self.doubles[state].add(f"{len(attempts)} gangs of {job}: {', '.join(sorted(attempts))}")


def settled(state: str, seconds: float = 5.0) -> list[Marked]:
    """The machines of a state that are up, once two looks agree: what was just killed takes a moment to go."""
    ends = time.monotonic() + seconds
    before: list[Marked] | None = None
    while True:
        now = sorted(
            {replace(one, trains=False) for one in marked() if one.state == state and one.up},
            key=lambda m: (m.attempt, m.rank),
        )
        if now == before or time.monotonic() > ends:
            return now
        before = now
        time.sleep(0.1)
