"""Commitments over their term (rule 2) and closed sets (rule 3), on the golden month and on generated bills."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from router.showback.commitments import CommitmentSums, sum_closed_set, sum_commitments
from router.showback.focus.charge_files import read_charges
from tests.support.golden_charges import golden_charges
from tests.support.repository import ROOT

SAMPLES = sorted((ROOT.parent / "shared" / "data" / "focus-sample").glob("*_cost_and_usage_*.csv"))


def test_the_golden_commitment_is_used_up() -> None:
    assert sum_commitments(golden_charges()) == {
        ("sp-1", "USD"): CommitmentSums(Decimal(120), Decimal(90), Decimal(30))
    }
    assert sum_commitments(golden_charges())["sp-1", "USD"].holds


def test_one_that_lost_an_hour_does_not_hold() -> None:
    without = [one for one in golden_charges() if one.commitment_discount_status != "Unused"]
    found = sum_commitments(without)["sp-1", "USD"]
    assert found == CommitmentSums(Decimal(120), Decimal(90), Decimal(0))
    assert not found.holds


def test_a_closed_set_costs_what_was_billed_in_each_currency() -> None:
    assert sum_closed_set(golden_charges()) == {
        "EUR": (Decimal("215.985"), Decimal("215.985")),
        "USD": (Decimal("1162.8"), Decimal("1162.8")),
    }
    first, *rest = golden_charges()
    assert sum_closed_set([replace(first, effective_cost=Decimal(3)), *rest])["USD"] == (
        Decimal("1162.8"),
        Decimal("1163.3"),
    )


@pytest.mark.skipif(not SAMPLES, reason="the shared data are not here")
def test_generated_bills_of_three_clouds_are_closed_to_the_last_digit() -> None:
    looked_at = 0
    for path in SAMPLES:
        found = list(read_charges(path))
        assert all(billed == effective for billed, effective in sum_closed_set(found).values()), path
        by_commitment = sum_commitments(found)
        assert all(one.holds and one.unused > 0 for one in by_commitment.values()), path
        looked_at += len(by_commitment)
    assert looked_at >= 3 * len(SAMPLES)
