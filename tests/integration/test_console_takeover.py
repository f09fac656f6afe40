"""Long work of two servers on one PostgreSQL database: done once, whatever becomes of the server that computes it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from router.console.site import STOPPING
from router.state.access_tokens import NewToken, TokenKind
from router.state.store import StateStore
from router.state.tasks import TaskState
from router.state.webhook_deliveries import DeliveryState
from tests.support.busy import eventually
from tests.support.held_server import HELD, HOLD, TAKEOVER_SECONDS
from tests.support.listeners import Receiver, webhook_receiver
from tests.support.postgres_here import PASSWORD_IN_URL, PostgresHere
from tests.support.repository import ROOT
from tests.support.serve_process import ServeProcess

pytestmark = pytest.mark.slow
PATIENCE = 60.0
SECRET = "0123456789abcdef01234567"
WEBHOOKS = "webhooks: [{{url: '{url}', events: [plan.made], secret: env:HOOK_SECRET}}]\n"
JOB = (ROOT / "examples/nightly/faq-7b-lora.yaml").read_text(encoding="utf-8")
ASKED = {"jobs": JOB, "book": "embedded", "limits": {"clouds": ["aws", "gcp"]}}
KEY = "night-2026-11-26"


@dataclass
class Servers:
    """Two servers whose plans wait, and the state that they share."""

    both: tuple[ServeProcess, ServeProcess]
    store: StateStore
    receiver: Receiver

    def ask(self) -> str:
        """Ask the first one for a plan and return the id of its task."""
        answer = self.both[0].post("/api/v1/plans", ASKED, KEY)
        assert answer.status_code == 202, answer.text
        task: str = answer.json()["id"]
        return task

    def by_work(self, task: str) -> tuple[ServeProcess, ServeProcess]:
        """The server that computes the task, which is held there, and the other one, whose plans wait no longer."""
        eventually(lambda: self.shown(self.both[0], task)["progress"] == HELD, PATIENCE, why="the plan is begun")
        pid = self.worker_of(task)
        first, second = self.both
        working, other = (first, second) if first.pid == pid else (second, first)
        assert working.pid == pid
        release(other)
        return working, other

    def worker_of(self, task: str) -> int:
        """The number of the server's process that has the task, 0 for none."""
        row = self.store.tasks.find(task)
        assert row is not None
        return int(row.worker.split(":")[1]) if row.worker else 0

    def shown(self, server: ServeProcess, task: str) -> dict[str, Any]:
        shown: dict[str, Any] = server.get(f"/api/v1/tasks/{task}").json()
        return shown

    def check_made_once(self, server: ServeProcess, task: str) -> None:
        """One plan, which is that of the task; the key belongs to it."""
        eventually(lambda: self.shown(server, task)["state"] == "done", PATIENCE, why="the task is done")
        digest = self.shown(server, task)["result"]["digest"]
        listed = server.get("/api/v1/plans").json()["plans"]
        assert [(row["digest"], row["made_by"]) for row in listed] == [(digest, "ops")]
        assert server.get(f"/api/v1/plans/{digest}").json()["digest"] == digest
        again = server.post("/api/v1/plans", ASKED, KEY)
        assert (again.status_code, again.json()["id"], again.headers["Idempotency-Replayed"]) == (202, task, "true")

    def check_told_once(self) -> None:
        """One event of the one plan, delivered once."""
        eventually(lambda: self.receiver.taken, PATIENCE, why="the receiver is told")
        eventually(lambda: not self.store.webhooks.due(datetime.now(UTC)), PATIENCE, why="the delivery is noted")
        rows = self.store.webhooks.all()
        assert [(row.event, row.state) for row in rows] == [("plan.made", DeliveryState.DELIVERED)]
        digests = [row.digest for row in self.store.made_plans.newest()]
        assert [each["data"]["digest"] for each in self.receiver.taken] == digests


@dataclass
class Listener:
    """Follows the events of a task; ``error`` says how the stream broke, None where it ended in order."""

    server: ServeProcess
    task: str
    after: int = 0
    events: list[tuple[str, str]] = field(default_factory=list)
    last: int = 0
    error: requests.RequestException | None = None
    thread: threading.Thread | None = None

    def start(self) -> Listener:
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        eventually(lambda: self.events or self.error, PATIENCE, why="events come")
        return self

    def run(self) -> None:
        headers = {**self.server.headers(), "Last-Event-ID": str(self.after)}
        url = self.server.url(f"/api/v1/tasks/{self.task}/events")
        name = ""
        try:
            with requests.get(url, headers=headers, stream=True, timeout=PATIENCE) as answer:
                for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
                    what, _, text = line.partition(": ")
                    if what == "id":
                        self.last = int(text)
                    elif what == "event":
                        name = text
                    elif what == "data":
                        self.events.append((name, json.loads(text).get(name, "")))
        except requests.RequestException as error:
            self.error = error

    def wait(self) -> list[tuple[str, str]]:
        """The events, once the stream has ended in order."""
        assert self.thread is not None
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive(), "the stream does not end"
        assert self.error is None
        return self.events


