"""What is announced reaches the main thread and the coordinator at once, each once, and whatever else happens."""

from __future__ import annotations

import json
import os
import queue
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from router.agent import gpu_health
from router.agent import notice_listener as module
from router.agent.calls import CoordinatorClient as Calls
from router.agent.config import AgentConfig, AgentConfigError, parse_config
from router.agent.gpu_health import KernelLogWatch, NvidiaSmiWatch, parse_gpus, run_tool, watches
from router.agent.imds import MachineNotice, NoticeSourceError
from router.agent.notice_listener import NoticeListener, watches_of
from router.agent.rendezvous import GangIncompleteError, RendezvousStoppedError, join_gang
from router.agent.supervise import AgentEvent
from router.agent.xids import find_events
from tests.support.busy import eventually
from tests.support.coordinator import Coordinator
from tests.support.gpu_readings import A100, ADA, K80, KERNEL_LOG, LOST, T4
from tests.support.metadata_service import Machine, MetadataService
from tests.support.repository import ROOT

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
    eventually(lambda: any("nvidia-smi: NoticeSourceError: nvidia-smi: exit code 9" in note for note in ears.notes))
    assert ears.notices.heard == ()
    assert ears.notices.finish(5)


FIELD = ROOT.parent / "shared" / "field"

Run = Callable[[list[str], float], tuple[int, str]]


def _says(*outputs: tuple[int, str]) -> Run:
    left = list(outputs)
    return lambda command, seconds: left.pop(0) if len(left) > 1 else left[0]


def _looked(watch: NvidiaSmiWatch | KernelLogWatch) -> list[MachineNotice]:
    found: list[MachineNotice] = []
    assert watch.look(found.append) == 60.0
    return found


@pytest.mark.parametrize("text", [T4, A100, ADA])
def test_gpus_that_are_well(text: str) -> None:
    (gpu,) = parse_gpus(text)
    assert (gpu.uncorrectable, gpu.hot, list(gpu.problems())) == (0, "", [])
    assert gpu.name.startswith("GPU-")


@pytest.mark.parametrize(
    ("text", "old", "new", "count"),
    [
        (T4, "<sram_uncorrectable>0", "<sram_uncorrectable>3", 3),
        (A100, "<dram_uncorrectable>0", "<dram_uncorrectable>1", 1),
        (ADA, "<sram_uncorrectable_parity>N/A", "<sram_uncorrectable_parity>2", 2),
        (ADA, "<sram_uncorrectable_secded>N/A", "<sram_uncorrectable_secded>5", 5),
        (ADA, "<dram_correctable>N/A", "<dram_correctable>5", 0),
        (K80, "", "", 2),
    ],
)
def test_errors_of_memory_that_could_not_be_corrected(text: str, old: str, new: str, count: int) -> None:
    # The first of that name outside the MIG devices: what counts since the driver was loaded, not for ever.
    head, volatile, rest = text.partition("<volatile>")
    (gpu,) = parse_gpus(head + volatile + rest.replace(old, new, 1))
    assert gpu.uncorrectable == count


def test_each_new_count_is_one_notice() -> None:
    one, two = (A100.replace("<dram_uncorrectable>0", f"<dram_uncorrectable>{count}") for count in (1, 2))
    readings = NvidiaSmiWatch("nvidia-smi", _says((0, A100), (0, one), (0, one), (0, two)))
    found = [_looked(readings) for _ in range(4)]
    uuid = "GPU-513536b6-0000-0000-0000-000000000002"
    assert [[notice.id for notice in notices] for notices in found] == [
        [],
        [f"gpu-ecc-{uuid}-1"],
        [f"gpu-ecc-{uuid}-1"],
        [f"gpu-ecc-{uuid}-2"],
    ]
    notice = found[1][0]
    assert (notice.kind, notice.source, notice.seconds) == ("health", "gpu", None)
    assert notice.what == "NVIDIA A100-SXM4-80GB 00000000:01:00.0: 1 uncorrectable memory errors"


