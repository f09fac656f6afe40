"""Whatever the facts are: the parts of every grouping are the whole, shared or not; the change is explained without
remainder; formats say the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.showback.apportion import subtract_known, sum_known
from router.showback.report.change import BUCKETS, ThingCost, explain_change
from router.showback.shared_costs import SharingMethod
from tests.support.showback_reports import exact_rows, report_of_rows

_WORDS = st.sampled_from([None, "a", "b", "=c", "ü/é"])
_MONEY = st.decimals(Decimal(-(10**6)), Decimal(10**6), places=6)
_STARTS = st.integers(-40 * 24, 28 * 24).map(lambda hours: datetime(2026, 11, 1, tzinfo=UTC) + timedelta(hours=hours))


@st.composite
def rows(draw: st.DrawFn) -> dict[str, Any]:
    start = draw(_STARTS)
    unpriced = draw(st.booleans()) and draw(st.booleans())
    hours = draw(st.integers(1, 72))
    return {
        "start": start, "end": start + timedelta(hours=hours), "month": f"{start:%Y-%m}", "unpriced": unpriced,
        "billed": None if unpriced else draw(_MONEY), "effective": None if unpriced else draw(_MONEY),
        "currency": draw(st.sampled_from(["USD", "EUR"])), "team": draw(_WORDS), "job": draw(_WORDS),
        "cloud": draw(_WORDS), "use": draw(st.sampled_from([None, "work", "startup", "idle_allocated"])),
        "category": draw(st.sampled_from(["Usage", "Usage", "Tax", "Credit"])), "hours": Decimal(hours),
        "source": draw(st.sampled_from(["metered", "billed", "planned"])), "unit": "Hours", "what": "machine",
        "on_demand": draw(st.none() | _MONEY), "attempt": draw(_WORDS), "quantity": Decimal(hours),
    }  # fmt: skip


def by_currency(report: Any, section: str, column: str) -> dict[str, Decimal | None]:
    found = list(report.section(section).records())
    return {
        currency: sum_known(row[column] for row in found if row["currency"] == currency)
        for currency in {row["currency"] for row in found}
    }


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    st.lists(rows(), min_size=1, max_size=12),
    st.sampled_from([("team",), ("job", "cloud"), ("use", "category", "team")]),
    st.sampled_from([SharingMethod.NONE, SharingMethod.EVEN, SharingMethod.WEIGHTED]),
)
def test_the_parts_of_a_grouping_are_the_whole(
    facts: list[dict[str, Any]], by: tuple[str, ...], how: SharingMethod
) -> None:
    report = report_of_rows(facts, by=by, share=how)
    spent = [fact for fact in facts if fact["source"] != "planned" and fact["month"] == "2026-11"]
    wanted: dict[str, Decimal | None] = {}
    for basis in ("billed", "effective"):
        wanted = {
            currency: sum_known(fact[basis] for fact in spent if fact["currency"] == currency)
            for currency in {fact["currency"] for fact in spent}
        }
        assert by_currency(report, "totals", basis) == wanted
        assert by_currency(report, "groups", basis) == wanted
    after = by_currency(report, "groups", "after")
    assert after == {currency: amount or Decimal(0) for currency, amount in wanted.items()}
    for row in report.section("coverage").records():
        assert sum_known((row["allocated"], row["unallocated"])) == after[str(row["currency"])]  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(rows(), min_size=1, max_size=12))
def test_what_changed_is_explained_without_remainder(facts: list[dict[str, Any]]) -> None:
    report = report_of_rows(facts)
    changes = by_currency(report, "change", "amount")
    for row in report.section("totals").records():
        if row["last_month"] is not None and row["effective"] is not None:
            assert changes[str(row["currency"])] == row["change"]


_KINDS = st.tuples(st.sampled_from("abc"))
_QUANTITIES = st.none() | st.decimals(Decimal("0.001"), Decimal(1000), places=3)
_THINGS = st.lists(
    st.builds(ThingCost, _KINDS, st.sampled_from(["Hours", "GB", None]), _MONEY, _QUANTITIES), max_size=8
)


@settings(max_examples=200, deadline=None)
@given(_THINGS, _THINGS)
def test_buckets_add_up(before: list[ThingCost], now: list[ThingCost]) -> None:
    found = explain_change(before, now)
    assert tuple(found) == BUCKETS
    first = sum_known(thing.cost for thing in before) or Decimal(0)
    assert sum_known(found.values()) == subtract_known(sum_known(thing.cost for thing in now) or Decimal(0), first)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.lists(rows(), min_size=1, max_size=8))
def test_every_format_has_the_same_sums(facts: list[dict[str, Any]]) -> None:
    report = report_of_rows(facts, by=("team", "cloud"))
    found = {form: dict(sections) for form, sections in exact_rows(report).items()}
    for section, column in (("totals", "effective"), ("groups", "billed"), ("waste", "effective"), ("days", "billed")):
        wanted = [row[column] for row in found["json"][section]]
        for form in ("csv", "parquet", "html", "xlsx"):
            assert [row.get(column, "") for row in found[form][section]] == wanted, (form, section)
