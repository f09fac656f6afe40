"""Put a set of new files into a folder: all of them appear, or none; what was there is kept.

Files are written and checked in a hidden folder beside their places, then renamed one by one. A journal in the hidden
folder names the steps, so that a failure, or the next run after a kill, takes them back.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pricing.atomic_file import sync_folder, write_atomic
from pricing.problems import InvalidInputError, Problem

STAGING_NAME = ".stepfare-init"
_JOURNAL, _LOCK = "journal.json", "lock"


def existing_files(folder: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Return those of the names that exist in the folder, whatever they are."""
    return tuple(name for name in names if (folder / name).exists() or (folder / name).is_symlink())


def place_files(
    folder: Path, texts: Mapping[str, str], check: Callable[[Path], None], *, replace: bool
) -> Mapping[str, str]:
    """Write the files below ``folder``, after ``check`` accepted the folder in which they were prepared.

    Returns the name of the backup of each file that was there, which only ``replace`` allows. InvalidInputError where
    files are there without it, or another process is at it. On any error the folder is as it was; OSError too.
    """
    take_back_interrupted(folder)
    made = _make_folders(folder)
    staging = folder / STAGING_NAME
    try:
        staging.mkdir(exist_ok=True)
        with FileLock(staging / _LOCK, timeout=0):
            try:
                present = existing_files(folder, list(texts))
                if present and not replace:
                    raise refusal(folder, present)
                backups = _publish(folder, texts, check, present)
            finally:
                _undo_steps(folder)
        shutil.rmtree(staging, ignore_errors=True)
    except BaseException as error:
        if not isinstance(error, Timeout):  # Another process has the folder, and all that is in it.
            shutil.rmtree(staging, ignore_errors=True)
            _remove_folders(made)
        if isinstance(error, Timeout):
            raise _busy(folder) from None
        raise
    return backups


def refusal(folder: Path, present: Sequence[str]) -> InvalidInputError:
    """Return the error that lists the files which are there already."""
    remedy = "choose another folder, or add --force: it keeps each as NAME.bak"
    problems = [Problem(str(folder / name), "", "exists already and is left as it is", "") for name in present]
    return InvalidInputError([*problems, Problem("", "", "nothing was written", remedy)])


def take_back_interrupted(folder: Path) -> None:
    """Take back what a run that was killed left in the folder. InvalidInputError while another run is at it."""
    staging = folder / STAGING_NAME
    if not staging.is_dir():
        return
    try:
        with FileLock(staging / _LOCK, timeout=0):
            _undo_steps(folder)
    except Timeout:
        raise _busy(folder) from None
    shutil.rmtree(staging, ignore_errors=True)


def _busy(folder: Path) -> InvalidInputError:
    return InvalidInputError.single(f"another `stepfare init` is writing to {folder}", remedy="wait until it has ended")


def _undo_steps(folder: Path) -> None:
    """Take back the steps in the journal, if there is one: remove new files that are unchanged, restore old ones."""
    journal = folder / STAGING_NAME / _JOURNAL
    if not journal.exists():
        return
    steps: dict[str, Any] = json.loads(journal.read_text(encoding="utf-8"))
    for name, digest in steps["digests"].items():
        with suppress(FileNotFoundError):
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest:
                (folder / name).unlink()
    for name, backup in steps["backups"].items():
        if (folder / backup).exists() and not (folder / name).exists():
            (folder / backup).replace(folder / name)
    _remove_folders([folder / name for name in steps["folders"]])
    journal.unlink()


def _publish(
    folder: Path, texts: Mapping[str, str], check: Callable[[Path], None], present: Sequence[str]
) -> Mapping[str, str]:
    prepared = folder / STAGING_NAME / "new"
    shutil.rmtree(prepared, ignore_errors=True)
    for name, text in texts.items():
        (prepared / name).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(prepared / name, text)
    check(prepared)
    backups = {name: _backup_name(folder, name) for name in present}
    parents = {Path(name).parent for name in texts} - {Path()}
    missing = sorted(str(parent) for parent in parents if not (folder / parent).exists())
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
    journal = folder / STAGING_NAME / _JOURNAL
    write_atomic(journal, json.dumps({"digests": digests, "backups": backups, "folders": missing}))
    for name in missing:
        (folder / name).mkdir()
    for name in texts:
        if name in backups:
            (folder / name).rename(folder / backups[name])
        (prepared / name).rename(folder / name)
    for parent in (Path(), *parents):
        sync_folder(folder / parent)
    journal.unlink()  # From here on the files are there to stay.
    return backups


def _backup_name(folder: Path, name: str) -> str:
    """Return NAME.bak, or NAME.bak.2 and so on, so that an earlier backup stays."""
    candidate, number = f"{name}.bak", 1
    while existing_files(folder, [candidate]):
        number += 1
        candidate = f"{name}.bak.{number}"
    return candidate


def _make_folders(folder: Path) -> list[Path]:
    """Make the folder and those above it; return the new ones, the innermost first."""
    made = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return made


def _remove_folders(folders: Sequence[Path]) -> None:
    for place in folders:
        with suppress(OSError):  # Somebody has put something into it.
            place.rmdir()
