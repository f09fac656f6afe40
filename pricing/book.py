"""The price book: an immutable, dated set of offers, named by its digest, with the tables needed to judge them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import InitVar, astuple, dataclass, fields, replace
from datetime import UTC, date, datetime
from functools import cached_property
from operator import attrgetter
from typing import Final

from pricing.egress import EgressTable, Tariff
from pricing.machine_images import with_usable_fabric
from pricing.machines import Accelerator, Machine
from pricing.money import UsdPerHour
from pricing.offers import Offer
from pricing.places import Market, Region, RegionId
from pricing.pool_experience import PoolExperience
from pricing.risk import RiskPrior, RiskSignal, RiskTable
from pricing.sale_rules import explain_unsold, find_sale_rule

_BOUGHT: Final = (Market.ON_DEMAND, Market.SPOT)
#: The fields of an offer beside its key and price.
_more_of = attrgetter(*[field.name for field in fields(Offer)][6:])
#: The fields of a book beside its offers.
SMALL_TABLES: Final = ("machines", "accelerators", "regions", "tariffs", "priors", "signals", "records")


def _canonical(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else str(value)


@dataclass(frozen=True)
class PriceBook:
    """Hold offers and tables as of one moment (UTC; ValueError otherwise).

    Tuples are sorted on construction. ``in_order`` says that the offers are sorted already. Construction checks nothing
    else, so that a book of 150,000 offers is cheap; :func:`pricing.book_check.check_book` does. Look-ups build their
    index on first use and are constant-time afterwards.
    """

    as_of: datetime
    offers: tuple[Offer, ...]
    machines: tuple[Machine, ...]
    accelerators: tuple[Accelerator, ...]
    regions: tuple[Region, ...]
    tariffs: tuple[Tariff, ...]
    priors: tuple[RiskPrior, ...]
    signals: tuple[RiskSignal, ...] = ()
    records: tuple[PoolExperience, ...] = ()
    in_order: InitVar[bool] = False

    def __post_init__(self, in_order: bool) -> None:
        if self.as_of.utcoffset() is None:
            raise ValueError("a price book's as_of needs a time zone")
        sort = object.__setattr__  # The dataclass is frozen: this is the only way to set a field while it is built.
        sort(self, "as_of", self.as_of.astimezone(UTC))
        if not in_order:
            sort(self, "offers", tuple(sorted(self.offers, key=attrgetter("key"))))
        sort(self, "machines", tuple(sorted(self.machines, key=lambda m: (m.cloud, m.instance_type))))
        sort(self, "accelerators", tuple(sorted(self.accelerators, key=lambda a: a.name)))
        sort(self, "regions", tuple(sorted(self.regions, key=lambda r: r.id)))
        sort(self, "tariffs", tuple(sorted(self.tariffs, key=lambda t: t.meter)))
        sort(self, "priors", tuple(sorted(self.priors)))
        sort(self, "signals", tuple(sorted(self.signals)))
        sort(self, "records", tuple(sorted(self.records, key=lambda r: (r.key, r.machines, r.kind))))

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 (hex) of the whole content.

        The order in which offers and rows were given does not matter.
        """
        content: dict[str, object] = {
            "as_of": self.as_of.isoformat(),
            "offers": [(*o.key, o.usd_per_hour.nanos, *_more_of(o)) for o in self.offers],
            **{name: [astuple(row) for row in getattr(self, name)] for name in SMALL_TABLES},
        }
        text = json.dumps(content, separators=(",", ":"), sort_keys=True, default=_canonical)
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _machines(self) -> Mapping[tuple[str, str], Machine]:
        return {(m.cloud, m.instance_type): with_usable_fabric(m) for m in self.machines}

    @cached_property
    def _accelerators(self) -> Mapping[str, Accelerator]:
        return {a.name: a for a in self.accelerators}

    @cached_property
    def _regions(self) -> Mapping[RegionId, Region]:
        return {r.id: r for r in self.regions}

    @cached_property
    def egress(self) -> EgressTable:
        """Return the tariffs, to be looked up by pair of places."""
        return EgressTable(self.tariffs)

    @cached_property
    def risk(self) -> RiskTable:
        """Return priors, signals and records of interruptions, from which the risk of a gang is computed."""
        return RiskTable(
            self.priors,
            self.signals,
            {a.name: a.generation for a in self.accelerators},
            self.as_of.date(),
            self.records,
            self._usual_shares,
            {key: machine.accelerator for key, machine in self._machines.items()},
        )

    @cached_property
    def _usual_shares(self) -> Mapping[tuple[str, str], float]:
        found: dict[tuple[str, str], list[float]] = {}
        for offer in self.offers:
            machine = self.machine(offer.cloud, offer.instance_type)
            if offer.preempted_share is not None and machine is not None:
                found.setdefault((offer.cloud, machine.accelerator), []).append(offer.preempted_share)
        return {key: sum(shares) / len(shares) for key, shares in found.items()}

    def machine(self, cloud: str, instance_type: str) -> Machine | None:
        """Return the machine of that name with the fabric that its image can drive; None when the book lacks it."""
        return self._machines.get((cloud, instance_type))

    def accelerator(self, name: str) -> Accelerator | None:
        """Return the accelerator of that name; None when the book does not know it."""
        return self._accelerators.get(name)

    def region(self, region: RegionId) -> Region | None:
        """Return the region; None when the book does not know it."""
        return self._regions.get(region)

    @cached_property
    def _on_demand(self) -> Mapping[tuple[RegionId, str], tuple[Offer, ...]]:
        by_type: dict[tuple[RegionId, str], list[Offer]] = {}
        for offer in self.offers:
            if offer.market is Market.ON_DEMAND:
                by_type.setdefault((offer.region_id, offer.instance_type), []).append(offer)
        return {key: tuple(offers) for key, offers in by_type.items()}

    def on_demand(self, region: RegionId, zone: str | None, instance_type: str) -> UsdPerHour | None:
        """Return the on-demand price of a machine in that zone, or in the whole region.

        Without a zone it is the lowest price of all zones. None when the book does not know it.
        """
        offers = self._on_demand.get((region, instance_type), ())
        prices = (offer.usd_per_hour for offer in offers if zone is None or offer.zone in (None, zone))
        return min(prices, default=None)

    def explain_absence(self, accelerator: str, markets: Collection[Market] = _BOUGHT) -> tuple[bool, str]:
        """Return whether machines with the accelerator are sold in one of the markets, and why there is no offer.

        Machines that the book does not know may be sold.
        """
        unpriced: list[str] = []
        unsold: list[str] = []
        for m in (m for m in self.machines if m.accelerator == accelerator):
            reasons = [explain_unsold(m.cloud, m.instance_type, m.accelerator_count, market) for market in markets]
            if all(reasons):
                unsold.append(f"{m.cloud} {m.instance_type} is {reasons[0]}")
            else:
                unpriced.append(f"{m.cloud} {m.instance_type}")
        more = f" and {len(unpriced) - 2} more" if len(unpriced) > 2 else ""
        unknown = f"no price is known of {', '.join(unpriced[:2])}{more}" if unpriced else ""
        return bool(unpriced or not unsold), "; ".join(filter(None, (unknown, *unsold)))

    def with_offers(self, offers: Iterable[Offer]) -> PriceBook:
        """Return the same book with other offers."""
        return replace(self, offers=tuple(offers))

    def sold_only(self) -> PriceBook:
        """Return the book without offers that no cloud sells (:mod:`pricing.sale_rules`).

        Returns the book itself where it has none of them.
        """
        counts = {
            (m.cloud, m.instance_type): m.accelerator_count
            for m in self.machines
            if find_sale_rule(m.cloud, m.instance_type) is not None
        }
        if not counts:
            return self
        sold = tuple(
            o
            for o in self.offers
            if (o.cloud, o.instance_type) not in counts
            or not explain_unsold(o.cloud, o.instance_type, counts[o.cloud, o.instance_type], o.market)
        )
        return self if len(sold) == len(self.offers) else replace(self, offers=sold, in_order=True)
