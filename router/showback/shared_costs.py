"""Share costs that no job caused over those whose jobs did. Pure and exact.

Costs that belong to no group of a report (idle machines, a shared platform, support) stand on lines of their own, the
pots. :func:`share_costs` hands pots out over **all** groups. Filtering first would hand the whole of a pot to the
remaining groups, and count it twice; so :func:`share_costs` asks for the total of everything, and refuses groups and
pots that are not all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from router.showback.apportion import exact_sum, split_amount

Group = tuple[str, ...]

# Shares end at the nano-dollar, as money does here; where a pot has more decimals, at its last.
_PLACES = 9


class SharingMethod(StrEnum):
    """The ways to share a pot."""

    NONE = "none"  # not shared: it stays on its own line
    WEIGHTED = "weighted"  # in proportion to what each group cost by itself
    EVEN = "even"  # the same for every group
    FIXED = "fixed"  # by given shares of the whole; the rest stays on its own line


@dataclass(frozen=True, slots=True)
class SharePortion:
    """The part of a pot that a group got: ``amount``, which is about ``ratio`` of the pot, by ``method``.

    ``why`` says what of the method could not be done as asked; "" where nothing. A part that stays on its own line is
    by the method none, and ``why`` says why it stays.
    """

    pot: str
    amount: Decimal
    ratio: Fraction
    method: SharingMethod
    why: str = ""


@dataclass(frozen=True, slots=True)
class GroupCost:
    """A group: what it cost by itself (``before``), what it got, and both together (``after``)."""

    group: Group
    before: Decimal
    received: tuple[SharePortion, ...]

    @property
    def shared(self) -> Decimal:
        """The sum of all that the group got."""
        return exact_sum(each.amount for each in self.received)

    @property
    def after(self) -> Decimal:
        """The group's cost, its part of the pots included."""
        return exact_sum([self.before, self.shared])


@dataclass(frozen=True, slots=True)
class SharedCosts:
    """The result of sharing.

    ``rows`` are sorted by group; ``kept`` is what stays on lines of its own, in the order of the pots. Together they
    are all that there was. ``pots`` is each pot as it was before.
    """

    rows: tuple[GroupCost, ...]
    kept: tuple[SharePortion, ...]
    pots: Mapping[str, Decimal]


def share_costs(
    amounts: Mapping[Group, Decimal],
    shared: Mapping[str, Decimal],
    method: SharingMethod,
    *,
    total: Decimal,
    fixed: Mapping[Group, Decimal] | None = None,
    without: frozenset[Group] = frozenset(),
) -> SharedCosts:
    """Share the pots of ``shared`` over the groups of ``amounts``, one currency at a time.

    ``total`` is the sum of everything, computed from the rows themselves and not from the groups. ``without`` are
    groups that take no part, such as that of unallocated costs. Every pot goes to groups and own lines to the last
    digit, negative ones (credits) too. A group that gets nothing of a pot has no entry for it.

    WEIGHTED goes by what a group cost; one that cost nothing, or has credit, weighs nothing, and where none weighs
    anything it is EVEN. FIXED goes by ``fixed``, shares of 1: a group of it that cost nothing gets a row. Where there
    is no group to share with, pots stay as they are. ValueError: groups and pots are not the total; a share below zero,
    or together above 1; FIXED without shares, or shares without FIXED, or of a group that takes no part.
    """
    if (parts := exact_sum([*amounts.values(), *shared.values()])) != total:
        raise ValueError(
            f"groups and shared costs are {parts}, all is {total}: share over all groups, and filter what comes out"
        )
    if (method is SharingMethod.FIXED) != (fixed is not None):
        raise ValueError("fixed shares are for the method fixed, which needs them")
    receivers = {group: amount for group, amount in amounts.items() if group not in without}
    keys, why = _keys(method, receivers, fixed or {}, without)
    received: dict[Group, list[SharePortion]] = {}
    own_lines: list[SharePortion] = []
    for pot, amount in shared.items():
        portions, unshared = _share_pot(pot, amount, method, keys, why)
        for group, portion in portions.items():
            received.setdefault(group, []).append(portion)
        own_lines += unshared
    groups = sorted({*amounts, *received})
    rows = tuple(GroupCost(group, amounts.get(group, Decimal(0)), tuple(received.get(group, ()))) for group in groups)
    return SharedCosts(rows, tuple(own_lines), dict(shared))


_NOBODY, _NOT_ASKED, _REST = "there is no group to share it with", "not shared", "left by the fixed shares"
_NO_WEIGHT = "no group cost anything: even"


def _keys(
    method: SharingMethod, receivers: Mapping[Group, Decimal], fixed: Mapping[Group, Decimal], without: frozenset[Group]
) -> tuple[dict[Group, Fraction], str]:
    """Return which part of a pot each group gets, and what of the method could not be done."""
    if method is SharingMethod.NONE:
        return {}, _NOT_ASKED
    if method is SharingMethod.FIXED:
        return _fixed(fixed, without), ""
    if not receivers:
        return {}, _NOBODY
    weights = {group: max(Fraction(amount), Fraction(0)) for group, amount in sorted(receivers.items())}
    whole, why = sum(weights.values()), ""
    if method is SharingMethod.EVEN or not whole:
        why = "" if method is SharingMethod.EVEN else _NO_WEIGHT
        weights, whole = dict.fromkeys(weights, Fraction(1)), Fraction(len(weights))
    return {group: weight / whole for group, weight in weights.items() if weight}, why


def _fixed(fixed: Mapping[Group, Decimal], without: frozenset[Group]) -> dict[Group, Fraction]:
    keys = {group: Fraction(part) for group, part in sorted(fixed.items())}
    if any(part < 0 for part in keys.values()) or sum(keys.values()) > 1:
        raise ValueError("fixed shares are not below 0, and not above 1 together")
    if excluded := sorted(without & keys.keys()):
        raise ValueError(f"{' / '.join(excluded[0])} takes no part, and has a fixed share")
    return {group: part for group, part in keys.items() if part}


def _share_pot(
    pot: str, amount: Decimal, method: SharingMethod, keys: Mapping[Group, Fraction], why: str
) -> tuple[dict[Group, SharePortion], list[SharePortion]]:
    if not keys:
        return {}, [SharePortion(pot, amount, Fraction(1), SharingMethod.NONE, why or _REST)]
    remainder = 1 - sum(keys.values(), Fraction(0))
    *parts, unshared = split_amount(amount, [*keys.values(), remainder], _PLACES)
    used = SharingMethod.EVEN if why == _NO_WEIGHT else method
    portions = {
        group: SharePortion(pot, part, ratio, used, why)
        for (group, ratio), part in zip(keys.items(), parts, strict=True)
    }
    rest = SharePortion(pot, unshared, remainder, SharingMethod.NONE, _REST)
    return portions, [rest] if remainder else []
