"""Read changes and sweeps as people write them: ``aws p5 spot=768``, ``all+6h``, ``deadline all +0h,+6h``. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from itertools import product

from pricing.places import Market
from pricing.problems import InvalidInputError
from router.jobs.fields import RefusedError, suggest
from router.jobs.quantities import parse_duration, parse_region, parse_usd
from router.planning.what_if.what_if import (
    BudgetChange,
    CarbonChange,
    Change,
    ConfidenceChange,
    DeadlineChange,
    InterruptionChange,
    JobDrop,
    LimitChange,
    PriceScaling,
    RegionDrop,
    Variant,
)

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_LIMIT = re.compile(rf"(.+?)\s*(=|\+|x)\s*({_NUMBER})")
_PRICE = re.compile(rf"(.+?)\s*[*]\s*({_NUMBER})")
_DEADLINE = re.compile(r"(.+?)\s*([+-])\s*((?:[0-9.]+\s*[wdhms]\s*)+)")
_MOST_FACTOR = 1000
_MOST_VARIANTS = 1000
CARBON_SWEEP = "carbon"
_SWEPT = ("limit", "price", "deadline", "budget", "confidence", CARBON_SWEEP)
_SWEEP_HELP = "write e.g. 'deadline all +0h,+6h,+12h' or 'limit \"aws p5 spot\" 384,768'"


@dataclass(frozen=True, slots=True)
class SweptValue:
    """One value of a sweep: as written, as a number for the axis of a plot, and the change that it makes."""

    text: str
    at: float
    change: Change


@dataclass(frozen=True, slots=True)
class Sweep:
    """Values that one thing takes in turn; ``name`` says which thing, such as ``deadline all``, ``unit`` in what."""

    name: str
    unit: str
    values: tuple[SweptValue, ...]


def parse_change(option: str, text: str) -> Change:
    """Return the change that an option such as ``--limit`` describes; InvalidInputError names the option."""
    if option not in _PARSERS:
        known = ", ".join(_PARSERS)
        raise InvalidInputError.single("is no change of a night", field=option, remedy=f"there are {known}")
    try:
        return _PARSERS[option](text)
    except RefusedError as error:
        raise InvalidInputError.single(str(error), field=option, remedy=error.remedy) from None


def parse_sweep(text: str) -> Sweep:
    """Return the sweep of ``KIND NAME VALUE,VALUE...``; a name with spaces is in quotes.

    Raises InvalidInputError that names ``--sweep``.
    """
    try:
        return _parse_sweep(text)
    except RefusedError as error:
        raise InvalidInputError.single(str(error), field="--sweep", remedy=error.remedy) from None


def vary(changes: Sequence[Change], sweeps: Sequence[Sweep]) -> tuple[Variant, ...]:
    """Return one variant of all changes, or with sweeps one for each value; two sweeps give their grid.

    The changes come before the swept one. InvalidInputError without changes and sweeps, for more than two sweeps, two
    of the same thing, or more than a thousand variants.
    """
    if not sweeps:
        if not changes:
            raise InvalidInputError.single(
                "nothing is changed", remedy="say what, e.g. --deadline all+6h, or --sweep 'deadline all +0h,+6h'"
            )
        return (Variant("; ".join(map(str, changes)), tuple(changes)),)
    if len(sweeps) > 2:
        raise InvalidInputError.single("more than two are given", field="--sweep", remedy="keep one or two")
    if len({sweep.name for sweep in sweeps}) < len(sweeps):
        raise InvalidInputError.single(
            f"{sweeps[0].name} is swept twice", field="--sweep", remedy="keep one of the two"
        )
    points = list(product(*([(f"{sweep.name} {value.text}", value) for value in sweep.values] for sweep in sweeps)))
    if len(points) > _MOST_VARIANTS:
        what = f"gives {len(points):,} plans; {_MOST_VARIANTS:,} are the most"
        raise InvalidInputError.single(what, field="--sweep", remedy="name fewer values")
    return tuple(
        Variant(
            "; ".join(name for name, _ in point),
            (*changes, *(value.change for _, value in point)),
            tuple(value.at for _, value in point),
            tuple(value.text for _, value in point),
        )
        for point in points
    )


def _parse_sweep(text: str) -> Sweep:
    try:
        words = shlex.split(text)
    except ValueError:
        raise RefusedError(f"{text!r} has a quotation mark without its end", _SWEEP_HELP) from None
    if not words or words[0] not in _SWEPT:
        kind = words[0] if words else ""
        raise RefusedError(f"{kind!r} cannot be swept", suggest(kind, _SWEPT) or _SWEEP_HELP)
    if words[0] == CARBON_SWEEP:  # carbon has no name: there is one weight of it
        words = [words[0], "", *words[1:]]
        if len(words) != 3:
            raise RefusedError(f"{text!r} is no sweep of carbon", "write e.g. 'carbon 0,25,50,100'")
    if len(words) != 3:
        raise RefusedError(f"{text!r} is no sweep: three words are needed, {len(words)} are there", _SWEEP_HELP)
    kind, name, listed = words
    texts = [value.strip() for value in listed.split(",")]
    values = tuple(_SWEEPERS[kind](name, value) for value in texts)
    if len({value.at for value in values}) < len(values):
        raise RefusedError(f"{listed} has a value twice", "keep one of the two")
    units = {_unit(value.change) for value in values}
    if len(units) > 1:
        raise RefusedError(f"{listed} mixes amounts, additions and factors", "write all values in one form")
    return Sweep(f"{kind} {_name(values[0].change)}".strip(), units.pop(), values)


def _name(change: Change) -> str:
    match change:
        case LimitChange():
            return change.name
        case PriceScaling():
            return change.scope
        case BudgetChange():
            return change.team
        case RegionDrop():
            return str(change.region)
        case DeadlineChange() | ConfidenceChange() | JobDrop():
            return change.job
        case CarbonChange() | InterruptionChange():
            return ""


def _unit(change: Change) -> str:
    match change:
        case LimitChange():
            return {"=": "amount", "+": "more", "x": "times as much"}[change.how]
        case PriceScaling():
            return "times the price"
        case DeadlineChange():
            return "hours later"
        case BudgetChange():
            return "dollars"
        case CarbonChange():
            return "dollars a tonne of CO2e"
        case _:
            return "confidence"


def _sweep_limit(name: str, text: str) -> SweptValue:
    change = _limit(f"{name}{text}" if text[:1] in ("+", "x", "=") else f"{name}={text}")
    return SweptValue(text, float(change.value), change)


def _sweep_price(name: str, text: str) -> SweptValue:
    change = _price(f"{name}*{text.removeprefix('x').removeprefix('*')}")
    return SweptValue(text, float(change.factor), change)


def _sweep_deadline(name: str, text: str) -> SweptValue:
    change = _deadline(f"{name}{text if text[:1] in ('+', '-') else f'+{text}'}")
    return SweptValue(text, change.by / timedelta(hours=1), change)


def _sweep_budget(name: str, text: str) -> SweptValue:
    change = _budget(f"{name}={text}")
    return SweptValue(text, change.amount.dollars(), change)


def _sweep_confidence(name: str, text: str) -> SweptValue:
    change = _confidence(f"{name}={text}")
    return SweptValue(text, change.confidence, change)


def _sweep_carbon(_: str, text: str) -> SweptValue:
    change = _carbon(text)
    return SweptValue(text, change.usd_per_tonne.dollars(), change)


def _limit(text: str) -> LimitChange:
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise RefusedError(f"{text!r} changes no limit", "write NAME=AMOUNT, NAME+MORE or NAMExFACTOR")
    name, how, number = (match[n] for n in (1, 2, 3))
    value = Decimal(number)
    if how != "x" and value != int(value):
        raise RefusedError(f"{number} is not a whole number", "limits count vCPUs, accelerators or machines")
    _at_most_factor(value if how == "x" else Decimal(1))
    return LimitChange(name, "=" if how == "=" else "+" if how == "+" else "x", value)


def _price(text: str) -> PriceScaling:
    match = _PRICE.fullmatch(text.strip())
    if match is None:
        raise RefusedError(
            f"{text!r} changes no price", "write SCOPE*FACTOR: a cloud, cloud/region, cloud/region/type or market"
        )
    scope, number = match[1], match[2]
    factor = Decimal(number)
    if factor <= 0:
        raise RefusedError(f"{number} would make machines free", "write a factor above zero, e.g. 0.8")
    _at_most_factor(factor)
    return PriceScaling(Market.ON_DEMAND.value if scope in ("on-demand", "od") else scope, factor)


def _at_most_factor(factor: Decimal) -> None:
    if factor > _MOST_FACTOR:
        raise RefusedError(f"{factor} times as much is more than {_MOST_FACTOR:,} times", "write a smaller factor")


def _drop_region(text: str) -> RegionDrop:
    return RegionDrop(parse_region(text))


def _deadline(text: str) -> DeadlineChange:
    match = _DEADLINE.fullmatch(text.strip())
    if match is None:
        raise RefusedError(f"{text!r} moves no deadline", "write JOB+6h, JOB-6h or all+6h")
    name, sign, length = (match[n] for n in (1, 2, 3))
    by = parse_duration(length)
    return DeadlineChange(name, -by if sign == "-" else by)


def _budget(text: str) -> BudgetChange:
    team, amount = _split(text, "changes no budget", "write TEAM=15000")
    return BudgetChange(team, parse_usd(amount))


def _confidence(text: str) -> ConfidenceChange:
    job, number = _split(text, "changes no confidence", "write JOB=0.9 or all=0.9")
    if not re.fullmatch(_NUMBER, number) or not 0.5 <= float(number) <= 0.999:
        raise RefusedError(f"{number!r} is no confidence", "write a number from 0.5 to 0.999")
    return ConfidenceChange(job, float(number))


def _carbon(text: str) -> CarbonChange:
    return CarbonChange(parse_usd(text.strip()))


def _interruptions(text: str) -> InterruptionChange:
    match text.strip():
        case "low" | "high" as end:
            return InterruptionChange(end)
        case other:
            raise RefusedError(f"{other!r} is no end of an interval", "write low or high")


def _drop_job(text: str) -> JobDrop:
    return JobDrop(text.strip())


def _split(text: str, what: str, help_: str) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.rpartition("="))
    if not name or not value:
        raise RefusedError(f"{text!r} {what}", help_)
    return name, value


_PARSERS: dict[str, Callable[[str], Change]] = {
    "--limit": _limit,
    "--price": _price,
    "--drop-region": _drop_region,
    "--deadline": _deadline,
    "--budget": _budget,
    "--confidence": _confidence,
    "--interruptions": _interruptions,
    "--drop-job": _drop_job,
    "--carbon": _carbon,
}
_SWEEPERS: dict[str, Callable[[str, str], SweptValue]] = {
    "limit": _sweep_limit,
    "price": _sweep_price,
    "deadline": _sweep_deadline,
    "budget": _sweep_budget,
    "confidence": _sweep_confidence,
    CARBON_SWEEP: _sweep_carbon,
}
