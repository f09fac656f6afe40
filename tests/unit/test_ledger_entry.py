"""What an entry of the ledger refuses to say."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from fractions import Fraction
from typing import Any

import pytest

from pricing.money import Usd, UsdPerHour
from router.ledger.entry import Kind, utc
from tests.support.state_values import HOUR, NOW, entry

_THERE = timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"start": NOW.astimezone(_THERE)}, "start is not in UTC"),
        ({"end": (NOW + HOUR).replace(tzinfo=None)}, "end is not in UTC"),
        ({"recorded_at": NOW.replace(tzinfo=None)}, "recorded_at is not in UTC"),
        ({"end": NOW}, "ends when it begins"),
        ({"end": NOW - HOUR}, "ends when it begins"),
        ({"hours": Fraction(-1, 10)}, "never negative"),
        ({"usd_per_hour": UsdPerHour(-1)}, "never negative"),
        ({"usd": Usd(-1)}, "never negative"),
        ({"kind": Kind.PLANNED, "machines": 0}, "never negative"),
        ({"attempt": ""}, "one machine of an attempt"),
        ({"rank": None}, "one machine of an attempt"),
        ({"machines": 2}, "one machine of an attempt"),
    ],
)
def test_it_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"k1: .*{why}"):
        entry(**change)


def test_a_planned_one_may_be_about_a_gang() -> None:
    assert entry(kind=Kind.PLANNED, attempt="", rank=None, machines=16).machines == 16


def test_the_same_moment_in_utc() -> None:
    assert utc(NOW.astimezone(_THERE)) == NOW
    assert utc(NOW.astimezone(_THERE)).tzinfo is UTC
