"""DuckDB access to history parts: columns, filters, the choice among points with one key, and diagnosis of bad files.

Points with the same key (moment, place, machine type, market, source) but other values are all stored on disk; the one
written last counts. Queries apply this rule to the rows they have filtered, so parts may overlap.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pricing.places import Market
from pricing.problems import InvalidInputError, Problem
from router.files import duckdb_session
from router.prices.history_parts import HistoryPart, list_parts

if TYPE_CHECKING:
    import duckdb

SCHEMA_VERSION = 1
VERSION_KEY = "stepfare_price_history"
MEMORY = "384MB"
# "at" is quoted, because it is a keyword of DuckDB's SQL.
PLACE = ("cloud", "region", "zone", "instance_type", "market")
KEY = ('"at"', *PLACE, "source")
VALUES = ("usd_nanos_per_hour", "available", "score")
CONTENT = ('"at"', *PLACE, *VALUES, "source")
_SERIES = ", ".join((*PLACE, "source"))
# The row that counts has no other of its key after it. The values come last, so that ties do not depend on file order.
IS_CURRENT_ROW = (
    f'lead("at") OVER (PARTITION BY {_SERIES} ORDER BY "at", batch, {", ".join(VALUES)}) IS DISTINCT FROM "at"'
)
_TRIES = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected series: an empty tuple lets all pass. A region is ``us-east-1`` or ``aws/us-east-1``."""

    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    markets: tuple[Market, ...] = ()
    sources: tuple[str, ...] = ()

    def where(self, since: datetime | None = None, until: datetime | None = None) -> tuple[str, list[object]]:
        """Return the SQL condition and its parameters, for ``since`` <= at < ``until``."""
        terms, values = ["true"], list[object]()
        markets = tuple(market.value for market in self.markets)
        names = {"cloud": self.clouds, "zone": self.zones, "instance_type": self.instance_types, "market": markets}
        for column, wanted in (names | {"source": self.sources}).items():
            if wanted:
                terms.append(f"{column} IN ({_marks(wanted)})")
                values += wanted
        if self.regions:
            # The plain names are a condition of their own, because only that lets DuckDB skip whole row groups.
            names_only = [region.rpartition("/")[2] for region in self.regions]
            either = ["(cloud || '/' || region) = ?" if "/" in region else "region = ?" for region in self.regions]
            terms.append(f"region IN ({_marks(names_only)}) AND ({' OR '.join(either)})")
            values += [*names_only, *self.regions]
        for moment, sign in ((since, ">="), (until, "<")):
            if moment is not None:
                terms.append(f'"at" {sign} make_timestamptz(?)')
                values.append(to_microseconds(moment))
        return " AND ".join(terms), values


EVERYTHING = Selection()


def to_microseconds(moment: datetime) -> int:
    """Return the microseconds since 1970, as DuckDB counts them."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_microseconds(microseconds: int) -> datetime:
    """Return the moment (UTC) of ``microseconds`` since 1970."""
    return _EPOCH + timedelta(microseconds=microseconds)


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))


def connect() -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """Connect to a database in memory, within ``MEMORY``, spilling to the system's temporary folder.

    It loads nothing from a network.
    """
    return duckdb_session.connect(MEMORY, ordered=True)


def open_parts(connection: duckdb.DuckDBPyConnection, parts: Sequence[HistoryPart]) -> None:
    """Make ``stored`` the rows of the parts (at least one); InvalidInputError where one is of another version."""
    # The names are escaped, so that they are not read as patterns.
    files = ", ".join(duckdb_session.sql_text(glob.escape(str(part.path))) for part in parts)
    sql = f"SELECT file_name, decode(value) FROM parquet_kv_metadata([{files}]) WHERE decode(key) = ?"
    versions: dict[str, str] = dict(connection.execute(sql, [VERSION_KEY]).fetchall())
    problems = [_version_problem(part, versions.get(str(part.path))) for part in parts]
    if any(problems):
        raise InvalidInputError(problem for problem in problems if problem is not None)
    connection.execute(f"CREATE OR REPLACE TEMP VIEW stored AS FROM read_parquet([{files}], hive_partitioning = false)")


def _version_problem(part: HistoryPart, version: str | None) -> Problem | None:
    if version is None:
        return Problem(str(part.path), "", "is no part of a price history", "remove it from the folder")
    if version != str(SCHEMA_VERSION):
        what = f"has schema version {version}, this program reads {SCHEMA_VERSION}"
        return Problem(str(part.path), "", what, "written by a later version: update stepfare")
    return None


def query_parts(
    folder: Path,
    read: Callable[[duckdb.DuckDBPyConnection], T],
    since: datetime | None = None,
    until: datetime | None = None,
) -> T | None:
    """Return what ``read`` makes of ``stored``, the parts of the months from ``since`` to ``until``.

    None without parts. The query is repeated with the current parts where one was merged away meanwhile.
    InvalidInputError names the files that cannot be read.
    """
    import duckdb

    for _ in range(_TRIES):
        parts = list_parts(folder, since, until)
        if not parts:
            return None
        with connect() as connection:
            try:
                open_parts(connection, parts)
                return read(connection)
            except duckdb.Error as error:
                if all(part.path.exists() for part in parts):
                    raise find_bad_parts(connection, parts, error) from None
    raise InvalidInputError.single("is being rewritten all the time", where=str(folder), remedy="try again later")


def find_bad_parts(
    connection: duckdb.DuckDBPyConnection, parts: Sequence[HistoryPart], error: duckdb.Error
) -> InvalidInputError | OSError:
    """Return the error to raise when reading failed; it names the bad files, each of which is read by itself."""
    import duckdb

    problems = []
    for part in parts:
        try:
            open_parts(connection, [part])
            connection.execute(f"SELECT bit_xor(hash({', '.join((*CONTENT, 'batch'))})) FROM stored").fetchall()
        except duckdb.Error as fault:
            what = f"cannot be read, it may be truncated: {_first_line(fault)}"
            remedy = "remove this file; only the points in it are lost, and a refresh may fetch them again"
            problems.append(Problem(str(part.path), "", what, remedy))
    return InvalidInputError(problems) if problems else OSError(f"price history cannot be read: {_first_line(error)}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
