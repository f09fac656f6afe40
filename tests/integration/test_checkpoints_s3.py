"""Checkpoints in an S3 that we did not write (moto, over HTTP): there and back, throttled, killed, out of disk."""

from __future__ import annotations

import json
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.checkpoints.checkpoints import CheckpointManifest, find_complete_checkpoints
from router.checkpoints.transfer import TransferLimits, verify_checkpoint
from tests.support.agents import agents
from tests.support.command import run
from tests.support.coordinator import Coordinator
from tests.support.narrowed import present
from tests.support.object_store import ObjectStore, object_store
from tests.support.stored_checkpoints import newest, save, steps

STEPFARE = str(Path(sys.executable).parent / "stepfare")
TOKEN = "token-of-the-attempt-5f3a"
MEGABYTE = 1_000_000


@pytest.fixture(scope="module")
def started() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


@pytest.fixture
def store(started: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    for name, value in started.environment.items():
        monkeypatch.setenv(name, value)
    started.trouble()
    return started


def _whole(store: ObjectStore, url: str) -> CheckpointManifest | None:
    """The newest checkpoint of a place by its sizes, which must then be whole to the last byte."""
    depot = store.open(url)
    found = next(find_complete_checkpoints(depot), None)
    if found is not None:
        verify_checkpoint(depot, found, TransferLimits())
    return found


def test_there_and_back_and_to_another_region(store: ObjectStore, tmp_path: Path) -> None:
    save(tmp_path / "run", 1)
    save(tmp_path / "run", 2, {"large": 25 * MEGABYTE, "deep/small": 5, "empty": 0})
    east, west = "s3://bucket-east/runs/7", "s3://bucket-west/runs/7?region=us-west-2"
    pushed = run("checkpoint", "push", tmp_path / "run", east, "--all", "-o", "json")
    assert [one["bytes"] for one in json.loads(pushed.stdout)["checkpoints"]] == [25 * MEGABYTE + 5, 3010]
    again = run("checkpoint", "push", tmp_path / "run", east, "-o", "json")
    assert [(one["bytes"], one["kept"]) for one in json.loads(again.stdout)["checkpoints"]] == [(0, 25 * MEGABYTE + 5)]
    # As another client sees it, a bucket is a folder that the helper can read.
    assert newest(store.fetched("bucket-east", "runs/7", tmp_path / "seen")) == 2
    copied = run("checkpoint", "copy", east, west, "-o", "json")
    assert (
        json.loads(copied.stdout)["checkpoints"][0]["manifest"] == "s3://bucket-west/runs/7/step-00000002.manifest.json"
    )
    assert run("checkpoint", "pull", west, tmp_path / "back").exit_code == 0
    assert newest(tmp_path / "back") == 2
    assert run("checkpoint", "verify", east).exit_code == 0
    rows = json.loads(run("checkpoint", "list", east, "-o", "json").stdout)["checkpoints"]
    assert [(row["step"], row["files"], row["good"]) for row in rows] == [(2, 3, True), (1, 2, True)]


def test_what_is_torn_or_changed_is_passed_over(store: ObjectStore, tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        save(tmp_path / "run", step)
    url = "s3://bucket-east/torn"
    run("checkpoint", "push", tmp_path / "run", url, "--all")
    keys = [key for key in store.keys("bucket-east", "torn/") if key.endswith("state")]
    by_step = {int(key.split("/")[1][5:]): key for key in keys}
    store.client.put_object(Bucket="bucket-east", Key="torn/step-00000004.manifest.json", Body=b'{"version": 1')
    store.client.delete_object(Bucket="bucket-east", Key=by_step[3])
    store.client.put_object(Bucket="bucket-east", Key=by_step[2], Body=b"x" * 3000)
    pulled = run("checkpoint", "pull", url, tmp_path / "back")
    assert (pulled.exit_code, steps(tmp_path / "back"), newest(tmp_path / "back")) == (0, [1], 1)
    assert [line.split(":")[0] for line in pulled.stderr.splitlines()] == ["step 4", "step 3", "step 2"]
    assert run("checkpoint", "verify", url).exit_code == 1


def test_a_store_that_throttles(store: ObjectStore, tmp_path: Path) -> None:
    save(tmp_path / "run", 1, {f"{number}": 1000 for number in range(20)} | {"large": 25 * MEGABYTE})
    before = store.calls()["refused"]
    store.trouble(refuse=0.3, seed=7)
    assert run("checkpoint", "push", tmp_path / "run", "s3://bucket-east/slow").exit_code == 0
    assert run("checkpoint", "pull", "s3://bucket-east/slow", tmp_path / "back").exit_code == 0
    store.trouble()
    assert store.calls()["refused"] - before > 10
    assert newest(tmp_path / "back") == 1


def test_a_bucket_that_is_not_there(store: ObjectStore, tmp_path: Path) -> None:
    save(tmp_path / "run", 1)
    pushed = run("checkpoint", "push", tmp_path / "run", "s3://no-such-bucket/x")
    assert (pushed.exit_code, pushed.stdout) == (1, "")
    assert "no-such-bucket" in pushed.stderr


def test_the_time_box_ends_and_the_next_time_goes_on(store: ObjectStore, tmp_path: Path) -> None:
    save(tmp_path / "run", 1, {f"{number}": 2 * MEGABYTE for number in range(8)})
    url = "s3://bucket-east/box"
    store.trouble(seconds=0.3)
    stopped = run("checkpoint", "push", tmp_path / "run", url, "--seconds", 3, "--parallel", 1)
    store.trouble()
    assert (stopped.exit_code, "the time was over" in stopped.stderr) == (5, True)
    assert _whole(store, url) is None
    ended = run("checkpoint", "push", tmp_path / "run", url, "-o", "json")
    (moved,) = json.loads(ended.stdout)["checkpoints"]
    assert moved["kept"] >= 2 * MEGABYTE
    assert moved["kept"] + moved["bytes"] == 16 * MEGABYTE
    assert _whole(store, url) is not None


def _killed_at_random(store: ObjectStore, folder: Path, rounds: int, seed: int) -> int:
    """Uploads that are killed at a random call to the store; how many of the first tries were not done by then."""
    chance, url, cut = random.Random(seed), f"s3://bucket-east/killed-{seed}", 0
    words = [STEPFARE, "checkpoint", "push", str(folder), url, "--keep", "2"]
    files = {"a": 12 * MEGABYTE, "b": 3 * MEGABYTE, "c": 10}
    # An upload that nobody kills says how many calls there are: a machine's speed does not decide what is cut.
    save(folder, 1, files, keep=2)
    calls = sum(store.calls().values())
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0
    usual = sum(store.calls().values()) - calls
    for step in range(2, rounds + 2):
        save(folder, step, files, keep=2)
        before = _whole(store, url)
        until = sum(store.calls().values()) + chance.randint(3, usual + usual // 3)
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while sum(store.calls().values()) < until and process.poll() is None:
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        after = _whole(store, url)
        assert (after.step if after else 0) in (step, before.step if before else 0)
        cut += after is None or after.step != step
        if chance.random() < 0.5:
            assert subprocess.run(words, capture_output=True, check=False).returncode == 0
            last = present(_whole(store, url))
            assert last.step == step
    assert run("checkpoint", "push", folder, url, "--keep", 1).exit_code == 0
    assert len(store.keys("bucket-east", f"killed-{seed}/")) == 4
    return cut


@pytest.mark.slow
def test_an_uploader_killed_at_random_leaves_the_newest_durable_whole(store: ObjectStore, tmp_path: Path) -> None:
    _killed_at_random(store, tmp_path, 2, 5)


@pytest.mark.slow
def test_an_uploader_killed_often(store: ObjectStore, tmp_path: Path) -> None:
    assert 3 < _killed_at_random(store, tmp_path, 20, 6) < 20


def test_a_file_system_that_takes_no_more(store: ObjectStore, tmp_path: Path) -> None:
    save(tmp_path / "run", 1)
    save(tmp_path / "run", 2, {"small": 10, "large": 3 * MEGABYTE})
    url = "s3://bucket-east/full"
    run("checkpoint", "push", tmp_path / "run", url, "--all")
    run("checkpoint", "pull", url, tmp_path / "back", "--step", 1)
    words = shlex.join([STEPFARE, "checkpoint", "pull", url, str(tmp_path / "back")])
    full = subprocess.run(["bash", "-c", f"ulimit -f 1000; {words}"], capture_output=True, text=True, check=False)
    assert (full.returncode, "File too large" in full.stderr) == (1, True), full.stderr
    assert (newest(tmp_path / "back"), steps(tmp_path / "back")) == (1, [1])
    assert not list((tmp_path / "back").rglob("*.part"))
    assert run("checkpoint", "pull", url, tmp_path / "back").exit_code == 0
    assert newest(tmp_path / "back") == 2


PROGRAM = """
import os, sys, time
import stepfare_checkpoint
checkpoints = stepfare_checkpoint.Checkpoints(sys.argv[1])
checkpoints.catch_sigterm()
good = checkpoints.newest()
step = good.step if good else 0
while True:
    step += 1
    time.sleep(0.02)
    request = checkpoints.wanted(step)
    if request:
        checkpoints.save(step, lambda place: (place / "x").write_bytes(os.urandom(2_000_000)))
    checkpoints.progress(step)
    if request and request.ends:
        break
"""


@pytest.mark.slow
def test_an_order_is_answered_with_what_lies_in_the_bucket(store: ObjectStore, tmp_path: Path) -> None:
    """The packed agent, its training with an uploader beside it, a coordinator."""
    (tmp_path / "train.py").write_text(PROGRAM)
    url = "s3://bucket-east/agent"
    words = [
        STEPFARE,
        "checkpoint",
        "run",
        tmp_path / "run",
        url,
        "--",
        sys.executable,
        tmp_path / "train.py",
        tmp_path / "run",
    ]
    command = "exec " + shlex.join(map(str, words))
    given = {"plain": store.environment}
    with (
        Coordinator(1, TOKEN).running() as coordinator,
        agents(tmp_path / "a", coordinator, command, environment=given, heartbeat_seconds=0.5) as ranks,
    ):
        coordinator.wait(lambda c: any("step" in beat for beat in c.messages("heartbeat")))
        store.trouble(refuse=0.2, seed=1)
        coordinator.checkpoint = {"id": "c-1", "seconds": 60.0}
        coordinator.wait(lambda c: any(said["id"] == "c-1" for said in c.messages("saved")))
        said = next(said for said in coordinator.messages("saved") if said["id"] == "c-1")
        assert said["manifest"] == f"{url}/step-{said['step']:08d}.manifest.json"
        found = present(_whole(store, url))
        assert found.step == said["step"]
        store.trouble()
        coordinator.checkpoint = {}
        # A stop: SIGTERM to the whole group. What the training saves then is durable before the rank ends.
        ranks[0].process.send_signal(signal.SIGTERM)
        coordinator.wait(lambda c: bool(c.messages("ended")))
        last = coordinator.messages("saved")[-1]
        assert last["step"] > said["step"]
        durable = present(_whole(store, url))
        assert durable.step == last["step"]
    assert f"step {last['step']} is durable" in ranks[0].log()
