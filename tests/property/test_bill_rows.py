"""Whole rows that stand twice, and bills with the same rows, against counting them by hand."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.showback.duplicates import have_same_rows, row_hashes

SCHEMA = pa.schema(
    [("BillingCurrency", pa.string()), ("BilledCost", pa.decimal128(38, 24)), ("InvoiceIssuerName", pa.string())]
)
Row = tuple[str | None, Decimal | None, str | None]
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["USD", "EUR", None]),
        st.sampled_from([Decimal(0), Decimal("1.5"), Decimal("-1.5"), None]),
        st.sampled_from(["a", "", "NULL", None]),
    ),
    max_size=12,
)


def table(rows: list[Row]) -> pa.Table:
    return pa.table([pa.array([row[n] for row in rows], field.type) for n, field in enumerate(SCHEMA)], schema=SCHEMA)


@pytest.mark.slow
@given(ROWS, st.integers(1, 5))
def test_rows_that_stand_twice(rows: list[Row], size: int) -> None:
    parts = [rows[n : n + size] for n in range(0, len(rows), size)]
    with row_hashes() as hashes:
        for part in parts:
            hashes.add(table(part))
        places = iter(range(1, len(rows) + 1))
        found = hashes.find((table(part), [f"f:{next(places)}" for _ in part]) for part in parts)
    extra = {row: count - 1 for row, count in Counter(rows).items() if count > 1}
    if not extra:
        assert found is None
        return
    assert found is not None
    assert found.rows == sum(extra.values())
    billed = Counter[str]()
    for (currency, cost, _), count in extra.items():
        billed[currency or ""] += (cost or Decimal(0)) * count  # type: ignore[assignment]
    assert found.billed == dict(billed)
    assert found.issuers == {issuer or "" for _, _, issuer in extra}
    for place, before in found.places:
        assert rows[int(place[2:]) - 1] == rows[int(before[2:]) - 1]
        assert int(before[2:]) < int(place[2:])


@pytest.mark.slow
@settings(max_examples=30)
@given(ROWS, ROWS, st.randoms(use_true_random=False))
def test_bills_with_the_same_rows(one: list[Row], other: list[Row], random: object) -> None:
    shuffled = list(one)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    with TemporaryDirectory() as folder:
        first, second, third = (Path(folder) / name for name in ("1.parquet", "2.parquet", "3.parquet"))
        pq.write_table(table(one), first)
        pq.write_table(table(shuffled).append_column("x_empty", pa.nulls(len(one), pa.string())), second)
        pq.write_table(table(other), third)
        assert have_same_rows(first, second)
        assert have_same_rows(first, third) is (Counter(one) == Counter(other))
