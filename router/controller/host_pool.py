"""Assign free hosts of the user's own pool to a gang.

Concurrent calls would choose the same hosts: the caller records the nodes before the next call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from router.controller.context import ControllerContext
from router.state.records import Attempt, NodeRecord
from terraform.module_metadata import needs_hosts
from terraform.spec import Host


class TooFewHostsError(ValueError):
    """Too few hosts are free: other gangs use them, or the pool lists no addresses."""


def assign_hosts(
    site: ControllerContext, attempt: Attempt, nodes: tuple[NodeRecord, ...]
) -> tuple[Mapping[int, Host], tuple[NodeRecord, ...]]:
    """Return a free host for each rank, and the nodes with their addresses; no hosts where machines are created.

    Raises TooFewHostsError.
    """
    if not needs_hosts(attempt.cloud):
        return {}, nodes
    used = {
        node.address
        for other in site.store.attempts.find(alive=True)
        if other.cloud == attempt.cloud and other.id != attempt.id
        for node in site.store.attempts.nodes(other.id)
    }
    hosts: dict[int, Host] = {}
    for node in nodes:
        free = (host for host in site.pool.get((attempt.region, node.instance_type), ()) if host.address not in used)
        host = next(free, None)
        if host is None:
            raise TooFewHostsError(
                f"{attempt.region} has too few free {node.instance_type} with an address: {len(nodes)} are needed"
            )
        used.add(host.address)
        hosts[node.rank] = host
    return hosts, tuple(replace(node, address=hosts[node.rank].address) for node in nodes)
