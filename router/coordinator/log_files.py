"""Write the output of a rank to the file ``LOGS/ATTEMPT/rank-N.log``, readable by the owner alone."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pricing.atomic_file import make_private_folder

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)


def log_path(logs: Path, attempt: str, rank: int) -> Path:
    """Return the path of a rank's output, whether or not the file exists."""
    return logs / attempt / f"rank-{rank}.log"


def write_log(path: Path, text: bytes, *, size: int, missing: int = 0) -> int:
    """Write ``text`` at byte ``size``, replacing what follows, and return the new length of the file.

    ``missing`` bytes of output never arrived: one line says so. Another one says so if the file was shorter than
    ``size``. Raises ``OSError``, and the file is then as long as before, if the disk allows that much.
    """
    make_private_folder(path.parent)
    file = os.open(path, _FLAGS, 0o600)
    try:
        length = os.fstat(file).st_size
        start = min(length, size)
        notes = [f"{size - length} bytes of this file were lost"] if length < size else []
        notes += [f"{missing} bytes of output did not arrive"] if missing else []
        marks = "".join(f"[stepfare: {note}]\n" for note in notes)
        if marks and start and os.pread(file, 1, start - 1) != b"\n":
            marks = f"\n{marks}"
        os.ftruncate(file, start)
        data, done = marks.encode() + text, 0
        try:
            while done < len(data):
                done += os.pwrite(file, data[done:], start + done)
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, start)
            raise
        return start + done
    finally:
        os.close(file)
