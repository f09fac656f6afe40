"""Import bills of clouds into the store: read once, a batch at a time, with every gap counted and nothing made up.

A delivery is single files, archives or folders. AWS puts a manifest beside each export (``dataFiles``), Azure one
beside each run (``blobs``, with the number of rows): it says what belongs together, and whether anything is missing.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pricing.problems import InvalidInputError, Problem
from pricing.units import format_count
from router.showback.bill_store import BillOwner, BillPart, BillPartWriter, BillStore, file_sha256, period_text
from router.showback.bills import BillGap, BillSourceFile, BillStanding, Delivery, DeliveryKind, ImportedBill
from router.showback.duplicates import (
    DuplicateRows,
    RowHashes,
    count_same_lines,
    count_whole_rows,
    duplicates_error,
    have_same_rows,
    row_hashes,
)
from router.showback.focus.columns import COSTS, NEWEST, NEWEST_NAMES, PERIODS, written_columns
from router.showback.focus.feed import Batch, open_bill, open_feed
from router.showback.focus.rules import FindingTally
from router.showback.focus.survey import FocusLayout, recognise_layout, survey_feed
from router.showback.focus.texts import decimal_text, moment_text
from router.showback.focus.typed_rows import TypedBatch, arrow_schema, convert_batch

_MANIFEST = "manifest.json"
_BILLS = (".csv", ".gz", ".parquet", ".zip")


@dataclass(frozen=True, slots=True)
class BillFile:
    """One file of a delivery. ``name`` is its path within what was given; ``rows`` is the count in its manifest."""

    path: Path
    name: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class BillFiles:
    """The files of a delivery.

    ``whole``: manifests name all of them. ``unread`` are files in the same folders that the newest manifests do not
    name.
    """

    files: tuple[BillFile, ...]
    whole: bool
    unread: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class _Manifest:
    """``group`` is shared by the runs of one export for one period; ``order`` sorts them, the newest last."""

    path: Path
    names: Mapping[str, int | None]
    group: tuple[str, ...]
    order: tuple[str, ...]


def find_bill_files(paths: Sequence[Path]) -> BillFiles:
    """Find the files to be read in files, archives, folders and manifests.

    InvalidInputError: a folder without bills, a manifest that cannot be read or names a file that is not there.
    """
    found = [_find_in(path) for path in paths]
    return BillFiles(
        tuple(file for each in found for file in each.files),
        all(each.whole for each in found),
        tuple(path for each in found for path in each.unread),
    )


def _find_in(path: Path) -> BillFiles:
    if path.is_dir():
        return _find_in_folder(path)
    if path.name.lower().endswith(_MANIFEST):
        # AWS keeps manifests in `metadata`, beside the `data` that they name.
        beside = next((each.parent for each in path.parents if each.name == "metadata"), path.parent)
        return BillFiles(tuple(_files_of(_read_manifest(path), beside)), whole=True)
    return BillFiles(tuple(_unpacked(path, path.parent)), whole=False)


def _find_in_folder(folder: Path) -> BillFiles:
    bills, manifests = [], []
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder).parts
        # Spark and others leave `_SUCCESS` and `.part.crc` beside their data.
        if any(part.startswith((".", "_")) for part in inner) or not path.is_file():
            continue
        if path.name.lower().endswith(_MANIFEST):
            manifests.append(_read_manifest(path))
        elif path.name.lower().endswith(_BILLS):
            bills.append(path)
    if not manifests and not bills:
        what = "is a folder without bills"
        raise InvalidInputError.single(what, where=str(folder), remedy=f"bills end in {', '.join(_BILLS)}")
    if not manifests:
        return BillFiles(tuple(file for path in bills for file in _unpacked(path, folder)), whole=False)
    newest = {manifest.group: manifest for manifest in sorted(manifests, key=lambda manifest: manifest.order)}
    files = [file for manifest in newest.values() for file in _files_of(manifest, folder)]
    read = {file.path for file in files}
    return BillFiles(tuple(files), True, tuple(path for path in bills if path not in read))


def _unpacked(path: Path, folder: Path) -> Iterator[BillFile]:
    name = path.relative_to(folder).as_posix()
    if not path.is_file() or not zipfile.is_zipfile(path):
        yield BillFile(path, name)
        return
    try:
        with zipfile.ZipFile(path) as packed:
            members = [each for each in packed.namelist() if each.lower().endswith(_BILLS)]
    except (OSError, zipfile.BadZipFile) as error:
        raise InvalidInputError.single(f"cannot be unpacked: {error}", where=str(path)) from None
    if not members:
        raise InvalidInputError.single("is a zip archive without bills", where=str(path))
    for member in members:
        yield BillFile(path / member, f"{name}/{member}")


def _files_of(manifest: _Manifest, folder: Path) -> Iterator[BillFile]:
    for name, rows in manifest.names.items():
        parts = PurePosixPath(name).parts
        candidates = [path for path in folder.rglob(parts[-1]) if path.is_file()]
        # A download may lack the folders above, which bucket or container had.
        common = {path: _common_end(path.relative_to(folder).parts, parts) for path in candidates}
        # Runs have equal names in folders of their own: the manifest's own folder goes first.
        best = [path for path in candidates if path.parent == manifest.path.parent] or [
            path for path in candidates if common[path] == max(common.values())
        ]
        if len(best) != 1:
            what = f"names {parts[-1]}, which is {'not there' if not best else 'there more than once'}"
            raise InvalidInputError.single(what, where=str(manifest.path), remedy="fetch the whole export")
        yield BillFile(best[0], best[0].relative_to(folder).as_posix(), rows)


def _common_end(first: Sequence[str], second: Sequence[str]) -> int:
    pairs = zip(reversed(first), reversed(second), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _read_manifest(path: Path) -> _Manifest:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        names = dict(_named_files(content))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInputError.single(f"is no manifest that can be read: {error}", where=str(path)) from None
    if not names:
        what, remedy = "is a manifest that names no bill", "AWS writes dataFiles, Azure blobs"
        raise InvalidInputError.single(what, where=str(path), remedy=remedy)
    run = content.get("runInfo") or {}
    if run:
        export = content.get("exportConfig") or {}
        known = (export.get("resourceId"), export.get("exportName"), run.get("startDate"), run.get("endDate"))
        group = tuple(str(each) for each in known)
    else:
        # A run has a folder of its own below that of its period; the name of the folder begins with the time.
        last = max((number for number, part in enumerate(path.parts) if "=" in part), default=len(path.parts) - 2)
        group = (*path.parts[: last + 1], path.name)
    return _Manifest(path, names, group, (str(run.get("submittedTime", "")), str(path)))


def _named_files(content: Mapping[str, Any]) -> Iterable[tuple[str, int | None]]:
    for blob in content.get("blobs") or ():
        yield blob["blobName"], blob.get("dataRowCount")
    for name in content.get("dataFiles") or ():
        yield urlsplit(name).path.lstrip("/"), None


_ID_DIGITS = 12
_WRITE_TIMES = "write times as 2026-11-21T18:00:00Z"
# The least share of the lines that stand which a later version of a bill has too.
_LEAST_SHARED = Fraction(1, 2)
_ROWS_AT_ONCE = 65_536
_BYTES_AT_ONCE = 1 << 20


class UnclearDeliveryError(InvalidInputError):
    """A delivery shares few lines with the bill that stands: a part of it, or a version of it."""


@dataclass(frozen=True, slots=True)
class BillImport:
    """The result of an import.

    ``delivery`` was stored, or had been stored before: then ``new`` is False and nothing was changed. ``twice`` are
    rows that stand in it twice, and were imported as they are. ``joined`` are ids of earlier bills whose rows the new
    ones hold too. ``unread`` are files in a given folder that its manifests do not name.
    """

    delivery: Delivery
    new: bool
    twice: DuplicateRows | None = None
    joined: tuple[str, ...] = ()
    unread: tuple[Path, ...] = ()


def import_bills(
    paths: Sequence[Path],
    store: BillStore,
    now: datetime,
    *,
    kind: DeliveryKind | None = None,
) -> BillImport:
    """Import files, archives, folders or manifests as one delivery: parts of a bill, or bills of several issuers.

    A bill that stands already is not stored again. A bill with the issuer, account and billing period of one that
    stands takes its place, be it new, or an earlier one that stands again; as a ``kind`` of part, it joins the one that
    stands instead.

    InvalidInputError, and nothing is stored: a file that :func:`~router.showback.focus.feed.open_feed` refuses or that
    is no Cost and Usage, a cost that cannot be read, a row without a period that can, the same contents or whole rows
    twice, charges that stand on another bill too (rules of issuers allow both), fewer files or rows than a manifest
    says, a file that changes while it is read. UnclearDeliveryError where no
    ``kind`` and no manifest says what a delivery is that shares few lines with what stands. OSError where the store
    cannot be written.
    """
    found = find_bill_files(paths)
    before = [_seal(file.path) for file in found.files]
    digests = [digest for digest, _ in before]
    repeated = next(
        (str(file.path) for file, digest in zip(found.files, digests, strict=True) if digests.count(digest) > 1), None
    )
    if repeated is not None:
        raise InvalidInputError.single("is given twice: its rows would count twice", where=repeated)
    with store.incoming() as incoming:
        stands = {each.bill.id for each in store.standing() if store.path(each).is_file()}
        for old in reversed(store.deliveries()):
            if set(digests) <= {source.sha256 for source in old.sources} and old.concerned <= stands:
                return BillImport(old, new=False, unread=found.unread)
        delivery, twice = _read_delivery(found.files, before, incoming, store.number(), now)
        if before != [_seal(file.path) for file in found.files]:
            raise InvalidInputError.single("changed while it was read", where=str(paths[0]), remedy="import it again")
        allowed = store.allowed_issuers()
        if twice is not None and not twice.issuers <= allowed:
            raise duplicates_error(twice)
        delivery, joined = _drop_stored_bills(delivery, store, incoming, kind), tuple[str, ...]()
        if kind is DeliveryKind.PART:
            delivery, joined = _join_parts(delivery, store, incoming, allowed)
        elif kind is None and not found.whole:
            _refuse_unclear(delivery, store, incoming)
        new = bool(delivery.bills or delivery.again)
        if new:
            store.refuse_shared(_bills_to_stand(delivery, store, incoming))
            store.commit(delivery, incoming)
    return BillImport(delivery, new, twice, joined, found.unread)


def _standing_before(bill: ImportedBill, store: BillStore) -> BillStanding | None:
    """Return the bill whose place the new one would take, if its rows are there."""
    return next((each for each in store.standing() if each.bill.key == bill.key and store.path(each).is_file()), None)


def _bills_to_stand(delivery: Delivery, store: BillStore, incoming: Path) -> dict[Path, ImportedBill]:
    again = {store.path(each): each.bill for each in store.bills() if each.bill.id in delivery.again}
    return {incoming / bill.file: bill for bill in delivery.bills} | again


def _refuse_unclear(delivery: Delivery, store: BillStore, incoming: Path) -> None:
    problems = []
    for path, bill in _bills_to_stand(delivery, store, incoming).items():
        standing = _standing_before(bill, store)
        if standing is None or not standing.bill.rows:
            continue
        shared = count_same_lines(store.path(standing), path)
        if Fraction(shared, standing.bill.rows) < _LEAST_SHARED:
            owner = ", ".join(
                each for each in (bill.issuer or bill.label, bill.account, (bill.start or "")[:10]) if each
            )
            what = (
                f"stands for {owner} with {format_count(standing.bill.rows, 'row')}, of which the delivery "
                f"has {shared:,} and {bill.rows - shared:,} others"
            )
            remedy = "a further part of it: --as part; a version that takes its place: --as version"
            problems.append(Problem(standing.bill.id, "", what, remedy))
    if problems:
        raise UnclearDeliveryError(problems)


def _join_parts(
    delivery: Delivery, store: BillStore, incoming: Path, allowed: frozenset[str]
) -> tuple[Delivery, tuple[str, ...]]:
    """Return the delivery with the rows of the bills that stand in its own, and the ids of those."""
    bills, joined, sources, same = list[ImportedBill](), list[str](), delivery.sources, delivery.same
    stands = {each.bill.id for each in store.standing()}
    for bill in delivery.bills:
        standing = _standing_before(bill, store)
        if standing is None:
            bills.append(bill)
            continue
        both = (store.path(standing), incoming / bill.file)
        repeated = count_whole_rows(*both)
        if repeated and (bill.issuer or "") not in allowed:
            what = f"holds {format_count(repeated, 'row')} of this delivery already, cell for cell"
            remedy = "give only the further rows; or import the whole bill with --as version"
            raise InvalidInputError.single(what, where=standing.bill.id, remedy=remedy)
        bills.append(_join(bill, standing, both, incoming))
        joined.append(standing.bill.id)
        others = standing.delivery.concerned - {standing.bill.id}
        if others <= stands:  # Then its files, given again, change nothing.
            known = {each.sha256 for each in sources}
            sources = (*(each for each in standing.delivery.sources if each.sha256 not in known), *sources)
            same = tuple(sorted({*same, *others}))
    return replace(delivery, bills=tuple(bills), sources=sources, same=same), tuple(joined)


def _join(bill: ImportedBill, standing: BillStanding, both: tuple[Path, Path], incoming: Path) -> ImportedBill:
    schemas = [pq.read_schema(path).remove_metadata() for path in both]
    # DuckDB ignores the case of names: a further part writes its own columns as the earlier one did.
    spelling = {name.lower(): name for name in schemas[0].names}
    renamed = [
        pa.schema([entry.with_name(spelling.get(entry.name.lower(), entry.name)) for entry in schema])
        for schema in schemas
    ]
    schema = pa.unify_schemas(renamed)
    with BillPartWriter(incoming, f"{Path(bill.file).stem}-joined", schema) as parts:
        for path, names in zip(both, renamed, strict=True):
            for batch in pq.ParquetFile(path).iter_batches(_ROWS_AT_ONCE):
                table = pa.Table.from_batches([batch]).rename_columns(names.names)
                missing = [entry for entry in schema if entry.name not in names.names]
                for entry in missing:
                    table = table.append_column(entry, pa.nulls(table.num_rows, entry.type))
                parts.add(table.select(schema.names), bill.label)
        parts.finish()
        ((owner, part),) = parts.parts.items()
        return _bill(owner, part, incoming, f"{standing.bill.sha256}\x1f{bill.sha256}")


def _drop_stored_bills(delivery: Delivery, store: BillStore, incoming: Path, kind: DeliveryKind | None) -> Delivery:
    """Return the delivery without the bills that the store has row for row already: those stand still, or again.

    A part never stands again by itself.
    """
    history = store.bills()
    used = {each.bill.id for each in history}
    # Bills that stand come first, then the newest.
    candidates = (each for each in history if each.stands or kind is not DeliveryKind.PART)
    order = sorted(candidates, key=lambda standing: (standing.stands, standing.delivery.number), reverse=True)
    bills, again, unchanged = list[ImportedBill](), list[str](), list[str]()
    for bill in delivery.bills:
        known = next(
            (each for each in order if each.bill.key == bill.key and _is_same_bill(bill, each, store, incoming)), None
        )
        if known is not None:
            (unchanged if known.stands else again).append(known.bill.id)
        else:
            # An id is in use where its rows are damaged, or another version of stepfare read the same file otherwise.
            new = replace(bill, id=_id(bill.id, str(delivery.number))) if bill.id in used else bill
            bills.append(new)
    return replace(delivery, bills=tuple(bills), again=tuple(again), same=tuple(unchanged))


def _is_same_bill(bill: ImportedBill, stored: BillStanding, store: BillStore, incoming: Path) -> bool:
    if (bill.rows, bill.sums) != (stored.bill.rows, stored.bill.sums) or not store.whole(stored):
        return False
    return have_same_rows(incoming / bill.file, store.path(stored))


def _seal(path: Path) -> tuple[str, int]:
    """Return the file's SHA-256 and size. A pipe or a device is refused, for reading it would not end."""
    with open_bill(path) as stream:
        digest = hashlib.sha256()
        while chunk := stream.read(_BYTES_AT_ONCE):
            digest.update(chunk)
        return digest.hexdigest(), stream.tell()


