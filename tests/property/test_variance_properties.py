"""Whatever was planned, metered and billed: the reasons add up to the difference, to the last digit, in any groups."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.showback.apportion import exact_sum
from router.showback.reconcile.variance import (
    GROUPING_WORDS,
    FactAggregate,
    FactSide,
    VarianceBridge,
    VarianceBucket,
    compute_variances,
)

quick = settings(deadline=None, max_examples=150)
decimals = st.integers(-(10**31), 10**32).map(lambda n: Decimal(n).scaleb(-24, Context(prec=60)))
hours = st.none() | st.fractions(0, 1000, max_denominator=3600).map(
    lambda h: (Decimal(h.numerator) / Decimal(h.denominator)).quantize(Decimal("1e-18"))
)
grains = st.builds(
    FactAggregate,
    side=st.sampled_from(list(FactSide)),
    currency=st.sampled_from(["USD", "USD", "EUR"]),
    money=st.none() | decimals,
    hours=hours,
    gpu_hours=hours,
    category=st.sampled_from(["Usage", "Usage", "Usage", "Purchase", "Tax", "Credit", "Adjustment"]),
    corrected=st.sampled_from([False, False, False, True]),
    what=st.sampled_from(["machine", "machine", "machine", "disk"]),
    use=st.sampled_from([None, "work", "startup", "idle_allocated"]),
    team=st.sampled_from([None, "speech"]),
    project=st.none(),
    cost_center=st.none(),
    job=st.sampled_from([None, "asr", "tts"]),
    attempt=st.sampled_from([None, "a-1", "a-2"]),
    cloud=st.sampled_from(["aws", "gcp"]),
    region=st.just("us"),
    instance_type=st.sampled_from(["p5", "p4"]),
    market=st.sampled_from(["spot", "on_demand"]),
    accelerator=st.none(),
    start=st.integers(0, 100).map(lambda n: datetime(2026, 11, 3, tzinfo=UTC) + timedelta(hours=n)),
    rows=st.integers(1, 3),
)
months = st.lists(grains, max_size=20)


def money(found: list[FactAggregate], *sides: FactSide) -> defaultdict[str, Decimal]:
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for grain in found:
        if grain.side in sides and grain.money is not None:
            sums[grain.currency] = exact_sum([sums[grain.currency], grain.money])
    return sums


@pytest.mark.slow
@quick
@given(months, st.lists(st.sampled_from(GROUPING_WORDS), unique=True))
def test_the_bridge_has_no_remainder(month: list[FactAggregate], by: list[str]) -> None:
    found = compute_variances(month, by)
    for currency in ("USD", "EUR"):
        of_it = [each for each in found if each.currency == currency]
        assert exact_sum(each.planned for each in of_it) == money(month, FactSide.PLANNED)[currency]
        spent = money(month, FactSide.METERED, FactSide.ADDED, FactSide.BILLED)[currency]
        assert exact_sum(each.actual for each in of_it) == spent
        assert exact_sum(each.invoiced for each in of_it) == money(month, FactSide.BILLED)[currency]
        assert exact_sum(each.metered for each in of_it) == money(month, FactSide.METER)[currency]
    for each in found:
        of_kinds = {bucket: [v for (of, _), v in each.kinds.items() if of is bucket] for bucket in VarianceBucket}
        for bucket in (VarianceBucket.WASTE, VarianceBucket.UNPLANNED, VarianceBucket.CREDIT, VarianceBucket.TIMING):
            assert exact_sum(of_kinds[bucket]) == each.buckets[bucket]


@quick
@given(months, st.sampled_from(GROUPING_WORDS))
def test_groups_add_up_to_the_whole_in_every_bucket(month: list[FactAggregate], word: str) -> None:
    for currency in ("USD", "EUR"):
        parts = [each for each in compute_variances(month, [word]) if each.currency == currency]
        whole = [each for each in compute_variances(month, []) if each.currency == currency]
        for bucket in VarianceBucket:
            assert _sum(parts, bucket) == _sum(whole, bucket), bucket


@pytest.mark.slow
@quick
@given(months, st.randoms(use_true_random=False))
def test_order_does_not_matter(month: list[FactAggregate], random: Random) -> None:
    shuffled = list(month)
    random.shuffle(shuffled)
    assert compute_variances(shuffled, ["job"]) == compute_variances(month, ["job"])


lines = st.builds(
    FactAggregate,
    side=st.just(FactSide.PLANNED),
    currency=st.just("USD"),
    money=st.integers(1, 10**15).map(lambda nanos: Decimal(nanos).scaleb(-9)),
    hours=st.integers(1, 10**6).map(lambda n: Decimal(n).scaleb(-3)),
    job=st.sampled_from(["asr", "tts"]),
    cloud=st.sampled_from(["aws", "gcp"]),
    market=st.sampled_from(["spot", "on_demand"]),
    start=st.just(datetime(2026, 11, 3, tzinfo=UTC)),
)


@quick
@given(st.lists(lines, max_size=8))
def test_a_plan_that_came_true_has_no_variance(plan: list[FactAggregate]) -> None:
    for each in compute_variances(
        [*plan, *(replace(line, side=FactSide.BILLED, use="work") for line in plan)], ["job"]
    ):
        assert each.actual == each.planned == each.invoiced
        # Shares of hours are rounded at the 24th digit, and cancel.
        assert all(amount.copy_abs() < Decimal("1e-20") for amount in each.buckets.values())


def _sum(found: list[VarianceBridge], bucket: VarianceBucket) -> Decimal:
    return exact_sum(each.buckets[bucket] for each in found)
