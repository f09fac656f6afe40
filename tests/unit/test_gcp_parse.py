"""Machine types and rates to offers: exact sums, nothing partial, every reason in words."""

from __future__ import annotations

from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any

import pytest

from pricing.book_file import embedded_book
from pricing.money import UsdPerHour
from pricing.places import Market
from providers.gcp.parse import find_offers, list_unpriced_accelerators
from providers.gcp.series import MACHINE_SERIES, find_series, is_sold
from providers.gcp.skus import SkuTable
from providers.protocol import FetchResult
from tests.support.gcp_service_data import GPU_TYPES, machine_types, new_types, sku_rows

TODAY = date(2026, 11, 21)
REGION = "us-central1"
BOOK = embedded_book()


def catalogue(*, without: str = "", change: dict[str, dict[str, Any]] | None = None) -> SkuTable:
    """The stand-in's catalogue of us-central1, without SKUs whose description starts with ``without``."""
    table = SkuTable(datetime(2026, 11, 21, tzinfo=UTC))
    rows = list(sku_rows([REGION], 200))
    for row in rows:
        for start, price in (change or {}).items():
            if row["description"].startswith(start):
                row["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"].update(price)
    table.add(row for row in rows if not (without and row["description"].startswith(without)))
    return table


def rows(name: str, **changes: Any) -> list[dict[str, Any]]:
    found = machine_types(REGION, f"{REGION}-a", 0, 0)
    return [{**row, **changes} for row in found if row["name"] == name]


def find(zones: dict[str, list[dict[str, Any]]], table: SkuTable | None = None) -> FetchResult:
    return find_all(zones, table or catalogue())[0]


def find_all(zones: dict[str, list[dict[str, Any]]], table: SkuTable) -> tuple[FetchResult, frozenset[Market]]:
    return find_offers("gcp", REGION, zones, table, BOOK, TODAY)


def prices(found: FetchResult) -> dict[tuple[str, Market], UsdPerHour]:
    return {(o.instance_type, o.market): o.usd_per_hour for o in found.offers}


def reasons(found: FetchResult) -> dict[str, str]:
    return {d.row: d.why for d in found.dropped}


def test_published_machine_prices_come_out_of_their_parts() -> None:
    """Parts and whole from different public sources; the whole as the embedded book has it, to its last digit."""
    names = ["a2-highgpu-1g", "a2-highgpu-8g", "a2-megagpu-16g", "a2-ultragpu-8g", "a3-highgpu-8g"]
    names += ["g2-standard-4", "g2-standard-96", "g4-standard-48", "g4-standard-384"]
    found = prices(find({f"{REGION}-a": [row for name in names for row in rows(name)]}))
    published = {
        o.instance_type: o.usd_per_hour
        for o in BOOK.offers
        if (o.cloud, o.region, o.market) == ("gcp", REGION, Market.ON_DEMAND)
    }
    for name in names:
        apart = abs(found[name, Market.ON_DEMAND].nanos - published[name].nanos)
        assert apart < 6_000, f"{name}: {found[name, Market.ON_DEMAND]} is not {published[name]}"


def test_the_sum_is_exact_and_rounded_once() -> None:
    found = prices(find({f"{REGION}-a": rows("a3-highgpu-8g")}))
    exact = 208 * 25_498_000 + 1872 * 2_220_342 + 8 * 9_796_550_569 + Fraction(6000 * 80_000_000, 730)
    assert found["a3-highgpu-8g", Market.ON_DEMAND].nanos == round(exact)


def test_memory_that_is_no_whole_gibibyte_is_paid_by_the_mebibyte() -> None:
    found = prices(find({f"{REGION}-a": rows("g2-standard-4", memoryMb=16385)}))
    exact = 4 * 24_990_000 + Fraction(16385, 1024) * 2_927_000 + 560_040_000
    assert found["g2-standard-4", Market.ON_DEMAND].nanos == round(exact)


def test_slices_are_the_whole_machine() -> None:
    found = prices(find({f"{REGION}-a": rows("a4-highgpu-8g")}))
    assert found == {("a4-highgpu-8g", Market.SPOT): UsdPerHour.parse("39.6336")}


@pytest.mark.parametrize(
    ("without", "part"),
    [("A3 Instance Core", "vCPU"), ("A3 Instance Ram", "RAM"), ("Nvidia H100 80GB GPU", "GPU"), ("SSD", "local SSD")],
)
def test_a_part_without_a_price_leaves_the_machine_without_one(without: str, part: str) -> None:
    found, doubtful = find_all({f"{REGION}-a": rows("a3-highgpu-8g")}, catalogue(without=without))
    assert ("a3-highgpu-8g", Market.ON_DEMAND) not in prices(found)
    assert reasons(found)[f"{REGION}/a3-highgpu-8g/on_demand"] == f"no price for its {part} in the region"
    assert doubtful == frozenset()


def test_an_unusable_part_price_puts_the_market_in_doubt() -> None:
    table = catalogue(change={"A3 Instance Core": {"units": "0", "nanos": 0}})
    found, doubtful = find_all({f"{REGION}-a": [*rows("a3-highgpu-8g"), *rows("a2-highgpu-1g")]}, table)
    assert ("a3-highgpu-8g", Market.ON_DEMAND) not in prices(found)
    assert ("a2-highgpu-1g", Market.ON_DEMAND) in prices(found)
    assert reasons(found)[f"{REGION}/a3-highgpu-8g/on_demand"] == "the price of its vCPU is not above 0"
    assert doubtful == {Market.ON_DEMAND}


