"""What is announced reaches the main thread and the coordinator at once, each once, and whatever else happens."""

from __future__ import annotations

import json
import os
import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from router.agent import notice_listener as module
from router.agent.calls import CoordinatorClient as Calls
from router.agent.config import AgentConfig, AgentConfigError, parse_config
from router.agent.imds import MachineNotice
from router.agent.notice_listener import NoticeListener, watches_of
from router.agent.rendezvous import GangIncompleteError, RendezvousStoppedError, join_gang
from router.agent.supervise import AgentEvent
from tests.support.coordinator import Coordinator
from tests.support.metadata_service import Machine, MetadataService

TOKEN = "token-canary-9f31"
WHO = {"protocol": 1, "incarnation": "life-1"}
FIRST = MachineNotice("n-1", "interruption", "sandbox", 30.0, "preempted")


def _config(folder: Path, coordinator: str = "http://127.0.0.1:1", **more: Any) -> AgentConfig:
    return parse_config(
        {
            "attempt": "attempt-1", "job": "j", "rank": 0, "nodes": 1, "command": "true", "workdir": "w",
            "coordinator": coordinator, "token_file": "t", "log_folder": "l", "spool_folder": str(folder / "spool"),
            **more,
        }
    )  # fmt: skip


class Ears:
    """Notices of one agent, and what it said beside them."""

    def __init__(self, config: AgentConfig, path: str = "/nowhere") -> None:
        self.events: queue.SimpleQueue[AgentEvent] = queue.SimpleQueue()
        self.notes: list[str] = []
        calls = Calls(config.coordinator, attempt="attempt-1", rank=0, token=TOKEN, ca_file=None, seconds=2.0)
        self.notices = NoticeListener(
            config, calls, who=WHO, events=self.events, note=self.notes.append, environment={"PATH": path}
        )

    def next(self) -> MachineNotice:
        event = self.events.get(timeout=10)
        assert event.kind == "notice"
        assert isinstance(event.detail, MachineNotice)
        return event.detail


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    with Coordinator(1, TOKEN).running() as running:
        yield running


@pytest.fixture
def ears(tmp_path: Path, coordinator: Coordinator) -> Iterator[Ears]:
    made = Ears(_config(tmp_path, coordinator.url, metadata="files"))
    made.notices.start()
    yield made
    made.notices.finish(0)


def _said(coordinator: Coordinator) -> list[str]:
    return [body["id"] for body in coordinator.messages("notice")]


def _drop(folder: Path, id_: str, **more: Any) -> None:
    (folder / "new").write_text(json.dumps({"kind": "interruption", "seconds": 30, "id": id_, **more}))
    (folder / "new").rename(folder / "notice.json")


def test_a_notice_is_an_event_and_a_message(ears: Ears, coordinator: Coordinator, tmp_path: Path) -> None:
    _drop(tmp_path, "n-1", what="drill")
    notice = ears.next()
    assert (notice.id, notice.kind, notice.source, notice.what) == ("n-1", "interruption", "sandbox", "drill")
    coordinator.wait(lambda c: bool(c.messages("notice")))
    (body,) = coordinator.messages("notice")
    assert 25.0 < body.pop("seconds") <= 30.0
    assert body == {**WHO, "id": "n-1", "kind": "interruption", "source": "sandbox", "what": "drill"}
    assert ears.notices.heard == (notice,)
    assert any("n-1" in note and "30 s left" in note for note in ears.notes)


def test_the_same_announcement_is_told_once(ears: Ears, coordinator: Coordinator) -> None:
    for _ in range(5):
        ears.notices.tell(replace(FIRST, seconds=1.0))
    ears.notices.tell(replace(FIRST, id="n-2"))
    coordinator.wait(lambda c: len(c.messages("notice")) == 2)
    assert ears.notices.finish(5)
    assert _said(coordinator) == ["n-1", "n-2"]
    assert [ears.next().id, ears.next().id] == ["n-1", "n-2"]
    assert ears.events.empty()


