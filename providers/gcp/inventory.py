"""Parser of Compute Engine's lists of resources that attempts made. Pure.

Machines and disks carry labels. Networks and their parts, firewall rules and placement policies cannot: they are known
by their name, ``stepfare-<attempt>``, with a suffix for each further network card.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pricing.units import parse_utc
from providers.fleet import NAME_PREFIX, AttemptTags, CloudResource, ResourceKind, read_attempt_tags
from providers.gcp.allowances import last_segment, region_of

Row = Mapping[str, Any]

_CARD = re.compile(r"-(host|rdma|gpu\d+)$")
# The instance is being ended or stopped; one that is only stopped shows up again, as TERMINATED.
_GOING = "STOPPING"
_USUAL = ("RUNNING", "PROVISIONING", "STAGING")


def read_machines(cloud: str, rows: Iterable[Row]) -> tuple[tuple[CloudResource, ...], frozenset[str]]:
    """Return labelled instances, and the paths of the disks that are deleted with them."""
    found: list[CloudResource] = []
    disks: set[str] = set()
    for row in rows:
        tags = read_attempt_tags(_labels(row))
        if tags is None:
            continue
        status = str(row.get("status", ""))
        what = f"instance {last_segment(str(row.get('machineType', '')))}"
        if status not in _USUAL:
            what += f", {status.lower()}"
        going = status == _GOING
        found.append(
            _found(cloud, row, tags, what, kind=ResourceKind.MACHINE, rank=tags.rank, billed=not going, going=going)
        )
        disks |= {path_of(str(disk.get("source", ""))) for disk in row.get("disks", ()) if disk.get("autoDelete")}
    return tuple(found), frozenset(disks)


def read_disks(cloud: str, rows: Iterable[Row], with_machines: frozenset[str]) -> Iterator[CloudResource]:
    """Yield labelled disks that do not go with a machine that is listed."""
    for row in rows:
        tags = read_attempt_tags(_labels(row))
        if tags is not None and path_of(str(row.get("selfLink", ""))) not in with_machines:
            yield _found(cloud, row, tags, f"disk of {row.get('sizeGb', '?')} GiB", billed=True)


def read_named(cloud: str, what: str, rows: Iterable[Row]) -> Iterator[CloudResource]:
    """Yield resources with the names that the module gives. They cost nothing."""
    for row in rows:
        name = str(row.get("name", ""))
        attempt = _CARD.sub("", name.removeprefix(NAME_PREFIX))
        if name.startswith(NAME_PREFIX) and attempt:
            yield _found(cloud, row, AttemptTags(attempt, "", None), what)


def path_of(link: str) -> str:
    """Return ``projects/...`` of a resource's address: its id in Terraform."""
    _, found, path = link.partition("/projects/")
    return f"projects/{path}" if found else link


def attempt_of(row: Row) -> str:
    """Return the attempt that made a machine or a disk; "" without a label."""
    tags = read_attempt_tags(_labels(row))
    return tags.attempt if tags is not None else ""


def _labels(row: Row) -> Mapping[str, str]:
    labels: Mapping[str, str] = row.get("labels", {})
    return labels


def _found(
    cloud: str,
    row: Row,
    tags: AttemptTags,
    what: str,
    *,
    kind: ResourceKind = ResourceKind.OTHER,
    rank: int | None = None,
    billed: bool = False,
    going: bool = False,
) -> CloudResource:
    zone = last_segment(str(row.get("zone", "")))
    return CloudResource(
        cloud=cloud,
        region=region_of(zone) if zone else last_segment(str(row.get("region", ""))),
        zone=zone or None,
        machine_id=path_of(str(row.get("selfLink", ""))),
        attempt=tags.attempt,
        state_id=tags.state_id,
        rank=rank,
        kind=kind,
        what=what,
        since=parse_utc(row.get("creationTimestamp")),
        billed=billed,
        going=going,
    )
