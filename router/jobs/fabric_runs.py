"""Bus bandwidths that gangs measured before they trained, and what they say of a pool's network. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from pricing.machine_images import explain_fabric
from pricing.machines import Machine
from router.agent.protocol import LEAST_SHARE
from router.jobs.speed import bus_bandwidth, network_of_bandwidth

#: A measurement counts for so long: software and cables are repaired.
COUNTS_FOR = timedelta(days=30)
_MEASURED = "an all-reduce there gave "


@dataclass(frozen=True, slots=True)
class FabricRun:
    """The bus bandwidth that one attempt's gang measured in one place, and what its plan assumed, in GB/s."""

    attempt: str
    cloud: str
    region: str
    zone: str | None
    instance_type: str
    machines: int
    gb_per_s: float
    assumed_gb_per_s: float | None
    at: datetime


def learn_fabrics(runs: Iterable[FabricRun], now: datetime) -> tuple[FabricRun, ...]:
    """Return the newest measurement up to ``now`` of each place and machine type that still counts, sorted."""
    newest: dict[tuple[str, str, str, str], FabricRun] = {}
    for run in sorted(runs, key=lambda run: (run.at, run.attempt)):
        if timedelta(0) <= now - run.at <= COUNTS_FOR:
            newest[run.cloud, run.region, run.zone or "", run.instance_type] = run
    return tuple(run for _, run in sorted(newest.items()))


def with_measured_network(machine: Machine, zone: str | None, fabrics: Iterable[FabricRun]) -> Machine:
    """Return the machine with the network that was measured in its region, where that is below half of its own.

    It is planned as Ethernet then: its fabric does not work there. A healthy measurement changes nothing, because
    speeds are fitted with the rates of data sheets. Where no zone is stated the newest of the region counts.
    """
    found = [run for run in fabrics if zone is None or run.zone in (None, zone)]
    run, assumed = max(found, key=lambda run: run.at, default=None), bus_bandwidth(machine)
    if run is None or assumed is None or run.gb_per_s >= LEAST_SHARE * assumed:
        return machine
    source = f"{_MEASURED}{run.gb_per_s:.3g} of {assumed:.3g} GB/s on {run.at.astimezone(UTC):%Y-%m-%d} ({run.attempt})"
    return replace(machine, fabric="ethernet", inter_node_gbps=network_of_bandwidth(run.gb_per_s), source=source)


def explain_network(machine: Machine) -> str:
    """Return why several of the machines are planned at less than their fabric; "" where they are not."""
    return machine.source if machine.source.startswith(_MEASURED) else explain_fabric(machine)
