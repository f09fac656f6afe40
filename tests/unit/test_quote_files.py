"""Quotes on disk: whole, found by their first digits, never changed; what a history saw of single pools."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from pricing.places import Market
from pricing.problems import InvalidInputError
from router.app.quotes import HourlyWatchedPools
from router.app.stored_quotes import find_stored_quote, list_stored_quotes
from router.config.plan_files import (
    QuoteAcceptance,
    read_acceptance,
    read_quote,
    store_acceptance,
    store_quotes,
)
from router.prices import history
from router.prices.pool_availability import read_observations
from router.quotes.quote import Quote
from tests.support.asked_quotes import a_quote
from tests.support.price_points import START, a_point
from tests.support.scenes import NORTH, SOUTH, a_job


@pytest.fixture(scope="module")
def quotes() -> list[Quote]:
    return [a_quote(a_job(name, spot="never"), 24, [NORTH, SOUTH]) for name in ("a", "b")]


def test_what_is_kept_comes_back(tmp_path: Path, quotes: list[Quote]) -> None:
    folder = tmp_path / "new" / "quotes"
    assert list_stored_quotes(folder, None) == ()
    ids = store_quotes(folder, quotes)
    assert store_quotes(folder, quotes) == ids
    assert {each.name: each.quote for each in list_stored_quotes(folder, None)} == dict(zip(ids, quotes, strict=True))
    found = find_stored_quote(folder, None, ids[0])
    assert (found.name, found.quote) == (ids[0], quotes[0])
    assert find_stored_quote(folder, None, ids[1].removeprefix("quote-")[:6]).quote == quotes[1]
    assert sorted(p.name for p in folder.iterdir()) == sorted(f"{name}.json" for name in ids)


@pytest.mark.parametrize("name", ["", "quote-", "00", "zzzz", "../../etc/passwd", "quote-ffffffffffff"])
def test_a_name_that_names_none(tmp_path: Path, quotes: list[Quote], name: str) -> None:
    store_quotes(tmp_path, quotes)
    with pytest.raises(InvalidInputError, match=r"names no stored quote|is no id of a quote"):
        find_stored_quote(tmp_path, None, name)


def test_a_name_that_names_two(tmp_path: Path, quotes: list[Quote]) -> None:
    name, _ = store_quotes(tmp_path, quotes)
    (tmp_path / f"{name}0.json").write_bytes((tmp_path / f"{name}.json").read_bytes())
    with pytest.raises(InvalidInputError, match="names 2 quotes"):
        find_stored_quote(tmp_path, None, name)


def test_an_acceptance_lies_beside_the_quote(tmp_path: Path, quotes: list[Quote]) -> None:
    name, other = store_quotes(tmp_path, quotes)
    made = QuoteAcceptance(name, "2026-11-21T18:00:00Z", "mira@desk", "ab" * 32, "cd" * 32, "210.50")
    store_acceptance(tmp_path, made)
    assert read_acceptance(tmp_path, name) == made
    assert read_acceptance(tmp_path, other) is None
    assert [each.acceptance for each in list_stored_quotes(tmp_path, None) if each.acceptance is not None] == [made]
    (tmp_path / f"{name}.accepted.json").write_text("[]", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="is no acceptance"):
        read_acceptance(tmp_path, name)


def test_damage_is_named(tmp_path: Path, quotes: list[Quote]) -> None:
    name, _ = store_quotes(tmp_path, quotes)
    path = tmp_path / f"{name}.json"
    text = path.read_text(encoding="utf-8")
    for damage, words in (("{", "not JSON"), (text.replace("red", "blue"), "changed after"), ("{}", "is no quote")):
        path.write_text(damage, encoding="utf-8")
        with pytest.raises(InvalidInputError, match=words) as caught:
            read_quote(path)
        assert str(path) in caught.value.problems[0].where
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInputError, match="is not text"):
        read_quote(path)
    with pytest.raises(InvalidInputError, match="no such file"):
        read_quote(tmp_path / "none.json")


def test_looks_at_one_pool_by_who_looked_most(tmp_path: Path) -> None:
    points = [a_point(i / 6, None, available=float(i % 3 > 0), source="a prober") for i in range(12)]
    points += [a_point(i, None, available=1.0, source="a feed") for i in range(3)]
    points += [a_point(0.5, "3", available=None), a_point(0.5, None, available=1.0, market=Market.ON_DEMAND)]
    points += [a_point(0.5, None, available=1.0, zone="us-east-1b")]
    history.append(tmp_path, points)
    pool = ("aws", "us-east-1", "us-east-1a", "p5.48xlarge")
    other = ("aws", "us-east-1", "", "p5.48xlarge")
    found = read_observations(tmp_path, {pool, other}, START, START + timedelta(days=1))
    assert set(found) == {pool}
    assert [up for _, up in found[pool]] == [i % 3 > 0 for i in range(12)]
    assert found[pool][1][0] - found[pool][0][0] == timedelta(minutes=10)
    assert read_observations(tmp_path, {pool}, START + timedelta(days=40), START + timedelta(days=41)) == {}
    assert read_observations(tmp_path, set(), START, START + timedelta(days=1)) == {}


def test_who_runs_for_weeks_reads_anew_every_hour(tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(i / 6, None, available=float(i % 3 > 0)) for i in range(12)])
    pool, other = ("aws", "us-east-1", "us-east-1a", "p5.48xlarge"), ("aws", "us-east-1", "", "p5.48xlarge")
    now, told = [START + timedelta(minutes=50)], list[str]()
    pools = HourlyWatchedPools(tmp_path, lambda: now[0], told.append)
    assert pools({pool, other}) == {}  # as of the beginning of the hour nothing was seen
    now[0] = START + timedelta(minutes=70)
    assert pools({pool, other})[pool].watched_h == pytest.approx(1.0, abs=0.2)
    assert set(pools({other})) == set()
    now[0] = START + timedelta(hours=3)
    assert pools({pool})[pool].watched_h == pytest.approx(11 / 6)
    assert told == []
    for part in tmp_path.rglob("*.parquet"):
        part.write_bytes(b"no parquet")
    assert pools({pool})[pool].watched_h == pytest.approx(11 / 6)
    now[0] = START + timedelta(hours=4)
    assert pools({pool}) == {}
    assert pools({pool}) == {}
    assert len(told) == 1
    assert "never watched" in told[0]
