"""The demo's folder: its initial files, and the results of the training."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

SECONDS_PER_STEP = 0.05
REPORTS, SAVES = 12, 10
DEPLOY = "deploy.yaml"
_FILES = ("clouds.yaml", "sandbox.yaml", "limits.yaml", DEPLOY, "job.yaml")
_CHECKPOINTS, _ALONE = "checkpoints", "undisturbed"


class NotTrainedError(Exception):
    """The training did not leave its results; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The results of a finished training: steps without a gap, first and last loss, and the newest checkpoint.

    ``again``: steps that were done more than once; ``losses`` by step.
    """

    steps: int
    again: int
    first_loss: float
    last_loss: float
    checkpoint: Path
    losses: Mapping[int, float]


def write_demo_files(folder: Path, steps: int, seed: int, attempts: int = 1) -> tuple[str, ...]:
    """Write the files of a demo into a folder, which is created, and return their names. OSError.

    Only the attempt of number ``attempts`` ends the training, so that every interruption comes before the end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "steps": str(steps),
        "seed": str(seed),
        "seconds": str(SECONDS_PER_STEP),
        "report": str(max(1, steps // REPORTS)),
        "every": str(max(1, steps // SAVES)),
        "attempts": str(attempts),
        # A JSON string is a YAML string, whatever characters the path has.
        "checkpoints": json.dumps(str(folder.resolve() / _CHECKPOINTS)),
    }
    for name in _FILES:
        text = Path(__file__).with_name(name).read_text(encoding="utf-8")
        (folder / name).write_text(Template(text).substitute(values) if name == "job.yaml" else text, encoding="utf-8")
    return _FILES


def read_training_result(folder: Path, steps: int) -> TrainingResult:
    """Return the results of a training of ``steps`` steps in the demo's folder. NotTrainedError."""
    place = folder / _CHECKPOINTS
    try:
        lines = (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line]
        losses: dict[int, float] = {}
        for row in rows:
            step, loss = int(row["step"]), float(row["loss"])
            if losses.setdefault(step, loss) != loss:
                raise NotTrainedError(f"{place / 'metrics.jsonl'} has two losses of step {step}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NotTrainedError(f"{place / 'metrics.jsonl'}: {error}") from None
    missing = sorted(set(range(1, steps + 1)) - set(losses))
    if missing:
        raise NotTrainedError(f"{place / 'metrics.jsonl'} has no step {missing[0]}, and {steps} were wanted")
    checkpoint = place / f"step-{steps:08d}.ckpt"
    if not checkpoint.exists():
        raise NotTrainedError(f"there is no {checkpoint}")
    return TrainingResult(len(losses), len(rows) - len(losses), losses[1], losses[steps], checkpoint, losses)


def read_step_count(folder: Path) -> int:
    """Return how far the training in the demo's folder reports to be; 0 before it reports anything."""
    try:
        lines = (folder / _CHECKPOINTS / "metrics.jsonl").read_bytes().splitlines()
        return int(json.loads(lines[-1])["step"]) if lines else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def count_gangs(folder: Path) -> int:
    """Return how many gangs report a step of the training in the demo's folder; 0 before any does."""
    try:
        lines = (folder / _CHECKPOINTS / "metrics.jsonl").read_bytes().splitlines()
        return len({json.loads(line)["attempt"] for line in lines})
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def train_undisturbed(folder: Path, steps: int, seed: int, environment: Mapping[str, str]) -> TrainingResult:
    """Run the same training in one process, without interruptions. NotTrainedError."""
    alone = folder / _ALONE
    words = [sys.executable, "-m", "router.demo.train", "--steps", str(steps), "--seed", str(seed)]
    words += ["--checkpoint-dir", str(alone / _CHECKPOINTS), "--checkpoint-every", str(steps)]
    done = subprocess.run(
        words, env=dict(environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotTrainedError(f"the training without a cloud ended with exit code {done.returncode}: {done.stderr}")
    return read_training_result(alone, steps)


def find_differences(first: TrainingResult, second: TrainingResult) -> tuple[str, ...]:
    """Return the differences of two trainings, compared to the last bit; empty if there are none."""
    differences = [
        f"the losses of step {step}" for step in sorted(first.losses) if first.losses[step] != second.losses.get(step)
    ]
    if first.checkpoint.read_bytes() != second.checkpoint.read_bytes():
        differences.append("the state after the last step")
    return tuple(differences)