def test_it_waits_on_disk_for_a_coordinator_that_is_away_and_says_what_is_left_then(
    ears: Ears, coordinator: Coordinator, tmp_path: Path
) -> None:
    with coordinator.away():
        ears.notices.tell(replace(FIRST, at=time.monotonic()))
        assert ears.next().id == "n-1"
        time.sleep(1.2)
        (kept,) = (tmp_path / "spool" / "notices").iterdir()
        assert kept.stat().st_mode & 0o777 == 0o600
        assert json.loads(kept.read_text())["id"] == "n-1"
        assert not ears.notices.finish(0)
    assert ears.notices.finish(10)
    (body,) = coordinator.messages("notice")
    assert 15.0 < body["seconds"] < 28.9
    assert list((tmp_path / "spool" / "notices").iterdir()) == []


def test_an_answer_of_something_on_the_way_is_none(ears: Ears, coordinator: Coordinator) -> None:
    coordinator.fail_next(502, 503, 404)
    ears.notices.tell(FIRST)
    coordinator.wait(lambda c: _said(c) == ["n-1"])


def test_a_refusal_is_an_answer(ears: Ears, coordinator: Coordinator) -> None:
    coordinator.over = True
    ears.notices.tell(FIRST)
    assert ears.notices.finish(10)
    assert "notice n-1: the coordinator refused: attempt_over" in ears.notes
    coordinator.over = False
    assert _said(coordinator) == []


def test_one_that_an_earlier_life_left_is_told_without_a_time(tmp_path: Path, coordinator: Coordinator) -> None:
    away = Ears(_config(tmp_path, metadata="files"))
    away.notices.tell(FIRST)
    now = Ears(_config(tmp_path, coordinator.url, metadata="files"))
    now.notices.start()
    coordinator.wait(lambda c: _said(c) == ["n-1"])
    assert coordinator.messages("notice")[0]["seconds"] is None
    assert now.notices.finish(10)


def test_without_a_metadata_service_nothing_runs(tmp_path: Path) -> None:
    ears = Ears(_config(tmp_path))
    ears.notices.start()
    assert ears.notices.finish(0)
    assert not (tmp_path / "spool").exists()
    assert not ears.notices.acknowledge("e-1")


@contextmanager
def _watching(folder: Path, dialect: str) -> Iterator[tuple[Ears, Machine]]:
    with MetadataService().running() as service:
        config = _config(folder, metadata=dialect, metadata_url=service.url, notice_poll_seconds=0.02)
        ears = Ears(config)
        ears.notices.start()
        yield ears, service.machine
        ears.notices.finish(0)


def test_trouble_is_noted_once_and_that_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_WAITS", (0.02, 0.05))
    with _watching(tmp_path, "azure") as (ears, machine):
        machine.faults = [(500, {})] * 6
        while machine.faults or len(ears.notes) < 2:
            time.sleep(0.01)
        machine.event("e-1")
        assert ears.next().id == "e-1"
        assert ears.notes[0].startswith("the metadata service: NoticeSourceError: /metadata/")
        assert ears.notes[1] == "the metadata service answers"
        assert len([note for note in ears.notes if "NoticeSourceError" in note]) == 1


def test_a_watch_that_breaks_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_WAITS", (0.01, 0.02))

    class Broken:
        name = "it"
        times = 0

        def look(self, tell: Any) -> float:
            self.times += 1
            if self.times < 4:
                raise ZeroDivisionError
            tell(FIRST)
            return 60.0

    monkeypatch.setattr(module, "watches_of", lambda _: [Broken()])
    ears = Ears(_config(tmp_path))
    ears.notices.start()
    assert ears.next() == FIRST
    ears.notices.finish(0)


