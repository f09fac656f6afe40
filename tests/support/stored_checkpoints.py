"""Checkpoints for tests of durable storage: saved by the helper, in a folder."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from router.agent.helper.stepfare_checkpoint import Checkpoints, Good

_PIECE = 2**24


def save(folder: Path, step: int, files: Mapping[str, int] | None = None, attempt: str = "a", keep: int = 100) -> Good:
    """One checkpoint with files of so many bytes, the same for the same step and attempt."""
    noise = random.Random(f"{step} {attempt}")

    def write(place: Path) -> None:
        for name, size in (files or {"state": 3000, "deep/more": 10}).items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            with (place / name).open("wb") as stream:
                for begin in range(0, size, _PIECE):
                    stream.write(noise.randbytes(min(_PIECE, size - begin)))

    return Checkpoints(folder, keep=keep, attempt=attempt).save(step, write, data_position=step)


def steps(folder: Path) -> list[int]:
    """The steps of the manifests that lie in a folder."""
    return sorted(int(path.name.split(".")[0][5:]) for path in folder.glob("step-*.manifest.json"))


def newest(folder: Path) -> int | None:
    """The newest that is whole, every byte read."""
    good = Checkpoints(folder, attempt="look", rank=-1).newest()
    return None if good is None else good.step
