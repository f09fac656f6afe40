"""Entries as rows, and the chain of their hashes: what was changed, removed, added between or put elsewhere shows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import Usd
from router.ledger.entry import LedgerEntryKind
from router.ledger.month import Month
from router.state.ledger_rows import (
    BEGINNING,
    NAMES,
    Row,
    RowChain,
    chain_rows,
    entry_values,
    event_values,
    hash_row,
    parse_entry,
)
from tests.support.state_values import HOUR, NOW, entries, entry

_LISTS = st.lists(entries(st.uuids().map(str)), min_size=1, max_size=5)


def chained(given_entries: list[Any]) -> list[Row]:
    return list(chain_rows([entry_values(one) for one in given_entries], 0, BEGINNING))


def broken(rows: list[Row]) -> int | None:
    chain = RowChain()
    for row in rows:
        chain.row(row)
    return chain.broken


@pytest.mark.slow
@given(_LISTS)
def test_rows_bring_their_entries_back_and_hold_together(given_entries: list[Any]) -> None:
    rows = chained(given_entries)
    assert [parse_entry(row[1:-2]) for row in rows] == given_entries
    assert broken(rows) is None
    assert all(value is None or type(value) in (str, int) for row in rows for value in row)


@pytest.mark.slow
@given(_LISTS, st.data())
def test_any_change_of_any_value_shows(given_entries: list[Any], data: st.DataObject) -> None:
    rows = chained(given_entries)
    at = data.draw(st.integers(0, len(rows) - 1))
    place = data.draw(st.integers(0, len(rows[at]) - 1))
    before = rows[at][place]
    other = data.draw(st.integers(1, 1 << 62) if isinstance(before, int) else st.text(min_size=1))
    if other == before:
        return
    rows[at] = (*rows[at][:place], other, *rows[at][place + 1 :])
    assert broken(rows) is not None


@given(_LISTS, st.data())
def test_a_row_that_is_missing_or_elsewhere_shows(given_entries: list[Any], data: st.DataObject) -> None:
    rows = chained(given_entries)
    at = data.draw(st.integers(0, len(rows) - 1))
    without = rows[:at] + rows[at + 1 :]
    assert (broken(without) is None) is (at == len(rows) - 1)
    if len(rows) > 1:
        assert broken(rows[::-1]) == len(rows)


def test_rows_that_were_archived_are_followed_by_their_hashes() -> None:
    rows = chained([entry(f"k{number}") for number in range(4)])
    chain = RowChain()
    for row in rows:
        chain.archived(row[0], row[-2], row[-1]) if row[0] in (2, 3) else chain.row(row)
    assert (chain.broken, chain.seq, chain.hash) == (None, 4, rows[-1][-1])
    chain.archived(6, rows[-1][-1], "x")
    assert chain.broken == 6


def test_the_hash_of_an_entry_is_the_same_for_good() -> None:
    """One that was written with it would not be found as it was written any more. A column that is empty says nothing,
    so that later columns change no hash."""
    values = entry_values(entry())
    assert hash_row(1, values, BEGINNING) == "53b1f38c9c3fdde50636fec382e48e801eead830367b04145f7bfbc886f1dd98"
    said = {name for name, value in zip(NAMES, values, strict=True) if value}
    assert said == {
        "key",
        "kind",
        "what",
        "recorded_at",
        "period",
        "plan",
        "job",
        "job_digest",
        "team",
        "cost_center",
        "gang",
        "attempt",
        "cloud",
        "region",
        "instance_type",
        "market",
        "accelerator",
        "accelerators",
        "machines",
        "start_at",
        "end_at",
        "quantity",
        "unit",
        "usd_per_hour_nanos",
        "usd_nanos",
    }


def test_the_same_happening() -> None:
    one = event_values(entry_values(entry()))
    assert event_values(entry_values(entry(recorded_at=NOW + HOUR))) == one
    assert event_values(entry_values(entry(period=Month(2027, 1), corrects="2026-11"))) == one
    assert event_values(entry_values(entry(usd=Usd(1)))) != one
    fee: dict[str, Any] = {"kind": LedgerEntryKind.FEE, "reason": "r"}
    by_anna = event_values(entry_values(entry(who="anna", **fee)))
    assert event_values(entry_values(entry(who="bob", **fee))) == by_anna
    assert event_values(entry_values(entry(who="bob", period=Month(2027, 1), corrects="2026-11", **fee))) != by_anna


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"usd": Usd(1 << 63)}, ValueError, "nine billion"),
        ({"steps": 1 << 63}, ValueError, "64 bits"),
        ({"steps": 0.5}, TypeError, "no whole number"),
        ({"team": 7}, TypeError, "no text"),
    ],
)
def test_what_cannot_be_kept(change: dict[str, Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        entry_values(entry(**change))
