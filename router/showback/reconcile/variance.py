"""Why what was spent is not what was planned: a bridge from plan to invoice, without remainder. Pure, exact.

::

    planned + price + quantity + mix + waste + unplanned + credit = actual        what was spent
    actual  + timing                                              = invoiced      what bills say of it by now

Of one job and currency, in this order. ``R`` is the plan's average rate, its money over its hours; ``p`` its rate at a
place (cloud, region, instance type and market together); ``h`` and ``a`` are hours and money of actual rows at a place.
Hours are those of accelerators where plan and meter all know them, else of machines.

===========  =====================================================================================================
waste        money of time that was a kind of waste, at what it cost (by kind: ``startup``, ``idle_allocated``, ...)
credit       credits, taxes, adjustments, corrections of other months; and hours billed in another currency than the
             plan's: their money there, and ``- h R`` here
unplanned    money of what is no machine (disks, egress, storage, fees), less what is planned of it; machines of jobs
             that no plan has
price        ``a - h p`` of the rest, where the plan has the place
quantity     ``sum(h) R - planned``: it ran longer, or on more machines (shorter: below zero)
mix          ``h (p - R)`` at a place of the plan, ``a - h R`` at another: other places or kinds than planned
timing       less what is on no bill: metered, or added by people
===========  =====================================================================================================

What a plan allows for start-up, saving and lost work is in its hours: where as much was wasted as planned, waste is
above zero and quantity below it by as much. What has no price is in no amount: ``unpriced`` counts its rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final

from router.showback.apportion import exact_sum as added
from router.showback.apportion import split
from router.showback.reconcile.aggregates import WORDS, Grain, Side
from router.showback.reconcile.rounding import rounded

_ZERO: Final = Decimal(0)
_PLACES: Final = 24
_SHARED_PLACES: Final = 12
_CREDITS: Final = {"Credit": "credit", "Tax": "tax", "Adjustment": "adjustment"}


class Bucket(StrEnum):
    """A reason, in the order of the bridge."""

    PRICE = "price"
    QUANTITY = "quantity"
    MIX = "mix"
    WASTE = "waste"
    UNPLANNED = "unplanned"
    CREDIT = "credit"
    TIMING = "timing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variance:
    """The bridge of a group in a currency. ``group``: its words, in the order asked for. ``kinds``: the parts of a
    bucket that has several, which add up to it. ``metered``: all that was metered, at our prices, bills or no bills."""

    group: tuple[str | None, ...]
    currency: str
    planned: Decimal = _ZERO
    metered: Decimal = _ZERO
    buckets: Mapping[Bucket, Decimal] = field(default_factory=dict)
    kinds: Mapping[tuple[Bucket, str], Decimal] = field(default_factory=dict)
    unpriced: int = 0

    @property
    def actual(self) -> Decimal:
        """What was spent: bills, what is on none yet, and what people added."""
        return added([self.planned, *(each for name, each in self.buckets.items() if name is not Bucket.TIMING)])

    @property
    def invoiced(self) -> Decimal:
        """What bills say by now, provisional ones too."""
        return added([self.actual, self.buckets.get(Bucket.TIMING, _ZERO)])


@dataclass(frozen=True, slots=True)
class _Part:
    """An amount of a bucket, and the grain whose words it has."""

    grain: Grain
    currency: str
    bucket: Bucket
    kind: str
    amount: Decimal


Place = tuple[str | None, ...]


def variances(grains: Iterable[Grain], by: Sequence[str] = ("job",)) -> tuple[Variance, ...]:
    """The bridge of each group and currency, groups in order, unknown first. Jobs are taken apart first, so that the
    bridges of any grouping add up to those of any coarser one exactly. With ``attempt`` among the words a plan's hours
    are used up by the attempts in the order in which they began, what is left of them by the last. ValueError for a
    word that is none of :data:`router.showback.reconcile.aggregates.WORDS`."""
    unknown = sorted(set(by) - set(WORDS))
    if unknown:
        raise ValueError(f"a difference cannot be told by {', '.join(unknown)}; by {', '.join(WORDS)} it can")
    jobs: defaultdict[tuple[str | None, str | None], list[Grain]] = defaultdict(list)
    for grain in grains:
        jobs[grain.team, grain.job].append(grain)
    sums: dict[tuple[tuple[str | None, ...], str], _Sum] = {}
    for of_job in jobs.values():
        handed = _by_attempt(of_job) if "attempt" in by else of_job
        for grain in handed:
            _sum(sums, by, grain, grain.currency).grain(grain)
        for part in _parts(handed):
            _sum(sums, by, part.grain, part.currency).part(part)
    ordered = sorted(sums.items(), key=lambda item: ([(w is not None, w or "") for w in item[0][0]], item[0][1]))
    return tuple(each.variance(group, currency) for (group, currency), each in ordered)


class _Sum:
    """What a group comes to."""

    def __init__(self) -> None:
        self.planned: list[Decimal] = []
        self.metered: list[Decimal] = []
        self.kinds: defaultdict[tuple[Bucket, str], list[Decimal]] = defaultdict(list)
        self.unpriced = 0

    def grain(self, grain: Grain) -> None:
        if grain.money is None:
            self.unpriced += grain.rows if grain.side is not Side.METER else 0
        elif grain.side is Side.PLANNED:
            self.planned.append(grain.money)
        elif grain.side is Side.METER:
            self.metered.append(grain.money)

    def part(self, part: _Part) -> None:
        self.kinds[part.bucket, part.kind].append(part.amount)

    def variance(self, group: tuple[str | None, ...], currency: str) -> Variance:
        kinds = {key: total for key in sorted(self.kinds) if (total := added(self.kinds[key]))}
        buckets = {bucket: added(amount for (of, _), amount in kinds.items() if of is bucket) for bucket in Bucket}
        return Variance(
            group=group,
            currency=currency,
            planned=added(self.planned),
            metered=added(self.metered),
            buckets=buckets,
            kinds={key: amount for key, amount in kinds.items() if key[1]},
            unpriced=self.unpriced,
        )


def _sum(sums: dict[tuple[tuple[str | None, ...], str], _Sum], by: Sequence[str], grain: Grain, currency: str) -> _Sum:
    return sums.setdefault((tuple(getattr(grain, word) for word in by), currency), _Sum())


def _parts(grains: Sequence[Grain]) -> Iterator[_Part]:
    """All amounts of a job's bridges; those of a currency add up to its invoiced money less its planned."""
    plans = {grain.currency for grain in grains if grain.side is Side.PLANNED and _runs(grain)}
    rates = {currency: _Rates(grains, currency) for currency in sorted(plans)}
    for grain in grains:
        if grain.money is None or grain.side is Side.METER:
            continue
        if grain.side is Side.PLANNED:
            bucket, kind = (Bucket.QUANTITY, "") if _runs(grain) else (Bucket.UNPLANNED, grain.what)
            yield _Part(grain, grain.currency, bucket, kind, grain.money.copy_negate())
            continue
        yield from _of_actual(grain, grain.money, rates)
        if grain.side is not Side.BILLED:
            yield _Part(grain, grain.currency, Bucket.TIMING, grain.side.value, grain.money.copy_negate())


