"""Availability of single spot pools from the price history: every observation, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pricing.book import PriceBook
from pricing.offers import OfferKey
from pricing.places import Market
from pricing.pool_experience import ExperienceKind, Exposure, PoolExperience, measure_exposure
from router.prices.history_sql import IS_CURRENT_ROW, PLACE, Selection, fetch_rows, from_microseconds, query_parts

if TYPE_CHECKING:
    import duckdb

    from router.spot.policies.interface import SpotPoolKey


# Outages of contested pools last about an hour and a half (docs/design/interruption-risk.md): less frequent
# observation misses their beginning, and many of them altogether.
LONGEST_GAP = timedelta(minutes=30)
_AT_A_TIME = 100_000
_SPOT = Selection(markets=(Market.SPOT,))
_Observations = tuple[tuple[datetime, bool], ...]
T = TypeVar("T")


def read_pool_records(
    folder: Path, book: PriceBook, now: datetime, window: timedelta, longest_gap: timedelta = LONGEST_GAP
) -> tuple[PoolExperience, ...]:
    """Return how long machines could be had in each spot pool of the history, and how often that ended, sorted.

    These are pools of the clouds that the book sells and of machines that it knows, in the ``window`` before ``now``;
    older observations count less (:func:`pricing.pool_experience.memory_weight`). Every watched hour counts. A share of
    obtainable machines above zero counts as available. ``runs`` are the times that a pool was found available anew,
    ``first_at`` and ``last_at`` the first and last observation. InvalidInputError for a file that cannot be read.
    """
    clouds = {offer.cloud for offer in book.offers}
    records = [
        PoolExperience(
            cloud=cloud,
            region=region,
            zone=zone or None,
            instance_type=instance_type,
            market=Market.SPOT,
            machines=1,
            hours=watch.exposure.hours,
            exposure=watch.exposure.operational,
            interruptions=watch.exposure.losses,
            runs=watch.exposure.lives,
            first_at=watch.first_at,
            last_at=watch.last_at,
            kind=ExperienceKind.AVAILABILITY,
            waited_hours=watch.exposure.waited_hours,
            waits=watch.exposure.waits,
        )
        for (cloud, region, zone, instance_type, _), watch in _read_watches(
            folder, now - window, now, longest_gap, _SPOT, decaying=True
        ).items()
        if cloud in clouds and watch.is_seen and book.machine(cloud, instance_type) is not None
    ]
    return tuple(sorted(records, key=lambda record: record.key))


def read_exposures(
    folder: Path,
    since: datetime,
    until: datetime,
    longest_gap: timedelta = LONGEST_GAP,
    which: Selection = _SPOT,
) -> Mapping[OfferKey, Exposure]:
    """Return the exposure of each spot pool between the two moments, by the source that observed it longest.

    Old and new observations count alike. ``which`` may leave out pools.
    """
    watches = _read_watches(folder, since, until, longest_gap, which, decaying=False)
    return {key: watch.exposure for key, watch in watches.items()}


@dataclass(frozen=True, slots=True)
class _Watch:
    """The exposure of a pool by one source, and its first and last observation."""

    exposure: Exposure
    first_at: datetime
    last_at: datetime

    @property
    def is_seen(self) -> bool:
        """Return whether it was observed for some time."""
        return self.exposure.hours > 0 or self.exposure.waited_hours > 0


def _read_watches(
    folder: Path, since: datetime, until: datetime, longest_gap: timedelta, which: Selection, *, decaying: bool
) -> Mapping[OfferKey, _Watch]:
    """Return what was observed of each spot pool by the source that observed it longest.

    Several sources may have observed the same hours, so that their sum would count these twice.
    """

    def measure(seen: _Observations) -> tuple[float, _Watch]:
        exposure = measure_exposure(seen, longest_gap, until if decaying else None)
        return exposure.hours, _Watch(exposure, seen[0][0], seen[-1][0])

    return _read_longest(folder, replace(which, markets=(Market.SPOT,)), since, until, measure)


def _read_longest(
    folder: Path,
    which: Selection,
    since: datetime,
    until: datetime,
    measure: Callable[[_Observations], tuple[float, T]],
) -> dict[OfferKey, T]:
    """Return, of each pool, what ``measure`` makes of the source whose observations it measures as longest."""
    where, values = which.where(since, until)
    sql = f"""
        SELECT cloud, region, coalesce(zone, ''), instance_type, market, source, epoch_us("at"), available > 0
        FROM (SELECT * FROM stored WHERE {where} QUALIFY {IS_CURRENT_ROW}) WHERE available IS NOT NULL
        ORDER BY {", ".join(PLACE)}, source, "at" """

    def read(connection: duckdb.DuckDBPyConnection) -> dict[OfferKey, tuple[float, T]]:
        longest: dict[OfferKey, tuple[float, T]] = {}
        for series, rows in groupby(_rows(connection.execute(sql, values)), key=itemgetter(0, 1, 2, 3, 4, 5)):
            key: OfferKey = series[:5]
            length, value = measure(tuple((from_microseconds(at), bool(available)) for *_, at, available in rows))
            if key not in longest or length > longest[key][0]:
                longest[key] = (length, value)
        return longest

    return {key: value for key, (_, value) in (query_parts(folder, read, since, until) or {}).items()}


def _rows(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str, str, str, str, str, int, bool]]:
    while rows := cursor.fetchmany(_AT_A_TIME):
        yield from rows


def list_observed_pools(folder: Path, since: datetime, until: datetime) -> tuple[SpotPoolKey, ...]:
    """Return the spot pools that were observed between the two moments, in order.

    InvalidInputError as :func:`read_observations`.
    """
    where, values = Selection(markets=(Market.SPOT,)).where(since, until)
    sql = f"""
        SELECT DISTINCT cloud, region, coalesce(zone, ''), instance_type FROM stored
        WHERE {where} AND available IS NOT NULL ORDER BY ALL"""
    return tuple((str(c), str(r), str(z), str(t)) for c, r, z, t in fetch_rows(folder, sql, values, since, until))


def read_observations(
    folder: Path, pools: Collection[SpotPoolKey], since: datetime, until: datetime
) -> Mapping[SpotPoolKey, _Observations]:
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
    observed = _read_longest(folder, which, since, until, lambda seen: (len(seen), seen))
    return {key[:4]: seen for key, seen in observed.items() if key[:4] in pools}
