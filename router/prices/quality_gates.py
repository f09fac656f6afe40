"""Quality gates that a fetched price must pass before it enters the book: no jump, no vanished region. Pure.

A gate holds back what it doubts, and the older row stays, marked; nothing is guessed. Doubt needs something recent to
compare with: against a catalogue of last year every price has moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from datetime import datetime, timedelta

from pricing.offers import Offer, OfferKey
from pricing.places import Market

RegionMarket = tuple[str, str, Market]


@dataclass(frozen=True, slots=True)
class GateLimits:
    """The limits of the gates.

    ``jump`` is the largest factor, up or down, between two prices of an offer; ``recent`` is how old the earlier one
    may be to count; ``accept`` switches both gates off, for one call.
    """

    jump: float = 3.0
    recent: timedelta = timedelta(days=45)
    accept: bool = False


@dataclass(frozen=True, slots=True)
class GateRejection:
    """An offer or market that a gate held back.

    ``key`` None: a whole market of a region; ``gate`` is the same for the same reason.
    """

    cloud: str
    region: str
    market: Market
    key: OfferKey | None
    gate: str
    what: str

    @classmethod
    def of(cls, offer: Offer, gate: str, what: str) -> GateRejection:
        """Return a rejection of a single offer."""
        return cls(offer.cloud, offer.region, offer.market, offer.key, gate, what)

    def __str__(self) -> str:
        if self.key is None:
            return f"{self.cloud}/{self.region} {self.market}: {self.what}"
        _, _, zone, instance_type, _ = self.key
        place = f"{self.cloud}/{self.region}/{zone}" if zone else f"{self.cloud}/{self.region}"
        return f"{place} {instance_type} {self.market}: {self.what}"


def hold_back(
    fetched: Mapping[OfferKey, Offer],
    empty: Set[RegionMarket],
    old: Mapping[OfferKey, Offer],
    now: datetime,
    limits: GateLimits,
) -> tuple[dict[OfferKey, Offer], tuple[GateRejection, ...]]:
    """Return the fetched offers that pass, and what was held back, sorted.

    ``empty`` are the markets that were seen whole and sold nothing.
    """
    if limits.accept:
        return dict(fetched), ()
    recent = {
        key: offer
        for key, offer in old.items()
        if offer.as_of is not None and now.date() - offer.as_of <= limits.recent
    }
    jumped = list(_jumps(fetched, recent, limits.jump))
    vanished = list(_vanished(empty, recent.values()))
    jumped_keys = {held.key for held in jumped}
    passed = {key: offer for key, offer in fetched.items() if key not in jumped_keys}
    return passed, tuple(sorted((*jumped, *vanished), key=str))


def _jumps(fetched: Mapping[OfferKey, Offer], recent: Mapping[OfferKey, Offer], jump: float) -> Iterable[GateRejection]:
    for key, offer in fetched.items():
        before = recent.get(key)
        if before is None:
            continue
        low, high = sorted((before.usd_per_hour.nanos, offer.usd_per_hour.nanos))
        if high > low * jump:
            what = f"{offer.usd_per_hour} after {before.usd_per_hour} of {before.as_of}: more than {jump:g} times"
            yield GateRejection.of(
                offer, "price jump", f"{what} {'up' if offer.usd_per_hour > before.usd_per_hour else 'down'}"
            )


def _vanished(empty: Set[RegionMarket], recent: Iterable[Offer]) -> Iterable[GateRejection]:
    before = Counter((offer.cloud, offer.region, offer.market) for offer in recent)
    for place, count in before.items():
        if place in empty:
            what = f"sells nothing any more, after {count} offers in the book before"
            yield GateRejection(*place, None, "region vanished", what)
