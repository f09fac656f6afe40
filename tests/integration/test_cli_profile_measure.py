"""``stepfare profile --measure`` as a user runs it, on a device that a module in PyTorch's place plays."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner, Result

import router.app
from router.app.profile import StepDevice
from router.cli.main import app
from router.config.job_points import parse_point
from tests.support.fake_device import H100, JOB, FakeDevice, linear

NOW = "2026-11-25T12:00:00Z"
MODULE = "router.app.torch_device"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tune.yaml"
    path.write_text(JOB, encoding="utf-8")
    return path


def run(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["profile", str(path), "--book", "embedded", "--now", NOW, *arguments])


class DeviceModule(ModuleType):
    """Stands where the module that imports PyTorch would; notes the kinds that were asked for."""

    def __init__(self, device: FakeDevice | None) -> None:
        super().__init__(MODULE)
        self.device = device
        self.kinds: list[str] = []

    def find_device(self, kind: str) -> StepDevice | None:
        self.kinds.append(kind)
        return self.device


def plug(monkeypatch: pytest.MonkeyPatch, device: FakeDevice | None) -> DeviceModule:
    module = DeviceModule(device)
    monkeypatch.delattr(router.app, "torch_device", raising=False)
    monkeypatch.setitem(sys.modules, MODULE, module)
    if device is not None:
        monkeypatch.setattr("time.perf_counter", device.clock)
    return module


def test_points_are_printed_and_written_as_add_would(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = plug(monkeypatch, FakeDevice(H100, 79.2, linear))
    result = run(file, "--measure", "--points", "2")
    assert result.exit_code == 0, result.output
    assert module.kinds == ["auto"]
    assert f"{file}: 2 points added to tune" in result.stderr
    lines = [line for line in result.stdout.splitlines() if line.startswith("accelerators=")]
    written = file.read_text(encoding="utf-8")
    assert [parse_point(line)["batch"] for line in lines] == [4, 1]
    assert 'source: "measured on NVIDIA H100 80GB HBM3, 2026-11-25: ' in written
    assert 'placement: "1x1", batch: 4, precision: bf16, seconds_per_step: 0.74' in written
    # The same lines, given to --add, make the same file.
    file.write_text(JOB, encoding="utf-8")
    added = run(file, *(word for line in lines for word in ("--add", line)))
    assert added.exit_code == 0, added.output
    assert file.read_text(encoding="utf-8") == written


def test_json_has_what_was_timed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = plug(monkeypatch, FakeDevice(H100, 79.2, linear))
    result = run(file, "--measure", "rocm", "--points", "1", "-o", "json")
    assert module.kinds == ["rocm"]
    (point,) = json.loads(result.stdout)["points"]
    assert point["seconds_per_step"] == pytest.approx(0.74)
    assert point["layers"] == 32
    assert [timed["steps"] for timed in point["timed"]] == [20, 20, 20]
    assert parse_point(point["add"])["accelerators"] == "H100:1"


def test_the_processor_is_measured_if_named_and_its_point_is_not_written(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = plug(monkeypatch, FakeDevice("cpu", 400, linear))
    result = run(file, "--measure", "cpu", "--points", "1")
    assert result.exit_code == 0, result.output
    assert module.kinds == ["cpu"]
    assert "accelerators=cpu:1," in result.stdout
    assert "is as it was: cpu: the accelerator is not in the book" in result.stderr
    assert file.read_text(encoding="utf-8") == JOB


def test_without_pytorch_it_says_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(router.app, "torch_device", raising=False)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    result = run(file, "--measure")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: measuring needs PyTorch, which is not installed\n    pip install 'stepfare[measure]'\n"
    )
    assert result.stdout == ""
    assert file.read_text(encoding="utf-8") == JOB


@pytest.mark.parametrize(("kind", "said"), [((), "no accelerator is at hand"), (("mps",), "no mps accelerator")])
def test_without_an_accelerator_it_says_what_to_do(
    file: Path, monkeypatch: pytest.MonkeyPatch, kind: tuple[str, ...], said: str
) -> None:
    plug(monkeypatch, None)
    result = run(file, "--measure", *kind)
    assert result.exit_code == 1
    assert said in result.stderr
    assert "--measure cpu measures the processor" in result.stderr
    assert file.read_text(encoding="utf-8") == JOB


def test_no_sound_result_writes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plug(monkeypatch, FakeDevice(H100, 79.2, lambda shape: 0.1))
    result = run(file, "--measure")
    assert result.exit_code == 1
    assert (
        "nothing could be measured on NVIDIA H100 80GB HBM3: batch 4: the time of a step does not grow" in result.stderr
    )
    assert file.read_text(encoding="utf-8") == JOB


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        (JOB.replace("6.74B", "6.74B\n    lora: true"), ("--measure",), r"tune.yaml:\d+.*adapters \(lora\)"),
        (
            (
                "name: tune\nteam: x\nsteps: 9\nworkload:\n  profile: {accelerators: 'H100:8', seconds_per_step: 2}\n"
                "gang: {accelerators: 'H100:8'}\n"
            ),
            ("--measure",),
            r"tune.yaml:\d+.*workload.transformer: tune has no transformer",
        ),
        (JOB, ("cpu",), "DEVICE: cpu is for --measure"),
        (JOB, ("--measure", "--add", "accelerators=H100:8,seconds_per_step=2"), "--measure and --add are both given"),
        (JOB, ("--measure", "--job", "other"), "holds no job|holds tune"),
    ],
)
def test_wrong_input_is_refused(file: Path, text: str, arguments: tuple[str, ...], said: str) -> None:
    file.write_text(text, encoding="utf-8")
    result = run(file, *arguments)
    assert result.exit_code == 2, result.output
    assert re.search(said, " ".join(result.stderr.split())), result.stderr
    assert file.read_text(encoding="utf-8") == text
