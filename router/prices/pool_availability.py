"""Availability of single spot pools from the price history: every observation, in order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.book import PriceBook
from pricing.observed_risk import Exposure, estimate_loss_rate, measure_exposure
from pricing.offers import Offer, OfferKey
from pricing.places import Market
from pricing.risk import BAND_UPPER_EDGES, band_rate
from router.prices.history_sql import IS_CURRENT_ROW, PLACE, Selection, from_microseconds, query_parts
from router.spot.policies.interface import SpotPoolKey

if TYPE_CHECKING:
    import duckdb


# Outages of contested pools last about an hour and a half (docs/design/005-interruption-priors.md): less frequent
# observation misses their beginning, and many of them altogether.
LONGEST_GAP = timedelta(minutes=30)


LEAST_HOURS = 24.0


PRIOR_HOURS = 24.0


_AT_A_TIME = 100_000


_SPOT = Selection(markets=(Market.SPOT,))


def estimate_interruption_rates(
    folder: Path, book: PriceBook, now: datetime, window: timedelta, longest_gap: timedelta = LONGEST_GAP
) -> Mapping[OfferKey, float]:
    """Return interruptions per machine-hour of the spot offers whose pool was observed for at least ``LEAST_HOURS``.

    The hours are those in which a machine could be obtained, in the ``window`` before ``now``. Pool and offer are of
    the same cloud, region, zone and type; a share of obtainable machines above zero counts as available. The rate is
    shrunk towards what the book would assume without observations (the band, else the prior; never the rate that the
    offer states, which may come from here), weighing ``PRIOR_HOURS``. Of several sources the one with the longest
    observation counts, since they may have observed the same hours. InvalidInputError for a file that cannot be read.
    """
    offers = {offer.key: offer for offer in book.offers if offer.market is Market.SPOT}
    rates = {}
    for key, seen in read_exposures(folder, now - window, now, longest_gap).items():
        offer = offers.get(key)
        prior = None if offer is None else _rate_without_history(book, offer)
        if prior is not None and seen.hours >= LEAST_HOURS:
            rates[key] = estimate_loss_rate(seen, prior, PRIOR_HOURS)
    return rates


def read_exposures(
    folder: Path,
    since: datetime,
    until: datetime,
    longest_gap: timedelta = LONGEST_GAP,
    which: Selection = _SPOT,
) -> Mapping[OfferKey, Exposure]:
    """Return the exposure of each spot pool between the two moments, by the source that observed it longest.

    ``which`` may leave out pools.
    """
    where, values = replace(which, markets=(Market.SPOT,)).where(since, until)
    sql = f"""
        SELECT cloud, region, coalesce(zone, ''), instance_type, market, source, epoch_us("at"), available > 0
        FROM (SELECT * FROM stored WHERE {where} QUALIFY {IS_CURRENT_ROW}) WHERE available IS NOT NULL
        ORDER BY {", ".join(PLACE)}, source, "at" """

    def read(connection: duckdb.DuckDBPyConnection) -> dict[OfferKey, Exposure]:
        longest: dict[OfferKey, Exposure] = {}
        for series, rows in groupby(_risk_rows(connection.execute(sql, values)), key=itemgetter(0, 1, 2, 3, 4, 5)):
            key: OfferKey = series[:5]
            seen = measure_exposure(((from_microseconds(at), available) for *_, at, available in rows), longest_gap)
            if key not in longest or seen.hours > longest[key].hours:
                longest[key] = seen
        return longest

    return query_parts(folder, read, since, until) or {}


def _risk_rows(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str, str, str, str, str, int, bool]]:
    while rows := cursor.fetchmany(_AT_A_TIME):
        yield from rows


def _rate_without_history(book: PriceBook, offer: Offer) -> float | None:
    """Return interruptions per machine-hour without any history; None where no prior covers the machine or place."""
    if offer.interruption_band in BAND_UPPER_EDGES:
        return band_rate(offer.interruption_band)
    machine = book.machine(offer.cloud, offer.instance_type)
    try:
        return (
            book.risk.prior(offer.cloud, machine.accelerator, offer.market).interruptions_per_machine_hour
            if machine
            else None
        )
    except LookupError:
        return None


def list_observed_pools(folder: Path, since: datetime, until: datetime) -> tuple[SpotPoolKey, ...]:
    """Return the spot pools that were observed between the two moments, in order.

    InvalidInputError as :func:`read_observations`.
    """
    where, values = Selection(markets=(Market.SPOT,)).where(since, until)
    sql = f"""
        SELECT DISTINCT cloud, region, coalesce(zone, ''), instance_type FROM stored
        WHERE {where} AND available IS NOT NULL ORDER BY ALL"""

    def read(connection: duckdb.DuckDBPyConnection) -> tuple[SpotPoolKey, ...]:
        return tuple((str(c), str(r), str(z), str(t)) for c, r, z, t in connection.execute(sql, values).fetchall())

    return query_parts(folder, read, since, until) or ()


def read_observations(
    folder: Path, pools: Collection[SpotPoolKey], since: datetime, until: datetime
) -> Mapping[SpotPoolKey, tuple[tuple[datetime, bool], ...]]:
    """Return, of each pool observed between the two moments, each observation and whether there were machines.

    Of several sources the one that observed most often counts. InvalidInputError for a file that cannot be read.
    """
    if not pools:
        return {}
    which = Selection(
        regions=tuple(sorted({f"{cloud}/{region}" for cloud, region, _, _ in pools})),
        instance_types=tuple(sorted({kind for *_, kind in pools})),
        markets=(Market.SPOT,),
    )
    where, values = which.where(since, until)
    sql = f"""
        SELECT cloud, region, coalesce(zone, ''), instance_type, source, epoch_us("at"), available > 0
        FROM (SELECT * FROM stored WHERE {where} QUALIFY {IS_CURRENT_ROW}) WHERE available IS NOT NULL
        ORDER BY {", ".join(PLACE)}, source, "at" """

    def read(connection: duckdb.DuckDBPyConnection) -> dict[SpotPoolKey, tuple[tuple[datetime, bool], ...]]:
        most: dict[SpotPoolKey, tuple[tuple[datetime, bool], ...]] = {}
        for series, rows in groupby(_rows(connection.execute(sql, values)), key=itemgetter(0, 1, 2, 3, 4)):
            pool: SpotPoolKey = series[:4]
            if pool in pools:
                seen = tuple((from_microseconds(at), bool(up)) for *_, at, up in rows)
                if len(seen) > len(most.get(pool, ())):
                    most[pool] = seen
        return most

    return query_parts(folder, read, since, until) or {}


def _rows(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str, str, str, str, int, bool]]:
    while rows := cursor.fetchmany(_AT_A_TIME):
        yield from rows
