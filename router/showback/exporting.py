"""The ledger of a state as a FOCUS file: read in parts, written whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from router.files.showback_file import Showback
from router.ledger.month import Month
from router.showback.charging import Books, Left, charges
from router.showback.focus.charge import Charge
from router.showback.focus.writing import WRITERS
from router.state.ledger_rows import entry_of
from router.state.store import Store


@dataclass(frozen=True, slots=True)
class Exported:
    """How many charges were written, and what was left out."""

    charges: int
    left: Left


def export(store: Store, path: Path, accounts: Showback, version: str, month: Month | None = None) -> Exported:
    """Writes the charges of the ledger, of one month's books or of all, as FOCUS ``version`` (KeyError for another than
    those that are written) in the form that the name's ending says (:data:`WRITERS`; KeyError). The same books give
    the same file. OSError where it cannot be written."""
    left = Left()
    written = WRITERS[path.suffix.removeprefix(".").lower()]
    return Exported(written(path, charges_in(store, accounts, left, month), version), left)


def charges_in(store: Store, accounts: Showback, left: Left, month: Month | None = None) -> Iterator[Charge]:
    """The charges of the ledger, in its order; ``left`` counts what has no price."""
    closings = store.periods.closings()
    closed = closings[-1].period if closings else None
    for rows in store.ledger.batches(period=month):
        entries = [entry_of(row[1:-2]) for row in rows]
        months = store.ledger.months_of(sorted({entry.corrects for entry in entries if entry.corrects}))
        yield from charges(entries, accounts, Books(closed, months), left)
