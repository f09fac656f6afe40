"""Refusals of providers beyond their schemas, from their sources: valid values, conflicts, one of several.

The schema files cannot tell (extract_schema.py). Here is what the modules' resources meet, as the sources had it on
the day named; `broken` checks a plan against it. Paths lead through blocks by dots.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# Repository, newest commit read, its day. AWS's ec2 files are of several commits, the oldest of them of 2023; values
# added since are those of pull request 39882 (efa-only). google: 8.0.0; azurerm: 5.2.0.
SOURCES = {
    "aws": ("hashicorp/terraform-provider-aws", "00cda125a19d", "2026-11-30, as stored"),
    "google": ("hashicorp/terraform-provider-google", "e03b7622a2", "2026-08-21"),
    "azurerm": ("hashicorp/terraform-provider-azurerm", "69697b7fe6", "2026-08-21"),
}

_ARN = r"arn:aws[a-z-]*:[a-z0-9-]+:[a-z0-9-]*:[0-9]*:.+"
_CIDR = r"\d+\.\d+\.\d+\.\d+/\d+"
_AZURE = r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers"
_IMAGE = (
    rf"{_AZURE}/Microsoft\.Compute/(images/[^/]+|galleries/[^/]+/images/[^/]+(/versions/[^/]+)?)"
    r"|/(communityGalleries|sharedGalleries)/[^/]+/images/[^/]+(/versions/[^/]+)?"
)
_GCE_NAME = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
_SPOT_OR_NOT = ("Regular", "Spot")
_EVICTION = ("Deallocate", "Delete")
_CACHING = ("None", "ReadOnly", "ReadWrite")
_OS_DISKS = ("Premium_LRS", "Premium_ZRS", "StandardSSD_LRS", "StandardSSD_ZRS", "Standard_LRS")


@dataclass(frozen=True)
class Rules:
    """One resource: by path the valid values (a tuple), their pattern (a text) or least and most (a range of two);
    groups of which exactly one is given; pairs that exclude each other; and what follows from a value."""

    values: Mapping[str, tuple[str, ...] | str | tuple[float, float]]
    one_of: tuple[tuple[str, ...], ...] = ()
    conflicts: tuple[tuple[str, str], ...] = ()
    # (path, value, path, value): where the first has its value the second has its own; None: is not given, ...: is.
    implied: tuple[tuple[str, object, str, object], ...] = ()


_SG_RULE = Rules(
    {"cidr_ipv4": _CIDR}, one_of=(("cidr_ipv4", "cidr_ipv6", "prefix_list_id", "referenced_security_group_id"),)
)
_AZURE_SPOT = (
    ("priority", "Spot", "eviction_policy", ...),
    ("priority", "Regular", "eviction_policy", None),
    ("priority", "Regular", "max_bid_price", None),
    ("disable_password_authentication", True, "admin_ssh_key", ...),
)
_RESERVATION = "capacity_reservation_specification.capacity_reservation_"
RULES: Mapping[str, Rules] = {
    "aws_instance": Rules(
        {
            f"{_RESERVATION}preference": ("capacity-reservations-only", "none", "open"),
            f"{_RESERVATION}target.capacity_reservation_resource_group_arn": _ARN,
            "instance_market_options.market_type": ("capacity-block", "spot"),
            "instance_market_options.spot_options.instance_interruption_behavior": ("hibernate", "stop", "terminate"),
            "instance_market_options.spot_options.spot_instance_type": ("one-time", "persistent"),
            "metadata_options.http_endpoint": ("disabled", "enabled"),
            "metadata_options.http_put_response_hop_limit": (1, 64),
            "metadata_options.http_tokens": ("optional", "required"),
            "root_block_device.volume_type": ("gp2", "gp3", "io1", "io2", "sc1", "st1", "standard"),
            "user_data_base64": _BASE64,
        },
        one_of=(
            (f"{_RESERVATION}preference", f"{_RESERVATION}target"),
            ("launch_template.id", "launch_template.name"),
        ),
        conflicts=(
            (
                f"{_RESERVATION}target.capacity_reservation_id",
                f"{_RESERVATION}target.capacity_reservation_resource_group_arn",
            ),
            ("placement_group", "host_resource_group_arn"),
            ("placement_group", "placement_group_id"),
            ("root_block_device.tags", "volume_tags"),
            ("user_data_base64", "user_data"),
        ),
    ),
    "aws_launch_template": Rules(
        {
            "name": r"[a-zA-Z0-9()./_-]{3,125}",
            "network_interfaces.associate_public_ip_address": ("false", "true"),
            "network_interfaces.delete_on_termination": ("false", "true"),
            "network_interfaces.interface_type": ("efa", "efa-only", "interface"),
            "tag_specifications.resource_type": (
                *("elastic-gpu", "instance", "network-interface", "spot-instances-request", "volume"),
            ),
        },
        conflicts=(("name", "name_prefix"), ("vpc_security_group_ids", "security_group_names")),
    ),
    "aws_placement_group": Rules(
        {"strategy": ("cluster", "partition", "spread")},
        implied=(
            ("strategy", "cluster", "partition_count", None),
            ("strategy", "cluster", "spread_level", None),
        ),
    ),
    "aws_subnet": Rules({"cidr_block": _CIDR}, conflicts=(("availability_zone", "availability_zone_id"),)),
    "aws_vpc": Rules({"cidr_block": _CIDR}, conflicts=(("cidr_block", "ipv4_netmask_length"),)),
    "aws_vpc_endpoint": Rules({"vpc_endpoint_type": ("Gateway", "GatewayLoadBalancer", "Interface")}),
    "aws_vpc_security_group_egress_rule": _SG_RULE,
    "aws_vpc_security_group_ingress_rule": _SG_RULE,
    "google_compute_instance": Rules(
        {
            "name": _GCE_NAME,
            "boot_disk.initialize_params.size": (1, float("inf")),
            "network_interface.nic_type": ("GVNIC", "IDPF", "IRDMA", "MRDMA", "VIRTIO_NET"),
            "reservation_affinity.type": ("ANY_RESERVATION", "NO_RESERVATION", "SPECIFIC_RESERVATION"),
            # From the fields' descriptions: the API refuses, not the provider.
            "scheduling.on_host_maintenance": ("MIGRATE", "TERMINATE"),
            "scheduling.preemption_notice_duration.seconds": ("0", "120"),
            "scheduling.provisioning_model": ("FLEX_START", "RESERVATION_BOUND", "SPOT", "STANDARD"),
            "scheduling.instance_termination_action": ("DELETE", "STOP"),
        },
        implied=(
            ("scheduling.provisioning_model", "SPOT", "scheduling.automatic_restart", False),
            ("scheduling.provisioning_model", "STANDARD", "scheduling.preemption_notice_duration", None),
            ("reservation_affinity.type", "SPECIFIC_RESERVATION", "reservation_affinity.specific_reservation", ...),
            ("reservation_affinity.type", "NO_RESERVATION", "reservation_affinity.specific_reservation", None),
        ),
    ),
    "google_compute_firewall": Rules(
        {"name": _GCE_NAME, "direction": ("EGRESS", "INGRESS")},
        one_of=(("allow", "deny"),),
        conflicts=(
            ("source_service_accounts", "source_tags"),
            ("source_service_accounts", "target_tags"),
            ("target_service_accounts", "source_tags"),
            ("target_service_accounts", "target_tags"),
        ),
    ),
    "google_compute_network": Rules({"name": _GCE_NAME}),
    "google_compute_subnetwork": Rules({"name": _GCE_NAME, "ip_cidr_range": _CIDR}),
    "google_compute_resource_policy": Rules(
        {"group_placement_policy.collocation": ("COLLOCATED",)},
        conflicts=(
            ("group_placement_policy", "instance_schedule_policy"),
            ("group_placement_policy", "snapshot_schedule_policy"),
            ("group_placement_policy", "disk_consistency_group_policy"),
        ),
    ),
    "google_service_account": Rules({"account_id": r"[a-z][-a-z0-9]{4,28}[a-z0-9]", "description": r".{0,256}"}),
    "azurerm_linux_virtual_machine": Rules(
        {
            "capacity_reservation_group_id": rf"{_AZURE}/Microsoft\.Compute/capacityReservationGroups/[^/]+",
            "custom_data": _BASE64,
            "eviction_policy": _EVICTION,
            "max_bid_price": (-1, float("inf")),
            "os_disk.caching": _CACHING,
            "os_disk.storage_account_type": _OS_DISKS,
            "os_disk.disk_size_gb": (0, 4095),
            "priority": _SPOT_OR_NOT,
            "source_image_id": _IMAGE,
        },
        one_of=(
            ("os_managed_disk_id", "source_image_id", "source_image_reference"),
            ("admin_username", "os_managed_disk_id"),
        ),
        conflicts=(
            ("capacity_reservation_group_id", "availability_set_id"),
            ("capacity_reservation_group_id", "proximity_placement_group_id"),
            ("zone", "availability_set_id"),
        ),
        implied=_AZURE_SPOT,
    ),
    "azurerm_linux_virtual_machine_scale_set": Rules(
        {
            "computer_name_prefix": r"[a-zA-Z0-9][a-zA-Z0-9-]{0,57}",
            "custom_data": _BASE64,
            "eviction_policy": _EVICTION,
            "os_disk.caching": _CACHING,
            "os_disk.storage_account_type": _OS_DISKS,
            "os_disk.disk_size_gb": (0, 4095),
            "priority": _SPOT_OR_NOT,
            "source_image_id": _IMAGE,
            "upgrade_mode": ("Automatic", "Manual", "Rolling"),
        },
        one_of=(("source_image_id", "source_image_reference"),),
        conflicts=(("capacity_reservation_group_id", "proximity_placement_group_id"),),
        implied=(
            *_AZURE_SPOT,
            ("single_placement_group", True, "capacity_reservation_group_id", None),
            ("upgrade_mode", "Manual", "rolling_upgrade_policy", None),
            ("upgrade_mode", "Manual", "automatic_os_upgrade_policy", None),
        ),
    ),
    "azurerm_nat_gateway": Rules({"sku_name": ("Standard", "StandardV2")}),
    "azurerm_network_security_rule": Rules(
        {
            "access": ("Allow", "Deny"),
            "direction": ("Inbound", "Outbound"),
            "priority": (100, 4096),
            "protocol": (r"*", "Ah", "Esp", "Icmp", "Tcp", "Udp"),
        },
        one_of=(
            ("source_address_prefix", "source_address_prefixes", "source_application_security_group_ids"),
            (
                "destination_address_prefix",
                "destination_address_prefixes",
                "destination_application_security_group_ids",
            ),
        ),
        conflicts=(
            ("source_port_range", "source_port_ranges"),
            ("destination_port_range", "destination_port_ranges"),
        ),
    ),
    "azurerm_public_ip": Rules(
        {"allocation_method": ("Dynamic", "Static"), "sku": ("Basic", "Standard", "StandardV2")},
        implied=(("sku", "Standard", "allocation_method", "Static"),),
    ),
    "azurerm_role_assignment": Rules(
        {"principal_type": ("Group", "ServicePrincipal", "User"), "scope": rf"{_AZURE}/.+"},
        one_of=(("role_definition_id", "role_definition_name"),),
    ),
    "azurerm_subnet": Rules(
        {"service_endpoint.service": r"Microsoft\.\w+(\.Global)?"},
        one_of=(("address_prefixes", "ip_address_pool"),),
        implied=(("default_outbound_access_enabled", True, "sharing_scope", None),),
    ),
    "azurerm_virtual_network": Rules({}, one_of=(("address_space", "ip_address_pool"),)),
}


def broken(plan: Mapping[str, Any]) -> list[str]:
    """The rules that the resources of a plan break (`terraform show -json`), each with the resource's address."""
    return [
        f"{change['address']}: {what}"
        for change in plan["resource_changes"]
        if change["mode"] == "managed" and change["type"] in RULES
        for what in _broken(RULES[change["type"]], change["change"]["after"], _unknown(plan, change))
    ]


