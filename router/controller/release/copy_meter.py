"""Keeps what a copy has moved so far on the disk, so that the bytes of a process that was killed are metered, too."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pricing.atomic_file import make_private_folder
from router.controller.context import ControllerContext
from router.controller.history.metering import (
    COPIED,
    DATA_COPIED,
    DATA_NOT_COPIED,
    NOT_COPIED,
    TRANSFERS,
    transfer_entries,
)
from router.state.records import Attempt

_INTERRUPTED = "the copy was interrupted"
# Words of the journal for a copy that ended well, and for one that did not, by the name of its note.
DATA, CHECKPOINT = "", "-checkpoint"
_WORDS = {DATA: (DATA_COPIED, DATA_NOT_COPIED), CHECKPOINT: (COPIED, NOT_COPIED)}


def copies_folder(site: ControllerContext) -> Path:
    """Return the folder of this machine that has the journals and meters of copies, beside the run directories."""
    return site.runs.with_name("copies")


class CopyMeter:
    """The running note of the copy of one attempt: what the journal would have of it now.

    ``describe`` makes it of the bytes moved; ``what`` is copied: :data:`DATA` or :data:`CHECKPOINT`.
    """

    def __init__(
        self,
        site: ControllerContext,
        attempt: Attempt,
        describe: Callable[[int], Mapping[str, object]],
        what: str = DATA,
    ) -> None:
        self._file = _meter_file(site, attempt, what)
        self._describe = describe
        make_private_folder(self._file.parent)
        self._descriptor: int | None = os.open(self._file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        self._lock, self._size = threading.Lock(), 0

    def count(self, moved: int) -> None:
        """Store the note. One call writes all of it, so that no kill can tear it."""
        text = json.dumps(self._describe(moved)).encode()
        with self._lock:
            if self._descriptor is not None:
                # A shorter note covers the rest of the longer one before.
                self._size = max(self._size, len(text))
                os.pwrite(self._descriptor, text.ljust(self._size), 0)

    def close(self) -> None:
        """Write no more. The note stays until it is metered; a store that does not answer may let a copy run on."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor = None


def record_transfer_costs(site: ControllerContext, attempt: Attempt) -> None:
    """Record the transfer costs of the attempt in the ledger, interrupted copies as well; existing entries stay."""
    note_interrupted_copy(site, attempt)
    site.store.ledger.add(
        transfer_entries(attempt, site.store.journal.entries(attempt.id, what=TRANSFERS), site.clock())
    )


def note_interrupted_copy(site: ControllerContext, attempt: Attempt) -> None:
    """Move the running notes of copies that nobody ended into the journal; one that has ended has its own there."""
    for what, words in _WORDS.items():
        file = _meter_file(site, attempt, what)
        details = _read_note(file)
        if details and not site.store.journal.entries(attempt.id, what=words):
            site.store.journal.note(attempt.id, words[1], site.clock(), why=_INTERRUPTED, **details)
        with suppress(OSError):
            file.unlink(missing_ok=True)


def noted_bytes(site: ControllerContext, attempt: Attempt) -> int:
    """Return how many bytes of an interrupted copy of data the journal has for the attempt."""
    notes = site.store.journal.entries(attempt.id, what=(DATA_NOT_COPIED,))
    return sum(int(str(note.details.get("bytes", 0))) for note in notes)


def _read_note(file: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        content = json.loads(file.read_bytes())
        return content if isinstance(content, dict) else {}
    return {}


def _meter_file(site: ControllerContext, attempt: Attempt, what: str) -> Path:
    return copies_folder(site) / f"{attempt.id}{what}.json"