def test_azure_is_told_that_it_may_begin_only_when_somebody_says_so(tmp_path: Path) -> None:
    with _watching(tmp_path, "azure") as (ears, machine):
        machine.event("e-1")
        assert ears.next().id == "e-1"
        time.sleep(0.1)
        assert machine.acknowledged == []
        assert ears.notices.acknowledge("e-1")
        assert machine.acknowledged == ["e-1"]
        machine.faults = [(500, {})] * 50
        assert not ears.notices.acknowledge("e-1")
        assert any(note.startswith("notice e-1 not acknowledged") for note in ears.notes)


def test_clouds_that_ask_for_nothing_are_told_nothing(tmp_path: Path) -> None:
    with _watching(tmp_path, "aws") as (ears, machine):
        machine.interrupt()
        assert not ears.notices.acknowledge(ears.next().id)


@pytest.mark.parametrize(("dialect", "threads"), [("none", 0), ("aws", 1), ("gcp", 2), ("azure", 1), ("files", 1)])
def test_what_is_looked_at(tmp_path: Path, dialect: str, threads: int) -> None:
    assert len(watches_of(_config(tmp_path, metadata=dialect))) == threads


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"metadata": "moon"}, "metadata: no such"),
        ({"metadata": "../aws"}, "metadata: no such"),
        ({"metadata": ""}, "metadata: no such"),
        ({"metadata": "aws", "metadata_url": "https://x"}, "metadata_url: not the http URL"),
        ({"metadata": "aws", "metadata_url": "169.254.169.254"}, "metadata_url: not the http URL"),
        ({"metadata": "aws", "notice_poll_seconds": 0}, "notice_poll_seconds: not between"),
        ({"metadata": "aws", "notice_poll_seconds": "5"}, "notice_poll_seconds: not of type"),
        ({"metadata": None}, "metadata: not of type"),
    ],
)
def test_a_configuration_that_cannot_be_used(tmp_path: Path, more: dict[str, Any], problem: str) -> None:
    with pytest.raises(AgentConfigError, match=problem):
        _config(tmp_path, **more)


def test_a_notice_does_not_end_the_wait_for_the_others(tmp_path: Path, coordinator: Coordinator) -> None:
    coordinator.nodes = 2
    config = _config(tmp_path, coordinator.url, nodes=2, gang_seconds=0.5, heartbeat_seconds=0.05, address="127.0.0.1")
    calls = Calls(config.coordinator, attempt="attempt-1", rank=0, token=TOKEN, ca_file=None, seconds=2.0)
    events: queue.SimpleQueue[AgentEvent] = queue.SimpleQueue()
    events.put(AgentEvent("notice", FIRST))
    hello = {**WHO, "nodes": 2, "host": "h", "engine": "command"}
    with pytest.raises(GangIncompleteError):
        join_gang(config, calls, hello, events, lambda _: None, lambda event: event.kind == "notice")
    events.put(AgentEvent("notice", FIRST))
    events.put(AgentEvent("signal", "SIGTERM"))
    with pytest.raises(RendezvousStoppedError):
        join_gang(config, calls, hello, events, lambda _: None, lambda event: event.kind == "notice")


def test_time_goes_by() -> None:
    assert replace(FIRST, seconds=None).left() is None
    assert replace(FIRST, at=time.monotonic() - 40).left() == 0.0
    assert 9.0 < (replace(FIRST, at=time.monotonic() - 20).left() or 0) <= 10.0


def test_the_tools_of_a_machine_with_gpus_are_looked_at(tmp_path: Path, coordinator: Coordinator) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nexit 9\n")
    tool.chmod(0o755)
    ears = Ears(_config(tmp_path, coordinator.url), f"{tmp_path}:{os.environ['PATH']}")
    ears.notices.start()
    limit = time.monotonic() + 10
    while not any("nvidia-smi: NoticeSourceError: nvidia-smi: exit code 9" in note for note in ears.notes):
        assert time.monotonic() < limit
        time.sleep(0.02)
    assert ears.notices.heard == ()
    assert ears.notices.finish(5)
