"""Keep an extract of the ledger as facts in Parquet, which grows with the ledger.

The extract can be deleted at any time, and is made again. Only rows with a number above the last are read. The hash of
the last row that was read tells whether it is still the same ledger: if the ledger has another one there, all is made
anew. Rows archived later stay. Rows archived before they were read are missing, and reported
(:attr:`~router.showback.ledger_extract.ExtractManifest.gaps`), until the archive's file is given.

Amounts of the ledger are whole nano-dollars, so that money here has nine places. Quantities are fractions there and
decimals here: 18 places, rounded half to even.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pricing.atomic_file import publish_file, sync_folder, sync_stream
from pricing.money import divide_half_even
from pricing.places import Market
from router.files.duckdb_session import connect, parquet_relation
from router.files.stored_records import hold_folder
from router.ledger.entry import CURRENCY, HOURS, STEPS, CostItem, LedgerEntryKind
from router.showback import rollups
from router.showback.facts import AMOUNT, COLUMNS, MOMENT, TEXT, FactSource, fit_column
from router.showback.focus.columns import CATEGORY_OF_ENTRY, RecordState
from router.state.ledger_rows import BEGINNING, Row
from router.state.ledger_table import REPEATED, LedgerColumns, columns_from_rows

if TYPE_CHECKING:
    from router.state.ledger_store import LedgerStore

# The type of the ledger's money: whole nano-dollars.
NANOS: Final = pa.decimal128(38, 9)
ORIGIN: Final = "ledger"
_Fraction = tuple[int, int]
_PLACES = AMOUNT.scale
_WHOLE = pa.decimal128(38, 0)
_UNIT = 10**_PLACES
_LARGEST = 10**38
_SOURCES = {
    LedgerEntryKind.PLANNED.value: FactSource.PLANNED.value,
    LedgerEntryKind.METERED.value: FactSource.METERED.value,
}
_USAGE = "Usage"
# Text that many rows of the ledger share, and that facts have under the same name.
_SHARED_TEXTS: Final = tuple(field.name for field in COLUMNS if field.type == TEXT and field.name in REPEATED)
# The columns of the ledger's facts, narrower than those of files: money has nine places.
SCHEMA: Final = pa.schema(
    [
        field.with_type(NANOS) if field.name in ("billed", "effective", "list", "on_demand") else field
        for field in COLUMNS
    ]
)


def facts_of_rows(rows: LedgerColumns) -> pa.Table:
    """Return a fact for each row, with :data:`SCHEMA`.

    ``planned`` facts are no money spent. ``billed``, ``effective`` and ``list`` are what the ledger says; all are null,
    like ``on_demand``, where the row is unpriced. The on-demand price of an on-demand machine is its own where the
    ledger has none. ``state`` is Estimated, but Invoiced for what people added with a document's name.
    """
    count, shared = len(rows.seqs), _shared_columns(rows)
    columns = {
        "row": pa.array(rows.seqs, pa.int64()),
        "origin": pa.repeat(ORIGIN, count),
        "currency": pa.repeat(CURRENCY, count),
        "key": _text(rows.single["key"]),
        "resource": _text(rows.single["resource"]),
        "rank": pa.array(rows.single["rank"], pa.int64()),
        "start": _moments(rows.single["start_at"]),
        "end": _moments(rows.single["end_at"]),
        "recorded_at": _moments(rows.single["recorded_at"]),
        **shared,
        **_amounts(rows, shared),
    }
    nothing = pa.nulls(count, TEXT)
    return pa.table([fit_column(columns.get(field.name, nothing), field) for field in SCHEMA], schema=SCHEMA)


def _shared_columns(rows: LedgerColumns) -> dict[str, pa.Array]:
    kinds = rows.said("kind")
    columns = {name: _text(rows.said(name)) for name in _SHARED_TEXTS}
    added = pa.array([kind not in _SOURCES for kind in kinds])
    invoiced = pc.and_(added, pc.is_valid(columns["reference"]))
    columns |= {
        "source": pa.array([_SOURCES.get(kind, FactSource.ADDED.value) for kind in kinds], TEXT),
        "state": pc.if_else(invoiced, RecordState.INVOICED.value, RecordState.ESTIMATED.value),
        "category": pa.array([CATEGORY_OF_ENTRY.get(LedgerEntryKind(kind), _USAGE) for kind in kinds], TEXT),
        "month": _text(rows.said("period")),
        "unpriced": pa.array(rows.said("unpriced"), pa.int64()).cast(pa.bool_()),
    }
    places = pa.array(rows.places, pa.int32())
    return {name: column.take(places) for name, column in columns.items()}


def _amounts(rows: LedgerColumns, shared: dict[str, pa.Array]) -> dict[str, Any]:
    usd = pc.if_else(shared["unpriced"], None, dollars_of_nanos(pa.array(rows.single["usd_nanos"], pa.int64())))
    machine = pc.and_(pc.equal(shared["what"], CostItem.MACHINE.value), pc.equal(shared["unit"], HOURS))
    quantities = [_fraction(text) for text in rows.single["quantity"]]
    counts = [1 if count is None else count for count in rows.said("machines")]
    # A planned row has the accelerators of all its machines together, as a plan's lines do.
    accelerators = [
        (1 if kind == LedgerEntryKind.PLANNED.value else count) * (1 if each is None else each)
        for kind, count, each in zip(rows.said("kind"), counts, rows.said("accelerators"), strict=True)
    ]
    quantity = _products(quantities, itertools.repeat(1))
    hours = quantity if set(counts) == {1} else _products(quantities, [counts[place] for place in rows.places])
    steps, lost_steps = (pa.array(rows.single[name], pa.int64()) for name in ("steps", "lost_steps"))
    useful = pc.if_else(pc.greater(steps, 0), steps, None)
    lost_steps = pc.if_else(pc.greater(lost_steps, 0), lost_steps, None)
    has_steps = pc.or_(pc.is_valid(useful), pc.is_valid(lost_steps))
    return {
        "quantity": quantity,
        "hours": pc.if_else(machine, hours, None),
        "gpu_hours": pc.if_else(machine, _products(quantities, [accelerators[place] for place in rows.places]), None),
        "useful": useful,
        "lost": lost_steps,
        "useful_unit": pc.if_else(has_steps, pa.scalar(STEPS), None),
        "billed": usd,
        "effective": usd,
        "list": usd,
        "on_demand": _on_demand(rows, quantities, counts, shared, pc.if_else(machine, usd, None)),
    }


def _on_demand(
    rows: LedgerColumns,
    quantities: Sequence[_Fraction],
    counts: Sequence[int],
    shared: dict[str, pa.Array],
    usd: pa.Array,
) -> pa.Array:
    """Return the on-demand cost of machines with a price.

    Reserved capacity at no cost has none, for savings against it would be invented.
    """
    rates = rows.said("on_demand_usd_per_hour_nanos")
    on_demand = pc.if_else(
        pc.fill_null(pc.equal(shared["market"], Market.ON_DEMAND.value), fill_value=False), usd, None
    )
    if any(rate is not None for rate in rates):
        all_of_it = [None if rate is None else rate * count for rate, count in zip(rates, counts, strict=True)]
        each = [all_of_it[place] for place in rows.places]
        # The product may be more than 64 bits of nano-dollars, which money in the ledger never is.
        whole = [
            divide_half_even((rate or 0) * top, bottom) for rate, (top, bottom) in zip(each, quantities, strict=True)
        ]
        rated = pc.if_else(pa.array([rate is not None for rate in each]), _decimals(whole, NANOS), None)
        on_demand = pc.coalesce(rated, on_demand)
    # Reserved capacity at 0 is sunk, or was written down before its price was known: nothing is saved by it.
    reserved = pc.fill_null(pc.equal(shared["market"], Market.RESERVED.value), fill_value=False)
    free_reserved = pc.and_(reserved, pc.fill_null(pc.equal(usd, 0), fill_value=True))
    return pc.if_else(pc.and_(pc.is_valid(usd), pc.invert(free_reserved)), on_demand, None)


def dollars_of_nanos(whole: pa.Array) -> pa.Array:
    """Return whole nano-dollars (int64) as dollars with nine places, exactly."""
    wide = pc.cast(whole, _WHOLE)
    # These are the same 128 bits, read with the point nine places further left.
    return pa.Array.from_buffers(NANOS, len(wide), wide.buffers(), offset=wide.offset)


def _text(words: Sequence[Any]) -> pa.Array:
    return pa.array([word or None for word in words], TEXT)


def _moments(texts: Sequence[Any]) -> pa.Array:
    return pc.cast(pa.array(texts, TEXT), MOMENT)


def _fraction(text: Any) -> _Fraction:
    top, _, bottom = text.partition("/")
    return int(top), int(bottom or 1)


def _products(quantities: Iterable[_Fraction], times: Iterable[int]) -> pa.Array:
    pairs = zip(quantities, times, strict=False)
    return _decimals([divide_half_even(top * count * _UNIT, bottom) for (top, bottom), count in pairs], AMOUNT)


def _decimals(whole: Sequence[int], kind: pa.Decimal128Type) -> pa.Array:
    """Return whole numbers of the last place as decimals.

    They are made from 128 bits each, which takes a tenth of the time of Python decimals.
    """
    if max(map(abs, whole)) >= _LARGEST:
        raise ValueError(f"{max(whole, key=abs)}: an amount of more than 38 digits")
    data = b"".join([number.to_bytes(16, "little", signed=True) for number in whole])
    return pa.Array.from_buffers(kind, len(whole), [None, pa.py_buffer(data)])


# Increased where a column of facts or rollups, or its meaning, changes; extracts of other formats are made anew.
FORMAT = 4
_LOCK_WAIT_S = 600.0
_MANIFEST = "manifest.json"
_KINDS = ("facts", "sums", "days")
# A whole Parquet file ends with these bytes.
_PARQUET = b"PAR1"


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
        chosen = set(months)
        return tuple(part for part in self.parts if part.month in chosen)


def read_manifest(folder: Path) -> ExtractManifest | None:
    """Read the manifest; None where there is none that can be used, and all is made anew.

    That is so for a missing manifest, one of another format, and one that names files that are gone or cut off.
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
    complete = all(_is_whole(part.path(folder, kind)) for part in manifest.parts for kind in _KINDS)
    return manifest if complete else None


