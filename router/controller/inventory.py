"""Which machines of an attempt existed, and since when: what Terraform says while it works, and, where nobody listened
because a command was killed and Terraform went on, what the cloud shows under the attempt's tag."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from providers.errors import ProviderError
from router.controller.context import Site
from router.state.records import Attempt
from terraform.events import Event
from terraform.module_metadata import machine_resource

_REFUSED = "refused"


@dataclass(slots=True)
class Witness:
    """Hears Terraform's events about one attempt and writes down since when each machine costs."""

    site: Site
    attempt: Attempt
    _failed: set[int] = field(default_factory=set)

    def saw(self, event: Event) -> None:
        """A machine that is begun exists. One that is destroyed did exist, though nobody may have seen when it
        began."""
        rank = _rank(event.address, self.attempt.cloud)
        if rank is None:
            return
        match event.kind, event.action:
            case "apply_start", "create":
                began(self.site, self.attempt, rank, self.site.clock())
            case "apply_errored", "create":
                self._failed.add(rank)
            case "apply_complete", "delete" if rank not in self._refused_before():
                began(self.site, self.attempt, rank, self.attempt.made_at or self.site.clock())

    def refused(self) -> None:
        """The cloud had none: those that failed never existed. (Should one after all, its tag shows it.)"""
        for rank in sorted(self._failed):
            self.site.store.note(self.attempt.id, _REFUSED, self.site.clock(), rank=rank)
            self.site.store.set_node(self.attempt.id, rank, made_at=None)

    def _refused_before(self) -> set[object]:
        """What Terraform could not make it may still destroy: it remembers what it tried."""
        return {e.details.get("rank") for e in self.site.store.journal(self.attempt.id) if e.what == _REFUSED}


def look(site: Site, attempt: Attempt) -> None:
    """Writes down machines that exist and of which nobody saw the beginning. Asks the cloud only if there may be
    some, and takes no answer for none."""
    unseen = {node.rank for node in site.store.nodes(attempt.id) if node.made_at is None}
    try:
        fleet = site.fleet(attempt.cloud) if unseen else None
        found = fleet.found([attempt.region]).found if fleet is not None else ()
    except ProviderError as error:
        site.store.note(attempt.id, "not looked for by tag", site.clock(), error=str(error))
        return
    now = site.clock()
    first = attempt.made_at or now
    for one in found:
        if (one.attempt, one.state_id, one.kind) == (attempt.id, site.store.id, "machine") and one.rank in unseen:
            # A cloud's clock may be another one than ours, above all where ours is sped up.
            since = one.since if one.since is not None and first <= one.since <= now else first
            began(site, attempt, one.rank, since)


def began(site: Site, attempt: Attempt, rank: int, at: datetime) -> None:
    """The machine of that rank exists since then, unless it is known to exist for longer."""
    node = next((node for node in site.store.nodes(attempt.id) if node.rank == rank), None)
    if node is not None and node.made_at is None:
        site.store.set_node(attempt.id, rank, made_at=at)


def _rank(address: str, cloud: str) -> int | None:
    found = re.fullmatch(rf'(?:.*\.)?{re.escape(machine_resource(cloud))}\["(\d+)"\]', address)
    return None if found is None else int(found[1])
