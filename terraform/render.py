"""Render a workspace as the files that Terraform reads, and parse what a module puts out. Pure: same spec, same bytes.

``main.tf.json`` passes every variable to one module and its outputs on, as JSON text; ``terraform.tfvars.json`` holds
the values. User data goes to ``secrets.auto.tfvars.json`` alone, a name that Terraform reads by itself and that nothing
refers to; the writer of the files makes that one readable by its owner only (:data:`SECRET_FILES`). What Terraform does
with it from there depends on the module: clouds' modules pass it to the machine's metadata, and the state stores it as
it stores every argument.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from pricing.machine_images import find_machine_image
from pricing.money import UsdPerHour
from pricing.places import Market
from terraform.module_metadata import module_facts
from terraform.spec import NodeSpec, WorkspaceSpec

OLDEST_ENGINE: Final = (1, 6)
MAIN: Final = "main.tf.json"
VALUES: Final = "terraform.tfvars.json"
SECRETS: Final = "secrets.auto.tfvars.json"
SECRET_FILES: Final = frozenset({SECRETS})

_NODES, _NETWORK = "nodes", "network"
_SUBNETS = ("subnet_ids", "private_subnet_ids")


def render(spec: WorkspaceSpec, module_source: str = "./module") -> Mapping[str, str]:
    """Return the text of each file by name.

    ``module_source`` is written as it is: relative ones begin with ``./`` or ``../``.
    """
    return {
        MAIN: _text(_main(spec, module_source)),
        VALUES: _text(_values(spec)),
        # Every rank is listed, so that no module needs a default for the nodes without user data.
        SECRETS: _text({"user_data": {str(node.rank): spec.user_data.get(node.rank, "") for node in spec.nodes}}),
    }


def _main(spec: WorkspaceSpec, module_source: str) -> dict[str, Any]:
    variables: dict[str, Any] = {name: {"type": "any"} for name in _values(spec)}
    # The default lets destroy work when the file is gone: releasing machines needs no user data.
    outputs = (_NODES,) if spec.shared_zones is None else (_NETWORK,)
    variables["user_data"] = {"type": "map(string)", "sensitive": True, "default": {}}
    return {
        "terraform": {
            "required_version": f">= {'.'.join(map(str, OLDEST_ENGINE))}",
            "backend": {spec.backend.kind: spec.backend.of(spec.attempt)},
        },
        "variable": variables,
        "module": {"gang": {"source": module_source, **{name: f"${{var.{name}}}" for name in variables}}},
        # The rows are one text: as separate values, releasing a large gang takes nearly twice as long.
        "output": {name: {"value": f"${{jsonencode(module.gang.{name})}}"} for name in outputs},
    }


def _values(spec: WorkspaceSpec) -> dict[str, Any]:
    common = {
        "attempt": spec.attempt,
        "region": spec.region,
        "tags": dict(spec.tags),
        "nodes": [_node(node, spec.cloud) for node in spec.nodes],
        "image": spec.image,
        "network": {
            "network_id": spec.network.network_id,
            "subnet_ids": dict(spec.network.subnet_ids) or None,
            "public": spec.network.public,
        },
        "shared_zones": None if spec.shared_zones is None else list(spec.shared_zones),
        "fabric": spec.fabric,
        "disk_gib": spec.disk_gib,
        "checkpoint_bucket": spec.checkpoint_bucket,
        "readable": {"buckets": list(spec.readable.buckets), "registries": list(spec.readable.registries)},
        "ssh_public_key": spec.ssh_public_key,
    }
    facts = module_facts(spec.cloud)
    if facts.lifetime_limited:
        return {**common, "lifetime_seconds": spec.lifetime_seconds}
    if facts.end_role:
        return {**common, "end_role": spec.end_role}
    if facts.identities == "instance_profile":
        return {
            **common,
            "permissions_boundary": spec.permissions_boundary,
            "instance_profile": spec.instance_profile,
        }
    if spec.cloud != "static":
        return common
    return {
        **common,
        "hosts": {str(rank): asdict(host) for rank, host in spec.hosts.items()},
        "private_key_path": None if spec.private_key_path is None else str(spec.private_key_path),
    }


def _node(node: NodeSpec, cloud: str) -> dict[str, Any]:
    row = find_machine_image(cloud, node.instance_type)
    return {
        "rank": node.rank,
        "name": node.name,
        "zone": node.zone,
        "instance_type": node.instance_type,
        "market": str(node.market),
        "max_usd_per_hour": None if node.max_usd_per_hour is None else str(node.max_usd_per_hour),
        "reservation": node.reservation,
        "placement_group": node.placement_group,
        **({} if row is None else {"image": row.image}),
    }


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


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
    rows = outputs.get(_NODES) or []
    try:
        nodes = [_provisioned_node(row) for row in (json.loads(rows) if isinstance(rows, str) else rows)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the module's output `nodes` is not what was agreed: {error}") from error
    return tuple(sorted(nodes, key=lambda node: node.rank))


@dataclass(frozen=True, slots=True)
class SharedNetwork:
    """A network that gangs share: its subnets by zone, those of machines with a public address and those without.

    ``zones`` are in the order in which they were asked for.
    """

    network_id: str
    subnet_ids: Mapping[str, str]
    private_subnet_ids: Mapping[str, str]
    zones: tuple[str, ...]


def parse_network(outputs: Mapping[str, Any]) -> SharedNetwork | None:
    """Parse the output ``network``; None when there is none. ValueError when it is not what was agreed."""
    text = outputs.get(_NETWORK)
    if text is None:
        return None
    try:
        found = json.loads(text)
        public, private = ({str(zone): str(id_) for zone, id_ in found[name].items()} for name in _SUBNETS)
        return SharedNetwork(str(found["network_id"]), public, private, tuple(map(str, found["zones"])))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"the module's output `network` is not what was agreed: {error}") from error


def _provisioned_node(row: Mapping[str, Any]) -> ProvisionedNode:
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
