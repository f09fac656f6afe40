"""What goes wrong at a cloud costs what it touches: nothing is lost, nothing invented, each is named in the report.

Each case refreshes over a good book of the same cloud. Afterwards every offer of the good book is still there, and
every price is one that the cloud really asked; the report has the words of what went wrong.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from wsgiref.types import WSGIApplication

import pytest

from pricing.book import PriceBook
from pricing.book_file import embedded_book
from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market
from router.prices.bookstore import BookStore
from tests.support import aws_service, azure_service, azure_service_rows, gcp_service
from tests.support.clouds import NOW, Ran, clouds_file, command
from tests.support.service import in_thread

SMALL: Mapping[str, Mapping[str, Any]] = {
    "aws": {"regions": 2, "history_rows": 2_500, "history_days": 3, "now": NOW},
    "gcp": {"regions": 2, "cpu_types": 10, "skus": 2_000, "now": NOW},
    "azure": {"regions": 2, "price_rows": 300, "sku_rows": 80, "now": NOW},
}
APPS: Mapping[str, Callable[..., WSGIApplication]] = {
    "aws": aws_service.make_app,
    "gcp": gcp_service.make_app,
    "azure": azure_service.make_app,
}

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    """A fault of one cloud, and words that the report must have of it."""

    cloud: str
    fault: Mapping[str, Any]
    words: tuple[str, ...]
    code: int = 5

    def __str__(self) -> str:
        return f"{self.cloud} {self.fault['kind']} {self.fault['match']}".strip().replace(" ", "-")


SPOT = "DescribeSpotPriceHistory us-east-1"
GRAPH = "Microsoft.ResourceGraph"
CASES = (
    Case("aws", {"match": SPOT, "kind": "half_page", "after": 1}, ("unreadable answer", "us-east-1")),
    Case("aws", {"match": "GetProducts", "kind": "bad_json"}, ("unreadable answer",)),
    Case("aws", {"match": "us-west-2", "kind": "expired_token", "after": 2}, ("no valid credentials", "us-west-2")),
    Case("aws", {"match": "", "kind": "expired_token"}, ("no valid credentials",), 7),
    Case("aws", {"match": "DescribeSpotPriceHistory", "kind": "forbidden"}, ("not permitted",)),
    Case("aws", {"match": "us-west-2", "kind": "region_off"}, ("region not enabled", "us-west-2")),
    Case("aws", {"match": "us-east-1", "kind": "new_type"}, ("accelerator not known to the book",), 0),
    Case("aws", {"match": SPOT, "kind": "price_zero", "times": 1}, ("0",), 0),
    Case("aws", {"match": "GetProducts", "kind": "duplicate"}, ("price",), 0),
    Case("aws", {"match": "GetProducts", "kind": "currency"}, ("not in US dollars",), 0),
    Case("aws", {"match": "", "kind": "clock"}, ("clock is 10 min",), 0),
    Case("aws", {"match": "us-east-1", "kind": "drop_connection"}, ("us-east-1",)),
    Case("gcp", {"match": "skus", "kind": "half_page"}, ("unreadable answer",)),
    Case("gcp", {"match": "skus", "kind": "bad_json"}, ("unreadable answer",)),
    Case("gcp", {"match": "", "kind": "expired_token", "after": 3}, ("no valid credentials",)),
    Case("gcp", {"match": "us-central1", "kind": "new_type"}, ("accelerator that the price book does not know",), 0),
    Case("gcp", {"match": "H100", "kind": "price_zero"}, ("0",), 0),
    Case("gcp", {"match": "H100", "kind": "duplicate"}, ("price",), 0),
    Case("gcp", {"match": "H100", "kind": "currency"}, ("not in USD",), 0),
    Case("gcp", {"match": "PREEMPTION", "kind": "forbidden"}, ("shares of preempted Spot machines", "not permitted")),
    Case("gcp", {"match": "us-central1-a", "kind": "odd_share"}, ("not between 0 and 1",), 0),
    Case("gcp", {"match": "", "kind": "clock"}, ("clock is 10 min",), 0),
    Case("azure", {"match": "RetailPrices", "kind": "half_page", "after": 1}, ("unreadable answer",)),
    Case("azure", {"match": "RetailPrices", "kind": "bad_json", "after": 1}, ("unreadable answer",)),
    Case("azure", {"match": "", "kind": "expired_token", "after": 2}, ("no valid credentials",)),
    Case("azure", {"match": "australiacentral", "kind": "region_off"}, ("region not enabled",)),
    Case("azure", {"match": "australiacentral", "kind": "new_type"}, ("not in the price book",), 0),
    Case("azure", {"match": "RetailPrices", "kind": "price_zero"}, ("0",), 0),
    Case("azure", {"match": "RetailPrices", "kind": "duplicate"}, ("price",), 0),
    Case("azure", {"match": "RetailPrices", "kind": "currency"}, ("not in US dollars",), 0),
    Case("azure", {"match": GRAPH, "kind": "forbidden"}, ("eviction rates of spot machines", "not permitted")),
    Case("azure", {"match": GRAPH, "kind": "empty"}, ("eviction rates of spot machines", "SpotResources")),
    Case("azure", {"match": GRAPH, "kind": "odd_rate"}, ("an eviction rate that is not known",), 0),
    Case("azure", {"match": "", "kind": "clock"}, ("clock is 10 min",), 0),
)


def refreshed(home: Path, cloud: str, faults: list[Mapping[str, Any]]) -> Ran:
    app = APPS[cloud](**SMALL[cloud], faults=faults)
    with in_thread(app) as url:
        file = clouds_file(home, {cloud: url})
        more = ("--time-limit", "40s", "--now", NOW, "-o", "json")
        return command(home, "prices", "refresh", "--clouds", file, "--cloud", cloud, *more)


def book_of(home: Path) -> PriceBook:
    store = BookStore(home / "books")
    stored = store.latest()
    assert stored is not None
    return store.load(stored)


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """A home for each cloud with the book of a refresh in which nothing went wrong."""
    homes = {}
    for cloud in APPS:
        homes[cloud] = tmp_path_factory.mktemp(cloud)
        done = refreshed(homes[cloud], cloud, [])
        assert done.code == 0, done.out
    return homes


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_fault_costs_what_it_touches_and_is_named(case: Case, good: Mapping[str, Path], tmp_path: Path) -> None:
    home = tmp_path / "home"
    shutil.copytree(good[case.cloud], home)
    before = {offer.key: offer for offer in book_of(home).offers}
    done = refreshed(home, case.cloud, [case.fault])
    assert done.code == case.code, done.out
    report = next(cloud for cloud in done.json["clouds"] if cloud["cloud"] == case.cloud)
    said = str([report["failures"], report["dropped"], report["held_back"], done.json["warnings"]])
    for word in case.words:
        assert word in said
    after = {offer.key: offer for offer in book_of(home).offers}
    lost = [key for key in before if key not in after]
    invented = [key for key, offer in after.items() if key in before and offer.usd_per_hour != before[key].usd_per_hour]
    assert lost == []
    assert invented == []
    if case.fault["kind"] != "new_type":
        more = [offer for key, offer in after.items() if key not in before]
        assert [offer for offer in more if not _is_public_price(offer)] == []


def _is_public_price(offer: Offer) -> bool:
    """Without its account Azure still says what a region asks; of zones and restrictions nothing is known then."""
    names = sorted(r.id.region for r in embedded_book().regions if r.id.cloud == "azure")
    if offer.cloud != "azure" or offer.zone is not None or offer.region not in names:
        return False
    size = [row[0] for row in azure_service_rows.SIZES].index(offer.instance_type)
    asked = azure_service_rows.price(size, names.index(offer.region), spot=offer.market is Market.SPOT)
    return str(offer.usd_per_hour) == str(UsdPerHour.parse(asked))
