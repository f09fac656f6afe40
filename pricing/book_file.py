"""Price books on disk: the embedded book, Parquet (read, written) and CSV (read). The package's one I/O module.

A file that a user gives is refused whole, with InvalidInputError; nothing is half read or half written.
"""

from __future__ import annotations

import csv
import gc
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, time
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pricing.atomic_file import open_atomic
from pricing.book import SMALL_TABLES, PriceBook
from pricing.book_check import check_book
from pricing.egress import Tariff, Tier
from pricing.machines import Accelerator, Machine
from pricing.money import UsdPerGb, UsdPerHour
from pricing.offer_csv import read_rows
from pricing.offers import Offer, mark_capped_spot
from pricing.places import Market, Region, RegionId
from pricing.problems import InvalidInputError, Problem
from pricing.risk import RiskPrior, RiskSignal
from pricing.table_rows import Row, parse_rows, read_table
from pricing.units import gb_to_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    from pydantic import TypeAdapter

EMBEDDED_AS_OF = datetime(2026, 11, 21, tzinfo=UTC)
# The bands of the embedded offers equal the advisor file of this day, whatever day their prices were read.
EMBEDDED_BANDS_OF = date(2025, 6, 28)
UNDATED = "undated"
SCHEMA_VERSION = 2
# Column, Arrow type, nullable. Money is whole nano-dollars in int64: room for 9.2 billion dollars an hour.
_COLUMNS = (
    ("cloud", "string", False),
    ("region", "string", False),
    ("zone", "string", True),
    ("instance_type", "string", False),
    ("market", "string", False),
    ("usd_nanos_per_hour", "int64", False),
    ("source", "string", False),
    ("as_of", "date32[day]", True),
    ("not_before", "bool", False),
    ("machines_cap", "int64", True),
    ("interruptions_per_hour", "double", True),
    ("interruption_band", "string", True),
    ("band_as_of", "date32[day]", True),
    ("preempted_share", "double", True),
    ("price_basis", "string", False),
    ("weak", "string", False),
)


@cache
def embedded_book() -> PriceBook:
    """Return the book that comes with the package; the same object each time.

    Its tables are checked by tests.
    """
    return PriceBook(
        as_of=EMBEDDED_AS_OF,
        offers=mark_capped_spot(parse_offers(read_table("offers"))),
        machines=parse_rows(Machine, read_table("machines")),
        accelerators=parse_rows(Accelerator, read_table("accelerators"), name=itemgetter("accelerator")),
        regions=parse_rows(Region, read_table("regions"), id=lambda row: RegionId(row["cloud"], row["region"])),
        tariffs=parse_tariffs(read_table("egress")),
        priors=parse_rows(RiskPrior, read_table("interruption_priors")),
        signals=parse_rows(RiskSignal, read_table("interruption_signals")),
    )


_date = cache(date.fromisoformat)
_rate = cache(UsdPerHour.parse)


def parse_offers(rows: Iterable[Row]) -> tuple[Offer, ...]:
    """Parse ``offers.csv``: one row per offer (place, type and market)."""
    markets = {market.value: market for market in Market}
    return tuple(
        Offer(
            cloud=row["cloud"],
            region=row["region"],
            zone=None,
            instance_type=row["instance_type"],
            market=markets[row["market"]],
            usd_per_hour=_rate(row["usd_per_hour"]),
            source=row["source"],
            as_of=_date(row["as_of"]) if row["as_of"] else None,
            not_before=row["not_before"] == "yes",
            interruption_band=row["interruption_band"] or None,
            band_as_of=EMBEDDED_BANDS_OF if row["interruption_band"] else None,
            price_basis=row["price_basis"],
            weak=row["weak"],
        )
        for row in rows
    )


def parse_tariffs(rows: Iterable[Row]) -> tuple[Tariff, ...]:
    """Parse ``egress.csv``: one row per tier; rows of one meter become one tariff.

    A tariff carries all its tiers' sources and reasons for doubt, and the oldest of their dates.
    """
    meters: dict[tuple[str, str, str, str], list[Row]] = {}
    for row in rows:
        meter = (row["cloud"], row["scope"], row["from_group"], row["to_group"])
        meters.setdefault(meter, []).append(row)
    return tuple(
        Tariff(
            *meter,
            tiers=tuple(sorted((_tier(row) for row in group), key=lambda tier: tier.from_bytes)),
            source="; ".join(dict.fromkeys(row["source"] for row in group)),
            as_of=UNDATED if any(r["as_of"] == UNDATED for r in group) else min(r["as_of"] for r in group),
            weak="; ".join(dict.fromkeys(row["weak"] for row in group if row["weak"])),
        )
        for meter, group in meters.items()
    )


