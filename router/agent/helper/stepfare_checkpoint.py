"""Checkpoints that survive an interruption. Standard library, Python 3.9 or newer; one file, to be copied if need be.

    import stepfare_checkpoint
    checkpoints = stepfare_checkpoint.Checkpoints("/mnt/bucket/run-7", rank=rank, world=world, agree=agree)
    good = checkpoints.newest()                      # None: begin at the beginning
    for step in ...:                                 # one step of training, then
        request = checkpoints.wanted(step)           # a checkpoint is requested (on all ranks alike)
        if request or step % 500 == 0:
            checkpoints.save(step, lambda folder: torch.save(state, folder / "state.pt"), data_position=position)
        checkpoints.progress(step, steps)
        if request and request.ends:
            break

Under a stepfare agent, STEPFARE_CONTROL names the folder where both talk (docs/checkpoints.md); else nobody asks.
"""

from __future__ import annotations

import faulthandler
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

VERSION = 1
CONTROL, UPLOAD_URL, EVERY = "STEPFARE_CONTROL", "STEPFARE_CHECKPOINT_URL", "STEPFARE_CHECKPOINT_SECONDS"
INTERVAL, ORDERED, STOP = "interval", "ordered", "stop"
READERS, _CHUNK = 4, 2**20
_MANIFEST = re.compile(r"step-(\d{8,})\.manifest\.json")
# Remains of older saves: their folders, and manifests that were being written.
_LEFTOVER = re.compile(r"\.?step-(\d{8,})(\.manifest\.json\..*\.part)?")


def offer_stacks() -> None:
    """Let the agent ask for the stacks of this process if it stands still: SIGUSR2 then writes them to stderr."""
    control = os.environ.get(CONTROL)  # noqa: TID251  (the edge)
    if control:
        faulthandler.register(signal.SIGUSR2, all_threads=True)
        with suppress(OSError):
            (Path(control) / f"wants-stacks-{os.getpid()}").touch()


class NotSavedError(OSError):
    """A checkpoint was not saved; the ones before it are unchanged."""


@dataclass(frozen=True)
class Request:
    """A request for a checkpoint.

    ``id`` is "" where this rank was not asked; ``until``: a moment of ``time.monotonic``.
    """

    id: str
    reason: str
    until: float | None = None

    @property
    def seconds(self) -> float | None:
        """The time left, in seconds."""
        return None if self.until is None else self.until - time.monotonic()

    @property
    def ends(self) -> bool:
        """True if the training is to end after this checkpoint."""
        return self.reason == STOP


@dataclass(frozen=True)
class Good:
    """A complete checkpoint: its manifest is there and every file is as the manifest says."""

    step: int
    manifest: Path
    files: tuple[Path, ...]
    data_position: Any = None
    rng: Any = None
    attempt: str = ""

    def of(self, rank: int) -> Path:
        """Return the folder that the ``write`` of a rank filled. LookupError if the rank has no file in one."""
        for folder in (folder for file in self.files for folder in file.parents):
            if folder.name.partition(".")[0] == f"rank-{rank}":
                return folder
        raise LookupError(f"step {self.step}: no folder of rank {rank}")


