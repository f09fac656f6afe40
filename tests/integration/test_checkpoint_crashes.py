"""The helper, killed before any of its calls: the newest good checkpoint is readable, and is not older than what was
confirmed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from router.agent.helper.stepfare_checkpoint import Checkpoints
from tests.support.checkpoint_writer import KEEP, STEPS, content
from tests.support.repository import ROOT

HELPER = ROOT / "router" / "agent" / "helper" / "stepfare_checkpoint.py"
WRITER = ROOT / "tests" / "support" / "checkpoint_writer.py"


def _check(folder: Path, mode: str, stride: int) -> None:
    words = [sys.executable, str(WRITER), str(HELPER), str(folder), mode, str(stride)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    lines = ran.stdout.splitlines()
    assert re.fullmatch(r"\d+: 1 2 3 4", lines.pop())
    assert len(lines) > 200 / stride
    for line in lines:
        match = re.fullmatch(r"(\d+):((?: \d)*) newest (\d) then((?: \d)*)", line)
        assert match is not None, line
        confirmed, found = [0, *map(int, match[2].split())], int(match[3])
        assert found in (confirmed[-1], confirmed[-1] + 1), line
        assert [int(word) for word in match[4].split()] == list(range(found + 1, STEPS + 1)), line
        own = folder / match[1]
        checkpoints = Checkpoints(own, attempt="look")
        steps = [step for step, _ in checkpoints._manifests()]
        assert (steps[:KEEP], len(steps) > KEEP) == ([STEPS, STEPS - 1], len(steps) > KEEP and not match[4]), line
        for step in (STEPS, STEPS - 1):
            good = checkpoints.at(step)
            assert good is not None, line
            assert good.data_position == step * 10
            assert content(step) in [path.read_bytes() for path in good.files]
        # What was torn goes with the next one that is saved.
        kept = {f"step-{step:08d}" for step in range(STEPS - KEEP + 1, STEPS + 1)}
        left = (
            set()
            if not match[4]
            else {path.name for path in own.iterdir() if path.is_dir() or path.name.startswith(".")}
        )
        assert {name.lstrip(".").partition(".")[0] for name in left} <= kept, line


@pytest.mark.parametrize("mode", ["write", "files"])
def test_a_kill_now_and_then_leaves_the_newest_good_one(mode: str, tmp_path: Path) -> None:
    _check(tmp_path, mode, 29)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["write", "files"])
def test_a_kill_at_any_call_leaves_the_newest_good_one(mode: str, tmp_path: Path) -> None:
    _check(tmp_path, mode, 1)
