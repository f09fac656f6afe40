"""Sum commitments over their whole term, and sets of charges with both purchases and what they cover. Pure.

FOCUS 1.4, EffectiveCost: a purchase that covers other charges costs 0 when it is accrued, and what it covers costs,
used or not, what was billed for it. Over the whole term both are the same sum; in a part of it they are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from router.showback.apportion import exact_sum
from router.showback.focus.charge import Charge


@dataclass(frozen=True, slots=True)
class CommitmentSums:
    """The sums of one commitment discount.

    ``bought`` is what its purchases were billed; ``used`` and ``unused`` are what its usage cost, by status.
    """

    bought: Decimal
    used: Decimal
    unused: Decimal

    @property
    def holds(self) -> bool:
        """True if what was bought is the sum of used and unused, as over a whole term."""
        return self.bought == exact_sum([self.used, self.unused])


def sum_commitments(charges: Iterable[Charge]) -> dict[tuple[str, str], CommitmentSums]:
    """Return the sums by CommitmentDiscountId and currency, in order."""
    sums: dict[tuple[str, str], dict[str, list[Decimal]]] = {}
    for charge in charges:
        name, status = charge.commitment_discount_id, charge.commitment_discount_status
        if name is None:
            continue
        parts = sums.setdefault((name, charge.billing_currency), {"bought": [], "Used": [], "Unused": []})
        if charge.charge_category == "Purchase":
            parts["bought"].append(charge.billed_cost)
        elif charge.charge_category == "Usage" and status in parts:
            parts[str(status)].append(charge.effective_cost)
    return {
        key: CommitmentSums(*(exact_sum(parts[name]) for name in ("bought", "Used", "Unused")))
        for key, parts in sorted(sums.items())
    }


def sum_closed_set(charges: Iterable[Charge]) -> dict[str, tuple[Decimal, Decimal]]:
    """Return billed and effective cost by currency.

    The two are the same where all purchases are there with all that they cover.
    """
    sums: dict[str, tuple[list[Decimal], list[Decimal]]] = {}
    for charge in charges:
        billed, effective = sums.setdefault(charge.billing_currency, ([], []))
        billed.append(charge.billed_cost)
        effective.append(charge.effective_cost)
    return {name: (exact_sum(billed), exact_sum(effective)) for name, (billed, effective) in sorted(sums.items())}