def _tier(row: Row) -> Tier:
    end = row["tier_to_gb"]
    return Tier(
        from_bytes=gb_to_bytes(float(row["tier_from_gb"])),
        to_bytes=gb_to_bytes(float(end)) if end else None,
        price=UsdPerGb.parse(row["usd_per_gb"]),
    )


def accelerator_names() -> tuple[str, ...]:
    """Return the names of the embedded book's accelerators, in its order, without reading the rest of it."""
    return tuple(row["accelerator"] for row in read_table("accelerators"))


def read_book(path: Path) -> PriceBook:
    """Read the book in a ``.parquet`` or ``.csv`` file and check it.

    InvalidInputError says what is wrong and where. A CSV holds offers only (see :mod:`pricing.offer_csv`); machines,
    regions and tariffs come from the embedded book, and the newest date in the file is the book's.
    """
    suffix = path.suffix.lower()
    if not path.exists():
        raise InvalidInputError.single("no such file", where=str(path), remedy="check the path")
    if suffix not in {".parquet", ".csv"}:
        raise InvalidInputError.single("a price book is a .parquet or a .csv file", where=str(path))
    if not path.is_file():
        raise InvalidInputError.single("is not a file", where=str(path))
    if suffix == ".csv":
        return _read_csv(path)
    return _read_parquet(path)


def write_book(book: PriceBook, path: Path) -> None:
    """Write ``book`` to a ``.parquet`` file: the whole file appears at once, or the old one stays.

    InvalidInputError when the book is not valid, the suffix is another or the folder cannot be written to.
    """
    if path.suffix.lower() != ".parquet":
        raise InvalidInputError.single("a price book is written as a .parquet file", where=str(path))
    check_book(book)
    _write_parquet(book, path)


def _read_csv(path: Path) -> PriceBook:
    base = embedded_book()
    found = read_rows(
        str(path),
        _csv_lines(path),
        {(m.cloud, m.instance_type): m for m in base.machines},
        {a.name: a for a in base.accelerators},
    )
    dates = [offer.as_of for offer in found.offers if offer.as_of is not None]
    book = replace(
        base,
        as_of=datetime.combine(max(dates), time(), UTC) if dates else base.as_of,
        offers=found.offers,
        machines=(*base.machines, *found.machines),
    )
    check_book(book, found.places)
    return book


