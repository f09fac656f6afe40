"""DuckDB access to history parts: columns, filters, the choice among points with one key, and diagnosis of bad files.

Points with the same key (moment, place, machine type, market, source) but other values are all stored on disk; the one
written last counts. Queries apply this rule to the rows they have filtered, so parts may overlap.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock, Timeout

from pricing.atomic_file import make_private_folder, publish_file, sync_folder
from pricing.places import Market
from pricing.problems import InvalidInputError, Problem
from router.files import duckdb_session

if TYPE_CHECKING:
    import duckdb


LOCK_WAIT_S = 120.0
_LOCK = ".lock"
_MONTH = re.compile(r"month=(\d{4}-\d{2})")
_PART = re.compile(r"part-(\d{9,})-[0-9a-f]{8}\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class HistoryPart:
    """One file: its month (``2026-11``, UTC), the number of the latest write in it, its size in bytes."""

    month: str
    number: int
    path: Path
    size: int


def month_of(at: datetime) -> str:
    """Return the month a point belongs to, in UTC: ``2026-11``."""
    at = at.astimezone(UTC)
    return f"{at.year:04d}-{at.month:02d}"


def list_parts(folder: Path, since: datetime | None = None, until: datetime | None = None) -> tuple[HistoryPart, ...]:
    """Return the parts of the months that touch ``since`` <= at < ``until``, sorted; none where there is no folder.

    The folder is listed until two listings agree: one that runs while parts are merged might see neither the old nor
    the new.
    """
    first = "" if since is None else month_of(since)
    last = "9999-99" if until is None else month_of(until)
    parts = _scan(folder, first, last)
    while (again := _scan(folder, first, last)) != parts:
        parts = again
    return parts


def _scan(folder: Path, first: str, last: str) -> tuple[HistoryPart, ...]:
    parts = []
    for month, place in _months(folder):
        if not first <= month <= last:
            continue
        for entry in os.scandir(place):
            name = _PART.fullmatch(entry.name)
            if name is not None:
                with contextlib.suppress(FileNotFoundError):  # The part was merged into another since it was listed.
                    parts.append(HistoryPart(month, int(name[1]), Path(entry.path), entry.stat().st_size))
    return tuple(sorted(parts))


def _months(folder: Path) -> Iterator[tuple[str, Path]]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        name = _MONTH.fullmatch(entry.name)
        if name is not None and entry.is_dir():
            yield name[1], Path(entry.path)


@contextmanager
def lock_for_writing(folder: Path) -> Iterator[None]:
    """Hold the folder's lock while anything in it changes; the folder is made if missing.

    TimeoutError when another writer holds the lock. Files that a killed writer left unfinished are removed first: no
    other process can be writing them.
    """
    make_private_folder(folder)
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=LOCK_WAIT_S)
    except Timeout:
        what = f"another process has been writing price history for over {LOCK_WAIT_S:.0f} s"
        raise TimeoutError(errno.ETIMEDOUT, what, str(folder)) from None
    try:
        for _, place in _months(folder):
            for leftover in place.glob(".*.part"):
                leftover.unlink(missing_ok=True)
        yield
    finally:
        lock.release()


def publish_part(folder: Path, month: str, number: int, write: Callable[[Path], None]) -> Path:
    """Have ``write`` fill a temporary file and move it to its place, flushed to the disk.

    Nothing stays if it fails.
    """
    place = folder / f"month={month}"
    make_private_folder(place)
    path = place / f"part-{number:09d}-{uuid.uuid4().hex[:8]}.parquet"
    temporary = place / f".{path.name}.part"
    try:
        write(temporary)
        publish_file(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(folder)  # The month may be new.
    return path


def remove_parts(parts: tuple[HistoryPart, ...]) -> None:
    """Delete parts whose content lies in another one now. One that a reader holds open may stay (Windows)."""
    for part in parts:
        with contextlib.suppress(PermissionError):
            part.path.unlink(missing_ok=True)


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


def fetch_rows(
    folder: Path,
    sql: str,
    values: Sequence[object] = (),
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Any]:
    """Return the rows that a query of ``stored`` gives, as :func:`query_parts`; none without parts."""
    return query_parts(folder, lambda connection: connection.execute(sql, values).fetchall(), since, until) or []


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
