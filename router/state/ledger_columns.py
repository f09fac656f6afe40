"""Rows of the ledger in columns, where values that many rows repeat are stored once. Pure.

The time segments of a machine differ in time, amount and rank, and agree in the other thirty columns; reading these row
by row takes most of the time of reading the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from router.state.ledger_rows import MOMENTS, NAMES, Row, Value

# The columns that differ from row to row. They include moments and fractions, so that the rest is plain JSON on every
# database.
SINGLE: Final = ("key", *sorted(MOMENTS), "rank", "resource", "quantity", "usd_nanos", "steps", "lost_steps")
REPEATED: Final = tuple(name for name in NAMES if name not in SINGLE)
_PLACES: Final = {name: place for place, name in enumerate(REPEATED)}


@dataclass(frozen=True, slots=True)
class LedgerColumns:
    """Some rows of the ledger, at least one, in order.

    ``single``: a value for each row. The columns of :data:`REPEATED` have in row i the values ``sayings[places[i]]``.
    """

    seqs: Sequence[int]
    single: Mapping[str, Sequence[Any]]
    places: Sequence[int]
    sayings: Sequence[Sequence[Value]]

    def said(self, name: str) -> list[Any]:
        """Return the value that each of the ``sayings`` has for a name of :data:`REPEATED`."""
        place = _PLACES[name]
        return [saying[place] for saying in self.sayings]


def columns_from_rows(rows: Sequence[Row]) -> LedgerColumns:
    """Return whole rows (:mod:`router.state.ledger_rows`) as columns."""
    seqs, *columns = zip(*rows, strict=True)
    given = dict(zip(NAMES, columns[:-2], strict=True))
    repeated = list(zip(*(given[name] for name in REPEATED), strict=True))
    return _build_columns(seqs, {name: given[name] for name in SINGLE}, repeated, lambda saying: saying)


def columns_from_json_rows(rows: Sequence[Row]) -> LedgerColumns:
    """Return rows ``(seq, *SINGLE, REPEATED as a JSON array)`` as columns."""
    seqs, *columns = zip(*rows, strict=True)
    return _build_columns(seqs, dict(zip(SINGLE, columns[:-1], strict=True)), columns[-1], json.loads)


def _build_columns(
    seqs: Sequence[int], single: Mapping[str, Sequence[Any]], sayings: Iterable[Any], read: Any
) -> LedgerColumns:
    index_by_value: dict[Any, int] = {}
    places = [index_by_value.setdefault(saying, len(index_by_value)) for saying in sayings]
    return LedgerColumns(seqs, single, places, [read(saying) for saying in index_by_value])
