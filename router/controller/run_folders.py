"""The folder of run directories as a whole: whose they are, and what of them a backup holds."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from router.state.errors import StateError
from router.state.state_backup import StoredFile, pieces
from terraform.render import SECRET_FILES, VALUES
from terraform.workdir import MODULE, PREVIEW

_TAG = "stepfare_state"
# What machines were told belongs to them alone; the rest Terraform fetches again.
_LEFT_OUT = SECRET_FILES | {PREVIEW}
_FOLDERS = {MODULE}


def run_directories(runs: Path) -> tuple[Path, ...]:
    """Those that there are, by name; one that a restore left half written is none."""
    try:
        return tuple(sorted(path for path in runs.iterdir() if path.is_dir() and not path.name.startswith(".")))
    except OSError:
        return ()


def state_of(directory: Path) -> str:
    """The id of the state that made a run directory; "" where its files do not say."""
    try:
        tags = json.loads((directory / VALUES).read_text(encoding="utf-8"))["tags"]
        return str(tags[_TAG])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def backed_up(runs: Path) -> Iterator[StoredFile]:
    """The files by which the machines of run directories can be released. StateError for one that cannot be read."""
    for directory in run_directories(runs):
        for path in _files(directory):
            try:
                with path.open("rb") as stream:
                    yield from pieces(str(path.relative_to(runs)), path.stat().st_mode & 0o777, stream.read)
            except OSError as error:
                raise StateError(f"{path} cannot be read: {error.strerror}", "give its owner the right to") from None


def put_back(runs: Path, files: Iterable[StoredFile]) -> tuple[str, ...]:
    """Writes files of a backup below ``runs``; the directories that it made. One that is there stays as it is: it is
    newer than any backup. StateError."""
    there = {path.name for path in run_directories(runs)}
    made = []
    try:
        for name, its in groupby(files, key=lambda file: Path(file.path).parts[0]):
            if name in there or name.startswith("."):
                continue
            new = runs / f".{name}.restored"
            shutil.rmtree(new, ignore_errors=True)
            _written(new, name, its)
            new.replace(runs / name)
            made.append(name)
    except OSError as error:
        raise StateError(f"{runs}: cannot be written: {error.strerror}", "make room, then restore again") from None
    return tuple(made)


def _written(new: Path, name: str, files: Iterable[StoredFile]) -> None:
    new.mkdir(mode=0o700, parents=True)
    last = ""
    for file in files:
        path = new / Path(file.path).relative_to(name)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        again = os.O_APPEND if file.path == last else os.O_EXCL
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | again, file.mode), "wb") as stream:
            stream.write(file.content)
            stream.flush()
            os.fsync(stream.fileno())
        last = file.path


def _files(directory: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for path in sorted(directory.iterdir()):
            if path.is_symlink() or path.name in _LEFT_OUT:
                continue
            if path.is_file():
                yield path
            elif path.is_dir() and path.name in _FOLDERS:
                yield from _files(path)
