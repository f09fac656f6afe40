"""Limits read from accounts of clouds: as a limits file, and merged with one, where the smaller amount binds. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pricing.book import PriceBook
from pricing.places import RegionId
from providers.protocol import AccountAllowances, CapacityReservation, Quota
from router.jobs.limits import Limit, Limits, Reservation
from router.jobs.quantities import Moment
from router.jobs.spec import Placement
from router.planning.document.inputs import LimitSource
from router.prices.allowance_store import AllowanceReading, StockCount

# Quotas change by request, and free machines of a reservation by the day: a reading of two nights ago is doubtful.
STALE_AFTER = timedelta(hours=48)
# Stock changes by the hour: what was counted earlier than this says nothing of tonight.
STOCK_VALID_FOR = timedelta(hours=6)


@dataclass(frozen=True, slots=True)
class MergedLimits:
    """Limits with those that were read; ``sources`` says of each limit that was read what binds.

    ``warnings`` name readings that are stale, and what of them could not be used.
    """

    limits: Limits
    sources: tuple[LimitSource, ...]
    warnings: tuple[str, ...]


def merge_read_limits(
    limits: Limits,
    reading: AllowanceReading,
    book: PriceBook,
    now: datetime,
    running: Sequence[tuple[Placement, int]] = (),
) -> MergedLimits:
    """Return the limits of the file and of the reading together.

    Where both limit the same machines in the same unit, one limit stays: the file's name, the smaller amount. Counts
    of stock are of free machines: those on which jobs run (``running``) are added; counts older than
    :data:`STOCK_VALID_FOR` are left out.
    """
    merge = _Merge(limits, book)
    warnings = []
    for cloud, one in sorted(reading.clouds.items()):
        if now - one.read_at > STALE_AFTER:
            hours = (now - one.read_at) // timedelta(hours=1)
            warnings.append(f"quotas of {cloud} were read {hours:,} hours ago: stepfare quotas reads them again")
        for quota in sorted(one.quotas, key=_quota_key):
            merge.add_limit(Limit.model_validate(limit_fields(quota)), f"quota of {cloud}", one.read_at)
        for held in sorted(one.held, key=_reservation_key):
            warnings += merge.add_reservation(held, one.read_at)
    old = [count for count in reading.stock if now - count.read_at > STOCK_VALID_FOR]
    if old:
        hours = STOCK_VALID_FOR // timedelta(hours=1)
        warnings.append(f"{len(old)} counts of stock are over {hours} hours old and left out: see stepfare stock")
    for count in reading.stock:
        if count not in old:
            merge.add_limit(_stock_limit(count, running), count.source, count.read_at)
    merged = limits.model_copy(
        update={"limits": tuple(merge.limits), "reservations": tuple(merge.reservations), "quotas": None}
    )
    return MergedLimits(merged, tuple(sorted(merge.sources, key=lambda s: (s.limit, s.source))), tuple(warnings))


class _Merge:
    """The limits as they grow, one reading after the other."""

    def __init__(self, limits: Limits, book: PriceBook) -> None:
        self.book = book
        self.limits = list(limits.limits)
        self.reservations = list(limits.reservations)
        self.sources: list[LimitSource] = []
        self._families = {machine.family for machine in book.machines}
        self._of_file = len(self.limits)
        self._places = len(self.reservations)
        self._names = {limit.name for limit in limits.limits}
        self._reserved = {reservation.name for reservation in limits.reservations}

    def add_limit(self, read: Limit, source: str, read_at: datetime) -> None:
        """Add a limit that was read, or lower the file's limit on the same machines to it."""
        for index, known in enumerate(self.limits[: self._of_file]):
            if self._scope(known) == self._scope(read):
                self.sources.append(
                    LimitSource(known.name, source, read_at, read.amount, known.amount, known.unit),
                )
                if read.amount < known.amount:
                    self.limits[index] = known.model_copy(update={"amount": read.amount})
                return
        name = _unused(read.name, self._names)
        self.limits.append(read.model_copy(update={"name": name}))
        self.sources.append(LimitSource(name, source, read_at, read.amount, None, read.unit))

    def _scope(self, limit: Limit) -> tuple[object, ...]:
        place = (limit.cloud, limit.region, limit.zone, limit.instance_type, limit.accelerator, limit.market)
        return (*place, frozenset(limit.family) & self._families or frozenset(limit.family), limit.unit)

    def add_reservation(self, read: CapacityReservation, read_at: datetime) -> list[str]:
        """Add a reservation with free machines unless the file has one there; return warnings.

        The file's own keeps its price and dates, and has no more machines than the cloud says.
        """
        source = f"reservation of {read.cloud}"
        for index, known in enumerate(self.reservations[: self._places]):
            if _same_reservation(known, read):
                self.sources.append(LimitSource(known.name, source, read_at, read.machines, known.machines, "machines"))
                if 0 < read.machines < known.machines:
                    self.reservations[index] = known.model_copy(update={"machines": read.machines})
                return []
        if not read.free:
            return []
        region = self.book.region(RegionId(read.cloud, read.region))
        if region is None or self.book.machine(read.cloud, read.instance_type) is None:
            place = f"{read.cloud}/{read.region}/{read.instance_type}"
            return [f"reservation {read.name} is left out: the price book does not know {place}"]
        name = _unused(read.name, self._reserved)
        made = Reservation.model_validate(reservation_fields(replace(read, name=name), self.book))
        self.reservations.append(made)
        self.sources.append(LimitSource(name, source, read_at, read.free, None, "machines"))
        return []


