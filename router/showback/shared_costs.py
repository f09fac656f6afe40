"""What nobody's job caused, shared over those whose jobs did. Pure and exact.

Costs that belong to no group of a report (idle machines, a shared platform, support) stand on lines of their own, the
pots. :func:`share` hands pots out over **all** groups; only its result can be filtered (:meth:`Shared.only`) or summed
up (:meth:`Shared.by`). Filtering first would hand the whole of a pot to the groups that were left, and count it twice;
so :func:`share` asks for the total of everything, and refuses groups and pots that are not all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from router.showback.apportion import exact_sum, split

Group = tuple[str, ...]

# Shares end at the nano-dollar, as money does here; where a pot has more decimals, at its last.
_PLACES = 9


class Method(StrEnum):
    """How a pot is handed out."""

    NONE = "none"  # not: it stays on its own line
    WEIGHTED = "weighted"  # in proportion to what each group cost by itself
    EVEN = "even"  # the same for every group
    FIXED = "fixed"  # by given shares of the whole; what they leave stays on its own line


@dataclass(frozen=True, slots=True)
class Received:
    """What a group got of a pot: ``amount``, which is about ``ratio`` of the pot, by ``method``. ``why`` says what of
    the method could not be done as asked; "" where nothing."""

    pot: str
    amount: Decimal
    ratio: Fraction
    method: Method
    why: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A group: what it cost by itself (``before``), what it got, and both together (``after``)."""

    group: Group
    before: Decimal
    received: tuple[Received, ...]

    @property
    def shared(self) -> Decimal:
        """All that it got."""
        return exact_sum(each.amount for each in self.received)

    @property
    def after(self) -> Decimal:
        """What it cost, its share of the rest included."""
        return exact_sum([self.before, self.shared])


@dataclass(frozen=True, slots=True)
class Kept:
    """A pot, or the rest of one, that stays on its own line, and why."""

    pot: str
    amount: Decimal
    why: str


@dataclass(frozen=True, slots=True)
class Shared:
    """``rows`` sorted by group, and ``kept``, what stays on lines of its own, in the order of the pots. Together they
    are all that there was. ``pots``: each pot as it was before.
    """

    rows: tuple[Row, ...]
    kept: tuple[Kept, ...]
    pots: Mapping[str, Decimal]

    @property
    def total(self) -> Decimal:
        """Of rows and what was kept."""
        return exact_sum([*(row.after for row in self.rows), *(each.amount for each in self.kept)])

    def only(self, wanted: Callable[[Group], bool]) -> tuple[Row, ...]:
        """The rows of these groups, each as it is among all: a filter changes no amount."""
        return tuple(row for row in self.rows if wanted(row.group))

    def by(self, *places: int) -> tuple[Row, ...]:
        """Rows of coarser groups, by the parts of the groups at these places, in this order: sums of what they hold."""
        return summed(self.rows, places)


def summed(rows: Sequence[Row], places: Sequence[int]) -> tuple[Row, ...]:
    """As :meth:`Shared.by`, of rows that were filtered. Of a pot that came in several ways, each is one entry."""
    found: dict[Group, list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row.group[place] for place in places), []).append(row)
    return tuple(_summed(group, found[group]) for group in sorted(found))