def _read_delivery(
    files: Sequence[BillFile], seals: Sequence[tuple[str, int]], incoming: Path, number: int, now: datetime
) -> tuple[Delivery, DuplicateRows | None]:
    digests = [digest for digest, _ in seals]
    paths = [file.path for file in files]
    digest_of_all = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
    extras = _extra_columns(paths)
    fields = [*arrow_schema(written_columns(NEWEST)), *(pa.field(stored, pa.string()) for stored in extras.values())]
    sources, gaps = [], []
    with (
        row_hashes() as hashes,
        BillPartWriter(incoming, f"{number:06}-{digest_of_all[:_ID_DIGITS]}", pa.schema(fields)) as parts,
    ):
        for file, seal in zip(files, seals, strict=True):
            source, file_gaps = _read_file(file, seal, parts, extras, hashes)
            sources.append(source)
            gaps += file_gaps
        parts.finish()
        bills = [_bill(owner, part, incoming, digest_of_all) for owner, part in parts.parts.items()]
        duplicate_rows = hashes.find(_reread_rows(paths, extras))
    bills.sort(key=lambda bill: tuple(each or "" for each in bill.key))
    delivery = Delivery(number, digest_of_all, moment_text(now), tuple(sources), tuple(bills), tuple(gaps))
    return delivery, duplicate_rows


