"""Import bills of clouds into the store: read once, a batch at a time, with every gap counted and nothing made up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from pricing.problems import InvalidInputError, Problem
from router.showback.bill_store import BillOwner, BillPart, BillPartWriter, BillStore, file_sha256, period_text
from router.showback.bills import BillGap, BillSourceFile, BillStanding, Delivery, ImportedBill
from router.showback.duplicates import DuplicateRows, RowHashes, duplicates_error, have_same_rows, row_hashes
from router.showback.focus.batches import LIMITS, Batch, FeedLimits
from router.showback.focus.columns import COSTS
from router.showback.focus.feed import open_feed
from router.showback.focus.rules import FindingTally, FocusFinding
from router.showback.focus.survey import FocusLayout, recognise_layout, survey_feed
from router.showback.focus.texts import decimal_text, moment_text
from router.showback.focus.typed_rows import TypedBatch, arrow_schema, convert_batch
from router.showback.focus.versions import NEWEST, written_columns

_ID_DIGITS = 12


@dataclass(frozen=True, slots=True)
class BillImport:
    """The result of an import.

    ``delivery`` was stored, or had been stored before: then ``new`` is False and nothing was changed. ``twice`` are
    rows that stand in it twice, and were imported as they are.
    """

    delivery: Delivery
    new: bool
    twice: DuplicateRows | None = None


def import_bills(
    paths: Sequence[Path], store: BillStore, now: datetime, limits: FeedLimits = LIMITS, *, duplicates: bool = False
) -> BillImport:
    """Import the files as one delivery: parts of a bill, or bills of several issuers.

    A bill that stands already is not stored again. A bill with the issuer, account and billing period of one that
    stands takes its place, be it new, or an earlier one that stands again. ``duplicates`` allows rows that stand twice.

    InvalidInputError, and nothing is stored: a file that :func:`~router.showback.focus.feed.open_feed` refuses or that
    is no Cost and Usage, a cost that cannot be read, the same contents or whole rows twice, a file that changes while
    it is read. OSError where the store cannot be written.
    """
    before = [_seal(path) for path in paths]
    digests = [digest for digest, _ in before]
    repeated = next((str(path) for path, digest in zip(paths, digests, strict=True) if digests.count(digest) > 1), None)
    if repeated is not None:
        raise InvalidInputError.single("is given twice: its rows would count twice", where=repeated)
    with store.incoming() as incoming:
        stands = {each.bill.id for each in store.standing() if store.path(each).is_file()}
        for old in reversed(store.deliveries()):
            if set(digests) <= {source.sha256 for source in old.sources} and old.concerned <= stands:
                return BillImport(old, new=False)
        read = _read_delivery(paths, digests, incoming, store.number(), now, limits)
        if before != [_seal(path) for path in paths]:
            raise InvalidInputError.single("changed while it was read", where=str(paths[0]), remedy="import it again")
        if read.twice is not None and not duplicates:
            raise duplicates_error(read.twice)
        delivery = _drop_stored_bills(read.delivery, store, incoming)
        new = bool(delivery.bills or delivery.again)
        if new:
            store.commit(delivery, incoming)
    return BillImport(delivery, new, read.twice)


def _drop_stored_bills(delivery: Delivery, store: BillStore, incoming: Path) -> Delivery:
    """Return the delivery without the bills that the store has row for row already: those stand still, or again."""
    history = store.bills()
    used = {each.bill.id for each in history}
    # Bills that stand come first, then the newest.
    order = sorted(history, key=lambda each: (each.stands, each.delivery.number), reverse=True)
    bills, again, unchanged = list[ImportedBill](), list[str](), list[str]()
    for bill in delivery.bills:
        known = next(
            (each for each in order if each.bill.key == bill.key and _is_same_bill(bill, each, store, incoming)), None
        )
        if known is not None:
            (unchanged if known.stands else again).append(known.bill.id)
        else:
            # An id is in use where an earlier version of stepfare read the same file differently.
            new = replace(bill, id=_id(bill.id, str(delivery.number))) if bill.id in used else bill
            bills.append(new)
    return replace(delivery, bills=tuple(bills), again=tuple(again), same=tuple(unchanged))


def _is_same_bill(bill: ImportedBill, known: BillStanding, store: BillStore, incoming: Path) -> bool:
    if (bill.rows, bill.sums) != (known.bill.rows, known.bill.sums) or not store.whole(known):
        return False
    return have_same_rows(incoming / bill.file, store.path(known))


def _seal(path: Path) -> tuple[str, int]:
    """Return the file's SHA-256 and size. A pipe or a device is refused, for reading it would not end."""
    try:
        if not path.is_file():
            raise InvalidInputError.single("is no file", where=str(path))
        return file_sha256(path), path.stat().st_size
    except OSError as error:
        raise InvalidInputError.single(f"cannot be read: {error.strerror or error}", where=str(path)) from None


@dataclass(frozen=True, slots=True)
class _ReadDelivery:
    delivery: Delivery
    twice: DuplicateRows | None


