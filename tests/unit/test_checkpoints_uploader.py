"""The uploader beside a training: what becomes durable, and what the agent is told of it, when."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.agent.control import AgentControlFolder
from router.agent.helper.stepfare_checkpoint import Agent, Checkpoints
from router.checkpoints.object_store import FolderStore, StoreReader
from router.checkpoints.uploader import (
    PendingCheckpoint,
    Uploader,
    UploaderControlFolder,
    UploadSettings,
    choose_checkpoint,
)
from tests.support.busy import in_time
from tests.support.stored_checkpoints import newest, save, steps

LONGEST = 10.0


class Slow(FolderStore):
    """A place to which only so much comes at a time: files wait for ``gate``; then for ``errors``."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.gate, self.errors, self.creating = threading.Event(), list[OSError](), list[str]()
        self.gate.set()

    @contextmanager
    def create(self, path: str) -> Iterator[Any]:
        """The folder's, later."""
        self.creating.append(path)
        assert self.gate.wait(LONGEST)
        if self.errors:
            raise self.errors.pop(0)
        with super().create(path) as sink:
            yield sink

    @contextmanager
    def open(self, path: str) -> Iterator[StoreReader]:
        """The folder's."""
        with super().open(path) as reader:
            yield reader


class Scene:
    """An agent's control folder, a training that saves, an uploader."""

    def __init__(self, root: Path, *, keep: int = 3, leads: bool = True, control: bool = True) -> None:
        self.run, self.target = root / "run", Slow(root / "durable")
        self.control = AgentControlFolder(root / "control", signals=False)
        self.control.prepare()
        self.said: list[str] = []
        self.training = Checkpoints(self.run, keep=2, agent=Agent(str(self.control.folder)), attempt="a")
        answers = UploaderControlFolder(self.control.folder) if control else None
        self.uploader = Uploader(
            self.target,
            folder=self.run,
            answers=answers,
            how=UploadSettings(leads, keep),
            tell=self.said.append,
            sleep=lambda _: None,
        )

    def save(self, step: int) -> None:
        """One small checkpoint."""
        self.training.wanted(step)
        self.training.save(step, lambda place: (place / "state").write_bytes(b"%d" % step * 10))

    def until(self, ready: Callable[[], Any]) -> None:
        """Looks until something is so."""
        limit = time.monotonic() + LONGEST
        self.uploader.look()
        while not ready():
            assert time.monotonic() < limit, self.said
            time.sleep(0.005)
            self.uploader.look()

    def heard(self) -> dict[str, Any]:
        """What the agent was told last."""
        path = self.control.folder / "saved.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setenv("STEPFARE_CHECKPOINT_URL", "somewhere")
    return Scene(tmp_path)


def test_a_request_is_answered_when_the_checkpoint_is_durable(scene: Scene) -> None:
    scene.control.request("c-1", "ordered", 60)
    scene.target.gate.clear()
    scene.save(5)
    scene.until(lambda: scene.target.creating)
    assert scene.control.look() == []
    scene.target.gate.set()
    scene.until(lambda: scene.heard())
    manifest = str(scene.target.path / "step-00000005.manifest.json")
    (answer,) = scene.control.look()
    assert {**answer, "seconds": 0} == {"id": "c-1", "step": 5, "manifest": manifest, "seconds": 0}
    assert newest(scene.target.path) == 5
    assert scene.control.known()["saved_manifest"] == manifest


def test_what_nobody_asked_for_is_told_too(scene: Scene) -> None:
    for step in (1, 2):
        scene.save(step)
        scene.until(lambda: scene.uploader.is_idle)
        assert [answer["step"] for answer in scene.control.look()] == [step]


def test_the_same_checkpoint_answers_again(scene: Scene) -> None:
    scene.save(5)
    scene.until(lambda: scene.heard())
    scene.control.look()
    scene.control.request("c-9", "ordered", 60)
    scene.save(5)
    scene.until(lambda: scene.heard().get("id") == "c-9")
    assert scene.control.look()[0]["step"] == 5


def test_a_failure_is_passed_on(scene: Scene) -> None:
    scene.control.request("c-1", "ordered", 60)
    with pytest.raises(ZeroDivisionError):
        scene.training.save(5, lambda _: 1 / 0)
    scene.until(lambda: scene.heard())
    assert scene.control.look() == [{"id": "c-1", "failed": "ZeroDivisionError: division by zero"}]


def test_one_answer_for_two_requests_while_the_store_was_away(scene: Scene) -> None:
    scene.target.errors = [OSError("down")] * 4
    for step, name in ((5, "c-1"), (6, "c-2")):
        scene.control.request(name, "ordered", 60)
        scene.save(step)
        scene.uploader.look()
    scene.until(lambda: scene.heard())
    assert [(answer["id"], answer["step"]) for answer in scene.control.look()] == [("c-1", 6), ("c-2", 6)]


def test_a_checkpoint_that_is_gone_before_it_is_copied_fails_its_request(scene: Scene) -> None:
    scene.control.request("c-1", "ordered", 60)
    scene.save(5)
    next((scene.run / "step-00000005").rglob("state")).unlink()
    scene.until(lambda: scene.heard())
    (answer,) = scene.control.look()
    assert "is gone" in answer["failed"]
    assert scene.uploader.is_idle
    scene.save(6)
    scene.until(lambda: scene.heard().get("step") == 6)


