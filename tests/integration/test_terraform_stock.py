"""A sandbox with a stock: machines run out as a cloud's do, over all gangs at once, and come back when they end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from terraform.errors import ApplyFailedError
from terraform.render import parse_nodes
from terraform.runner import Runner
from terraform.workdir import MODULES, prepare
from tests.support import terraform_runs as support
from tests.support.busy import eventually, in_time
from tests.support.gangs import sandbox

pytestmark = support.needs_engine

SLEEP = "exec sleep 300"
LEFT = "InsufficientInstanceCapacity: the sandbox has no sim-8xh100 spot left in"
STOCK = str(MODULES / "sandbox" / "stock.sh")


@pytest.fixture
def cloud(tmp_path: Path) -> Path:
    (tmp_path / "cloud").mkdir()
    return tmp_path / "cloud"


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "runs").mkdir()
    yield tmp_path / "runs"
    for directory in (tmp_path / "runs").iterdir():
        support.end_nodes(directory)


def _runner(cloud: Path) -> Runner:
    return support.runner(STEPFARE_SANDBOX=str(cloud))


def _gang(runs: Path, attempt: str, count: int, script: str = SLEEP, zone: str | None = "z1") -> Path:
    prepare(runs / attempt, sandbox(attempt, count, dict.fromkeys(range(count), script), zone=zone))
    return runs / attempt


def _alive(directory: Path) -> list[str]:
    return [name for name, pid in support.pids(directory).items() if support.lives(pid)]


def test_what_is_not_there_is_refused_in_the_clouds_words_and_the_rest_released(cloud: Path, runs: Path) -> None:
    (cloud / "stock").write_text("# what there is\nlocal z1 sim-8xh100 spot 3\n")
    directory, runner = _gang(runs, "a-1", 4), _runner(cloud)
    with pytest.raises(ApplyFailedError, match=f"{LEFT} z1") as failed:
        runner.apply(directory)
    (diagnostic,) = [d for d in failed.value.diagnostics if d.is_error]
    assert diagnostic.address.startswith("module.gang.terraform_data.process[")
    assert len(_alive(directory)) == 3

    runner.destroy(directory)
    assert _alive(directory) == []
    assert runner.state(directory) == ()
    # And all of it is to be had again.
    runner.apply(_gang(runs, "b-1", 3))
    assert len(_alive(runs / "b-1")) == 3
    # More came in: the same directory goes on.
    (cloud / "stock").write_text("local z1 sim-8xh100 spot 7\n")
    assert len(parse_nodes(runner.apply(directory).outputs)) == 4
    assert len(_alive(directory)) == 4


@pytest.mark.slow
def test_two_gangs_at_once_get_no_more_than_there_is(cloud: Path, runs: Path) -> None:
    (cloud / "stock").write_text("local - sim-8xh100 spot 5\n")
    directories = [_gang(runs, f"a-{n}", 4) for n in range(2)]

    def apply(directory: Path) -> str:
        try:
            _runner(cloud).apply(directory)
        except ApplyFailedError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(2) as pool:
        said = "".join(pool.map(apply, directories))
    assert said.count(LEFT) == 3
    assert sum(len(_alive(directory)) for directory in directories) == 5

    # A machine that died is one that can be had: its entry does not count any more.
    (name, *_) = _alive(directories[0]) or _alive(directories[1])
    directory = directories[0] if name.startswith("a-0") else directories[1]
    os.killpg(support.pids(directory)[name], signal.SIGKILL)
    _runner(cloud).apply(_gang(runs, "b-1", 1))
    assert len(_alive(runs / "b-1")) == 1
    with pytest.raises(ApplyFailedError, match=LEFT):
        _runner(cloud).apply(_gang(runs, "b-2", 1, zone=None))


def test_without_a_stock_there_is_no_limit(cloud: Path, runs: Path) -> None:
    _runner(cloud).apply(_gang(runs, "a-1", 2))
    assert len(_alive(runs / "a-1")) == 2
    assert list(cloud.iterdir()) == []


@pytest.mark.slow
def test_starts_that_take_their_time_and_nodes_that_never_do_anything(cloud: Path, runs: Path) -> None:
    (cloud / "stock").write_text("delay 1.5\nsick *-1\n")
    directory = _gang(runs, "a-1", 2, "echo here; exec sleep 300")
    began = time.monotonic()
    _runner(cloud).apply(directory)
    assert time.monotonic() - began > 1.5
    eventually(lambda: (directory / "nodes" / "a-1-0" / "log").read_text() == "here\n")
    assert (directory / "nodes" / "a-1-1" / "log").read_text() == ""
    assert len(_alive(directory)) == 2
    _runner(cloud).destroy(directory)
    assert _alive(directory) == []


def test_those_after_so_many_wait_until_the_line_is_taken_away(cloud: Path, runs: Path) -> None:
    stock = cloud / "stock"
    stock.write_text("delay 600 1\n")
    directory = _gang(runs, "a-1", 3)
    one_by_one = Runner(support.embedded(), _runner(cloud).environment, support.QUICK, parallelism=1)
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(one_by_one.apply, directory)
        eventually(lambda: len(_alive(directory)) == 1)
        time.sleep(1)
        assert len(_alive(directory)) == 1
        assert not made.done()
        stock.write_text("delay 600 2\n")
        eventually(lambda: len(_alive(directory)) == 2)
        stock.write_text("")
        made.result(60)
    assert len(_alive(directory)) == 3


def test_the_node_sees_its_state_and_nothing_of_the_stock(cloud: Path, runs: Path) -> None:
    (cloud / "stock").write_text("local - sim-8xh100 spot 1\n")
    directory = _gang(runs, "a-1", 1, "env; exec sleep 300")
    _runner(cloud).apply(directory)
    log = directory / "nodes" / "a-1-0" / "log"
    eventually(lambda: "STEPFARE_NODE=a-1-0\n" in log.read_text())
    assert "STEPFARE_STATE=s0123456789\n" in log.read_text()
    names = {line.partition("=")[0] for line in log.read_text().splitlines()}
    ours = {name for name in names if name.startswith("STEPFARE_")} - {"STEPFARE_SANDBOX", "STEPFARE_NODE_FOLDER"}
    assert ours == {f"STEPFARE_{name}" for name in ("ATTEMPT", "RANK", "NODE", "NODE_ID", "STATE")}


# The script by itself.


def _take(cloud: Path, *place: str, pid: int | None = None, script: str = STOCK) -> subprocess.CompletedProcess[str]:
    words = [script, str(pid or os.getpid()), *place]
    environment = {"PATH": os.environ["PATH"], "STEPFARE_SANDBOX": str(cloud)}
    return subprocess.run(["sh", *words], env=environment, capture_output=True, text=True, timeout=60)


def _sleepers(count: int) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen(["sleep", "300"]) for _ in range(count)]


def _end(sleepers: list[subprocess.Popen[bytes]]) -> None:
    for sleeper in sleepers:
        sleeper.kill()
        sleeper.wait()


@pytest.fixture(params=["/proc", "ps"])
def script(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The script, and it on a machine without /proc."""
    if request.param == "/proc":
        return STOCK
    for name in ("stock.sh", "birth.sh"):
        text = (MODULES / "sandbox" / name).read_text()
        (tmp_path / name).write_text(text.replace("/proc/", "/none/"))
    return str(tmp_path / "stock.sh")


