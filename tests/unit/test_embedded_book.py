"""The embedded book is whole, and says of its figures what the facts said."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import date

import pytest

from pricing.book_check import check_book
from pricing.book_file import embedded_book
from pricing.offer_csv import WEAK_AZURE_SPOT, WEAK_LIST_ALL, WEAK_UNDATED
from pricing.offers import Offer
from pricing.places import Market, RegionId

BOOK = embedded_book()
BY_KEY = {offer.key: offer for offer in BOOK.offers}


def offer(cloud: str, region: str, instance_type: str, market: Market = Market.ON_DEMAND) -> Offer:
    return BY_KEY[cloud, region, "", instance_type, market.value]


def test_it_passes_every_check() -> None:
    check_book(BOOK)
    assert BOOK.as_of.isoformat() == "2026-11-21T00:00:00+00:00"


def test_it_holds_every_figure() -> None:
    # Less 143 and 28 rows of the table that no cloud sells (pricing/sale_rules.py).
    assert Counter(o.market for o in BOOK.offers) == {Market.ON_DEMAND: 1409, Market.SPOT: 675}
    sizes = (BOOK.machines, BOOK.accelerators, BOOK.regions)
    assert [len(table) for table in sizes] == [155, 20, 172]
    assert sum(len(t.tiers) for t in BOOK.tariffs) == 190
    on_demand = Counter(o.cloud for o in BOOK.offers if o.market is Market.ON_DEMAND)
    assert on_demand == {"azure": 449, "gcp": 347, "lambda": 306, "aws": 187, "runpod": 84, "nebius": 21, "verda": 15}


@pytest.mark.parametrize(
    ("cloud", "region", "instance_type", "price"),
    [
        ("gcp", "us-central1", "a3-highgpu-8g", "88.49"),
        ("aws", "us-east-1", "p5.48xlarge", "55.04"),
        ("azure", "eastus", "Standard_ND96isr_H100_v5", "98.32"),
    ],
)
def test_known_prices(cloud: str, region: str, instance_type: str, price: str) -> None:
    found = offer(cloud, region, instance_type).usd_per_hour
    assert abs(found.dollars() - float(price)) < 0.005


def test_aws_spot_is_the_median_of_the_zones() -> None:
    spot = offer("aws", "ap-northeast-1", "p4d.24xlarge", Market.SPOT)
    assert (str(spot.usd_per_hour), spot.price_basis, spot.zone) == ("18.80915", "az-spot-median", None)
    assert (spot.as_of, spot.not_before) == (date(2025, 11, 18), True)


def test_every_figure_has_a_source_and_a_date_or_is_weak() -> None:
    for o in BOOK.offers:
        assert o.source
        assert o.as_of is not None or WEAK_UNDATED in o.weak
        assert o.machines_cap is None
    for table in (BOOK.machines, BOOK.accelerators, BOOK.regions, BOOK.tariffs, BOOK.priors):
        for row in table:
            assert row.source, row
            assert row.as_of, row
    for tariff in BOOK.tariffs:
        assert tariff.as_of != "undated" or "undated" in tariff.weak


def test_what_is_weak_is_marked() -> None:
    for o in BOOK.offers:
        if o.cloud == "azure":
            assert (WEAK_AZURE_SPOT in o.weak) == (o.market is Market.SPOT)
        if o.cloud in {"lambda", "runpod"}:
            assert WEAK_LIST_ALL in o.weak
        if o.price_basis == "advisor-savings":
            assert o.market is Market.SPOT
            assert "savings" in o.weak
    assert offer("gcp", "us-central1", "a3-highgpu-8g").weak == ""


def test_unknown_is_not_zero() -> None:
    machine = BOOK.machine("lambda", "gpu_8x_h100_sxm5")
    assert machine is not None
    assert machine.inter_node_gbps is None
    south = BOOK.region(RegionId("lambda", "europe-south-1"))
    assert south is not None
    assert (south.country, south.residency_group, south.grid_carbon_gco2_per_kwh) == (None, None, None)


def test_loading_needs_no_heavy_library() -> None:
    """Start-up stays quick: only Parquet files need pandas, pyarrow or pydantic."""
    heavy = "'pandas', 'pyarrow', 'numpy', 'pydantic'"
    code = (
        "import sys; from pricing.book_file import embedded_book; embedded_book();"
        f"sys.exit(','.join(m for m in ({heavy}) if m in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
