"""Interruption rates of offers from a price history."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pricing.history import PricePoint
from pricing.offers import OfferKey
from pricing.places import Market
from pricing.risk import band_rate
from router.prices import history
from router.prices.pool_availability import estimate_interruption_rates, read_exposures
from tests.support.books import a_book, spot
from tests.support.price_points import START, a_point
from tests.support.repository import ROOT

PROBES = ROOT.parent / "shared" / "data" / "spot-availability" / "v100_aws_2023-02" / "available.csv"
OFFER = spot("30", zone="us-east-1a")
PRIOR = 0.1  # of tests.support.books
TWO_DAYS = timedelta(days=2)
NOW = START + TWO_DAYS
A_TICK = timedelta(minutes=20)


def probes(losses: int, ticks: int = 144, **changes: object) -> list[PricePoint]:
    """A probe every 20 minutes for two days; ``losses`` times it finds nothing."""
    missed = {10 * (i + 1) for i in range(losses)}
    return [
        replace(a_point(0, None, available=0.0 if i in missed else 0.25, **changes), at=START + i * A_TICK)
        for i in range(ticks)
    ]


def rate(losses: int, hours: float, prior: float = PRIOR) -> float:
    return (losses + prior * 24) / (hours + 24)


def rates(folder: Path, *offers: object, window: timedelta = TWO_DAYS) -> Mapping[OfferKey, float]:
    book = a_book(offers or (OFFER,))  # type: ignore[arg-type]
    return estimate_interruption_rates(folder, book, NOW, window)


def test_a_pool_that_was_watched_gets_its_own_rate(tmp_path: Path) -> None:
    history.append(tmp_path, probes(5))
    # 143 stretches of 20 minutes, five of which began with nothing
    assert rates(tmp_path) == {OFFER.key: pytest.approx(rate(5, 138 / 3))}


def test_only_spot_offers_of_the_very_pool(tmp_path: Path) -> None:
    history.append(tmp_path, probes(5))
    elsewhere = [
        replace(OFFER, zone=None),
        replace(OFFER, zone="us-east-1b"),
        replace(OFFER, market=Market.ON_DEMAND),
        replace(OFFER, region="eu-west-1"),
    ]
    assert rates(tmp_path, *elsewhere) == {}
    history.append(tmp_path, probes(3, zone=None))
    assert rates(tmp_path, *elsewhere) == {elsewhere[0].key: pytest.approx(rate(3, 140 / 3))}


def test_too_few_hours_say_nothing(tmp_path: Path) -> None:
    history.append(tmp_path, probes(0, ticks=72))  # 71 stretches: 23 h 40 min
    assert rates(tmp_path) == {}
    history.append(tmp_path, probes(0, ticks=73))
    assert rates(tmp_path) == {OFFER.key: pytest.approx(rate(0, 24))}
    assert rates(tmp_path, window=timedelta(days=1.5)) == {}


def test_looking_once_an_hour_is_not_watching(tmp_path: Path) -> None:
    history.append(tmp_path, [a_point(hours, None, available=1.0) for hours in range(48)])
    assert rates(tmp_path) == {}


def test_the_prior_is_the_band_where_there_is_one_and_never_a_stated_rate(tmp_path: Path) -> None:
    history.append(tmp_path, probes(1))
    banded = replace(OFFER, interruption_band="5-10%", interruptions_per_hour=77.0)
    assert rates(tmp_path, banded) == {OFFER.key: pytest.approx(rate(1, 142 / 3, band_rate("5-10%")))}
    stated = replace(OFFER, interruptions_per_hour=77.0, interruption_band="unheard of")
    assert rates(tmp_path, stated) == {OFFER.key: pytest.approx(rate(1, 142 / 3))}


def test_of_two_sources_the_one_that_watched_longer_counts(tmp_path: Path) -> None:
    history.append(tmp_path, [*probes(9, ticks=100, source="short"), *probes(2, source="long")])
    history.append(tmp_path, [a_point(hours, "20", source="prices") for hours in range(9)])
    seen = read_exposures(tmp_path, START, NOW)
    assert list(seen) == [OFFER.key]
    assert seen[OFFER.key].hours == pytest.approx(141 / 3)
    assert seen[OFFER.key].losses == 2


def test_without_history_or_prior_there_is_no_rate(tmp_path: Path) -> None:
    assert rates(tmp_path / "none") == {}
    history.append(tmp_path, probes(5))
    assert estimate_interruption_rates(tmp_path, replace(a_book([OFFER]), priors=()), NOW, TWO_DAYS) == {}
    assert rates(tmp_path, replace(OFFER, instance_type="p9.unheard-of")) == {}


def _public_probes() -> Iterator[PricePoint]:
    with PROBES.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            at = datetime.fromisoformat(row.pop("time_utc"))
            del row["tick"]
            for zone, found in row.items():
                yield replace(a_point(0, None, zone=zone, region=zone[:-1], available=float(found)), at=at)


@pytest.mark.slow
@pytest.mark.skipif(not PROBES.parent.is_dir(), reason="the shared data are not here")
def test_public_probes_through_the_store_fall_as_often_as_the_design_note_says(tmp_path: Path) -> None:
    history.append(tmp_path, _public_probes())
    span = history.summarize(tmp_path)
    assert span.first is not None
    assert span.last is not None
    pools = read_exposures(tmp_path, span.first, span.last + A_TICK)
    assert len(pools) == 9
    falls, hours = sum(p.losses for p in pools.values()), sum(p.hours for p in pools.values())
    # docs/design/005-interruption-priors.md: 0.35 an hour.
    assert (falls, round(falls / hours, 2)) == (960, 0.35)
