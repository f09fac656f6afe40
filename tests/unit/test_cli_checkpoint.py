"""`stepfare checkpoint ...` on folders: what it prints, its exit codes, a training with an uploader beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.command import run
from tests.support.repository import ROOT
from tests.support.stored_checkpoints import newest, save, steps

STEPFARE = Path(sys.executable).parent / "stepfare"
PROGRAM = """
import sys, time
sys.path.insert(0, sys.argv[2])
import stepfare_checkpoint
checkpoints = stepfare_checkpoint.Checkpoints(sys.argv[1])
checkpoints.catch_sigterm()
good = checkpoints.newest()
print("from", good.step if good else 0, flush=True)
for step in range(good.step + 1 if good else 1, int(sys.argv[3]) + 1):
    time.sleep(0.05)
    request = checkpoints.wanted(step)
    if request or step % 3 == 0:
        checkpoints.save(step, lambda place: (place / "x").write_bytes(b"x" * 10000))
    if request:
        print("asked", flush=True)
        break
sys.exit(int(sys.argv[4]))
"""


def _words(tmp_path: Path, last: int, code: int = 0) -> list[str]:
    (tmp_path / "train.py").write_text(PROGRAM)
    helper = ROOT / "router" / "agent" / "helper"
    words = [STEPFARE, "checkpoint", "run", tmp_path / "run", f"file://{tmp_path}/durable", "--"]
    return [
        *map(str, words),
        sys.executable,
        str(tmp_path / "train.py"),
        str(tmp_path / "run"),
        str(helper),
        str(last),
        str(code),
    ]


def test_there_and_back(tmp_path: Path) -> None:
    for step in (1, 2):
        save(tmp_path / "run", step)
    url = f"file://{tmp_path}/durable"
    pushed = run("checkpoint", "push", tmp_path / "run", url)
    assert (pushed.exit_code, steps(tmp_path / "durable")) == (0, [2])
    assert pushed.stdout.startswith("step 2: 3.0 kB in ")
    everything = run("checkpoint", "push", tmp_path / "run", url, "--all", "--keep", 1, "-o", "json")
    assert [one["step"] for one in json.loads(everything.stdout)["checkpoints"]] == [2, 1]
    assert (everything.stderr, steps(tmp_path / "durable")) == ("step 1: removed there\n", [2])
    pulled = run("checkpoint", "pull", f"{url}/step-00000002.manifest.json", tmp_path / "back")
    assert (pulled.exit_code, newest(tmp_path / "back")) == (0, 2)
    copied = run("checkpoint", "copy", url, tmp_path / "west", "-o", "json")
    assert json.loads(copied.stdout)["checkpoints"][0]["bytes"] == 3010
    assert newest(tmp_path / "west") == 2


def test_the_list_and_what_verify_finds(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step)
    next((tmp_path / "step-00000003").rglob("state")).unlink()
    next((tmp_path / "step-00000002").rglob("state")).write_bytes(b"x" * 3000)
    listed = run("checkpoint", "list", tmp_path)
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["STEP", "3", "2", "1"]
    assert [line.endswith("whole") for line in listed.stdout.splitlines()[1:]] == [False, True, True]
    verified = run("checkpoint", "verify", tmp_path, "-o", "json")
    assert verified.exit_code == 1
    assert [one["good"] for one in json.loads(verified.stdout)["checkpoints"]] == [False, False, True]
    assert run("checkpoint", "verify", tmp_path, "--step", 1).exit_code == 0
    assert run("checkpoint", "verify", tmp_path, "--step", 9).exit_code == 1
    assert run("checkpoint", "list", tmp_path / "none").stdout == "none\n"
    assert run("checkpoint", "verify", tmp_path / "none").exit_code == 1


def test_the_newest_good_one_is_pulled(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path / "durable", step)
    (tmp_path / "durable" / "step-00000003.manifest.json").write_text("{")
    next((tmp_path / "durable" / "step-00000002").rglob("state")).write_bytes(b"x" * 3000)
    pulled = run("checkpoint", "pull", tmp_path / "durable", tmp_path / "run")
    assert (pulled.exit_code, newest(tmp_path / "run"), steps(tmp_path / "run")) == (0, 1, [1])
    assert [line.split(":")[0] for line in pulled.stderr.splitlines()] == ["step 3", "step 2"]
    next((tmp_path / "durable" / "step-00000001").rglob("state")).unlink()
    assert run("checkpoint", "pull", tmp_path / "durable", tmp_path / "else").exit_code == 1
    assert run("checkpoint", "pull", tmp_path / "none", tmp_path / "else").exit_code == 0
    assert (
        json.loads(run("checkpoint", "pull", tmp_path / "none", tmp_path / "x", "-o", "json").stdout)["checkpoints"]
        == []
    )


def test_what_cannot_end_in_time_is_not_begun(tmp_path: Path) -> None:
    save(tmp_path / "run", 1, {"small": 1000})
    save(tmp_path / "run", 2, {"large": 10_000_000})
    words = ["checkpoint", "push", tmp_path / "run", tmp_path / "durable", "--seconds", 5, "--max-mbps", 1]
    pushed = run(*words)
    assert (pushed.exit_code, steps(tmp_path / "durable")) == (0, [1])
    assert "step 2: passed over: 0.0 GB cannot be copied in 5 s" in pushed.stderr
    assert not (tmp_path / "durable" / "step-00000002").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["push", "NONE", "URL"], 2),
        (["pull", "ftp://x/y", "F"], 2),
        (["list", "s3://key:secret@bucket/x"], 2),
        (["list", "s3://bucket/x?colour=red"], 2),
        (["list", "file://host/x"], 2),
        (["list", "s3://"], 2),
        (["copy", "a", "b", "--seconds", "-1"], 2),
        (["push", "a", "b", "--max-mbps", "nan"], 2),
        (["pull", "a/step-7.manifest.json", "b"], 2),
        (["run", "F", "ftp://x", "--", "true"], 2),
        (["copy", "a", "b"], 1),
    ],
)
def test_what_is_refused(words: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = run("checkpoint", *words)
    assert (refused.exit_code, refused.stdout) == (code, "")
    assert refused.stderr
    assert "secret" not in refused.stderr


@pytest.mark.slow
def test_a_training_goes_on_from_what_is_durable(tmp_path: Path) -> None:
    first = subprocess.run(_words(tmp_path, 7, 3), capture_output=True, text=True, check=False)
    assert (first.returncode, first.stdout) == (3, "from 0\n"), first.stderr
    assert newest(tmp_path / "durable") == 6
    (tmp_path / "run").rename(tmp_path / "lost")
    again = subprocess.run(_words(tmp_path, 9), capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout) == (0, "from 6\n"), again.stderr
    assert newest(tmp_path / "durable") == 9


@pytest.mark.parametrize("whole_group", [True, False])
def test_a_signal_reaches_the_training_once_and_its_last_checkpoint_is_copied(
    tmp_path: Path, whole_group: bool
) -> None:
    process = subprocess.Popen(
        _words(tmp_path, 100_000), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "from 0\n"
    time.sleep(0.3)
    (os.killpg if whole_group else os.kill)(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "asked\n"), err
    assert newest(tmp_path / "durable") == newest(tmp_path / "run")


@pytest.mark.slow
def test_a_killed_uploader_is_started_again(tmp_path: Path) -> None:
    process = subprocess.Popen(
        _words(tmp_path, 60), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "from 0\n"
    for _ in range(3):
        while not (children := _children(process.pid, "watch")):
            time.sleep(0.01)
        os.kill(children[0], signal.SIGKILL)
        time.sleep(0.4)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, newest(tmp_path / "durable")) == (0, 60), err
    assert "is started again" in err


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    words = [str(STEPFARE), "checkpoint", "run", str(tmp_path / "r"), str(tmp_path / "d"), "--", "no-such-command"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ran.returncode, "no-such-command" in ran.stderr) == (127, True)


def _children(parent: int, word: str) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(parent).children() if word in child.cmdline()]
