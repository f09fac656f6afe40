"""The examples for PyTorch, Lightning and Hugging Face: their own code, against small fakes with the real names."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from router.agent.helper import stepfare_checkpoint
from router.agent.helper.stepfare_checkpoint import Checkpoints
from tests.support.repository import ROOT

EXAMPLES = ROOT / "examples" / "checkpoints"


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "control").mkdir()
    monkeypatch.setenv("STEPFARE_CONTROL", str(tmp_path / "control"))
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path / "control"
    signal.signal(signal.SIGTERM, before)


def _module(name: str, **content: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(content)
    return made


def _load(name: str, monkeypatch: pytest.MonkeyPatch, *fakes: ModuleType) -> Any:
    for fake in (*fakes, stepfare_checkpoint):
        monkeypatch.setitem(sys.modules, fake.__name__.rpartition("router.agent.helper.")[2], fake)
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _ask(control: Path, name: str, reason: str = "ordered") -> None:
    body = {"version": 1, "id": name, "reason": reason, "seconds": 60.0, "until": time.monotonic() + 60}
    (control / "part").write_text(json.dumps(body))
    (control / "part").replace(control / "request.json")


def _said(control: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((control / "saved.json").read_text())
    return found


def _steps(folder: Path) -> list[int]:
    return [step for step, _ in Checkpoints(folder, rank=-1)._manifests()]


class _Number:
    def __init__(self, values: list[int], device: str) -> None:
        self.values, self.device = values, device

    def item(self) -> int:
        return self.values[0]


def _torch() -> tuple[ModuleType, ModuleType]:
    """Of ``torch`` and ``torch.distributed`` what the examples use, for a gang of one."""
    ours = [0]
    distributed = _module(
        "torch.distributed",
        ReduceOp=SimpleNamespace(MAX="max"),
        is_initialized=lambda: True,
        barrier=lambda: None,
        get_rank=lambda: 0,
        get_world_size=lambda: 1,
        get_backend=lambda: "gloo",
        all_reduce=lambda number, op: None,
        broadcast_object_list=lambda values, src: None,
    )
    torch = _module(
        "torch",
        distributed=distributed,
        tensor=_Number,
        save=lambda value, path: Path(path).write_bytes(pickle.dumps(value)),
        load=lambda path, map_location=None, weights_only=False: pickle.loads(Path(path).read_bytes()),
        get_rng_state=lambda: ours[0],
        set_rng_state=lambda value: ours.__setitem__(0, value),
    )
    return torch, distributed


class _Weights:
    """A model and its optimizer: each step adds the batch, and what it remembers of the one before."""

    def __init__(self) -> None:
        self.state = {"value": 0.0}
        self.batch = 0.0

    def __call__(self, batch: float) -> Any:
        self.batch = batch
        chain = SimpleNamespace(backward=lambda: None)
        return SimpleNamespace(square=lambda: SimpleNamespace(mean=lambda: chain))

    def state_dict(self) -> dict[str, float]:
        return dict(self.state)

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.state = dict(state)


class _Optimizer(_Weights):
    def __init__(self, model: _Weights) -> None:
        super().__init__()
        self.model = model

    def zero_grad(self) -> None:
        """Nothing."""

    def step(self) -> None:
        self.state["value"] = 0.5 * self.state["value"] + self.model.batch
        self.model.state["value"] += self.state["value"]


def test_plain_pytorch_stops_when_asked_and_goes_on_as_if_nothing_had_been(
    control: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = _load("plain_pytorch", monkeypatch, *_torch())

    def run(folder: Path, asks: dict[int, str]) -> tuple[int, float]:
        def batch_of(step: int) -> float:
            if step in asks:
                _ask(control, f"c-{step}", asks[step])
            return step / 7

        model = _Weights()
        checkpoints = Checkpoints(folder, agree=example.agree)
        ended = example.train(model, _Optimizer(model), batch_of, checkpoints, steps=20, every=8)
        return ended, model.state["value"]

    _, whole = run(tmp_path / "whole", {})
    assert _steps(tmp_path / "whole") == [20, 16, 8]
    (control / "request.json").unlink(missing_ok=True)
    ended, _ = run(tmp_path / "cut", {5: "interruption", 11: "stop"})
    assert (ended, _steps(tmp_path / "cut"), _said(control)["id"]) == (11, [11, 8, 5], "c-11")
    (control / "request.json").unlink()
    assert run(tmp_path / "cut", {}) == (20, whole)


def test_lightning_saves_when_asked_at_the_end_and_never_twice_the_same(
    control: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Trainer:
        global_rank, world_size, is_global_zero, max_steps, should_stop, global_step = 0, 1, True, 20, False, 0
        fit_loop = SimpleNamespace(total_batch_idx=6)
        strategy = SimpleNamespace(reduce_boolean_decision=lambda flag, all: flag)  # noqa: A006  (their name)
        written: tuple[str, ...] = ()

        def save_checkpoint(self, filepath: Path) -> None:
            """As a folder, which sharded strategies make."""
            filepath.mkdir()
            (filepath / "shard").write_text(str(self.global_step))
            self.written += (filepath.name,)

    fake = _module("lightning.pytorch.callbacks", Callback=object)
    example = _load("lightning", monkeypatch, _module("lightning"), _module("lightning.pytorch"), fake)
    folder, trainer = tmp_path / "run", Trainer()
    callback = example.Interruptions(folder, every=4)
    assert callback.newest() is None
    callback.on_fit_start(trainer, None)
    callback.on_train_start(trainer, None)
    for batch in range(12):  # two batches a step
        trainer.global_step = (batch + 1) // 2
        if batch == 4:
            _ask(control, "c-1")
        callback.on_train_batch_end(trainer, None, None, None, batch)
        assert not trainer.should_stop
    assert _said(control)["after"] == "c-1"
    os.kill(os.getpid(), signal.SIGTERM)
    callback.on_train_batch_end(trainer, None, None, None, 12)
    assert trainer.should_stop
    callback.on_fit_end(trainer, None)
    assert trainer.written == tuple(f"lightning-0000000{step}.ckpt" for step in (2, 4, 6))
    assert _steps(folder) == [6, 4, 2]
    assert callback.newest() == str(folder / "lightning-00000006.ckpt")


def test_hugging_face_saves_when_asked_and_each_of_its_checkpoints_counts(
    control: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = _module("transformers", TrainerCallback=object)
    example = _load("huggingface", monkeypatch, *_torch(), fake)
    folder = tmp_path / "run"
    args = SimpleNamespace(output_dir=str(folder), process_index=0, world_size=1)
    control_ = SimpleNamespace(should_save=False, should_training_stop=False)
    callback = example.Interruptions(args.output_dir)
    assert callback.newest() is None
    callback.on_train_begin(args, SimpleNamespace(), control_)
    for step in range(1, 10):
        state = SimpleNamespace(global_step=step, max_steps=20, epoch=0.5)
        if step in (3, 8):
            _ask(control, f"c-{step}", "stop" if step == 8 else "ordered")
        control_.should_save = step % 5 == 0
        callback.on_step_end(args, state, control_, model=None)
        if control_.should_save:
            place = folder / f"checkpoint-{step}"
            place.mkdir()
            (place / "model.safetensors").write_text(str(step))
            callback.on_save(args, state, control_, model=None)
        if control_.should_training_stop:
            break
    assert (step, _steps(folder), _said(control)["id"]) == (8, [8, 5, 3], "c-8")
    assert callback.newest() == str(folder / "checkpoint-8")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_each_is_python_3_9_and_no_longer_than_one_reads(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 9))
    assert len(path.read_text().splitlines()) < 100
