"""Record which machines of an attempt existed, and since when.

Terraform's events say so while it works. Where a command was killed and Terraform went on unobserved, the cloud's list
of machines with the attempt's tag says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from providers.errors import ProviderError
from providers.fleet import CloudResource, FleetListing, ResourceKind
from router.controller.context import ControllerContext
from router.state.records import Attempt
from terraform.events import TerraformEvent
from terraform.module_metadata import module_facts

_REFUSED = "refused"


@dataclass(slots=True)
class MachineInventory:
    """Records from Terraform's events about one attempt since when each machine costs money."""

    site: ControllerContext
    attempt: Attempt
    _failed: set[int] = field(default_factory=set)

    def saw(self, event: TerraformEvent) -> None:
        """Record a machine that Terraform begins to create or has deleted.

        A machine whose creation began exists. One that was deleted did exist, though nobody may have seen when it
        began.
        """
        rank = _rank(event.address, self.attempt.cloud)
        if rank is None:
            return
        match event.kind, event.action:
            case "apply_start", "create":
                record_machine_start(self.site, self.attempt, rank, self.site.clock())
            case "apply_errored", "create":
                self._failed.add(rank)
            case "apply_complete", "delete" if rank not in self._refused_before():
                record_machine_start(self.site, self.attempt, rank, self.attempt.made_at or self.site.clock())

    def refused(self) -> None:
        """Record that the cloud provided no machines: those that failed never existed.

        Should one exist after all, its tag shows it.
        """
        for rank in sorted(self._failed):
            self.site.store.journal.note(self.attempt.id, _REFUSED, self.site.clock(), rank=rank)
            self.site.store.attempts.set_node(self.attempt.id, rank, made_at=None)

    def _refused_before(self) -> set[object]:
        """Return the ranks that the cloud refused before: Terraform may still destroy what it tried to create."""
        refusals = self.site.store.journal.entries(self.attempt.id, what=(_REFUSED,), skipped=[])
        return {entry.details.get("rank") for entry in refusals}


def record_found_machines(site: ControllerContext, attempt: Attempt) -> None:
    """Record machines that exist without a recorded start.

    Asks the cloud only if there may be some; an error of the cloud is not taken for "none".
    """
    unrecorded = {node.rank for node in site.store.attempts.nodes(attempt.id) if node.made_at is None}
    try:
        fleet = site.fleet(attempt.cloud) if unrecorded else None
        machines = [] if fleet is None else own_machines(site, attempt, fleet.found([attempt.region]))
    except ProviderError as error:
        site.store.journal.note(attempt.id, "not looked for by tag", site.clock(), error=str(error))
        return
    now = site.clock()
    first = attempt.made_at or now
    for machine in machines:
        if machine.rank in unrecorded:
            # A cloud's clock may differ from ours, above all where ours runs fast.
            since = machine.since if machine.since is not None and first <= machine.since <= now else first
            record_machine_start(site, attempt, machine.rank, since)


def own_machines(
    site: ControllerContext, attempt: Attempt, listing: FleetListing, *others: ResourceKind
) -> list[CloudResource]:
    """Return the machines with the tags of the attempt and of this state, and its resources of ``others`` kinds."""
    kinds, own = (ResourceKind.MACHINE, *others), (attempt.id, site.store.id)
    return [found for found in listing.resources if (found.attempt, found.state_id) == own and found.kind in kinds]


def record_machine_start(site: ControllerContext, attempt: Attempt, rank: int, at: datetime) -> None:
    """Record that the machine of that rank exists since then, unless an earlier start is known."""
    node = next((node for node in site.store.attempts.nodes(attempt.id) if node.rank == rank), None)
    if node is not None and node.made_at is None:
        site.store.attempts.set_node(attempt.id, rank, made_at=at)


def _rank(address: str, cloud: str) -> int | None:
    match = re.fullmatch(rf'(?:.*\.)?{re.escape(module_facts(cloud).machine)}\["(\d+)"\]', address)
    return None if match is None else int(match[1])
