"""The trainer's parts: its gradient is the derivative of its loss, its checkpoints are whole or refused."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from router.demo import train
from router.demo.train import Examples, Progress, loss_and_gradient
from tests.support.training import TRAINER


def test_the_gradient_is_the_derivative_of_the_loss() -> None:
    progress = Progress.fresh(3)
    _, shards = Examples(progress).batch(progress)
    _, gradient = loss_and_gradient(progress.weights, *shards[0])
    rng = np.random.default_rng(0)
    for _ in range(20):
        direction = rng.standard_normal(train.SIZE)
        ends = [loss_and_gradient(progress.weights + step * direction, *shards[0])[0] for step in (-1e-5, 1e-5)]
        assert (ends[1] - ends[0]) / 2e-5 == pytest.approx(float(gradient @ direction), rel=1e-6, abs=1e-6)


def test_every_epoch_has_each_example_at_most_once_in_an_order_of_its_own() -> None:
    progress = Progress.fresh(0)
    examples, seen = Examples(progress), []
    steps = (train.TEXT - train.CONTEXT) // train.BATCH
    for _ in range(2 * steps):
        begin = progress.position
        progress, shards = examples.batch(progress)
        assert [len(after) for _, after in shards] == [train.BATCH // train.SHARDS] * train.SHARDS
        if begin in (0, steps * train.BATCH):
            seen.append(np.concatenate([before for before, _ in shards]))
    assert len(seen) == 2
    assert not np.array_equal(seen[0], seen[1])
    assert progress.position == steps * train.BATCH


@pytest.mark.parametrize("used", [0, 5, 126, 127, 128])
def test_an_unpacked_progress_goes_on_with_the_same_examples(used: int) -> None:
    """127 batches are an epoch."""
    progress = Progress.fresh(7)
    examples = Examples(progress)
    for _ in range(used):
        progress, _ = examples.batch(progress)
    again = Progress.unpacked(progress.packed())
    assert again.packed() == progress.packed()
    others = Examples(again)
    for _ in range(3):
        progress, shards = examples.batch(progress)
        again, same = others.batch(again)
        np.testing.assert_equal(shards, same)
        assert again.position == progress.position


def test_a_checkpoint_that_is_not_as_it_was_written_is_refused() -> None:
    data = Progress.fresh(0).packed()
    line = data.index(b"\n")
    for position in (*range(0, len(data), 997), *range(line - 3, line + 3), len(data) - 1):
        if data[position : position + 1] in (b" ", b","):
            continue
        broken = bytearray(data)
        broken[position] ^= 1
        try:
            found = Progress.unpacked(bytes(broken))
        except (ValueError, TypeError):
            continue
        assert found.packed() == data, position  # the step in the first line is for whoever reads it
    for length in (0, 1, line, line + 1, len(data) // 2, len(data) - 1):
        with pytest.raises((ValueError, TypeError)):
            Progress.unpacked(data[:length])
    with pytest.raises(ValueError, match="SHA-256"):
        Progress.unpacked(data + b"\0")


def test_the_manifest_is_one_readable_line() -> None:
    manifest = json.loads(Progress.fresh(0).packed().partition(b"\n")[0])
    assert set(manifest) == {"format", "step", "sha256"}
    assert manifest["step"] == 0


def test_it_needs_the_standard_library_and_numpy_alone() -> None:
    tree = ast.parse(Path(TRAINER).read_text())
    wanted = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    wanted |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in wanted} - sys.stdlib_module_names == {"numpy"}
