"""Whatever bills and metering say: no money appears or disappears, no second is there twice, order does not matter."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.showback.facts import define_macros
from tests.support.reconciled import actual

START = datetime(2026, 11, 3, tzinfo=UTC)
AMOUNTS = ("billed", "effective", "list", "on_demand", "quantity")
MEASURES = ("hours", "gpu_hours", "useful", "lost")
_WIDE = Context(prec=60)


def money(places: int) -> st.SearchStrategy[Decimal | None]:
    units = st.integers(-(10 ** (places + 3)), 10 ** (places + 4))
    return st.none() | units.map(lambda n: Decimal(n).scaleb(-places, _WIDE))


moments = st.integers(0, 60 * 48).map(lambda minutes: START + timedelta(minutes=minutes))
words = {
    "resource": st.sampled_from([None, "i-1", "i-2", "arn:x/i-2", "i-3"]),
    "job": st.sampled_from([None, "asr", "tts"]),
    "team": st.sampled_from([None, "speech"]),
    "instance_type": st.sampled_from([None, "p5", "p4"]),
    "region": st.sampled_from([None, "us-east-1"]),
    "what": st.sampled_from(["machine", "machine", "disk"]),
    "attempt": st.sampled_from([None, "a-1", "a-2"]),
}


@st.composite
def periods(draw: st.DrawFn, least: int) -> dict[str, datetime]:
    start = draw(moments)
    return {"start": start, "end": start + timedelta(minutes=draw(st.integers(least, 600)))}


@st.composite
def metered(draw: st.DrawFn) -> dict[str, Any]:
    amounts = {
        name: draw(st.none() | st.integers(0, 10**15).map(lambda n: Decimal(n).scaleb(-9)))
        for name in ("billed", "effective", "on_demand", *MEASURES)
    }
    use = draw(st.sampled_from([None, "work", "startup"]))
    return {"source": "metered", "use": use, **amounts, **draw(periods(1)), **draw(st.fixed_dictionaries(words))}


@st.composite
def billed(draw: st.DrawFn) -> dict[str, Any]:
    category = draw(st.sampled_from(["Usage", "Usage", "Usage", "Tax", "Credit"]))
    money_of = {name: draw(money(24 if name == "billed" else 9)) for name in AMOUNTS[:-1]}
    said = {"quantity": draw(money(12)), "category": category, "state": "Invoiced"}
    origin = draw(st.sampled_from(["bill-1", "bill-2"]))
    least = draw(st.sampled_from([0, 1]))
    whose = draw(st.fixed_dictionaries(words))
    return {"source": "billed", "origin": origin, **money_of, **said, **draw(periods(least)), **whose}


months = st.tuples(st.lists(metered(), max_size=8), st.lists(billed(), max_size=10)).map(
    lambda both: [{**row, "row": number} for rows in both for number, row in enumerate(rows, 1)]
)
quick = settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])


def total(values: list[Decimal | None]) -> Decimal | None:
    known = [value for value in values if value is not None]
    return reduce(_WIDE.add, known) if known else None


@pytest.mark.slow
@quick
@given(months)
def test_the_pieces_of_each_row_are_the_row(rows: list[dict[str, Any]]) -> None:
    pieces: defaultdict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in actual(rows):
        if row["source"] == "billed":
            pieces[row["origin"], row["row"]].append(row)
    for row in (row for row in rows if row["source"] == "billed"):
        found = pieces.pop((row["origin"], row["row"]))
        for name in AMOUNTS[:-2] + AMOUNTS[-1:]:
            assert total([each[name] for each in found]) == row[name], name
        if row["on_demand"] is not None:
            assert total([each["on_demand"] for each in found]) == row["on_demand"]
    assert not pieces


@pytest.mark.slow
@quick
@given(months)
def test_each_metered_second_is_covered_once_or_stays(rows: list[dict[str, Any]]) -> None:
    stretches = [{**row, "key": str(row["row"])} for row in rows if row["source"] == "metered"]
    found = actual([*stretches, *(row for row in rows if row["source"] == "billed")])
    for row in stretches:
        pieces = [each for each in found if each["key"] == row["key"]]
        for name in MEASURES:
            assert total([each[name] for each in pieces]) == row[name], name
        left = sorted((each["start"], each["end"]) for each in pieces if each["source"] == "metered")
        assert all(before[1] < after[0] for before, after in pairwise(left))
        covered = [
            (each["start"], each["end"]) for each in pieces if each["source"] == "billed" and each["use"] == row["use"]
        ]
        edges = sorted({row["start"], row["end"], *(edge for pair in (*left, *covered) for edge in pair)})
        for begin, end in pairwise(edges):
            in_left = any(a <= begin and end <= b for a, b in left)
            assert in_left or any(a <= begin and end <= b for a, b in covered)


@pytest.mark.slow
@quick
@given(months, st.randoms(use_true_random=False))
def test_order_does_not_matter(rows: list[dict[str, Any]], random: Any) -> None:
    shuffled = random.sample(rows, len(rows))
    assert Counter(map(repr, actual(shuffled))) == Counter(map(repr, actual(rows)))


@pytest.mark.slow
@quick
@given(
    st.integers(-(10**40), 10**40).map(lambda n: Decimal(n % (10**37)).scaleb(-24, _WIDE)),
    st.lists(st.integers(0, 10**18), min_size=2, max_size=9),
)
def test_a_row_is_spread_by_the_largest_remainder(amount: Decimal, nanos: list[int]) -> None:
    stretches = [
        {
            "start": START + timedelta(minutes=n),
            "end": START + timedelta(minutes=n + 1),
            "resource": "i-1",
            "key": str(n),
            "billed": Decimal(each).scaleb(-9),
        }
        for n, each in enumerate(nanos)
    ]
    row = {"source": "billed", "start": START, "end": START + timedelta(hours=1), "resource": "i-1", "billed": amount}
    weights = nanos if any(nanos) else [1] * len(nanos)
    pieces = [each["billed"] for each in actual([*stretches, row])]
    assert total(pieces) == amount
    for piece, weight in zip(pieces, weights, strict=True):
        share = Fraction(amount) * weight / sum(weights)
        grain = Fraction(1, 10**12) if Fraction(amount) % Fraction(1, 10**12) == 0 else Fraction(1, 10**24)
        assert abs(Fraction(piece) - share) < grain


whole_numbers = st.integers(0, 37).flatmap(lambda digits: st.integers(-(10**digits), 10**digits))


@pytest.mark.slow
@quick
@given(st.lists(st.tuples(whole_numbers, st.integers(1, 2**63 - 1) | st.integers(1, 1000)), min_size=200, max_size=200))
def test_exact_arithmetic_is_that_of_whole_numbers(pairs: list[tuple[int, int]]) -> None:
    # Quotients near a whole number are those that a division by doubles gets wrong.
    pairs += [(near, divisor) for number, divisor in pairs for near in _multiples(number, divisor)]
    with duckdb.connect() as connection:
        define_macros(connection)
        values = ", ".join(f"({number}::HUGEINT, {divisor}::HUGEINT)" for number, divisor in pairs)
        found = connection.sql(
            "SELECT v, d, rc_divided(v, d) AS quotient, rc_money_units(rc_money(v)) AS money, "
            f"rc_amount_units(rc_amount(v)) AS amount FROM (VALUES {values}) numbers(v, d)"
        ).fetchall()
    for number, divisor, quotient, of_money, of_amount in found:
        assert quotient == abs(number) // divisor * (1 if number > 0 else -1)
        assert of_money == of_amount == number


def _multiples(number: int, divisor: int) -> list[int]:
    multiple = number // divisor * divisor
    return [multiple + step for step in (-1, 0, 1, divisor - 1) if abs(multiple + step) < 10**38]
