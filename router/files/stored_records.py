"""Keep records in a folder that one process at a time may change: its lock, and manifests of one format.

A manifest is JSON with the number of its format; a record counts when its manifest is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pricing.atomic_file import make_private_folder
from pricing.problems import InvalidInputError

FORMAT = 1
T = TypeVar("T")


@contextmanager
def hold_folder(folder: Path, seconds: float, work: str) -> Iterator[None]:
    """Hold the lock of the folder, which is made if missing.

    InvalidInputError where another command, which does that ``work``, holds it for so many seconds.
    """
    from filelock import FileLock, Timeout  # takes a while to import

    make_private_folder(folder)
    try:
        with FileLock(folder / ".lock", timeout=seconds):
            yield
    except Timeout:
        what = f"another command has been {work} for {seconds:.0f} seconds"
        raise InvalidInputError.single(what, where=str(folder), remedy="try again when it has finished") from None


def parse_fields(text: str) -> dict[str, Any]:
    """Return the fields of a manifest. ValueError, TypeError or KeyError where it is none of ours."""
    fields: dict[str, Any] = json.loads(text)
    if fields.pop("format") != FORMAT:
        raise ValueError("is of another version of stepfare")
    return fields


def read_records(folder: Path, parse: Callable[[str], T], kind: str) -> tuple[T, ...]:
    """Return the records of all manifests of a folder, by name. InvalidInputError for one that is damaged."""
    return tuple(_read_record(path, parse, kind) for path in sorted(folder.glob("*.json")))


def _read_record(path: Path, parse: Callable[[str], T], kind: str) -> T:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        remedy = "bring the folder back from a backup"
        raise InvalidInputError.single(f"is no {kind}: {error}", where=str(path), remedy=remedy) from None
