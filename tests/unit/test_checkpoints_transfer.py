"""Checkpoints copied between folders: what counts, what is passed over, what is not copied twice, what stays."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.agent.helper.stepfare_checkpoint import Checkpoints
from router.checkpoints.checkpoints import (
    CheckpointFile,
    CheckpointManifest,
    CopyJournal,
    find_complete_checkpoints,
    manifest_name,
    parse_manifest,
    parse_step,
    read_manifest,
    remove_old_checkpoints,
)
from router.checkpoints.object_store import (
    CancelledError,
    FolderStore,
    IncompleteCheckpointError,
    OutOfTimeError,
    StorageError,
    StoreSink,
    open_checkpoint_store,
)
from router.checkpoints.transfer import CHUNK, TransferLimits, TransferResult, transfer_checkpoint, verify_checkpoint
from tests.support.narrowed import present
from tests.support.stored_checkpoints import newest, save, steps


def _manifest(folder: Path, step: int) -> CheckpointManifest:
    return present(read_manifest(FolderStore(folder), step))


def _copy(source: Path, target: Path | FolderStore, step: int, pace: TransferLimits | None = None) -> TransferResult:
    goal = FolderStore(target) if isinstance(target, Path) else target
    return transfer_checkpoint(
        FolderStore(source), _manifest(source, step), goal, pace or TransferLimits(), sleep=lambda _: None
    )


class Troubled(FolderStore):
    """A folder whose first writes fail."""

    def __init__(self, path: Path, errors: list[OSError]) -> None:
        super().__init__(path)
        self.errors = errors

    @contextmanager
    def create(self, path: str) -> Iterator[StoreSink]:
        """The folder's, unless there is an error left."""
        with super().create(path) as sink:
            if self.errors:
                sink.write(b"half")
                raise self.errors.pop(0)
            yield sink


def test_a_checkpoint_arrives_as_it_was(tmp_path: Path) -> None:
    files = {"empty": 0, "one": 1, "deep/large": 2 * CHUNK + 1, "chunk": CHUNK}
    save(tmp_path / "from", 4, files)
    moved = _copy(tmp_path / "from", tmp_path / "to", 4)
    assert (moved.files, moved.bytes, moved.kept) == (4, 3 * CHUNK + 2, 0)
    assert moved.manifest == str(tmp_path / "to" / "step-00000004.manifest.json")
    assert newest(tmp_path / "to") == 4
    assert not list((tmp_path / "to").rglob("*.part"))


def test_nothing_is_copied_twice(tmp_path: Path) -> None:
    save(tmp_path / "from", 4)
    manifest = _manifest(tmp_path / "from", 4)
    _copy(tmp_path / "from", tmp_path / "to", 4)
    assert (_copy(tmp_path / "from", tmp_path / "to", 4).bytes) == 0
    (tmp_path / "to" / manifest.name).unlink()
    (tmp_path / "to" / manifest.files[0].path).write_bytes(b"x" * manifest.files[0].bytes)
    moved = _copy(tmp_path / "from", tmp_path / "to", 4)
    assert (moved.bytes, moved.kept) == (manifest.files[0].bytes, manifest.files[1].bytes)
    assert newest(tmp_path / "to") == 4


def test_the_journal_saves_reading_back(tmp_path: Path) -> None:
    save(tmp_path / "from", 4)
    manifest, target = _manifest(tmp_path / "from", 4), FolderStore(tmp_path / "to")
    journal = CopyJournal(tmp_path / "from", "s3://b/x")
    transfer_checkpoint(FolderStore(tmp_path / "from"), manifest, target, TransferLimits(), journal=journal)
    (tmp_path / "to" / manifest.name).unlink()
    again = CopyJournal(tmp_path / "from", "s3://b/x")
    assert all(again.knows(file) for file in manifest.files)
    assert not any(CopyJournal(tmp_path / "from", "s3://b/y").knows(file) for file in manifest.files)
    pace = TransferLimits()
    moved = transfer_checkpoint(FolderStore(tmp_path / "from"), manifest, target, pace, journal=again)
    assert (moved.bytes, pace.moved) == (0, 0)
    (tmp_path / "from" / manifest.files[0].path).unlink()
    assert not CopyJournal(tmp_path / "from", "s3://b/x").knows(manifest.files[0])
    next((tmp_path / "from").glob(".uploaded-*")).write_bytes(b'["x"]\nnull\n\xff')
    assert not CopyJournal(tmp_path / "from", "s3://b/x").knows(manifest.files[1])


