"""Fabrics over which a cloud's module joins machines of two types into one gang (design note rules-of-the-plan)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pricing.machines import RDMA_FABRICS

_ETHERNET = "ethernet"
_ANY_FABRIC = frozenset({_ETHERNET, *RDMA_FABRICS})
# Azure's InfiniBand joins the machines of one scale set, which are of one type; Google's GPUDirect is another protocol
# on each type.
MIXABLE_FABRICS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "aws": frozenset({_ETHERNET, "efa"}),
        "azure": frozenset({_ETHERNET}),
        "gcp": frozenset({_ETHERNET}),
        "sandbox": _ANY_FABRIC,
        "static": _ANY_FABRIC,
    }
)
