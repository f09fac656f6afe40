"""Sums over the ledger are exact, whatever they are grouped by."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pricing.money import Usd
from router.ledger.entry import LedgerEntryKind
from router.ledger.totals import GROUPS, Total, totals
from tests.support.state_values import entries, entry


def test_planned_and_metered_apart_by_team_and_project() -> None:
    lines = [
        entry("1", usd=Usd(5), quantity=Fraction(1, 3)),
        entry("2", usd=Usd(7), quantity=Fraction(2, 3), project="vision"),
        entry(
            "3", kind=LedgerEntryKind.PLANNED, attempt="", rank=None, machines=4, usd=Usd(11), quantity=Fraction(1, 2)
        ),
        entry("4", team="ops", usd=Usd(13)),
    ]
    by_team = totals(lines, ["team", "project"])
    assert list(by_team) == [("ops", None), ("research", None), ("research", "vision")]
    assert by_team["ops", None] == Total(metered=Usd(13), metered_hours=Fraction(1), entries=1)
    assert by_team["research", None] == Total(Usd(11), Usd(5), Fraction(2), Fraction(1, 3), 2)
    assert totals(lines) == {(): Total(Usd(11), Usd(25), Fraction(2), Fraction(2), 4)}
    assert list(totals(lines, ["market"])) == [("spot",)]


def test_of_nothing() -> None:
    assert totals([]) == {(): Total()}
    assert totals([], ["team"]) == {}


def test_a_name_that_is_none() -> None:
    with pytest.raises(ValueError, match="no colour; they have team"):
        totals([], ["team", "colour"])


@given(st.lists(entries(st.uuids().map(str)), max_size=6), st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3))
def test_the_parts_add_up_to_the_whole(lines: list[Any], by: list[str]) -> None:
    parts, whole = totals(lines, by).values(), totals(lines)[()]
    assert Usd.total(part.planned for part in parts) == whole.planned
    assert Usd.total(part.metered for part in parts) == whole.metered
    assert sum((part.planned_hours for part in parts), Fraction(0)) == whole.planned_hours
    assert sum((part.metered_hours for part in parts), Fraction(0)) == whole.metered_hours
    assert sum(part.entries for part in parts) == len(lines)
