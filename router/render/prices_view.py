"""Values that the pages of prices show, and as data: the book in use, health of clouds, regions, histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime

from pricing.book import PriceBook
from pricing.money import UsdPerHour
from pricing.places import Market, Region, RegionId
from pricing.pool_experience import Exposure
from router.files.csv_text import records_csv
from router.prices.bookstore import StoredBook
from router.prices.history_stats import SeriesStats
from router.prices.refresh_record import RefreshRecord
from router.render.offers_text import OfferRow
from router.render.record_table import SCHEMA_VERSION, RecordTable, TableColumn, attribute_columns

_BOOK_FIELDS = ("name", "latest", "as_of", "digest", "offers", "file", "sha256")


@dataclass(frozen=True, slots=True)
class BookRow:
    """A stored book: of which name (``latest`` or ``sandbox``), and whether commands use it now."""

    name: str
    book: StoredBook
    latest: bool


@dataclass(frozen=True, slots=True)
class CloudHealth:
    """The rows of a cloud in a book: how many, how many doubtful or not refreshed, of which days.

    ``record`` is how its last refresh ended; None where it was never refreshed here.
    """

    cloud: str
    offers: int
    weak: int
    stale: int
    undated: int
    newest: date | None
    oldest: date | None
    record: RefreshRecord | None

    @property
    def failed(self) -> bool:
        return self.record is not None and self.record.status in ("failed", "partial")


def _find_row(rows: tuple[OfferRow, ...], accelerator: str, market: Market) -> OfferRow | None:
    return next((r for r in rows if (r.machine.accelerator, r.offer.market) == (accelerator, market)), None)


@dataclass(frozen=True)
class PricesReport:
    """A book in use as of ``now``; ``cheapest`` has a row for each accelerator and market, in this order.

    ``orderable`` has the same of the offers that can be ordered from here. ``history``: from when until when the price
    history has points, where the book was never fetched; None where it has none.
    """

    name: str
    book: PriceBook
    now: datetime
    cheapest: tuple[OfferRow, ...]
    orderable: tuple[OfferRow, ...]
    clouds: tuple[CloudHealth, ...]
    books: tuple[BookRow, ...]
    history: tuple[datetime, datetime] | None = None

    def find_cheapest(self, accelerator: str, market: Market) -> OfferRow | None:
        """Return the cheapest offer of an accelerator and market, orderable or not; None where there is none."""
        return _find_row(self.cheapest, accelerator, market)

    def find_orderable(self, accelerator: str, market: Market) -> OfferRow | None:
        """Return the cheapest offer of an accelerator and market that can be ordered; None where there is none."""
        return _find_row(self.orderable, accelerator, market)

    @property
    def days(self) -> tuple[date, date] | None:
        """Return the days of the newest and of the oldest row; None where no row says its day."""
        newest = [each.newest for each in self.clouds if each.newest is not None]
        oldest = [each.oldest for each in self.clouds if each.oldest is not None]
        return (max(newest), min(oldest)) if newest and oldest else None

    @property
    def accelerators(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(row.machine.accelerator for row in self.cheapest))


@dataclass(frozen=True, slots=True)
class RegionPrices:
    """A region that sells an accelerator, with the cheapest offer of each market; ``region`` None is not known."""

    id: RegionId
    region: Region | None
    rows: Mapping[Market, OfferRow]

    @property
    def position(self) -> tuple[float, float] | None:
        if self.region is None or self.region.latitude is None or self.region.longitude is None:
            return None
        return self.region.latitude, self.region.longitude

    @property
    def city(self) -> str:
        return self.region.city if self.region is not None and self.region.city else self.id.region

    @property
    def cheapest(self) -> OfferRow:
        """Return the cheapest offer of all markets that are paid for by the hour, else of reservations."""
        return min(self.rows.values(), key=lambda row: row.usd_per_accelerator_hour)


@dataclass(frozen=True, slots=True)
class SeriesPicture:
    """A series with every price, the share of looks that found machines by interval, and how often it ran dry.

    A machine of it has so many ``accelerators``; None where no book knows it.
    """

    stats: SeriesStats
    accelerators: int | None
    steps: tuple[tuple[datetime, UsdPerHour], ...]
    stock: tuple[float | None, ...]
    exposure: Exposure | None

    @property
    def last_each(self) -> UsdPerHour | None:
        """Return the last price of one accelerator; None where no price or no number of them is known."""
        last, count = self.stats.last, self.accelerators
        return None if last is None or not count else UsdPerHour(round(last.nanos / count))


@dataclass(frozen=True, slots=True)
class HistoryReport:
    """Series between two moments, ``series_count`` before the limit; without any, what the history holds at all."""

    since: datetime
    until: datetime
    series: tuple[SeriesPicture, ...]
    series_count: int
    points: int | None
    first: datetime | None
    last: datetime | None


def books_document(books: Sequence[BookRow], in_use: PriceBook, clouds: Sequence[CloudHealth]) -> dict[str, object]:
    """Return the books as in ``stepfare prices list -o json``, with the book in use and its clouds."""
    return {
        "schema_version": SCHEMA_VERSION,
        "books": [book_record(row) for row in books],
        "in_use": {
            "digest": in_use.digest,
            "as_of": in_use.as_of.isoformat(),
            "offers": len(in_use.offers),
            "weak": sum(bool(offer.weak) for offer in in_use.offers),
        },
        "clouds": _CLOUDS.records(clouds),
    }


def book_record(row: BookRow) -> dict[str, object]:
    """Return a stored book as data."""
    return {**asdict(row.book), "latest": row.latest, "name": row.name}


def books_as_csv(books: Sequence[BookRow]) -> str:
    """Return a row per stored book."""
    return records_csv(_BOOK_FIELDS, map(book_record, books))


_CLOUDS: RecordTable[CloudHealth] = RecordTable(
    (
        *attribute_columns("cloud", "offers", "weak"),
        TableColumn("not_refreshed", lambda health: health.stale),
        *attribute_columns("undated", "newest", "oldest"),
        TableColumn("last_refresh", lambda health: health.record),
    )
)
