"""Apportion an amount, or a charge, by weights into parts that add up to it to the last digit. Pure and exact.

The method is the largest remainder. The result is deterministic. Every part is its exact share cut to the scale. The
missing units, one last digit each, go to the parts that lost most by the cut, and of equal losses to the earlier part.
Where all weights are zero the parts are even; nothing is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal, Inexact, InvalidOperation
from fractions import Fraction
from functools import reduce

from router.showback.focus.charge import Charge
from router.showback.focus.texts import Json

Weight = Decimal | Fraction | int

# Decimal places of ratios, and of the parts of a quantity. A part of an hour is then right to far below a nano-dollar,
# and its product with a price of nine decimals fits into the 24 that our columns hold.
_PLACES = 12
# This context never rounds: it raises instead.
_EXACT = Context(prec=400, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargeShare:
    """The receiver of one part of a charge.

    ``resource`` is what the part is allocated to (a job). ``weight`` is its weight, which is also how much of ``unit``
    it used. ``tags`` are the receiver's tags.
    """

    resource: str
    weight: Weight
    unit: str
    tags: Mapping[str, str]
    name: str | None = None


def split_amount(total: Decimal, weights: Sequence[Weight], places: int) -> tuple[Decimal, ...]:
    """Split ``total`` into parts in proportion to the weights.

    The parts have ``places`` decimals, or as many as the total has where it has more. They add up to the total, and
    each is less than a last digit away from its exact share. The parts are even where all weights are 0. A negative
    total splits as its absolute value does. ValueError for no weights, or one below zero.
    """
    if not weights or min(weights) < 0:
        raise ValueError("a split is by one weight or more, none of them below zero")
    exact = [Fraction(weight) for weight in weights]
    if not any(exact):
        exact = [Fraction(1)] * len(exact)
    places = max(places, decimal_places(total))
    units, whole = int(abs(Fraction(total)) * 10**places), sum(exact)
    exact_parts = [units * weight / whole for weight in exact]
    parts = [share.numerator // share.denominator for share in exact_parts]
    by_loss = sorted(range(len(parts)), key=lambda at: (parts[at] - exact_parts[at], at))
    for at in by_loss[: units - sum(parts)]:
        parts[at] += 1
    return tuple(_decimal(part, places, negative=total < 0) for part in parts)


def weight_ratios(weights: Sequence[Weight], places: int = _PLACES) -> tuple[Decimal, ...]:
    """Return the weights as shares that add up to exactly 1; ValueError as :func:`split_amount`."""
    return split_amount(Decimal(1), weights, places)


def split_charge(charge: Charge, shares: Sequence[ChargeShare], method: str, origin: str) -> tuple[Charge, ...]:
    """Split the charge into parts, one for each share, in their order.

    ``method`` is the versioned id of how it was split (AllocatedMethodId). ``origin`` names the charge among all
    (x_SplitOriginId).

    Costs and quantities of the parts add up to those of the charge; unit prices, units and all words are the charge's
    own. Where a cost is price x quantity, so is that of every part. Tags stay those of the charge; AllocatedTags are
    those of the share and, on top, all of the charge's. ValueError as :func:`split_amount`, and for a charge that is
    itself a part.
    """
    if charge.x_split_origin_id is not None or charge.allocated_method_id is not None:
        raise ValueError("is a part of a split charge already")
    weights = [share.weight for share in shares]
    amounts = _amounts(charge, weights)
    part_values = zip(shares, weight_ratios(weights), zip(*amounts.values(), strict=True), strict=True)
    return tuple(
        replace(
            charge,
            **dict(zip(amounts, values, strict=True)),
            allocated_method_id=method,
            allocated_method_details=_details(share, ratio),
            allocated_resource_id=share.resource,
            allocated_resource_name=share.name or share.resource,
            allocated_tags={**share.tags, **(charge.tags or {})},
            x_split_origin_id=origin,
            x_split_origin_cost=charge.billed_cost,
        )
        for share, ratio, values in part_values
    )


def decimal_places(value: Decimal) -> int:
    """Return how many decimals the value needs: 2 for 0.250. ValueError for a value that is not finite."""
    exponent = _EXACT.create_decimal(value).normalize(_EXACT).as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a finite amount")
    return max(0, -exponent)


def exact_sum(amounts: Iterable[Decimal]) -> Decimal:
    """Return the sum with all digits, where the default decimal context would cut it at 28; zero for no amounts."""
    return reduce(_EXACT.add, amounts, Decimal(0))


# Fields of a charge that add up; the costs that are a price x the quantity come first.
_PRICED = {"list_cost": "list_unit_price", "contracted_cost": "contracted_unit_price"}
_COSTS = ("billed_cost", "effective_cost", "pricing_currency_effective_cost", "x_on_demand_equivalent_cost")
_QUANTITIES = ("consumed_quantity", "commitment_discount_quantity", "x_gpu_hours", "x_useful_units")
_Parts = tuple[Decimal | None, ...]


def _amounts(charge: Charge, weights: Sequence[Weight]) -> dict[str, _Parts]:
    """Return the parts of every amount of the charge, by the name of its field. Equal costs have equal parts."""
    quantity = charge.pricing_quantity
    quantities = _parts(quantity, weights)
    parts = {"pricing_quantity": quantities}
    parts_by_cost: dict[Decimal | None, _Parts] = {}
    for name, of_price in _PRICED.items():
        cost = getattr(charge, name)
        parts[name] = _costs(cost, getattr(charge, of_price), quantity, quantities, weights)
        parts_by_cost.setdefault(cost, parts[name])
    for name in _COSTS:
        cost = getattr(charge, name)
        parts[name] = parts_by_cost[cost] if cost in parts_by_cost else _parts(cost, weights)
    for name in _QUANTITIES:
        whole = getattr(charge, name)
        parts[name] = quantities if whole == quantity else _parts(whole, weights)
    return parts


def _costs(
    cost: Decimal, price: Decimal | None, quantity: Decimal | None, quantities: _Parts, weights: Sequence[Weight]
) -> _Parts:
    if price is None or quantity is None:
        return _parts(cost, weights)
    # The difference of the cost and price x quantity is a rounding of the origin, and is split on its own.
    remainder = _EXACT.subtract(cost, _EXACT.multiply(price, quantity))
    remainder_parts = split_amount(remainder, weights, decimal_places(remainder))
    products = (_EXACT.multiply(price, part) for part in quantities if part is not None)
    return tuple(_EXACT.add(product, extra) for product, extra in zip(products, remainder_parts, strict=True))


def _parts(whole: Decimal | None, weights: Sequence[Weight]) -> _Parts:
    return (None,) * len(weights) if whole is None else split_amount(whole, weights, _PLACES)


def _details(share: ChargeShare, ratio: Decimal) -> Json:
    # Details are for people and are not added up, so a fraction may be rounded here.
    units = round(Fraction(share.weight) * 10**_PLACES)
    quantity = _decimal(units, _PLACES, negative=False)
    return {"Elements": [{"AllocatedRatio": ratio, "UsageUnit": share.unit, "UsageQuantity": quantity}]}


def _decimal(units: int, places: int, *, negative: bool) -> Decimal:
    digits = tuple(int(digit) for digit in str(units))
    return Decimal((1 if negative and units else 0, digits, -places))