@pytest.mark.slow
def test_many_at_once_for_seven(cloud: Path, script: str) -> None:
    (cloud / "stock").write_text("r z m spot 7\n")
    # Many more on one that does not start a program for each.
    count = 30 if script == STOCK else 10
    sleepers = _sleepers(count)
    try:
        with ThreadPoolExecutor(15) as pool:
            answers = list(pool.map(lambda s: _take(cloud, "r", "z", "m", "spot", pid=s.pid, script=script), sleepers))
        assert Counter(answer.returncode for answer in answers) == {0: 7, 1: count - 7}
        assert {a.stderr for a in answers if a.returncode} == {
            "InsufficientInstanceCapacity: the sandbox has no m spot left in z\n"
        }
        assert len(list((cloud / "taken" / "r,z,m,spot").iterdir())) == 7
        # One file says whose turn it was; the others are gone.
        assert len(list((cloud / "turns").iterdir())) == 1
    finally:
        _end(sleepers)
    assert _take(cloud, "r", "z", "m", "spot", script=script).returncode == 0
    assert len(list((cloud / "taken" / "r,z,m,spot").iterdir())) == 1


def test_the_first_line_that_fits_counts(cloud: Path) -> None:
    (cloud / "stock").write_text("r z1 m spot 0\nr - m spot 1\nr z1 m spot 9\nr z2 n on_demand 1\n")
    sleepers = _sleepers(3)
    first, second, third = (sleeper.pid for sleeper in sleepers)
    try:
        assert "left in z1" in _take(cloud, "r", "z1", "m", "spot", pid=first).stderr
        assert _take(cloud, "r", "z2", "m", "spot", pid=first).returncode == 0
        # A node without a zone is where any zone is.
        assert "left in r\n" in _take(cloud, "r", "-", "m", "spot", pid=second).stderr
        # What no line speaks of.
        for place in (("q", "z1", "m", "spot"), ("r", "z1", "m", "on_demand"), ("r", "-", "n", "on_demand")):
            assert _take(cloud, *place, pid=third).returncode == 0
    finally:
        _end(sleepers)


