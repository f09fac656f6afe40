"""The interruption risk of spot pools, as the command, the pages and the API show it.

Whoever may read prices sees it. Records of a book are of nobody in particular; those of attempts are of the state, and
only the command, which reads the state itself, adds them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date

from pricing.book import PriceBook
from pricing.book_check import did_you_mean
from pricing.offers import Offer
from pricing.places import Market
from pricing.pool_experience import PoolExperience, PoolLosses
from pricing.problems import InvalidInputError
from pricing.risk import GangRisk, RiskTable
from router.app.queries.prices import PriceSources, find_book, list_offers
from router.prices.books import LATEST
from router.render.offers_text import OfferFilters, OfferSortKey
from router.render.pool_risk_view import PoolRisk


def report_pool_risks(
    sources: PriceSources, filters: OfferFilters, today: date, name: str = LATEST
) -> tuple[PoolRisk, ...]:
    """Return the risks of the spot pools of a book that pass the filters, the calmest first.

    AccessDeniedError unless who asks may read prices; InvalidInputError as :func:`list_pool_risks`.
    """
    book = find_book(sources, name)
    return list_pool_risks(book, book.risk, filters, today)


def list_pool_risks(
    book: PriceBook,
    table: RiskTable,
    filters: OfferFilters,
    today: date,
    prefix: str = "",
    losses: Sequence[PoolLosses] = (),
) -> tuple[PoolRisk, ...]:
    """Return the risks of the spot pools that pass the filters, the calmest first; of equal ones by place.

    InvalidInputError for names that the book does not know; ``prefix`` stands before the names of fields.
    """
    selected = list_offers(book, filters, OfferSortKey.HOUR, today, 0, prefix=prefix)
    spot = sorted((row.offer for row in selected.rows if row.offer.market is Market.SPOT), key=lambda o: o.key)
    return tuple(sorted(compute_pool_risks(book, table, spot, losses), key=lambda risk: (risk.median, risk.offer.key)))


def find_pool_risks(
    book: PriceBook, table: RiskTable, pool: str, losses: Sequence[PoolLosses] = ()
) -> tuple[PoolRisk, ...]:
    """Return the risk of the pool ``cloud/region/machine-type``, or of each of its zones.

    Written ``cloud/zone/type`` or ``cloud/region/zone/type`` it is that of one zone. InvalidInputError where no such
    pool is sold.
    """
    words = [word.strip().lower() for word in pool.split("/")]
    if len(words) not in (3, 4) or not all(words):
        what = f"{pool!r} is no pool"
        raise InvalidInputError.single(what, field="POOL", remedy="write aws/us-east-1/p5.48xlarge, or its zone")
    spot = [offer for offer in book.offers if offer.market is Market.SPOT]
    found = [offer for offer in spot if words in _names(offer)]
    if not found:
        known = {f"{o.cloud}/{o.region}/{o.instance_type}" for o in spot}
        remedy = did_you_mean(pool, known) or "stepfare prices risk lists those of the book"
        raise InvalidInputError.single(f"no spot pool {pool!r} is in the book", field="POOL", remedy=remedy)
    return compute_pool_risks(book, table, found, losses)


def compute_pool_risks(
    book: PriceBook, table: RiskTable, offers: Iterable[Offer], losses: Sequence[PoolLosses] = ()
) -> tuple[PoolRisk, ...]:
    """Return the risk of one machine of each offer, in order; an offer that no prior covers is left out.

    Offers of one machine type with the same signals and records have the same risk, which is computed once.
    """
    records: dict[tuple[str, str, str], list[PoolExperience]] = defaultdict(list)
    for record in table.records:
        records[record.cloud, record.region, record.instance_type].append(record)
    known: dict[tuple[object, ...], GangRisk | None] = {}
    found = []
    for offer in offers:
        machine = book.machine(offer.cloud, offer.instance_type)
        if machine is None:
            continue
        near = records.get((offer.cloud, offer.region, offer.instance_type), ())
        own = tuple(record for record in near if record.concerns(offer))
        stated = (offer.interruptions_per_hour, offer.source, offer.as_of)
        signals = (offer.interruption_band, offer.band_as_of, offer.preempted_share)
        key = (offer.cloud, offer.instance_type, signals, stated if stated[0] is not None else None, own)
        if key not in known:
            try:
                known[key] = table.gang(offer, machine, 1)
            except LookupError:
                known[key] = None
        risk = known[key]
        if risk is not None:
            found.append(PoolRisk(offer, machine, risk, own, tuple(row for row in losses if row.concerns(offer))))
    return tuple(found)


def _names(offer: Offer) -> list[list[str]]:
    """Return the ways to name the pool of an offer, in small letters."""
    places = [[offer.region], [offer.zone], [offer.region, offer.zone]] if offer.zone else [[offer.region]]
    return [[word.lower() for word in (offer.cloud, *place, offer.instance_type) if word] for place in places]
