"""Parser of EC2's and the tagging API's lists of resources that attempts made. Pure.

Resources that go with a machine (its root volume, its interfaces) are left out where the machine itself is listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pricing.units import parse_utc
from providers.fleet import CloudResource, ResourceKind, read_attempt_tags

Row = Mapping[str, Any]

# Kinds that EC2 itself was asked for, because it knows sooner what still exists.
ASKED_OF_EC2 = frozenset(
    {"instance", "natgateway", "elastic-ip", "volume", "network-interface", "spot-instances-request"}
)
_GONE = frozenset({"terminated", "deleted"})
_GOING = frozenset({"shutting-down", "deleting"})
# Requests in these states may still start a machine, or start it again.
WAITING = ("open", "active")


def read_machines(
    cloud: str, region: str, reservations: Iterable[Row], zones: Mapping[str, str]
) -> tuple[tuple[CloudResource, ...], frozenset[str]]:
    """Return instances of DescribeInstances that are not terminated, and the ids of what goes with them.

    ``zones``: name to id, for answers that only have the name; where neither helps the zone is None.
    """
    found: list[CloudResource] = []
    with_them: set[str] = set()
    for row in (row for reservation in reservations for row in reservation.get("Instances", ())):
        state = row.get("State", {}).get("Name", "")
        if state in _GONE:
            continue
        what = f"ec2 instance {row.get('InstanceType', '')}"
        place = row.get("Placement", {})
        zone = place.get("AvailabilityZoneId") or zones.get(place.get("AvailabilityZone", ""))
        machine = _found(cloud, region, row, "InstanceId", what, state, "LaunchTime", ResourceKind.MACHINE, zone)
        for one in machine:
            found.append(one)
            with_them.update(_attached_ids(row))
    return tuple(found), frozenset(with_them)


def _attached_ids(instance: Row) -> Iterator[str]:
    """Yield volumes and interfaces that are deleted with the instance, and the spot request that it fulfils."""
    for disk in instance.get("BlockDeviceMappings", ()):
        if disk.get("Ebs", {}).get("DeleteOnTermination"):
            yield disk["Ebs"].get("VolumeId", "")
    for card in instance.get("NetworkInterfaces", ()):
        if card.get("Attachment", {}).get("DeleteOnTermination"):
            yield card.get("NetworkInterfaceId", "")
    yield instance.get("SpotInstanceRequestId") or ""


def read_requests(
    cloud: str, region: str, rows: Iterable[Row], with_machines: frozenset[str]
) -> Iterator[CloudResource]:
    """Yield spot requests that wait for a machine, or whose machine is not listed."""
    for row in rows:
        state = str(row.get("State", ""))
        if state in WAITING and row.get("SpotInstanceRequestId") not in with_machines:
            yield from _found(cloud, region, row, "SpotInstanceRequestId", f"spot request, {state}", "", "CreateTime")


def read_gateways(cloud: str, region: str, rows: Iterable[Row]) -> Iterator[CloudResource]:
    """Yield NAT gateways that are not deleted; one that failed costs nothing."""
    for row in rows:
        state = str(row.get("State", ""))
        if state not in _GONE:
            billed = state != "failed"
            yield from _found(cloud, region, row, "NatGatewayId", "nat gateway", state, "CreateTime", billed=billed)


def read_addresses(cloud: str, region: str, rows: Iterable[Row]) -> Iterator[CloudResource]:
    """Yield elastic IPs; they are billed whether something uses them or not."""
    for row in rows:
        yield from _found(cloud, region, row, "AllocationId", "elastic ip", "", "", billed=True)


def read_volumes(
    cloud: str, region: str, rows: Iterable[Row], with_machines: frozenset[str]
) -> Iterator[CloudResource]:
    """Yield volumes that do not go with a machine that is listed."""
    for row in rows:
        if row.get("VolumeId") not in with_machines:
            what = f"volume of {row.get('Size', '?')} GiB"
            yield from _found(cloud, region, row, "VolumeId", what, row.get("State", ""), "CreateTime", billed=True)


def read_interfaces(
    cloud: str, region: str, rows: Iterable[Row], with_machines: frozenset[str]
) -> Iterator[CloudResource]:
    """Yield network interfaces that do not go with a machine that is listed."""
    for row in rows:
        if row.get("NetworkInterfaceId") not in with_machines:
            yield from _found(cloud, region, row, "NetworkInterfaceId", "network interface", "", "")


def read_tagged(cloud: str, region: str, rows: Iterable[Row]) -> Iterator[CloudResource]:
    """Yield resources of GetResources that EC2 was not asked for.

    An id of EC2's is the last part of its ARN; others keep the ARN.
    """
    for row in rows:
        arn = str(row.get("ResourceARN", ""))
        service, kind, name = _parts(arn)
        if not name or (service == "ec2" and kind in ASKED_OF_EC2):
            continue
        plain = kind.replace("-", " ")
        what, id_ = (plain, name) if service == "ec2" else (f"{service} {plain}".strip(), arn)
        yield from _found(cloud, region, {**row, "id": id_}, "id", what, "", "")


def _parts(arn: str) -> tuple[str, str, str]:
    """Return service, kind and name of ``arn:aws:ec2:us-east-1:123456789012:vpc/vpc-1``."""
    parts = arn.split(":", 5)
    if len(parts) < 6:
        return "", "", ""
    kind, _, name = parts[5].partition("/")
    return parts[2], kind, name


def _found(
    cloud: str,
    region: str,
    row: Row,
    id_: str,
    what: str,
    state: str,
    since: str,
    kind: ResourceKind = ResourceKind.OTHER,
    zone: str | None = None,
    *,
    billed: bool | None = None,
) -> Iterator[CloudResource]:
    """Yield the resource of a row; nothing without the tag or without an id.

    A machine is ``billed`` unless it is going.
    """
    tags = read_attempt_tags(_tags(row.get("Tags") or row.get("TagSet") or ()))  # Interfaces have a TagSet.
    name = str(row.get(id_) or "")
    if tags is None or not name:
        return
    is_machine, going = kind is ResourceKind.MACHINE, state in _GOING
    yield CloudResource(
        cloud=cloud,
        region=region,
        zone=zone,
        machine_id=name,
        attempt=tags.attempt,
        state_id=tags.state_id,
        rank=tags.rank if is_machine else None,
        kind=kind,
        what=what,
        since=parse_utc(row.get(since)) if since else None,
        billed=not going and (is_machine if billed is None else billed),
        going=going,
    )


def _tags(rows: Sequence[Row]) -> Mapping[str, str]:
    return {str(row.get("Key", "")): str(row.get("Value", "")) for row in rows}
