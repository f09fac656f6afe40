"""Copies of training data in buckets near machines: which data, where, whose, and until when they are kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, delete, select

from pricing.places import RegionId
from router.state.columns import storable_text
from router.state.rows import StatePart, insert_or_update, record_values
from router.state.tables import record_table


@dataclass(frozen=True, slots=True)
class DataCopy:
    """A copy of the data at ``uri``, in a region, below ``url``.

    ``team`` is the owner: the team of the job that it was made for. ``made_at`` is None until it is whole, and again
    while changed files are copied; ``bytes`` and ``files`` are those of the whole copy. It is kept ``until`` then.
    """

    uri: str
    cloud: str
    region: str
    url: str
    team: str
    bytes: int
    files: int
    begun_at: datetime
    made_at: datetime | None
    until: datetime

    @property
    def place(self) -> RegionId:
        """The region that it is in."""
        return RegionId(self.cloud, self.region)

    def is_usable(self, now: datetime) -> bool:
        """Return whether the copy is whole and its end date lies ahead."""
        return self.made_at is not None and now < self.until


DATA_COPIES = record_table("data_copies", DataCopy, key=("uri", "cloud", "region"))


class DataCopies(StatePart):
    """The copies of data that a database knows."""

    def all(self) -> tuple[DataCopy, ...]:
        """Return every copy, by data and region."""
        columns = DATA_COPIES.c
        query = select(DATA_COPIES).order_by(columns.uri, columns.cloud, columns.region)
        return self._records(DATA_COPIES, query, DataCopy)

    def usable(self, now: datetime) -> tuple[DataCopy, ...]:
        """Return the copies that are whole, and whose end date lies ahead."""
        return tuple(copy for copy in self.all() if copy.is_usable(now))

    def get(self, uri: str, place: RegionId) -> DataCopy | None:
        """Return the copy of the data in a region."""
        return self._first_record(DATA_COPIES, select(DATA_COPIES).where(_is_copy(uri, place)), DataCopy)

    def put(self, copy: DataCopy) -> None:
        """Store a copy; one of the same data in the same region is replaced."""
        values = {**record_values(copy), "uri": storable_text(copy.uri), "team": storable_text(copy.team)}
        keys = {"uri", "cloud", "region"}
        with self._database.write() as connection:
            insert_or_update(connection, DATA_COPIES, [values], replacing=[name for name in values if name not in keys])

    def remove(self, copies: Iterable[DataCopy]) -> None:
        """Forget copies; repeating it is harmless."""
        with self._database.write() as connection:
            for copy in copies:
                connection.execute(delete(DATA_COPIES).where(_is_copy(copy.uri, copy.place)))


def _is_copy(uri: str, place: RegionId) -> ColumnElement[bool]:
    columns = DATA_COPIES.c
    return and_(columns.uri == storable_text(uri), columns.cloud == place.cloud, columns.region == place.region)
