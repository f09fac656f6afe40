"""gpuhunt's catalogue as offers. The rows are written by gpuhunt's own writer and checked by its own reader."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, date, datetime

import pytest
from gpuhunt import AcceleratorVendor, CatalogItem
from gpuhunt._internal import storage

from pricing.book_file import embedded_book
from pricing.offer_csv import WEAK_LIST_ALL, WEAK_UNDATED
from pricing.places import Market
from providers.neoclouds.clouds import load_catalogue_entries
from providers.neoclouds.parse.catalogue import NamingRule, read_catalogue
from providers.neoclouds.parse.catalogue_rows import FRACTION, NOT_ABOVE_ZERO, NotACatalogueError
from providers.neoclouds.parse.fetch_result import (
    OTHER_MACHINE,
    TWO_MACHINES,
    TWO_PRICES,
    CatalogueTerms,
    build_fetch_result,
)
from providers.protocol import FetchResult
from tests.support.neocloud_rows import catalogue_items
from tests.support.neocloud_service import csv_of

DAY = date(2026, 11, 21)
H100 = {"gpu_name": "H100", "gpu_memory": 80.0, "gpu_count": 8}


def item(
    name: str = "gpu_8x_h100_sxm5", location: str = "us-east-1", price: float = 31.92, **more: object
) -> CatalogItem:
    fields: dict[str, object] = {"cpu": 208, "memory": 1800.0, "spot": False, "disk_size": None, **H100, **more}
    return CatalogItem(
        provider="p", instance_name=name, location=location, price=price, gpu_vendor=AcceleratorVendor.NVIDIA, **fields
    )


def harvest(text: str, cloud: str = "lambda", **more: object) -> FetchResult:
    naming = load_catalogue_entries()[cloud].naming
    reading = read_catalogue(io.StringIO(text), lambda _: naming)[""]
    terms: dict[str, object] = {"cloud": cloud, "source": "a catalogue", "as_of": DAY, "today": DAY, **more}
    return build_fetch_result(reading, embedded_book(), CatalogueTerms(**terms))  # type: ignore[arg-type]


def of(*items: CatalogItem, cloud: str = "lambda", **more: object) -> FetchResult:
    return harvest(csv_of(items), cloud, **more)


def why(found: FetchResult) -> list[str]:
    return sorted(dropped.why for dropped in found.dropped)


@pytest.mark.parametrize(("cloud", "name"), [("lambda", "lambdalabs"), ("nebius", "nebius"), ("verda", "verda")])
def test_it_reads_what_gpuhunts_own_reader_reads(cloud: str, name: str) -> None:
    """Every offer is a row with a GPU there, at the same price; every other such row is named."""
    text = csv_of(list(catalogue_items(name, 4, 20)))
    theirs = Counter(
        (i.instance_name.replace(" ", "_"), i.location, i.spot, i.price)
        for i in storage.load(io.StringIO(text), provider=name)
        if i.gpu_count
    )
    found = harvest(text, cloud)
    ours = Counter(
        (o.instance_type, o.region, o.market is Market.SPOT, float(str(o.usd_per_hour))) for o in found.offers
    )
    assert ours <= theirs
    assert len(theirs) - len(ours) == len(found.dropped)
    assert found.rows_read == text.count("\n") - 1


def test_a_price_is_the_cells_text_without_the_noise_of_floats() -> None:
    offer = of(item(price=3 * 3.29)).offers[0]
    assert str(3 * 3.29) == "9.870000000000001"
    assert str(offer.usd_per_hour) == "9.87"
    assert str(of(item(price=1e-05)).offers[0].usd_per_hour) == "0.00001"


@pytest.mark.parametrize(
    ("column", "cell", "what"),
    [
        ("price", "EUR 1.99", "price is not a number"),
        ("price", "nan", "price is not a number"),
        ("price", "-1", "price is below 0"),
        ("price", "", "price is not a number"),
        ("price", "1e9", "price is above a million dollars an hour"),
        ("spot", "maybe", "spot is neither True nor False"),
        ("gpu_count", "eight", "gpu_count is not a number"),
        ("gpu_count", "", "gpu_count is blank"),
        ("gpu_name", "", "gpu_name is blank"),
        ("location", "", "location is blank"),
        ("gpu_memory", "big", "gpu_memory is not a number"),
        ("gpu_memory", "inf", "gpu_memory is not a number of 0 or more"),
        ("gpu_count", "0.5", FRACTION),
        ("price", "0.0", NOT_ABOVE_ZERO),
        ("price", "0.00000000001", NOT_ABOVE_ZERO),
    ],
)
def test_a_row_that_cannot_be_used_is_named_and_its_region_not_covered(column: str, cell: str, what: str) -> None:
    header, good, bad = csv_of([item(location="us-west-2"), item()]).splitlines()
    cells = bad.split(",")
    cells[header.split(",").index(column)] = cell
    found = harvest("\n".join((header, good, ",".join(cells))))
    assert [offer.region for offer in found.offers] == ["us-west-2"]
    assert why(found) == [what]
    covered = {region for region, _ in found.covered}
    if column == "location":
        assert covered == set()  # it may have been anywhere
    elif what == FRACTION:
        assert covered == {"us-east-1", "us-west-2"}
    else:
        assert covered == {"us-west-2"}


def test_a_row_cut_short_is_named() -> None:
    text = csv_of([item()])
    found = harvest(text + text.splitlines()[1][:40])
    assert why(found) == ["has more or fewer cells than the header"]
    assert len(found.offers) == 1
    assert found.covered == frozenset()


@pytest.mark.parametrize(
    "text",
    ["", "\n", "a,b,c\n1,2,3\n", "instance_name,location,price,gpu_count,gpu_name\n", 'instance_name,"loc\nation'],
)
def test_what_is_no_catalogue_is_refused(text: str) -> None:
    with pytest.raises(NotACatalogueError):
        harvest(text)


def test_equal_rows_are_one_and_different_prices_are_none() -> None:
    assert len(of(item(), item()).offers) == 1
    found = of(item(), item(price=30.0), item(location="us-west-2"))
    assert [offer.region for offer in found.offers] == ["us-west-2"]
    assert why(found) == [TWO_PRICES]
    assert {region for region, _ in found.covered} == {"us-west-2"}


def test_a_machine_of_the_book_stays_what_it_is() -> None:
    assert of(item(cpu=1, memory=2.0)).machines == ()
    found = of(item(gpu_count=4), item(location="us-west-2", gpu_name="A100"))
    assert why(found) == [OTHER_MACHINE] * 2
    assert not found.offers


def test_a_new_machine_has_no_invented_figures() -> None:
    (machine,) = of(item("gpu_8x_h200_sxm", gpu_name="H200", gpu_memory=141.0)).machines
    assert (machine.accelerator, machine.accelerator_count, machine.accelerator_memory_gib) == ("H200", 8, 141)
    assert (machine.vcpus, machine.memory_gib, machine.checked) == (208, 1800.0, False)
    assert (machine.inter_node_gbps, machine.fabric, machine.intra_node_gb_per_s) == (None, None, None)
    found = of(item("new", gpu_name="H200", gpu_memory=141.0), item("new", "x-1", gpu_name="B200", gpu_memory=180.0))
    assert [m.accelerator for m in found.machines] == ["H200"]
    assert why(found) == [TWO_MACHINES]


def test_an_unknown_region_is_kept_with_nothing_known_of_it() -> None:
    found = of(item(location="atlantis-1"))
    (region,) = found.regions
    assert (region.id.region, region.country, region.residency_group) == ("atlantis-1", None, None)
    assert found.offers[0].region == "atlantis-1"


@pytest.mark.parametrize(
    ("cloud", "location", "place"),
    [
        ("runpod", "US", ("US", None)),
        ("runpod", "US-TX-3", ("US", "US-TX-3")),
        ("runpod", "EU-RO-1", ("RO", "EU-RO-1")),
        ("runpod", "EUR-IS-2", ("IS", "EUR-IS-2")),
        ("runpod", "XX-YY-1", ("XX-YY-1", None)),
        ("nebius", "eu-north1", ("eu-north1", None)),
    ],
)
def test_data_centres_are_zones_of_the_regions_that_the_book_knows(
    cloud: str, location: str, place: tuple[str, str | None]
) -> None:
    offer = of(item("NVIDIA H100 80GB HBM3", location), cloud=cloud).offers[0]
    assert (offer.region, offer.zone) == place


def test_machines_named_by_their_accelerator_alone_get_count_and_tier() -> None:
    found = of(
        item("NVIDIA H100 80GB HBM3", "US-TX-3", gpu_count=1, price=3.29),
        item("NVIDIA H100 80GB HBM3", "US-TX-3", gpu_count=2, price=6.58),
        item("NVIDIA H100 80GB HBM3", "US", gpu_count=2, price=5.38),
        item("NVIDIA H100 80GB HBM3", "US-TX-3", gpu_count=8, price=31.2, flags=["runpod-cluster"]),
        cloud="runpod",
    )
    assert {o.instance_type for o in found.offers} == {
        "1x_H100-SXM_SECURE",
        "2x_H100-SXM_SECURE",
        "2x_H100-SXM_COMMUNITY",
        "8x_H100-SXM_CLUSTER",
    }
    assert {m.instance_type for m in found.machines} == {"2x_H100-SXM_COMMUNITY", "8x_H100-SXM_CLUSTER"}


def test_what_the_catalogue_says_and_does_not_say_is_marked() -> None:
    marked = of(item(), list_all=True, as_of=None).offers[0]
    assert marked.weak == f"{WEAK_LIST_ALL}; {WEAK_UNDATED}"
    assert (marked.price_basis, marked.as_of) == ("list-all-regions", None)
    assert of(item()).offers[0].weak == ""


def test_only_the_markets_that_the_catalogue_would_list_are_covered() -> None:
    assert of(item(), markets=frozenset({Market.ON_DEMAND})).covered == {("us-east-1", Market.ON_DEMAND)}
    assert of(item()).covered == {("us-east-1", Market.ON_DEMAND), ("us-east-1", Market.SPOT)}


def test_regions_limit_what_is_taken() -> None:
    found = of(item(), item(location="us-west-2"), regions=frozenset({"us-west-2"}))
    assert {offer.region for offer in found.offers} == {region for region, _ in found.covered} == {"us-west-2"}


def test_history_is_the_catalogues_day() -> None:
    at = datetime(2026, 11, 21, tzinfo=UTC)
    found = of(item(), at=at)
    assert [(p.at, str(p.usd_per_hour), p.instance_type) for p in found.points] == [(at, "31.92", "gpu_8x_h100_sxm5")]
    assert of(item()).points == ()


def test_the_order_of_rows_does_not_matter() -> None:
    rows: Iterable[CatalogItem] = list(catalogue_items("nebius", 4, 3))
    there, back = of(*rows, cloud="nebius"), of(*reversed(list(rows)), cloud="nebius")
    assert there == back


def test_naming_leaves_no_blanks() -> None:
    assert NamingRule().machine("gpu-h100-sxm 8gpu-128vcpu-1600gb", 8, "eu-north1", "") == (
        "gpu-h100-sxm_8gpu-128vcpu-1600gb"
    )
    assert embedded_book().machine("nebius", "gpu-h100-sxm_8gpu-128vcpu-1600gb")