def _csv_lines(path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    number = 0
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            for row in reader:
                number = reader.line_num
                yield number, row
    except UnicodeDecodeError:
        raise InvalidInputError.single("is not UTF-8 text", where=f"{path}:{number + 1}") from None
    except csv.Error as error:
        raise InvalidInputError.single(f"is not CSV: {error}", where=f"{path}:{number + 1}") from None
    except OSError as error:
        raise InvalidInputError.single(f"cannot be read: {error.strerror}", where=str(path)) from None


def _small_table_adapters() -> Mapping[str, TypeAdapter[Any]]:
    from pydantic import TypeAdapter

    types = get_type_hints(PriceBook)
    return {name: TypeAdapter(types[name]) for name in SMALL_TABLES}


def _arrow_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema([pa.field(name, pa.type_for_alias(kind), nullable) for name, kind, nullable in _COLUMNS])


def _write_parquet(book: PriceBook, path: Path) -> None:
    import pandas as pd

    if max((offer.usd_per_hour.nanos for offer in book.offers), default=0) >= 1 << 63:
        raise InvalidInputError.single("a price is too large to be written", field="usd_nanos_per_hour")
    columns: dict[str, list[object]] = {name: [] for name, _, _ in _COLUMNS}
    for offer in book.offers:
        for name, _, _ in _COLUMNS:
            columns[name].append(offer.usd_per_hour.nanos if name == "usd_nanos_per_hour" else getattr(offer, name))
    columns["market"] = [offer.market.value for offer in book.offers]
    frame = pd.DataFrame({name: pd.Series(values, dtype="object") for name, values in columns.items()})
    frame.attrs = {
        "schema_version": SCHEMA_VERSION,
        "as_of": book.as_of.isoformat(),
        "digest": book.digest,
        **{
            name: table.dump_python(getattr(book, name), mode="json") for name, table in _small_table_adapters().items()
        },
    }
    try:
        with open_atomic(path, mode=0o600) as stream:
            frame.to_parquet(stream, engine="pyarrow", index=False, schema=_arrow_schema())
    except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise InvalidInputError.single(f"cannot be written: {error.strerror}", where=str(path)) from None


def file_hash(path: Path) -> str:
    """Return the SHA-256 (hex) of the file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_trusted_book(path: Path, sha256: str) -> PriceBook:
    """Read the book in a file that :func:`write_book` wrote and whose ``file_hash`` was noted then.

    The same bytes hold the same, already checked content, so that reading 150,000 offers stays quick. InvalidInputError
    when the bytes are others.
    """
    try:
        found = file_hash(path)
    except OSError as error:
        raise InvalidInputError.single(f"cannot be read: {error.strerror}", where=str(path)) from None
    if found != sha256:
        raise InvalidInputError.single("was changed or damaged after it was written", where=str(path))
    return _read_parquet(path, trusted=True)


def _read_parquet(path: Path, *, trusted: bool = False) -> PriceBook:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def refuse(what: str, remedy: str = "") -> InvalidInputError:
        return InvalidInputError.single(what, where=str(path), remedy=remedy)

    try:
        with pq.ParquetFile(path) as file:  # read_table would import pandas, which takes a fifth of a second.
            table = file.read()
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise refuse(f"cannot be read as Parquet: {reason}", "the file may be truncated") from None
    attrs = _attrs(table.schema)
    if attrs is None:
        raise refuse("is Parquet, but no price book: it lacks the book's tables")
    version = attrs.get("schema_version")
    if version != SCHEMA_VERSION:
        newer = isinstance(version, int) and version > SCHEMA_VERSION
        raise refuse(
            f"has schema version {version!r}, this program reads {SCHEMA_VERSION}",
            "written by a later version: update stepfare" if newer else "",
        )
    wrong = _wrong_columns(path, table)
    if wrong:
        raise InvalidInputError(wrong)
    small = _small_tables(path, attrs)
    try:
        as_of = datetime.fromisoformat(attrs["as_of"])
        with _without_collecting_garbage():
            book = PriceBook(as_of=as_of, offers=_offers(table), **small, in_order=trusted)
    except (KeyError, TypeError, ValueError) as error:
        raise refuse(f"holds a value that no price book has: {error}") from None
    if trusted:
        book.__dict__["digest"] = attrs["digest"]  # Fills the cached property, which would compute it again.
        return book
    try:
        check_book(book)
    except InvalidInputError as error:
        raise InvalidInputError([replace(p, where=str(path)) for p in error.problems]) from None
    if attrs.get("digest") != book.digest:
        raise refuse("its content does not match its digest: it was changed after it was written")
    return book


def _wrong_columns(path: Path, table: pa.Table) -> list[Problem]:
    problems = []
    for name, kind, nullable in _COLUMNS:
        if name not in table.column_names:
            problems.append(Problem(str(path), name, "column is missing"))
            continue
        found = str(table.schema.field(name).type)
        if found.removeprefix("large_") != kind:
            problems.append(Problem(str(path), name, f"column holds {found}, not {kind}"))
        elif not nullable and table.column(name).null_count:
            problems.append(Problem(str(path), name, "column has blank values"))
    return problems


def _attrs(schema: pa.Schema) -> Mapping[str, Any] | None:
    try:
        attrs = json.loads((schema.metadata or {})[b"PANDAS_ATTRS"])
    except (KeyError, ValueError):
        return None
    return attrs if isinstance(attrs, dict) else None


def _small_tables(path: Path, attrs: Mapping[str, Any]) -> dict[str, Any]:
    from pydantic import ValidationError

    tables: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, table in _small_table_adapters().items():
        if name not in attrs:
            problems.append(Problem(str(path), name, "table is missing"))
            continue
        try:
            text = json.dumps(attrs[name])
            tables[name] = table.validate_json(text, strict=True, extra="forbid")
        except ValidationError as error:
            for detail in error.errors(include_url=False)[:10]:
                place = ".".join(str(part) for part in (name, *detail["loc"]))
                problems.append(Problem(str(path), place, detail["msg"]))
    if problems:
        raise InvalidInputError(problems)
    return tables


def _offers(table: pa.Table) -> tuple[Offer, ...]:
    """Return the rows as offers; a value that occurs often is built once."""
    converters: dict[str, Callable[[Any], object]] = {"market": Market, "usd_nanos_per_hour": UsdPerHour}
    return tuple(map(Offer, *(_cells(table.column(name), converters.get(name)) for name, _, _ in _COLUMNS)))


def _cells(column: pa.ChunkedArray, make: Callable[[Any], object] | None) -> list[object]:
    """Return the column's values; each distinct one is converted only once, by ``make`` if given."""
    import numpy as np

    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    distinct = encoded.dictionary.to_pylist()
    values = np.empty(len(distinct), dtype=object)
    values[:] = distinct if make is None else [make(value) for value in distinct]
    # Read the buffer itself, since to_numpy() imports pandas.
    indices = np.frombuffer(encoded.indices.buffers()[1], dtype=np.int32, count=len(encoded), offset=4 * encoded.offset)
    cells: list[object] = values[indices].tolist()
    return cells


@contextmanager
def _without_collecting_garbage() -> Iterator[None]:
    """Suspend garbage collection, then freeze what was built.

    Hundreds of thousands of objects are built and all stay: looking for cycles among them, now and at each later
    collection, would double the time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()
