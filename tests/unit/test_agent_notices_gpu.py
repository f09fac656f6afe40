"""What the GPUs' own tools say, and what of it is worth a notice."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from router.agent import gpu_health
from router.agent.gpu_health import KernelLogWatch, NvidiaSmiWatch, parse_gpus, run_tool, watches
from router.agent.imds import MachineNotice, NoticeSourceError
from router.agent.xids import find_events
from tests.support.gpu_readings import A100, ADA, K80, KERNEL_LOG, LOST, T4
from tests.support.repository import ROOT

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
