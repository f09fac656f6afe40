"""What nobody caused, shared over groups, and amounts split by weights: parts worked out by hand."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest

from router.showback.apportion import exact_sum, split_amount
from router.showback.shared_costs import (
    Group,
    SharedCosts,
    SharePortion,
    SharingMethod,
    share_costs,
)

SPEECH, VISION, SEARCH = ("speech", "asr"), ("vision", "detect"), ("search", "ranking")
AMOUNTS: dict[Group, Decimal] = {SPEECH: Decimal(60), VISION: Decimal(30), SEARCH: Decimal(10)}


def own_line(amount: Decimal, why: str, ratio: Fraction = Fraction(1)) -> SharePortion:
    """Return the portion of the idle pot that its owner keeps."""
    return SharePortion("idle", amount, ratio, SharingMethod.NONE, why)


def shared(
    method: SharingMethod,
    pots: dict[str, str],
    amounts: dict[Group, Decimal] = AMOUNTS,
    fixed: dict[Group, Decimal] | None = None,
    without: frozenset[Group] = frozenset(),
) -> SharedCosts:
    found = {name: Decimal(amount) for name, amount in pots.items()}
    total = sum((*amounts.values(), *found.values()), Decimal(0))
    return share_costs(amounts, found, method, total=total, fixed=fixed, without=without)


def after(found: SharedCosts) -> dict[Group, Decimal]:
    return {row.group: row.after for row in found.rows}


def test_none_leaves_it_on_its_own_line() -> None:
    found = shared(SharingMethod.NONE, {"idle": "50"})
    assert after(found) == AMOUNTS
    assert found.kept == (own_line(Decimal(50), "not shared"),)


def test_weighted_goes_by_what_each_cost() -> None:
    found = shared(SharingMethod.WEIGHTED, {"idle": "50", "support": "10"})
    assert after(found) == {SPEECH: 96, VISION: 48, SEARCH: 16}
    speech = next(row for row in found.rows if row.group == SPEECH)
    assert speech.before == 60
    assert speech.received == (
        SharePortion("idle", Decimal(30), Fraction(3, 5), SharingMethod.WEIGHTED),
        SharePortion("support", Decimal(6), Fraction(3, 5), SharingMethod.WEIGHTED),
    )
    assert found.kept == ()


def test_even_and_the_last_nano_dollar() -> None:
    found = shared(SharingMethod.EVEN, {"idle": "0.000000002"})
    assert sorted(row.shared for row in found.rows) == [0, Decimal("1e-9"), Decimal("1e-9")]
    assert exact_sum([*after(found).values(), *(each.amount for each in found.kept)]) == Decimal("100.000000002")


def test_fixed_leaves_its_rest_and_finds_who_cost_nothing() -> None:
    other = ("platform", "tools")
    found = shared(SharingMethod.FIXED, {"idle": "50"}, fixed={SPEECH: Decimal("0.5"), other: Decimal("0.25")})
    assert after(found) == {**AMOUNTS, SPEECH: Decimal(85), other: Decimal("12.5")}
    assert found.kept == (own_line(Decimal("12.5"), "left by the fixed shares", Fraction(1, 4)),)
    assert next(row for row in found.rows if row.group == other).before == 0


@pytest.mark.parametrize("method", [SharingMethod.WEIGHTED, SharingMethod.EVEN])
def test_where_nobody_is_it_stays(method: SharingMethod) -> None:
    """OpenCost #883 and #3823: idle cost that vanished, or was 0, where there was nothing to weigh it by."""
    found = shared(method, {"idle": "50"}, amounts={})
    assert (found.rows, found.kept) == (
        (),
        (own_line(Decimal(50), "there is no group to share it with"),),
    )
    barred = shared(method, {"idle": "50"}, amounts={SPEECH: Decimal(5)}, without=frozenset({SPEECH}))
    assert barred.kept == (own_line(Decimal(50), "there is no group to share it with"),)
    assert after(barred) == {SPEECH: Decimal(5)}


def test_groups_that_cost_nothing_share_evenly_and_it_says_so() -> None:
    found = shared(SharingMethod.WEIGHTED, {"idle": "50"}, amounts={SPEECH: Decimal(0), VISION: Decimal(0)})
    assert after(found) == {SPEECH: 25, VISION: 25}
    assert {(got.method, got.why) for row in found.rows for got in row.received} == {
        (SharingMethod.EVEN, "no group cost anything: even")
    }