class Agent:
    """The training's connection to the agent. Never raises; without a folder it receives nothing and sends nothing."""

    def __init__(self, folder: str | None = None) -> None:
        folder = folder or os.environ.get(CONTROL)  # noqa: TID251  (the contract)
        self._folder = Path(folder) if folder else None
        self._path = os.path.join(folder, "request.json") if folder else ""  # noqa: PTH118  (asked for at every step)
        self._pace = os.path.join(folder, "interval.json") if folder else ""  # noqa: PTH118
        self._seen: tuple[int, int] | None = None
        self._paced_at = float("-inf")
        self._interval: float | None = None
        self._request: Request | None = None
        self._after, self._stopped = "", False
        # An uploader that copies the checkpoints to durable storage reports itself that one is saved.
        self._answers = "written.json" if os.environ.get(UPLOAD_URL) else "saved.json"  # noqa: TID251
        self._said: tuple[float, int] | None = None

    def catch_sigterm(self) -> None:
        """Make SIGTERM ask for a last checkpoint, and end nothing by itself. Call it only in the main thread."""
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_stopped", True))

    def asked(self) -> Request | None:
        """Return the request that is not yet answered, if any. Costs one look at a file's date."""
        if self._folder is not None:
            try:
                found = os.stat(self._path)  # noqa: PTH116  (four times as fast)
                if (found.st_ino, found.st_mtime_ns) != self._seen:
                    self._request = self._read()
                    self._seen = (found.st_ino, found.st_mtime_ns)
            except OSError:
                pass
        return self._request or (Request("", STOP) if self._stopped else None)

    def _read(self) -> Request | None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            said = json.loads(Path(self._path).read_bytes())
            return Request(str(said["id"]), str(said["reason"]), float(said["until"]))
        return None

    def interval(self) -> float | None:
        """Return how many seconds after a save the next is due, as the agent said last; None where it did not.

        It looks at most once a second, because it is asked at every step.
        """
        now = time.monotonic()
        if self._folder is not None and now - self._paced_at >= 1:
            self._paced_at = now
            with suppress(OSError, ValueError, TypeError, KeyError):
                seconds = float(json.loads(Path(self._pace).read_bytes())["seconds"])
                self._interval = seconds if seconds > 0 else self._interval
        return self._interval

    def saved(self, request: str, step: int, manifest: str, seconds: float) -> None:
        """Report that a checkpoint is complete in its folder. ``request``: the id that it answers, or ""."""
        body = {"id": request, "step": step, "manifest": manifest, "seconds": round(seconds, 3), "after": self._after}
        self._report_answer(request, body)

    def failed(self, request: str, why: str) -> None:
        """Report that no checkpoint was saved."""
        self._report_answer(request, {"id": request, "failed": why})

    def _report_answer(self, request: str, body: dict[str, Any]) -> None:
        self._after = request or self._after
        if self._request is not None and self._request.id == request:
            self._request = None
        self._write_message(self._answers, body)

    def progress(self, step: int, steps: int | None = None) -> None:
        """Report how far the training is. It is written down at most once a second."""
        now = time.monotonic()
        if self._said is None or self._folder is None:
            self._said = (now, step)
        elif now - self._said[0] >= 1:
            each = (now - self._said[0]) / max(1, step - self._said[1])
            self._said = (now, step)
            self._write_message("progress.json", {"step": step, "steps": steps, "step_seconds": round(each, 6)})

    def _write_message(self, name: str, body: dict[str, Any]) -> None:
        if self._folder is not None:
            with suppress(OSError):
                _put(self._folder / name, {"version": VERSION, **body}, durable=False)


