"""Store the ledger's facts as Parquet, with a manifest that names the files that count.

``<folder>/month=2026-11/000000001-000100000-1f2e3d4c.facts.parquet`` holds facts; beside it ``.sums.parquet`` and
``.days.parquet`` hold their rollups (:mod:`router.showback.rollups`). A file is never changed, and counts when the
manifest names it; the manifest is renamed into place last. Readers and writers hold the lock of the folder.
"""

from __future__ import annotations

import contextlib
import json
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

from pricing.atomic_file import publish_file, sync_folder, sync_stream
from pricing.problems import InvalidInputError
from router.files.duckdb_session import connect, parquet_relation
from router.showback import rollups
from router.state.ledger_rows import BEGINNING

# Increased where a column of facts or rollups, or its meaning, changes; extracts of other formats are made anew.
FORMAT = 1
_LOCK_WAIT_S = 600.0
_MANIFEST = "manifest.json"
_KINDS = ("facts", "sums", "days")


@dataclass(frozen=True, slots=True)
class ExtractPart:
    """Facts in the books of a month, of the ledger's numbers ``first`` to ``last``.

    Some of these numbers may be in a part of their own.
    """

    month: str
    first: int
    last: int
    rows: int
    stem: str

    def path(self, folder: Path, kind: str) -> Path:
        """Return its file of that kind: ``facts``, ``sums`` or ``days``."""
        return folder / f"month={self.month}" / f"{self.stem}.{kind}.parquet"


@dataclass(frozen=True, slots=True)
class ExtractManifest:
    """The parts of the ledger of the state ``state``, up to number ``head``, whose row has that ``hash``.

    ``gaps`` are numbers, from and to, that had been archived before they were read, and whose entries nobody has given
    since.
    """

    state: str
    head: int = 0
    hash: str = BEGINNING
    parts: tuple[ExtractPart, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()

    def of_months(self, months: Iterable[str]) -> tuple[ExtractPart, ...]:
        """Return the parts of these months."""
        chosen = set(months)
        return tuple(part for part in self.parts if part.month in chosen)


@contextmanager
def lock_extract(folder: Path) -> Iterator[None]:
    """Hold the lock of the folder, which is made if missing.

    InvalidInputError where somebody else holds it for ten minutes.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with FileLock(folder / ".lock", timeout=_LOCK_WAIT_S):
            yield
    except Timeout:
        what = f"another command has been reading the ledger into it for {_LOCK_WAIT_S:.0f} seconds"
        raise InvalidInputError.single(what, where=str(folder), remedy="try again when it has finished") from None


def read_manifest(folder: Path) -> ExtractManifest | None:
    """Read the manifest; None where there is none that can be used, and all is made anew.

    That is so for a missing manifest, one of another format, and one that names files that are gone.
    """
    try:
        fields = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if fields.pop("format") != FORMAT:
            return None
        parts = tuple(ExtractPart(**part) for part in fields.pop("parts"))
        gaps = tuple((int(first), int(last)) for first, last in fields.pop("gaps"))
        manifest = ExtractManifest(parts=parts, gaps=gaps, **fields)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    complete = all(part.path(folder, kind).is_file() for part in manifest.parts for kind in _KINDS)
    return manifest if complete else None


def write_manifest(folder: Path, manifest: ExtractManifest) -> None:
    """Write the manifest, which makes its parts count, and remove the parts that it does not name."""
    content: dict[str, Any] = {"format": FORMAT, **asdict(manifest)}
    part = folder / f".{_MANIFEST}.part"
    part.write_text(json.dumps(content), encoding="utf-8")
    publish_file(part, folder / _MANIFEST)
    remove_unnamed_parts(folder, manifest)


def remove_unnamed_parts(folder: Path, manifest: ExtractManifest | None) -> None:
    """Remove parts that no manifest names: those that were merged, or left by a killed process."""
    known_stems = {part.stem for part in manifest.parts} if manifest is not None else set()
    for path in folder.glob("month=*/*.parquet"):
        if path.name.split(".", 1)[0] not in known_stems:
            with contextlib.suppress(OSError):
                path.unlink()


def write_part(folder: Path, facts: pa.Table, month: str) -> ExtractPart:
    """Write facts of one month, in the order of their numbers, and their rollups."""
    first, last = facts["row"][0].as_py(), facts["row"][-1].as_py()
    part = _new_part(month, first, last, facts.num_rows)
    _make_month_folder(folder, part)
    with ThreadPoolExecutor(1) as pool, connect() as connection:
        facts_file = pool.submit(_put, part.path(folder, "facts"), facts)
        connection.register("facts", facts)
        _put(part.path(folder, "sums"), _table(connection, rollups.sums_sql("facts")))
        _put(part.path(folder, "days"), _table(connection, rollups.days_sql("facts")))
        facts_file.result()
    sync_folder(folder / f"month={month}")
    return part


def merge_parts(folder: Path, parts: tuple[ExtractPart, ...]) -> ExtractPart:
    """Merge several parts of one month into one."""
    ordered = sorted(parts, key=lambda part: part.first)
    merged = _new_part(ordered[0].month, ordered[0].first, max(p.last for p in ordered), sum(p.rows for p in ordered))
    paths = {kind: [part.path(folder, kind) for part in ordered] for kind in _KINDS}
    with connect() as connection:
        _put(merged.path(folder, "sums"), _table(connection, rollups.sums_again_sql(parquet_relation(paths["sums"]))))
        _put(merged.path(folder, "days"), _table(connection, rollups.days_again_sql(parquet_relation(paths["days"]))))
    with (merged.path(folder, "facts")).open("wb") as stream:
        schema = pq.read_schema(paths["facts"][0])
        with pq.ParquetWriter(stream, schema, **_OPTIONS) as writer:
            for path in paths["facts"]:
                with pq.ParquetFile(path) as source:
                    for batch in source.iter_batches(_ROWS_AT_ONCE):
                        writer.write_batch(batch)
        sync_stream(stream)
    sync_folder(folder / f"month={merged.month}")
    return merged


_ROWS_AT_ONCE = 131_072
_OPTIONS: dict[str, Any] = {"compression": "zstd", "compression_level": 1}


def _new_part(month: str, first: int, last: int, rows: int) -> ExtractPart:
    return ExtractPart(month, first, last, rows, f"{first:09}-{last:09}-{uuid.uuid4().hex[:8]}")


def _make_month_folder(folder: Path, part: ExtractPart) -> None:
    (folder / f"month={part.month}").mkdir(mode=0o700, exist_ok=True)


def _table(connection: Any, sql: str) -> pa.Table:
    return connection.sql(sql).arrow().read_all()


def _put(path: Path, table: pa.Table) -> None:
    with path.open("wb") as stream:
        pq.write_table(table, stream, **_OPTIONS)
        sync_stream(stream)