def test_a_group_with_credit_gets_nothing_and_gives_nothing() -> None:
    """Kubecost #168: a negative weight made shares of other groups negative, or more than the whole."""
    found = shared(SharingMethod.WEIGHTED, {"idle": "50"}, amounts={SPEECH: Decimal(75), VISION: Decimal(-25)})
    assert after(found) == {SPEECH: Decimal(125), VISION: Decimal(-25)}


def test_a_pot_below_zero_is_shared_too() -> None:
    found = shared(SharingMethod.WEIGHTED, {"credit": "-50"})
    assert after(found) == {SPEECH: 30, VISION: 15, SEARCH: 5}


def test_filtering_comes_after() -> None:
    """OpenCost #1124: filtered first, the one group that is left gets all that is idle."""
    found = shared(SharingMethod.WEIGHTED, {"idle": "50"})
    (speech,) = (row for row in found.rows if row.group == SPEECH)
    assert (speech.shared, speech.after) == (Decimal(30), Decimal(90))
    with pytest.raises(ValueError, match="filter what comes out"):
        share_costs({SPEECH: Decimal(60)}, {"idle": Decimal(50)}, SharingMethod.WEIGHTED, total=Decimal(150))


@pytest.mark.parametrize(
    ("method", "fixed", "without", "why"),
    [
        (SharingMethod.FIXED, None, frozenset(), "fixed shares are for the method fixed"),
        (SharingMethod.EVEN, {SPEECH: Decimal(1)}, frozenset(), "fixed shares are for the method fixed"),
        (SharingMethod.FIXED, {SPEECH: Decimal("0.7"), VISION: Decimal("0.4")}, frozenset(), "not above 1 together"),
        (SharingMethod.FIXED, {SPEECH: Decimal("-0.1")}, frozenset(), "not below 0"),
        (SharingMethod.FIXED, {SPEECH: Decimal("0.1")}, frozenset({SPEECH}), "takes no part"),
    ],
)
def test_refused(
    method: SharingMethod, fixed: dict[Group, Decimal] | None, without: frozenset[Group], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        shared(method, {"idle": "50"}, fixed=fixed, without=without)


def amounts(*texts: str) -> tuple[Decimal, ...]:
    return tuple(Decimal(text) for text in texts)


@pytest.mark.parametrize(
    ("total", "weights", "places", "parts"),
    [
        ("100", [1, 1, 1], 2, ("33.34", "33.33", "33.33")),
        ("-100", [1, 1, 1], 2, ("-33.34", "-33.33", "-33.33")),
        ("0.02", [1, 1, 1], 2, ("0.01", "0.01", "0")),
        ("0.05", [1, 2, 1], 2, ("0.01", "0.03", "0.01")),  # 0.0125, 0.025, 0.0125
        ("10", [0, 1, 3], 1, ("0", "2.5", "7.5")),
        ("7", [0, 0], 0, ("4", "3")),  # nobody weighs anything: even, and nothing is dropped
        ("1.2345", [1, 1], 2, ("0.6173", "0.6172")),  # at the scale of the total, where that is finer
        ("0", [5, 1], 2, ("0", "0")),
        ("8", [Fraction(1, 3), Decimal("0.5")], 1, ("3.2", "4.8")),
    ],
)
def test_parts(total: str, weights: list[int | Fraction | Decimal], places: int, parts: tuple[str, ...]) -> None:
    found = split_amount(Decimal(total), weights, places)
    assert found == amounts(*parts)
    assert sum(found) == Decimal(total)


@pytest.mark.parametrize("weights", [[], [1, -1], [Decimal("-0.1")]])
def test_weights_that_are_none(weights: list[int | Decimal]) -> None:
    with pytest.raises(ValueError, match="none of them below zero"):
        split_amount(Decimal(1), weights, 2)


def test_many_digits_are_not_cut() -> None:
    # The usual context of decimals keeps 28.
    total = Decimal("12345678901234.123456789012345678901234")
    one, other = split_amount(total, [1, 1], 2)
    assert Fraction(one) + Fraction(other) == Fraction(total)
    assert one - other <= Decimal("1e-24")
