"""Find rows that stand twice in a delivery, charges that two bills share, and how alike two bills are.

A delivery is read once, and only a hash of 64 bits is kept of each row. Where two are equal the files are read again,
and the rows themselves are compared.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pricing.problems import InvalidInputError, Problem
from pricing.units import format_count
from router.files.duckdb_session import connect, parquet_relation
from router.showback.bills import ImportedBill

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from numpy.typing import NDArray

# The most duplicate rows that an error names.
_SHOWN = 5
# A row of a bill is the same line in a later version of it, whatever it costs there.
_LINE = (
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "ChargeCategory",
    "ChargeClass",
    "SubAccountId",
    "ResourceId",
    "RegionId",
    "SkuId",
    "SkuMeter",
    "SkuPriceId",
    "PricingCategory",
    "CASE WHEN ResourceId IS NULL THEN ChargeDescription END",
)
# A charge is the same on another bill, whoever issued that: one resource, time, meter and amount.
_CHARGE = (
    "ResourceId",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "ChargeCategory",
    "ChargeClass",
    "SkuId",
    "SkuMeter",
    "SkuPriceId",
    "CASE WHEN ResourceId IS NULL THEN ChargeDescription END",
    "BillingCurrency",
    "BilledCost",
    "EffectiveCost",
)
# Two accounts may well pay one fee; charges without a resource count where they are this share of a bill.
_LEAST_WITHOUT_RESOURCE = 0.5


@dataclass(frozen=True, slots=True)
class DuplicateRows:
    """Rows that stand elsewhere in the delivery already.

    ``places`` are those of the first few, each with that of the row that it repeats; ``billed`` is their sum by
    currency; ``issuers`` are those of the rows, "" where it is unknown.
    """

    rows: int
    places: tuple[tuple[str, str], ...]
    billed: dict[str, Decimal]
    issuers: frozenset[str]


@dataclass(frozen=True, slots=True)
class SharedCharges:
    """Charges that stand on two bills, the earlier named first; ``billed`` is their sum by currency."""

    earlier: ImportedBill
    later: ImportedBill
    rows: int
    billed: Mapping[str, Decimal]

    @property
    def issuers(self) -> frozenset[str]:
        """The issuers of the two bills, "" where one is unknown."""
        return frozenset(each.issuer or "" for each in (self.earlier, self.later))


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
        rows, first, billed, issuers = 0, list[tuple[str, str]](), dict[str, Decimal](), set[str]()
        for table, places in batches:
            for number in np.flatnonzero(np.isin(_hashes_of(self._connection, table), suspects)).tolist():
                row = table.slice(number, 1).to_pylist()[0]
                before = seen.setdefault(_digest(row), places[number])
                if before is places[number]:
                    continue
                rows += 1
                issuers.add(row["InvoiceIssuerName"] or "")
                if len(first) < _SHOWN:
                    first.append((places[number], before))
                currency = row["BillingCurrency"] or ""
                billed[currency] = billed.get(currency, Decimal(0)) + (row["BilledCost"] or Decimal(0))
        return DuplicateRows(rows, tuple(first), billed, frozenset(issuers)) if rows else None

    def _suspects(self) -> NDArray[np.uint64]:
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
    verb = "row stands" if duplicates.rows == 1 else "rows stand"
    return f"{duplicates.rows:,} {verb} there twice, {_format_billed(duplicates.billed)} billed"


def _format_billed(billed: Mapping[str, Decimal]) -> str:
    return " and ".join(f"{amount:,.2f} {currency}".strip() for currency, amount in sorted(billed.items()))


def duplicates_error(duplicates: DuplicateRows) -> InvalidInputError:
    """Return the error that names the first rows, and the sum of all."""
    remedy = f"take the rows out; or, where the cloud means both, {_allowing(duplicates.issuers)}"
    problems = [Problem(where, "", f"is cell for cell the row of {before}", "") for where, before in duplicates.places]
    return InvalidInputError([*problems, Problem("", "", describe_duplicates(duplicates), remedy)])


def _allowing(issuers: Collection[str]) -> str:
    commands = (f"`stepfare bills duplicates {shlex.quote(name)} --permit --reason WHY`" for name in sorted(issuers))
    return " and ".join(commands)


def describe_shared(shared: SharedCharges) -> str:
    """Return how many charges stand on the earlier bill too, and what was billed for them."""
    owner = shared.earlier.issuer or shared.earlier.label or "issuer unknown"
    count = format_count(shared.rows, "charge")
    return f"{count}, {_format_billed(shared.billed)} billed, on {shared.earlier.id} ({owner}) too"


def shared_charges_error(duplicates: Iterable[SharedCharges]) -> InvalidInputError:
    """Return the error for charges that would count twice."""
    problems = []
    for shared in duplicates:
        owner = shared.later.issuer or shared.later.label
        what = f"has {describe_shared(shared)}: resource, time, meter and amount are the same"
        remedy = (
            f"where the issuer or account was renamed, `stepfare bills remove {shared.earlier.id} --reason WHY` comes "
            f"first; where both count, {_allowing(shared.issuers)}"
        )
        problems.append(Problem(f"the bill of {owner}", "", what, remedy))
    return InvalidInputError(problems)


def find_shared_charges(
    standing: Mapping[Path, ImportedBill], new: Mapping[Path, ImportedBill], allowed: Collection[str] = ()
) -> tuple[SharedCharges, ...]:
    """Return the charges that a new bill shares with one that stands, or with another new one.

    Each bill is given by the path of its rows. Charges of nothing are left out, and pairs whose issuers are all
    ``allowed``.
    """
    near = {
        path: bill
        for path, bill in standing.items()
        if any(bill.key != each.key and bill.may_share_period(each) for each in new.values())
    }
    bills, first_new = [*near.values(), *new.values()], len(near)
    if len(bills) < 2:
        return ()
    rows = " UNION ALL ".join(
        f"SELECT {number} AS bill, hash({', '.join(_CHARGE)}) AS charge, ResourceId IS NOT NULL AS named, "
        f"coalesce(BillingCurrency, '') AS currency, coalesce(BilledCost, 0)::DECIMAL(24, 6) AS billed "
        f"FROM {parquet_relation([path])} WHERE coalesce(BilledCost, 0) <> 0 OR coalesce(EffectiveCost, 0) <> 0"
        for number, path in enumerate([*near, *new])
    )
    query = (
        f"WITH charges AS (SELECT *, count(*)::INTEGER AS n FROM ({rows}) GROUP BY ALL) "
        "SELECT a.bill, b.bill, a.currency, sum(least(a.n, b.n)), sum(least(a.n, b.n)) FILTER (a.named), "
        "sum(least(a.n, b.n) * a.billed) FROM charges a JOIN charges b USING (charge, currency) "
        f"WHERE a.bill < b.bill AND b.bill >= {first_new} GROUP BY ALL ORDER BY ALL"
    )
    with connect() as connection:
        pairs = connection.execute(query).fetchall()
    found: dict[tuple[int, int], tuple[int, int, dict[str, Decimal]]] = {}
    for one, other, currency, count, named, billed in pairs:
        before, named_before, sums = found.get((one, other), (0, 0, {}))
        found[one, other] = (before + int(count), named_before + int(named or 0), {**sums, currency: billed})
    shared = (
        SharedCharges(bills[one], bills[other], count, sums)
        for (one, other), (count, named, sums) in found.items()
        if named or count >= _LEAST_WITHOUT_RESOURCE * min(bills[one].rows, bills[other].rows)
    )
    return tuple(each for each in shared if not each.issuers <= set(allowed))


def have_same_rows(first: Path, second: Path) -> bool:
    """Return whether two bills have the same rows, in any order; a column that only one of them has may be empty."""
    first_rows, second_rows = parquet_relation([first]), parquet_relation([second])
    sides = f"SELECT *, 1 AS side FROM {first_rows} UNION ALL BY NAME SELECT *, -1 AS side FROM {second_rows}"
    balance = f"SELECT * EXCLUDE (side), sum(side) AS rest FROM ({sides}) GROUP BY ALL"
    with connect() as connection:
        return connection.execute(f"SELECT 1 FROM ({balance}) WHERE rest <> 0 LIMIT 1").fetchone() is None


def count_same_lines(first: Path, second: Path) -> int:
    """Return how many lines of the first bill the second has too, whatever they cost there."""
    counts = [
        f"SELECT hash({', '.join(_LINE)}) AS line, count(*) AS n FROM {parquet_relation([path])} GROUP BY line"
        for path in (first, second)
    ]
    with connect() as connection:
        query = f"SELECT sum(least(a.n, b.n)) FROM ({counts[0]}) a JOIN ({counts[1]}) b USING (line)"
        (shared,) = connection.execute(query).fetchone() or (None,)
    return int(shared or 0)


def count_whole_rows(first: Path, second: Path) -> int:
    """Return how many rows of the second bill stand in the first, cell for cell."""
    sides = " UNION ALL BY NAME ".join(
        f"SELECT *, {number} AS side FROM {parquet_relation([path])}" for number, path in enumerate((first, second))
    )
    rows = f"SELECT * EXCLUDE (side), sum(side) AS n, count(*) AS total FROM ({sides}) GROUP BY ALL"
    with connect() as connection:
        (shared,) = connection.execute(f"SELECT sum(n) FROM ({rows}) WHERE n > 0 AND total > n").fetchone() or (None,)
    return int(shared or 0)


def _hashes_of(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> NDArray[np.uint64]:
    connection.register("some_rows", rows)
    found: dict[str, Any] = connection.execute("SELECT hash(some_rows) AS h FROM some_rows").fetchnumpy()
    connection.unregister("some_rows")
    return np.asarray(found["h"], dtype=np.uint64)


def _digest(row: dict[str, Any]) -> bytes:
    return hashlib.blake2b(repr(sorted(row.items())).encode("utf-8", "surrogatepass"), digest_size=16).digest()