def _read_delivery(
    paths: Sequence[Path], digests: list[str], incoming: Path, number: int, now: datetime, limits: FeedLimits
) -> _ReadDelivery:
    digest_of_all = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
    extras = _extra_columns(paths, limits)
    fields = [*arrow_schema(written_columns(NEWEST)), *(pa.field(stored, pa.string()) for stored in extras.values())]
    sources, gaps = [], []
    with (
        row_hashes() as hashes,
        BillPartWriter(incoming, f"{number:06}-{digest_of_all[:_ID_DIGITS]}", pa.schema(fields)) as parts,
    ):
        for path, digest in zip(paths, digests, strict=True):
            source, file_gaps = _read_file(path, digest, parts, extras, limits, hashes)
            sources.append(source)
            gaps += file_gaps
        parts.finish()
        bills = [_bill(owner, part, incoming, digest_of_all) for owner, part in parts.parts.items()]
        duplicate_rows = hashes.find(_reread_rows(paths, extras, limits))
    bills.sort(key=lambda bill: tuple(each or "" for each in bill.key))
    return _ReadDelivery(
        Delivery(number, digest_of_all, moment_text(now), tuple(sources), tuple(bills), tuple(gaps)), duplicate_rows
    )


def _reread_rows(
    paths: Sequence[Path], extras: dict[str, str], limits: FeedLimits
) -> Iterator[tuple[pa.Table, list[str]]]:
    """Yield the rows of the files once more, each with its place."""
    for path in paths:
        with open_feed(path, limits) as feed:
            opened = recognise_layout(feed, str(path))
            for batch in feed.batches:
                table = _table(batch, convert_batch(batch, opened.sources), extras)
                ends = batch.lines
                places = [
                    f"{path}: row {batch.first + n}" if ends is None else f"{path}:{ends[n]}" for n in range(batch.rows)
                ]
                yield table, places


def _extra_columns(paths: Sequence[Path], limits: FeedLimits) -> dict[str, str]:
    """Return the columns that are neither FOCUS nor ours, and the name under which each is stored.

    DuckDB ignores case, so that names that differ in case alone get a prefix.
    """
    used_names = {column.name.lower() for column in written_columns(NEWEST)}
    stored_names: dict[str, str] = {}
    for path in paths:
        with open_feed(path, limits) as feed:
            for name in recognise_layout(feed, str(path)).unknown:
                if name not in stored_names:
                    stored = name
                    while stored.lower() in used_names:
                        stored = f"x_{stored}"
                    used_names.add(stored.lower())
                    stored_names[name] = stored
    return stored_names


def _read_file(
    path: Path, digest: str, parts: BillPartWriter, extras: dict[str, str], limits: FeedLimits, hashes: RowHashes
) -> tuple[BillSourceFile, list[BillGap]]:
    tally, rows = FindingTally(1), 0
    with open_feed(path, limits) as feed:
        opened = recognise_layout(feed, str(path))
        for batch, typed_rows in survey_feed(feed, opened, tally, absent=True):
            _refuse_lost_costs(path, batch, typed_rows, opened)
            table = _table(batch, typed_rows, extras)
            parts.add(table, path.name)
            hashes.add(table)
            rows += batch.rows
        source = BillSourceFile(path.name, digest, path.stat().st_size, feed.form, opened.version, rows)
    return source, [_gap(path.name, finding, tally) for finding in tally.findings]


def _gap(name: str, finding: FocusFinding, tally: FindingTally) -> BillGap:
    count = tally.counts[finding.rule, finding.column]
    return BillGap(name, finding.rule, finding.column, count, finding.row, finding.line, finding.value)


def _refuse_lost_costs(path: Path, batch: Batch, rows: TypedBatch, opened: FocusLayout) -> None:
    """Raise InvalidInputError for a cost that is written but cannot be read, since it would be missing from the sum."""
    problems = []
    for mark in rows.marks:
        if mark.rule == "unreadable" and mark.column in COSTS:
            tally = FindingTally(len(mark.rows))
            tally.add_mark(mark, batch, opened.sources)
            problems += [Problem(each.place(str(path)), each.column, each.what, each.why) for each in tally.findings]
    if problems:
        raise InvalidInputError(problems)


def _table(batch: Batch, rows: TypedBatch, extras: dict[str, str]) -> pa.Table:
    columns = {column.name: rows.column(column.name) for column in written_columns(NEWEST)}
    for name, stored in extras.items():
        columns[stored] = batch.columns.get(name, pa.nulls(rows.rows, pa.string()))
    return pa.table(columns)


def _bill(owner: BillOwner, part: BillPart, incoming: Path, digest: str) -> ImportedBill:
    start, end = period_text(owner.start), period_text(owner.end)
    identity = "\x1f".join(each or "" for each in (digest, owner.issuer, owner.account, start, end, owner.label))
    return ImportedBill(
        id=_id(identity),
        issuer=owner.issuer,
        account=owner.account,
        start=start,
        end=end,
        label=owner.label,
        rows=part.rows,
        sums={code: _texts(sums) for code, sums in sorted(part.sums.items())},
        data_through=period_text(part.through),
        file=part.file,
        sha256=file_sha256(incoming / part.file),
    )


def _id(*words: str) -> str:
    joined = "\x1f".join(words)
    return f"bill-{hashlib.sha256(joined.encode()).hexdigest()[:_ID_DIGITS]}"


def _texts(sums: dict[str, Decimal | None]) -> dict[str, str | None]:
    return {name: None if amount is None else decimal_text(amount) for name, amount in sums.items()}