def _is_whole(path: Path) -> bool:
    """Return whether the file is there and has its end, which a disk that was full cuts off."""
    try:
        with path.open("rb") as stream:
            stream.seek(-len(_PARQUET), 2)
            return stream.read() == _PARQUET
    except OSError:
        return False


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
    (folder / f"month={month}").mkdir(mode=0o700, exist_ok=True)
    with ThreadPoolExecutor(1) as pool, connect() as connection:
        facts_file = pool.submit(_put, part.path(folder, "facts"), facts)
        connection.register("facts", facts)
        _put(part.path(folder, "sums"), _table(connection, rollups.sums_sql("facts")))
        _put(part.path(folder, "days"), _table(connection, rollups.days_sql("facts")))
        facts_file.result()
    sync_folder(folder / f"month={month}")
    return part


def merge_parts(folder: Path, parts: tuple[ExtractPart, ...]) -> ExtractPart:
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


def _table(connection: Any, sql: str) -> pa.Table:
    return connection.sql(sql).arrow().read_all()


def _put(path: Path, table: pa.Table) -> None:
    with path.open("wb") as stream:
        pq.write_table(table, stream, **_OPTIONS)
        sync_stream(stream)


_BATCH = 25_000
# The most rows of a part as they are read, and how many are read before a manifest makes them count.
_PART_ROWS, _COMMIT_ROWS = 250_000, 1_000_000
# This many parts of about one size in a month become one.
_FAN = 8
_SMALLEST = 8_192
ProgressCallback = Callable[[int], None]


