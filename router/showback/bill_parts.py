"""Write the rows of a delivery to Parquet, a file for each bill, with exact sums."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pricing.atomic_file import sync_stream
from pricing.problems import InvalidInputError
from router.showback.focus.arrow_types import MONEY_PLACES
from router.showback.focus.columns import COSTS
from router.showback.focus.texts import moment_text

# The most issuers, accounts and periods in one delivery; each is an open file.
MOST_BILLS = 300
_ROWS_AT_ONCE = 65_536
_WIDE = Context(prec=200)
# A sum of a batch must not overflow where a single amount may fill 38 digits.
_SUMMED = pa.decimal256(70, MONEY_PLACES)
_KEY = ("InvoiceIssuerName", "BillingAccountId", "BillingPeriodStart", "BillingPeriodEnd")


@dataclass(frozen=True, slots=True)
class BillOwner:
    """The bill that a row is on; ``label`` is the file's name where issuer or account are unknown, else empty."""

    issuer: str | None
    account: str | None
    start: datetime | None
    end: datetime | None
    label: str


@dataclass(slots=True)
class BillPart:
    """A bill while it is being written."""

    file: str
    rows: int = 0
    sums: dict[str, dict[str, Decimal | None]] = field(default_factory=dict)
    through: datetime | None = None
    waiting: list[pa.Table] = field(default_factory=list)
    stream: Any = None
    writer: pq.ParquetWriter | None = None


class BillPartWriter:
    """Write ``<stem>-<n>.parquet`` files to ``folder``, all with one schema.

    A context manager: its files are closed at its end, and complete when :meth:`finish` was called.
    """

    def __init__(self, folder: Path, stem: str, schema: pa.Schema) -> None:
        self.parts: dict[BillOwner, BillPart] = {}
        self._folder, self._stem, self._schema, self._waiting = folder, stem, schema, 0

    def add(self, table: pa.Table, name: str) -> None:
        """Add rows of the file ``name``. InvalidInputError for more bills than one delivery may hold."""
        identities = table.select(_KEY).group_by(list(_KEY)).aggregate([]).to_pylist()
        for identity in identities:
            values = [identity[column] for column in _KEY]
            rows = table if len(identities) == 1 else table.filter(_mask_of_bill(table, values))
            issuer, account, start, end = values
            owner = BillOwner(issuer, account, start, end, "" if issuer is not None and account is not None else name)
            self._take(self._part(owner, name), rows)
        if self._waiting >= _ROWS_AT_ONCE:
            self._flush()

    def _part(self, owner: BillOwner, name: str) -> BillPart:
        part = self.parts.get(owner)
        if part is None:
            if len(self.parts) == MOST_BILLS:
                what = f"holds more than {MOST_BILLS} bills (issuers, accounts and periods)"
                raise InvalidInputError.single(what, where=name, remedy="import it in parts")
            part = self.parts[owner] = BillPart(f"{self._stem}-{len(self.parts) + 1}.parquet")
        return part

    def _take(self, part: BillPart, rows: pa.Table) -> None:
        part.rows += rows.num_rows
        part.waiting.append(rows)
        self._waiting += rows.num_rows
        currencies = rows["BillingCurrency"].combine_chunks()
        for currency in pc.unique(currencies).to_pylist():
            mask = pc.is_null(currencies) if currency is None else pc.equal(currencies, currency)
            costs = rows.select(COSTS).filter(mask)
            sums = part.sums.setdefault(currency or "", dict.fromkeys(COSTS))
            for column in COSTS:
                more, before = pc.sum(costs[column].cast(_SUMMED)).as_py(), sums[column]
                if more is not None:  # An unknown sum is not zero.
                    sums[column] = more if before is None else _WIDE.add(before, more)
        used = pc.max(rows["ChargePeriodEnd"].filter(pc.equal(rows["ChargeCategory"], "Usage"))).as_py()
        if used is not None:
            part.through = used if part.through is None else max(part.through, used)

    def _flush(self) -> None:
        for part in self.parts.values():
            if part.waiting:
                if part.writer is None:
                    part.stream = (self._folder / part.file).open("wb")
                    part.writer = pq.ParquetWriter(part.stream, self._schema, compression="zstd")
                part.writer.write_table(pa.concat_tables(part.waiting))
                part.waiting = []
        self._waiting = 0

    def finish(self) -> None:
        """Complete every file and sync it to the disk."""
        self._flush()
        for part in self.parts.values():
            if part.writer is not None:
                part.writer.close()
                sync_stream(part.stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for part in self.parts.values():
            if part.writer is not None:
                with suppress(OSError, pa.ArrowException):  # The failure that led here is the one to report.
                    part.writer.close()
                part.stream.close()


def _mask_of_bill(table: pa.Table, values: list[Any]) -> Any:
    mask = None
    for column, value in zip(_KEY, values, strict=True):
        equal = (
            pc.is_null(table[column])
            if value is None
            else pc.equal(table[column], pa.scalar(value, table[column].type))
        )
        equal = pc.fill_null(equal, fill_value=False)
        mask = equal if mask is None else pc.and_(mask, equal)
    return mask


def period_text(moment: datetime | None) -> str | None:
    """Return the moment as FOCUS writes it; None for None."""
    return None if moment is None else moment_text(moment)
