"""What no cloud sells comes into no price book, whichever way it is offered."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from pricing.book import PriceBook
from pricing.book_file import embedded_book, write_book
from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market
from pricing.sale_rules import SALE_RULES, explain_unsold, find_sale_rule
from providers.protocol import FetchResult
from router.config.catalogue_files import read_catalogue
from router.prices.books import load_book
from router.prices.bookstore import BookStore
from router.prices.merge import GateLimits, drop_unsold
from router.prices.refresh import import_book, load_base_book

NOW = datetime(2026, 11, 22, tzinfo=UTC)
# As Google's, AWS's and Azure's own price lists name them, and nobody can start them so.
UNSOLD = (
    ("gcp", "us-central1", "a3-highgpu-1g", Market.ON_DEMAND),
    ("gcp", "us-central1", "a3-highgpu-4g", Market.ON_DEMAND),
    ("gcp", "us-central1", "a3-ultragpu-8g", Market.ON_DEMAND),
    ("azure", "eastus", "Standard_NC24rs_v3", Market.ON_DEMAND),
    ("azure", "eastus", "Standard_NC6s_v3", Market.SPOT),
)
SOLD = (
    ("gcp", "us-central1", "a3-highgpu-8g", Market.ON_DEMAND),
    ("gcp", "us-central1", "a3-highgpu-1g", Market.SPOT),
    ("gcp", "us-central1", "a3-ultragpu-8g", Market.SPOT),
    ("aws", "us-east-1", "p5.48xlarge", Market.ON_DEMAND),
    ("azure", "eastus", "Standard_NC24ads_A100_v4", Market.ON_DEMAND),
)


def offers(rows: Iterable[tuple[str, str, str, Market]]) -> tuple[Offer, ...]:
    price, day = UsdPerHour.parse("9.99"), NOW.date()
    return tuple(Offer(c, region, None, kind, market, price, "a list", day) for c, region, kind, market in rows)


def mixed() -> PriceBook:
    return replace(embedded_book(), offers=offers((*UNSOLD, *SOLD)))


def bought(book: PriceBook) -> set[tuple[str, str, str, Market]]:
    return {(o.cloud, o.region, o.instance_type, o.market) for o in book.offers}


def test_the_embedded_book_has_none() -> None:
    book = embedded_book()
    assert book.sold_only() is book
    small = {o.market for o in book.offers if o.instance_type in ("a3-highgpu-1g", "a3-highgpu-2g", "a3-ultragpu-8g")}
    assert small == {Market.SPOT}


@pytest.mark.parametrize(
    ("cloud", "kind", "accelerators", "markets"),
    [
        ("gcp", "a4x-highgpu-4g", 4, set()),
        ("gcp", "a4-highgpu-8g", 8, {Market.SPOT}),
        ("aws", "p5e.48xlarge", 8, {Market.SPOT}),
        ("aws", "p5en.48xlarge", 8, {Market.SPOT, Market.ON_DEMAND}),
        ("aws", "p6e-gb200.36xlarge", 4, set()),
        ("azure", "Standard_NC24s_v3", 4, set()),
        ("lambda", "a3-ultragpu-8g", 8, {Market.SPOT, Market.ON_DEMAND}),
    ],
)
def test_markets_of_a_type(cloud: str, kind: str, accelerators: int, markets: set[Market]) -> None:
    found = {m for m in (Market.SPOT, Market.ON_DEMAND) if not explain_unsold(cloud, kind, accelerators, m)}
    assert found == markets
    assert explain_unsold(cloud, kind, accelerators, Market.RESERVED) == ""


def test_no_rule_is_hidden_behind_another() -> None:
    assert all(find_sale_rule(rule.cloud, rule.prefix) is rule for rule in SALE_RULES)
    assert all(rule.why and rule.source for rule in SALE_RULES)


def test_harvests_of_any_adapter_lose_them_by_name() -> None:
    found = drop_unsold(FetchResult(offers=mixed().offers), embedded_book())
    assert {(o.cloud, o.region, o.instance_type, o.market) for o in found.offers} == set(SOLD)
    assert {dropped.row for dropped in found.dropped} == {"/".join(map(str, row[1:])) for row in UNSOLD}
    assert drop_unsold(found, embedded_book()) is found


def test_a_stored_book_and_a_file_lose_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPFARE_HOME", str(tmp_path))
    store = BookStore(tmp_path / "books")
    with store.lock():
        stored = store.commit(mixed())
    write_book(mixed(), tmp_path / "mine.parquet")
    for name in ("latest", stored.digest[:12], str(tmp_path / "mine.parquet")):
        assert bought(load_book(name)) == set(SOLD), name
    assert bought(load_base_book(store)[0]) == set(SOLD)


VMS = """\
InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice
a3-highgpu-1g,26,234,H100,1,,us-central1,us-central1-a,11.06,4.1
a3-highgpu-8g,208,1872,H100,8,,us-central1,us-central1-a,88.49,30.2
a3-ultragpu-8g,224,2952,H200,8,,us-central1,us-central1-b,84.81,31.5
"""
OWN = """\
cloud,region,instance_type,accelerator,accelerator_count,accelerator_memory_gib,vcpus,memory_gib,\
on_demand_usd_per_hour,spot_usd_per_hour,interruption_band,zones,source,as_of,\
price_basis,spot_median_usd_per_hour,spot_as_of
gcp,us-central1,a3-highgpu-1g,H100,1,80,26,234,11.06,4.1,,,mine,2026-11-21,list,,2026-11-21
gcp,us-central1,a3-highgpu-8g,H100,8,80,208,1872,88.49,30.2,,,mine,2026-11-21,list,,2026-11-21
gcp,us-central1,a3-ultragpu-8g,H200,8,141,224,2952,84.81,31.5,,,mine,2026-11-21,list,,2026-11-21
"""


@pytest.mark.parametrize(("name", "text"), [("vms.csv", VMS), ("own.csv", OWN)])
def test_imported_catalogues_lose_them_by_name(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    store = BookStore(tmp_path / "books")
    day = date(2026, 11, 21) if text is VMS else None
    found = read_catalogue(tmp_path / name, embedded_book(), NOW.date(), cloud="gcp", as_of=day)
    done = import_book(found, store, NOW, GateLimits(accept=True), replacing=True)
    latest = store.load(done.stored)
    assert latest.sold_only() is latest
    assert any(o.instance_type == "a3-highgpu-8g" and str(o.usd_per_hour) == "88.49" for o in latest.offers)
    told = {row.why: row.count for row in done.dropped}
    assert sum(count for why, count in told.items() if why.startswith("sold as Spot")) == 2
