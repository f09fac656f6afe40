"""A copy of data: what is copied, what is not copied twice, what makes it whole."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.checkpoints.checkpoints import FileJournal
from router.checkpoints.data_copy import DataCopyResult, DataFile, copy_data, read_data_manifest
from router.checkpoints.object_store import (
    CancelledError,
    FolderStore,
    IncompleteCheckpointError,
    ListedFile,
    OutOfTimeError,
    StorageError,
    StoreReader,
    StoreSink,
)
from router.checkpoints.transfer import TransferLimits

FILES = {"a": b"one", "deep/b": b"twenty-two", "empty": b""}
SIZE = 13


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Scene:
    """Data in one folder, to be copied into another; the journal survives whoever copies."""

    def __init__(self, folder: Path) -> None:
        self.source, self.target, self._folder = FolderStore(folder / "from"), FolderStore(folder / "to"), folder
        self.begun: list[int] = []
        write(folder / "from", FILES)

    def copy(self, pace: TransferLimits | None = None, target: FolderStore | None = None) -> DataCopyResult:
        journal = FileJournal(self._folder / "journal", DataFile)
        limits = TransferLimits() if pace is None else pace
        return copy_data(
            self.source,
            self.target if target is None else target,
            limits,
            journal,
            begins=self.begun.append,
            parallel=2,
            sleep=lambda _: None,
        )

    def copied(self) -> dict[str, bytes]:
        return content(self.target.path / "files")


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_files_are_copied_and_the_manifest_has_what_was_read(scene: Scene) -> None:
    pace = TransferLimits()
    assert scene.copy(pace) == DataCopyResult(3, SIZE, 0)
    assert (scene.copied(), pace.moved, scene.begun) == (FILES, SIZE, [SIZE])
    files = read_data_manifest(scene.target)
    assert files is not None
    assert {file.path: (file.bytes, file.sha256) for file in files} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in FILES.items()
    }


def test_a_whole_copy_is_left_as_it_is(scene: Scene) -> None:
    scene.copy()
    before = (scene.target.path / "manifest.json").stat()
    pace = TransferLimits()
    assert scene.copy(pace) == DataCopyResult(3, SIZE, SIZE)
    assert (pace.moved, scene.begun) == (0, [SIZE])
    assert (scene.target.path / "manifest.json").stat() == before


@pytest.mark.parametrize("loses_journal", [False, True])
def test_what_was_changed_added_or_removed_is_followed(scene: Scene, loses_journal: bool) -> None:
    scene.copy()
    if loses_journal:
        (scene.target.path.parent / "journal").unlink()
    write(scene.source.path, {"a": b"ONE", "new": b"4444"})
    os.utime(scene.source.path / "a", ns=(1, 1))
    (scene.source.path / "deep" / "b").unlink()
    pace = TransferLimits()
    assert scene.copy(pace) == DataCopyResult(3, 7, 0)
    assert (pace.moved, scene.copied()) == (7, {"a": b"ONE", "new": b"4444", "empty": b""})


@pytest.mark.parametrize("harm", ["gone", "cut short"])
def test_what_was_lost_at_the_target_is_copied_again(scene: Scene, harm: str) -> None:
    scene.copy()
    file = scene.target.path / "files" / "deep" / "b"
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(b"t")
    assert scene.copy().kept == SIZE - 10
    assert scene.copied() == FILES


class Dying(FolderStore):
    """One whose process is killed as it writes the file of that name."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path)
        self._name = name

    @contextmanager
    def create(self, path: str) -> Iterator[StoreSink]:
        if path.endswith(self._name):
            (self.path / "files").mkdir(parents=True, exist_ok=True)
            (self.path / "files" / "torn").write_bytes(b"half of it")
            raise KeyboardInterrupt
        with super().create(path) as sink:
            yield sink


@pytest.mark.parametrize(("name", "kept"), [("a", 10), ("manifest.json", SIZE)])
def test_a_copy_that_was_killed_goes_on(scene: Scene, name: str, kept: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        scene.copy(target=Dying(scene.target.path, name))
    assert read_data_manifest(scene.target) is None
    assert scene.copy().kept >= kept - (name == "a") * 10
    assert scene.copied() == FILES


class Changing(FolderStore):
    """One in which somebody writes while it is read."""

    @contextmanager
    def open(self, path: str) -> Iterator[StoreReader]:
        with super().open(path) as reader:
            yield reader
        write(self.path, {"late": b"x"})


def test_data_that_change_meanwhile_make_no_copy(scene: Scene) -> None:
    scene.source = Changing(scene.source.path)
    with pytest.raises(IncompleteCheckpointError, match="was changed while it was copied"):
        scene.copy()
    assert read_data_manifest(scene.target) is None
    scene.source = FolderStore(scene.source.path)
    assert scene.copy() == DataCopyResult(4, SIZE + 1, SIZE)


class Odd(FolderStore):
    """One with a path that would leave the folder of the copy."""

    def files(self) -> list[ListedFile]:
        return [ListedFile("../../etc/passwd", 1, 1)]


def test_no_path_leads_out_of_the_copy(scene: Scene) -> None:
    scene.source = Odd(scene.source.path)
    with pytest.raises(StorageError, match="not every store takes"):
        scene.copy()
    assert not scene.target.path.exists()


def test_data_without_files_are_none(scene: Scene, tmp_path: Path) -> None:
    scene.source = FolderStore(tmp_path / "nowhere")
    with pytest.raises(StorageError, match="has no files"):
        scene.copy()


def test_it_ends_by_its_limits(scene: Scene) -> None:
    pace = TransferLimits()
    pace.cancel()
    with pytest.raises(CancelledError):
        scene.copy(pace)
    with pytest.raises(OutOfTimeError):
        scene.copy(TransferLimits(seconds=0.0))


@pytest.mark.parametrize("text", ["", "{}", '{"version": 2, "files": []}', '{"version": 1, "files": [{"path": 1}]}'])
def test_a_manifest_that_cannot_be_read_is_none(scene: Scene, text: str) -> None:
    scene.copy()
    (scene.target.path / "manifest.json").write_text(text)
    assert read_data_manifest(scene.target) is None
    assert scene.copy().kept == SIZE
    assert json.loads((scene.target.path / "manifest.json").read_text())["version"] == 1


def test_every_chunk_is_counted(scene: Scene) -> None:
    counted: list[int] = []
    scene.copy(TransferLimits(counted=counted.append))
    assert (sorted(counted), counted[-1]) == (counted, SIZE)
