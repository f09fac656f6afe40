"""A small made-up price book: a few regions, machines and tariffs, with offers to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime

from pricing import machine_images
from pricing.book import PriceBook
from pricing.book_check import check_book
from pricing.egress import Tariff, Tier
from pricing.machine_images import MachineImage
from pricing.machines import Accelerator, Machine
from pricing.money import UsdPerGb, UsdPerHour
from pricing.offers import Offer
from pricing.places import Market, Region, RegionId
from pricing.risk import RiskPrior
from pricing.table_rows import parse_rows, read_table

GB = 10**9
AS_OF = datetime(2026, 11, 1, tzinfo=UTC)
SOURCE = "made up for a test"

# What the made-up machines of all tests boot from: without an image none of them could be ordered.
MADE_UP_IMAGES = tuple(
    MachineImage(
        cloud=cloud,
        machines=machines,
        architecture="x86_64",
        image="made-up:made-up:made-up",
        driver="1",
        container_runtime="present",
        toolkit="present",
        fabric=None,
        fabric_gbps=None,
        fabric_software="",
        local_disks="",
        vendor="nvidia",
        source=SOURCE,
        as_of="2026-11-01",
        note="",
    )
    for cloud in ("aws", "azure", "gcp")
    for machines in ("p8.*", "p9*.*", "p10.*", "g9*.*", "x1.*", "a7-*", "a9-*", "*_h9*", "*.machine")
)


def document_made_up_machines() -> None:
    """Let this process take the made-up machines for documented ones, beside those of the table."""
    rows = (*parse_rows(MachineImage, read_table("images")), *MADE_UP_IMAGES)
    setattr(machine_images, "machine_images", lambda: rows)  # noqa: B010


document_made_up_machines()


class MadeUpSource(str):
    """A source that every process imports this module for before it reads a made-up book, and so knows its images."""

    __slots__ = ()


ACCELERATORS = tuple(
    Accelerator(name, 80, 3000.0, tflops, None, 700, "made up", MadeUpSource(SOURCE), "2026-11-01", True)
    for name, tflops in (("H100", 989.0), ("A100-80GB", 312.0))
)


def made_up_machine(cloud: str, name: str, accelerator: str, count: int, vcpus: int | None, fabric: str) -> Machine:
    return Machine(
        cloud=cloud,
        instance_type=name,
        accelerator=accelerator,
        accelerator_count=count,
        accelerator_memory_gib=80,
        vcpus=vcpus,
        memory_gib=2000.0,
        intra_node_interconnect="nvlink-switch",
        intra_node_gb_per_s=900.0,
        inter_node_gbps=3200.0,
        fabric=fabric,
        local_nvme_gib=30000,
        source=SOURCE,
        as_of="2026-11-01",
        checked=True,
    )


MACHINES = (
    made_up_machine("aws", "p9.48xlarge", "H100", 8, 192, "efa"),
    made_up_machine("aws", "p9.24xlarge", "H100", 4, 96, "efa"),
    replace(made_up_machine("aws", "g9.48xlarge", "A100-80GB", 8, 96, "ethernet"), inter_node_gbps=800.0),
    made_up_machine("azure", "ND96_h9", "H100", 8, 96, "infiniband"),
    made_up_machine("gcp", "a9-highgpu-8g", "H100", 8, 208, "gpudirect-tcpxo"),
    made_up_machine("gcp", "a7-highgpu-8g", "A100-80GB", 8, 96, "gpudirect-tcpx"),
    made_up_machine("lambda", "gpu_8x_h9", "H100", 8, 208, "infiniband"),
    made_up_machine("static", "hall-h9", "H100", 8, None, "infiniband"),
)


def _region(cloud: str, name: str, country: str, geo: str, group: str) -> Region:
    return Region(RegionId(cloud, name), country, geo, geo, group, "", None, None, None, SOURCE, "2026-11-01")


REGIONS = (
    _region("aws", "north-1", "US", "NA", "US"),
    _region("aws", "south-1", "US", "NA", "US"),
    _region("aws", "alps-1", "DE", "EU", "EU"),
    _region("azure", "fjord-1", "NO", "EU", "EEA"),
    _region("gcp", "lake-1", "US", "NA", "US"),
    _region("gcp", "rhine-1", "DE", "EU", "EU"),
    _region("lambda", "bay-1", "US", "NA", "US"),
    _region("static", "hall-1", "DE", "EU", "EU"),
)


def tariff(cloud: str, scope: str, origin: str, target: str, *steps: tuple[int | None, str]) -> Tariff:
    """Tiers given as (up to so many GB, dollars a GB), the last without end."""
    tiers, start = [], 0
    for up_to, price in steps:
        end = None if up_to is None else up_to * GB
        tiers.append(Tier(start, end, UsdPerGb.parse(price)))
        start = end or 0
    return Tariff(cloud, scope, origin, target, tuple(tiers), SOURCE, "2026-11-01", "")


SAME, CROSS, INTERNET = "inter-region same continent", "inter-region cross-continent", "internet"
# Nobody says what leaves azure for another cloud, nor what leaves the static hall: unknown, so out of reach.
TARIFFS = (
    tariff("aws", SAME, "any", "any", (None, "0.01")),
    tariff("aws", SAME, "north-1", "any", (None, "0.02")),
    tariff("aws", CROSS, "any", "any", (300, "0.02"), (None, "0.035")),
    tariff("aws", INTERNET, "north-1", "any", (100, "0"), (400, "0.09"), (None, "0.05")),
    tariff("aws", INTERNET, "south-1", "any", (100, "0"), (300, "0.11"), (None, "0.08")),
    tariff("aws", INTERNET, "EU", "any", (100, "0"), (None, "0.07")),
    tariff("azure", SAME, "any", "any", (None, "0.02")),
    # Up and down again: neither convex nor concave.
    tariff("gcp", CROSS, "any", "any", (100, "0.02"), (300, "0.08"), (None, "0.03")),
    tariff("gcp", INTERNET, "any", "any except OC and CN", (200, "0.12"), (1000, "0.11"), (None, "0.08")),
    tariff("cloudflare-r2", INTERNET, "any", "any", (None, "0")),
)

PRIORS = (
    RiskPrior("*", "*", "on_demand", "constant", 0.0, 0.0, 0.0, 0.5, 0.0, SOURCE, "2026-11-01", ""),
    RiskPrior("*", "*", "reserved", "constant", 0.0, 0.0, 0.0, 0.5, 0.0, SOURCE, "2026-11-01", ""),
    RiskPrior("*", "*", "spot", "falling", 0.15, 0.05, 0.45, 0.7, 0.0, SOURCE, "2026-11-01", "made up"),
)


def offer(
    place: str,
    instance_type: str,
    market: str,
    price: str,
    *,
    zone: str | None = None,
    cap: int | None = None,
    interruptions: float | None = None,
) -> Offer:
    """An offer in ``cloud/region`` at dollars a machine-hour."""
    region = RegionId.parse(place)
    return Offer(
        cloud=region.cloud,
        region=region.region,
        zone=zone,
        instance_type=instance_type,
        market=Market(market),
        usd_per_hour=UsdPerHour.parse(price),
        source=SOURCE,
        as_of=date(2026, 11, 1),
        machines_cap=cap,
        interruptions_per_hour=interruptions,
    )


def book(offers: Sequence[Offer]) -> PriceBook:
    result = PriceBook(AS_OF, tuple(offers), MACHINES, ACCELERATORS, REGIONS, TARIFFS, PRIORS)
    check_book(result)
    return result
