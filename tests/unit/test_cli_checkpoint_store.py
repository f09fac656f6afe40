"""`stepfare checkpoint run` without a URL: the agent's store, and a checkpoint elsewhere that is newer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import run
from tests.support.stored_checkpoints import newest, save, steps

STEPFARE = Path(sys.executable).parent / "stepfare"
SAYS = "import os, pathlib; print(*sorted(p.name for p in pathlib.Path(os.sys.argv[1]).glob('step-*.json')))"


def trained(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A training that prints which checkpoints lie in its folder when it begins."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STEPFARE_", "NODE_"))}
    command = [str(STEPFARE), "checkpoint", "run", *words, "--", sys.executable, "-c", SAYS, str(folder)]
    return subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True, check=False)


def name(step: int) -> str:
    return f"step-{step:08d}.manifest.json"


def test_the_store_is_the_agents(tmp_path: Path) -> None:
    save(tmp_path / "near" / "j", 5)
    store = {"STEPFARE_CHECKPOINT_STORE": f"file://{tmp_path}/near/j"}
    ran = trained(tmp_path / "run", str(tmp_path / "run"), "--keep", "2", **store)
    assert (ran.returncode, ran.stdout) == (0, f"{name(5)}\n"), ran.stderr
    given = trained(tmp_path / "other", str(tmp_path / "other"), str(tmp_path / "empty"), **store)
    assert (given.returncode, given.stdout) == (0, "\n"), given.stderr


def test_what_is_newer_elsewhere_is_fetched_from_there(tmp_path: Path) -> None:
    for step in (5, 9):
        save(tmp_path / "far" / "j", step)
    save(tmp_path / "near" / "j", 7)
    store = {"STEPFARE_CHECKPOINT_STORE": f"file://{tmp_path}/near/j"}
    for resume, expected in ((5, 7), (9, 9)):
        folder = tmp_path / f"run-{resume}"
        ran = trained(folder, str(folder), **store, STEPFARE_RESUME_MANIFEST=str(tmp_path / "far" / "j" / name(resume)))
        assert (ran.returncode, ran.stdout) == (0, f"{name(expected)}\n"), ran.stderr
    # What was fetched is durable near by when the training has ended.
    assert newest(tmp_path / "near" / "j") == 9


def test_what_is_elsewhere_and_torn_gives_way_to_the_newest_good_one(tmp_path: Path) -> None:
    save(tmp_path / "far", 9)
    save(tmp_path / "near", 7)
    next((tmp_path / "far" / "step-00000009").rglob("state")).write_bytes(b"x" * 3000)
    pulled = run("checkpoint", "pull", tmp_path / "near", tmp_path / "run", "--or-newer", tmp_path / "far" / name(9))
    assert (pulled.exit_code, steps(tmp_path / "run")) == (0, [7])
    assert "step 9: passed over" in pulled.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "F", "--", "true"], "STEPFARE_CHECKPOINT_STORE is not set"),
        (["watch", "F"], "STEPFARE_CHECKPOINT_STORE is not set"),
        (["run", "F", "s3://bucket/x"], "no training to run"),
        (["run", "F", "s3://bucket/x", "--"], "no training to run"),
        (["pull", "near", "F", "--or-newer", "far"], "--or-newer"),
        (["pull", "near", "F", "--step", "3", "--or-newer", f"far/{name(9)}"], "--or-newer"),
    ],
)
def test_what_is_refused(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STEPFARE_CHECKPOINT_STORE", raising=False)
    refused = run("checkpoint", *words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert said in " ".join(refused.stderr.split())
