"""A checkpoint from one place to another: its files side by side, each read once and held against its digest, then the
manifest. Killed at any moment, the other place has the checkpoints that it had."""

from __future__ import annotations

import errno
import hashlib
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TypeVar

from router.checkpoints.checkpoints import Journal, manifest_at, taken
from router.checkpoints.errors import CancelledError, NotWholeError, StorageError
from router.checkpoints.manifest import File, Manifest
from router.checkpoints.object_store import Depot, Reader
from router.checkpoints.rate_limit import Pace

PARALLEL = 8
CHUNK = 8 * 2**20
# Shared by the files under way: what was read and not yet written, what was written and has not yet arrived.
_READ_BYTES, _SENT_BYTES = 64 * 2**20, 64 * 2**20
# A file that failed is tried again after these pauses; the store's own client has tried before.
_PAUSES = (0.5, 2.0, 5.0)
# Errors that a second try does not mend.
_FINAL_WORDS = ("NO_SUCH_BUCKET", "ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "EXPIRED_TOKEN")
_FINAL = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EFBIG, errno.ENAMETOOLONG}

Result = TypeVar("Result")


@dataclass(frozen=True)
class Moved:
    """What a transfer did. ``manifest``: where it is now; ``bytes``: read from the source and written; ``kept``: bytes
    that were there already; ``seconds``: how long it took."""

    step: int
    manifest: str
    files: int
    bytes: int
    kept: int
    seconds: float


