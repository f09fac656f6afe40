"""What has to be moved for a job to use a region, and when its cost is unknown."""

from __future__ import annotations

from typing import Any

import pytest

from pricing.book import PriceBook
from pricing.money import Usd
from pricing.places import Region, RegionId
from router.jobs.spec import Job
from router.planning.find.transfers import (
    Transfer,
    UnknownTariff,
    cap_exceeded,
    checkpoint_home,
    checkpoint_transfer,
    transfers_into,
)
from tests.support.made_up_book import book
from tests.support.narrowed import present, typed
from tests.support.scenes import NORTH, RUNNING_IN_NORTH, a_job

GIB = 2**30
BOOK: PriceBook = book([NORTH])
DATA: dict[str, Any] = {"uri": "s3://a/b", "at": "aws/north-1", "gib": 100}


def region(name: str) -> Region:
    return present(BOOK.region(RegionId.parse(name)))


def into(job: Job, name: str) -> tuple[Transfer, ...]:
    return typed(tuple, transfers_into(job, region(name), BOOK))


def test_a_job_without_data_moves_nothing() -> None:
    assert into(a_job(), "gcp/lake-1") == ()


def test_data_are_copied_once_and_not_within_their_region() -> None:
    job = a_job(data=DATA)
    assert into(job, "aws/north-1") == ()
    (copy,) = into(job, "aws/south-1")
    assert (copy.what, copy.source, copy.volume_bytes, copy.gib) == ("data", RegionId("aws", "north-1"), 100 * GIB, 100)
    assert copy.tariff.scope == "inter-region same continent"
    assert copy.dearest == Usd.parse("2.147483648")  # 107.3741824 GB at $0.02
    assert not copy.free


def test_another_region_of_the_same_cloud_is_not_free_and_another_cloud_pays_internet() -> None:
    job = a_job(data=DATA)
    assert [into(job, name)[0].tariff.scope for name in ("aws/alps-1", "gcp/lake-1")] == [
        "inter-region cross-continent",
        "internet",
    ]


def test_copies_that_are_there_already_are_not_moved_again() -> None:
    job = a_job(data=DATA, status={"data_in": ["aws/south-1"]})
    assert into(job, "aws/south-1") == ()
    assert len(into(job, "aws/alps-1")) == 1


def test_streams_are_read_as_often_as_they_are_passed_for_what_is_left() -> None:
    stream = {**DATA, "mode": "stream", "passes": 3}
    assert into(a_job(data=stream), "aws/south-1")[0].volume_bytes == 300 * GIB
    later = a_job(steps=300, data=stream, status={"steps_done": 100, "data_in": ["aws/south-1"]})
    assert [(t.what, t.volume_bytes) for t in into(later, "aws/south-1")] == [("stream", 200 * GIB)]


def test_a_checkpoint_moves_from_where_it_lies_once_there_is_one() -> None:
    begun = a_job(status={"steps_done": 100, "running": RUNNING_IN_NORTH})
    assert checkpoint_home(begun) == RegionId("aws", "north-1")
    assert [(t.what, t.gib) for t in into(begun, "aws/south-1")] == [("checkpoint", 10)]
    assert into(begun, "aws/north-1") == ()
    stored = a_job(status={"steps_done": 100, "running": RUNNING_IN_NORTH, "checkpoint_in": "gcp/lake-1"})
    assert checkpoint_home(stored) == RegionId("gcp", "lake-1")
    fresh = a_job(status={"steps_done": 0, "checkpoint_in": "gcp/lake-1"})
    assert into(fresh, "aws/south-1") == ()
    assert checkpoint_home(a_job()) is None
    without = a_job(checkpoint=None, status={"steps_done": 100, "running": RUNNING_IN_NORTH})
    assert into(without, "aws/south-1") == ()


def test_no_bytes_are_no_move() -> None:
    assert into(a_job(data={**DATA, "gib": 0}), "gcp/lake-1") == ()


def test_an_unknown_tariff_is_said_and_never_zero() -> None:
    job = a_job(data={**DATA, "at": "azure/fjord-1"})
    unknown = typed(UnknownTariff, transfers_into(job, region("aws/north-1"), BOOK))
    assert unknown.reason == "no known egress tariff from azure/fjord-1 to aws/north-1"
    with pytest.raises(LookupError, match="no known egress tariff from azure/fjord-1"):
        checkpoint_transfer(a_job(), RegionId("azure", "fjord-1"), RegionId("aws", "north-1"), BOOK)


def test_storage_that_is_no_region_has_its_own_tariff() -> None:
    (copy,) = into(a_job(data={**DATA, "at": "cloudflare-r2/auto"}), "aws/north-1")
    assert copy.free
    assert copy.dearest == Usd(0)


def test_a_checkpoint_between_two_regions() -> None:
    moved = present(checkpoint_transfer(a_job(), RegionId("aws", "north-1"), RegionId("aws", "south-1"), BOOK))
    assert (moved.what, moved.gib) == ("checkpoint", 10)
    assert checkpoint_transfer(a_job(checkpoint=None), moved.source, moved.source, BOOK) is None


@pytest.mark.parametrize(
    ("cap", "words"),
    [
        ({"gib": 100}, None),
        ({"gib": 99}, "egress cap: 100 GiB to move, 99 allowed"),
        ({"usd": "$2.15"}, None),
        ({"usd": "$2.14"}, "egress cap: $2.15 to move, $2.14 allowed"),
    ],
)
def test_the_cap_counts_volume_and_dollars_at_the_dearest_tier(cap: dict[str, Any], words: str | None) -> None:
    job = a_job(data={**DATA, "egress_cap": cap})
    assert cap_exceeded(job, into(job, "aws/south-1")) == words


def test_without_a_cap_nothing_is_too_much() -> None:
    job = a_job(data={**DATA, "gib": 10**6})
    assert cap_exceeded(job, into(job, "gcp/lake-1")) is None
    assert cap_exceeded(a_job(), ()) is None
