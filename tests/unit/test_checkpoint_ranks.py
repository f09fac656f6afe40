"""The helper in a gang: one step of all ranks, one manifest, whoever was asked."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from router.agent.helper.stepfare_checkpoint import Agent, Checkpoints, Good, NotSavedError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run"


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