def _reread_rows(paths: Sequence[Path], extras: dict[str, str]) -> Iterator[tuple[pa.Table, list[str]]]:
    for path in paths:
        with open_feed(path) as feed:
            opened = recognise_layout(feed, str(path))
            for batch in feed.batches:
                table = _table(batch, convert_batch(batch, opened.sources), extras)
                yield table, [_place(path, batch, row) for row in range(batch.rows)]


def _extra_columns(paths: Sequence[Path]) -> dict[str, str]:
    """Return the columns that are neither FOCUS nor ours, and the name under which each is stored.

    DuckDB ignores case, so that names that differ in case alone get a prefix.
    """
    used_names = {name.lower() for name in NEWEST_NAMES}
    stored_names: dict[str, str] = {}
    for path in paths:
        with open_feed(path) as feed:
            for name in recognise_layout(feed, str(path)).unknown:
                if name not in stored_names:
                    stored = name
                    while stored.lower() in used_names:
                        stored = f"x_{stored}"
                    used_names.add(stored.lower())
                    stored_names[name] = stored
    return stored_names


def _read_file(
    file: BillFile, seal: tuple[str, int], parts: BillPartWriter, extras: dict[str, str], hashes: RowHashes
) -> tuple[BillSourceFile, list[BillGap]]:
    path, tally, rows = file.path, FindingTally(1), 0
    with open_feed(path) as feed:
        opened = recognise_layout(feed, str(path))
        for batch, typed_rows in survey_feed(feed, opened, tally, absent=True):
            _refuse_unusable_rows(path, batch, typed_rows, opened)
            table = _table(batch, typed_rows, extras)
            parts.add(table, file.name)
            hashes.add(table)
            rows += batch.rows
        source = BillSourceFile(file.name, *seal, feed.form, opened.version, rows)
    if file.rows is not None and rows != file.rows:
        what = f"has {format_count(rows, 'row')} where its manifest says {file.rows:,}"
        raise InvalidInputError.single(what, where=str(path), remedy="fetch it again")
    counts = tally.counts
    return source, [
        BillGap(file.name, each.rule, each.column, counts[each.rule, each.column], each.row, each.line, each.value)
        for each in tally.findings
    ]


