"""A gang in a state database of its own, with the real coordinator in front of it."""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pricing.money import UsdPerHour
from pricing.places import Market
from router.coordinator.app import make_app
from router.coordinator.connections import DEFAULT_LIMITS, ConnectionLimits
from router.coordinator.handlers import AgentMessageHandler, log_path
from router.coordinator.server import CoordinatorServer
from router.state.records import Attempt, NodeRecord, Phase
from router.state.store import StateStore
from tests.support.busy import eventually
from tests.support.coordinator import Coordinator
from tests.support.new_state import open_state
from tests.support.state_values import attempt, node

ATTEMPT = "attempt-1"
TOKEN = "token-canary-3c90aa17"
NOW = datetime(2026, 11, 21, 18, 0, tzinfo=UTC)


def real_clock() -> datetime:
    return datetime.now(UTC)


@dataclass
class Clock:
    """Stands still until it is moved."""

    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def ticks(self) -> float:
        return (self.now - NOW).total_seconds()


def gang_records(
    machines: int, *, engine: str = "command", name: str = ATTEMPT, token: str = TOKEN
) -> tuple[Attempt, list[NodeRecord]]:
    """An attempt that is being provisioned, and its machines."""
    made = attempt(
        name,
        plan="p",
        job="job-1",
        job_digest="d",
        start=NOW,
        end=NOW + timedelta(hours=8),
        cloud="sandbox",
        region="local",
        machines=machines,
        engine=engine,
        token_hash=hashlib.sha256(token.encode()).hexdigest(),
        created_at=NOW,
        phase=Phase.PROVISIONING,
    )
    free = {"usd_per_hour": UsdPerHour(0), "max_usd_per_hour": UsdPerHour(0)}
    on = {"instance_type": "local", "market": Market.ON_DEMAND, **free}
    return made, [node(name, rank, **on) for rank in range(machines)]


def agent_body(rank: int, message: str, /, **more: Any) -> dict[str, Any]:
    """Return the body of an agent's message, changed by ``more``."""
    life = {"protocol": 1, "incarnation": f"life-{rank}"}
    beat = {**life, "state": "running", "sequence": 1, "uptime_seconds": 1.5}
    end = {"state": "ended", "reason": "finished", "exit_code": 0, "signal": None, "message": "", "log_bytes_lost": 0}
    notice = {"id": "n-1", "kind": "interruption", "source": "sandbox", "seconds": 30.0, "what": "preempted"}
    where = {"nodes": 2, "host": f"host-{rank}", "engine": "command", "address": f"10.0.0.{rank + 1}"}
    bodies: dict[str, dict[str, Any]] = {
        "hello": {**life, **where, **({"master_port": 29500} if rank == 0 else {})},
        "heartbeat": beat,
        "logs": {"offset": 0, "bytes": 5, "text": "step\n"},
        "notice": {**life, **notice},
        "measured": life,
        "orders": {**life, "seen": "", "wait": 20.0},
        "saved": {**life, "id": "c-1", "step": 120, "manifest": "/b/120.json", "seconds": 3.5},
        "ended": {**beat, **end},
    }
    return bodies[message] | more