def test_local_ssd_is_the_books_where_the_api_is_silent() -> None:
    """Older answers had no bundledLocalSsds: the machine costs the same."""
    silent = [{k: v for k, v in row.items() if k != "bundledLocalSsds"} for row in rows("a2-ultragpu-8g")]
    assert prices(find({f"{REGION}-a": silent})) == prices(find({f"{REGION}-a": rows("a2-ultragpu-8g")}))


def test_one_offer_for_each_zone_that_lists_the_type() -> None:
    g2, a2 = rows("g2-standard-4"), rows("a2-highgpu-1g")
    found = find({"us-central1-b": g2, "us-central1-a": [*g2, *a2], "us-central1-c": []})
    places = {(o.zone, o.instance_type) for o in found.offers}
    assert places == {
        ("us-central1-a", "g2-standard-4"),
        ("us-central1-b", "g2-standard-4"),
        ("us-central1-a", "a2-highgpu-1g"),
    }
    assert list(found.offers) == sorted(found.offers, key=lambda o: o.key)
    assert {(o.as_of, o.price_basis) for o in found.offers} == {(TODAY, "component-sum")}


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("g4-standard-6", {}, "holds part of an accelerator"),
        ("a3-edgegpu-8g", {}, "a series whose billing is not known"),
        ("a4x-maxgpu-4g-metal", {}, "an accelerator that the price book does not know"),
        ("g2-standard-4", {"deprecated": {"state": "OBSOLETE"}}, "withdrawn by Google"),
        ("g2-standard-4", {"guestCpus": "many"}, "a field that cannot be read"),
        ("g2-standard-4", {"memoryMb": 0}, "a field that cannot be read"),
        ("g2-standard-4", {"accelerators": [{}]}, "a field that cannot be read"),
        (
            "g2-standard-4",
            {"accelerators": [{"guestAcceleratorType": "nvidia-l4", "guestAcceleratorCount": 2}]},
            "other accelerators than the price book has for it",
        ),
    ],
)
def test_a_machine_type_that_cannot_be_used_is_named(name: str, changes: dict[str, Any], why: str) -> None:
    found = find({f"{REGION}-a": rows(name, **changes)})
    assert found.offers == ()
    assert reasons(found) == {f"{REGION}-a/{name}": why}


def test_what_cannot_be_started_on_demand_is_not_offered_so() -> None:
    """The catalogue has a price for it all the same."""
    found = find({f"{REGION}-a": [*rows("a3-ultragpu-8g"), *rows("a3-highgpu-1g"), *rows("a3-highgpu-8g")]})
    on_demand = {o.instance_type for o in found.offers if o.market is Market.ON_DEMAND}
    spot = {o.instance_type for o in found.offers if o.market is Market.SPOT}
    assert on_demand == {"a3-highgpu-8g"}
    assert spot == {"a3-ultragpu-8g", "a3-highgpu-1g", "a3-highgpu-8g"}
    assert "on demand" in reasons(found)[f"{REGION}/a3-ultragpu-8g/on_demand"]


def test_a_new_type_with_a_known_accelerator_becomes_a_machine() -> None:
    found = find({f"{REGION}-a": new_types(f"{REGION}-a")})
    assert reasons(found) == {f"{REGION}-a/a9-highgpu-8g": "an accelerator that the price book does not know"}
    (machine,) = found.machines
    assert (machine.instance_type, machine.accelerator, machine.accelerator_count) == ("a3-highgpu-16g", "H100", 16)
    assert (machine.vcpus, machine.memory_gib, machine.local_nvme_gib) == (416, 3744.0, 32 * 375)
    assert (machine.inter_node_gbps, machine.fabric, machine.checked) == (None, None, False)
    assert {o.instance_type for o in found.offers} == {"a3-highgpu-16g"}


def test_machines_of_the_book_keep_their_rows() -> None:
    assert find({f"{REGION}-a": rows("a3-highgpu-8g")}).machines == ()


def test_accelerators_for_n1_are_named_as_left_out() -> None:
    listed = ["nvidia-tesla-t4", "nvidia-tesla-t4-vws", "nvidia-l4", "nvidia-tesla-k80"]
    found = list_unpriced_accelerators("us-central1-a", listed, rows("g2-standard-4"))
    assert [d.row for d in found] == ["us-central1-a/nvidia-tesla-t4"]


def test_every_machine_type_of_the_book_has_a_known_series() -> None:
    """TPUs apart; and no series is shadowed by an earlier, shorter prefix."""
    names = [m.instance_type for m in BOOK.machines if m.cloud == "gcp" and not m.instance_type.startswith("tpu")]
    assert names
    assert all(find_series(name) for name in names)
    assert all(find_series(series.prefix) is series for series in MACHINE_SERIES)
    assert all(is_sold(series, 8, Market.SPOT) for series in MACHINE_SERIES)
    assert {name for name in GPU_TYPES if find_series(name) is None} == {"a3-edgegpu-8g", "a4x-maxgpu-4g-metal"}