def _of_actual(grain: Grain, money: Decimal, rates: Mapping[str, _Rates]) -> Iterator[_Part]:
    why = _simply(grain)
    if why is not None:
        yield _Part(grain, grain.currency, *why, money)
    elif grain.currency in rates:
        yield from rates[grain.currency].parts(grain, money)
    elif rates:
        yield _Part(grain, grain.currency, Bucket.CREDIT, "currency", money)
        currency, plan = next(iter(rates.items()))
        ran = plan.ran(grain)
        yield _Part(grain, currency, Bucket.QUANTITY, "", ran)
        yield _Part(grain, currency, Bucket.CREDIT, "currency", ran.copy_negate())
    else:
        yield _Part(grain, grain.currency, Bucket.UNPLANNED, grain.what, money)


def _simply(grain: Grain) -> tuple[Bucket, str] | None:
    """The bucket and kind of what no plan is needed for; None of a machine's hours that were of use."""
    if grain.category in _CREDITS:
        return Bucket.CREDIT, _CREDITS[grain.category]
    if grain.corrected:
        return Bucket.CREDIT, "correction"
    if grain.use not in (None, "work"):
        return Bucket.WASTE, str(grain.use)
    return None if _runs(grain) else (Bucket.UNPLANNED, grain.what)


def _runs(grain: Grain) -> bool:
    return grain.what == "machine" and grain.category == "Usage"


