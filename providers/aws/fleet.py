"""Fleet of an AWS account: the resources of attempts, and their release.

Machines, spot requests, NAT gateways, elastic IPs, volumes and network interfaces are listed by EC2; everything else by
the Resource Groups Tagging API, which learns of a deletion minutes later and does not know IAM roles (they cost
nothing, and are named ``stepfare-<attempt>``). Regions are asked at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MappingProxyType

from providers.aws.inventory import InventoryClient
from providers.aws.parse import inventory
from providers.aws.parse.machines import find_zones_by_type, split_regions_by_status, zone_ids
from providers.caller import PartialCalls
from providers.errors import (
    CredentialsError,
    NotReachedError,
    ProviderError,
    RegionOffError,
    RetryableError,
)
from providers.fleet import RELEASE_BY_HAND, CloudResource, Fleet, FleetListing, sort_resources
from providers.protocol import PartialFailure
from providers.session import Session

_REGIONS_AT_ONCE = 8
_BATCH = 100
# A machine takes a minute or two to release its group and interfaces, a NAT gateway to release its address.
PATIENCE_S = 240.0
_PAUSE_S = 5.0

_INSTANCE, _REQUEST, _GATEWAY, _ADDRESS = "i-", "sir-", "nat-", "eipalloc-"


# The calls that end each kind of resource, with their name for the id, by its prefix. Resources that hold others come
# first.
_ENDINGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "lt-": ("DeleteLaunchTemplate", "LaunchTemplateId"),
        _GATEWAY: ("DeleteNatGateway", "NatGatewayId"),
        "vol-": ("DeleteVolume", "VolumeId"),
        "eni-": ("DeleteNetworkInterface", "NetworkInterfaceId"),
        _ADDRESS: ("ReleaseAddress", "AllocationId"),
        "sg-": ("DeleteSecurityGroup", "GroupId"),
    }
)
_IN_USE = frozenset(
    {
        "DependencyViolation",
        "InvalidGroup.InUse",
        "InvalidIPAddress.InUse",
        "InvalidNetworkInterface.InUse",
        "VolumeInUse",
    }
)
# After one of these the same call for fewer machines fails as well.
_FOR_ALL = (CredentialsError, NotReachedError, RetryableError)
# After one of these the next call to the same region fails as well.
_FATAL = (CredentialsError, NotReachedError, RegionOffError)


class AwsFleet(Fleet):
    """Find and release resources; see :class:`providers.fleet.Fleet`.

    A resource still in use because of something released in the same call is tried again every ``pause_s``, for
    ``patience_s`` at most.
    """

    def __init__(
        self, cloud: str, session: Session, *, patience_s: float = PATIENCE_S, pause_s: float = _PAUSE_S
    ) -> None:
        self.cloud = cloud
        self._session = session
        self._client = InventoryClient(cloud, session)
        self._patience_s = patience_s
        self._pause_s = pause_s

    def found(self, regions: Sequence[str]) -> FleetListing:
        self._client.require_credentials()
        wanted = sorted(set(regions)) or list(split_regions_by_status(self._client.regions())[0])
        with ThreadPoolExecutor(_REGIONS_AT_ONCE) as pool:
            parts = list(pool.map(self._list_region, wanted))
        return FleetListing(
            sort_resources(one for found, _ in parts for one in found), tuple(gap for _, gaps in parts for gap in gaps)
        )

    def zones_that_sell(self, region: str, instance_types: Sequence[str]) -> tuple[str, ...] | None:
        self._client.require_credentials()
        zones = find_zones_by_type(self._client.offerings_of(region, instance_types))
        sold = [zones.get(name, frozenset()) for name in set(instance_types)]
        return tuple(sorted(frozenset.intersection(*sold)))

    def release(self, resources: Sequence[CloudResource]) -> tuple[ProviderError | None, ...]:
        if not resources:
            return ()
        self._client.require_credentials()
        answers: dict[tuple[str, str], ProviderError | None] = {}
        regions = {
            region: [one.machine_id for one in resources if one.region == region] for region in _regions(resources)
        }
        with ThreadPoolExecutor(_REGIONS_AT_ONCE) as pool:
            for region, errors in zip(regions, pool.map(self._release, regions, regions.values()), strict=True):
                answers.update({(region, id_): error for id_, error in errors.items()})
        return tuple(answers[one.region, one.machine_id] for one in resources)

    def _list_region(self, region: str) -> tuple[list[CloudResource], list[PartialFailure]]:
        cloud, client = self.cloud, self._client
        attempt = PartialCalls()
        machines, with_them = attempt(
            f"machines in {region}", lambda: inventory.read_machines(cloud, region, *self._machines(region))
        ) or ((), frozenset())
        if any(isinstance(gap.error, _FATAL) for gap in attempt.gaps):
            return [], attempt.gaps
        found = list(machines)
        tagged = partial(client.list_tagged, region)
        others: Mapping[str, Callable[[], Iterable[CloudResource]]] = {
            "spot requests": lambda: inventory.read_requests(
                cloud, region, tagged("DescribeSpotInstanceRequests", "SpotInstanceRequests"), with_them
            ),
            "nat gateways": lambda: inventory.read_gateways(
                cloud, region, tagged("DescribeNatGateways", "NatGateways")
            ),
            "elastic ips": lambda: inventory.read_addresses(cloud, region, tagged("DescribeAddresses", "Addresses")),
            "volumes": lambda: inventory.read_volumes(cloud, region, tagged("DescribeVolumes", "Volumes"), with_them),
            "network interfaces": lambda: inventory.read_interfaces(
                cloud, region, tagged("DescribeNetworkInterfaces", "NetworkInterfaces"), with_them
            ),
            "everything else": lambda: inventory.read_tagged(cloud, region, client.tagged(region)),
        }
        for subject, look in others.items():
            found += attempt(f"{subject} in {region}", look) or ()
        return found, attempt.gaps

    def _machines(self, region: str) -> tuple[Sequence[inventory.Row], Mapping[str, str]]:
        """Return instances, and ids of zones by name.

        There are no ids where these cannot be obtained, since that hides no machine.
        """
        reservations = self._client.instances(region)
        try:
            zones = zone_ids(self._client.zones(region)) if reservations else {}
        except ProviderError:
            zones = {}
        return reservations, zones

    def _release(self, region: str, ids: Sequence[str]) -> Mapping[str, ProviderError | None]:
        answers: dict[str, ProviderError | None] = {}
        machines = sorted({id_ for id_ in ids if id_.startswith(_INSTANCE)})
        for start in range(0, len(machines), _BATCH):
            batch = machines[start : start + _BATCH]
            self._cancel_requests_of(region, batch)
            answers.update(self._end_machines(region, batch))
        for id_ in sorted({id_ for id_ in ids if id_.startswith(_REQUEST)}):
            answers[id_] = _error_of(partial(self._client.cancel, region, [id_]))
        is_releasing = any(error is None for error in answers.values())
        until = time.monotonic() + self._patience_s
        for prefix, ending in _ENDINGS.items():
            for id_ in sorted({id_ for id_ in ids if id_.startswith(prefix)}):
                end = partial(self._end, region, ending, id_)
                answers[id_] = self._end_with_retries(end, until) if is_releasing else _error_of(end)
            gone = [answers[id_] is None for id_ in ids if id_.startswith(_GATEWAY) and id_ in answers]
            is_releasing = is_releasing or any(gone)
        for id_ in ids:
            answers.setdefault(
                id_, ProviderError(self.cloud, f"{id_} is not released from here", remedy=RELEASE_BY_HAND)
            )
        return answers

    def _end_machines(self, region: str, ids: Sequence[str]) -> Mapping[str, ProviderError | None]:
        """Terminate machines; one refused id fails the call for all, so halves are tried, and their halves."""
        error = _error_of(partial(self._client.terminate, region, ids), gone=len(ids) == 1)
        if error is None or len(ids) == 1 or isinstance(error, _FOR_ALL):
            return dict.fromkeys(ids, error)
        half = len(ids) // 2
        return {**self._end_machines(region, ids[:half]), **self._end_machines(region, ids[half:])}

    def _cancel_requests_of(self, region: str, ids: Sequence[str]) -> None:
        """Cancel the spot requests of these machines, so that nothing starts again.

        A one-time request ends with its machine anyway, and one that remains is found again by itself: a failure here
        must not keep the machine alive.
        """
        try:
            requests = self._client.requests_of(region, ids)
            if requests:
                self._client.cancel(region, requests)
        except ProviderError:
            return

    def _end(self, region: str, ending: tuple[str, str], id_: str) -> None:
        if id_.startswith(_ADDRESS) and self._client.in_use(region, id_):
            raise ProviderError(self.cloud, f"{id_} in {region}", code="InvalidIPAddress.InUse")
        self._client.delete(region, *ending, id_)

    def _end_with_retries(self, end: Callable[[], None], until: float) -> ProviderError | None:
        while True:
            error = _error_of(end)
            if error is None or error.code not in _IN_USE or time.monotonic() >= until:
                return error
            try:
                self._session.caller.check()
            except ProviderError:
                return error
            time.sleep(self._pause_s)


def _regions(resources: Sequence[CloudResource]) -> list[str]:
    return sorted({one.region for one in resources})


def _error_of(end: Callable[[], None], *, gone: bool = True) -> ProviderError | None:
    """Return the error of ``end``, None when it succeeded.

    A resource that is not there counts as success where ``gone``.
    """
    try:
        end()
    except ProviderError as error:
        if gone and "NotFound" in error.code:
            return None
        if error.code in _IN_USE:
            remedy = f"something still uses it: sweep again in a few minutes, or {RELEASE_BY_HAND}"
            return ProviderError(error.cloud, f"{error.what}: still in use", code=error.code, remedy=remedy)
        return error
    return None
