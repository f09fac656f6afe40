"""Billing of each machine series of Google, and the accelerators that its names mean.

The facts are from the public SKU groups of Compute Engine (one per series) and its page "Accelerator-optimized machine
family": vCPUs, memory, accelerators and bundled Local SSD are billed apart, except for A4, billed as slices of one
accelerator with everything around it. A series that is not listed here is not priced: how its parts add up is not
known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pricing.places import Market
from pricing.sale_rules import explain_unsold

# The server-side filter for machine types: accelerator-optimized series are called a<n> and g<n>. Where a server
# ignores it, other types are skipped here. N1 with attached accelerators and TPUs are left out.
MACHINE_TYPE_FILTER = 'name eq "[ag][0-9].*"'

# Names of accelerators in machineTypes and acceleratorTypes, to those of the price book.
ACCELERATORS = {
    "nvidia-tesla-t4": "T4",
    "nvidia-tesla-v100": "V100-16GB",
    "nvidia-tesla-a100": "A100-40GB",
    "nvidia-a100-80gb": "A100-80GB",
    "nvidia-h100-80gb": "H100",
    "nvidia-h100-mega-80gb": "H100",
    "nvidia-h200-141gb": "H200",
    "nvidia-b200": "B200",
    "nvidia-gb200": "GB200",
    "nvidia-l4": "L4",
    "nvidia-rtx-pro-6000": "RTX-PRO-6000",
}

# Names of accelerators in SKUs. The catalogue has had several names for one.
SKU_ACCELERATORS = {
    "Nvidia Tesla T4 GPU": "nvidia-tesla-t4",
    "Nvidia Tesla V100 GPU": "nvidia-tesla-v100",
    "Nvidia Tesla A100 GPU": "nvidia-tesla-a100",
    "Nvidia Tesla A100 80GB GPU": "nvidia-a100-80gb",
    "Nvidia A100 80GB GPU": "nvidia-a100-80gb",
    "Nvidia H100 80GB GPU": "nvidia-h100-80gb",
    "Nvidia H100 80GB Mega GPU": "nvidia-h100-mega-80gb",
    "Nvidia H100 80GB Plus GPU": "nvidia-h100-mega-80gb",
    "Nvidia H100 Mega 80GB GPU": "nvidia-h100-mega-80gb",
    "H200 141GB GPU": "nvidia-h200-141gb",
    "Nvidia H200 141GB GPU": "nvidia-h200-141gb",
    "Nvidia L4 GPU": "nvidia-l4",
    "RTX 6000 96GB": "nvidia-rtx-pro-6000",
    "Nvidia RTX Pro 6000 GPU": "nvidia-rtx-pro-6000",
}
SKU_SLICES = {"B200": "nvidia-b200", "GB200": "nvidia-gb200"}

# A bundled Local SSD partition of the series below has 375 GiB ("Local SSD disks", fixed sizes).
LOCAL_SSD_PARTITION_GIB = 375


@dataclass(frozen=True, slots=True)
class MachineSeries:
    """A machine series; ``family`` is the first word of its vCPU and memory SKUs ("" where billed by the slice).

    :mod:`pricing.sale_rules` says in which markets it is sold without a contract.
    """

    prefix: str
    family: str

    @property
    def by_slice(self) -> bool:
        """Return whether the series is billed by slices of an accelerator."""
        return not self.family


MACHINE_SERIES = (
    MachineSeries("a2-highgpu-", "a2"),
    MachineSeries("a2-megagpu-", "a2"),
    MachineSeries("a2-ultragpu-", "a2"),
    MachineSeries("a3-highgpu-", "a3"),
    MachineSeries("a3-megagpu-", "a3plus"),
    MachineSeries("a3-ultragpu-", "a3ultra"),
    MachineSeries("a4-highgpu-", ""),
    MachineSeries("g2-standard-", "g2"),
    MachineSeries("g4-standard-", "g4"),
)

# Machine types that hold part of an accelerator say so in their description alone: "1/8 NVIDIA RTX PRO 6000 GPU".
FRACTION = re.compile(r"\b1/\d+ (NVIDIA|GPU)", re.IGNORECASE)


def find_series(machine_type: str) -> MachineSeries | None:
    """Return the series of a machine type; None when its billing is not known."""
    return next((series for series in MACHINE_SERIES if machine_type.startswith(series.prefix)), None)


def is_sold(series: MachineSeries, accelerators: int, market: Market) -> bool:
    """Return whether such a machine can be started in that market without a reservation."""
    return not explain_unsold("gcp", series.prefix, accelerators, market)
