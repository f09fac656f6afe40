"""Parser of a subscription's quotas and capacity reservations. The API counts vCPUs by family of sizes.

Names: ``Usage - List`` and ``Capacity Reservations`` (Microsoft Learn) and the models of azure-mgmt-compute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pricing.machines import Machine
from pricing.places import Market
from providers.azure.parse.families import accelerator_of
from providers.protocol import CapacityReservation, Quota, QuotaUnit

_REGIONAL: Mapping[str, tuple[Market | None, QuotaUnit]] = {
    "cores": (Market.ON_DEMAND, QuotaUnit.VCPUS),
    # Spot has one quota for all families; the quotas of families are for pay as you go alone.
    "lowprioritycores": (Market.SPOT, QuotaUnit.VCPUS),
    "virtualmachines": (None, QuotaUnit.MACHINES),
}
# States of a future reservation in which the capacity is not (or no longer) promised.
_NOT_PROMISED = frozenset({"Pending", "Declined", "Approved", "FulfillmentFailed"})


def read_quotas(
    cloud: str, region: str, usages: Iterable[object], families: Mapping[str, Sequence[Machine]]
) -> tuple[Quota, ...]:
    """Return quotas of the region, of spot, and of the families in ``families``.

    These are machines by the family's name as :func:`family_key` writes it; other families have no accelerators. A
    limit below 0 is none.
    """
    return tuple(sorted(_quotas(cloud, region, usages, families), key=lambda quota: quota.name))


def family_key(name: str) -> str:
    """Return one spelling for a family: usages and SKUs differ in case, blanks and underscores."""
    return "".join(c for c in name.lower() if c.isalnum())


def read_reservations(
    cloud: str,
    group: Mapping[str, object],
    reservations: Iterable[object],
    view: Mapping[str, object],
) -> tuple[CapacityReservation, ...]:
    """Return the reservations of a group that are for accelerators, with free machines by its instance view.

    A block's start and end are days in the API, taken at midnight UTC; others are open at both ends.
    """
    used = dict(_used(view))
    found = []
    for reservation in _objects(reservations):
        sku, properties = _object(reservation.get("sku")), _object(reservation.get("properties"))
        name, size, machines = str(reservation.get("name")), str(sku.get("name")), _whole(sku.get("capacity"))
        if accelerator_of(size) is None or machines is None or not _promised(properties, used.get(name)):
            continue
        schedule, zones = _object(properties.get("scheduleProfile")), reservation.get("zones")
        capacity, taken = used[name][:2] if name in used else (None, 0)
        machines = capacity if capacity is not None else machines
        found.append(
            CapacityReservation(
                cloud=cloud,
                name=f"{group.get('name')}/{name}",
                region=_region(reservation.get("location") or group.get("location")),
                zone=str(zones[0]) if isinstance(zones, list) and zones else None,
                instance_type=size,
                machines=machines,
                free=max(0, machines - taken),
                start=_day(schedule.get("start")),
                end=_day(schedule.get("end")),
                prepaid=bool(schedule),
            )
        )
    return tuple(sorted(found, key=lambda reservation: reservation.name))


def region_of(group: Mapping[str, object]) -> str:
    """Return the region of a group, as its name is written everywhere else."""
    return _region(group.get("location"))


def place_of(group: Mapping[str, object]) -> tuple[str, str]:
    """Return the resource group and the name under which a group is asked for, from its id."""
    parts = str(group.get("id")).split("/")
    lower = [part.lower() for part in parts]
    at = lower.index("resourcegroups") + 1 if "resourcegroups" in lower else len(parts)
    return (parts[at] if at < len(parts) else ""), str(group.get("name"))


def _quotas(
    cloud: str, region: str, usages: Iterable[object], families: Mapping[str, Sequence[Machine]]
) -> Iterator[Quota]:
    for usage in _objects(usages):
        name = str(_object(usage.get("name")).get("value"))
        limit, used = _whole(usage.get("limit")), _whole(usage.get("currentValue"))
        key = family_key(name)
        if limit is None or limit < 0 or (key not in _REGIONAL and key not in families):
            continue
        market, unit = _REGIONAL.get(key, (Market.ON_DEMAND, QuotaUnit.VCPUS))
        of = tuple(sorted({machine.family for machine in families.get(key, ())}))
        yield Quota(cloud, name, region, of, None, market, limit, used, unit)


_View = tuple[int | None, int, str]


def _used(view: Mapping[str, object]) -> Iterator[tuple[str, _View]]:
    """Yield for each reservation its capacity now, the machines running in it, and its state."""
    instance_view = _object(_object(view.get("properties")).get("instanceView"))
    for reservation in _objects(instance_view.get("capacityReservations")):
        use = _object(reservation.get("utilizationInfo"))
        running = use.get("virtualMachinesAllocated")
        by_subscription = _object(use.get("usedReservedCountBySubscription"))
        count = len(running) if isinstance(running, list) else sum(_whole(n) or 0 for n in by_subscription.values())
        state = str(_object(reservation.get("reservationStateInfo")).get("reservationState") or "")
        yield str(reservation.get("name")), (_whole(use.get("currentCapacity")), count, state)


def _promised(properties: Mapping[str, object], view: _View | None) -> bool:
    failed = properties.get("provisioningState") not in {None, "Succeeded", "Updating"}
    return not failed and (view is None or view[2] not in _NOT_PROMISED)


def _region(value: object) -> str:
    return str(value).replace(" ", "").lower()


def _day(value: object) -> datetime | None:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    if moment is None:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: object) -> Iterator[Mapping[str, object]]:
    if isinstance(value, Iterable):
        yield from (item for item in value if isinstance(item, Mapping))