def share(
    amounts: Mapping[Group, Decimal],
    shared: Mapping[str, Decimal],
    method: Method,
    *,
    total: Decimal,
    fixed: Mapping[Group, Decimal] | None = None,
    without: frozenset[Group] = frozenset(),
) -> Shared:
    """Hands the pots of ``shared`` out over the groups of ``amounts``, one currency at a time.

    ``total`` is the sum of everything, asked of the rows themselves and not of the groups. ``without``: groups that
    take no part, such as that of what nobody owns. Every pot goes to groups and own lines to the last digit, those
    below zero (credits) too. Who gets nothing of a pot has no entry for it.

    WEIGHTED goes by what a group cost; one that cost nothing, or has credit, weighs nothing, and where none weighs
    anything it is EVEN. FIXED goes by ``fixed``, shares of 1: a group of it that cost nothing gets a row. Where there
    is no group to hand to, pots stay as they are. ValueError: groups and pots are not the total; a share below zero, or
    together above 1; FIXED without shares, or shares without FIXED, or of a group that takes no part.
    """
    if (known := exact_sum([*amounts.values(), *shared.values()])) != total:
        raise ValueError(
            f"groups and shared costs are {known}, all is {total}: share over all groups, and filter what comes out"
        )
    if (method is Method.FIXED) != (fixed is not None):
        raise ValueError("fixed shares are for the method fixed, which needs them")
    takers = {group: amount for group, amount in amounts.items() if group not in without}
    keys, why = _keys(method, takers, fixed or {}, without)
    received: dict[Group, list[Received]] = {}
    kept: list[Kept] = []
    for pot, amount in shared.items():
        gets, left = _handed(pot, amount, method, keys, why)
        for group, got in gets.items():
            received.setdefault(group, []).append(got)
        kept += left
    groups = sorted({*amounts, *received})
    rows = tuple(Row(group, amounts.get(group, Decimal(0)), tuple(received.get(group, ()))) for group in groups)
    return Shared(rows, tuple(kept), dict(shared))


_NOBODY, _NOT_ASKED, _REST = "there is no group to share it with", "not shared", "left by the fixed shares"
_NO_WEIGHT = "no group cost anything: even"


def _keys(
    method: Method, takers: Mapping[Group, Decimal], fixed: Mapping[Group, Decimal], without: frozenset[Group]
) -> tuple[dict[Group, Fraction], str]:
    """What part of a pot each group gets, and what of the method could not be done."""
    if method is Method.NONE:
        return {}, _NOT_ASKED
    if method is Method.FIXED:
        return _fixed(fixed, without), ""
    if not takers:
        return {}, _NOBODY
    weights = {group: max(Fraction(amount), Fraction(0)) for group, amount in sorted(takers.items())}
    whole, why = sum(weights.values()), ""
    if method is Method.EVEN or not whole:
        why = "" if method is Method.EVEN else _NO_WEIGHT
        weights, whole = dict.fromkeys(weights, Fraction(1)), Fraction(len(weights))
    return {group: weight / whole for group, weight in weights.items() if weight}, why


def _fixed(fixed: Mapping[Group, Decimal], without: frozenset[Group]) -> dict[Group, Fraction]:
    keys = {group: Fraction(part) for group, part in sorted(fixed.items())}
    if any(part < 0 for part in keys.values()) or sum(keys.values()) > 1:
        raise ValueError("fixed shares are not below 0, and not above 1 together")
    if barred := sorted(without & keys.keys()):
        raise ValueError(f"{' / '.join(barred[0])} takes no part, and has a fixed share")
    return {group: part for group, part in keys.items() if part}


def _handed(
    pot: str, amount: Decimal, method: Method, keys: Mapping[Group, Fraction], why: str
) -> tuple[dict[Group, Received], list[Kept]]:
    if not keys:
        return {}, [Kept(pot, amount, why or _REST)]
    rest = 1 - sum(keys.values())
    *parts, left = split(amount, [*keys.values(), rest], _PLACES)
    used = Method.EVEN if why == _NO_WEIGHT else method
    gets = {
        group: Received(pot, part, ratio, used, why) for (group, ratio), part in zip(keys.items(), parts, strict=True)
    }
    return gets, [Kept(pot, left, _REST)] if rest else []


def _summed(group: Group, rows: Sequence[Row]) -> Row:
    parts: dict[tuple[str, Method, str], list[Received]] = {}
    for row in rows:
        for got in row.received:
            parts.setdefault((got.pot, got.method, got.why), []).append(got)
    received = tuple(
        Received(
            pot, exact_sum(each.amount for each in got), sum((each.ratio for each in got), Fraction(0)), method, why
        )
        for (pot, method, why), got in parts.items()
    )
    return Row(group, exact_sum(row.before for row in rows), received)
