"""The helper that jobs import: what counts, what is passed over, what stays, what it says to the agent."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from router.agent.helper.stepfare_checkpoint import Agent, Checkpoints, Good, NotSavedError
from tests.support.narrowed import present
from tests.support.repository import ROOT

HELPER = ROOT / "router" / "agent" / "helper" / "stepfare_checkpoint.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def control(tmp_path: Path) -> Path:
    (tmp_path / "control").mkdir()
    return tmp_path / "control"


def _ask(control: Path, name: str, reason: str = "ordered", seconds: float = 60.0) -> None:
    body = {"version": 1, "id": name, "reason": reason, "seconds": seconds, "until": time.monotonic() + seconds}
    (control / "part").write_text(json.dumps(body))
    (control / "part").replace(control / "request.json")


def _said(control: Path, name: str = "saved.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((control / name).read_text())
    return found


def _write(text: str) -> Callable[[Path], Any]:
    return lambda place: (place / "state").write_text(text)


def _step(good: Good | None) -> int | None:
    return None if good is None else good.step


def _manifest(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.manifest.json"


def test_a_checkpoint_comes_back_as_it_was(folder: Path) -> None:
    checkpoints = Checkpoints(folder, attempt="a-1")
    assert checkpoints.newest() is None

    def write(place: Path) -> None:
        (place / "deep" / "er").mkdir(parents=True)
        (place / "deep" / "er" / "x").write_bytes(b"\0\1")
        (place / "empty").touch()

    saved = checkpoints.save(7, write, data_position={"epoch": 2, "at": [1, 2]}, rng=[1, "x", None])
    again = Checkpoints(folder, attempt="a-2").newest()
    assert again == saved
    assert again is not None
    assert (again.step, again.data_position, again.rng, again.attempt) == (
        7,
        {"epoch": 2, "at": [1, 2]},
        [1, "x", None],
        "a-1",
    )
    assert (again.of(0) / "deep" / "er" / "x").read_bytes() == b"\0\1"
    with pytest.raises(LookupError, match="no folder of rank 1"):
        again.of(1)
    manifest = json.loads(again.manifest.read_text())
    assert set(manifest) == {
        "version",
        "step",
        "attempt",
        "files",
        "data_position",
        "rng",
        "created",
        "answers",
    }
    assert [(file["bytes"], len(file["sha256"])) for file in manifest["files"]] == [(2, 64), (0, 64)]
    assert all((folder / file["path"]).is_file() for file in manifest["files"])


def _torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [_torn, _changed, Path.unlink])
@pytest.mark.parametrize("what", ["file", "manifest"])
def test_what_is_torn_or_changed_or_gone_is_passed_over_for_the_newest_good_one(
    harm: Callable[[Path], None], what: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = Checkpoints(folder)
    for step in (1, 2, 3):
        checkpoints.save(step, _write("x" * 100))
    for step in (3, 2):
        good = present(checkpoints.at(step))
        if what == "manifest" and harm is _changed:
            good.manifest.write_text(good.manifest.read_text().replace('"bytes": 100', '"bytes": 101'))
        else:
            harm(good.files[0] if what == "file" else good.manifest)
    found = Checkpoints(folder)
    assert _step(found.newest()) == 1
    gone = what == "manifest" and harm is Path.unlink
    said = (
        []
        if gone
        else [f"stepfare: passed over step-0000000{step}.manifest.json: not as it was written" for step in (3, 2)]
    )
    assert capsys.readouterr().err.splitlines() == said
    # Going on from there, what was passed over is saved anew.
    for step in (2, 3, 4):
        found.save(step, _write("y" * 100))
    assert [step for step, _ in found._manifests()] == [4, 3, 2]
    assert all(found.at(step) for step in (2, 3, 4))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version": 2}',
        "nonsense",
        '{"version": 1, "step": 9}',
        '{"version": 1, "step": 9, "files": [{"path": "../x", "bytes": 1, "sha256": "x"}], "rng": 0, "attempt": ""}',
        '{"version": 1, "step": 9, "files": [7], "data_position": 0, "rng": 0, "attempt": ""}',
        '{"version": 1, "step": 8, "files": [], "data_position": 0, "rng": 0, "attempt": ""}',
    ],
)
def test_a_manifest_that_is_none_counts_for_nothing_and_removes_nothing_outside(text: str, folder: Path) -> None:
    checkpoints = Checkpoints(folder, keep=1)
    checkpoints.save(5, _write("x"))
    _manifest(folder, 9).write_text(text)
    assert _step(checkpoints.newest()) == 5
    victim = folder.parent / "victim"
    victim.write_text("x")
    escape = {"path": "../victim", "bytes": 1, "sha256": "x"}
    manifest = json.loads(_manifest(folder, 5).read_text())
    _manifest(folder, 4).write_text(json.dumps({**manifest, "step": 4, "files": [escape]}))
    checkpoints.save(10, _write("x"))
    assert victim.exists()
    assert [step for step, _ in checkpoints._manifests()] == [10]


def test_the_newest_ones_stay_and_what_older_saves_left_goes(folder: Path) -> None:
    checkpoints = Checkpoints(folder, keep=2)
    (folder / "step-00000001" / "old" / "rank-0.ff").mkdir(parents=True)
    (folder / ".step-00000001.manifest.json.1-2.part").touch()
    (folder / "step-00000099" / "other").mkdir(parents=True)
    (folder / "step-1-mine").mkdir()
    for step in (2, 3, 4, 5):
        checkpoints.save(step, _write(str(step)))
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "step-00000004",
        "step-00000004.manifest.json",
        "step-00000005",
        "step-00000005.manifest.json",
        "step-00000099",
        "step-1-mine",
    ]


def test_the_newest_good_one_stays_though_later_ones_are_bad(folder: Path) -> None:
    """Gone back to step 10, because 20 and 30 are broken."""
    before = Checkpoints(folder, keep=2)
    for step in (10, 20):
        before.save(step, _write("x"))
    Checkpoints(folder, keep=3).save(30, _write("x"))
    for step in (20, 30):
        for file in folder.glob(f"step-{step:08d}/**/state"):
            _changed(file)
    after = Checkpoints(folder, keep=2)
    assert _step(after.newest()) == 10
    for step in (12, 14, 16):
        after.save(step, _write("y"))
        assert _step(Checkpoints(folder).newest()) == step
    assert [step for step, _ in after._manifests()] == [30, 20, 16, 14]
    after.save(40, _write("y"))
    assert [step for step, _ in after._manifests()] == [40, 16]


def test_files_that_are_there_already_are_taken_over(folder: Path) -> None:
    checkpoints = Checkpoints(folder, keep=1)
    for step in (1, 2):
        (folder / f"checkpoint-{step}").mkdir()
        (folder / f"checkpoint-{step}" / "model").write_text("x")
        checkpoints.save(step, [folder / f"checkpoint-{step}" / "model"])
    assert not (folder / "checkpoint-1" / "model").exists()
    good = present(checkpoints.newest())
    assert good.files == (folder / "checkpoint-2" / "model",)
    with pytest.raises(ValueError, match="is not in the subpath"):
        checkpoints.save(3, [folder.parent / "elsewhere"])
    assert _step(checkpoints.newest()) == 2


@pytest.mark.parametrize("data", [{1, 2}, b"x", object()])
def test_what_is_not_json_is_refused_before_anything_is_written(data: Any, folder: Path) -> None:
    checkpoints = Checkpoints(folder)
    with pytest.raises(TypeError):
        checkpoints.save(1, _write("x"), data_position=data)
    assert list(folder.iterdir()) == []


def test_a_save_that_fails_is_said_and_harms_nothing(folder: Path, control: Path) -> None:
    checkpoints = Checkpoints(folder, agent=Agent(str(control)))
    checkpoints.save(1, _write("x"))
    _ask(control, "c-1")
    assert checkpoints.wanted(2)

    def fail(place: Path) -> None:
        (place / "state").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(2, fail)
    assert _said(control) == {"version": 1, "id": "c-1", "failed": "OSError: [Errno 28] No space left on device"}
    assert checkpoints.wanted(3) is None
    assert _step(Checkpoints(folder).newest()) == 1


def test_what_was_just_saved_is_not_saved_again(folder: Path, control: Path) -> None:
    checkpoints = Checkpoints(folder, agent=Agent(str(control)))
    first = checkpoints.save(1, _write("x"))
    _ask(control, "c-1")
    assert checkpoints.wanted(1)
    assert checkpoints.save(1, lambda _: 1 / 0) == first
    assert (_said(control)["id"], _said(control)["step"]) == ("c-1", 1)


def test_requests_are_seen_answered_and_forgotten(folder: Path, control: Path) -> None:
    checkpoints = Checkpoints(folder, agent=Agent(str(control)))
    assert checkpoints.wanted(1) is None
    (control / "request.json").write_text("{")
    assert checkpoints.wanted(1) is None
    _ask(control, "c-1", "maintenance", seconds=30)
    first = present(checkpoints.wanted(1))
    assert (first.id, first.reason, first.ends) == ("c-1", "maintenance", False)
    _ask(control, "c-2")
    second = present(checkpoints.wanted(2))
    assert second.id == "c-2"
    checkpoints.save(2, _write("x"))
    answer = _said(control)
    assert {name: answer[name] for name in ("version", "id", "step", "manifest")} == {
        "version": 1,
        "id": "c-2",
        "step": 2,
        "manifest": str(_manifest(folder, 2)),
    }
    assert checkpoints.wanted(3) is None
    checkpoints.save(4, _write("x"))
    assert (_said(control)["id"], _said(control)["after"]) == ("", "c-2")


def test_without_an_agent_nobody_asks_and_the_rest_works(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEPFARE_CONTROL", raising=False)
    checkpoints = Checkpoints(folder)
    assert checkpoints.wanted(1) is None
    checkpoints.progress(1, 10)
    assert _step(checkpoints.save(1, _write("x"))) == 1
    monkeypatch.setenv("STEPFARE_CONTROL", "/nowhere/at/all")
    lost = Checkpoints(folder)
    assert lost.wanted(2) is None
    assert _step(lost.save(2, _write("x"))) == 2


def test_progress_is_written_once_a_second(folder: Path, control: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    checkpoints = Checkpoints(folder, agent=Agent(str(control)))
    written = []
    for step in range(1, 41):
        checkpoints.progress(step, 500)
        if (control / "progress.json").exists():
            written.append(_said(control, "progress.json"))
        now[0] += 0.125
    assert [body["step"] for body in written[::8]] == [9, 17, 25, 33]
    assert written[-1] == {"version": 1, "step": 33, "steps": 500, "step_seconds": 0.125}


def test_sigterm_asks_for_a_last_one(folder: Path, control: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        checkpoints = Checkpoints(folder, agent=Agent(str(control)))
        checkpoints.catch_sigterm()
        assert checkpoints.wanted(1) is None
        os.kill(os.getpid(), signal.SIGTERM)
        request = present(checkpoints.wanted(1))
        assert request.ends
        checkpoints.save(1, _write("x"))
        assert _said(control)["id"] == ""
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_attempt_is_the_agents_and_torchruns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_ATTEMPT", "llama-7f/3")
    for restarts, attempt in (("0", "llama-7f_3"), ("2", "llama-7f_3-2")):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", restarts)
        step = int(restarts) + 1
        assert Checkpoints(folder).save(step, _write("x")).attempt == attempt


def test_it_is_one_file_of_the_standard_library_in_python_3_9(tmp_path: Path) -> None:
    tree = ast.parse(HELPER.read_text(), feature_version=(3, 9))
    wanted = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    wanted |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in wanted} <= sys.stdlib_module_names
    code = f"import sys; sys.path[:0] = [{str(HELPER.parent)!r}]; import stepfare_checkpoint as c; c.Checkpoints('run')"
    subprocess.run([sys.executable, "-I", "-W", "error", "-c", code], check=True, cwd=tmp_path)


def test_with_an_uploader_what_is_saved_is_left_to_it_to_confirm(
    folder: Path, control: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPFARE_CHECKPOINT_URL", "s3://bucket/run")
    checkpoints = Checkpoints(folder, agent=Agent(str(control)), attempt="a")
    _ask(control, "c-1")
    assert checkpoints.wanted(1)
    checkpoints.save(1, _write("x"))
    assert not (control / "saved.json").exists()
    assert _said(control, "written.json")["id"] == "c-1"
    _ask(control, "c-2")
    assert checkpoints.wanted(2)
    with pytest.raises(ZeroDivisionError):
        checkpoints.save(2, lambda _: 1 / 0)
    assert "ZeroDivisionError" in _said(control, "written.json")["failed"]


class _Ranks:
    """Threads as ranks of a gang; their collective is a barrier."""

    def __init__(self, folder: Path, world: int, controls: list[Path], **more: Any) -> None:
        self.flags, self.barrier = [False] * world, threading.Barrier(world)
        self.all = [
            Checkpoints(
                folder,
                rank=rank,
                world=world,
                agent=Agent(str(controls[rank])),
                attempt="a",
                agree=partial(self._agree, rank),
                **{"patience": 20.0, **more},
            )
            for rank in range(world)
        ]
        self.pool = ThreadPoolExecutor(world)

    def _agree(self, rank: int, flag: bool) -> bool:
        self.flags[rank] = flag
        self.barrier.wait(20)
        found = any(self.flags)
        self.barrier.wait(20)
        return found

    def each(self, do: Callable[[Checkpoints, int], Any]) -> list[Any]:
        return [future.result(60) for future in [self.pool.submit(do, one, rank) for rank, one in enumerate(self.all)]]


@pytest.fixture
def ranks(folder: Path, tmp_path: Path) -> Iterator[Callable[..., _Ranks]]:
    made: list[_Ranks] = []

    def make(world: int, **more: Any) -> _Ranks:
        controls = [tmp_path / f"control-{rank}" for rank in range(world)]
        for path in controls:
            path.mkdir()
        made.append(_Ranks(folder, world, controls, **more))
        return made[-1]

    yield make
    for gang in made:
        gang.pool.shutdown()


def test_ranks_agree_and_one_manifest_names_what_all_wrote(ranks: Any, folder: Path, tmp_path: Path) -> None:
    gang = ranks(3, agree_every=2)
    assert gang.each(lambda one, _: one.wanted(2)) == [None] * 3
    _ask(tmp_path / "control-1", "c-1", "interruption")
    assert gang.each(lambda one, _: one.wanted(3)) == [None] * 3
    found = gang.each(lambda one, _: one.wanted(4))
    assert [(request.id, request.reason, request.ends) for request in found] == [
        ("", "ordered", False),
        ("c-1", "interruption", False),
        ("", "ordered", False),
    ]
    assert 0 < found[1].seconds <= 60
    assert found[0].seconds is None
    saved = gang.each(lambda one, rank: one.save(4, _write(f"rank {rank}") if rank < 2 else None, data_position=rank))
    assert saved[0] == saved[1] == saved[2]
    assert [(saved[0].of(rank) / "state").read_text() for rank in (0, 1)] == ["rank 0", "rank 1"]
    assert saved[0].data_position == 0
    assert _said(tmp_path / "control-1")["id"] == "c-1"
    assert _said(tmp_path / "control-0")["id"] == ""
    assert not (tmp_path / "control-2" / "saved.json").exists()
    # The same question comes to the others later: there is nothing to do again.
    _ask(tmp_path / "control-2", "c-1", "interruption")
    assert gang.each(lambda one, _: one.wanted(6)) == [None] * 3
    answer = _said(tmp_path / "control-2")
    assert (answer["id"], answer["step"], answer["manifest"]) == ("c-1", 4, str(_manifest(folder, 4)))


def test_when_one_is_to_end_all_are(ranks: Any, tmp_path: Path) -> None:
    gang = ranks(2)
    _ask(tmp_path / "control-1", "s-1", "stop")
    assert [request.ends for request in gang.each(lambda one, _: one.wanted(1))] == [True, True]


def test_a_rank_that_fails_fails_all_and_soon(ranks: Any, folder: Path) -> None:
    gang = ranks(3)
    began = time.monotonic()

    def save(one: Checkpoints, rank: int) -> str:
        try:
            one.save(1, _write("x") if rank != 1 else lambda _: 1 / 0)
        except (OSError, ZeroDivisionError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    said = gang.each(save)
    assert said[1] == "ZeroDivisionError: division by zero"
    assert all(text.startswith("NotSavedError: step 1: rank ") for text in (said[0], said[2]))
    assert time.monotonic() - began < 10
    assert Checkpoints(folder, attempt="look").newest() is None
    assert _step(gang.each(lambda one, _: one.save(2, _write("x")))[0]) == 2


def test_a_rank_that_never_comes_is_waited_for_so_long(folder: Path) -> None:
    with pytest.raises(NotSavedError, match=r"not all ranks were done within 0\.2 s"):
        Checkpoints(folder, world=2, patience=0.2).save(1, _write("x"))
    assert Checkpoints(folder, attempt="look").newest() is None


def test_parts_of_a_life_before_are_not_taken_for_this_one(ranks: Any, folder: Path) -> None:
    before = Checkpoints(folder, rank=1, world=2, attempt="a", patience=0.1)
    with pytest.raises(NotSavedError):
        before.save(1, _write("of a life before"))
    gang = ranks(2)
    saved = gang.each(lambda one, rank: one.save(1, _write(f"rank {rank}")))
    assert (saved[0].of(1) / "state").read_text() == "rank 1"