@pytest.mark.parametrize("harm", ["gone", "short", "other"])
def test_a_source_that_is_not_whole_makes_no_checkpoint(tmp_path: Path, harm: str) -> None:
    save(tmp_path / "from", 3)
    _copy(tmp_path / "from", tmp_path / "to", 3)
    good = save(tmp_path / "from", 4)
    file = good.files[-1]
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(b"x" * (file.stat().st_size - (harm == "short")))
    with pytest.raises(IncompleteCheckpointError, match="step-00000004"):
        _copy(tmp_path / "from", tmp_path / "to", 4)
    assert (steps(tmp_path / "to"), newest(tmp_path / "to")) == ([3], 3)


def test_what_fails_now_and_then_is_tried_again(tmp_path: Path) -> None:
    save(tmp_path / "from", 4)
    target = Troubled(tmp_path / "to", [OSError("throttled"), TimeoutError("slow")])
    assert _copy(tmp_path / "from", target, 4).files == 2
    assert newest(tmp_path / "to") == 4
    target = Troubled(tmp_path / "away", [OSError("down") for _ in range(50)])
    with pytest.raises(StorageError, match="down"):
        _copy(tmp_path / "from", target, 4)
    assert steps(tmp_path / "away") == []


class Forgetful(FolderStore):
    """A folder whose first answers get lost, after it has taken everything."""

    def __init__(self, path: Path, errors: int) -> None:
        super().__init__(path)
        self.errors, self.created = errors, list[str]()

    @contextmanager
    def create(self, path: str) -> Iterator[StoreSink]:
        """The folder's."""
        self.created.append(path)
        with super().create(path) as sink:
            yield sink
        if self.errors:
            self.errors -= 1
            raise TimeoutError("no answer")


def test_what_arrived_though_nobody_said_so_is_not_sent_again(tmp_path: Path) -> None:
    save(tmp_path / "from", 4, {"state": 10})
    target = Forgetful(tmp_path / "to", 1)
    assert _copy(tmp_path / "from", target, 4).files == 1
    assert len(target.created) == 2
    assert newest(tmp_path / "to") == 4


