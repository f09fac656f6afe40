"""Where the ledger's facts lie as Parquet, and the manifest that says which files they are.

``<folder>/month=2026-11/000000001-000100000-1f2e3d4c.facts.parquet``, beside it ``.sums.parquet`` and ``.days.parquet``
with the cubes of those facts (:mod:`router.showback.rollups`). A file is never changed, and counts when the manifest
names
it; the manifest is renamed into place last. Who writes or reads holds the lock of the folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from pricing.problems import InvalidInputError
from router.config.duckdb_session import connect, parquet
from router.showback import rollups
from router.state.folders import settle_folder
from router.state.ledger_rows import BEGINNING

# Another one where a column of facts or cubes, or what it means, changes: extracts of others are made anew.
FORMAT = 1
_LOCK_WAIT_S = 600.0
_MANIFEST = "manifest.json"
_KINDS = ("facts", "sums", "days")


@dataclass(frozen=True, slots=True)
class Part:
    """Facts in the books of a month, of the ledger's numbers ``first`` to ``last`` (others may have their own part)."""

    month: str
    first: int
    last: int
    rows: int
    stem: str

    def path(self, folder: Path, kind: str) -> Path:
        """Its file of that kind: ``facts``, ``sums`` or ``days``."""
        return folder / f"month={self.month}" / f"{self.stem}.{kind}.parquet"


@dataclass(frozen=True, slots=True)
class Manifest:
    """Of the ledger of the state ``state``, up to number ``head``, whose row has that ``hash``. ``gaps``: numbers, from
    and to, that had been archived before they were read, and whose entries nobody has given since."""

    state: str
    head: int = 0
    hash: str = BEGINNING
    parts: tuple[Part, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()

    def of_months(self, months: Iterable[str]) -> tuple[Part, ...]:
        """The parts of these months."""
        wanted = set(months)
        return tuple(part for part in self.parts if part.month in wanted)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Alone with the folder, which is made. InvalidInputError where somebody else keeps it for ten minutes."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=_LOCK_WAIT_S):
            yield
    except Timeout:
        what = f"another command has been reading the ledger into it for {_LOCK_WAIT_S:.0f} seconds"
        raise InvalidInputError.single(what, where=str(folder), remedy="try again when it has finished") from None


def read_manifest(folder: Path) -> Manifest | None:
    """None where there is none, or one of another format, or files that it names are gone: then all is made anew."""
    try:
        found = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if found.pop("format") != FORMAT:
            return None
        parts = tuple(Part(**part) for part in found.pop("parts"))
        gaps = tuple((int(first), int(last)) for first, last in found.pop("gaps"))
        manifest = Manifest(parts=parts, gaps=gaps, **found)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    whole = all(part.path(folder, kind).is_file() for part in manifest.parts for kind in _KINDS)
    return manifest if whole else None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Makes its parts count; those that it does not name are taken away."""
    said: dict[str, Any] = {"format": FORMAT, **asdict(manifest)}
    part = folder / f".{_MANIFEST}.part"
    with part.open("w", encoding="utf-8") as stream:
        json.dump(said, stream)
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(folder / _MANIFEST)
    settle_folder(folder)
    sweep(folder, manifest)


def sweep(folder: Path, manifest: Manifest | None) -> None:
    """Removes what no manifest names: parts that were merged, or that somebody who was killed left."""
    named = {part.stem for part in manifest.parts} if manifest is not None else set()
    for path in folder.glob("month=*/*.parquet"):
        if path.name.split(".", 1)[0] not in named:
            with contextlib.suppress(OSError):
                path.unlink()


def write_part(folder: Path, facts: pa.Table, month: str) -> Part:
    """Facts of one month, in the order of their numbers, and their cubes."""
    first, last = facts["row"][0].as_py(), facts["row"][-1].as_py()
    part = _new(month, first, last, facts.num_rows)
    _begin(folder, part)
    with ThreadPoolExecutor(1) as beside, connect() as connection:
        written = beside.submit(_put, part.path(folder, "facts"), facts)
        connection.register("facts", facts)
        _put(part.path(folder, "sums"), _table(connection, rollups.sums_of("facts")))
        _put(part.path(folder, "days"), _table(connection, rollups.days_of("facts")))
        written.result()
    settle_folder(folder / f"month={month}")
    return part


def merge_parts(folder: Path, parts: tuple[Part, ...]) -> Part:
    """Several of one month as one."""
    ordered = sorted(parts, key=lambda part: part.first)
    merged = _new(ordered[0].month, ordered[0].first, max(p.last for p in ordered), sum(p.rows for p in ordered))
    paths = {kind: [part.path(folder, kind) for part in ordered] for kind in _KINDS}
    with connect() as connection:
        _put(merged.path(folder, "sums"), _table(connection, rollups.sums_again(parquet(paths["sums"]))))
        _put(merged.path(folder, "days"), _table(connection, rollups.days_again(parquet(paths["days"]))))
    with (merged.path(folder, "facts")).open("wb") as stream:
        schema = pq.read_schema(paths["facts"][0])
        with pq.ParquetWriter(stream, schema, **_OPTIONS) as writer:
            for path in paths["facts"]:
                with pq.ParquetFile(path) as source:
                    for batch in source.iter_batches(_ROWS_AT_ONCE):
                        writer.write_batch(batch)
        stream.flush()
        os.fsync(stream.fileno())
    settle_folder(folder / f"month={merged.month}")
    return merged


_ROWS_AT_ONCE = 131_072
_OPTIONS: dict[str, Any] = {"compression": "zstd", "compression_level": 1}


def _new(month: str, first: int, last: int, rows: int) -> Part:
    return Part(month, first, last, rows, f"{first:09}-{last:09}-{uuid.uuid4().hex[:8]}")


def _begin(folder: Path, part: Part) -> None:
    (folder / f"month={part.month}").mkdir(mode=0o700, exist_ok=True)


def _table(connection: Any, sql: str) -> pa.Table:
    return connection.sql(sql).arrow().read_all()


def _put(path: Path, table: pa.Table) -> None:
    with path.open("wb") as stream:
        pq.write_table(table, stream, **_OPTIONS)
        stream.flush()
        os.fsync(stream.fileno())
