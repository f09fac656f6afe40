"""Rows of the ledger column by column, where many rows say the same: who, what and where is said once for all of them.
Pure.

A machine's stretches differ in time, amount and rank, and agree in the other thirty columns; reading these row by row
takes most of the time of reading the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from router.state.ledger_rows import MOMENTS, NAMES, Row, Value

# What differs from row to row; moments and fractions are among it, so that the rest is plain JSON on every database.
SINGLE: Final = ("key", *sorted(MOMENTS), "rank", "resource", "quantity", "usd_nanos", "steps", "lost_steps")
REPEATED: Final = tuple(name for name in NAMES if name not in SINGLE)
_PLACES: Final = {name: place for place, name in enumerate(REPEATED)}


@dataclass(frozen=True, slots=True)
class Columns:
    """Some rows of the ledger, at least one, in order. ``single``: a value for each row. Of :data:`REPEATED` row i says
    ``sayings[places[i]]``."""

    seqs: Sequence[int]
    single: Mapping[str, Sequence[Any]]
    places: Sequence[int]
    sayings: Sequence[Sequence[Value]]

    def said(self, name: str) -> list[Any]:
        """What each of the ``sayings`` has for a name of :data:`REPEATED`."""
        place = _PLACES[name]
        return [saying[place] for saying in self.sayings]


def columns_of(rows: Sequence[Row]) -> Columns:
    """Of whole rows (:mod:`router.state.ledger_rows`)."""
    seqs, *columns = zip(*rows, strict=True)
    given = dict(zip(NAMES, columns[:-2], strict=True))
    repeated = list(zip(*(given[name] for name in REPEATED), strict=True))
    return _made(seqs, {name: given[name] for name in SINGLE}, repeated, lambda saying: saying)


def columns_read(rows: Sequence[Row]) -> Columns:
    """Of rows ``(seq, *SINGLE, REPEATED as a JSON array)``."""
    seqs, *columns = zip(*rows, strict=True)
    return _made(seqs, dict(zip(SINGLE, columns[:-1], strict=True)), columns[-1], json.loads)


def _made(seqs: Sequence[int], single: Mapping[str, Sequence[Any]], sayings: Iterable[Any], read: Any) -> Columns:
    known: dict[Any, int] = {}
    places = [known.setdefault(saying, len(known)) for saying in sayings]
    return Columns(seqs, single, places, [read(saying) for saying in known])
