"""What changed between two books: moves, newcomers, what went."""

from __future__ import annotations

import json

from router.cli.prices import as_json, diff_as_text
from router.prices.books import diff_books
from tests.support.made_up_book import book, offer

PLACE = "aws/north-1"
BEFORE = book(
    [
        offer(PLACE, "p9.48xlarge", "spot", "20"),
        offer(PLACE, "p9.48xlarge", "on_demand", "40"),
        offer(PLACE, "p9.24xlarge", "spot", "10"),
        offer("gcp/lake-1", "a9-highgpu-8g", "spot", "30"),
    ]
)
AFTER = book(
    [
        offer(PLACE, "p9.48xlarge", "spot", "19"),
        offer(PLACE, "p9.48xlarge", "on_demand", "80"),
        offer(PLACE, "g9.48xlarge", "spot", "5"),
        offer("gcp/lake-1", "a9-highgpu-8g", "spot", "30"),
    ]
)


def test_the_largest_move_comes_first() -> None:
    found = diff_books(BEFORE, AFTER)
    assert [float(change.ratio) for change in found.changed] == [2.0, 0.95]
    assert [o.instance_type for o in found.added] == ["g9.48xlarge"]
    assert [o.instance_type for o in found.removed] == ["p9.24xlarge"]
    assert found.same == 1


def test_a_book_is_equal_to_itself() -> None:
    found = diff_books(AFTER, AFTER)
    assert (found.changed, found.added, found.removed, found.same) == ((), (), (), 4)


def test_one_cloud_alone() -> None:
    found = diff_books(BEFORE, AFTER, ["gcp"])
    assert (found.changed, found.same) == ((), 1)


def test_the_table_says_what_it_leaves_out() -> None:
    text = diff_as_text(diff_books(BEFORE, AFTER), 1)
    assert "+100.0%" in text
    assert "-5.0%" not in text
    assert "1 not shown" in text
    assert max(map(len, text.splitlines())) <= 80


def test_json_has_everything_and_exact_prices() -> None:
    document = json.loads(as_json(diff_books(BEFORE, AFTER)))
    assert document["changed"][0] | {} == {
        "cloud": "aws",
        "region": "north-1",
        "zone": None,
        "instance_type": "p9.48xlarge",
        "market": "on_demand",
        "usd_per_hour": "80.00",
        "usd_per_hour_before": "40.00",
        "ratio": 2.0,
    }
    assert document["before"]["digest"] == BEFORE.digest
