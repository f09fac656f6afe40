"""Rules 4 and 7 of a ledger: parts add up to the whole, and costs by group to the total."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from router.showback.apportion import decimal_places, exact_sum, split_amount
from router.showback.shared_costs import Group, SharedCosts, SharingMethod, share_costs

FEW = settings(max_examples=150, deadline=None)
AMOUNT = st.builds(
    lambda units, places: Decimal(f"{units}E-{places}"), st.integers(-(10**31), 10**31), st.integers(0, 24)
)
WEIGHT = st.one_of(st.integers(0, 10**9), AMOUNT.map(Decimal.copy_abs), st.fractions(0, 10**6))
WEIGHTS = st.lists(WEIGHT, min_size=1, max_size=9)
WORD = st.sampled_from(["a", "b", "c", "=d"])
GROUPS = st.dictionaries(st.tuples(WORD, WORD), AMOUNT, max_size=8)
POTS = st.dictionaries(st.sampled_from(["idle", "support", "tax"]), AMOUNT, max_size=3)
METHODS = st.sampled_from([SharingMethod.NONE, SharingMethod.WEIGHTED, SharingMethod.EVEN])


def total_of(shared: SharedCosts) -> Decimal:
    return exact_sum([*(row.after for row in shared.rows), *(each.amount for each in shared.kept)])


@FEW
@given(AMOUNT, WEIGHTS, st.integers(0, 12))
def test_parts_are_the_whole(total: Decimal, weights: list[int | Decimal | Fraction], places: int) -> None:
    parts = split_amount(total, weights, places)
    assert exact_sum(parts) == total
    whole = sum(Fraction(weight) for weight in weights)
    digit = Fraction(1, 10 ** max(places, decimal_places(total)))
    for part, weight in zip(parts, weights, strict=True):
        share_of_it = Fraction(weight) / whole if whole else Fraction(1, len(weights))
        assert abs(Fraction(part) - Fraction(total) * share_of_it) < digit
        assert part == 0 or (part < 0) == (total < 0)
    assert split_amount(total.copy_negate(), weights, places) == tuple(part.copy_negate() for part in parts)


@FEW
@given(GROUPS, POTS, METHODS)
def test_nothing_is_lost(amounts: dict[Group, Decimal], pots: dict[str, Decimal], method: SharingMethod) -> None:
    total = exact_sum([*amounts.values(), *pots.values()])
    found = share_costs(amounts, pots, method, total=total)
    assert total_of(found) == total
    for pot, amount in pots.items():
        got = [each.amount for row in found.rows for each in row.received if each.pot == pot]
        assert exact_sum([*got, *(each.amount for each in found.kept if each.pot == pot)]) == amount
    assert {row.group: row.before for row in found.rows} == amounts


@FEW
@given(GROUPS, AMOUNT, st.lists(st.integers(0, 100), min_size=1, max_size=5))
def test_fixed_shares_and_what_they_leave(amounts: dict[Group, Decimal], pot: Decimal, parts: list[int]) -> None:
    whole = sum(parts) + 7
    digit = Decimal("1e-6")
    fixed: dict[Group, Decimal] = {
        (f"team {at}", ""): Decimal(part) / whole // digit * digit for at, part in enumerate(parts)
    }
    total = exact_sum([*amounts.values(), pot])
    found = share_costs(amounts, {"idle": pot}, SharingMethod.FIXED, total=total, fixed=fixed)
    assert total_of(found) == total
