"""Two servers on one PostgreSQL: both tell what is committed, with the same bytes; one that is killed harms nobody."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from pricing.money import ZERO
from router.planning.plan_json import plan_content, plan_to_json
from router.state.access_tokens import NewToken, TokenKind
from router.state.lock_owner import LockOwner
from router.state.store import StateStore
from tests.support.console import NIGHT
from tests.support.night import nightly_plan
from tests.support.postgres_here import PASSWORD, PASSWORD_IN_URL, postgres_here
from tests.support.state_values import entry

pytestmark = pytest.mark.slow
COMMAND = str(Path(sys.executable).with_name("stepfare"))
# How soon what is committed is seen on every server.
SEEN_SECONDS = 2.0
READ = ("/tonight", "/plans", "/jobs", "/prices", "/budgets", "/audit", "/api/v1/plans", "/api/v1/jobs", "/ready")


@contextmanager
def served(home: Path, deploy: Path, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server on that state, and its port."""
    home.mkdir(exist_ok=True)
    words = [COMMAND, "serve", "--port", str(port), "--deploy", str(deploy)]
    environment = {**os.environ, "STEPFARE_HOME": str(home), "PGPASSWORD": PASSWORD}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = []
            for line in process.stderr:
                said.append(line)
                if found := re.search(r"listening on http://127\.0\.0\.1:(\d+)/", line):
                    break
            else:
                raise AssertionError("".join(said))
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield process, int(found[1])
        finally:
            process.kill()


@dataclass
class Reader:
    """Somebody who reads one page after the other of a server, in a thread."""

    port: int
    token: str
    answers: list[tuple[str, int]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Reader:
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _read(self) -> None:
        with client_of(self.port, self.token) as client:
            number = 0
            while not self._ended.is_set():
                path = READ[number % len(READ)]
                number += 1
                try:
                    answer = client.get(path)
                except httpx.HTTPError as error:
                    self.failures.append(f"{path}: {error!r}")
                    return
                self.answers.append((path, answer.status_code))


def client_of(port: int, token: str) -> httpx.Client:
    """A client that is known to the server."""
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {token}"}, timeout=60)


def seen_after(sees: Callable[[], bool]) -> float:
    """Seconds until it is seen. A read that began later does not count as one that saw it."""
    began = time.monotonic()
    while True:
        asked = time.monotonic()
        if sees():
            return asked - began
        assert asked - began < 30
        threading.Event().wait(0.05)


def write_all(store: StateStore, number: int) -> str:
    """Commit a plan, an entry of the audit log and one of the ledger; the plan's digest."""
    plan = nightly_plan()
    moved = plan.__class__(
        **{
            **{name: getattr(plan, name) for name in plan.__dataclass_fields__},
            "as_of": plan.as_of + timedelta(minutes=number),
        }
    )
    digest: str = plan_content(moved)["digest"]
    store.ledger.add([entry(f"round {number}")])
    store.audit.add("anna", f"round-{number}", digest, ZERO, NIGHT)
    store.made_plans.put(digest, plan_to_json(moved), moved.as_of, NIGHT, "anna")
    return digest


def check_seen(ports: tuple[int, ...], token: str, digest: str, number: int) -> None:
    """What was committed is seen on each server in time; the audit log at once."""
    for port in ports:
        with client_of(port, token) as client:
            assert f"round-{number}" in client.get("/audit").text
            assert seen_after(lambda: digest in client.get("/api/v1/plans").text) <= SEEN_SECONDS
            assert seen_after(lambda: digest[:12] in client.get("/tonight").text) <= SEEN_SECONDS


def test_two_servers_on_one_database_agree_and_one_may_be_killed(tmp_path: Path) -> None:
    with postgres_here() as database:
        url = database.url_of_new_schema()
        deploy = tmp_path / "deploy.yaml"
        public = url.replace(f":{PASSWORD_IN_URL}@", "@")
        deploy.write_text(f'state: "{public}"\nconsole: {{tokens: true, requests: 1000000/minute}}\n')
        now = datetime.now(UTC)
        wanted = NewToken(TokenKind.TOKEN, "reader", ("admin",), now + timedelta(hours=1))
        with (
            StateStore.open(url, now=now) as store,
            store.lease("controller", LockOwner.of_this_process(), lambda: datetime.now(UTC)) as lease,
        ):
            token = store.access_tokens.make(wanted, "anna", now)[0]
            write_all(store, 0)
            with served(tmp_path / "b", deploy) as (_, stays):
                with (
                    served(tmp_path / "a", deploy) as (first, goes),
                    Reader(goes, token),
                    Reader(stays, token) as reader,
                ):
                    for number in (1, 2, 3):
                        check_seen((goes, stays), token, write_all(store, number), number)
                    first.kill()
                    first.wait()
                    for number in (4, 5, 6):
                        check_seen((stays,), token, write_all(store, number), number)
                assert reader.failures == []
                assert len(reader.answers) > len(READ)
                assert {status for _, status in reader.answers} == {200}
                with served(tmp_path / "a", deploy, goes) as (_, again):
                    assert again == goes
                    last = write_all(store, 7)
                    check_seen((again, stays), token, last, 7)
                    for path in (f"/plans/{last}", "/tonight", "/api/v1/plans", f"/api/v1/plans/{last}", "/audit.json"):
                        with client_of(again, token) as one, client_of(stays, token) as other:
                            mine, theirs = one.get(path), other.get(path)
                        assert (mine.status_code, mine.content) == (200, theirs.content), path
                        assert mine.headers.get("ETag") == theirs.headers.get("ETag")
                    lease.check()  # nobody else took it
