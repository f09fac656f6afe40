"""The demo's folder: the files that it begins with, and what the training left there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

SECONDS_PER_STEP = 0.05
REPORTS = 12
_FILES = ("clouds.yaml", "sandbox.yaml", "limits.yaml", "job.yaml")
_CHECKPOINTS = "checkpoints"


class NotTrainedError(Exception):
    """The training did not leave what it should have; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a finished training left: steps without a gap, the loss of the first and of the last, and the newest
    checkpoint. ``again``: steps that were done more than once."""

    steps: int
    again: int
    first_loss: float
    last_loss: float
    checkpoint: Path


def lay_out(folder: Path, steps: int, seed: int) -> tuple[str, ...]:
    """Writes the files of a demo into a folder, which is made; their names. OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "steps": str(steps),
        "seed": str(seed),
        "seconds": str(SECONDS_PER_STEP),
        "report": str(max(1, steps // REPORTS)),
        # A JSON string is a YAML string, whatever characters the path has.
        "checkpoints": json.dumps(str(folder.resolve() / _CHECKPOINTS)),
    }
    for name in _FILES:
        text = Path(__file__).with_name(name).read_text(encoding="utf-8")
        (folder / name).write_text(Template(text).substitute(values) if name == "job.yaml" else text, encoding="utf-8")
    return _FILES


def trained(folder: Path, steps: int) -> Trained:
    """What the training of so many steps left in the demo's folder. NotTrainedError."""
    place = folder / _CHECKPOINTS
    try:
        lines = (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line]
        losses = {int(row["step"]): float(row["loss"]) for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotTrainedError(f"{place / 'metrics.jsonl'}: {error}") from None
    missing = sorted(set(range(1, steps + 1)) - set(losses))
    if missing:
        raise NotTrainedError(f"{place / 'metrics.jsonl'} has no step {missing[0]}, and {steps} were wanted")
    checkpoint = place / f"step-{steps:08d}.ckpt"
    if not checkpoint.exists():
        raise NotTrainedError(f"there is no {checkpoint}")
    return Trained(len(losses), len(rows) - len(losses), losses[1], losses[steps], checkpoint)
