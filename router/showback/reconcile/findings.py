"""Find what somebody should look at: differences over a tolerance, and items without a counterpart. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final

from router.showback.apportion import exact_difference, exact_sum
from router.showback.reconcile.outcome import MatchOutcome, UnmatchedItem
from router.showback.reconcile.variance import VarianceBridge, VarianceBucket

_MONEY_ALONE: Final = frozenset({"Credit", "Tax", "Adjustment"})


class FindingKind(StrEnum):
    PLAN = "plan"
    """More or less was spent than planned; other findings report what was neither planned nor metered."""
    PRICE = "bill-price"
    """Bills charge another price for metered time than the meter computes with."""
    CURRENCY = "currency"
    """Bills are in another currency than the prices of the meter."""
    UNMATCHED = "unmatched"
    """Rows of bills that nothing metered explains."""
    UNBILLED = "unbilled"
    """Metered, not on the bill, though the bill reaches beyond it."""
    UNPRICED = "unpriced"
    """Rows whose price is unknown: they are in no sum."""


@dataclass(frozen=True, slots=True)
class ReconcileTolerance:
    """The limits of a finding: ``share`` of what was expected, and ``amount`` in its currency."""

    share: Fraction = Fraction(1, 100)
    amount: Decimal = Decimal(5)

    def exceeded(self, difference: Decimal, expected: Decimal) -> bool:
        """Return whether the difference reaches both limits."""
        size = abs(Fraction(difference))
        return size >= Fraction(self.amount) and size >= self.share * abs(Fraction(expected))


@dataclass(frozen=True, slots=True)
class ReconcileFinding:
    """One finding.

    ``where`` is the group, or the cloud and account; ``difference`` is in ``currency``, None where it is no amount.
    """

    kind: FindingKind
    where: str
    currency: str
    difference: Decimal | None
    expected: Decimal | None
    why: str


def collect_findings(
    variances: Iterable[VarianceBridge], outcome: MatchOutcome, tolerance: ReconcileTolerance
) -> tuple[ReconcileFinding, ...]:
    """Return all findings, by kind, the largest first."""
    overdue = [each for each in outcome.unbilled if each.due]
    # Credits and taxes are in a bucket of their own, and would hide what was charged behind them.
    charged = [each for each in outcome.unmatched if each.category not in _MONEY_ALONE]
    all_findings = [
        *_plan_findings(variances, tolerance),
        *_price_findings(outcome, tolerance),
        *_alone_findings(
            FindingKind.UNMATCHED, charged, tolerance, "on a bill, and nothing that was metered explains it"
        ),
        *_alone_findings(FindingKind.UNBILLED, overdue, tolerance, "metered, and on no bill of that time"),
    ]
    order = list(FindingKind)
    return tuple(
        sorted(
            all_findings, key=lambda f: (order.index(f.kind), f.currency, -abs(Fraction(f.difference or 0)), f.where)
        )
    )


def _plan_findings(variances: Iterable[VarianceBridge], tolerance: ReconcileTolerance) -> Iterator[ReconcileFinding]:
    for each in variances:
        difference = exact_difference(each.actual, each.planned)
        if (each.planned or each.metered) and tolerance.exceeded(difference, each.planned):
            yield ReconcileFinding(
                FindingKind.PLAN, _joined_words(each.group), each.currency, difference, each.planned, _largest(each)
            )
        if each.unpriced:
            why = f"{each.unpriced} without a known price, in no sum"
            yield ReconcileFinding(FindingKind.UNPRICED, _joined_words(each.group), each.currency, None, None, why)


def _largest(variance: VarianceBridge) -> str:
    amounts = {
        bucket: each for bucket, each in variance.buckets.items() if bucket is not VarianceBucket.TIMING and each
    }
    if not amounts:
        return ""
    bucket = max(amounts, key=lambda name: (abs(Fraction(amounts[name])), name))
    kinds = {kind: abs(Fraction(amount)) for (owner, kind), amount in variance.kinds.items() if owner is bucket}
    most = max(kinds, key=lambda name: (kinds[name], name), default="")
    return f"mostly {bucket.value}{f' ({most})' if most else ''}"


def _price_findings(outcome: MatchOutcome, tolerance: ReconcileTolerance) -> Iterator[ReconcileFinding]:
    for each in outcome.compared:
        where = _joined_words((each.team, each.job))
        if each.currency != each.metered_currency:
            why = f"billed in {each.currency}, reckoned in {each.metered_currency}; name a rate to compare"
            yield ReconcileFinding(FindingKind.CURRENCY, where, each.currency, None, None, why)
            continue
        difference = exact_difference(each.invoiced, each.metered)
        if tolerance.exceeded(difference, each.metered):
            why = "bills differ from the meter's price of the same time"
            yield ReconcileFinding(FindingKind.PRICE, where, each.currency, difference, each.metered, why)


def _alone_findings(
    kind: FindingKind, items: Sequence[UnmatchedItem], tolerance: ReconcileTolerance, why: str
) -> Iterator[ReconcileFinding]:
    groups: defaultdict[tuple[str, str], list[UnmatchedItem]] = defaultdict(list)
    for each in items:
        groups[_joined_words((each.cloud, each.account, each.what)), each.currency].append(each)
    for (where, currency), group in groups.items():
        amount = exact_sum(each.amount for each in group if each.amount is not None)
        if tolerance.exceeded(amount, Decimal(0)):
            yield ReconcileFinding(kind, where, currency, amount, None, f"{len(group)} {why}")


def _joined_words(words: Sequence[str | None]) -> str:
    return " ".join(word if word is not None else "-" for word in words) or "all"