@dataclass(slots=True)
class _Reading:
    folder: Path
    manifest: ExtractManifest
    tables: dict[str, list[pa.Table]] = field(default_factory=dict)
    rows: int = 0
    since: int = 0
    parts: list[ExtractPart] = field(default_factory=list)


class LedgerExtract:
    """The extract under ``folder`` of the ledger of one state."""

    def __init__(self, folder: Path, state: str) -> None:
        self.folder = folder / state
        self._state = state

    @contextmanager
    def current(self, books: LedgerStore, tell: ProgressCallback | None = None) -> Iterator[ExtractManifest]:
        """Bring the extract up to the ledger's head; its files stay while the block runs.

        ``tell`` receives the numbers read so far. InvalidInputError where somebody else holds the folder; OSError where
        it cannot be written.
        """
        with hold_folder(self.folder, _LOCK_WAIT_S, "reading the ledger into it"):
            with without_collector():
                manifest = self._refreshed(books, tell or (lambda _: None))
            yield manifest

    def add_archived(self, books: LedgerStore, rows: Iterable[Row]) -> ExtractManifest:
        """Fill gaps with the rows of an archive, whose file the caller has checked.

        Rows that are here already are left out.
        """
        with hold_folder(self.folder, _LOCK_WAIT_S, "reading the ledger into it"):
            manifest = self._refreshed(books, lambda _: None)
            reading, pending = _Reading(self.folder, manifest), list[Row]()
            for row in rows:
                if any(first <= row[0] <= last for first, last in manifest.gaps):
                    pending.append(row)
                    if len(pending) >= _BATCH:
                        _add_rows(reading, columns_from_rows(pending))
                        pending = []
            if pending:
                _add_rows(reading, columns_from_rows(pending))
            _flush(reading, 0)
            added = [pq.read_table(part.path(self.folder, "facts"), columns=["row"]) for part in reading.parts]
            filled = {number for table in added for number in table["row"].to_pylist()}
            gaps = tuple(_remaining_gaps(manifest.gaps, filled))
            return self._commit(replace(manifest, parts=(*manifest.parts, *reading.parts), gaps=gaps))

    def _refreshed(self, books: LedgerStore, tell: ProgressCallback) -> ExtractManifest:
        manifest = read_manifest(self.folder)
        if manifest is None or not self._is_of(manifest, books):
            manifest = ExtractManifest(self._state)
        remove_unnamed_parts(self.folder, manifest)
        head = books.head()
        if head == manifest.head:
            return manifest
        reading, seq = _Reading(self.folder, manifest), manifest.head
        gaps = list(manifest.gaps)
        for columns in books.columns(manifest.head, size=_BATCH):
            gaps += _missing_ranges(seq, columns.seqs)
            seq = columns.seqs[-1]
            _add_rows(reading, columns)
            tell(seq)
            if reading.since >= _COMMIT_ROWS:
                _flush(reading, 0)
                parts = (*reading.manifest.parts, *reading.parts)
                reading.manifest = self._commit(self._upto(seq, books, parts, gaps))
                reading.parts, reading.since = [], 0
        _flush(reading, 0)
        head = max(head, seq)
        if head > seq:
            gaps.append((seq + 1, head))
        parts = (*reading.manifest.parts, *reading.parts)
        return self._commit(self._upto(head, books, parts, gaps))

    def _upto(
        self, head: int, books: LedgerStore, parts: tuple[ExtractPart, ...], gaps: Sequence[tuple[int, int]]
    ) -> ExtractManifest:
        return ExtractManifest(self._state, head, books.hash_at(head) or BEGINNING, parts, tuple(gaps))

    def _is_of(self, manifest: ExtractManifest, books: LedgerStore) -> bool:
        same = BEGINNING if manifest.head == 0 else books.hash_at(manifest.head)
        return manifest.state == self._state and manifest.hash == same

    def _commit(self, manifest: ExtractManifest) -> ExtractManifest:
        merged = _merge_similar(self.folder, manifest)
        write_manifest(self.folder, merged)
        return merged


