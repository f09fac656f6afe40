"""Answers of the stand-in for AWS, rendered: EC2's XML, JSON 1.1, and the public files.

Element names are those of the SDK's own service models (botocore's ec2, pricing and service-quotas); the products
and the CSV follow AWS's documentation of its price list.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.support.aws_service_world import LIST_SCALE, NOT_ON_DEMAND, World, advice, decimal, gpu_of

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
BANDS = ("<5%", "5-10%", "10-15%", "15-20%", ">20%")
_CPU_TYPES = ("m5.large", "c6i.xlarge", "r7g.2xlarge", "t3.micro")
HEADER = (
    "SKU", "OfferTermCode", "RateCode", "TermType", "PriceDescription", "EffectiveDate", "StartingRange",
    "EndingRange", "Unit", "PricePerUnit", "Currency", "RelatedTo", "LeaseContractLength", "PurchaseOption",
    "OfferingClass", "Product Family", "serviceCode", "Location", "Location Type", "Instance Type",
    "Current Generation", "Instance Family", "vCPU", "Memory", "Tenancy", "Operating System", "License Model",
    "CapacityStatus", "GPU", "Pre Installed S/W", "Region Code", "MarketOption",
)  # fmt: skip


def xml(action: str, inner: str) -> bytes:
    """An EC2 answer."""
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{action}Response xmlns="{_NAMESPACE}">'
        f"<requestId>00000000-0000-0000-0000-000000000000</requestId>{inner}</{action}Response>"
    ).encode()


def items(tag: str, rows: Iterable[Mapping[str, object]]) -> str:
    inner = "".join(
        f"<item>{''.join(f'<{key}>{value}</{key}>' for key, value in row.items() if value is not None)}</item>"
        for row in rows
    )
    return f"<{tag}>{inner}</{tag}>" if inner else f"<{tag}/>"


def token(start: int, size: int, total: int) -> str:
    return str(start + size) if start + size < total else ""


def price_page(rows: Sequence[tuple[str, str, str, str, str]], start: int, size: int) -> bytes:
    inner = "".join(
        f"<item><instanceType>{name}</instanceType><productDescription>Linux/UNIX</productDescription>"
        f"<spotPrice>{price}</spotPrice><timestamp>{at}</timestamp><availabilityZone>{zone}</availabilityZone>"
        f"<availabilityZoneId>{zone_id}</availabilityZoneId></item>"
        for at, name, zone, zone_id, price in rows[start : start + size]
    )
    following = token(start, size, len(rows))
    return xml(
        "DescribeSpotPriceHistory",
        f"<spotPriceHistorySet>{inner}</spotPriceHistorySet><nextToken>{following}</nextToken>",
    )


def changed_prices(rows: Sequence[tuple[str, str, str, str, str]], changes: frozenset[str]) -> Any:
    """The first row free of charge, or there twice at two prices."""
    first, *rest = rows
    if "price_zero" in changes:
        return [(*first[:4], "0.000000"), *rest]
    if "duplicate" in changes:
        return [first, (*first[:4], "99.000000"), *rest]
    return rows


def described_new_type(name: str) -> str:
    """An item of DescribeInstanceTypes for a type that came out today."""
    gpu, count = gpu_of(name)
    mib = 45776 if gpu == "L40S" else 400_000
    return (
        f"<item><instanceType>{name}</instanceType><vCpuInfo><defaultVCpus>8</defaultVCpus></vCpuInfo>"
        f"<memoryInfo><sizeInMiB>65536</sizeInMiB></memoryInfo><gpuInfo><gpus><item><name>{gpu}</name>"
        f"<manufacturer>NVIDIA</manufacturer><count>{count}</count><memoryInfo><sizeInMiB>{mib}</sizeInMiB>"
        "</memoryInfo></item></gpus></gpuInfo><networkInfo><networkPerformance>Up to 20 Gigabit"
        "</networkPerformance><efaSupported>false</efaSupported></networkInfo></item>"
    )


def products(world: World, region: str, changes: frozenset[str]) -> list[str]:
    """GetProducts: a product with GPUs each, with its reserved terms beside, as JSON texts."""
    texts = []
    for name in sorted({name for name, _ in world.sold(region)} - NOT_ON_DEMAND):
        if gpu_of(name)[1] == 0:
            continue
        price = world.list_price(region, name)
        texts.append(_product(region, name, price, "SKU"))
        if not texts[1:] and "price_zero" in changes:
            texts[0] = _product(region, name, 0, "SKU")
        elif not texts[1:] and "currency" in changes:
            texts[0] = _product(region, name, price, "SKU", "CNY")
        elif not texts[1:] and "duplicate" in changes:
            texts.append(_product(region, name, price + LIST_SCALE, "ANOTHER"))
    return texts


def instance_family(name: str) -> str:
    """The price list's own sorting, which is not always what one would think."""
    return "Accelerated computing" if name.startswith("p6-b300") else "GPU instance"


