"""Merge of fetched offers and the older book into the next price book. Pure.

Where a source saw a region's market whole, its offers replace the older ones; elsewhere the older ones stay, marked.
Quality gates hold back what looks wrong, a jump or a vanished region, and name it; the older row stays, marked, and
nothing is guessed. Doubt needs something recent to compare with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import chain
from typing import TypeVar

from pricing.book import PriceBook
from pricing.offers import Offer, OfferKey, find_listed, is_sound, mark_capped_spot, mark_stale, remove_rounding_excess
from pricing.places import Market
from pricing.sale_rules import explain_unsold
from providers.protocol import DroppedRow, FetchResult

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


T = TypeVar("T")
Cover = tuple[str, str, Market]  # cloud, region, market


@dataclass(frozen=True, slots=True)
class CloudCounts:
    """The changes to one cloud's offers. ``kept`` were not fetched this time and stay from the older book."""

    fresh: int = 0
    added: int = 0
    changed: int = 0
    removed: int = 0
    kept: int = 0


@dataclass(frozen=True)
class MergedBook:
    """The next book, the changes by cloud, and what was held back.

    ``passed_over`` counts offers that the book knew better: with a later date, or from a better source.
    """

    book: PriceBook
    counts: Mapping[str, CloudCounts]
    held: tuple[GateRejection, ...]
    passed_over: int = 0


def merge_books(
    base: PriceBook,
    tables: PriceBook,
    results: Mapping[str, Sequence[FetchResult]],
    now: datetime,
    limits: GateLimits,
    *,
    asked_clouds: Iterable[str],
) -> MergedBook:
    """Merge the book as of ``now``: older offers from ``base``, other tables from ``tables`` first.

    ``results`` are fetch results by cloud. Of the ``asked_clouds``, offers that were not fetched are marked stale;
    those of other clouds stay as they are. The book holds no offer that its own check would refuse.
    """
    covered = {(cloud, *pair) for cloud, parts in results.items() for part in parts for pair in part.covered}
    given = _by_key(results)
    fetched, better = _drop_worse(given, covered, base.offers, now, limits)
    old = {offer.key: offer for offer in base.offers}
    empty = covered - {(offer.cloud, offer.region, offer.market) for offer in given.values()}
    fresh, held = hold_back(fetched, empty, old, now, limits)
    asked_clouds = frozenset(asked_clouds)
    older: dict[OfferKey, Offer] = {}
    replaced = _other_granularity(fresh)
    held_keys = {h.key for h in held if h.key is not None}
    held_markets = {(h.cloud, h.region, h.market) for h in held if h.key is None}
    for key, offer in old.items():
        place = (offer.cloud, offer.region, offer.market)
        if key in fresh or (*key[:2], *key[3:], offer.zone is None) in replaced:
            continue
        if key not in better and place in covered and key not in held_keys and place not in held_markets:
            continue
        stale = offer.cloud in asked_clouds
        older[key] = mark_stale(offer, base.as_of.date()) if stale else offer
    offers, dear_spot = _drop_dear_spot({**older, **fresh}, frozenset(fresh))
    parts = [part for found in results.values() for part in found]
    found = FetchResult(
        machines=tuple(m for p in parts for m in p.machines),
        regions=tuple(r for p in parts for r in p.regions),
        tariffs=tuple(t for p in parts for t in p.tariffs),
    )
    book = replace(extend_tables(tables, found, base), as_of=now, offers=mark_capped_spot(offers.values()))
    return MergedBook(book, _count(old, offers, fresh), (*held, *dear_spot), len(given) - len(fetched))


def _by_key(results: Mapping[str, Sequence[FetchResult]]) -> dict[OfferKey, Offer]:
    return {offer.key: offer for parts in results.values() for part in parts for offer in part.offers}


def _drop_worse(
    given: Mapping[OfferKey, Offer], covered: Set[Cover], old: Iterable[Offer], now: datetime, limits: GateLimits
) -> tuple[dict[OfferKey, Offer], frozenset[OfferKey]]:
    """Return the fetched offers that may replace older ones, and the keys of the older ones that are better.

    A less certain price does not replace a sound one that is still recent: a rounded saving of a public file, a price
    for a whole region in place of its zones when the source did not see them, yesterday's catalogue after a price of
    today.
    """
    recent = [o for o in old if is_sound(o) and o.as_of is not None and now.date() - o.as_of <= limits.recent]
    by_key = {o.key: o for o in recent}
    by_grain: dict[tuple[tuple[str, str, str, str], bool], list[Offer]] = {}
    for o in recent:
        by_grain.setdefault((_kind(o.key), o.zone is None), []).append(o)
    accepted: dict[OfferKey, Offer] = {}
    doubted: dict[OfferKey, list[Offer]] = {}
    for key, offer in given.items():
        coarser_or_finer = by_grain.get((_kind(key), offer.zone is not None), [])
        rivals = [*coarser_or_finer, by_key[key]] if key in by_key else coarser_or_finer
        unseen = offer.zone is None and bool(coarser_or_finer)
        unseen = unseen and (offer.cloud, offer.region, offer.market) not in covered
        older = any((offer.as_of or date.min) < (rival.as_of or date.min) for rival in rivals)
        if rivals and (unseen or older or not is_sound(offer)):
            doubted[key] = rivals
        else:
            accepted[key] = offer
    replaced = _other_granularity(accepted)
    better: set[OfferKey] = set()
    for key, rivals in doubted.items():
        standing = {rival.key for rival in rivals if (*_kind(rival.key), rival.zone is None) not in replaced}
        better |= standing
        if not standing:
            accepted[key] = given[key]
    return accepted, frozenset(better)


