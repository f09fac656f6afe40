"""Transfers a checkpoint from one store to another: its files in parallel, then the manifest.

Each file is read once and compared with its digest. If the transfer is killed at any moment, the target still has the
checkpoints that it had. :mod:`router.checkpoints.data_copy` copies other files by the same means.
"""

from __future__ import annotations

import errno
import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, takewhile
from typing import TypeVar

from router.checkpoints.checkpoints import (
    CheckpointFile,
    CheckpointManifest,
    CopyJournal,
    find_complete_checkpoints,
    has_expected_sizes,
    list_other_paths,
    read_manifest,
)
from router.checkpoints.object_store import (
    CancelledError,
    CheckpointStore,
    IncompleteCheckpointError,
    OutOfTimeError,
    StorageError,
    StoreReader,
)

# Unused bandwidth is saved for the first time at most; waits are divided into naps of the second.
_SAVED_SECONDS, _NAP_SECONDS = 1.0, 0.2
# Early bytes lie in buffers, not at the target, so the rate is unknown before this many seconds.
_MEASURED_SECONDS = 2.0


class TransferLimits:
    """The limits of one or more transfers, one after the other; shared by their threads.

    ``seconds``: the time left from now; ``bytes_per_second``: the most bandwidth to use; ``rate``: the known bytes per
    second, if any; ``counted`` is called with the bytes moved so far, one call at a time.
    """

    def __init__(
        self,
        *,
        seconds: float | None = None,
        bytes_per_second: float | None = None,
        rate: float | None = None,
        ticks: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        counted: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._ticks, self._sleep, self._most, self._counted = ticks, sleep, bytes_per_second, counted
        self._end = None if seconds is None else ticks() + seconds
        self._lock = threading.Lock()
        self._cancelled = False
        self._free_at = ticks()
        self._moved, self._began = 0, ticks()
        self._rate = rate
        # The last error of a store, "" once it answers again.
        self.trouble = ""

    def cancel(self) -> None:
        """Stop the transfer at its next chunk, with CancelledError."""
        self._cancelled = True

    def lift(self) -> None:
        """Remove the limit of bandwidth from now on."""
        self._most = None

    def check(self) -> None:
        """Raise OutOfTimeError or CancelledError if the transfer has to stop."""
        if self._cancelled:
            raise CancelledError("cancelled")
        if self._end is not None and self._ticks() >= self._end:
            raise OutOfTimeError(self.time_over, "run it again: what was copied is not copied twice")

    @property
    def time_over(self) -> str:
        """The words for a transfer that took too long, with the error that it was waiting to pass."""
        return f"the time was over; {self.trouble}" if self.trouble else "the time was over"

    def take(self, count: int) -> None:
        """Count bytes that are moved now, and wait while they exceed the bandwidth."""
        self.check()
        with self._lock:
            self._moved += count
            self._counted(self._moved)
            now = self._ticks()
            if self._most is None:
                return
            self._free_at = max(self._free_at, now - _SAVED_SECONDS) + count / self._most
            until = self._free_at
        while (left := until - self._ticks()) > 0 and self._is_bounded():
            self._sleep(min(left, _NAP_SECONDS))
            self.check()

    def _is_bounded(self) -> bool:
        return self._most is not None

    @property
    def moved(self) -> int:
        return self._moved

    @property
    def rate(self) -> float | None:
        """The bytes per second since the beginning, or as given then; None while unknown."""
        took = self._ticks() - self._began
        return self._moved / took if self._moved and took >= _MEASURED_SECONDS else self._rate

    @property
    def left(self) -> float | None:
        """The seconds left; None without a limit."""
        return None if self._end is None else max(0.0, self._end - self._ticks())

    def can_end(self, count: int) -> bool:
        """Return whether this many bytes can be moved in the time left, as far as is known."""
        left, rate = self.left, self.rate
        return left is None or (left > 0 and (rate is None or count <= rate * left))


PARALLEL = 8
CHUNK = 8 * 2**20
# Limits shared by the files under way: bytes read and not yet written, bytes written and not yet arrived.
_READ_BYTES, _SENT_BYTES = 64 * 2**20, 64 * 2**20
# A file that failed is tried again after these pauses; the store's own client has retried before.
_PAUSES = (0.5, 2.0, 5.0)
# Errors that a second try does not mend.
_FINAL_WORDS = ("NO_SUCH_BUCKET", "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "EXPIRED_TOKEN")
_FINAL = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG, errno.ENAMETOOLONG}
Result = TypeVar("Result")


@dataclass(frozen=True)
class TransferResult:
    """The result of a transfer.

    ``manifest``: where the manifest is now; ``bytes``: read from the source and written; ``kept``: bytes that were
    there already; ``seconds``: the duration.
    """

    step: int
    manifest: str
    files: int
    bytes: int
    kept: int
    seconds: float


def transfer_checkpoint(
    source: CheckpointStore,
    manifest: CheckpointManifest,
    target: CheckpointStore,
    pace: TransferLimits,
    *,
    parallel: int = PARALLEL,
    journal: CopyJournal | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> TransferResult:
    """Copy a checkpoint of the source, and return once it is durable at the target.

    Files that exist with size and digest are not copied again; ``journal`` remembers digests, so that they need not be
    read back.

    IncompleteCheckpointError when a file of the source differs from its manifest, OutOfTimeError and CancelledError by
    ``pace``, StorageError for errors of the stores.
    """
    began = time.perf_counter()
    pace.check()
    workers = max(1, min(parallel, len(manifest.files)))
    work = TransferWork(source, target, pace, journal, workers, sleep)
    there = work.retry(lambda: read_manifest(target, manifest.step), target.where(manifest.name))
    if there is not None and there.is_same(manifest) and work.sizes(there) == [file.bytes for file in there.files]:
        return TransferResult(there.step, target.where(there.name), len(there.files), 0, there.bytes, 0.0)
    goal = manifest.beside(work.retry(lambda: list_other_paths(target, manifest), target.url))
    large = target.largest_file
    if large is not None and any(file.bytes > large for file in goal.files):
        raise StorageError(f"a file of step {goal.step} is over {large // 2**30} GiB", "write it as several files")
    pairs = list(zip(manifest.files, goal.files, work.sizes(goal), strict=True))
    pairs.sort(key=lambda pair: -pair[0].bytes)
    with ThreadPoolExecutor(workers) as pool:
        kept = collect_results(
            work,
            [pool.submit(work.copy_file, source_file, target_file, size) for source_file, target_file, size in pairs],
        )
    pace.check()
    work.retry(partial(target.put, goal.name, goal.text), target.where(goal.name))
    took = time.perf_counter() - began
    return TransferResult(goal.step, target.where(goal.name), len(pairs), goal.bytes - sum(kept), sum(kept), took)


def verify_checkpoint(
    store: CheckpointStore, manifest: CheckpointManifest, pace: TransferLimits, *, parallel: int = PARALLEL
) -> None:
    """Read every byte.

    IncompleteCheckpointError, OutOfTimeError, CancelledError; StorageError for errors of the store.
    """
    workers = max(1, min(parallel, len(manifest.files)))
    work = TransferWork(store, store, pace, None, workers, time.sleep)
    with ThreadPoolExecutor(workers) as pool:
        collect_results(work, [pool.submit(work.read, file) for file in manifest.files])


def collect_results(work: TransferWork, futures: list[Future[Result]]) -> list[Result]:
    """Return the results of all futures; the first error ends all."""
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        broken = [future for future in done if future.exception() is not None]
        # The other futures only report that they were cancelled.
        broken.sort(key=lambda future: isinstance(future.exception(), CancelledError))
        return [future.result() for future in broken[:1] or futures]
    finally:
        for future in futures:
            future.cancel()
        work.is_over = True


class TransferWork:
    """State shared by the threads of one transfer."""

    def __init__(
        self,
        source: CheckpointStore,
        target: CheckpointStore,
        pace: TransferLimits,
        journal: CopyJournal | None,
        workers: int,
        sleep: Callable[[float], None],
    ) -> None:
        self._source, self._target, self._pace, self._journal = source, target, pace, journal
        self._sleep = sleep
        self._ahead = max(1, _READ_BYTES // CHUNK // workers - 1)
        self.is_over = False
        self._window = max(CHUNK, _SENT_BYTES // workers)

    def copy_file(self, source_file: CheckpointFile, target_file: CheckpointFile, size: int | None) -> int:
        """Copy a file and return how many bytes existed already."""
        if size == target_file.bytes and self._is_there(target_file):
            return target_file.bytes
        tries = count()

        def copy() -> None:
            # A store may have taken the whole file though its answer was lost.
            is_whole = next(tries) and self._target.sizes([target_file.path]) == [target_file.bytes]
            if not (is_whole and self._is_there(target_file)):
                self._copy(source_file, target_file.path)

        self.retry(copy, self._target.where(target_file.path))
        if self._journal is not None:
            self._journal.add(target_file)
        return 0

    def copy_as_read(self, file: CheckpointFile, target_path: str) -> CheckpointFile:
        """Copy a file whose digest is not known, and return it with the digest of what was read."""
        digest = self.retry(partial(self._copy, file, target_path), self._target.where(target_path))
        return replace(file, sha256=digest)

    def read(self, file: CheckpointFile) -> None:
        """Read a file to its end. IncompleteCheckpointError."""
        self.retry(partial(self._digest, self._source, file), self._source.where(file.path))

    def retry(self, do: Callable[[], Result], what: str) -> Result:
        """Call ``do``, with retries if need be, and return its result."""
        for pause in _PAUSES:
            try:
                result = do()
                self._pace.trouble = ""
                return result
            except OSError as error:
                self._pace.trouble = f"{what}: {error}"
                self._pace.check()
                if error.errno in _FINAL or any(word in str(error) for word in _FINAL_WORDS):
                    raise StorageError(f"{what}: {error}") from error
                self._sleep(pause)
        try:
            return do()
        except OSError as error:
            raise StorageError(f"{what}: {error}") from error

    def sizes(self, manifest: CheckpointManifest) -> list[int | None]:
        """Return the sizes of the manifest's files at the target."""
        return self.retry(lambda: self._target.sizes([file.path for file in manifest.files]), self._target.url)

    def _is_there(self, file: CheckpointFile) -> bool:
        if self._journal is not None and self._journal.knows(file):
            return True
        try:
            self._digest(self._target, file)
        except (IncompleteCheckpointError, OSError):
            return False
        return True

    def _digest(self, store: CheckpointStore, file: CheckpointFile) -> None:
        digest = hashlib.sha256()
        with closing(self._chunks(store, file)) as chunks:
            for chunk in chunks:
                digest.update(chunk)
        _compare_digest(file, digest.hexdigest())

    def _copy(self, source_file: CheckpointFile, target_path: str) -> str:
        digest, unflushed = hashlib.sha256(), 0
        with closing(self._chunks(self._source, source_file)) as chunks, self._target.create(target_path) as sink:
            for chunk in chunks:
                digest.update(chunk)
                sink.write(chunk)
                unflushed += len(chunk)
                if unflushed >= self._window:
                    sink.flush()
                    unflushed = 0
            if source_file.sha256:
                _compare_digest(source_file, digest.hexdigest())
        return digest.hexdigest()

    def _chunks(self, store: CheckpointStore, file: CheckpointFile) -> Generator[bytes, None, None]:
        """Yield the whole content, some of it read ahead. IncompleteCheckpointError if the file is gone or shorter."""
        try:
            with store.open(file.path) as reader, ThreadPoolExecutor(self._ahead) as pool:
                yield from self._read(reader, file, pool)
        except FileNotFoundError:
            raise IncompleteCheckpointError(f"{file.path} is gone") from None

    def _read(self, reader: StoreReader, file: CheckpointFile, pool: ThreadPoolExecutor) -> Iterator[bytes]:
        ahead: deque[tuple[int, Future[bytes]]] = deque()
        offset = 0
        try:
            while offset < file.bytes or ahead:
                while offset < file.bytes and len(ahead) < self._ahead:
                    piece = min(CHUNK, file.bytes - offset)
                    ahead.append((piece, pool.submit(reader.read_at, piece, offset)))
                    offset += piece
                piece, future = ahead.popleft()
                chunk = future.result()
                if len(chunk) != piece:
                    raise IncompleteCheckpointError(f"{file.path} is cut short")
                if self.is_over:
                    raise CancelledError("another file failed")
                self._pace.take(piece)
                yield chunk
        finally:
            for _, future in ahead:
                future.cancel()


def _compare_digest(file: CheckpointFile, digest: str) -> None:
    if digest != file.sha256:
        raise IncompleteCheckpointError(f"{file.path} is not as it was written")


def download_checkpoints(
    source: CheckpointStore,
    target: CheckpointStore,
    pace: TransferLimits,
    *,
    step: int | None = None,
    least: int = 0,
    parallel: int = PARALLEL,
    journal: CopyJournal | None = None,
    passed: Callable[[int, str], None],
) -> Iterator[TransferResult]:
    """Copy checkpoints, the newest first, for as long as the caller asks for more.

    Only that of ``step``, if one is named, and none before ``least``. ``passed`` is called with the reason for
    checkpoints that are incomplete, or cannot be copied in the remaining time.

    StorageError, of which OutOfTimeError and CancelledError are kinds.
    """
    for manifest in _select_manifests(source, step, least, passed):
        if not pace.can_end(manifest.bytes):
            passed(manifest.step, f"{manifest.bytes / 1e9:,.1f} GB cannot be copied in {pace.left:,.0f} s")
            continue
        try:
            moved = transfer_checkpoint(source, manifest, target, pace, parallel=parallel, journal=journal)
        except IncompleteCheckpointError as error:
            passed(manifest.step, str(error))
            continue
        yield moved


def _select_manifests(
    source: CheckpointStore, step: int | None, least: int, passed: Callable[[int, str], None]
) -> Iterator[CheckpointManifest]:
    try:
        if step is None:
            yield from takewhile(lambda manifest: manifest.step >= least, find_complete_checkpoints(source, passed))
            return
        manifest = read_manifest(source, step)
        if manifest is None or not has_expected_sizes(source, manifest):
            passed(step, "it is not there, or not whole")
            return
        yield manifest
    except OSError as error:
        raise StorageError(f"{source.url}: {error}") from error