def test_a_full_disk_is_said_at_once(tmp_path: Path) -> None:
    save(tmp_path / "from", 4, {"state": 10})
    target = Troubled(tmp_path / "to", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
    with pytest.raises(StorageError, match="No space left"):
        _copy(tmp_path / "from", target, 4)
    assert target.errors == []
    assert not [path for path in (tmp_path / "to").rglob("*") if path.is_file()]
    assert _copy(tmp_path / "from", target, 4).files == 1


def test_the_time_box_and_whoever_cancels(tmp_path: Path) -> None:
    save(tmp_path / "from", 4, dict.fromkeys("abcdef", 10))
    now = [0.0]
    pace = TransferLimits(seconds=10, ticks=lambda: now[0])
    now[0] = 10.0
    with pytest.raises(OutOfTimeError):
        _copy(tmp_path / "from", tmp_path / "to", 4, pace)
    pace = TransferLimits()
    pace.cancel()
    with pytest.raises(CancelledError):
        _copy(tmp_path / "from", tmp_path / "to", 4, pace)
    assert steps(tmp_path / "to") == []


def test_bandwidth_has_a_bound() -> None:
    now, slept = [0.0], [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        slept[0] += seconds

    pace = TransferLimits(bytes_per_second=100.0, ticks=lambda: now[0], sleep=sleep)
    for _ in range(50):
        pace.take(20)
    assert 8.9 < slept[0] <= 10.01
    assert pace.rate == pytest.approx(100, rel=0.2)


def test_whether_something_can_end() -> None:
    now = [0.0]
    pace = TransferLimits(seconds=10, rate=50.0, ticks=lambda: now[0])
    assert (pace.can_end(500), pace.can_end(501), pace.left) == (True, False, 10)
    assert TransferLimits(ticks=lambda: now[0]).can_end(10**18)
    assert TransferLimits(seconds=1, ticks=lambda: now[0]).can_end(10**18)
    now[0] = 10.0
    assert not pace.can_end(0)


def test_names_that_a_job_uses_again_do_not_harm_what_is_durable(tmp_path: Path) -> None:
    from router.agent.helper.stepfare_checkpoint import Checkpoints

    source = tmp_path / "from"
    for step in (1, 2):
        source.mkdir(exist_ok=True)
        (source / "last.ckpt").write_bytes(b"x" * step)
        Checkpoints(source, keep=9, attempt="a").save(step, [source / "last.ckpt"])
        _copy(source, tmp_path / "to", step)
        assert _copy(source, tmp_path / "to", step).bytes == 0
    found = list(find_complete_checkpoints(FolderStore(tmp_path / "to")))
    assert [manifest.step for manifest in found] == [2, 1]
    for manifest in found:
        verify_checkpoint(FolderStore(tmp_path / "to"), manifest, TransferLimits())
    again = present(Checkpoints(tmp_path / "to", attempt="b").newest())
    assert again.files[0].name == "last.ckpt"


def test_which_count(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, step)
    (tmp_path / "step-00000005.manifest.json").write_text("{")
    next((tmp_path / "step-00000004").rglob("state")).unlink()
    next((tmp_path / "step-00000003").rglob("state")).write_bytes(b"x" * 3000)
    said: list[int] = []
    sized = list(find_complete_checkpoints(FolderStore(tmp_path), lambda step, why: said.append(step)))
    assert ([manifest.step for manifest in sized], said) == ([3, 2, 1], [5, 4])
    with pytest.raises(IncompleteCheckpointError):
        verify_checkpoint(FolderStore(tmp_path), sized[0], TransferLimits())
    verify_checkpoint(FolderStore(tmp_path), sized[1], TransferLimits())
    assert list(find_complete_checkpoints(FolderStore(tmp_path / "none"))) == []


def test_the_newest_stay_and_what_is_torn_goes(tmp_path: Path) -> None:
    for step in range(1, 8):
        save(tmp_path, step)
    next((tmp_path / "step-00000005").rglob("state")).unlink()
    (tmp_path / "step-00000002.manifest.json").unlink()
    (tmp_path / "else").mkdir()
    assert remove_old_checkpoints(FolderStore(tmp_path), 3, 6) == [5, 1]
    assert steps(tmp_path) == [3, 4, 6, 7]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "else",
        *[f"step-{step:08d}" for step in (3, 4, 5, 6, 7)],
    ]
    assert remove_old_checkpoints(FolderStore(tmp_path), 1, 7) == [6, 4, 3]
    assert (steps(tmp_path), newest(tmp_path)) == ([7], 7)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["else", "step-00000007"]


def test_files_that_a_later_one_needs_stay(tmp_path: Path) -> None:
    from router.agent.helper.stepfare_checkpoint import Checkpoints

    save(tmp_path, 1)
    shared = next((tmp_path / "step-00000001").rglob("state"))
    Checkpoints(tmp_path, keep=9, attempt="a").save(2, [shared])
    assert remove_old_checkpoints(FolderStore(tmp_path), 1, 2) == [1]
    assert newest(tmp_path) == 2
    assert [path.name for path in (tmp_path / "step-00000001").rglob("*") if path.is_file()] == ["state"]


def test_places() -> None:
    def none(url: str) -> FolderStore:
        raise StorageError(url)

    assert open_checkpoint_store("file:///x/y", none).url == "/x/y"
    assert open_checkpoint_store("/x", none).where("a") == "/x/a"
    for url in ("file://host/x", "ftp://x/y"):
        with pytest.raises(StorageError):
            open_checkpoint_store(url, none)


def test_a_transfer_that_is_cancelled_stops_soon(tmp_path: Path) -> None:
    save(tmp_path / "from", 4, {"large": 4 * CHUNK})
    pace = TransferLimits(bytes_per_second=CHUNK)
    timer = threading.Timer(0.2, pace.cancel)
    timer.start()
    with pytest.raises(CancelledError):
        _copy(tmp_path / "from", tmp_path / "to", 4, pace)
    timer.join()
    assert steps(tmp_path / "to") == []


ZERO = "0" * 64


def _said(**changes: Any) -> bytes:
    files = [{"path": "step-00000007/a/x", "bytes": 1, "sha256": ZERO}]
    said = {"version": 1, "step": 7, "attempt": "a", "created": "2026-11-21T18:00:00+00:00", "files": files, **changes}
    return json.dumps(said).encode()


def _file(**changes: Any) -> list[dict[str, Any]]:
    return [{"path": "x", "bytes": 1, "sha256": ZERO, **changes}]


def test_what_the_helper_writes_is_read(tmp_path: Path) -> None:
    good = save(tmp_path, 12)
    manifest = parse_manifest(good.manifest.name, good.manifest.read_bytes())
    assert (manifest.step, manifest.attempt, manifest.bytes) == (12, "a", 3010)
    assert [tmp_path / file.path for file in manifest.files] == list(good.files)
    assert manifest.name == good.manifest.name


def test_names_and_steps() -> None:
    assert manifest_name(7) == "step-00000007.manifest.json"
    assert [parse_step(manifest_name(step)) for step in (0, 10**12)] == [0, 10**12]
    assert {parse_step(name) for name in ("x", "step-7.manifest.json", ".step-00000007.manifest.json", "")} == {None}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"7",
        b"{}",
        b"null",
        b"\xff",
        b"[" * 100_000,
        _said()[:-1],
        _said(version=2),
        _said(step=8),
        _said(step=True),
        _said(attempt=1),
        _said(created=None),
        _said(files=None),
        _said(files=[1]),
        _said(files=_file() * 2),
        *[
            _said(files=_file(path=path))
            for path in (
                "",
                "/x",
                "../x",
                "a/../x",
                "a//x",
                "./x",
                "a\\x",
                "x" * 2000,
                "a\0",
                "step-00000001.manifest.json",
                7,
            )
        ],
        *[_said(files=_file(bytes=size)) for size in (-1, 1.0, True, "1", None)],
        *[_said(files=_file(sha256=text)) for text in ("", "0" * 63, "G" * 64, 7)],
    ],
    ids=lambda text: str(len(text)),
)
def test_what_does_not_keep_to_the_contract_is_none(text: bytes) -> None:
    with pytest.raises(ValueError, match="step-00000007"):
        parse_manifest("step-00000007.manifest.json", text)


