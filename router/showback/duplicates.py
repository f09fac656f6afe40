"""Find whole rows that stand twice in a delivery, and compare the rows of two bills.

A delivery is read once, and only a hash of 64 bits is kept of each row. Where two are equal the files are read again,
and the rows themselves are compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pricing.problems import InvalidInputError, Problem
from router.files.duckdb_session import connect, parquet_relation

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from numpy.typing import NDArray

# The most duplicate rows that an error names.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class DuplicateRows:
    """Rows that stand elsewhere in the delivery already.

    ``first`` are the places of the first few, each with that of the row that it repeats; ``billed`` is their sum by
    currency.
    """

    rows: int
    first: tuple[tuple[str, str], ...]
    billed: dict[str, Decimal]


class RowHashes:
    """Collect a hash of each row, computed by the connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._hashes: list[NDArray[np.uint64]] = []

    def add(self, rows: pa.Table) -> None:
        """Add more rows, with the same columns each time."""
        self._hashes.append(_hashes_of(self._connection, rows))

    def find(self, batches: Iterable[tuple[pa.Table, list[str]]]) -> DuplicateRows | None:
        """Return the rows that repeat an earlier one, cell for cell; None where none does.

        ``batches`` are the same rows once more, each with its place; they are not always read.
        """
        suspects = self._suspects()
        if not len(suspects):
            return None
        seen: dict[bytes, str] = {}
        rows, first, billed = 0, list[tuple[str, str]](), dict[str, Decimal]()
        for table, places in batches:
            for number in np.flatnonzero(np.isin(_hashes_of(self._connection, table), suspects)).tolist():
                row = table.slice(number, 1).to_pylist()[0]
                before = seen.setdefault(_digest(row), places[number])
                if before is places[number]:
                    continue
                rows += 1
                if len(first) < _SHOWN:
                    first.append((places[number], before))
                currency = row["BillingCurrency"] or ""
                billed[currency] = billed.get(currency, Decimal(0)) + (row["BilledCost"] or Decimal(0))
        return DuplicateRows(rows, tuple(first), billed) if rows else None

    def _suspects(self) -> NDArray[np.uint64]:
        """Return the hashes that more than one row has."""
        if not self._hashes:
            return np.empty(0, np.uint64)
        hashes, counts = np.unique(np.concatenate(self._hashes), return_counts=True)
        repeated: NDArray[np.uint64] = hashes[counts > 1]
        return repeated


@contextmanager
def row_hashes() -> Iterator[RowHashes]:
    """Yield the hashes of one delivery; they need no room on a disk."""
    import duckdb

    with duckdb.connect(config={"autoinstall_known_extensions": False, "autoload_known_extensions": False}) as engine:
        yield RowHashes(engine)


def describe_duplicates(duplicates: DuplicateRows) -> str:
    """Return how many rows stand twice, and what was billed for them."""
    sums = " and ".join(f"{amount:,.2f} {currency}".strip() for currency, amount in sorted(duplicates.billed.items()))
    return f"{duplicates.rows:,} {'row stands' if duplicates.rows == 1 else 'rows stand'} there twice, {sums} billed"


def duplicates_error(duplicates: DuplicateRows) -> InvalidInputError:
    """Return the error that names the first rows, and the sum of all."""
    remedy = "take the rows out; or, where the cloud means both, import with --allow-duplicates"
    problems = [Problem(where, "", f"is cell for cell the row of {before}", "") for where, before in duplicates.first]
    return InvalidInputError([*problems, Problem("", "", describe_duplicates(duplicates), remedy)])


def have_same_rows(first: Path, second: Path) -> bool:
    """Return whether two bills have the same rows, in any order; a column that only one of them has may be empty."""
    first_rows, second_rows = parquet_relation([first]), parquet_relation([second])
    sides = f"SELECT *, 1 AS side FROM {first_rows} UNION ALL BY NAME SELECT *, -1 AS side FROM {second_rows}"
    balance = f"SELECT * EXCLUDE (side), sum(side) AS rest FROM ({sides}) GROUP BY ALL"
    with connect() as connection:
        return connection.execute(f"SELECT 1 FROM ({balance}) WHERE rest <> 0 LIMIT 1").fetchone() is None


def _hashes_of(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> NDArray[np.uint64]:
    connection.register("some_rows", rows)
    found: dict[str, Any] = connection.execute("SELECT hash(some_rows) AS h FROM some_rows").fetchnumpy()
    connection.unregister("some_rows")
    return np.asarray(found["h"], dtype=np.uint64)


def _digest(row: dict[str, Any]) -> bytes:
    return hashlib.blake2b(repr(sorted(row.items())).encode("utf-8", "surrogatepass"), digest_size=16).digest()