class _Rates:
    """What a job's plan says an hour costs, at each place and on average."""

    def __init__(self, grains: Sequence[Grain], currency: str) -> None:
        plan = [
            g for g in grains if g.side is Side.PLANNED and _runs(g) and g.currency == currency and g.money is not None
        ]
        ran = [g for g in grains if g.side not in (Side.PLANNED, Side.METER) and _simply(g) is None and g.hours]
        self._in_gpus = bool(plan) and all(g.gpu_hours for g in (*plan, *ran))
        money: defaultdict[Place, Fraction] = defaultdict(Fraction)
        hours: defaultdict[Place, Fraction] = defaultdict(Fraction)
        for grain in plan:
            money[_place(grain)] += Fraction(grain.money or 0)
            hours[_place(grain)] += self._hours(grain)
        whole = sum(hours.values())
        self._average = sum(money.values()) / whole if whole else Fraction(0)
        self._at = {place: money[place] / hours[place] for place in money if hours[place]}

    def parts(self, grain: Grain, money: Decimal) -> Iterator[_Part]:
        """Price, quantity and mix; they add up to the money."""
        at, ran = self._at.get(_place(grain)), self.ran(grain)
        planned = money if at is None else rounded(self._hours(grain) * at, _PLACES)
        yield _Part(grain, grain.currency, Bucket.PRICE, "", added([money, planned.copy_negate()]))
        yield _Part(grain, grain.currency, Bucket.QUANTITY, "", ran)
        yield _Part(grain, grain.currency, Bucket.MIX, "", added([planned, ran.copy_negate()]))

    def ran(self, grain: Grain) -> Decimal:
        """Its hours at the plan's average rate."""
        return rounded(self._hours(grain) * self._average, _PLACES)

    def _hours(self, grain: Grain) -> Fraction:
        return Fraction((grain.gpu_hours if self._in_gpus else grain.hours) or 0)


def _place(grain: Grain) -> Place:
    return (grain.cloud, grain.region, grain.instance_type, grain.market)


def _by_attempt(grains: Sequence[Grain]) -> list[Grain]:
    """With the plan's grains handed to the attempts that used its hours up."""
    ran: defaultdict[str | None, Fraction] = defaultdict(Fraction)
    for grain in sorted(grains, key=lambda each: (each.start, each.attempt or "")):
        if grain.side in (Side.METERED, Side.BILLED) and _simply(grain) is None and grain.attempt is not None:
            ran[grain.attempt] += Fraction(grain.hours or 0)
    plan = [grain for grain in grains if grain.side is Side.PLANNED and grain.attempt is None]
    if not ran or not plan:
        return list(grains)
    left = sum((Fraction(grain.hours or 0) for grain in plan), Fraction(0))
    taken: list[Fraction] = []
    for hours in ran.values():
        taken.append(min(hours, left))
        left -= taken[-1]
    taken[-1] += left
    return [*(grain for grain in grains if grain not in plan), *_handed(plan, list(ran), taken)]


def _handed(plan: Sequence[Grain], attempts: Sequence[str | None], taken: Sequence[Fraction]) -> Iterator[Grain]:
    for grain in plan:
        money, hours, gpu_hours = (_shared(each, taken) for each in (grain.money, grain.hours, grain.gpu_hours))
        for at, attempt in enumerate(attempts):
            yield replace(grain, attempt=attempt, money=money[at], hours=hours[at], gpu_hours=gpu_hours[at])


def _shared(whole: Decimal | None, weights: Sequence[Fraction]) -> Sequence[Decimal | None]:
    return [None] * len(weights) if whole is None else split(whole, weights, _SHARED_PLACES)