class Checkpoints:
    """The checkpoints of one training, in a folder that all its ranks share.

    Create it on every rank, before the first step.

    The newest ``keep`` stay. ``agree`` takes whether this rank was asked and returns whether any was (a collective of
    the training); every :meth:`wanted` whose step ``agree_every`` divides calls it, so that all ranks save after the
    same step. ``patience``: how long a rank waits for the others' parts, in seconds. ``attempt``: one attempt of the
    gang, the same word on all ranks; taken from the agent and torchrun if none is given.
    """

    def __init__(
        self,
        folder: str | Path,
        keep: int = 3,
        *,
        rank: int = 0,
        world: int = 1,
        agree: Callable[[bool], bool] | None = None,
        agree_every: int = 1,
        patience: float = 600.0,
        agent: Agent | None = None,
        attempt: str | None = None,
    ) -> None:
        self.folder, self._keep, self._rank, self._world = Path(folder).absolute(), max(1, keep), rank, world
        self._agree, self._every, self._patience = agree, max(1, agree_every), patience
        self.agent = agent or Agent()
        self.progress, self.catch_sigterm = self.agent.progress, self.agent.catch_sigterm
        words = [os.environ.get(name) for name in ("STEPFARE_ATTEMPT", "TORCHELASTIC_RESTART_COUNT")]  # noqa: TID251
        attempt = "-".join(word for word in words if word and word != "0") if attempt is None else attempt
        self._attempt = re.sub(r"[^A-Za-z0-9._-]", "_", attempt).strip(".") or "local"
        self._count, self._passed_over = 0, set[int]()
        self._last: tuple[Good, list[str]] | None = None
        self._interval, self._saved_at = float(os.environ.get(EVERY) or "inf"), time.monotonic()  # noqa: TID251
        self.folder.mkdir(parents=True, exist_ok=True)
        if rank == 0:
            # Parts of an earlier process of this attempt must not be taken for parts of a later save.
            for part in self.folder.glob(f"step-*/{self._attempt}/*.json"):
                _remove(part)

    def wanted(self, step: int) -> Request | None:
        """Return a request if a checkpoint is needed now.

        It is when somebody asks, or the last one is older than STEPFARE_CHECKPOINT_SECONDS, or than the agent said
        since. Where ranks agree, all get a request or none does, and all are to end or none is.
        """
        request = self.agent.asked()
        if request is not None and self._last is not None and request.id in self._last[1]:
            # Another rank got the same request earlier, so that checkpoint is already saved.
            self.agent.saved(request.id, self._last[0].step, str(self._last[0].manifest), 0.0)
            request = None
        if request is None and time.monotonic() - self._saved_at >= (self.agent.interval() or self._interval):
            request = Request("", INTERVAL)
        if self._agree is None:
            return request
        if step % self._every or not self._agree(request is not None):
            return None
        ends = self._agree(request is not None and request.ends)
        request = request or Request("", ORDERED)
        return replace(request, reason=STOP) if ends else request

    def save(
        self,
        step: int,
        write: Callable[[Path], Any] | Iterable[str | Path] | None = None,
        *,
        data_position: Any = None,
        rng: Any = None,
    ) -> Good:
        """Save a checkpoint, on every rank after the same step; it is complete when this returns.

        ``write`` fills the folder that it is given, or is the files in :attr:`folder` that are there already, which the
        checkpoints then own; None: this rank has nothing. ``data_position`` and ``rng``, JSON, are those of rank 0. A
        step that was just saved is not saved again. OSError, of which NotSavedError is one, and what ``write`` raises.
        """
        began = self._saved_at = time.monotonic()
        request, about = self.agent.asked(), {"data_position": data_position, "rng": rng}
        asked = request.id if request else ""
        json.dumps(about)
        self._count += 1
        place = self.folder / f"step-{step:08d}" / self._attempt
        if self._last is None or self._last[0].step != step:
            try:
                self._last = self._save_parts(step, place, write, about, asked)
            except BaseException as error:
                why = f"{type(error).__name__}: {error}"[:500]
                if request is not None:
                    self.agent.failed(asked, why)
                with suppress(OSError):
                    _put(place / f"failed-{self._rank}.{self._count}.json", {"why": why})
                raise
        if request is not None or self._rank == 0:
            self.agent.saved(asked, step, str(self._last[0].manifest), time.monotonic() - began)
        self._saved_at = time.monotonic()
        return self._last[0]

    def _save_parts(
        self,
        step: int,
        place: Path,
        write: Callable[[Path], Any] | Iterable[str | Path] | None,
        about: dict[str, Any],
        request: str,
    ) -> tuple[Good, list[str]]:
        manifest = self.folder / f"step-{step:08d}.manifest.json"
        before = _file_version(manifest)
        if callable(write):
            # No manifest has this name yet: until one does, the folder belongs to no checkpoint.
            own = place / f"rank-{self._rank}.{os.urandom(4).hex()}"
            own.mkdir(parents=True)
            write(own)
            files = sorted(path for path in own.rglob("*") if path.is_file())
        else:
            files = sorted({Path(file).absolute() for file in write or ()})
        with ThreadPoolExecutor(READERS) as pool:
            listed = list(pool.map(self._manifest_entry, files))
        for folder in {parent for file in files for parent in file.parents if self.folder in parent.parents}:
            _sync_folder(folder)
        _put(place / f"rank-{self._rank}.{self._count}.json", {"files": listed, "request": request})
        if self._rank:
            said = self._wait(
                lambda: _read_object(manifest) if _file_version(manifest) != before else None, step, place
            )
            return self._checkpoint_of(manifest, said), list(said["answers"])
        paths = [place / f"rank-{rank}.{self._count}.json" for rank in range(self._world)]
        parts = [self._wait(partial(_read_object, path), step, place) for path in paths]
        said = {
            "version": VERSION,
            "step": step,
            "attempt": self._attempt,
            "files": [file for part in parts for file in part["files"]],
            **about,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),  # noqa: TID251, UP017
            "answers": sorted({part["request"] for part in parts} - {""}),
        }
        _put(manifest, said)
        self._remove_old(step)
        return self._checkpoint_of(manifest, said), said["answers"]

    def _manifest_entry(self, file: Path) -> dict[str, Any]:
        """Put a file on durable storage and return its entry in the manifest. ValueError for one outside the folder."""
        relative = file.relative_to(self.folder)
        with file.open("rb") as stream:
            os.fsync(stream.fileno())
            size, digest = _digest(stream)
        return {"path": relative.as_posix(), "bytes": size, "sha256": digest}

    def _wait(self, ready: Callable[[], dict[str, Any] | None], step: int, place: Path) -> dict[str, Any]:
        """Wait for what another rank writes in this save, and return it."""
        limit, pause = time.monotonic() + self._patience, 0.005
        while (said := ready()) is None:
            for failed in place.glob(f"failed-*.{self._count}.json"):
                why = (_read_object(failed) or {}).get("why")
                raise NotSavedError(f"step {step}: rank {failed.name.split('.')[0][7:]}: {why}")
            if time.monotonic() > limit:
                raise NotSavedError(f"step {step}: not all ranks were done within {self._patience:g} s")
            time.sleep(pause)
            pause = min(0.2, pause * 1.5)
        return said

    def newest(self) -> Good | None:
        """Return the newest complete checkpoint, every byte of which was read.

        OSError when the folder cannot be read.

        A torn or changed checkpoint is passed over and reported on standard error.
        """
        for step, manifest in self._manifests():
            good = self.at(step)
            if good is not None:
                return good
            self._passed_over.add(step)
            sys.stderr.write(f"stepfare: passed over {manifest.name}: not as it was written\n")
        return None

    def at(self, step: int, *, whole: bool = True) -> Good | None:
        """Return the checkpoint of a step, if it is complete.

        ``whole`` False: only the files' sizes are compared; for ranks that learn from rank 0 which checkpoint it found.
        """
        manifest = self.folder / f"step-{step:08d}.manifest.json"
        try:
            said = _read_object(manifest) or {}
            if (said["version"], said["step"]) != (VERSION, step):
                return None
            good = self._checkpoint_of(manifest, said)
            with ThreadPoolExecutor(READERS) as pool:
                same = list(pool.map(partial(_is_unchanged, whole=whole), good.files, said["files"]))
            return good if all(same) else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _checkpoint_of(self, manifest: Path, said: dict[str, Any]) -> Good:
        files = tuple(self.folder / file["path"] for file in said["files"])
        if any(".." in file.parts or self.folder not in file.parents for file in files):
            raise ValueError("a file outside the folder")
        return Good(said["step"], manifest, files, said["data_position"], said["rng"], said["attempt"])

    def _manifests(self) -> list[tuple[int, Path]]:
        """Return the steps and manifests, the newest first."""
        found = ((_MANIFEST.fullmatch(path.name), path) for path in self.folder.iterdir())
        return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)

    def _remove_old(self, step: int) -> None:
        """Remove what is older than the newest ``keep``, and checkpoints that were passed over.

        ``step``, just read to the last byte, is one of the newest. Later steps, which this training did not resume
        from, are not counted.
        """
        self._passed_over.discard(step)
        older = [(at, path) for at, path in self._manifests() if at < step]
        remaining = [at for at, _ in older if at not in self._passed_over][: self._keep - 1]
        for manifest in [path for at, path in older if at not in remaining]:
            said = _read_object(manifest) or {}
            # The manifest goes first: a checkpoint that is half removed must not look complete.
            _remove(manifest)
            with suppress(ValueError, TypeError, KeyError):
                for file in self._checkpoint_of(manifest, said).files:
                    _remove(file)
        for leftover in self.folder.glob("*step-*"):
            match = _LEFTOVER.fullmatch(leftover.name)
            if match and int(match[1]) < min([step, *remaining]):
                _remove(leftover) if match[2] else shutil.rmtree(leftover, ignore_errors=True)


def _is_unchanged(file: Path, said: dict[str, Any], *, whole: bool) -> bool:
    if file.stat().st_size != said["bytes"]:
        return False
    with file.open("rb") as stream:
        return not whole or _digest(stream) == (said["bytes"], said["sha256"])


def _read_object(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(path.read_bytes())
        return content if isinstance(content, dict) else None
    return None


def _file_version(path: Path) -> tuple[int, int] | None:
    """Return what distinguishes a file from one that replaces it."""
    with suppress(OSError):
        found = path.stat()
        return found.st_ino, found.st_mtime_ns
    return None


def _digest(stream: Any) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def _put(path: Path, body: dict[str, Any], *, durable: bool = True) -> None:
    """Write a file completely under its name, or not at all.

    ``durable``: create its folder and put it on durable storage.
    """
    if durable:
        path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}.part")
    with part.open("wb") as stream:
        stream.write(json.dumps(body).encode())
        stream.flush()
        if durable:
            os.fsync(stream.fileno())
    part.replace(path)
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Put the folder's entries on durable storage, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _remove(file: Path) -> None:
    with suppress(OSError):
        file.unlink()
