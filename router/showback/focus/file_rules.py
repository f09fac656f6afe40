"""Check rules about several rows of a file: no row overlaps another, the parts of a split charge are the whole. Pure.

Both keep a few numbers for each row that they check (44 bytes; a group of parts about a kilobyte), not the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from router.showback.focus.batches import Batch
from router.showback.focus.rules import FocusFinding, quote_cell
from router.showback.focus.texts import read_json
from router.showback.focus.typed_rows import TypedBatch, true_indices

if TYPE_CHECKING:
    import pandas as pd

# One resource may be billed for one moment by several meters, at several prices, and partly by a commitment.
_METER = (
    "ServiceProviderName",
    "SubAccountId",
    "ResourceId",
    "SkuId",
    "SkuMeter",
    "SkuPriceId",
    "PricingCategory",
    "PricingUnit",
    "CommitmentDiscountId",
    "CommitmentDiscountStatus",
    "CapacityReservationId",
    "CapacityReservationStatus",
)
_ORIGIN = (
    "BillingAccountId",
    "SubAccountId",
    "ResourceId",
    "SkuPriceId",
    "ChargeCategory",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "PricingCategory",
    "CommitmentDiscountId",
    "CommitmentDiscountStatus",
    "AllocatedMethodId",
)

_BY_TIME = "(?i)(second|minute|hour|day|week|month|year)s?$"


class OverlapCheck:
    """Find usage of one resource, on one meter and price, that is billed twice for a moment.

    Only usage metered by time is checked: two transfers may well run at once.
    """

    def __init__(self) -> None:
        self._seen: list[pd.DataFrame] = []

    def add(self, batch: Batch, rows: TypedBatch) -> None:
        """Add the rows of a batch. Corrections and parts of a split charge may share a moment."""
        start, end = rows.column("ChargePeriodStart"), rows.column("ChargePeriodEnd")
        metered = pc.and_(pc.equal(rows.column("ChargeCategory"), "Usage"), pc.less(start, end))
        for name in ("ChargeClass", "AllocatedMethodId", "x_SplitOriginId"):
            metered = pc.and_(metered, pc.is_null(rows.column(name)))
        by_time = pc.match_substring_regex(rows.column("PricingUnit"), _BY_TIME)
        metered = pc.and_(metered, pc.fill_null(by_time, True))
        at = true_indices(pc.and_(metered, rows.column("ResourceId").is_valid()))
        if not len(at):
            return
        where = pa.array(at)
        parts = [rows.column(name).take(where) for name in _METER]
        keys = pc.binary_join_element_wise(*parts, "\x1f", null_handling="replace", null_replacement="\x00")
        lines = np.zeros(len(at), np.int64) if batch.lines is None else np.asarray(batch.lines, np.int64)[at]
        # pandas takes a second to import: commands that check no file do not wait for it.
        import pandas as pd

        self._seen.append(
            pd.DataFrame(
                {
                    "key": pd.util.hash_array(keys.to_numpy(zero_copy_only=False), categorize=False),
                    "start": start.take(where).cast(pa.int64()).to_numpy(),
                    "end": end.take(where).cast(pa.int64()).to_numpy(),
                    "row": batch.first + at,
                    "line": lines,
                }
            )
        )

    def findings(self) -> Iterator[FocusFinding]:
        """Yield a finding for each row that begins before an earlier one of its meter has ended."""
        import pandas as pd

        if not self._seen:
            return
        usage = pd.concat(self._seen).sort_values(["key", "start", "row"], ignore_index=True)
        longest = usage.groupby("key")["end"].cummax()
        blocking_row = usage["row"].where(usage["end"] == longest).ffill().shift()
        end_before = longest.shift().where(usage["key"] == usage["key"].shift())
        overlapping = usage.assign(other=blocking_row)[usage["start"] < end_before].sort_values("row")
        for row, line, other in zip(overlapping["row"], overlapping["line"], overlapping["other"], strict=True):
            yield FocusFinding("overlap", "ResourceId", int(row), int(line) or None, f"row {int(other)}")


_WIDE = Context(prec=100)


@dataclass(slots=True)
class _Split:
    name: str
    row: int
    line: int | None
    ratio: Decimal = Decimal(0)
    cost: Decimal = Decimal(0)
    origin: Decimal | None = None
    whole: bool = True


class SplitCheck:
    """Sum the ratios and the costs of split charges, by what they were split from.

    That is x_SplitOriginId or, where a file has none, what the parts share.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[Any, ...], _Split] = {}

    def add(self, batch: Batch, rows: TypedBatch) -> None:
        """Add the parts among the rows of a batch; corrections, which have ratios of their own, are left out."""
        part = pc.and_(rows.column("AllocatedMethodId").is_valid(), pc.is_null(rows.column("ChargeClass")))
        at = true_indices(part)
        if not len(at):
            return
        where = pa.array(at)
        keys = [rows.column(name).take(where).to_pylist() for name in _ORIGIN]
        names, ratios, costs, origins = (
            rows.column(name).take(where).to_pylist()
            for name in ("x_SplitOriginId", "AllocatedMethodDetails", "BilledCost", "x_SplitOriginCost")
        )
        for i, index in enumerate(at.tolist()):
            key = (names[i],) if names[i] is not None else tuple(column[i] for column in keys)
            group = self._groups.get(key)
            if group is None:
                line = None if batch.lines is None else batch.lines[index]
                resource = keys[_ORIGIN.index("ResourceId")][i]
                group = self._groups[key] = _Split(quote_cell(names[i] or resource or ""), batch.first + index, line)
            ratio = _ratio(ratios[i])
            group.whole = group.whole and ratio is not None and costs[i] is not None
            # The usual context of decimals keeps 28 digits, of which 24 are behind the point.
            group.ratio = _WIDE.add(group.ratio, ratio or 0)
            group.cost = _WIDE.add(group.cost, costs[i] or 0)
            group.origin = origins[i] if group.origin is None else group.origin

    def findings(self) -> Iterator[FocusFinding]:
        """Yield a finding at the first part of each charge whose parts are not the whole.

        Where a part is incomplete, another rule reports it.
        """
        for group in self._groups.values():
            if group.whole and group.ratio != 1:
                yield FocusFinding("split-ratio", "AllocatedMethodDetails", group.row, group.line, group.name)
            if group.whole and group.origin is not None and group.cost != group.origin:
                yield FocusFinding("split-sum", "BilledCost", group.row, group.line, group.name)


def _ratio(text: str | None) -> Decimal | None:
    """Return the sum of the ratios of a part; None where it names none."""
    try:
        elements = read_json(text or "").get("Elements")
        return sum((Decimal(each["AllocatedRatio"]) for each in elements or ()), Decimal(0)) if elements else None
    except (ValueError, TypeError, KeyError, ArithmeticError, AttributeError):
        return None
