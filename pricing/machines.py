"""Machine types, their accelerators, links and network fabric."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_SHAPE = re.compile(r"-(?:\d+GB|PCIe|NVL|SXM\d?)")
# Fabrics that carry collectives between machines without the kernel's TCP stack.
RDMA_FABRICS = frozenset({"efa", "infiniband", "gpudirect-tcpx", "gpudirect-tcpxo", "roce", "ici"})


@dataclass(frozen=True, slots=True, order=True)
class Accelerator:
    """One accelerator model; TFLOP/s are dense (no sparsity), None is not published."""

    name: str
    memory_gib: int
    memory_bandwidth_gb_per_s: float
    bf16_dense_tflops: float
    fp8_dense_tflops: float | None
    tdp_w: int | None
    generation: str
    source: str
    as_of: str
    checked: bool

    @property
    def family(self) -> str:
        """Return the name without size of memory and form: ``A100`` of ``A100-80GB``, ``H100`` of ``H100-PCIe``."""
        return _SHAPE.sub("", self.name)


@dataclass(frozen=True, slots=True, order=True)
class Machine:
    """An instance type of one cloud.

    ``intra_node_gb_per_s`` is GB/s per accelerator, both directions added; ``inter_node_gbps`` is Gbit/s per machine;
    None is unknown, never zero. ``checked`` False marks the network figures as weak.
    """

    cloud: str
    instance_type: str
    accelerator: str
    accelerator_count: int
    accelerator_memory_gib: int
    vcpus: int | None
    memory_gib: float | None
    intra_node_interconnect: str | None
    intra_node_gb_per_s: float | None
    inter_node_gbps: float | None
    fabric: str | None
    local_nvme_gib: int | None
    source: str
    as_of: str
    checked: bool

    @property
    def family(self) -> str:
        """Return the part of the name that quotas are written for: the one before the size.

        ``p5`` of ``p5.48xlarge``, ``a3`` of ``a3-highgpu-8g``; the whole name where a cloud has no such part.
        """
        head = self.instance_type.split(".", maxsplit=1)[0]
        return head.split("-", maxsplit=1)[0] if "-" in head else head

    @property
    def has_rdma(self) -> bool:
        """Return whether the machine has an RDMA-class fabric; False when unknown."""
        return self.fabric in RDMA_FABRICS

    @property
    def is_slice(self) -> bool:
        """Return whether it is a whole slice of TPUs as clouds sell it: nothing joins it to another one."""
        return self.fabric == _SLICE_FABRIC and self.cloud not in _OWN_MACHINES


def make_undescribed_machine(
    cloud: str, instance_type: str, accelerator: Accelerator, count: int, source: str, as_of: str
) -> Machine:
    """Return a machine of which only the accelerators are known; the caller replaces what else is."""
    return Machine(
        cloud=cloud,
        instance_type=instance_type,
        accelerator=accelerator.name,
        accelerator_count=count,
        accelerator_memory_gib=accelerator.memory_gib,
        vcpus=None,
        memory_gib=None,
        intra_node_interconnect="none" if count == 1 else None,
        intra_node_gb_per_s=None,
        inter_node_gbps=None,
        fabric=None,
        local_nvme_gib=None,
        source=source,
        as_of=as_of,
        checked=False,
    )


_SLICE_FABRIC = "ici"
_OWN_MACHINES = frozenset({"sandbox", "static"})
_ETHERNET = "ethernet"
_ANY_FABRIC = frozenset({_ETHERNET, *RDMA_FABRICS})
# Azure's InfiniBand joins the machines of one scale set, which are of one type; Google's GPUDirect is another protocol
# on each type.
MIXABLE_FABRICS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "aws": frozenset({_ETHERNET, "efa"}),
        "azure": frozenset({_ETHERNET}),
        "gcp": frozenset({_ETHERNET}),
        **dict.fromkeys(sorted(_OWN_MACHINES), _ANY_FABRIC),
    }
)