KEYS = st.sampled_from(["version", "step", "attempt", "files", "path", "bytes", "sha256"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda x: st.lists(x) | st.dictionaries(KEYS, x), max_leaves=30))
def test_no_content_does_anything_else(content: Any) -> None:
    try:
        assert isinstance(
            parse_manifest("step-00000007.manifest.json", json.dumps(content).encode()), CheckpointManifest
        )
    except ValueError:
        return


def test_the_same_checkpoint_elsewhere_is_the_same(tmp_path: Path) -> None:
    name = manifest_name(7)
    one, other = parse_manifest(name, _said()), parse_manifest(name, _said(attempt="b"))
    assert one.is_same(one.beside({"step-00000007/a/x": "1" * 64}))
    assert not one.is_same(other)
    assert one.beside({"step-00000007/a/x": ZERO, "y": ZERO}) is one


def test_content_of_others_is_never_written_over() -> None:
    moved = parse_manifest(manifest_name(7), _said()).beside({"step-00000007/a/x": "1" * 64})
    assert moved.files == (CheckpointFile(f"step-00000007/moved-{'0' * 12}/x", 1, ZERO),)
    assert parse_manifest(manifest_name(7), moved.text) == moved


def test_a_checkpoint_of_files_of_the_job(tmp_path: Path) -> None:
    """Names that the training chose, below the folder."""
    (tmp_path / "last.ckpt").write_bytes(b"1")
    good = Checkpoints(tmp_path, attempt="a").save(3, [tmp_path / "last.ckpt"])
    assert parse_manifest(good.manifest.name, good.manifest.read_bytes()).files[0].path == "last.ckpt"
