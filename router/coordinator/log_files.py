"""Write the output of a rank to the file ``LOGS/ATTEMPT/rank-N.log``, readable by the owner alone."""

from __future__ import annotations

import os
from contextlib import closing, suppress
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
    with closing(_LogFile(path)) as file:
        length = file.length()
        start = min(length, size)
        notes = [f"{size - length} bytes of this file were lost"] if length < size else []
        notes += [f"{missing} bytes of output did not arrive"] if missing else []
        marks = "".join(f"[stepfare: {note}]\n" for note in notes)
        if marks and not file.starts_line(start):
            marks = f"\n{marks}"
        return file.write_from(start, marks.encode() + text)


class _LogFile:
    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, _FLAGS, 0o600)

    def close(self) -> None:
        os.close(self._descriptor)

    def length(self) -> int:
        return os.fstat(self._descriptor).st_size

    def starts_line(self, at: int) -> bool:
        return at == 0 or os.pread(self._descriptor, 1, at - 1) == b"\n"

    def write_from(self, start: int, data: bytes) -> int:
        os.ftruncate(self._descriptor, start)
        done = 0
        try:
            while done < len(data):
                done += os.pwrite(self._descriptor, data[done:], start + done)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, start)
            raise
        return start + done