@pytest.mark.parametrize(
    ("text", "word"), [(T4, "throttle_reason_hw"), (A100, "event_reason_hw"), (ADA, "event_reason_sw")]
)
def test_heat_is_told_once_an_hour(text: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hot = text.replace(f"<clocks_{word}_thermal_slowdown>Not ", f"<clocks_{word}_thermal_slowdown>")
    readings = NvidiaSmiWatch("nvidia-smi", _says((0, hot), (0, text), (0, hot)))
    first, cool, again = _looked(readings), _looked(readings), _looked(readings)
    assert (len(first), cool, again) == (1, [], [])
    assert f"slowed down by heat ({word[-2:]}_thermal_slowdown)" in first[0].what
    later = time.monotonic() + gpu_health.HEAT_AGAIN
    monkeypatch.setattr("router.agent.gpu_health.time.monotonic", lambda: later + 1)
    assert [notice.id for notice in _looked(readings)] == [first[0].id.removesuffix("-1") + "-2"]


def test_what_the_driver_itself_calls_broken() -> None:
    (gpu,) = parse_gpus(A100.replace("<remapped_row_failure>No", "<remapped_row_failure>Yes"))
    assert [id_.split("-")[0] for id_, _ in gpu.problems()] == ["rows"]
    (gpu,) = parse_gpus(ADA.replace("<gpu_recovery_action>None", "<gpu_recovery_action>Reset"))
    assert next(iter(gpu.problems()))[1].endswith("needs recovery: Reset")


def test_a_tool_that_fails_after_it_worked_is_a_notice() -> None:
    readings = NvidiaSmiWatch("nvidia-smi", _says((15, LOST), (0, T4), (15, LOST)))
    found: list[MachineNotice] = []
    with pytest.raises(NoticeSourceError, match="GPU is lost"):
        readings.look(found.append)
    assert found == []
    _looked(readings)
    with pytest.raises(NoticeSourceError):
        readings.look(found.append)
    assert [(notice.id, notice.kind) for notice in found] == [("gpu-unreadable", "health")]
    assert "GPU is lost" in found[0].what


@pytest.mark.parametrize("text", ["", "No devices were found", "<nvidia_smi_log>", "<a/>" * 2])
def test_what_is_no_output_is_trouble(text: str) -> None:
    with pytest.raises(NoticeSourceError, match="not XML"):
        parse_gpus(text)


def test_events_of_the_hardware_each_once_and_none_of_programs() -> None:
    notices = _looked(KernelLogWatch("dmesg", _says((0, KERNEL_LOG))))
    assert [notice.id for notice in notices] == [
        "gpu-xid-48-0000:3b:00",
        "gpu-xid-79-0000:86:00",
        "gpu-xid-74-0000:af:00",
        "gpu-sxid-11001-0000:00:00.0",
    ]
    assert notices[1].id == "gpu-xid-79-0000:86:00"
    assert notices[1].what == "Xid 79 on 0000:86:00: pid=1122, GPU has fallen off the bus."


@pytest.mark.skipif(not FIELD.exists(), reason="no ../shared")
def test_repairs_and_nonfatal_notes_are_no_notices() -> None:
    log = (FIELD / "16-xids/dmesg.txt").read_text(encoding="utf-8")
    assert [(event.kind, event.number, event.severity) for event in find_events(log)] == [
        ("Xid", 63, "noted"),
        ("Xid", 145, "noted"),
        ("SXid", 20034, "fatal"),
    ]
    assert [notice.id for notice in _looked(KernelLogWatch("dmesg", _says((0, log))))] == [
        "gpu-sxid-20034-0000:c4:00.0"
    ]


@pytest.mark.parametrize(
    ("number", "words", "severity"),
    [
        (13, "", "noted"),
        (31, "", "noted"),
        (45, "", "noted"),
        (63, "", "noted"),
        (94, "", "serious"),
        (79, "", "fatal"),
    ],
)
def test_severity_of_an_event(number: int, words: str, severity: str) -> None:
    (event,) = find_events(f"NVRM: Xid (PCI:0000:86:00): {number}, pid=1, {words}")
    assert event.severity == severity


def test_a_kernel_log_that_may_not_be_read_is_trouble() -> None:
    log = KernelLogWatch("dmesg", _says((1, "dmesg: read kernel buffer failed: Operation not permitted\n")))
    with pytest.raises(NoticeSourceError, match="not permitted"):
        _looked(log)


def test_tools_are_run_and_not_waited_for_without_end(tmp_path: Path) -> None:
    assert run_tool(["/bin/sh", "-c", "echo a; echo b >&2; exit 3"], 10) == (3, "a\nb\n")
    with pytest.raises(NoticeSourceError, match=r"no answer within 0\.2 s"):
        run_tool(["/bin/sleep", "60"], 0.2)


def test_without_nvidia_smi_nothing_is_looked_at(tmp_path: Path) -> None:
    assert watches({"PATH": str(tmp_path)}) == []
    for name in ("nvidia-smi", "dmesg"):
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\necho {name} "$@"\n')
        tool.chmod(0o755)
    assert [watch.name for watch in watches({"PATH": str(tmp_path)})] == ["nvidia-smi", "dmesg"]
