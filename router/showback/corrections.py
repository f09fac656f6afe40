"""Store corrections of closed months, as facts in the books of an open month.

A correction is what a bill changed that came, was restated, restored or removed after the closing. Each is a Parquet
file of facts and a manifest, which makes it count; nothing there is ever changed. A correction belongs to one state,
since the state knows which months are closed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pricing.atomic_file import make_private_folder, publish_file
from router.files.stored_records import FORMAT, parse_fields, read_records
from router.showback.bill_store import file_sha256

_FOLDER = "corrections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The manifest of one correction.

    ``number`` counts from 1 in each state. ``period`` is the open month in whose books it stands, ``corrects`` the
    closed months, ``at`` when the bills changed (UTC, ISO), ``after`` the ids of all bills that stood then. ``amounts``
    has the billed and effective sums (exact text) by currency. ``file`` holds the facts, and has the checksum
    ``sha256``: none where ``rows`` is 0, for another bill may come to the same money.
    """

    id: str
    number: int
    state: str
    period: str
    corrects: tuple[str, ...]
    at: str
    who: str
    reason: str
    after: tuple[str, ...]
    rows: int
    amounts: dict[str, dict[str, str]]
    file: str
    sha256: str = ""


class CorrectionStore:
    """The corrections of one state under the folder of the bills."""

    def __init__(self, bills: Path, state: str) -> None:
        self._folder, self._state = bills / _FOLDER, state

    def all(self) -> tuple[Correction, ...]:
        """Return all corrections, in order. InvalidInputError for a damaged manifest."""
        own = (each for each in read_records(self._folder, _parse, "correction") if each.state == self._state)
        return tuple(sorted(own, key=lambda correction: correction.number))

    def path(self, correction: Correction) -> Path:
        """Return the path of the correction's facts."""
        return self._folder / correction.file

    def whole(self, correction: Correction) -> bool:
        """Return whether the correction's facts are there and are the ones that were written."""
        path = self.path(correction)
        return not correction.rows or (path.is_file() and file_sha256(path) == correction.sha256)

    def add(self, correction: Correction, facts: pa.Table) -> Correction:
        """Store one more correction, whole or not at all; call it while the bills are held. OSError."""
        make_private_folder(self._folder)
        part = self._folder / ".part"
        pq.write_table(facts, part, compression="zstd")
        publish_file(part, self.path(correction))
        correction = replace(correction, sha256=file_sha256(self.path(correction)))
        part.write_text(json.dumps({"format": FORMAT, **asdict(correction)}, indent=1) + "\n", encoding="utf-8")
        publish_file(part, self._folder / f"{correction.id}.json")
        return correction


def correction_id(number: int, state: str) -> str:
    """Return the id of the correction with that number."""
    return f"correction-{state}-{number:06}"


def find_damaged_correction(corrections: Sequence[Correction], store: CorrectionStore) -> Correction | None:
    """Return the first correction whose facts are not as they were written."""
    return next((each for each in corrections if not store.whole(each)), None)


def _parse(text: str) -> Correction:
    fields = parse_fields(text)
    return Correction(**{**fields, "corrects": tuple(fields["corrects"]), "after": tuple(fields["after"])})
