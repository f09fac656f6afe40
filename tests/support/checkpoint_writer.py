"""Saves checkpoints in processes that are killed, each before another one of the calls by which the helper works on
files.

``python checkpoint_writer.py HELPER FOLDER MODE STRIDE`` forks one process for every STRIDE-th call, in FOLDER/CALL,
until one is done without being killed; then it starts each again, unharmed. A line a process: CALL, the steps that it
confirmed, the newest good one, the steps that the second confirmed.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

STEPS, KEEP = 4, 2


def content(step: int) -> bytes:
    """What is saved in the first of the files."""
    return f"step {step}\n".encode() * 1000


def load(path: str) -> Any:
    """The helper from its one file, as a job has it."""
    spec = importlib.util.spec_from_file_location("stepfare_checkpoint", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def train(module: Any, folder: Path, mode: str, attempt: str, out: int) -> None:
    """Goes on from the newest and says each step that is saved."""
    checkpoints = module.Checkpoints(folder, keep=KEEP, attempt=attempt)
    good = checkpoints.newest()
    for step in range(good.step + 1 if good else 1, STEPS + 1):

        def write(place: Path, step: int = step) -> None:
            (place / "deep").mkdir()
            (place / "state").write_bytes(content(step))
            (place / "deep" / "more").write_bytes(b"more")

        path = folder / f"own-{step}"
        if mode == "files":
            path.write_bytes(content(step))
        saved = checkpoints.save(step, write if mode == "write" else [path], data_position=step * 10)
        os.write(out, f" {saved.step}".encode())


def _killed_at(call: int) -> None:
    calls = 0

    def count(_: Any, event: str, function: Any) -> None:
        nonlocal calls
        if event == "c_call" and (
            getattr(function, "__module__", "") in ("posix", "io", "_io")
            or type(getattr(function, "__self__", None)).__module__ == "_io"
        ):
            calls += 1
            if calls == call:
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(count)
    sys.setprofile(count)


def _forked(module: Any, folder: Path, mode: str, attempt: str, call: int) -> tuple[int, str]:
    """(how it ended, what it said)."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(2)
        if call:
            _killed_at(call)
        train(module, folder, mode, attempt, writing)
        os._exit(0)
    os.close(writing)
    said = b""
    while data := os.read(reading, 4096):
        said += data
    os.close(reading)
    return os.waitpid(child, 0)[1], said.decode()


def main(helper: str, folder: str, mode: str, stride: int) -> None:
    module = load(helper)
    for call in range(1, 100_000, stride):
        own = Path(folder) / str(call)
        status, said = _forked(module, own, mode, "one", call)
        os.write(1, f"{call}:{said}".encode())
        if status == 0:
            os.write(1, b"\n")
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        kept = module.Checkpoints(own, attempt="look").newest() if own.exists() else None
        status, again = _forked(module, own, mode, "two" if call % 2 else "one", 0)
        assert status == 0
        os.write(1, f" newest {kept.step if kept else 0} then{again}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
