"""Three clouds, forty regions each, 200,000 rows of AWS price history; one cloud throttles, one fails half-way.

The services run in processes of their own. What the book must hold is worked out from what they sell.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

import pytest

from pricing.book import PriceBook
from pricing.book_file import embedded_book
from pricing.offers import is_stale
from pricing.places import Market
from router.prices.bookstore import BookStore
from tests.support.aws_service_world import LIST_SCALE, World, first_regions
from tests.support.azure_service_rows import SIZES, is_listed, is_restricted, price
from tests.support.busy import on_a_busy_machine
from tests.support.clouds import NOW, Ran, clouds_file, command_with_memory
from tests.support.service import in_process

REGIONS = 40
HISTORY_ROWS = 200_000
GOOD_PAGES = 40

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def ran(home: Path) -> Iterator[tuple[Ran, float, float]]:
    throttling = [{"match": "", "kind": "throttle", "times": 10, "retry_after": 1}]
    failing = [{"match": "RetailPrices", "kind": "error500", "after": GOOD_PAGES}]
    options = {
        "aws": {"regions": REGIONS, "history_rows": HISTORY_ROWS, "history_days": 7, "now": NOW},
        "gcp": {"regions": REGIONS, "now": NOW, "faults": throttling},
        "azure": {"regions": REGIONS, "now": NOW, "faults": failing},
    }
    with ExitStack() as stack:
        urls = {
            cloud: stack.enter_context(in_process(f"tests.support.{cloud}_service:make_app", given))
            for cloud, given in options.items()
        }
        file = clouds_file(home, urls)
        wanted = [word for cloud in urls for word in ("--cloud", cloud)]
        begin = time.monotonic()
        done, peak_mib = command_with_memory(
            home, "prices", "refresh", "--clouds", file, *wanted, "--now", NOW, "-o", "json"
        )
        yield done, time.monotonic() - begin, peak_mib


@pytest.fixture(scope="module")
def book(ran: tuple[Ran, float, float], home: Path) -> PriceBook:
    store = BookStore(home / "books")
    stored = store.latest()
    assert stored is not None
    return store.load(stored)


def test_it_ends_in_time_and_memory(ran: tuple[Ran, float, float]) -> None:
    done, seconds, peak_mib = ran
    assert done.code == 5, done.out + done.err
    assert seconds < on_a_busy_machine(60)
    assert peak_mib < 1024


def test_it_says_how_each_cloud_ended(ran: tuple[Ran, float, float]) -> None:
    clouds = {cloud["cloud"]: cloud for cloud in ran[0].json["clouds"]}
    assert {name: cloud["status"] for name, cloud in clouds.items()} == {
        "aws": "fresh",
        "gcp": "fresh",
        "azure": "partial",
    }
    assert (clouds["aws"]["scopes_done"], clouds["gcp"]["scopes_done"]) == (REGIONS, REGIONS)
    assert clouds["aws"]["rows_read"] >= HISTORY_ROWS
    assert clouds["gcp"]["retries"] >= 10
    assert any("HTTP 500" in failure["error"] for failure in clouds["azure"]["failures"])


def test_aws_has_every_zone_at_its_newest_price(book: PriceBook) -> None:
    world = World(first_regions(REGIONS), (), datetime.fromisoformat(NOW), HISTORY_ROWS, 7)
    newest: dict[tuple[str, str, str], str] = {}
    for region in world.regions:
        for _, kind, _, zone_id, text in world.history(region):  # newest first
            newest.setdefault((region, zone_id, kind), text)
    zones = {
        (o.region, o.zone, o.instance_type): o.usd_per_hour.dollars()
        for o in book.offers
        if o.cloud == "aws" and o.market is Market.SPOT and not is_stale(o)
    }
    assert len(zones) > 2000
    assert zones == {key: float(text) for key, text in newest.items()}
    listed = {
        (o.region, o.instance_type): o.usd_per_hour.dollars()
        for o in book.offers
        if o.cloud == "aws" and o.market is Market.ON_DEMAND and not is_stale(o)
    }
    for (region, kind), dollars in listed.items():
        assert dollars == world.list_price(region, kind) / LIST_SCALE


def test_azure_has_fresh_rows_where_it_answered_and_its_older_ones_elsewhere(book: PriceBook) -> None:
    names = sorted(r.id.region for r in embedded_book().regions if r.id.cloud == "azure")[:REGIONS]
    number = {name: index for index, name in enumerate(names)}
    size_of = {row[0]: index for index, row in enumerate(SIZES)}
    mine = [o for o in book.offers if o.cloud == "azure"]
    fresh = [o for o in mine if not is_stale(o)]
    stale = [o for o in mine if is_stale(o)]
    assert len(fresh) > 1000
    assert len(stale) > 100
    assert not {(o.region, o.market) for o in fresh} & {(o.region, o.market) for o in stale}
    for offer in fresh:
        region, size = number[offer.region], size_of[offer.instance_type]
        assert is_listed(size, region)
        assert not is_restricted(size, region)
        assert offer.usd_per_hour.dollars() == pytest.approx(
            float(price(size, region, spot=offer.market is Market.SPOT))
        )
    before = {o.key: o.usd_per_hour for o in embedded_book().offers}
    assert all(before[o.key] == o.usd_per_hour for o in stale)


def test_google_sums_the_parts_of_a_machine(book: PriceBook) -> None:
    """a3-highgpu-8g: 208 vCPUs, 1,872 GiB, eight H100 and 6,000 GiB of local disk by the month of 730 hours."""
    from tests.support.gcp_service_data import GPU_TYPES, PARTS, factor

    vcpus, mib, _, count, _ = GPU_TYPES["a3-highgpu-8g"]
    found = {
        o.region: o.usd_per_hour.dollars()
        for o in book.offers
        if (o.cloud, o.instance_type, o.market) == ("gcp", "a3-highgpu-8g", Market.SPOT) and not is_stale(o)
    }
    assert len(found) > 5
    kinds = {description: spot / 1e9 for description, _, _, spot in PARTS.values()}
    cpu = next(v for k, v in kinds.items() if k.startswith("A3") and "Core" in k)
    ram = next(v for k, v in kinds.items() if k.startswith("A3") and "Ram" in k)
    gpu = next(v for k, v in kinds.items() if "H100 80GB" in k and "Mega" not in k and "Plus" not in k)
    disk = PARTS["ssd"][3] / 1e9 * 6000 / 730
    for region, dollars in found.items():
        parts = vcpus * cpu + mib / 1024 * ram + count * gpu + disk
        assert dollars == pytest.approx(parts * factor(region) / 100, rel=1e-4)


def test_the_history_is_there_and_the_next_refresh_continues_it(ran: tuple[Ran, float, float], home: Path) -> None:
    from router.prices import history

    found = history.summarize(home / "history")
    assert found.rows >= HISTORY_ROWS
    assert ran[0].json["history_added"] == found.rows
