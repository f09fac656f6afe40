"""Fleet of a Google Cloud project: the resources of attempts, and their release.

A name may be used again, so that a machine is ended by its number, after its label was checked. Resources known only by
their name are shown and left alone. Service accounts are not searched: their names are digests (``sf-...``).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from providers.caller import PartialCalls
from providers.errors import ProviderError, TransientError
from providers.fleet import ATTEMPT_TAG, RELEASE_BY_HAND, CloudResource, Fleet, FleetListing, sort_resources
from providers.gcp import inventory, permissions
from providers.gcp.client import GcpClient
from providers.gcp.errors import FailureKind, GcpFailure, to_error
from providers.gcp.permissions import ApiCall
from providers.protocol import PartialFailure
from providers.session import Session

# A machine with GPUs takes about a minute to end.
PATIENCE_S = 180.0
_PAUSE_S = 2.0
_AT_ONCE = 16
_LABELLED = f"labels.{ATTEMPT_TAG}:*"
_PATH = re.compile(r"projects/(?P<project>[^/]+)/zones/(?P<zone>[^/]+)/(?P<kind>instances|disks)/(?P<name>[^/]+)")
_READ: Mapping[str, ApiCall] = {"instances": permissions.INSTANCE, "disks": permissions.DISK}
_END: Mapping[str, ApiCall] = {"instances": permissions.DELETE_INSTANCE, "disks": permissions.DELETE_DISK}
_FIELD: Mapping[str, str] = {"instances": "instance", "disks": "disk"}
# Another operation is running on the resource, or its machine is not gone yet.
_BUSY = frozenset({"resourceNotReady", "resourceInUseByAnotherResource", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"})
_GONE = frozenset({"notFound", "RESOURCE_NOT_FOUND"})

ListCall = Callable[[], tuple[Iterable[CloudResource], Sequence[str]]]


class GcpFleet(Fleet):
    """Find and release resources; see :class:`providers.fleet.Fleet`.

    An order that is not completed within ``patience_s`` counts as accepted.
    """

    def __init__(
        self, cloud: str, session: Session, *, patience_s: float = PATIENCE_S, pause_s: float = _PAUSE_S
    ) -> None:
        self.cloud = cloud
        self._session = session
        self._client = GcpClient(cloud, session)
        self._patience_s = patience_s
        self._pause_s = pause_s

    def found(self, regions: Sequence[str]) -> FleetListing:
        """Return the resources of attempts.

        Networks and firewall rules have no region: they are found whichever regions are asked for.
        """
        cloud, client = self.cloud, self._client
        _ = client.identity  # Raises when there is no account or project to ask.
        with_machines: frozenset[str] = frozenset()
        found: list[CloudResource] = []
        attempt = PartialCalls()

        def machines() -> tuple[Iterable[CloudResource], Sequence[str]]:
            nonlocal with_machines
            rows, silent = client.everywhere(permissions.INSTANCES, "instances", _LABELLED)
            some, with_machines = inventory.read_machines(cloud, rows)
            return some, silent

        def disks() -> tuple[Iterable[CloudResource], Sequence[str]]:
            rows, silent = client.everywhere(permissions.DISKS, "disks", _LABELLED)
            return inventory.read_disks(cloud, rows, with_machines), silent

        lists: Mapping[str, ListCall] = {
            "machines": machines,
            "disks": disks,
            "networks": lambda: (inventory.read_named(cloud, "network", client.listed(permissions.NETWORKS)), ()),
            "subnetworks": lambda: self._named("subnetwork", permissions.SUBNETWORKS, "subnetworks"),
            "firewall rules": lambda: (
                inventory.read_named(cloud, "firewall rule", client.listed(permissions.FIREWALLS)),
                (),
            ),
            "placement policies": lambda: self._named("placement policy", permissions.POLICIES, "resource_policies"),
        }
        for subject, list_some in lists.items():
            some, silent = attempt(subject, list_some) or ((), ())
            found += some
            attempt.gaps += [
                PartialFailure(f"{subject} in {place}", TransientError(cloud, f"{place} did not answer"))
                for place in silent
            ]
        wanted = {"", *regions}
        return FleetListing(
            sort_resources(one for one in found if not regions or one.region in wanted), tuple(attempt.gaps)
        )

    def release(self, resources: Sequence[CloudResource]) -> tuple[ProviderError | None, ...]:
        if not resources:
            return ()
        _ = self._client.identity
        until = time.monotonic() + self._patience_s
        answers: dict[tuple[str, str], ProviderError | None] = {}
        for kind in _END:
            keys = sorted({_key(one) for one in resources if f"/{kind}/" in one.machine_id})
            patient = kind == "instances" or any(error is None for error in answers.values())
            limit = until if patient else 0.0
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                answers.update(zip(keys, pool.map(partial(self._release, until=limit), keys), strict=True))
        return tuple(answers[_key(one)] if _key(one) in answers else self._refused(one.machine_id) for one in resources)

    def _named(self, what: str, call: ApiCall, field: str) -> tuple[Iterable[CloudResource], Sequence[str]]:
        rows, silent = self._client.everywhere(call, field)
        return inventory.read_named(self.cloud, what, rows), silent

    def _refused(self, machine_id: str) -> ProviderError:
        return ProviderError(self.cloud, f"{machine_id} is not released from here", remedy=RELEASE_BY_HAND)

    def _release(self, key: tuple[str, str], *, until: float) -> ProviderError | None:
        machine_id, attempt = key
        path = _PATH.fullmatch(machine_id)
        if path is None or path["project"] != self._client.identity.project:
            return self._refused(machine_id)
        while True:
            try:
                self._end(path["kind"], path["zone"], path["name"], attempt, until)
            except ProviderError as error:
                if error.code in _GONE:
                    return None
                if error.code not in _BUSY or not self._pause(until):
                    return error
            else:
                return None

    def _end(self, kind: str, zone: str, name: str, attempt: str, until: float) -> None:
        row = self._client.single(_READ[kind], zone=zone, **{_FIELD[kind]: name})
        if inventory.attempt_of(row) != attempt:
            what = f"{name} in {zone} is not of attempt {attempt}"
            raise ProviderError(self.cloud, what, remedy="look again: the name is something else's by now")
        number = str(row["id"])
        operation = self._client.single(_END[kind], zone=zone, **{_FIELD[kind]: number})
        while operation.get("status") != "DONE" and self._pause(until):
            operation = self._client.single(permissions.OPERATION, zone=zone, operation=str(operation["name"]))
        errors = operation.get("error", {}).get("errors", ())
        if errors:
            status = int(operation.get("httpErrorStatusCode", 0))
            codes = tuple(str(one.get("code", "")) for one in errors)
            failure = GcpFailure(FailureKind.ANSWER, f"{_END[kind].method} for {name} in {zone}", status, codes)
            raise to_error(self.cloud, failure)

    def _pause(self, until: float) -> bool:
        if time.monotonic() >= until:
            return False
        try:
            self._session.caller.check()
        except ProviderError:
            return False
        time.sleep(self._pause_s)
        return True


def _key(resource: CloudResource) -> tuple[str, str]:
    return resource.machine_id, resource.attempt
