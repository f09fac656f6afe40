"""Copies the files below one store's folder to another store, to be read there instead.

The files lie below ``files/`` of the copy, and the manifest beside it is written last: a copy without one is not whole.
A copy that is repeated, or was killed at any moment, copies what is missing or was changed since, nothing else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial

from router.checkpoints.checkpoints import CheckpointFile, FileJournal, leads_outside
from router.checkpoints.object_store import CheckpointStore, IncompleteCheckpointError, ListedFile, StorageError
from router.checkpoints.transfer import PARALLEL, TransferLimits, TransferWork, collect_results

MANIFEST, FILES = "manifest.json", "files"
_VERSION = 1
# Some 10 million files.
_LARGEST_MANIFEST = 2**31


@dataclass(frozen=True)
class DataFile(ListedFile):
    """A file of a copy, as it is listed at the source, with the digest of what was read there."""

    sha256: str


@dataclass(frozen=True)
class DataCopyResult:
    """A copy that is whole: its files and their bytes, ``kept`` bytes of them from earlier."""

    files: int
    bytes: int
    kept: int


def copy_data(
    source: CheckpointStore,
    target: CheckpointStore,
    pace: TransferLimits,
    journal: FileJournal[DataFile],
    *,
    begins: Callable[[int], None] = lambda _: None,
    parallel: int = PARALLEL,
    sleep: Callable[[float], None] = time.sleep,
) -> DataCopyResult:
    """Make the target a whole copy of the source, and return once it is durable.

    ``journal`` has what earlier tries copied. ``begins`` is called before anything at the target changes, with the
    bytes that are to be copied, and not where the copy is whole already. IncompleteCheckpointError where the source
    changes meanwhile, OutOfTimeError and CancelledError by ``pace``, StorageError for errors of the stores.
    """
    pace.check()
    work = TransferWork(source, target, pace, None, parallel, sleep)
    listed = work.retry(source.files, source.url)
    _check_listing(source, target, listed)
    old = work.retry(partial(read_data_manifest, target), target.where(MANIFEST))
    known = {(file.path, file.bytes, file.modified): file for file in (*(old or ()), *journal.files)}
    there = {file.path: file.bytes for file in work.retry(target.files, target.url)}
    kept, missing = list[DataFile](), list[ListedFile]()
    for file in listed:
        earlier = known.get((file.path, file.bytes, file.modified))
        if earlier is not None and there.get(_target_path(file.path)) == file.bytes:
            kept.append(earlier)
        else:
            missing.append(file)
    surplus = there.keys() - {MANIFEST} - {_target_path(file.path) for file in listed}
    if old is None or missing or surplus:
        begins(sum(file.bytes for file in missing))
        if old is not None:
            for each in kept:
                journal.add(each)
            work.retry(partial(target.remove, MANIFEST), target.where(MANIFEST))
        copied = _copy_files(work, missing, journal, parallel)
        for path in sorted(surplus):
            work.retry(partial(target.remove, path), target.where(path))
        _check_copy(work, source, target, listed)
        files = [asdict(file) for file in sorted([*kept, *copied], key=lambda file: file.path)]
        text = json.dumps({"version": _VERSION, "files": files})
        pace.check()
        work.retry(partial(target.put, MANIFEST, text.encode()), target.where(MANIFEST))
    return DataCopyResult(len(listed), sum(file.bytes for file in listed), sum(file.bytes for file in kept))


def read_data_manifest(store: CheckpointStore) -> tuple[DataFile, ...] | None:
    """Return the files of a copy by its manifest; None if there is none, or it cannot be read as one. OSError."""
    try:
        content = json.loads(store.read(MANIFEST, _LARGEST_MANIFEST))
        if content["version"] != _VERSION:
            return None
        return tuple(DataFile(**entry) for entry in content["files"])
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def _check_listing(source: CheckpointStore, target: CheckpointStore, listed: list[ListedFile]) -> None:
    if not listed:
        raise StorageError(f"{source.url} has no files below it")
    odd = next((file.path for file in listed if leads_outside(file.path)), None)
    if odd is not None:
        raise StorageError(f"{source.url} has a path that not every store takes: {odd!r}")
    large = target.largest_file
    if large is not None and any(file.bytes > large for file in listed):
        raise StorageError(f"a file of {source.url} is over {large // 2**30} GiB", "write it as several files")


def _target_path(path: str) -> str:
    return f"{FILES}/{path}"


def _copy_files(
    work: TransferWork, missing: list[ListedFile], journal: FileJournal[DataFile], parallel: int
) -> list[DataFile]:
    def copy(file: ListedFile) -> DataFile:
        read = work.copy_as_read(CheckpointFile(file.path, file.bytes, ""), _target_path(file.path))
        done = DataFile(file.path, file.bytes, file.modified, read.sha256)
        journal.add(done)
        return done

    largest_first = sorted(missing, key=lambda file: -file.bytes)
    with ThreadPoolExecutor(parallel) as pool:
        return collect_results(work, [pool.submit(copy, file) for file in largest_first])


def _check_copy(work: TransferWork, source: CheckpointStore, target: CheckpointStore, listed: list[ListedFile]) -> None:
    """Compare source and target with what was listed at first. IncompleteCheckpointError."""
    if work.retry(source.files, source.url) != listed:
        raise IncompleteCheckpointError(f"{source.url} was changed while it was copied")
    sizes = {file.path: file.bytes for file in work.retry(target.files, target.url)}
    wrong = next((file.path for file in listed if sizes.get(_target_path(file.path)) != file.bytes), None)
    if wrong is not None:
        raise IncompleteCheckpointError(f"{target.where(_target_path(wrong))} is missing or of another size")
