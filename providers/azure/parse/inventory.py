"""Parser of Resource Manager's lists of resources that attempts made. Pure.

Everything of an attempt lies in a resource group of its own, which carries the tags as its machines do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pricing.units import parse_utc
from providers.fleet import AttemptTags, CloudResource, ResourceKind, parse_rank, read_attempt_tags

Row = Mapping[str, Any]

_GOING = "deleting"


def group_path(id_: str) -> str:
    """Return the part of an id that names its resource group, in small letters; "" without one.

    Azure's own spelling of names varies.
    """
    parts = id_.lower().split("/")
    is_grouped = len(parts) >= 5 and parts[1] == "subscriptions" and parts[3] == "resourcegroups"
    return "/".join(parts[:5]) if is_grouped else ""


def read_groups(cloud: str, rows: Iterable[Row]) -> Mapping[str, CloudResource]:
    """Return tagged resource groups, by :func:`group_path`. They are billed for what is in them."""
    groups: dict[str, CloudResource] = {}
    for row in rows:
        tags, id_ = _marks(row), str(row.get("id", ""))
        if tags is not None and group_path(id_):
            what = f"resource group {row.get('name', '')}"
            groups[group_path(id_)] = _found(cloud, row, tags, id_, what, ResourceKind.OTHER)
    return groups


def read_machines(cloud: str, rows: Iterable[Row], groups: Mapping[str, CloudResource]) -> Iterator[CloudResource]:
    """Yield tagged machines outside scale sets; when their group is going, they are going as well."""
    for row in rows:
        tags = _marks(row)
        if tags is not None and row.get("id"):
            size = row.get("properties", {}).get("hardwareProfile", {}).get("vmSize", "")
            yield _machine(cloud, row, tags, f"virtual machine {size}", groups)


def select_tagged_sets(rows: Iterable[Row]) -> Iterator[Row]:
    """Return the scale sets that an attempt made."""
    return (row for row in rows if _marks(row) is not None and row.get("id"))


def read_members(
    cloud: str, scale_set: Row, rows: Iterable[Row], groups: Mapping[str, CloudResource]
) -> Iterator[CloudResource]:
    """Yield machines of a tagged scale set: it has the tags, and its machines' numbers are their ranks."""
    tags = _marks(scale_set)
    for row in rows:
        number = str(row.get("instanceId", ""))
        if tags is not None and number:
            size = scale_set.get("sku", {}).get("name", "")
            whole = {**row, "id": f"{scale_set['id']}/virtualMachines/{number}"}
            own = AttemptTags(tags.attempt, tags.state_id, parse_rank(number))
            yield _machine(cloud, whole, own, f"scale set machine {size}", groups)


def attempt_of(row: Row) -> str:
    """Return the attempt that made a resource; "" without the tag."""
    tags = _marks(row)
    return tags.attempt if tags is not None else ""


def is_going(row: Row) -> bool:
    """Return whether its deletion was ordered already."""
    return str(row.get("properties", {}).get("provisioningState", "")).lower() == _GOING


def _machine(cloud: str, row: Row, tags: AttemptTags, what: str, groups: Mapping[str, CloudResource]) -> CloudResource:
    id_ = str(row["id"])
    group = groups.get(group_path(id_))
    if group is not None:  # Lists write the group's name in capitals; Terraform and the group itself do not.
        id_ = group.machine_id + id_[len(group.machine_id) :]
    return _found(cloud, row, tags, id_, what, ResourceKind.MACHINE, going=group is not None and group.going)


def _marks(row: Row) -> AttemptTags | None:
    return read_attempt_tags(row.get("tags") or {})


def _found(
    cloud: str, row: Row, tags: AttemptTags, id_: str, what: str, kind: ResourceKind, *, going: bool = False
) -> CloudResource:
    gone = going or is_going(row)
    zones = row.get("zones") or [None]
    return CloudResource(
        cloud=cloud,
        region=str(row.get("location", "")),
        zone=zones[0],
        machine_id=id_,
        attempt=tags.attempt,
        state_id=tags.state_id,
        rank=tags.rank if kind is ResourceKind.MACHINE else None,
        kind=kind,
        what=what,
        since=parse_utc(row.get("properties", {}).get("timeCreated")),
        billed=not gone,
        going=gone,
    )
