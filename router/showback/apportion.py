"""An amount, or a charge, split by weights into parts that add up to it to the last digit. Pure, exact, deterministic.

The largest remainder: every part is its exact share cut to the scale, and what is then missing goes, a last digit each,
to the parts that lost most by the cut, the earlier first where two lost the same. Where all weights are zero the parts
are even; nothing is dropped.
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

# Of ratios, and of the parts of a quantity: a part of an hour is then right to far below a nano-dollar, and its product
# with a price of nine decimals fits into the 24 that our columns hold.
_PLACES = 12
# Nothing is ever rounded by it.
_EXACT = Context(prec=400, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Who has a part of a charge: the ``resource`` it is allocated to (a job), its ``weight``, which is also how much
    of ``unit`` it used, and its tags."""

    resource: str
    weight: Weight
    unit: str
    tags: Mapping[str, str]
    name: str | None = None


def split(total: Decimal, weights: Sequence[Weight], places: int) -> tuple[Decimal, ...]:
    """Parts of ``total`` in proportion to the weights, of ``places`` decimals, or as many as the total has where it has
    more. They add up to it, and each is less than a last digit away from its exact share. Even where all weights are 0.
    A total below zero splits as the same above. ValueError for no weights, or one below zero.
    """
    if not weights or min(weights) < 0:
        raise ValueError("a split is by one weight or more, none of them below zero")
    exact = [Fraction(weight) for weight in weights]
    if not any(exact):
        exact = [Fraction(1)] * len(exact)
    places = max(places, places_of(total))
    units, whole = int(abs(Fraction(total)) * 10**places), sum(exact)
    wanted = [units * weight / whole for weight in exact]
    parts = [share.numerator // share.denominator for share in wanted]
    by_loss = sorted(range(len(parts)), key=lambda at: (parts[at] - wanted[at], at))
    for at in by_loss[: units - sum(parts)]:
        parts[at] += 1
    return tuple(_decimal(part, places, negative=total < 0) for part in parts)


def ratios(weights: Sequence[Weight], places: int = _PLACES) -> tuple[Decimal, ...]:
    """The weights as shares that add up to exactly 1; ValueError as :func:`split`."""
    return split(Decimal(1), weights, places)


def split_charge(charge: Charge, shares: Sequence[Share], method: str, origin: str) -> tuple[Charge, ...]:
    """The charge in parts, one a share, in their order. ``method``: the versioned id of how it was split
    (AllocatedMethodId); ``origin``: what names the charge among all (x_SplitOriginId).

    Costs and quantities add up to those of the charge; unit prices, units and all words are the charge's own. Where a
    cost is price x quantity, that of every part is too. Tags stay those of the charge; AllocatedTags are those of the
    share and, on top, all of the charge's. ValueError as :func:`split`, and for a charge that is itself a part.
    """
    if charge.x_split_origin_id is not None or charge.allocated_method_id is not None:
        raise ValueError("is a part of a split charge already")
    weights = [share.weight for share in shares]
    amounts = _amounts(charge, weights)
    each = zip(shares, ratios(weights), zip(*amounts.values(), strict=True), strict=True)
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
        for share, ratio, values in each
    )


def places_of(value: Decimal) -> int:
    """How many decimals it needs: 2 of 0.250. ValueError for what is not finite."""
    exponent = _EXACT.create_decimal(value).normalize(_EXACT).as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a finite amount")
    return max(0, -exponent)


def exact_sum(amounts: Iterable[Decimal]) -> Decimal:
    """Of all digits, where the usual context of decimals would cut them at 28; zero for none."""
    return reduce(_EXACT.add, amounts, Decimal(0))


# What of a charge adds up; the costs that are a price x the quantity first.
_PRICED = {"list_cost": "list_unit_price", "contracted_cost": "contracted_unit_price"}
_COSTS = ("billed_cost", "effective_cost", "pricing_currency_effective_cost", "x_on_demand_equivalent_cost")
_QUANTITIES = ("consumed_quantity", "commitment_discount_quantity", "x_gpu_hours", "x_useful_units")
_Parts = tuple[Decimal | None, ...]


def _amounts(charge: Charge, weights: Sequence[Weight]) -> dict[str, _Parts]:
    """The parts of every amount of the charge, by the name of its field. Of equal costs the parts are equal too."""
    quantity = charge.pricing_quantity
    quantities = _parts(quantity, weights)
    found = {"pricing_quantity": quantities}
    known: dict[Decimal | None, _Parts] = {}
    for name, of_price in _PRICED.items():
        cost = getattr(charge, name)
        found[name] = _costs(cost, getattr(charge, of_price), quantity, quantities, weights)
        known.setdefault(cost, found[name])
    for name in _COSTS:
        cost = getattr(charge, name)
        found[name] = known[cost] if cost in known else _parts(cost, weights)
    for name in _QUANTITIES:
        whole = getattr(charge, name)
        found[name] = quantities if whole == quantity else _parts(whole, weights)
    return found


def _costs(
    cost: Decimal, price: Decimal | None, quantity: Decimal | None, quantities: _Parts, weights: Sequence[Weight]
) -> _Parts:
    if price is None or quantity is None:
        return _parts(cost, weights)
    # What price x quantity leaves over is a rounding of the origin, and is split on its own.
    rest = _EXACT.subtract(cost, _EXACT.multiply(price, quantity))
    of_rest = split(rest, weights, places_of(rest))
    products = (_EXACT.multiply(price, part) for part in quantities if part is not None)
    return tuple(_EXACT.add(product, more) for product, more in zip(products, of_rest, strict=True))


def _parts(whole: Decimal | None, weights: Sequence[Weight]) -> _Parts:
    return (None,) * len(weights) if whole is None else split(whole, weights, _PLACES)


def _details(share: Share, ratio: Decimal) -> Json:
    # Said for people, and not added up: a fraction may be rounded here.
    units = round(Fraction(share.weight) * 10**_PLACES)
    quantity = _decimal(units, _PLACES, negative=False)
    return {"Elements": [{"AllocatedRatio": ratio, "UsageUnit": share.unit, "UsageQuantity": quantity}]}


def _decimal(units: int, places: int, *, negative: bool) -> Decimal:
    digits = tuple(int(digit) for digit in str(units))
    return Decimal((1 if negative and units else 0, digits, -places))
