"""The trainer as real processes: killed, stopped, resumed, alone, in gangs: its losses are the same to the last bit."""

from __future__ import annotations

import random
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from router.agent.rendezvous import find_free_port
from tests.support.training import (
    TRAINER,
    Trainer,
    checkpoints,
    gang,
    losses,
    metrics,
    output,
    start,
    train,
)

STEPS = 300


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of a training that nobody disturbs."""
    folder = tmp_path_factory.mktemp("plain")
    said = train("--steps", STEPS, "--checkpoint-dir", folder)
    assert f"step 120/{STEPS} loss {losses(folder)[120]:.4f} step_s 0.0" in said
    assert checkpoints(folder) == [f"step-{step:08d}.ckpt" for step in (200, 250, 300)]
    assert {line["attempt"] for line in metrics(folder)} == {"a-1"}
    return losses(folder)


def _wait_for(folder: Path, lines: int, unless: Trainer | None = None) -> None:
    """Until metrics.jsonl is so long, or that process has ended."""
    limit, file = time.monotonic() + 60, folder / "metrics.jsonl"
    while not file.exists() or file.read_bytes().count(b"\n") < lines:
        if unless is not None and unless.poll() is not None:
            return
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_it_learns(plain: dict[int, float]) -> None:
    assert list(plain) == list(range(1, STEPS + 1))
    first, last = (sum(plain[s] for s in steps) / 20 for steps in (range(1, 21), range(STEPS - 19, STEPS + 1)))
    assert first > 3.2  # the logarithm of 32 letters is 3.47
    assert last < 2.2


@pytest.mark.parametrize("ranks", [2, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 8))])
def test_the_same_losses_whatever_the_number_of_ranks(plain: dict[int, float], ranks: int, tmp_path: Path) -> None:
    said = train("--steps", STEPS, "--checkpoint-dir", tmp_path, ranks=ranks)
    assert f"rank 0 of {ranks} ends after step {STEPS}/{STEPS}" in said
    assert losses(tmp_path) == plain


def test_only_the_last_attempt_ends_the_training(tmp_path: Path) -> None:
    options = ("--steps", 100, "--checkpoint-dir", tmp_path, "--attempts", 2)
    process = start(*options, attempt="a-1")
    _wait_for(tmp_path, 90, unless=process)
    process.send_signal(signal.SIGTERM)
    output(process)
    assert process.returncode == 128 + signal.SIGTERM
    assert max(losses(tmp_path)) == 91
    output(start(*options, attempt="a-2"))
    assert max(losses(tmp_path)) == 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_at_any_moment_it_goes_on_as_if_nothing_had_been(
    plain: dict[int, float], seed: int, tmp_path: Path
) -> None:
    """Twice before it may have begun, then whenever it is some steps further."""
    moments, kills = random.Random(seed), 0
    options = ("--steps", STEPS, "--checkpoint-dir", tmp_path, "--checkpoint-every", 5, "--step-seconds", 0.003)
    while True:
        process = start(*options, attempt=f"a-{kills}")
        if kills >= 2:
            done = len(metrics(tmp_path)) if (tmp_path / "metrics.jsonl").exists() else 0
            _wait_for(tmp_path, done + 10, unless=process)
        time.sleep(moments.uniform(0, 0.25))
        if process.poll() is not None:
            assert output(process).endswith(f"rank 0 of 1 ends after step {STEPS}/{STEPS}\n")
            break
        process.kill()
        process.communicate()
        kills += 1
    assert kills >= 2
    assert losses(tmp_path) == plain
    assert list(tmp_path.glob(".step-*")) == list(tmp_path.glob("*.bad")) == []


@pytest.mark.slow
def test_ranks_killed_in_a_gang_cost_what_was_not_saved_and_no_more(plain: dict[int, float], tmp_path: Path) -> None:
    options = ("--steps", STEPS, "--checkpoint-dir", tmp_path, "--step-seconds", 0.003)
    with gang(2, *options) as (head, worker):
        _wait_for(tmp_path, 80)
        worker.kill()
        said = output(head)
        assert head.returncode == 1
    assert "train: rank 1 was lost in step" in said
    saved = max(losses(tmp_path))
    assert checkpoints(tmp_path)[-1] == f"step-{saved:08d}.ckpt"  # rank 0 saved what it had
    with gang(4, *options) as ranks:
        _wait_for(tmp_path, saved + 60)
        ranks[0].kill()
        for worker in ranks[1:]:
            assert "train: rank 0 was lost in step" in output(worker)
            assert worker.returncode == 1
    said = train(*options)
    assert "resumed at step" in said
    assert losses(tmp_path) == plain


@pytest.mark.parametrize(
    ("number", "code", "asked"),
    [
        (signal.SIGTERM, 143, 0),
        (signal.SIGINT, 130, 1),
        pytest.param(signal.SIGTERM, 143, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, 0, marks=pytest.mark.slow),
    ],
)
def test_a_signal_to_one_rank_stops_all_after_the_same_step(
    plain: dict[int, float], number: int, code: int, asked: int, tmp_path: Path
) -> None:
    options = ("--steps", STEPS, "--checkpoint-dir", tmp_path, "--step-seconds", 0.01)
    with gang(2, *options) as ranks:
        _wait_for(tmp_path, 20)
        ranks[asked].send_signal(number)
        said = [output(process) for process in ranks]
        assert [process.returncode for process in ranks] == [code, code]
    step = max(losses(tmp_path))
    assert [text.splitlines()[-1] for text in said] == [
        f"rank {rank} of 2 ends after step {step}/{STEPS}" for rank in range(2)
    ]
    assert checkpoints(tmp_path)[-1] == f"step-{step:08d}.ckpt"
    assert f"resumed at step {step} from step-{step:08d}.ckpt" in train(*options[:-2])
    assert losses(tmp_path) == plain
    assert len(metrics(tmp_path)) == STEPS  # nothing was done twice


def test_a_long_step_does_not_hold_a_signal_up(tmp_path: Path) -> None:
    process = start("--checkpoint-dir", tmp_path, "--step-seconds", 600)
    assert process.stdout is not None
    assert "begins" in process.stdout.readline()
    time.sleep(0.2)
    process.terminate()
    output(process, 10)
    # The step that the signal met may end, and the one that notices it.
    assert process.returncode == 143
    assert checkpoints(tmp_path)


def test_broken_checkpoints_are_passed_over_for_the_newest_good_one(plain: dict[int, float], tmp_path: Path) -> None:
    train("--steps", 200, "--checkpoint-dir", tmp_path)
    torn, changed = tmp_path / "step-00000200.ckpt", tmp_path / "step-00000150.ckpt"
    torn.write_bytes(torn.read_bytes()[:5000])
    data = bytearray(changed.read_bytes())
    data[-100] ^= 1
    changed.write_bytes(data)
    (tmp_path / ".step-00000250.part").write_bytes(b"torn")
    with (tmp_path / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 2')
    said = train("--steps", STEPS, "--checkpoint-dir", tmp_path).splitlines()
    reason = "its SHA-256 is not the one that it names"
    assert said[:3] == [
        f"skipped step-00000200.ckpt: {reason}",
        f"skipped step-00000150.ckpt: {reason}",
        "resumed at step 100 from step-00000100.ckpt",
    ]
    assert checkpoints(tmp_path) == [f"step-{step:08d}.ckpt" for step in (200, 250, 300)]
    assert sorted(path.name for path in tmp_path.glob("*.bad")) == ["step-00000150.bad", "step-00000200.bad"]
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(line for line in file.read_text().splitlines(True) if line != '{"step": 2\n'))
    assert losses(tmp_path) == plain


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    train("--steps", 50, "--checkpoint-dir", tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    assert "rank 0 of 2 ends after step 50/50" in train("--steps", 50, "--checkpoint-dir", tmp_path, ranks=2)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_checkpoint_of_another_seed_is_not_gone_on_from(tmp_path: Path) -> None:
    train("--steps", 5, "--checkpoint-dir", tmp_path, "--seed", 1)
    process = start("--steps", 5, "--checkpoint-dir", tmp_path, "--seed", 2)
    assert "is of a training with --seed 1, not 2" in output(process)
    assert process.returncode == 2


def test_strangers_and_ranks_of_other_trainings_are_turned_away(tmp_path: Path) -> None:
    port = find_free_port()
    head = start("--steps", 5, rank=0, ranks=2, port=port)
    others = []
    try:
        for words in ({"attempt": "a-0"}, {"ranks": 3}):
            others.append(start("--steps", 5, **{"rank": 1, "ranks": 2, "port": port, **words}))  # type: ignore[arg-type]
            assert "train: rank 0 wants other ranks: {'attempt': 'a-1', 'ranks': 2, 'seed': 0}" in output(others[-1])
            assert others[-1].returncode == 2
        for sent in (b"GET / HTTP/1.0\r\n\r\n", b"\xff\n", b'{"bytes": -1}\n', b"[1]\n", b""):
            with socket.create_connection(("127.0.0.1", port), 5) as stranger:
                stranger.sendall(sent)
        others.append(start("--steps", 5, rank=1, ranks=2, port=port))
        assert output(others[-1]).endswith("rank 1 of 2 ends after step 5/5\n")
        assert output(head).endswith("rank 0 of 2 ends after step 5/5\n")
    finally:
        for process in (head, *others):
            process.kill()
            process.communicate()


@pytest.mark.parametrize(("rank", "what"), [(0, "1 of 2 ranks came at"), (1, "rank 0 is not there at")])
def test_a_rank_that_never_comes_is_said(rank: int, what: str) -> None:
    process = start("--limit-seconds", 0.5, rank=rank, ranks=2, port=find_free_port())
    assert f"train: {what} 127.0.0.1:" in output(process)
    assert process.returncode == 1


def wait_until_signals_are_handled(process: subprocess.Popen[str]) -> None:
    """Return once the process has a handler of its own for SIGTERM."""
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt:"))
        if int(caught.split()[1], 16) & 1 << (signal.SIGTERM - 1):
            return
        time.sleep(0.01)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_while_waiting_for_the_others(rank: int) -> None:
    process = start(rank=rank, ranks=2, port=find_free_port())
    wait_until_signals_are_handled(process)
    process.terminate()
    assert output(process, 10) == ""
    assert process.returncode == 143


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ({"rank": 2, "ranks": 2}, "rank 2 of 2: from 0, and at most 8 in all"),
        ({"rank": 0, "ranks": 9}, "rank 0 of 9: from 0, and at most 8 in all"),
        ({"rank": -1}, "RANK is '-1', not a number"),
        ({"port": -1}, "MASTER_PORT is '-1', not a number"),
    ],
)
def test_an_environment_that_makes_no_sense(words: dict[str, int], what: str) -> None:
    process = start(**words)  # type: ignore[arg-type]
    assert output(process) == f"train: {what}\n"
    assert process.returncode == 2


@pytest.mark.parametrize("options", [("--steps", 0), ("--checkpoint-every", 0), ("--report-every", 0), ("--seed", -1)])
def test_options_that_make_no_sense(options: tuple[str, int]) -> None:
    process = start(*options)
    assert "steps are 1 or more, seeds 0 or more" in output(process)
    assert process.returncode == 2


@pytest.mark.slow
def test_a_full_disk_ends_it_and_the_checkpoint_of_before_stays(plain: dict[int, float], tmp_path: Path) -> None:
    """No file may grow over what two checkpoints' worth of metrics take: the next write fails as on a full disk."""
    train("--steps", 100, "--checkpoint-dir", tmp_path)
    size = (tmp_path / "step-00000100.ckpt").stat().st_size
    code = f"import resource, runpy, sys, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); \
resource.setrlimit(resource.RLIMIT_FSIZE, ({size // 2}, {size // 2})); sys.argv = sys.argv[1:]; \
runpy.run_path(sys.argv[0], run_name='__main__')"
    words = [sys.executable, "-c", code, str(TRAINER), "--steps", str(STEPS), "--checkpoint-dir", str(tmp_path)]
    done = subprocess.run(words, env={}, capture_output=True, text=True, check=False, timeout=60)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != size // 2
    assert done.returncode == 1, done.stdout
    assert done.stderr == "train: [Errno 27] File too large\n"
    assert "Traceback" not in done.stdout
    assert checkpoints(tmp_path)[-1] == "step-00000100.ckpt"
    assert "resumed at step 100" in train("--steps", STEPS, "--checkpoint-dir", tmp_path)
    assert losses(tmp_path) == plain
