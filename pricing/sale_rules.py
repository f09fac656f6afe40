"""Machine types with a listed price that a cloud does not sell: reservation-only, Spot-only and retired types.

All such rules are here. Every way into a price book asks this module: the embedded table, adapters, catalogues, files.
"""

from __future__ import annotations

from dataclasses import dataclass

from pricing.places import Market


@dataclass(frozen=True, slots=True)
class SaleRule:
    """Machine types of ``cloud`` that begin with ``prefix`` are sold without a contract in ``markets`` alone.

    Types with fewer than ``whole`` accelerators are not sold on demand. ``why`` is the reason shown to people;
    ``source`` is where it was read.
    """

    cloud: str
    prefix: str
    markets: frozenset[Market]
    why: str
    source: str
    whole: int = 1


_ALL = frozenset({Market.ON_DEMAND, Market.SPOT})
_SPOT = frozenset({Market.SPOT})
_NONE: frozenset[Market] = frozenset()
_GOOGLE = 'Google Cloud, "Consumption option availability by machine type", read 2026-11-21'
_BLOCKS = "AWS, EC2 Capacity Blocks for ML: no on-demand price is published, 2025-10"
_NCV3 = "Microsoft, migration guides of NCv3: retired in 2025 (NC24rs_v3 in March, the others on 30 September)"

SALE_RULES = (
    SaleRule("gcp", "a3-highgpu-", _ALL, "sold as Spot and Flex-start only below 8 accelerators", _GOOGLE, whole=8),
    SaleRule("gcp", "a3-ultragpu-", _SPOT, "sold as Spot and Flex-start, or reserved, only", _GOOGLE),
    SaleRule("gcp", "a4-highgpu-", _SPOT, "sold as Spot and Flex-start, or reserved, only", _GOOGLE),
    SaleRule("gcp", "a4x-", _NONE, "sold reserved only", _GOOGLE),
    SaleRule("aws", "p5e.", _SPOT, "sold as capacity blocks, not on demand", _BLOCKS),
    SaleRule("aws", "p6e-gb", _NONE, "sold as capacity blocks only", _BLOCKS),
    SaleRule("aws", "u-p6e-gb", _NONE, "sold as capacity blocks only", _BLOCKS),
    SaleRule("azure", "Standard_NC6s_v3", _NONE, "retired by Azure in 2025", _NCV3),
    SaleRule("azure", "Standard_NC12s_v3", _NONE, "retired by Azure in 2025", _NCV3),
    SaleRule("azure", "Standard_NC24s_v3", _NONE, "retired by Azure in 2025", _NCV3),
    SaleRule("azure", "Standard_NC24rs_v3", _NONE, "retired by Azure in 2025", _NCV3),
)

# Sizes that no capacity reservation takes. Source: Microsoft, "On-demand Capacity Reservation", 2026-02-17.
_NOT_RESERVED = (
    (
        "azure",
        "Standard_ND",
        "outside capacity reservations: Azure takes no ND size into one, nor a gang over InfiniBand",
    ),
    ("azure", "Standard_NC40ads_H100_v5", "outside capacity reservations: Azure takes no NCads H100 v5 size into one"),
    ("azure", "Standard_NC80adis_H100_v5", "outside capacity reservations: Azure takes no NCads H100 v5 size into one"),
)


def find_sale_rule(cloud: str, instance_type: str) -> SaleRule | None:
    """Return the rule about this machine type; None where all markets are open to it."""
    return next((rule for rule in SALE_RULES if rule.cloud == cloud and instance_type.startswith(rule.prefix)), None)


def explain_unsold(cloud: str, instance_type: str, accelerators: int, market: Market) -> str:
    """Return why such a machine cannot be started in that market; "" where it can."""
    if market is Market.RESERVED:
        reasons = (why for of, prefix, why in _NOT_RESERVED if of == cloud and instance_type.startswith(prefix))
        return next(reasons, "")
    rule = find_sale_rule(cloud, instance_type)
    if rule is None:
        return ""
    too_small = market is Market.ON_DEMAND and accelerators < rule.whole
    return rule.why if too_small or market not in rule.markets else ""