def _refuse_unusable_rows(path: Path, batch: Batch, rows: TypedBatch, opened: FocusLayout) -> None:
    """Raise InvalidInputError for rows that no report could use: they would be missing from its sums, or stop it.

    A cost or a billing period is written that cannot be read, or no period is left that can. Without the billing
    period nobody could tell a later version of the bill from another bill.
    """
    edges = [[rows.column(f"{period}Period{edge}") for period in ("Charge", "Billing")] for edge in ("Start", "End")]
    begins, ends = (pc.coalesce(*columns) for columns in edges)
    without = pc.indices_nonzero(pc.or_(pc.is_null(begins), pc.is_null(ends))).to_numpy()
    problems = []
    for mark in rows.marks:
        if mark.rule != "unreadable" or mark.column not in (*COSTS, *PERIODS):
            continue
        if mark.column.startswith("ChargePeriod"):  # The billing period stands in for it where it can be read.
            mark = replace(mark, rows=mark.rows[np.isin(mark.rows, without)])
        why = "" if mark.column in COSTS else _WRITE_TIMES
        tally = FindingTally(len(mark.rows))
        tally.add_mark(mark, batch, opened.sources)
        problems += [Problem(each.place(str(path)), each.column, each.what, why or each.why) for each in tally.findings]
    if not problems and len(without):
        what = f"has neither a charge period nor a billing period ({format_count(len(without), 'such row')})"
        problems.append(Problem(_place(path, batch, int(without[0])), PERIODS[-2], what, "say when the charge was"))
    if problems:
        raise InvalidInputError(problems)