def test_a_line_that_is_no_number_is_said(cloud: Path) -> None:
    for number in ("many", "-1", ""):
        (cloud / "stock").write_text(f"r z m spot {number}\n")
        answer = _take(cloud, "r", "z", "m", "spot")
        assert answer.returncode == 1
        assert f"'{number}' is not a number of machines" in answer.stderr


def test_a_zombie_and_a_number_used_again_do_not_count(cloud: Path) -> None:
    (cloud / "stock").write_text("r z m spot 1\n")
    child = subprocess.Popen(["sleep", "300"])
    assert _take(cloud, "r", "z", "m", "spot", pid=child.pid).returncode == 0
    assert _take(cloud, "r", "z", "m", "spot").returncode == 1
    child.kill()
    eventually(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    assert _take(cloud, "r", "z", "m", "spot").returncode == 0
    child.wait()
    (entry,) = (cloud / "taken" / "r,z,m,spot").iterdir()
    entry.write_text("12345\n")
    assert _take(cloud, "r", "z", "m", "spot").returncode == 0


@pytest.mark.parametrize("content", ["", "1 1\n", f"{os.getpid()} 1\n"], ids=["empty", "somebody", "we before"])
def test_a_turn_of_the_dead_is_over(cloud: Path, content: str) -> None:
    """As a kill -9 leaves it: nothing has to be given back."""
    (cloud / "stock").write_text("r z m spot 1\n")
    (cloud / "turns").mkdir()
    (cloud / "turns" / "41").write_text(content)
    assert _take(cloud, "r", "z", "m", "spot").returncode == 0
    assert [path.name for path in (cloud / "turns").iterdir()] == ["42"]


def test_killed_at_any_moment_it_holds_nobody_up(cloud: Path) -> None:
    (cloud / "stock").write_text("r z m spot 3\n")
    environment = {"PATH": os.environ["PATH"], "STEPFARE_SANDBOX": str(cloud)}
    for turn in range(40):
        words = ["sh", STOCK, str(os.getpid()), "r", "z", "m", "spot"]
        with subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as child:
            time.sleep(turn * 0.0005)
            os.killpg(child.pid, signal.SIGKILL)
    began = time.monotonic()
    assert _take(cloud, "r", "z", "m", "spot").returncode == 0
    assert in_time(began, 5)
