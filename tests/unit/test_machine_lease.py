"""Machines that end by themselves: lease, timers, the stacks that are kept, and gangs that nobody watches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.agent import lease
from router.agent.config import AgentConfig, AgentConfigError, parse_config
from router.agent.control import OFFERED, keep_stacks
from router.agent.lease import POWER_OFF, REARM_SECONDS, LifetimeTimer, MachineLease
from router.agent.protocol import END_SERVICE, LIFETIME_TIMER
from router.controller.workspace.bootstrap import Bootstrap, CoordinatorEndpoint, NodeSecrets, render_cloud_init
from router.deploy.deploy_settings import Lifetime
from router.state.lock_owner import LockOwner
from router.state.records import Phase
from tests.support.busy import eventually
from tests.support.coordinations import NOW as NOW_OF_SCENE
from tests.support.coordinations import Clock, scene
from tests.support.drilled import Ticks
from tests.support.new_state import open_state
from tests.support.state_values import HOUR, NOW, attempt

MINUTE = 60.0


def test_a_late_run_that_is_answered_never_ends() -> None:
    """Five times as late as it may be unanswered."""
    ticks = Ticks()
    lease = MachineLease(30 * MINUTE, 60 * MINUTE, ticks)
    for _ in range(60):
        ticks.now += 10 * MINUTE
        lease.renew()
        assert lease.why_over == ""
        assert lease.is_held


def test_a_run_that_nobody_answers_ends_after_its_lifetime() -> None:
    ticks = Ticks()
    lease = MachineLease(30 * MINUTE, 120 * MINUTE, ticks)
    ticks.now += 119 * MINUTE
    assert (lease.why_over, lease.is_held) == ("", False)
    ticks.now += 2 * MINUTE
    assert lease.why_over == "no coordinator answered for 121 min, and the machine is up for 121 min"
    lease.renew()
    assert lease.why_over == ""
    ticks.now += 29 * MINUTE
    assert lease.why_over == ""
    ticks.now += 2 * MINUTE
    assert lease.why_over.startswith("no coordinator answered for 31 min")


def test_after_the_training_only_the_lease_keeps_the_machine() -> None:
    ticks = Ticks()
    lease = MachineLease(30 * MINUTE, 600 * MINUTE, ticks)
    ticks.now += 20 * MINUTE
    lease.end_training()
    ticks.now += 29 * MINUTE
    assert lease.why_over == ""
    lease.renew()
    ticks.now += 31 * MINUTE
    assert lease.why_over == "no coordinator answered for 31 min after the training"


def test_without_a_lease_nothing_ends() -> None:
    ticks = Ticks()
    lease = MachineLease(None, None, ticks)
    lease.end_training()
    ticks.now += 1e9
    assert (lease.why_over, lease.may_end) == ("", False)


def test_the_timer_of_the_machine_begins_anew_now_and_then() -> None:
    ticks = Ticks()
    ran: list[list[str]] = []
    timer = LifetimeTimer(ticks, ran.append)
    for _ in range(20):
        ticks.now += REARM_SECONDS / 10
        timer.rearm()
    timer.power_off()
    assert ran == [["systemctl", "restart", LIFETIME_TIMER]] * 2 + [POWER_OFF]


@pytest.mark.parametrize(
    ("planned", "seconds", "most"),
    [
        (timedelta(minutes=2), 30 * MINUTE, 24 * 60 * MINUTE),
        (timedelta(hours=10), 20 * 60 * MINUTE, 40 * 60 * MINUTE),
        (timedelta(days=90), 180 * 24 * 60 * MINUTE, 120 * 24 * 60 * MINUTE),
    ],
)
def test_a_machine_lasts_twice_as_long_as_was_planned_and_its_cloud_knows_more(
    planned: timedelta, seconds: float, most: float
) -> None:
    assert (Lifetime().seconds(planned), Lifetime().most_seconds(planned)) == (seconds, most)


@pytest.mark.parametrize(
    ("changes", "hours"),
    [
        ({}, 5), ({"created_at": NOW + 4 * HOUR}, 5), ({"created_at": NOW + 4 * HOUR, "resumes": "a0"}, 1),
        ({"created_at": NOW + 9 * HOUR, "resumes": "a0"}, 0),
    ],
)  # fmt: skip
def test_a_gang_that_resumes_was_planned_anew(changes: dict[str, Any], hours: int) -> None:
    assert attempt(**changes).planned_time == hours * HOUR


PLAIN = AgentConfig("attempt-7", "bert", 0, 1, "true", "", "https://watch.example.com", "", "", "")
LEASED = replace(PLAIN, lease_seconds=1800.0, lifetime_seconds=7200.0, power_off=True)


def user_data(config: AgentConfig, *, deallocates: bool = False) -> dict[str, object]:
    home = CoordinatorEndpoint(config.coordinator, "0" * 64)
    content: dict[str, object] = yaml.safe_load(
        render_cloud_init(Bootstrap(config, home, NodeSecrets("token"), deallocates=deallocates))
    )
    return content


def test_a_machine_of_a_cloud_has_a_timer_that_outlives_its_agent() -> None:
    content = user_data(LEASED)
    files = {file["path"]: file["content"] for file in content["write_files"]}  # type: ignore[attr-defined]
    timer = files[f"/etc/systemd/system/{LIFETIME_TIMER}"]
    # Lifetime and lease, and an hour more: the agent comes first.
    assert f"OnActiveSec=12600\nUnit={END_SERVICE}" in timer
    assert ["systemctl", "enable", "--now", LIFETIME_TIMER] in content["runcmd"]  # type: ignore[operator]
    unit = files["/etc/systemd/system/stepfare-agent.service"]
    assert f"ExecStopPost=-/usr/bin/env systemd-run --on-active=1800 systemctl start {END_SERVICE}\n" in unit
    end = f"/etc/systemd/system/{END_SERVICE}"
    assert files[end].splitlines()[-1] == "ExecStart=/usr/bin/env systemctl poweroff"
    assert "deallocate" not in str(content)
    azure = str(user_data(LEASED, deallocates=True))
    assert azure.index("agent.pyz --deallocate") < azure.index("systemctl poweroff"), "released first"
    assert LIFETIME_TIMER not in str(user_data(replace(LEASED, power_off=False)))


def test_a_lease_of_no_time_is_refused() -> None:
    for name in ("lease_seconds", "lifetime_seconds"):
        with pytest.raises(AgentConfigError, match=name):
            parse_config({**{f: getattr(PLAIN, f) for f in ("attempt", "job", "rank", "nodes", "command", "workdir")},
                          "coordinator": PLAIN.coordinator, "token_file": "t", "log_folder": "l", "spool_folder": "s",
                          name: 0})  # fmt: skip


_OFFERS = """
import faulthandler, os, signal, sys, time
faulthandler.register(signal.SIGUSR2, all_threads=True)
open(sys.argv[1] + str(os.getpid()), "w").close()
def stands_still():
    time.sleep(600)
