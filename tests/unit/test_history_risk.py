"""Records of interruptions by pool from a price history."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pricing.history import PricePoint
from pricing.offers import Offer
from pricing.places import Market
from pricing.pool_experience import HALF_LIFE, ExperienceKind, PoolExperience, memory_weight
from router.prices import history
from router.prices.pool_availability import LONGEST_GAP, read_exposures, read_pool_records
from tests.support.books import MACHINE, a_book, spot
from tests.support.price_points import START, a_point
from tests.support.repository import ROOT

PROBES = ROOT.parent / "shared" / "data" / "spot-availability" / "v100_aws_2023-02" / "available.csv"
OFFER = spot("30", zone="us-east-1a")
POOL = ("aws", "us-east-1", "us-east-1a", "p5.48xlarge", "spot")
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


def records(
    folder: Path, *offers: Offer, window: timedelta = TWO_DAYS, now: datetime = NOW
) -> Mapping[tuple[str, ...], PoolExperience]:
    found = read_pool_records(folder, a_book(offers or (OFFER,)), now, window)
    assert list(found) == sorted(found, key=lambda record: record.key)
    return {record.key: record for record in found}


def test_a_pool_that_was_watched_has_a_record(tmp_path: Path) -> None:
    """By hand: six lives, the first of 10 ticks, four of 9, the last of 93 until the last look."""
    history.append(tmp_path, probes(5))
    (record,) = records(tmp_path).values()
    assert (record.key, record.machines, record.kind) == (POOL, 1, ExperienceKind.AVAILABILITY)
    assert record.runs == 6
    assert (record.first_at, record.last_at) == (START, START + 143 * A_TICK)
    looks = [i for i in range(143) if i not in {10, 20, 30, 40, 50}]
    weight = {i: memory_weight(START + i * A_TICK, NOW) for i in looks}
    assert record.hours == pytest.approx(sum(weight.values()) / 3)
    assert record.interruptions == pytest.approx(sum(weight[i - 1] for i in (10, 20, 30, 40, 50)))
    born = {i: max(b for b in (0, 11, 21, 31, 41, 51) if b <= i) for i in looks}
    exposure = sum(w * math.log((0.6 + (i + 1 - born[i]) / 3) / (0.6 + (i - born[i]) / 3)) for i, w in weight.items())
    assert record.exposure == pytest.approx(exposure)


def test_what_is_older_counts_less(tmp_path: Path) -> None:
    history.append(tmp_path, probes(5))
    (new,) = records(tmp_path, window=timedelta(days=30)).values()
    (old,) = records(tmp_path, window=timedelta(days=30), now=NOW + HALF_LIFE).values()
    for older, newer in ((old.hours, new.hours), (old.exposure, new.exposure), (old.interruptions, new.interruptions)):
        assert older == pytest.approx(newer / 2)
    assert (old.runs, old.first_at, old.last_at) == (new.runs, new.first_at, new.last_at)


def test_every_watched_hour_counts_and_none_outside_the_window(tmp_path: Path) -> None:
    history.append(tmp_path, probes(0, ticks=2))
    (record,) = records(tmp_path).values()
    assert record.hours == pytest.approx(memory_weight(START, NOW) / 3)
    assert record.interruptions == 0
    assert records(tmp_path, window=timedelta(days=1)) == {}


def test_a_single_look_is_no_record(tmp_path: Path) -> None:
    history.append(tmp_path, probes(0, ticks=1))
    assert records(tmp_path) == {}


def test_looking_once_an_hour_is_not_watching(tmp_path: Path) -> None:
    assert timedelta(hours=1) > LONGEST_GAP
    history.append(tmp_path, [a_point(hours, None, available=1.0) for hours in range(48)])
    assert records(tmp_path) == {}


def test_pools_of_other_places_have_records_of_their_own(tmp_path: Path) -> None:
    """A pool counts without an offer too: it says something of those like it."""
    history.append(tmp_path, [*probes(5), *probes(3, zone=None), *probes(1, region="eu-west-1", zone="eu-west-1a")])
    found = records(tmp_path, replace(OFFER, zone="us-east-1b"))
    assert {pool[1:3]: record.runs for pool, record in found.items()} == {
        ("eu-west-1", "eu-west-1a"): 2,
        ("us-east-1", ""): 4,
        ("us-east-1", "us-east-1a"): 6,
    }
    assert [record.zone for record in found.values()] == ["eu-west-1a", None, "us-east-1a"]


def test_only_spot_pools_of_machines_and_clouds_that_the_book_knows(tmp_path: Path) -> None:
    history.append(tmp_path, [*probes(1, market=Market.ON_DEMAND), *probes(1, instance_type="p9.unheard-of")])
    history.append(tmp_path, probes(1, cloud="sandbox"))
    assert records(tmp_path) == {}
    of_sandbox = replace(a_book([OFFER]), machines=(MACHINE, replace(MACHINE, cloud="sandbox")))
    assert read_pool_records(tmp_path, of_sandbox, NOW, TWO_DAYS) == (), "the book sells nothing of the sandbox"


def test_of_two_sources_the_one_that_watched_longer_counts(tmp_path: Path) -> None:
    history.append(tmp_path, [*probes(9, ticks=100, source="short"), *probes(2, source="long")])
    history.append(tmp_path, [a_point(hours, "20", source="prices") for hours in range(9)])
    seen = read_exposures(tmp_path, START, NOW)
    assert list(seen) == [OFFER.key]
    assert seen[OFFER.key].hours == pytest.approx(141 / 3)
    assert seen[OFFER.key].losses == 2
    assert records(tmp_path)[POOL].runs == 3


def test_without_history_there_is_no_record(tmp_path: Path) -> None:
    assert records(tmp_path / "none") == {}


def test_a_record_moves_the_risk_of_its_pool_and_less_that_of_others(tmp_path: Path) -> None:
    history.append(tmp_path, probes(0))
    here, there = OFFER, replace(OFFER, region="eu-west-1", zone="eu-west-1a")
    before = a_book([here, there])
    after = replace(before, records=read_pool_records(tmp_path, before, NOW, TWO_DAYS))
    means = {
        (name, offer.region): book.risk.gang(offer, MACHINE, 1).hazard.mean
        for name, book in (("before", before), ("after", after))
        for offer in (here, there)
    }
    assert means["after", "us-east-1"] < means["after", "eu-west-1"] < means["before", "eu-west-1"]
    assert means["before", "us-east-1"] == means["before", "eu-west-1"]


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
    # docs/design/interruption-risk.md: 0.35 an hour.
    assert (falls, round(falls / hours, 2)) == (960, 0.35)