def _kind(key: OfferKey) -> tuple[str, str, str, str]:
    cloud, region, _, instance_type, market = key
    return cloud, region, instance_type, market


def _other_granularity(fresh: Iterable[OfferKey]) -> frozenset[tuple[str, str, str, str, bool]]:
    """Return the offers to replace.

    A price for a whole region gives way to prices of its zones, and the reverse.
    """
    return frozenset((cloud, region, kind, market, bool(zone)) for cloud, region, zone, kind, market in fresh)


def _drop_dear_spot(
    offers: Mapping[OfferKey, Offer], fresh: frozenset[OfferKey]
) -> tuple[dict[OfferKey, Offer], tuple[GateRejection, ...]]:
    """Remove spot prices above the on-demand price of the same machine and place.

    Of a fresh and an older price the older one is removed; of two of the same age the spot price.
    """
    remaining = dict(offers)
    held: list[GateRejection] = []
    for key, offer in offers.items():
        if offer.market is not Market.SPOT:
            continue
        listed_key = find_listed(key, remaining)
        if listed_key is None:
            continue
        listed = remaining[listed_key]
        price = remove_rounding_excess(offer.usd_per_hour, listed.usd_per_hour)
        if price <= listed.usd_per_hour:
            remaining[key] = replace(offer, usd_per_hour=price) if price != offer.usd_per_hour else offer
            continue
        spot_wins = key in fresh and listed_key not in fresh
        loser = listed if spot_wins else offer
        what = f"spot {offer.usd_per_hour} is above on demand {listed.usd_per_hour}"
        if spot_wins:
            what += " of an older book, which is left out"
        del remaining[loser.key]
        held.append(GateRejection.of(loser, "spot above on demand", what))
    return remaining, tuple(held)


def drop_unsold(result: FetchResult, tables: PriceBook) -> FetchResult:
    """Drop, with the reason, offers that the cloud names a price for and does not sell (:mod:`pricing.sale_rules`)."""
    own = {(m.cloud, m.instance_type): m for m in result.machines}
    sold, dropped = [], []
    for offer in result.offers:
        machine = own.get((offer.cloud, offer.instance_type)) or tables.machine(offer.cloud, offer.instance_type)
        why = explain_unsold(
            offer.cloud, offer.instance_type, machine.accelerator_count if machine else 1, offer.market
        )
        if why:
            place = "/".join(filter(None, (offer.region, offer.zone, offer.instance_type, offer.market.value)))
            dropped.append(DroppedRow(place, why))
        else:
            sold.append(offer)
    return replace(result, offers=tuple(sold), dropped=(*result.dropped, *dropped)) if dropped else result


def extend_tables(tables: PriceBook, fetched: FetchResult | None, learnt: PriceBook) -> PriceBook:
    """Return ``tables`` with the machines, regions and tariffs that were just fetched, and those of an older book.

    This version's tables come first; of what they do not know, the newest row counts (a pool file was corrected).
    Priors and signals are this version's alone. Records of interruptions are of both books: no cloud is asked for them.
    """
    now = fetched or FetchResult()
    return replace(
        tables,
        machines=_join_tables((tables.machines, now.machines, learnt.machines), lambda m: (m.cloud, m.instance_type)),
        regions=_join_tables((tables.regions, now.regions, learnt.regions), lambda r: r.id),
        tariffs=_join_tables((tables.tariffs, now.tariffs, learnt.tariffs), lambda t: t.meter),
        records=_join_tables((tables.records, learnt.records), lambda r: (r.key, r.machines, r.kind)),
    )


def _join_tables(lists: Iterable[Iterable[T]], key: Callable[[T], object]) -> tuple[T, ...]:
    rows: dict[object, T] = {}
    for row in chain.from_iterable(lists):
        rows.setdefault(key(row), row)
    return tuple(rows.values())


def _count(
    old: Mapping[OfferKey, Offer], offers: Mapping[OfferKey, Offer], fresh: Mapping[OfferKey, Offer]
) -> dict[str, CloudCounts]:
    counts: dict[str, dict[str, int]] = {}

    def add(cloud: str, what: str) -> None:
        counts.setdefault(cloud, {})[what] = counts.get(cloud, {}).get(what, 0) + 1

    for key, offer in offers.items():
        before = old.get(key)
        add(offer.cloud, "fresh" if key in fresh else "kept")
        if key not in fresh:
            continue
        if before is None:
            add(offer.cloud, "added")
        elif before.usd_per_hour != offer.usd_per_hour:
            add(offer.cloud, "changed")
    for key, offer in old.items():
        if key not in offers:
            add(offer.cloud, "removed")
    return {cloud: CloudCounts(**parts) for cloud, parts in counts.items()}