def _add_rows(reading: _Reading, rows: LedgerColumns) -> None:
    table = facts_of_rows(rows)
    months = pc.unique(table["month"]).to_pylist()
    for month in months:
        month_rows = table if len(months) == 1 else table.filter(pc.equal(table["month"], month))
        reading.tables.setdefault(month, []).append(month_rows)
    reading.rows += table.num_rows
    reading.since += table.num_rows
    if reading.rows >= _PART_ROWS:
        _flush(reading, _PART_ROWS // 2)


def _flush(reading: _Reading, least: int) -> None:
    """Write months with more rows waiting than ``least`` as parts; all months where none has."""
    sizes = {month: sum(table.num_rows for table in tables) for month, tables in reading.tables.items()}
    large = [month for month, size in sizes.items() if size > least] or list(sizes)
    for month in sorted(large):
        table = pa.concat_tables(reading.tables.pop(month))
        reading.rows -= table.num_rows
        reading.parts.append(write_part(reading.folder, table, month))


def _missing_ranges(seq: int, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    if numbers[-1] - seq == len(numbers):
        return
    for number in numbers:
        if number > seq + 1:
            yield seq + 1, number - 1
        seq = number


def _remaining_gaps(gaps: Iterable[tuple[int, int]], filled: set[int]) -> Iterator[tuple[int, int]]:
    for first, last in gaps:
        present = [number for number in range(first, last + 1) if number in filled]
        yield from _missing_ranges(first - 1, [*present, last + 1])


def _merge_similar(folder: Path, manifest: ExtractManifest) -> ExtractManifest:
    """Merge parts of about one size of a month: each row is rewritten a few times at most."""
    parts = list(manifest.parts)
    for month in {part.month for part in parts}:
        while (similar := _similar_parts(part for part in parts if part.month == month)) is not None:
            parts = [part for part in parts if part not in similar]
            parts.append(merge_parts(folder, similar))
    ordered = sorted(parts, key=lambda part: (part.month, part.first))
    return replace(manifest, parts=tuple(ordered))


def _similar_parts(parts: Iterable[ExtractPart]) -> tuple[ExtractPart, ...] | None:
    levels: dict[int, list[ExtractPart]] = {}
    for part in parts:
        level, size = 0, _SMALLEST
        while part.rows >= size:
            level, size = level + 1, size * _FAN
        levels.setdefault(level, []).append(part)
    return next((tuple(group) for _, group in sorted(levels.items()) if len(group) >= _FAN), None)


@contextmanager
def without_collector() -> Iterator[None]:
    """Disable the collector while the block runs.

    Millions of texts and numbers form no cycles, and looking for some takes a sixth of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