def release(server: ServeProcess) -> None:
    (server.folder / HOLD).unlink()


def states(events: list[tuple[str, str]]) -> list[str]:
    return [text for name, text in events if name == "state"]


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@contextmanager
def two_servers(postgres: PostgresHere, folder: Path, environment: dict[str, str]) -> Iterator[Servers]:
    url = postgres.url_of_new_schema()
    with (
        StateStore.open(url, now=datetime.now(UTC)) as store,
        webhook_receiver(SECRET) as receiver,
        ExitStack() as ends,
    ):
        new = NewToken(TokenKind.TOKEN, "ops", ("admin",), datetime.now(UTC) + timedelta(hours=1))
        token, _ = store.access_tokens.make(new, "ana@desk", datetime.now(UTC))
        first, second = (
            ServeProcess(
                folder / name,
                url.replace(f":{PASSWORD_IN_URL}@", "@"),
                token,
                command=(sys.executable, "-m", "tests.support.held_server"),
                environment={**environment, "HOOK_SECRET": SECRET, "PYTHONPATH": str(ROOT)},
                entries=WEBHOOKS.format(url=receiver.url),
            )
            for name in ("first", "second")
        )
        for server in (first, second):
            server.folder.mkdir()
            (server.folder / HOLD).touch()
            server.begin()
            ends.callback(server.end, signal.SIGKILL)
        for server in (first, second):
            server.wait_until_listening()
        yield Servers((first, second), store, receiver)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_another_server_goes_on_when_one_is_killed_or_stands_still(
    postgres: PostgresHere, tmp_path: Path, how: signal.Signals
) -> None:
    with two_servers(postgres, tmp_path, {TAKEOVER_SECONDS: "4"}) as servers:
        task = servers.ask()
        working, other = servers.by_work(task)
        repeated = other.post("/api/v1/plans", ASKED, KEY)
        assert (repeated.status_code, repeated.json()["id"]) == (202, task)
        children = psutil.Process(working.pid).children(recursive=True)
        assert children
        listener = Listener(other, task).start()
        os.kill(working.pid, how)
        servers.check_made_once(other, task)
        events = listener.wait()
        assert states(events) == ["queued", "running", "queued", "running", "done"]
        assert events[-1][0] == "end"
        assert ("progress", HELD) in events
        row = servers.store.tasks.find(task)
        assert row is not None
        assert (row.tries, servers.worker_of(task)) == (2, other.pid)
        if how is signal.SIGKILL:
            eventually(lambda: all(map(is_gone, children)), PATIENCE, why="its child processes end")
            servers.check_told_once()
            return
        # Its child makes the plan as well, and the server finds that the task is another one's.
        release(working)
        os.kill(working.pid, signal.SIGCONT)
        eventually(lambda: working.get("/ready").status_code == 200, PATIENCE, why="it is ready again")
        eventually(lambda: any(map(is_gone, children)), PATIENCE, why="it gives up the task")
        assert servers.store.tasks.find(task) == row
        servers.check_made_once(working, task)
        servers.check_told_once()


def test_another_server_takes_up_the_task_of_one_that_is_told_to_stop(postgres: PostgresHere, tmp_path: Path) -> None:
    """As systemd tells it: all processes of the server get the signal."""
    with two_servers(postgres, tmp_path, {TAKEOVER_SECONDS: "4"}) as servers:
        task = servers.ask()
        working, other = servers.by_work(task)
        listener = Listener(working, task).start()
        with socket.create_connection(("127.0.0.1", working.port)) as slow:
            head = "".join(f"{name}: {value}\r\n" for name, value in working.headers().items())
            slow.sendall(f"POST /api/v1/plans HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}Content-Length: 2\r\n\r\n".encode())
            assert working.get("/ready").status_code == 200
            os.killpg(working.pid, signal.SIGTERM)
            # Each time it answers: nothing is refused before it has said that it stops.
            eventually(lambda: STOPPING in working.get("/ready").text, PATIENCE, why="it says that it stops")
            before = listener.wait()
            slow.sendall(b"{}")
            assert slow.recv(100).startswith(b"HTTP/1.1 422")
        servers.check_made_once(other, task)
        servers.check_told_once()
        assert working.process is not None
        assert working.process.wait(PATIENCE) == 0
        assert working.process.stderr is not None
        assert "Traceback" not in working.process.stderr.read()
        assert "end" not in dict(before)
        rest = Listener(other, task, after=listener.last).start().wait()
        assert states(before + rest) == ["queued", "running", "queued", "running", "done"]
        row = servers.store.tasks.find(task)
        assert row is not None
        assert (row.state, row.tries) == (TaskState.DONE, 2)
