"""SkyPilot's ``vms.csv``, with the columns of its schema v8 in the orders that they have there; rows made up."""

from __future__ import annotations

import io
from datetime import date

import pytest

from pricing.book_file import embedded_book
from pricing.places import Market
from providers.neoclouds.parse.catalogue_rows import CELLS, FRACTION, NOT_ABOVE_ZERO, NotACatalogueError
from providers.neoclouds.parse.fetch_result import CatalogueTerms, build_fetch_result
from providers.neoclouds.parse.skypilot import APART, HALF, NOT_SOLD, REPEATED, read_vms
from providers.protocol import FetchResult

DAY = date(2026, 11, 21)
AWS = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch"
)
GCP = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice"
SMALL = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice"
INFO = "\"{'Gpus': [{'Name': 'H100', 'Manufacturer': 'NVIDIA', 'Count': 8.0}]}\""


def p5(zone: str, price: str = "55.04", spot: str = "20.5") -> str:
    return f"p5.48xlarge,H100,8.0,192.0,2048.0,{INFO},{price},{spot},us-east-1,{zone},x86_64"


def read(header: str, *rows: str, cloud: str = "aws") -> FetchResult:
    book = embedded_book()
    machines = frozenset(m.instance_type for m in book.machines if m.cloud == cloud)
    reading = read_vms(io.StringIO("\n".join((header, *rows)) + "\n"), machines)
    return build_fetch_result(reading, book, CatalogueTerms(cloud, "SkyPilot catalogue vms.csv", DAY, DAY))


def why(found: FetchResult) -> list[str]:
    return sorted(dropped.why for dropped in found.dropped)


def shown(found: FetchResult) -> list[tuple[str, str | None, str, str, str]]:
    return [(o.region, o.zone, o.market.value, str(o.usd_per_hour), o.price_basis) for o in found.offers]


def test_on_demand_is_the_regions_and_spot_the_zones() -> None:
    found = read(
        AWS, p5("use1-az2"), p5("use1-az4", spot="21.75"), "m5.large,,,2.0,8.0,,0.096,0.04,us-east-1,use1-az2,x86_64"
    )
    assert shown(found) == [
        ("us-east-1", None, "on_demand", "55.04", "list"),
        ("us-east-1", "use1-az2", "spot", "20.50", "zone"),
        ("us-east-1", "use1-az4", "spot", "21.75", "zone"),
    ]
    assert found.machines == ()
    assert found.dropped == ()
    assert found.rows_read == 3
    assert found.covered == {("us-east-1", Market.ON_DEMAND), ("us-east-1", Market.SPOT)}


def test_on_demand_that_differs_stays_with_its_zone() -> None:
    found = read(AWS, p5("use1-az2", spot=""), p5("use1-az4", price="60", spot=""))
    assert [(o.zone, str(o.usd_per_hour)) for o in found.offers] == [("use1-az2", "55.04"), ("use1-az4", "60.00")]


def test_catalogues_without_zones() -> None:
    rows = (
        "gpu-h100-sxm_8gpu-128vcpu-1600gb,H100,8,128,1600,23.60,eu-north1,,10.00",
        "gpu-b200-sxm_8gpu-160vcpu-1792gb,B200,8,160,1792,44.00,us-central1,,",
        "cpu-d3_4vcpu-16gb,,0,4,16,0.0992,eu-north1,,",
    )
    found = read(SMALL, *rows, cloud="nebius")
    assert shown(found) == [
        ("eu-north1", None, "on_demand", "23.60", "list"),
        ("eu-north1", None, "spot", "10.00", "list"),
        ("us-central1", None, "on_demand", "44.00", "list"),
    ]


def test_a_spot_price_of_0_is_not_sold() -> None:
    found = read(SMALL, '8x-H100_SXM-32,H100-SXM,8,32,64.0,17.07,"Czechia, CZ, EU",,0.00', cloud="vast")
    assert shown(found) == [("Czechia, CZ, EU", None, "on_demand", "17.07", "list")]
    assert [m.accelerator for m in found.machines] == ["H100"]


def test_halves_of_prices_are_left_out() -> None:
    found = read(
        GCP,
        "a2-highgpu-8g,96.0,680.0,,,,us-central1,us-central1-a,5.91582,2.958",
        ",,,A100,8,{},us-central1,us-central1-a,23.47,11.7",
        "n4-standard-8,8.0,32.0,,,,us-central1,us-central1-a,0.3628,0.1343",
        cloud="gcp",
    )
    assert found.offers == ()
    assert why(found) == sorted([APART, HALF])
    assert found.covered == frozenset()


@pytest.mark.parametrize(
    ("name", "accelerator"),
    [("A100", "A100-40GB"), ("A100-80GB", "A100-80GB"), ("V100", "V100-16GB"), ("H100-NVL", "H100-NVL")],
)
def test_bare_names_mean_the_smaller_memory(name: str, accelerator: str) -> None:
    found = read(SMALL, f"made-up,{name},4,64,512,10,nowhere,,")
    assert [m.accelerator for m in found.machines] == [accelerator]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("x,H100,0.5,8,64,3,us-east-1,,", FRACTION),
        ("x,H100-SXM,1,8,64,,us-east-1,,", NOT_SOLD),
        ("x,H100-SXM,1,8,64,0,us-east-1,,0.0", NOT_ABOVE_ZERO),
        ("x,Trainium2,16,8,64,3,us-east-1,,", "the accelerator is not in the book"),
        ("x,H100,1,8,64,3,us-east-1,,", "whether the accelerator is SXM, PCIe or NVL is not stated"),
        ("p5.48xlarge,H200,8,8,64,3,us-east-1,,", "the book knows a machine of that name with other accelerators"),
        ("x,H100-SXM,1,8,64,three,us-east-1,,", "Price is not a number"),
        ("x,H100-SXM,1,8,64,-3,us-east-1,,", "Price is below 0"),
        ("x,H100-SXM,1,8,64,3,us-east-1,,?", "SpotPrice is not a number"),
        ("x,H100-SXM,one,8,64,3,us-east-1,,", "AcceleratorCount is not a number"),
        ("x,H100-SXM,,8,64,3,us-east-1,,", "AcceleratorCount is blank"),
        ("x,H100-SXM,1,8,64,3,,,", "Region is blank"),
        ("x,H100-SXM,1,8,much,3,us-east-1,,", "MemoryGiB is not a number"),
        ("x,H100-SXM,1", CELLS),
    ],
)
def test_what_is_left_out_says_why(row: str, reason: str) -> None:
    found = read(SMALL, row)
    assert found.offers == ()
    assert why(found) == [reason]


def test_a_spot_column_that_repeats_on_demand_says_nothing() -> None:
    rows = [f"{n}x_H100-SXM,H100-SXM,{n},8,64,{n}.25,US,,{n}.25" for n in range(1, 13)]
    found = read(SMALL, *rows, cloud="runpod")
    assert {offer.market for offer in found.offers} == {Market.ON_DEMAND}
    assert why(found) == [REPEATED] * 12
    few = read(SMALL, *rows[:9], cloud="runpod")
    assert len(few.offers) == 18


@pytest.mark.parametrize("text", ["", "InstanceType,Price\n", AWS.replace("Region", "Place") + "\n"])
def test_what_is_no_such_table_is_refused(text: str) -> None:
    with pytest.raises(NotACatalogueError):
        read_vms(io.StringIO(text), frozenset())
