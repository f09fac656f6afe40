"""Made-up catalogue rows and market offers of the small clouds, with names as the real ones have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuhunt import AcceleratorVendor, CatalogItem

# Location names as gpuhunt's collectors write them: regions, data centres, countries.
PLACES = {
    "gcp": ("us-central1-a", "us-central1-b", "europe-west4-a"),
    "lambdalabs": ("us-east-1", "us-west-2", "europe-central-1", "us-south-9"),
    "nebius": ("eu-north1", "eu-west1", "us-central1", "me-west1"),
    "runpod": ("US-TX-3", "EU-RO-1", "CA-MTL-1", "US", "AP-JP-1"),
    "verda": ("FIN-01", "FIN-02", "FIN-03", "ICE-01"),
    "vastai": (),
}


@dataclass(frozen=True)
class _Kind:
    name: str
    gpu: str | None
    memory: float | None
    count: int
    price: float
    spot: float | None = None


KINDS = {
    "gcp": (
        _Kind("a3-highgpu-8g", "H100", 80.0, 8, 88.4908, 27.9),
        _Kind("a2-highgpu-1g", "A100", 40.0, 1, 3.673385, 1.8),
        # Any number of accelerators can be attached to one of these.
        _Kind("n1-standard-4", "T4", 16.0, 1, 0.54, 0.2),
        _Kind("n1-standard-4", "T4", 16.0, 2, 0.89, 0.3),
        _Kind("e2-standard-2", None, None, 0, 0.067, 0.02),
    ),
    "lambdalabs": (
        _Kind("gpu_8x_h100_sxm5", "H100", 80.0, 8, 31.92),
        _Kind("gpu_1x_h100_pcie", "H100", 80.0, 1, 3.29),
        _Kind("gpu_8x_a100_80gb_sxm4", "A100", 80.0, 8, 22.32),
        _Kind("gpu_8x_a6000", "A6000", 48.0, 8, 8.72),  # not in the book
        _Kind("cpu_4x_general", None, None, 0, 0.2),
    ),
    "nebius": (
        _Kind("gpu-h100-sxm 8gpu-128vcpu-1600gb", "H100", 80.0, 8, 23.6, 10.0),
        _Kind("gpu-h200-sxm 8gpu-128vcpu-1600gb", "H200", 141.0, 8, 28.0, 11.6),
        _Kind("gpu-b300-sxm 8gpu-192vcpu-2768gb", "B300", 270.0, 8, 48.8),  # not a machine of the book
        _Kind("cpu-d3 4vcpu-16gb", None, None, 0, 0.0992),
    ),
    "runpod": (
        _Kind("NVIDIA H100 80GB HBM3", "H100", 80, 1, 1 * 3.29),
        _Kind("NVIDIA H100 80GB HBM3", "H100", 80, 2, 2 * 3.29),
        _Kind("NVIDIA H100 NVL", "H100NVL", 94, 7, 7 * 3.19),
        _Kind("NVIDIA A100 80GB PCIe", "A100", 80, 1, 1.39),
        _Kind("NVIDIA H100 80GB HBM3", "H100", 80, 3, 3 * 3.29),  # 9.870000000000001
        _Kind("NVIDIA GeForce RTX 4090", "RTX4090", 24, 1, 0.69),
    ),
    "verda": (
        _Kind("1H100.80S.32V", "H100", 80.0, 1, 2.29, 0.8015),
        _Kind("2H200.141S.88V", "H200", 141.0, 2, 6.78, 2.373),
        _Kind("8H100.80S.176V", "H100", 80.0, 8, 18.32, 6.412),  # not a machine of the book
        _Kind("1V100.6V", "V100", 16.0, 1, 0.1381, 0.0483),
        _Kind("CPU.4V.16G", None, None, 0, 0.0279, 0.0098),
    ),
    "vastai": (),
}

# A machine with an accelerator that nobody knows yet, and one whose form is not told.
NEW_ROWS = (
    "zz-r200,somewhere,99.5,64,512.0,8,R200,288.0,False,,nvidia,,x86,{}",
    "zz-h100,somewhere,9.5,16,128.0,1,H100,80.0,False,,nvidia,,x86,{}",
)


def places_of(provider: str, regions: int | list[str]) -> list[str]:
    """The first ``regions`` known places of a provider, made-up ones beyond; or those named."""
    if isinstance(regions, list):
        return regions
    known = PLACES[provider]
    return [*known[:regions], *(f"{provider}-{number}" for number in range(len(known), regions))] if known else []


def catalogue_items(provider: str, regions: int | list[str], extra_types: int) -> Iterator[CatalogItem]:
    """Every kind of machine in every place, on demand and, where it is sold, on spot."""
    extra = [_Kind(f"gpu_{n}_h200_sxm", "H200", 141.0, 8, 20 + n / 8, 9 + n / 16) for n in range(extra_types)]
    for place in places_of(provider, regions):
        for kind in (*KINDS[provider], *extra):
            for price in (kind.price, kind.spot):
                if price is not None:
                    yield _item(provider, place, kind, price, spot=price is kind.spot)


def _item(provider: str, place: str, kind: _Kind, price: float, *, spot: bool) -> CatalogItem:
    return CatalogItem(
        provider=provider,
        instance_name=kind.name,
        location=place,
        price=price,
        cpu=16 * max(1, kind.count),
        memory=200.0 * max(1, kind.count),
        gpu_count=kind.count,
        gpu_name=kind.gpu,
        gpu_memory=kind.memory,
        spot=spot,
        disk_size=None,
        gpu_vendor=AcceleratorVendor.NVIDIA if kind.gpu else None,
    )


_GPUS = (("H100 SXM", 81559, 1.87), ("A100 SXM4", 81920, 0.94), ("H200", 143771, 2.47), ("RTX 4090", 24564, 0.4))
_WHERE = ("Florida, US", "Sweden, SE", "Czechia, CZ", "US", None)


def market_offers(hosts: int) -> list[dict[str, Any]]:
    """Free hosts with the fields that gpuhunt reads; prices spread a little, by a fixed rule."""
    return [_offer(number) for number in range(hosts)]


def _offer(number: int) -> dict[str, Any]:
    name, memory, price = _GPUS[number % 4]
    count = (1, 2, 4, 8)[number // 4 % 4]
    dph = count * price * (1 + number % 7 / 100)
    return {
        "id": 10_000_000 + number,
        "gpu_name": name,
        "gpu_ram": memory,
        "num_gpus": count,
        "cpu_cores": 128,
        "cpu_cores_effective": 16.0 * count,
        "cpu_ram": 1_031_000,
        "disk_space": 50.0 if number % 5 == 0 else 1800.5,
        "storage_cost": 0.15,
        "dph_base": dph,
        "min_bid": dph * 0.6 if number % 3 else None,
        "geolocation": _WHERE[number // 16 % 5],
        "rentable": True,
        "rented": False,
        "datacenter": number % 2 == 0,
        "score": 900 - number,
    }
