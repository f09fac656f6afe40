"""Corrections of closed months: what a bill that came, was restated, brought back or taken away after the closing
changed, as facts in the books of an open month.

Each is a Parquet file of facts and a manifest, which makes it count; nothing there is ever changed. A correction is of
one state, for it is the state that says which months are closed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pricing.problems import InvalidInputError
from router.showback.bill_store import file_sha256

FORMAT = 1
_FOLDER = "corrections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """``number`` counts from 1 in each state. ``period``: the open month in whose books it stands, ``corrects`` the
    closed months, ``at`` when the bills changed (UTC, ISO), ``after`` the ids of all bills that stood then. ``amounts``
    has the billed and effective sums (exact text) by currency. ``file`` holds the facts: none where ``rows`` is 0, for
    another bill may come to the same money."""

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
    sha256: str


class Corrections:
    """The corrections of one state under the folder of the bills."""

    def __init__(self, bills: Path, state: str) -> None:
        self._folder, self._state = bills / _FOLDER, state

    def all(self) -> tuple[Correction, ...]:
        """All of them, in order. InvalidInputError for a manifest that is damaged."""
        found = (_read(path) for path in sorted(self._folder.glob("*.json")))
        return tuple(sorted((each for each in found if each.state == self._state), key=lambda each: each.number))

    def path(self, correction: Correction) -> Path:
        """Where its facts are."""
        return self._folder / correction.file

    def whole(self, correction: Correction) -> bool:
        """Whether its facts are there and the very ones that were written."""
        path = self.path(correction)
        return not correction.rows or (path.is_file() and file_sha256(path) == correction.sha256)

    def add(self, facts: pa.Table, said: dict[str, Any]) -> Correction:
        """Keeps one more, whole or not at all; call it while the bills are held. OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = f"{said['id']}.parquet"
        part = self._folder / ".part"
        pq.write_table(facts, part, compression="zstd")
        _settle(part, self._folder / file)
        made = Correction(
            **said, state=self._state, rows=facts.num_rows, file=file, sha256=file_sha256(self._folder / file)
        )
        part.write_text(json.dumps({"format": FORMAT, **asdict(made)}, indent=1) + "\n", encoding="utf-8")
        _settle(part, self._folder / f"{made.id}.json")
        return made


def named(number: int, state: str) -> str:
    """The id of the correction with that number."""
    return f"correction-{state}-{number:06}"


def damaged(found: Sequence[Correction], store: Corrections) -> Correction | None:
    """The first whose facts are not as they were written."""
    return next((each for each in found if not store.whole(each)), None)


def _settle(part: Path, path: Path) -> None:
    with part.open("rb") as stream:
        os.fsync(stream.fileno())
    part.replace(path)


def _read(path: Path) -> Correction:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found.pop("format") != FORMAT:
            raise ValueError("is of another version of stepfare")
        return Correction(**{**found, "corrects": tuple(found["corrects"]), "after": tuple(found["after"])})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        remedy = "bring the folder back from a backup"
        raise InvalidInputError.single(f"is no correction: {error}", where=str(path), remedy=remedy) from None