stands_still()
"""


def test_stacks_are_asked_of_a_training_that_offers_them_and_of_no_other(tmp_path: Path) -> None:
    """A process that asked for no signal would end by one."""
    offer = str(tmp_path / OFFERED)
    line = f'"{sys.executable}" -c "$0" "{offer}" & exec "{sys.executable}" -c "import time; time.sleep(600)"'
    process = subprocess.Popen(
        ["/bin/sh", "-c", line, _OFFERS], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        eventually(lambda: list(tmp_path.glob(f"{OFFERED}*")), why="for the offer")
        # Of a process that is not the training's nothing is asked.
        (tmp_path / f"{OFFERED}1").touch()
        kept: list[bytes] = []
        keep_stacks(process.pid, tmp_path, kept.append, signals=True)
        text = b"".join(kept).decode()
        assert "the training stands still; stacks of 2 processes" in text
        assert f"process {process.pid} python" in text
        assert process.stdout is not None
        printed = b""
        while b"stands_still" not in printed:
            printed += process.stdout.readline()
        assert process.poll() is None
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_running_gangs_without_a_watcher_are_known_by_every_command(tmp_path: Path) -> None:
    with open_state(tmp_path / "state.db", NOW) as store:
        store.attempts.add(attempt("a1", job="one", plan="p1", phase=Phase.RUNNING), [])
        store.attempts.add(attempt("a2", job="two", plan="p2", phase=Phase.CHECKPOINTING), [])
        store.attempts.add(attempt("a3", job="three", plan="p2", phase=Phase.FINISHED), [])

        def unwatched(seconds: float = 0, *, exists: bool = True) -> tuple[str, ...]:
            return store.watchers.unwatched_jobs(NOW + timedelta(seconds=seconds), lambda _: exists)

        assert unwatched() == ("one", "two")
        store.watchers.mark("p2", NOW)
        assert unwatched() == ("one",)
        store.watchers.mark(None, NOW)
        assert (unwatched(), unwatched(59), unwatched(61)) == ((), (), ("one", "two"))
        # Who was killed here is known at once; of another machine's process nobody can tell.
        assert unwatched(exists=False) == ("one", "two")
        store.watchers.unmark(None)
        store.watchers.unmark("p2")
        assert unwatched() == ("one", "two")
        # Whoever makes or releases machines looks after them meanwhile.
        with store.lease("apply", LockOwner.of_this_process(), lambda: NOW):
            assert unwatched() == ()


def test_the_coordinator_remembers_when_a_training_last_went_on(tmp_path: Path) -> None:
    """A new step counts; before the first one, what is printed."""
    clock = Clock()
    with scene(tmp_path, 1, clock=clock) as gang:
        gang.say(0, "hello")
        gang.say(0, "heartbeat")

        def at(seconds: float, message: str, **body: Any) -> float | None:
            clock.move(seconds)
            assert gang.say(0, message, **body)[0] == 200
            gang.attendance.flush()
            progress = gang.records[0].progress_at
            return None if progress is None else (progress - NOW_OF_SCENE).total_seconds()

        assert at(1, "heartbeat") is None
        assert at(1, "logs") == 2
        assert at(1, "heartbeat", step=1, step_seconds=0.5) == 3
        assert at(1, "heartbeat", step=1, step_seconds=0.7) == 3
        assert at(1, "logs", offset=5) == 3
        assert at(1, "heartbeat", step=2, step_seconds=0.5) == 6


GROUP = "/subscriptions/s/resourceGroups/stepfare-a1"
MACHINE = f"{GROUP}/providers/Microsoft.Compute/virtualMachineScaleSets/g/virtualMachines/3"


class _Metadata(BaseHTTPRequestHandler):
    has_identity = True

    def do_GET(self) -> None:
        """Answer as the instance metadata service does."""
        assert self.headers["Metadata"] == "true"
        is_token = self.path.startswith("/metadata/identity/")
        self.send_response(200 if self.has_identity or not is_token else 400)
        self.end_headers()
        answer = json.dumps({"access_token": "t0ken", "expires_in": "86399"}) if is_token else MACHINE
        self.wfile.write(answer.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def metadata() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Metadata) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_machine_of_a_scale_set_is_deallocated_by_its_own_identity(metadata: str) -> None:
    asked: list[urllib.request.Request] = []

    def open_url(request: urllib.request.Request) -> int:
        asked.append(request)
        return 202

    assert lease.deallocate(metadata, open_url) == 0
    assert [(request.full_url, request.method) for request in asked] == [
        (f"https://management.azure.com{MACHINE}/deallocate?api-version=2024-07-01", "POST")
    ]
    assert asked[0].get_header("Authorization") == "Bearer t0ken"


def test_a_machine_without_an_identity_says_that_it_is_billed_on(
    metadata: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_Metadata, "has_identity", False)
    assert lease.deallocate(metadata, lambda _: pytest.fail("nothing may be asked")) == 1
    assert (
        "not deallocated, and billed until it is: /metadata/identity/oauth2/token: HTTP 400" in capsys.readouterr().err
    )


def test_a_refused_right_shows_no_token(metadata: str, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(request: urllib.request.Request) -> int:
        raise urllib.error.HTTPError(request.full_url, 403, "Forbidden", Message(), None)

    assert lease.deallocate(metadata, refuse) == 1
    said = capsys.readouterr().err
    assert "HTTP 403" in said
    assert "t0ken" not in said
