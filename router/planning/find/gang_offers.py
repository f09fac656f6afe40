"""Make the gangs that a price book sells: their parts, price, risk and external cost, whatever job runs on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from pricing.book import PriceBook
from pricing.money import UsdPerHour
from pricing.risk import GangRisk, RiskTable, describe_risk, join_risks
from router.jobs.experience import Experience
from router.jobs.limits import Limits
from router.planning.find.candidate import GangPart
from router.planning.find.emissions import ExternalCost, ExternalCosts
from router.planning.find.gang_rates import TYPICAL_LIFE
from router.planning.find.listings import Spread


@dataclass(frozen=True, slots=True)
class GangOffer:
    """A gang as it is sold, whatever job runs on it: its parts, price and risk.

    ``lost_per_hour`` is how often it is interrupted in a typical life.
    """

    name: str
    parts: tuple[GangPart, ...]
    usd_per_hour: UsdPerHour
    amortised_usd_per_hour: UsdPerHour | None
    risk: GangRisk
    lost_per_hour: float
    weak: str
    external: ExternalCost | None
    risk_basis: str


class GangOffers:
    """Makes the gangs of one book, each once."""

    def __init__(self, book: PriceBook, limits: Limits, experience: Experience, risk_quantile: float | None) -> None:
        self._book = book
        self._experience, self._risk_quantile = experience, risk_quantile
        self._external_costs = ExternalCosts(book, limits)
        # Keyed by identity because listings are slow to hash; they live as long as their finder.
        self._gangs: dict[tuple[tuple[int, int], ...], GangOffer] = {}

    @cached_property
    def _risk(self) -> RiskTable:
        """Return the risk of gangs by the book and by what was counted in pools."""
        return self._experience.risk(self._book).at_quantile(self._risk_quantile)

    def gang(self, spread: Spread, accelerators: int) -> GangOffer:
        """Return the gang of so many machines of each listing."""
        key = tuple((id(listing), machines) for listing, machines in spread)
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = self._make(spread, accelerators)
        return gang

    def _make(self, spread: Spread, accelerators: int) -> GangOffer:
        parts = tuple(GangPart(listing.offer, listing.machine, machines, listing) for listing, machines in spread)
        risks = [self._risk.gang(p.offer, p.machine, p.machines) for p in parts]
        risk = join_risks(risks)
        places = ((p.machines, p.machine, p.listing.region) for p in parts)
        return GangOffer(
            name=f"{parts[-1].listing.name}x{accelerators}{_kind(parts)}",
            parts=parts,
            usd_per_hour=_sum_rates(p.offer.usd_per_hour.times(p.machines) for p in parts),
            amortised_usd_per_hour=_amortised(parts),
            risk=risk,
            lost_per_hour=risk.per_hour_over(TYPICAL_LIFE),
            weak=join_doubts([*(p.offer.weak for p in parts), *(r.weak for r in risks)]),
            external=self._external_costs.of_machines(places),
            risk_basis=describe_risk(risks),
        )


def join_doubts(doubts: Iterable[str]) -> str:
    """Return the reasons for doubt, each once."""
    return "; ".join(dict.fromkeys(doubt for doubt in doubts if doubt))


def _kind(parts: tuple[GangPart, ...]) -> str:
    """Return the suffix of a candidate's key that tells gangs of several parts apart."""
    if len(parts) == 1:
        return ""
    first = parts[0]
    if first.offer.instance_type != parts[-1].offer.instance_type:
        own = f"({first.listing.reservation})" if first.listing.reservation else ""
        return f"+{first.machines}x{first.offer.instance_type}{own}"
    return "+core" if parts[0].offer.market is not parts[-1].offer.market else "+zones"


def _amortised(parts: tuple[GangPart, ...]) -> UsdPerHour | None:
    """Return the amortised price of a gang an hour; None where that of a part is not known."""
    rates = [part.listing.amortised for part in parts]
    if any(rate is None for rate in rates):
        return None
    return _sum_rates(rate.times(part.machines) for rate, part in zip(rates, parts, strict=True) if rate is not None)


def _sum_rates(rates: Iterator[UsdPerHour]) -> UsdPerHour:
    return UsdPerHour(sum(rate.nanos for rate in rates))
