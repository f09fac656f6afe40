"""Write small files so that a reader finds the old content or the new, never a part of it."""

from __future__ import annotations

import os
from pathlib import Path


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the content of a file that its owner alone may read. OSError.

    Nothing is flushed to the disk, so that a power cut may lose it.
    """
    partial = path.with_name(f".{path.name}.part")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123
        file.write(data)
    partial.replace(path)
