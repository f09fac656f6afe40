"""Everything that jobs share at an instant: caps, quotas, reservations. Worked out a second time."""

from __future__ import annotations

from dataclasses import dataclass

from pricing.machines import Machine
from pricing.places import Market
from router.jobs.limits import Limit, Limits

OfferName = tuple[str, str, str | None, str, str]


@dataclass(frozen=True)
class Holding:
    """Machines of one offer, held for a while by somebody."""

    offer: OfferName  # cloud, region, zone, instance type, market
    machine: Machine
    machines: int


@dataclass(frozen=True)
class Shared:
    """Something that runs out. ``unit`` machines, accelerators or vcpus; matches by offer or by a limit."""

    name: str
    amount: int
    unit: str
    offer: OfferName | None = None
    limit: Limit | None = None

    def use(self, holding: Holding) -> int:
        """How much of it the holding takes; ValueError when that is unknown (never zero)."""
        if self.offer is not None and holding.offer != self.offer:
            return 0
        if self.limit is not None and not _covers(self.limit, holding):
            return 0
        if self.unit == "machines":
            return holding.machines
        if self.unit == "accelerators":
            return holding.machines * holding.machine.accelerator_count
        if holding.machine.vcpus is None:
            raise ValueError(f"{self.name}: vCPUs of {holding.machine.instance_type} are unknown")
        return holding.machines * holding.machine.vcpus


def _covers(limit: Limit, holding: Holding) -> bool:
    cloud, region, zone, instance_type, market = holding.offer
    if limit.market is None and market == Market.RESERVED:
        return False
    if limit.family and holding.machine.family not in limit.family:
        return False
    asked = (
        (limit.cloud, cloud),
        (limit.region, region),
        (limit.zone, zone),
        (limit.instance_type, instance_type),
        (limit.accelerator, holding.machine.accelerator),
        (limit.market, market),
    )
    return all(wanted is None or wanted == found for wanted, found in asked)


def shared_things(limits: Limits, caps: dict[OfferName, int | None]) -> tuple[Shared, ...]:
    """All of them, for the offers in ``caps`` (machines_cap by offer; not looked up for reserved ones)."""
    result = [Shared(f"limit {limit.name}", limit.amount, limit.unit, limit=limit) for limit in limits.limits]
    for offer, cap in sorted(caps.items(), key=str):
        if offer[4] == Market.RESERVED:
            continue
        amount = cap if cap is not None else limits.default_cap_machines
        if amount is not None:
            result.append(Shared(f"cap of {offer}", amount, "machines", offer=offer))
    paid: dict[OfferName, int] = {}
    for item in limits.reservations:
        where = (item.cloud, item.region, item.zone, item.instance_type, Market.RESERVED.value)
        paid[where] = paid.get(where, 0) + item.machines
    result += [
        Shared(f"reservation {where}", amount, "machines", offer=where)
        for where, amount in sorted(paid.items(), key=str)
    ]
    return tuple(result)