@dataclass
class Scene:
    """One attempt. ``attendance`` answers directly; :meth:`serving` puts a server before a new one, as at a restart."""

    folder: Path
    store: StateStore
    nodes: int
    clock: Callable[[], datetime] = real_clock
    options: dict[str, Any] = field(default_factory=lambda: {"fresh_seconds": 0.05, "retry_seconds": 0.05})
    port: int = 0
    url: str = ""

    def __post_init__(self) -> None:
        self.attendance = self.fresh()

    def fresh(self) -> AgentMessageHandler:
        """One that knows nothing but what is in the database."""
        ticks = self.clock.ticks if isinstance(self.clock, Clock) else time.monotonic
        return AgentMessageHandler(self.store, self.folder / "logs", self.clock, ticks=ticks, **self.options)

    @property
    def told(self) -> Coordinator:
        return Coordinator(self.nodes, TOKEN, attempt=ATTEMPT, url=self.url)

    @property
    def attempt(self) -> Attempt:
        found = self.store.attempts.get(ATTEMPT)
        assert found is not None
        return found

    @property
    def records(self) -> tuple[NodeRecord, ...]:
        """The machines as they are in the database."""
        return self.store.attempts.nodes(ATTEMPT)

    def phase(self, phase: Phase) -> None:
        self.store.attempts.update(ATTEMPT, lambda attempt: replace(attempt, phase=phase))

    def say(self, rank: int, message: str, /, token: str = TOKEN, **body: Any) -> tuple[int, dict[str, Any]]:
        """A message as an agent sends it, changed by ``body``."""
        return self.attendance.answer(ATTEMPT, rank, message, f"Bearer {token}", self.body(rank, message, **body))

    def body(self, rank: int, message: str, /, **more: Any) -> dict[str, Any]:
        """What an agent says."""
        return agent_body(rank, message, **({"nodes": self.nodes} if message == "hello" else {}) | more)

    def failed(self, rank: int, reason: str = "crashed", **more: Any) -> tuple[int, dict[str, Any]]:
        """`ended` of a rank that did not finish."""
        state = "ended" if reason == "stopped" else "failed"
        return self.say(rank, "ended", state=state, reason=reason, **({"exit_code": 7} | more))

    def journal(self, what: str) -> list[dict[str, object]]:
        """Details of what was noted of that kind."""
        return [entry.details for entry in self.store.journal.entries(ATTEMPT) if entry.what == what]

    def log(self, rank: int) -> str:
        """The file of a rank's output; empty while there is none."""
        path = log_path(self.folder / "logs", ATTEMPT, rank)
        return path.read_bytes().decode() if path.exists() else ""

    @contextmanager
    def serving(
        self,
        agent: bytes = b"agent",
        limits: ConnectionLimits = DEFAULT_LIMITS,
        certificate: tuple[Path, Path] | None = None,
    ) -> Iterator[CoordinatorServer]:
        """Serves while the block runs, on one port throughout; over https with a certificate and its key."""
        self.attendance = self.fresh()
        app, (cert, key) = make_app(self.attendance, agent, self.store.id), certificate or (None, None)
        with CoordinatorServer(app, "127.0.0.1", self.port, cert, key, limits=limits) as server:
            self.port, self.url = server.port, server.url
            yield server
        self.attendance.flush()

    def wait(self, until: Callable[[Scene], bool], seconds: float = 30) -> None:
        """Until that is so; fails the test otherwise."""
        eventually(lambda: until(self), seconds, why=lambda: f"for {seconds} s; {self.attempt} {self.records}")


@contextmanager
def scene(
    folder: Path, nodes: int, *, engine: str = "command", clock: Any = real_clock, **options: Any
) -> Iterator[Scene]:
    """A state with one attempt of so many nodes."""
    with open_state(folder / "state.db", NOW) as store:
        store.attempts.add(*gang_records(nodes, engine=engine))
        made = Scene(folder, store, nodes, clock)
        made.options |= options
        made.attendance = made.fresh()
        yield made


def serve_until_killed(folder: Path, port: int) -> None:
    """In a process of its own: a coordinator for the state in that folder. Says when it listens."""
    with open_state(folder / "state.db", NOW) as store:
        attendance = AgentMessageHandler(store, folder / "logs", real_clock, fresh_seconds=0.05, retry_seconds=0.05)
        with CoordinatorServer(make_app(attendance, b"agent", store.id), "127.0.0.1", port):
            sys.stdout.write("listening\n")
            sys.stdout.flush()
            threading.Event().wait()


if __name__ == "__main__":
    serve_until_killed(Path(sys.argv[1]), int(sys.argv[2]))