def _same_reservation(reservation: Reservation, read: CapacityReservation) -> bool:
    """Return whether the file's reservation may be the one that was read: two of them would count machines twice."""
    place = (reservation.cloud, reservation.region, reservation.instance_type) == (
        read.cloud,
        read.region,
        read.instance_type,
    )
    return reservation.name == read.name or (
        place and (reservation.zone is None or read.zone in (None, reservation.zone))
    )


def _stock_limit(count: StockCount, running: Iterable[tuple[Placement, int]]) -> Limit:
    own = sum(
        machines
        for place, machines in running
        if (place.cloud, place.region, place.instance_type, place.market)
        == (count.cloud, count.region, count.instance_type, count.market)
        and (count.zone is None or place.zone in (None, count.zone))
    )
    where = "/".join(filter(None, (count.cloud, count.region, count.zone)))
    return Limit(
        name=f"stock of {where} {count.instance_type} {count.market.value}",
        cloud=count.cloud,
        region=count.region,
        zone=count.zone,
        instance_type=count.instance_type,
        market=count.market,
        amount=count.machines + own,
        unit="machines",
        kind="stock",
    )


def _unused(name: str, names: set[str]) -> str:
    """Return the name, with a number behind it where it is taken; it is taken then."""
    chosen, number = name, 2
    while chosen in names:
        chosen, number = f"{name} ({number})", number + 1
    names.add(chosen)
    return chosen


def build_limits_file(allowances_by_cloud: Mapping[str, AccountAllowances], book: PriceBook) -> dict[str, Any]:
    """Build a limits file: a limit for each quota, a reservation with its dates for each that has machines free.

    A reservation that the cloud bills by the hour has the on-demand price of ``book``. One that was paid at once has no
    price, which makes it unknown: the cloud does not state it. Names are made unique by counting.
    """
    names: set[str] = set()
    quotas = [q for allowances in allowances_by_cloud.values() for q in allowances.quotas]
    reservations = [h for allowances in allowances_by_cloud.values() for h in allowances.held]
    return {
        "limits": [_named(limit_fields(quota), names) for quota in sorted(quotas, key=_quota_key)],
        "reservations": [
            _named(reservation_fields(one, book), names)
            for one in sorted(reservations, key=_reservation_key)
            if one.free
        ],
    }


def _quota_key(quota: Quota) -> tuple[str, ...]:
    return (quota.cloud, quota.region or "", quota.name, quota.market or "")


def _reservation_key(reservation: CapacityReservation) -> tuple[str, ...]:
    return (reservation.cloud, reservation.region, reservation.zone or "", reservation.name)


def limit_fields(quota: Quota) -> dict[str, Any]:
    """Return a quota as an entry of a limits file; its name may be taken by another."""
    fields = {
        "name": f"{quota.cloud} {quota.region or 'everywhere'} {quota.name}",
        "cloud": quota.cloud,
        "region": quota.region,
        "family": list(quota.families),
        "accelerator": quota.accelerator,
        "market": quota.market.value if quota.market is not None else None,
        "amount": quota.amount,
        "unit": quota.unit.value,
    }
    return {name: value for name, value in fields.items() if value not in (None, [])}


def reservation_fields(reservation: CapacityReservation, book: PriceBook) -> dict[str, Any]:
    """Return what is free of a reservation as an entry of a limits file; its name may be taken by another."""
    place = RegionId(reservation.cloud, reservation.region)
    price = None if reservation.prepaid else book.on_demand(place, reservation.zone, reservation.instance_type)
    fields = {
        "name": reservation.name,
        "cloud": reservation.cloud,
        "region": reservation.region,
        "zone": reservation.zone,
        "instance_type": reservation.instance_type,
        "machines": reservation.free,
        "usd_per_hour": None if price is None else str(price),
        "from": None if reservation.start is None else _format_moment(reservation.start),
        "until": None if reservation.end is None else _format_moment(reservation.end),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _format_moment(moment: datetime) -> str:
    return str(Moment(absolute=moment.astimezone(UTC)))


def _named(fields: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {**fields, "name": _unused(fields["name"], names)}
