"""Run directories: list them, find their owner, and back up and restore what releasing machines needs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.atomic_file import make_private_folder, publish_folder
from router.state.errors import StateError
from terraform.render import SECRET_FILES, VALUES
from terraform.workdir import MODULE, PREVIEW

if TYPE_CHECKING:
    from router.state.state_backup import StoredFile

_TAG = "stepfare_state"
# User data holds secrets of the machines and stays out of backups; Terraform fetches the other files again.
_LEFT_OUT = SECRET_FILES | {PREVIEW}
_FOLDERS = {MODULE}


def run_directories(runs: Path) -> tuple[Path, ...]:
    """Return the run directories by name, without those that a restore left half written."""
    try:
        return tuple(sorted(path for path in runs.iterdir() if path.is_dir() and not path.name.startswith(".")))
    except OSError:
        return ()


def state_id_of(directory: Path) -> str:
    """Return the id of the state that made a run directory; "" where its files do not say."""
    try:
        tags = json.loads((directory / VALUES).read_text(encoding="utf-8"))["tags"]
        return str(tags[_TAG])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def files_to_back_up(runs: Path) -> Iterator[StoredFile]:
    """Yield the files needed to release the machines of run directories. StateError for one that cannot be read."""
    # Every command asks for the run directories; the backup's format is for backups alone.
    from router.state.state_backup import split_file

    for directory in run_directories(runs):
        for path in _backup_files(directory):
            try:
                with path.open("rb") as stream:
                    yield from split_file(str(path.relative_to(runs)), path.stat().st_mode & 0o777, stream.read)
            except OSError as error:
                raise StateError(f"{path} cannot be read: {error.strerror}", "give its owner the right to") from None


def restore_files(runs: Path, files: Iterable[StoredFile]) -> tuple[str, ...]:
    """Write the files of a backup below ``runs``, and return the directories that it created.

    An existing directory stays as it is, because it is newer than any backup. StateError.
    """
    existing = {path.name for path in run_directories(runs)}
    created = []
    try:
        for name, group in groupby(files, key=lambda file: Path(file.path).parts[0]):
            if name in existing or name.startswith("."):
                continue
            new = runs / f".{name}.restored"
            shutil.rmtree(new, ignore_errors=True)
            _write_directory(new, name, group)
            publish_folder(new, runs / name)
            created.append(name)
    except OSError as error:
        raise StateError(f"{runs}: cannot be written: {error.strerror}", "make room, then restore again") from None
    return tuple(created)


def _write_directory(new: Path, name: str, files: Iterable[StoredFile]) -> None:
    make_private_folder(new)
    last = ""
    for file in files:
        path = new / Path(file.path).relative_to(name)
        make_private_folder(path.parent)
        flag = os.O_APPEND if file.path == last else os.O_EXCL
        with os.fdopen(os.open(path, os.O_CREAT | os.O_WRONLY | flag, file.mode), "wb") as stream:
            stream.write(file.content)
        last = file.path


def _backup_files(directory: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for path in sorted(directory.iterdir()):
            if path.is_symlink() or path.name in _LEFT_OUT:
                continue
            if path.is_file():
                yield path
            elif path.is_dir() and path.name in _FOLDERS:
                yield from _backup_files(path)
