"""The repository as the tests about it see it: its root, its packages, the files that would be committed, and folders
of the machine in which tests keep what is long to make."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("pricing", "providers", "router", "terraform")

_GENERATED = {".git", ".venv", "__pycache__", "build", "dist", "out"}
_CACHES = ("cache", "hypothesis", ".egg-info")


def repository_files() -> list[Path]:
    """Every file that is committed or about to be, relative to the root, sorted.

    Asks git; where there is no git (an unpacked source archive) walks the tree without generated folders.
    """
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return sorted(_walk(ROOT))
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    names = sorted({name for name in listed.stdout.split("\0") if name})
    return [Path(name) for name in names if (ROOT / name).is_file()]


def python_files(*tops: str) -> list[Path]:
    """The Python files under the named top-level folders, relative to the root."""
    return [f for f in repository_files() if f.suffix == ".py" and f.parts[0] in tops]


def ran(command: Sequence[object], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal, and return its exit code and what it printed."""
    words = [str(word) for word in command]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **options)


def cached_folder(name: str, content: bytes, make: Callable[[Path], None]) -> Path:
    """Return the folder of the machine's temporary files that was made of that content; make it where it is missing."""
    folder = Path(tempfile.gettempdir()) / f"stepfare-{name}-{hashlib.sha256(content).hexdigest()[:12]}"
    with FileLock(f"{folder}.lock"):
        if not (folder / "ready").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o755)
            make(folder)
            (folder / "ready").touch()
    return folder


def _walk(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name in _GENERATED or any(mark in entry.name for mark in _CACHES):
            continue
        if entry.is_dir():
            yield from _walk(entry)
        else:
            yield entry.relative_to(ROOT)
