"""What is held back: jumps against a recent price, markets that vanished; and what passes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market
from router.prices.merge import GateLimits, hold_back

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
YESTERDAY = date(2026, 11, 20)
OLD = Offer("aws", "us-east-1", None, "p5.48xlarge", Market.ON_DEMAND, UsdPerHour.parse(60), "x", YESTERDAY)
COVERED = frozenset({("aws", "us-east-1", Market.ON_DEMAND)})


def held(new: Offer | None, old: Offer = OLD, limits: GateLimits | None = None) -> list[str]:
    fetched = {} if new is None else {new.key: new}
    passed, out = hold_back(fetched, frozenset() if fetched else COVERED, {old.key: old}, NOW, limits or GateLimits())
    assert len(passed) + sum(h.key is not None for h in out) == len(fetched)
    return [h.gate for h in out]


def at(price: object) -> Offer:
    return replace(OLD, usd_per_hour=UsdPerHour.parse(str(price)), as_of=NOW.date())


@pytest.mark.parametrize(
    ("price", "gates"), [(60, []), (180, []), (20, []), ("180.01", ["price jump"]), (19, ["price jump"])]
)
def test_a_jump_is_more_than_the_factor_either_way(price: object, gates: list[str]) -> None:
    assert held(at(price)) == gates


def test_an_old_or_undated_price_is_nothing_to_compare_with() -> None:
    for as_of in (None, NOW.date() - timedelta(days=46)):
        assert held(at(600), replace(OLD, as_of=as_of)) == []
    assert held(at(600), replace(OLD, as_of=NOW.date() - timedelta(days=45))) == ["price jump"]


def test_a_market_that_sells_nothing_any_more_is_doubted() -> None:
    assert held(None) == ["region vanished"]


def test_a_market_that_was_not_seen_has_not_vanished() -> None:
    passed, out = hold_back({}, frozenset(), {OLD.key: OLD}, NOW, GateLimits())
    assert (passed, out) == ({}, ())


def test_accepting_switches_both_off() -> None:
    assert held(at(600), limits=GateLimits(accept=True)) == []
    assert held(None, limits=GateLimits(accept=True)) == []


def test_what_was_held_back_names_both_prices() -> None:
    new = at(600)
    _, (found,) = hold_back({new.key: new}, frozenset(), {OLD.key: OLD}, NOW, GateLimits())
    assert str(found) == ("aws/us-east-1 p5.48xlarge on_demand: 600.00 after 60.00 of 2026-11-20: more than 3 times up")
