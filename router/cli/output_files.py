"""Write the files that commands name on their command line: whole or not at all."""

from __future__ import annotations

from pathlib import Path

from pricing.atomic_file import write_atomic
from router.cli.console import CommandError


def check_output_folders(*files: Path | None) -> None:
    """Raise CommandError if the folder of a file does not exist, so that a long command fails at its start."""
    for file in files:
        if file is not None and not file.parent.is_dir():
            raise CommandError(f"{file}: cannot be written: there is no folder {file.parent}")


def write_output_file(file: Path, content: bytes) -> None:
    """Write content to a file atomically. Raises CommandError if it cannot be written."""
    try:
        write_atomic(file, content)
    except OSError as error:
        raise CommandError(f"{file}: cannot be written: {error.strerror or error}") from None


def require_matplotlib(option: str) -> None:
    """Raise CommandError, which says what to install, if matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        remedy = "pip install 'stepfare[plot]'"
        raise CommandError(f"{option} needs matplotlib, which is not installed", remedy=remedy) from None
