"""The uploader: copies checkpoints from a folder to durable storage during a training.

It answers the agent's requests once the checkpoints are durable.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pricing.atomic_file import write_atomic
from router.checkpoints.checkpoints import (
    LARGEST_BYTES,
    CheckpointManifest,
    CopyJournal,
    parse_manifest,
    parse_step,
    read_manifest,
    remove_old_checkpoints,
)
from router.checkpoints.object_store import (
    CancelledError,
    CheckpointStore,
    FolderStore,
    IncompleteCheckpointError,
    StorageError,
)
from router.checkpoints.transfer import PARALLEL, TransferLimits, TransferResult, transfer_checkpoint

VERSION = 1
_LARGEST_FILE = 65536


@dataclass(frozen=True)
class SaveMessage:
    """A message that the training saved a checkpoint in its folder, or failed to.

    ``after``: the last request answered before.
    """

    id: str
    after: str
    step: int
    seconds: float
    failed: str | None = None


class UploaderControlFolder:
    """The control folder of one training.

    The job writes some of its files, so none of their content stops the uploader.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: tuple[int, int, int] | None = None

    def written(self) -> SaveMessage | None:
        """Return the training's message, if it is new since the last call."""
        try:
            found = (self._folder / "written.json").stat()
        except OSError:
            return None
        now = (found.st_ino, found.st_mtime_ns, found.st_size)
        if now == self._seen:
            return None
        self._seen = now
        said = self._read("written.json")
        with suppress(TypeError, ValueError, KeyError):
            name, after = str(said.get("id", "")), str(said.get("after", ""))
            if "failed" in said:
                return SaveMessage(name, after, -1, 0.0, str(said["failed"]))
            return SaveMessage(name, after, int(said["step"]), float(said.get("seconds", 0.0)))
        return None

    def until(self) -> tuple[str, float] | None:
        """Return the last request: its id, and the moment of ``time.monotonic`` until which it wants an answer."""
        said = self._read("request.json")
        with suppress(TypeError, ValueError, KeyError):
            return str(said["id"]), float(said["until"])
        return None

    def say(self, body: dict[str, Any]) -> None:
        """Write an answer to the agent. If the disk does not take it, the answer is lost."""
        with suppress(OSError):
            write_atomic(self._folder / "saved.json", json.dumps({"version": VERSION, **body}), durable=False)

    def _read(self, name: str) -> dict[str, Any]:
        """Return the object in a file. A pipe of that name is not read: it would block the uploader."""
        with suppress(OSError, ValueError, RecursionError):
            descriptor = os.open(self._folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:  # noqa: PTH123
                plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
                content = json.loads(file.read(_LARGEST_FILE)) if plain else None
                return content if isinstance(content, dict) else {}
        return {}


# How often the folders are read, in seconds: with an agent, and without.
LOOK_SECONDS, IDLE_SECONDS = 0.05, 0.5
# Pauses after a failure: the first, which doubles, the longest, and the longest while a request is open.
_PAUSE, _LONGEST_PAUSE, _LONGEST_PRESSED = 0.5, 30.0, 2.0


@dataclass(frozen=True)
class PendingCheckpoint:
    """A checkpoint that is not durable yet; ``bytes``: the remaining bytes to copy."""

    step: int
    bytes: int


@dataclass(frozen=True)
class UploadSettings:
    """The settings of an uploader.

    ``leads``: it copies; otherwise it waits for what another machine copies from the same folder, and only answers.
    ``keep``: checkpoints that stay at the target. ``bytes_per_second``: the most bandwidth while no request is open.
    """

    leads: bool = True
    keep: int = 3
    parallel: int = PARALLEL
    bytes_per_second: float | None = None


DurableCopy = tuple[CheckpointManifest, TransferResult]


class Uploader:
    """Watches a folder and uploads its checkpoints; used by one thread.

    ``answers``: the agent's control folder, if there is one. ``tell`` gets lines for people. No error of a store ends
    it.
    """

    def __init__(
        self,
        target: CheckpointStore,
        *,
        folder: Path,
        answers: UploaderControlFolder | None,
        how: UploadSettings,
        tell: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sleep = sleep
        self._target, self._answers, self._how, self._tell = target, answers, how, tell
        self._source = FolderStore(folder)
        self._journal = CopyJournal(self._source.path, target.url) if how.leads else None
        self._marks: dict[str, tuple[int, int]] | None = None
        self._waiting: list[CheckpointManifest] = []
        self._last: CheckpointManifest | None = None
        self._open_requests: list[tuple[str, int, float]] = []
        self._last_answered = ""
        self._pool = ThreadPoolExecutor(1)
        self._job: tuple[CheckpointManifest | None, TransferLimits, Future[DurableCopy | None]] | None = None
        self._removal: Future[list[int]] | None = None
        self._failures, self._failed_at, self._not_before = 0, 0.0, 0.0
        self._rate: float | None = None
        self._end: float | None = None

    @property
    def is_idle(self) -> bool:
        """True if all checkpoints that were seen are durable."""
        return not self._waiting and self._job is None

    def run(self, stop: Callable[[], bool], grace: float) -> bool:
        """Upload until ``stop``, then copy the rest within ``grace`` seconds, the newest first.

        Return whether the newest is durable.
        """
        pause = LOOK_SECONDS if self._answers is not None else IDLE_SECONDS
        try:
            while not stop():
                self.look()
                time.sleep(pause)
            self._end = time.monotonic() + grace
            self.look()
            while not (self.is_idle and self._removal is None) and time.monotonic() < self._end:
                time.sleep(LOOK_SECONDS)
                self.look()
            return self.is_idle
        finally:
            if self._job is not None:
                self._job[1].cancel()
            self._pool.shutdown(wait=False, cancel_futures=True)

    def look(self) -> None:
        """Do one round: find new checkpoints, handle results, start the next copy. Copying runs in a thread."""
        written = self._answers.written() if self._answers is not None else None
        self._scan()
        if written is not None:
            self._handle_message(written)
        self._take_result()
        self._start_next()

    def _scan(self) -> None:
        """Find manifests that were written since the last call; at the first call, only the newest counts."""
        found: dict[str, tuple[int, int]] = {}
        for name in self._source.names():
            if parse_step(name) is not None:
                try:
                    state = (self._source.path / name).stat()
                except OSError:
                    continue
                found[name] = (state.st_mtime_ns, state.st_ino)
        if found == self._marks:
            return
        before, self._marks = self._marks, found
        new = [name for name in found if before is None or before.get(name) != found[name]]
        new.sort(key=lambda name: (found[name][0], name))
        for name in new[-1:] if before is None else new:
            try:
                manifest = parse_manifest(name, self._source.read(name, LARGEST_BYTES))
            except (OSError, ValueError) as error:
                self._tell(f"passed over {name}: {error}")
                continue
            self._waiting = [*(one for one in self._waiting if one.step != manifest.step), manifest]

    def _handle_message(self, written: SaveMessage) -> None:
        if written.failed is not None:
            self._send_answer({"id": written.id, "failed": written.failed})
            return
        known = [name for name, _, _ in self._open_requests]
        if written.after and written.after not in (*known, self._last_answered):
            self._open_requests.append((written.after, written.step, written.seconds))
        self._open_requests.append((written.id, written.step, written.seconds))
        waits = any(manifest.step == written.step for manifest in self._waiting)
        if self._last is not None and self._last.step == written.step and not waits:
            self._answer(self._last, 0.0)

    def _seconds(self) -> float | None:
        """Return the time left; None: as long as it takes."""
        ends = [] if self._end is None else [self._end]
        request = self._answers.until() if self._answers is not None else None
        if request is not None and request[0] != self._last_answered and request[1] > time.monotonic():
            ends.append(request[1])
        return min(ends) - time.monotonic() if ends else None

    def _start_next(self) -> None:
        """Start the next copy; the one under way may have to give way to it."""
        if not self._waiting:
            return
        seconds = self._seconds()
        if not self._how.leads:
            if self._job is None and time.monotonic() >= self._not_before:
                self._not_before = time.monotonic() + IDLE_SECONDS
                waiting = self._waiting
                find = self._pool.submit(_find_durable, waiting, self._target)
                self._job = (None, TransferLimits(), find)
            return
        self._start_copy(seconds)

    def _start_copy(self, seconds: float | None) -> None:
        running, pace, _ = self._job or (None, None, None)
        moved = pace.moved if pace is not None else 0
        waiting = [PendingCheckpoint(one.step, max(0, one.bytes - moved * (one is running))) for one in self._waiting]
        # A checkpoint that was written again meanwhile counts as another one.
        step = next((one.step for one in self._waiting if one is running), None)
        chosen = choose_checkpoint(waiting, step, (pace.rate if pace is not None else None) or self._rate, seconds)
        if pace is not None:
            if seconds is not None:
                pace.lift()
            if chosen != step:
                pace.cancel()
            return
        if seconds is not None:
            self._not_before = min(self._not_before, self._failed_at + _LONGEST_PRESSED)
        if time.monotonic() < self._not_before:
            return
        manifest = next(one for one in self._waiting if one.step == chosen)
        most = self._how.bytes_per_second if seconds is None else None
        own = TransferLimits(bytes_per_second=most, rate=self._rate)
        self._job = (manifest, own, self._pool.submit(lambda: (manifest, self._copy(manifest, own))))

    def _copy(self, manifest: CheckpointManifest, pace: TransferLimits) -> TransferResult:
        return transfer_checkpoint(
            self._source,
            manifest,
            self._target,
            pace,
            parallel=self._how.parallel,
            journal=self._journal,
            sleep=self._sleep,
        )

    def _take_result(self) -> None:
        if self._removal is not None and self._removal.done():
            error, self._removal = self._removal.exception(), None
            if error is not None:
                self._tell(f"old checkpoints stay: {error}")
        if self._job is None or not self._job[2].done():
            return
        manifest, pace, future = self._job
        self._job = None
        try:
            done = future.result()
        except CancelledError:
            return
        except IncompleteCheckpointError as error:
            self._tell(f"passed over {manifest.name if manifest is not None else ''}: {error}")
            self._give_up(manifest, str(error))
            return
        except (StorageError, OSError) as error:
            self._failed_at, pause = time.monotonic(), min(_LONGEST_PAUSE, _PAUSE * 2 ** min(self._failures, 10))
            self._failures, self._not_before = self._failures + 1, self._failed_at + pause
            self._tell(f"not copied yet, again in {pause:g} s: {error}")
            return
        if done is not None:
            self._rate = pace.rate if done[1].bytes else self._rate
            self._handle_durable(*done)

    def _handle_durable(self, manifest: CheckpointManifest, moved: TransferResult) -> None:
        self._failures, self._not_before = 0, 0.0
        if moved.bytes:
            size = f"{moved.bytes / 1e6:,.1f} MB in {moved.seconds:.1f} s"
            self._tell(f"step {moved.step} is durable: {moved.manifest} ({size})")
        # It is missing if it was written again meanwhile, and then waits as another one.
        at = next((n for n, one in enumerate(self._waiting) if one is manifest), None)
        if at is None:
            return
        self._last, self._waiting = manifest, self._waiting[at + 1 :]
        self._answer(manifest, moved.seconds)
        if self._how.leads:
            self._removal = self._pool.submit(remove_old_checkpoints, self._target, self._how.keep, moved.step)

    def _answer(self, manifest: CheckpointManifest, seconds: float) -> None:
        """Report that a checkpoint is durable, for its request and those before it; later ones wait on."""
        later = {one.step for one in self._waiting}
        ours = [entry for entry in self._open_requests if entry[1] not in later]
        self._open_requests = [entry for entry in self._open_requests if entry[1] in later]
        names = [name for name, _, _ in ours if name]
        before = names[-2] if len(names) > 1 else self._last_answered
        written = next((spent for _, step, spent in reversed(ours) if step == manifest.step), 0.0)
        self._send_answer(
            {
                "id": names[-1] if names else "",
                "step": manifest.step,
                "manifest": self._target.where(manifest.name),
                "seconds": round(written + seconds, 3),
                "after": before,
            }
        )
        self._last_answered = names[-1] if names else self._last_answered

    def _give_up(self, manifest: CheckpointManifest | None, why: str) -> None:
        """Give up a checkpoint that cannot be copied any more. A newer one answers for it, if there is one."""
        self._waiting = [one for one in self._waiting if one is not manifest]
        if self._waiting:
            return
        names = [name for name, _, _ in self._open_requests if name]
        self._open_requests = []
        if names:
            self._last_answered = names[-1]
            self._send_answer({"id": names[-1], "failed": why[:500]})

    def _send_answer(self, body: dict[str, object]) -> None:
        if self._answers is not None:
            self._answers.say(body)


def _find_durable(waiting: Sequence[CheckpointManifest], target: CheckpointStore) -> DurableCopy | None:
    for manifest in reversed(waiting):
        there = read_manifest(target, manifest.step)
        if there is not None and there.is_same(manifest):
            files = len(manifest.files)
            return manifest, TransferResult(manifest.step, target.where(manifest.name), files, 0, manifest.bytes, 0.0)
    return None


def choose_checkpoint(
    waiting: Sequence[PendingCheckpoint], running: int | None, rate: float | None, seconds: float | None
) -> int | None:
    """Return the step to copy now, of those in ``waiting``, which are in the order of their writing.

    ``running`` is the one under way, if any. ``rate``: bytes per second; ``seconds``: the time left; None: not known,
    or as long as it takes.

    Without a deadline the copy under way is finished, else the newest is copied: if a newer one always came first,
    checkpoints written faster than they are copied would never be durable. With a deadline: the newest that can be
    durable by then, after the one under way if there is time for both. If none can, the newest is tried, or the one
    under way continued.
    """
    if not waiting:
        return None
    newest, under_way = waiting[-1], next((one for one in waiting if one.step == running), None)
    if seconds is None:
        return (under_way or newest).step
    if rate is None:
        return newest.step
    capacity = rate * seconds
    if under_way is not None and under_way.bytes + (newest.bytes if newest is not under_way else 0) <= capacity:
        return under_way.step
    fitting = [one for one in waiting if one.bytes <= capacity]
    return (fitting[-1] if fitting else under_way or newest).step
