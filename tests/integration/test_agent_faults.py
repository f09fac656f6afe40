"""What goes wrong on a machine: signals, kills, a coordinator that is away, output without end, secrets."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.agents import Rank, agents, alive
from tests.support.busy import eventually
from tests.support.coordinator import Coordinator

TOKEN = "token-canary-8d1b7c"
SECRET = "secret-canary-91ee04"
SAVES = """
python3 -c '
import os, signal, sys, time
def save(*_):
    time.sleep(0.3)
    os.write(1, b"saved\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
'
"""
STUBBORN = """
exec python3 -c '
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
'
"""


def _ready(rank: Rank, word: str = "ready") -> None:
    limit = time.monotonic() + 20
    while word not in rank.log():
        assert time.monotonic() < limit, rank.log() + rank.log("agent.log")
        time.sleep(0.01)


def _gone(pids: list[int]) -> None:
    limit = time.monotonic() + 10
    while left := [pid for pid in pids if alive(pid)]:
        assert time.monotonic() < limit, f"still there: {left}"
        time.sleep(0.01)


@pytest.mark.parametrize("by", ["signal", "order", "over"])
@pytest.mark.parametrize("command", [SAVES, f"echo from a shell; {SAVES}\necho never said"], ids=["direct", "shell"])
def test_told_to_stop_it_lets_the_training_save(tmp_path: Path, by: str, command: str) -> None:
    with Coordinator(1, TOKEN).running() as coordinator, agents(tmp_path, coordinator, command) as (rank,):
        _ready(rank)
        if by == "signal":
            rank.process.terminate()
        elif by == "order":
            coordinator.stops.add(0)
        else:
            coordinator.over = True
        assert rank.end() == 143
    assert rank.log().endswith("ready\nsaved\n")
    if by != "over":
        (ended,) = coordinator.messages("ended")
        told = "signal SIGTERM" if by == "signal" else "order stop"
        assert (ended["state"], ended["reason"], ended["message"]) == ("ended", "stopped", told)


def test_what_does_not_stop_is_killed_after_the_grace(tmp_path: Path) -> None:
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path, coordinator, STUBBORN, grace_seconds=0.3) as (rank,),
    ):
        _ready(rank)
        began = time.monotonic()
        rank.process.terminate()
        assert rank.end() == 143
        assert time.monotonic() - began > 0.3
    (ended,) = coordinator.messages("ended")
    assert (ended["state"], ended["signal"]) == ("ended", signal.SIGKILL)


def test_told_to_stop_while_it_waits_for_the_others(tmp_path: Path) -> None:
    with Coordinator(2, TOKEN).running() as coordinator, agents(tmp_path, coordinator, "true", only=[0]) as (rank,):
        coordinator.wait(lambda c: bool(c.messages("hello")))
        rank.process.terminate()
        assert rank.end() == 143
    (ended,) = coordinator.messages("ended")
    assert (ended["state"], ended["reason"], ended["exit_code"]) == ("ended", "stopped", None)


def test_what_the_training_leaves_behind_goes_with_it(tmp_path: Path) -> None:
    with Coordinator(1, TOKEN).running() as coordinator, agents(tmp_path, coordinator, "sleep 60 & echo $!") as (rank,):
        assert rank.end() == 0
    _gone([int(rank.log())])


def test_a_killed_agent_leaves_nobody_behind(tmp_path: Path) -> None:
    command = f"sleep 61 & echo $$ $!; {STUBBORN}"
    with Coordinator(1, TOKEN).running() as coordinator, agents(tmp_path, coordinator, command) as (rank,):
        _ready(rank)
        pids = [int(word) for word in rank.log().split()[:2]]
        assert all(alive(pid) for pid in pids)
        rank.process.kill()
        _gone(pids)
        _gone([pid for pid in _processes() if str(tmp_path) in _arguments(pid)])


def test_a_coordinator_that_is_away_for_a_while_misses_nothing(tmp_path: Path) -> None:
    command = "for i in 1 2 3 4 5 6; do echo step $i; sleep 0.2; done"
    with Coordinator(2, TOKEN).running() as coordinator, agents(tmp_path, coordinator, command) as ranks:
        coordinator.wait_state("running")
        with coordinator.away():
            for rank in ranks:
                _ready(rank, "step 6")
        assert [rank.end() for rank in ranks] == [0, 0]
    for number, rank in enumerate(ranks):
        assert coordinator.text(number) == "".join(f"step {i}\n" for i in range(1, 7))
        assert [message["reason"] for message in coordinator.messages("ended", number)] == ["finished"]
        assert "coordinator away" in rank.log("agent.log")
        assert list((rank.folder / "spool").iterdir()) == []


def test_one_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    with Coordinator(1, TOKEN).running() as coordinator:
        with coordinator.away():
            started = agents(tmp_path, coordinator, "echo started")
            (rank,) = started.__enter__()
            eventually(lambda: "hello: " in rank.log("agent.log"))
        try:
            assert rank.end() == 0
        finally:
            started.__exit__(None, None, None)
    assert coordinator.text(0) == "started\n"


def test_what_a_proxy_says_on_the_way_stops_nothing(tmp_path: Path) -> None:
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path, coordinator, "sleep 0.7; echo done") as (rank,),
    ):
        coordinator.wait_state("running")
        coordinator.fail_next(502, 503, 404, 403, 410, 429)
        assert rank.end() == 0
    assert coordinator.text(0) == "done\n"


def test_one_that_stays_away_finds_it_all_in_the_spool(tmp_path: Path) -> None:
    coordinator = Coordinator(1, TOKEN)
    with coordinator.running(), agents(tmp_path, coordinator, "sleep 0.5; echo said", farewell_seconds=0.3) as (rank,):
        coordinator.wait_state("running")
        with coordinator.away():
            assert rank.end() == 0
            spooled = sorted((rank.folder / "spool").iterdir())
            assert [path.name.split("-")[1] for path in spooled] == ["logs.json", "ended.json"]
            assert json.loads(spooled[0].read_text())["text"] == "said\n"
            assert json.loads(spooled[1].read_text())["reason"] == "finished"
            assert [path.stat().st_mode & 0o777 for path in spooled] == [0o600, 0o600]
            assert (rank.folder / "spool").stat().st_mode & 0o777 == 0o700


def test_output_without_end_stays_within_its_bounds(tmp_path: Path) -> None:
    command = "python3 -c \"import sys; [print(f'{i:07d}' * 20) for i in range(40000)]; print('the last line')\""
    bounds: dict[str, Any] = {"log_bytes": 100_000, "log_files": 3, "spool_bytes": 200_000}
    with Coordinator(1, TOKEN).running() as coordinator, agents(tmp_path, coordinator, command, **bounds) as (rank,):
        assert rank.end() == 0
    logs = sorted((rank.folder / "log").glob("train.log*"))
    assert [log.name for log in logs] == ["train.log", "train.log.1", "train.log.2"]
    assert all(log.stat().st_size <= 100_000 for log in logs)
    whole = "".join(log.read_text() for log in reversed(logs))
    assert whole.endswith("the last line\n")
    # What was sent says where in the whole it stands, so a gap is seen.
    last = coordinator.messages("logs")[-1]
    assert last["offset"] + last["bytes"] == 40_000 * 141 + len("the last line\n")
    assert last["text"].endswith("the last line\n")


def test_a_secret_is_in_no_argument_no_log_and_no_message(tmp_path: Path) -> None:
    command = (
        'test "$API_KEY" = "$(cat ../expected)" && echo it is $API_KEY; printf \'%s\' "${API_KEY%04}"; sleep 0.1; '
        "echo 04; env; echo ready; sleep 0.5"
    )
    environment = {"plain": {"COLOUR": "blue"}, "secret": {"API_KEY": SECRET}}
    with Coordinator(1, TOKEN).running() as coordinator:
        (tmp_path / "rank-0").mkdir()
        (tmp_path / "rank-0" / "expected").write_text(SECRET)
        with agents(tmp_path, coordinator, command, environment=environment) as (rank,):
            _ready(rank)
            seen = [_arguments(pid) for pid in _processes() if pid != os.getpid()]
            assert any("agent.pyz" in arguments for arguments in seen)
            assert [a for a in seen if SECRET in a or TOKEN in a] == []
            assert rank.end() == 0
    written = [*(rank.folder / "log").iterdir(), *(rank.folder / "spool").iterdir(), rank.folder / "stderr"]
    heard = json.dumps([message.body for message in coordinator.heard])
    for text in [*(path.read_text() for path in written), heard]:
        assert SECRET not in text
        assert TOKEN not in text
    assert rank.log().startswith("it is ***\n***\n")
    assert "COLOUR=blue\n" in rank.log()


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _arguments(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