def transfer(
    source: Depot,
    manifest: Manifest,
    target: Depot,
    pace: Pace,
    *,
    parallel: int = PARALLEL,
    journal: Journal | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Moved:
    """Copies a checkpoint of the source, and says when it is durable at the target. What is there with size and digest
    is not copied again; ``journal`` remembers digests, so that they need not be read back.

    NotWholeError when a file of the source is not as its manifest says, OutOfTimeError and CancelledError by ``pace``,
    StorageError for what the places do.
    """
    began = time.perf_counter()
    pace.check()
    workers = max(1, min(parallel, len(manifest.files)))
    work = _Work(source, target, pace, journal, workers, sleep)
    there = work.again(lambda: manifest_at(target, manifest.step), target.where(manifest.name))
    if there is not None and there.is_same(manifest) and work.sizes(there) == [file.bytes for file in there.files]:
        return Moved(there.step, target.where(there.name), len(there.files), 0, there.bytes, 0.0)
    goal = manifest.beside(work.again(lambda: taken(target, manifest), target.url))
    large = target.largest_file
    if large is not None and any(file.bytes > large for file in goal.files):
        raise StorageError(f"a file of step {goal.step} is over {large // 2**30} GiB", "write it as several files")
    pairs = list(zip(manifest.files, goal.files, work.sizes(goal), strict=True))
    pairs.sort(key=lambda pair: -pair[0].bytes)
    with ThreadPoolExecutor(workers) as pool:
        kept = _all(work, [pool.submit(work.one, mine, its, size) for mine, its, size in pairs])
    pace.check()
    work.again(partial(target.put, goal.name, goal.text), target.where(goal.name))
    took = time.perf_counter() - began
    return Moved(goal.step, target.where(goal.name), len(pairs), goal.bytes - sum(kept), sum(kept), took)


def verify(depot: Depot, manifest: Manifest, pace: Pace, *, parallel: int = PARALLEL) -> None:
    """Reads every byte. NotWholeError, OutOfTimeError, CancelledError; StorageError for what the place does."""
    workers = max(1, min(parallel, len(manifest.files)))
    work = _Work(depot, depot, pace, None, workers, time.sleep)
    with ThreadPoolExecutor(workers) as pool:
        _all(work, [pool.submit(work.read, file) for file in manifest.files])


def _all(work: _Work, futures: list[Future[int]]) -> list[int]:
    """Their results; the first error ends all."""
    try:
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        broken = [future for future in done if future.exception() is not None]
        # The others only say that they were cancelled.
        broken.sort(key=lambda future: isinstance(future.exception(), CancelledError))
        return [future.result() for future in broken[:1] or futures]
    finally:
        for future in futures:
            future.cancel()
        work.over = True


class _Work:
    """What the threads of one transfer share."""

    def __init__(
        self,
        source: Depot,
        target: Depot,
        pace: Pace,
        journal: Journal | None,
        workers: int,
        sleep: Callable[[float], None],
    ) -> None:
        self._source, self._target, self._pace, self._journal = source, target, pace, journal
        self._sleep = sleep
        self._ahead = max(1, _READ_BYTES // CHUNK // workers - 1)
        self.over = False
        self._window = max(CHUNK, _SENT_BYTES // workers)

    def one(self, mine: File, its: File, size: int | None) -> int:
        """Copies a file; how many bytes were there already."""
        if size == its.bytes and self._is_there(its):
            return its.bytes
        tries = count()

        def copy() -> None:
            # A store may have taken all of it though its answer got lost.
            if next(tries) and self._target.sizes([its.path]) == [its.bytes] and self._is_there(its):
                return
            self._copy(mine, its)

        self.again(copy, self._target.where(its.path))
        if self._journal is not None:
            self._journal.add(its)
        return 0

    def read(self, file: File) -> int:
        """Reads a file to its end; 0. NotWholeError."""
        self.again(partial(self._digest, self._source, file), self._source.where(file.path))
        return 0

    def again(self, do: Callable[[], Result], what: str) -> Result:
        """Does it, more than once if need be."""
        for pause in _PAUSES:
            try:
                return do()
            except OSError as error:
                self._pace.check()
                if error.errno in _FINAL or any(word in str(error) for word in _FINAL_WORDS):
                    raise StorageError(f"{what}: {error}") from error
                self._sleep(pause)
        try:
            return do()
        except OSError as error:
            raise StorageError(f"{what}: {error}") from error

    def sizes(self, manifest: Manifest) -> list[int | None]:
        """Of its files, at the target."""
        return self.again(lambda: self._target.sizes([file.path for file in manifest.files]), self._target.url)

    def _is_there(self, file: File) -> bool:
        if self._journal is not None and self._journal.knows(file):
            return True
        try:
            self._digest(self._target, file)
        except (NotWholeError, OSError):
            return False
        return True

    def _digest(self, depot: Depot, file: File) -> None:
        digest = hashlib.sha256()
        with closing(self._chunks(depot, file)) as chunks:
            for chunk in chunks:
                digest.update(chunk)
        _hold_against(file, digest.hexdigest())

    def _copy(self, mine: File, its: File) -> None:
        digest, unsettled = hashlib.sha256(), 0
        with closing(self._chunks(self._source, mine)) as chunks, self._target.create(its.path) as sink:
            for chunk in chunks:
                digest.update(chunk)
                sink.write(chunk)
                unsettled += len(chunk)
                if unsettled >= self._window:
                    sink.settle()
                    unsettled = 0
            _hold_against(mine, digest.hexdigest())

    def _chunks(self, depot: Depot, file: File) -> Generator[bytes, None, None]:
        """The whole content, some read ahead. NotWholeError where the file is gone or shorter."""
        try:
            with depot.open(file.path) as reader, ThreadPoolExecutor(self._ahead) as pool:
                yield from self._read(reader, file, pool)
        except FileNotFoundError:
            raise NotWholeError(f"{file.path} is gone") from None

    def _read(self, reader: Reader, file: File, pool: ThreadPoolExecutor) -> Iterator[bytes]:
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
                    raise NotWholeError(f"{file.path} is cut short")
                if self.over:
                    raise CancelledError("another file failed")
                self._pace.take(piece)
                yield chunk
        finally:
            for _, future in ahead:
                future.cancel()


def _hold_against(file: File, digest: str) -> None:
    if digest != file.sha256:
        raise NotWholeError(f"{file.path} is not as it was written")
