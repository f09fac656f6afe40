"""Options, errors and wording that the checkpoint commands share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pricing.problems import InvalidInputError
from router.cli import console
from router.cli.console import CommandError, ExitCode

if TYPE_CHECKING:
    from router.checkpoints.object_store import CheckpointStore
    from router.checkpoints.rate_limit import TransferLimits
    from router.checkpoints.transfer import TransferResult

URL_HELP = "s3://, gs://, abfs(s):// or file:// URL of a store, or of a manifest in it."
SECONDS_HELP = "Time limit; a transfer that cannot end by then is not started."
MBPS_HELP = "Bandwidth limit in megabits per second."
PARALLEL_HELP = "Files transferred at the same time."
STEP_HELP = "Step of the checkpoint; default: the newest good one."
_MEGABIT = 1_000_000 / 8
_MANIFEST_ENDS = ".manifest.json"


def resolve_checkpoint_store(url: str) -> tuple[CheckpointStore, int | None]:
    """Open the store that a URL names; the second value is the step if the URL is a manifest's, else None.

    Raises InvalidInputError if the URL names no store, or a file that is no manifest.
    """
    from router.checkpoints.arrow_store import open_arrow_store
    from router.checkpoints.errors import StorageError
    from router.checkpoints.manifest import parse_step
    from router.checkpoints.object_store import open_checkpoint_store

    root, _, name = url.rpartition("/")
    step = parse_step(name)
    if step is None and name.endswith(_MANIFEST_ENDS):
        raise InvalidInputError.single(f"{name} is no manifest's name", field="URL")
    try:
        environment = os.environ  # noqa: TID251
        return open_checkpoint_store(
            url if step is None else root, lambda text: open_arrow_store(text, environment)
        ), step
    except StorageError as error:
        raise InvalidInputError.single(str(error), field="URL", remedy=error.remedy) from None


def build_rate_limit(seconds: float | None, max_mbps: float | None) -> TransferLimits:
    """Return the rate limit of a transfer. Raises InvalidInputError unless both values are finite and above zero."""
    from router.checkpoints.rate_limit import TransferLimits

    for option, value in (("--seconds", seconds), ("--max-mbps", max_mbps)):
        if value is not None and not 0 < value < float("inf"):
            raise InvalidInputError.single(f"{value} is not above zero", field=option)
    most = None if max_mbps is None else max_mbps * _MEGABIT
    return TransferLimits(seconds=seconds, bytes_per_second=most, rate=most)


@contextmanager
def translate_storage_errors() -> Iterator[None]:
    """Translate errors of durable storage into CommandError: exit code 5 if the time ran out, else 1."""
    from router.checkpoints.errors import OutOfTimeError, StorageError

    try:
        yield
    except OutOfTimeError as error:
        raise CommandError(str(error), ExitCode.PARTIAL, error.remedy) from None
    except StorageError as error:
        raise CommandError(str(error), ExitCode.FAILURE, error.remedy) from None
    except OSError as error:
        raise CommandError(str(error)) from None


def report_skipped_step(step: int, why: str) -> None:
    """Report a checkpoint that was skipped, and why."""
    console.note(f"step {step}: passed over: {why}", "warning")


def format_bytes(count: int) -> str:
    """Return a byte count in decimal units, such as ``81.2 GB``."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def describe_transfer(moved: TransferResult) -> str:
    """Return one line of text about a finished transfer."""
    skipped = f", {format_bytes(moved.kept)} were there" if moved.kept else ""
    speed = f", {format_bytes(int(moved.bytes / moved.seconds))}/s" if moved.bytes and moved.seconds > 0 else ""
    return f"step {moved.step}: {format_bytes(moved.bytes)} in {moved.seconds:.1f} s{speed}{skipped}: {moved.manifest}"
