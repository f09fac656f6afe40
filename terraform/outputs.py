"""Outputs of the modules: the machines that they made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pricing.money import UsdPerHour
from pricing.places import Market


@dataclass(frozen=True, slots=True)
class ProvisionedNode:
    """One machine that exists.

    ``id`` is the cloud's; ``address`` is where it is reached from outside, None: it is not.
    """

    rank: int
    id: str
    address: str | None
    private_address: str | None
    zone: str | None
    market: Market
    max_usd_per_hour: UsdPerHour | None


def parse_nodes(outputs: Mapping[str, Any]) -> tuple[ProvisionedNode, ...]:
    """Parse the output ``nodes`` of any module, sorted by rank; empty when there is none.

    The output is rows, or the JSON text of them that a rendered workspace stores (``terraform/render.py``). ValueError
    when it is neither.
    """
    rows = outputs.get("nodes") or []
    try:
        nodes = [_node(row) for row in (json.loads(rows) if isinstance(rows, str) else rows)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the module's output `nodes` is not what was agreed: {error}") from error
    return tuple(sorted(nodes, key=lambda node: node.rank))


def _node(row: Mapping[str, Any]) -> ProvisionedNode:
    ceiling = row["max_usd_per_hour"]
    return ProvisionedNode(
        rank=int(row["rank"]),
        id=str(row["id"]),
        address=row["address"] or None,
        private_address=row["private_address"] or None,
        zone=row["zone"] or None,
        market=Market(row["market"]),
        max_usd_per_hour=None if ceiling is None else UsdPerHour.parse(str(ceiling)),
    )