def _unknown(plan: Mapping[str, Any], change: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes that are known after apply, less those that the cloud fills in where none was given."""
    module = (
        plan.get("configuration", {}).get("root_module", {}).get("module_calls", {}).get("gang", {}).get("module", {})
    )
    set_here = {(r["type"], r["name"]): r.get("expressions", {}) for r in module.get("resources", [])}
    given = set_here.get((change["type"], change["name"]))
    unknown: Mapping[str, Any] = change["change"]["after_unknown"]
    return {name: value for name, value in unknown.items() if value is not True or given is None or name in given}


def _broken(rules: Rules, after: Mapping[str, Any], unknown: Mapping[str, Any]) -> Iterator[str]:
    def given(path: str) -> list[Any]:
        return list(_given(after, unknown, path.split(".")))

    for path, valid in rules.values.items():
        yield from (f"{path} is {value!r}" for value in given(path) if value is not ... and not _is_valid(value, valid))
    for group in rules.one_of:
        # A group inside a block that is not there asks for nothing.
        inside = group[0].rpartition(".")[0]
        found = [path for path in group if given(path)]
        if len(found) != 1 and (not inside or given(inside)):
            yield f"exactly one of {', '.join(group)}, not {', '.join(found) or 'none'}"
    for one, other in rules.conflicts:
        if given(one) and given(other):
            yield f"{one} excludes {other}"
    for when, value, path, wanted in rules.implied:
        if value in given(when):
            has = given(path)
            if (
                (wanted is None and has)
                or (wanted is ... and not has)
                or (wanted not in (None, ...) and has != [wanted])
            ):
                yield f"{when} {value!r} needs another {path} than {has}"


def _given(after: Any, unknown: Any, path: list[str]) -> Iterator[Any]:
    """The values at a path; ... where one is given and not known before apply."""
    if unknown is True:
        yield ...
    elif isinstance(after, list) and (path or (after and isinstance(after[0], dict))):
        for at, each in enumerate(after):
            deeper = unknown[at] if isinstance(unknown, list) and at < len(unknown) else False
            yield from _given(each, deeper, path)
    elif not path:
        yield from () if after in (None, "", [], {}) else (after,)
    elif after is not None or unknown:
        inner = unknown.get(path[0], False) if isinstance(unknown, dict) else False
        yield from _given((after or {}).get(path[0]), inner, path[1:])


def _is_valid(value: Any, valid: Any) -> bool:
    if isinstance(valid, str):
        return re.fullmatch(valid, str(value)) is not None
    if isinstance(valid[0], str):
        return str(value) in valid
    return bool(valid[0] <= value <= valid[1])
