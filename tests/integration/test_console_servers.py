"""Two servers of the console on one PostgreSQL database: they agree, also while one of them is killed."""

from __future__ import annotations

import re
import signal
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests

from pricing.money import Usd
from router.planning.document.plan_json import plan_content, plan_to_json
from router.state.access_tokens import NewToken, TokenKind
from router.state.lock_owner import LockOwner
from router.state.store import StateStore
from tests.support.busy import eventually
from tests.support.postgres_here import PASSWORD_IN_URL, PostgresHere
from tests.support.scenes import NORTH, a_job, plan_of
from tests.support.serve_process import ServeProcess
from tests.support.state_values import entry

pytestmark = pytest.mark.slow
#: A second and a half on an idle machine, as the documentation says; many times that beside other tests.
SOON = timedelta(seconds=30)
MOMENT = re.compile(rb'<time datetime="[^"]*">[^<]*</time>')
READ = ("/api/v1/plans", "/plans.csv", "/api/v1/budgets", "/audit.json", "/tonight")


@dataclass
class Reader:
    """Reads all pages of a server again and again, and notes what went wrong."""

    server: ServeProcess
    stopping: threading.Event = field(default_factory=threading.Event)
    wrong: list[str] = field(default_factory=list)
    count: int = 0

    def run(self) -> None:
        while not self.stopping.is_set():
            for path in READ:
                try:
                    answer = self.server.get(path)
                except requests.RequestException as error:
                    self.wrong.append(f"{path}: {type(error).__name__}")
                else:
                    self.count += 1
                    if answer.status_code != 200:
                        self.wrong.append(f"{path}: {answer.status_code} {answer.text[:200]}")


def write(store: StateStore, number: int) -> str:
    """Commit a plan, an entry of the audit log and one of the ledger; return the plan's digest."""
    now = datetime.now(UTC)
    plan = plan_of([a_job(steps=300 + number)], [NORTH])
    digest: str = plan_content(plan)["digest"]
    store.ledger.add([entry(f"entry {number}")])
    store.audit.add("ana@desk", "apply", digest, Usd(10**9 * number), now)
    store.made_plans.put(digest, plan_to_json(plan), plan.as_of, now, "ana@desk", "night")
    return digest


def wait_until_shown(servers: list[ServeProcess], digest: str) -> None:
    eventually(
        lambda: all(digest in server.get("/api/v1/plans").text for server in servers),
        SOON.total_seconds(),
        why=f"for all servers to show {digest[:12]}",
    )


def test_two_servers_agree_while_one_is_killed(postgres: PostgresHere, tmp_path: Path) -> None:
    url = postgres.url_of_new_schema()
    with StateStore.open(url, now=datetime.now(UTC)) as store, ExitStack() as ends:
        new = NewToken(TokenKind.TOKEN, "ops", ("admin",), datetime.now(UTC) + timedelta(hours=1))
        token, _ = store.access_tokens.make(new, "ana@desk", datetime.now(UTC))
        lease = ends.enter_context(store.lease("watch", LockOwner.of_this_process(), lambda: datetime.now(UTC)))
        without_password = url.replace(f":{PASSWORD_IN_URL}@", "@")
        first, second = (ServeProcess(tmp_path / name, without_password, token) for name in ("first", "second"))
        first_plan = write(store, 0)
        for server in (first, second):
            server.start()
            ends.callback(server.end)
        wait_until_shown([first, second], first_plan)
        killed, steady = Reader(first), Reader(second)
        threads = [threading.Thread(target=reader.run) for reader in (killed, steady)]
        for thread in threads:
            thread.start()
        try:
            for number in (1, 2, 3):
                wait_until_shown([first, second], write(store, number))
            assert first.get("/api/v1/plans").content == second.get("/api/v1/plans").content
            assert first.get("/plans.csv").content == second.get("/plans.csv").content
            assert killed.wrong == []
            killed.stopping.set()
            first.end(signal.SIGKILL)
            for number in (4, 5):
                wait_until_shown([second], write(store, number))
            first.start()  # on the port that it had
            wait_until_shown([first, second], write(store, 6))
            for path in ("/api/v1/plans", "/tonight", "/audit.json"):
                answers = first.get(path), second.get(path)
                # On a busy machine seconds pass between the two, and a page says of which moment it is.
                contents = [MOMENT.sub(b"", answer.content) for answer in answers]
                assert contents[0] == contents[1], path
                if answers[0].content == answers[1].content:
                    assert answers[0].headers.get("ETag") == answers[1].headers.get("ETag"), path
        finally:
            for reader in (killed, steady):
                reader.stopping.set()
            for thread in threads:
                thread.join(60)
        assert steady.wrong == []
        assert steady.count >= len(READ)
        lease.check()  # it was nobody else's meanwhile


def test_a_server_that_is_told_to_stop_says_so_and_ends_in_order(postgres: PostgresHere, tmp_path: Path) -> None:
    url = postgres.url_of_new_schema()
    with StateStore.open(url, now=datetime.now(UTC)) as store:
        new = NewToken(TokenKind.TOKEN, "ops", ("admin",), datetime.now(UTC) + timedelta(hours=1))
        token, _ = store.access_tokens.make(new, "ana@desk", datetime.now(UTC))
    server = ServeProcess(tmp_path / "only", url.replace(f":{PASSWORD_IN_URL}@", "@"), token)
    server.start()
    assert server.get("/health").status_code == 200
    assert server.get("/ready").status_code == 200
    assert server.end() == 0