def test_what_is_under_way_ends_and_then_comes_the_newest(scene: Scene) -> None:
    scene.target.gate.clear()
    for step in (1, 2, 3):
        scene.save(step)
        scene.until(lambda: scene.target.creating)
    scene.target.gate.set()
    scene.until(lambda: scene.heard().get("step") == 3)
    # The training keeps two: of the first the file was open, of the second nothing is left to do.
    assert steps(scene.target.path) in ([1, 3], [3])


def test_at_the_start_only_the_newest_counts(scene: Scene) -> None:
    for step in (1, 2):
        scene.save(step)
    scene.until(lambda: scene.heard().get("step") == 2)
    assert steps(scene.target.path) == [2]


def test_the_newest_stay(tmp_path: Path) -> None:
    scene = Scene(tmp_path, keep=2)
    for step in range(1, 5):
        scene.save(step)
        scene.until(lambda: scene.uploader.is_idle and scene.uploader._removal is None)
    assert steps(scene.target.path) == [3, 4]


def test_a_step_that_is_saved_anew_is_copied_anew(tmp_path: Path) -> None:
    scene = Scene(tmp_path, control=False)
    save(scene.run, 5, attempt="a")
    scene.until(lambda: newest(scene.target.path) == 5)
    save(scene.run, 5, attempt="b")
    scene.uploader.look()
    scene.until(lambda: scene.uploader.is_idle)
    assert sorted(path.name for path in (scene.target.path / "step-00000005").iterdir()) == ["a", "b"]
    assert json.loads((scene.target.path / "step-00000005.manifest.json").read_text())["attempt"] == "b"


def test_other_machines_answer_when_the_first_has_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_CHECKPOINT_URL", "somewhere")
    scene = Scene(tmp_path, leads=False)
    scene.control.request("c-1", "ordered", 60)
    scene.save(5)
    for _ in range(20):
        scene.uploader.look()
        time.sleep(0.01)
    assert scene.heard() == {}
    assert steps(scene.target.path) == []
    first = Uploader(scene.target, folder=scene.run, answers=None, how=UploadSettings(), tell=scene.said.append)
    assert first.run(lambda: True, LONGEST)
    scene.until(lambda: scene.heard())
    assert (scene.heard()["id"], scene.heard()["step"]) == ("c-1", 5)
    assert scene.uploader.is_idle


def test_the_end_waits_for_what_is_left(scene: Scene) -> None:
    scene.save(1)
    assert scene.uploader.run(lambda: True, LONGEST)
    assert newest(scene.target.path) == 1


def test_the_end_has_an_end(scene: Scene) -> None:
    scene.target.gate.clear()
    scene.save(1)
    began = time.monotonic()
    assert not scene.uploader.run(lambda: True, 0.2)
    assert in_time(began, 2)
    scene.target.gate.set()
    assert "step-00000001.manifest.json" not in scene.target.creating


def test_a_notice_shortens_the_pause_after_a_failure(scene: Scene) -> None:
    scene.target.errors = [OSError("down")] * 40
    scene.save(1)
    scene.until(lambda: any("again" in line for line in scene.said))
    scene.uploader._not_before = time.monotonic() + 1000
    scene.uploader._failed_at = time.monotonic() - 1000
    scene.target.errors = []
    scene.control.request("c-1", "interruption", 60)
    scene.until(lambda: scene.heard())


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", '{"id": 7}', '{"step": "x"}', '{"step": 1, "seconds": []}', "\0" * 100]
)
def test_nothing_that_a_training_writes_harms(scene: Scene, text: str) -> None:
    (scene.control.folder / "written.json").write_text(text)
    (scene.control.folder / "request.json").write_text(text)
    (scene.run / "step-00000007.manifest.json").write_text(text)
    scene.uploader.look()
    scene.save(9)
    scene.until(lambda: scene.heard())


def _all(*sizes: int) -> list[PendingCheckpoint]:
    return [PendingCheckpoint(step, size) for step, size in enumerate(sizes, 1)]


@pytest.mark.parametrize(
    ("sizes", "running", "rate", "seconds", "chosen"),
    [
        ((), None, None, None, None),
        ((5, 5), None, None, None, 2),
        ((5, 5), 1, None, None, 1),  # without an end, what is under way ends
        ((5, 5), 1, 1.0, 10.0, 1),  # time for both
        ((5, 5), 1, 1.0, 9.0, 2),  # only for one: the newest
        ((5, 5), 2, 1.0, 5.0, 2),
        ((2, 5), 1, 1.0, 4.0, 1),  # the newest cannot
        ((2, 5), None, 1.0, 4.0, 1),
        ((3, 2, 9), None, 1.0, 4.0, 2),
        ((9, 9), None, 1.0, 1.0, 2),  # none can
        ((9, 9), 1, 1.0, 1.0, 1),
        ((9, 9), 1, None, 1.0, 2),  # nobody knows
        ((5, 5), 7, 1.0, 5.0, 2),  # what was under way counts no more
    ],
)
def test_choices(
    sizes: tuple[int, ...], running: int | None, rate: float | None, seconds: float | None, chosen: int | None
) -> None:
    assert choose_checkpoint(_all(*sizes), running, rate, seconds) == chosen


@given(st.lists(st.integers(0, 100), min_size=1), st.integers(1, 20), st.integers(0, 50))
def test_what_can_be_durable_in_time_is(sizes: list[int], rate: int, seconds: int) -> None:
    chosen = choose_checkpoint(_all(*sizes), None, rate, seconds)
    assert chosen is not None
    can = [step for step, size in enumerate(sizes, 1) if size <= rate * seconds]
    assert chosen == (can[-1] if can else len(sizes))