def _place(path: Path, batch: Batch, row: int) -> str:
    return f"{path}: row {batch.first + row}" if batch.lines is None else f"{path}:{batch.lines[row]}"


def _table(batch: Batch, rows: TypedBatch, extras: dict[str, str]) -> pa.Table:
    table = rows.table()
    for name, stored in extras.items():
        table = table.append_column(stored, batch.columns.get(name, pa.nulls(rows.rows, pa.string())))
    return table


def _bill(owner: BillOwner, part: BillPart, incoming: Path, digest: str) -> ImportedBill:
    issuer, account, begins, ends, label = owner
    start, end = period_text(begins), period_text(ends)
    identity = "\x1f".join(each or "" for each in (digest, issuer, account, start, end, label))
    return ImportedBill(
        id=_id(identity),
        issuer=issuer,
        account=account,
        start=start,
        end=end,
        label=label,
        rows=part.rows,
        sums={
            code: {name: None if amount is None else decimal_text(amount) for name, amount in sums.items()}
            for code, sums in sorted(part.sums.items())
        },
        data_through=period_text(part.through),
        file=part.file,
        sha256=file_sha256(incoming / part.file),
    )


def _id(*words: str) -> str:
    joined = "\x1f".join(words)
    return f"bill-{hashlib.sha256(joined.encode()).hexdigest()[:_ID_DIGITS]}"