def _product(region: str, name: str, price: int, sku: str, currency: str = "USD") -> str:
    sku = f"{sku}{name.replace('.', '').upper()}"
    count = gpu_of(name)[1]
    attributes = {
        "regionCode": region, "locationType": "AWS Region", "instanceType": name, "operatingSystem": "Linux",
        "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used", "marketoption": "OnDemand",
        "instanceFamily": instance_family(name), "gpu": str(count), "servicecode": "AmazonEC2",
        "physicalProcessor": "Intel Xeon", "licenseModel": "No License required", "operation": "RunInstances",
    }  # fmt: skip
    rate = {"rateCode": f"{sku}.JRTCKXETXF.6YS6EN2CT7", "unit": "Hrs", "beginRange": "0", "endRange": "Inf"}
    listed = {**rate, "pricePerUnit": {currency: decimal(price, LIST_SCALE, 10)}, "appliesTo": []}
    reserved = {**rate, "pricePerUnit": {currency: decimal(price * 6 // 10, LIST_SCALE, 10)}, "appliesTo": []}
    years = {
        f"{sku}.{code}": {
            "priceDimensions": {f"{sku}.{code}.6YS6EN2CT7": reserved},
            "offerTermCode": code,
            "termAttributes": {"LeaseContractLength": "1yr", "PurchaseOption": "No Upfront"},
        }
        for code in ("4NA7Y494T4", "BPH4J8HBKS", "7NE97W5U4E", "HU7G6KETJZ")
    }
    term = {"priceDimensions": {rate["rateCode"]: listed}, "offerTermCode": "JRTCKXETXF", "termAttributes": {}}
    return json.dumps(
        {
            "product": {"productFamily": "Compute Instance", "attributes": attributes, "sku": sku},
            "serviceCode": "AmazonEC2",
            "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}, "Reserved": years},
        }
    )


def price_list(world: World, region: str, published: str, noise: int, changes: frozenset[str]) -> bytes:
    """A region's index.csv; ``noise`` lines about other things come with each machine."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["FormatVersion", "v1.0"])
    writer.writerow(["Disclaimer", "This pricing list is for informational purposes only."])
    writer.writerow(["Publication Date", f"{published}T09:00:00Z"])
    writer.writerow(["Version", "20261120090000"])
    writer.writerow(["OfferCode", "AmazonEC2"])
    writer.writerow(HEADER)
    names = sorted({name for name, _ in world.sold(region)} - NOT_ON_DEMAND)
    with_gpus = [name for name in names if gpu_of(name)[1]]
    for index, name in enumerate((*with_gpus, *_CPU_TYPES)):
        price = world.list_price(region, name)
        first = index == 0
        usual = {"PricePerUnit": decimal(0 if first and "price_zero" in changes else price, LIST_SCALE, 10)}
        if first and "currency" in changes:
            usual["Currency"] = "CNY"
        writer.writerow(_line(region, name, usual))
        if first and "duplicate" in changes:
            writer.writerow(_line(region, name, {"PricePerUnit": decimal(price + LIST_SCALE, LIST_SCALE, 10)}))
        for other in range(noise):
            writer.writerow(_line(region, name, {**usual, **_OTHERS[other % len(_OTHERS)]}))
    return out.getvalue().encode()


_OTHERS: Sequence[Mapping[str, str]] = (
    {"TermType": "Reserved", "LeaseContractLength": "1yr", "PurchaseOption": "No Upfront"},
    {"Operating System": "Windows"},
    {"Tenancy": "Dedicated"},
    {"CapacityStatus": "UnusedCapacityReservation"},
    {"CapacityStatus": "AllocatedCapacityReservation", "PricePerUnit": "0.0000000000"},
    {"Pre Installed S/W": "SQL Std"},
    {"MarketOption": "CapacityBlock", "PricePerUnit": "0.0000000000"},
)


def _line(region: str, name: str, changed: Mapping[str, str]) -> list[str]:
    count = gpu_of(name)[1]
    usual = {
        "SKU": f"SKU{name.replace('.', '').upper()}", "TermType": "OnDemand", "Unit": "Hrs", "Currency": "USD",
        "Product Family": "Compute Instance", "serviceCode": "AmazonEC2", "Location Type": "AWS Region",
        "Instance Type": name, "Tenancy": "Shared", "Operating System": "Linux", "CapacityStatus": "Used",
        "GPU": str(count) if count else "", "Pre Installed S/W": "NA", "Region Code": region,
        "MarketOption": "OnDemand", "PriceDescription": f'per On Demand, "{name}", Linux', "vCPU": "8",
    }  # fmt: skip
    return [{**usual, **changed}.get(column, "") for column in HEADER]


def region_index(regions: Iterable[str]) -> bytes:
    """region_index.json; with a local zone, and a partition of its own, as the real one has."""
    codes = [*regions, "us-east-1-wl1-bos-wlz-1", "us-gov-west-1"]
    url = "/offers/v1.0/aws/AmazonEC2/20261120090000/{}/index.json"
    rows = {code: {"regionCode": code, "currentVersionUrl": url.format(code)} for code in codes}
    return json.dumps({"formatVersion": "v1.0", "publicationDate": "2026-11-20T09:00:00Z", "regions": rows}).encode()


def spot_advisor(world: World) -> bytes:
    ranges = [
        {"index": index, "label": label, "dots": index, "max": 5 + 6 * index} for index, label in enumerate(BANDS)
    ]
    regions = {}
    for region in world.regions:
        names = sorted({name for name, _ in world.sold_with_gpus(region)} | set(_CPU_TYPES))
        linux = {name: advice(region, name) for name in names}
        regions[region] = {"Linux": linux, "Windows": {name: {"s": 5, "r": 4} for name in names}}
    return json.dumps({"global_rate": "<10%", "ranges": ranges, "instance_types": {}, "spot_advisor": regions}).encode()
