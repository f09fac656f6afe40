"""Bills of clouds into the store: read once, a batch at a time, every gap counted, nothing made up."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from pricing.problems import InvalidInputError, Problem
from router.showback.billparts import Owner, Part, Parts, period_text
from router.showback.bills import Bill, Delivery, Gap, Source
from router.showback.billstore import BillStore, file_sha256
from router.showback.focus.arrowtypes import arrow_schema
from router.showback.focus.batches import LIMITS, Batch, Limits
from router.showback.focus.columns import COSTS
from router.showback.focus.feed import open_feed
from router.showback.focus.survey import Opened, recognised, survey
from router.showback.focus.tally import Finding, Tally
from router.showback.focus.texts import decimal_text, moment_text
from router.showback.focus.typed import Typed
from router.showback.focus.versions import NEWEST, written_columns

_ID_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Imported:
    """``delivery`` was stored, or had been before: then ``new`` is False and nothing was changed."""

    delivery: Delivery
    new: bool


def import_bills(paths: Sequence[Path], store: BillStore, now: datetime, limits: Limits = LIMITS) -> Imported:
    """The files as one delivery: parts of a bill, or bills of several. The same contents again change nothing; a bill
    with the issuer, account and billing period of an older one takes its place.

    InvalidInputError, and nothing is stored: a file that :func:`~router.showback.focus.feed.open_feed` refuses or
    that is no Cost and Usage, a cost that cannot be read, the same contents twice, a file that changes while it is
    read. OSError where the store cannot be written."""
    before = [_sealed(path) for path in paths]
    digests = [digest for digest, _ in before]
    twice = next((str(path) for path, digest in zip(paths, digests, strict=True) if digests.count(digest) > 1), None)
    if twice is not None:
        raise InvalidInputError.single("is given twice: its rows would count twice", where=twice)
    with store.incoming() as incoming:
        known = store.deliveries()
        for old in reversed(known):
            if set(digests) <= {source.sha256 for source in old.sources}:
                return Imported(old, new=False)
        number = max((old.number for old in known), default=0) + 1
        delivery = _delivery(paths, digests, incoming, number, now, limits)
        if before != [_sealed(path) for path in paths]:
            raise InvalidInputError.single("changed while it was read", where=str(paths[0]), remedy="import it again")
        store.commit(delivery, incoming)
    return Imported(delivery, new=True)


def _sealed(path: Path) -> tuple[str, int]:
    """What the file holds, and how much. A pipe or a device would not end."""
    try:
        if not path.is_file():
            raise InvalidInputError.single("is no file", where=str(path))
        return file_sha256(path), path.stat().st_size
    except OSError as error:
        raise InvalidInputError.single(f"cannot be read: {error.strerror or error}", where=str(path)) from None


def _delivery(
    paths: Sequence[Path], digests: list[str], incoming: Path, number: int, now: datetime, limits: Limits
) -> Delivery:
    together = hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
    extras = _extras(paths, limits)
    fields = [*arrow_schema(written_columns(NEWEST)), *(pa.field(kept, pa.string()) for kept in extras.values())]
    sources, gaps = [], []
    with Parts(incoming, f"{number:06}-{together[:_ID_DIGITS]}", pa.schema(fields)) as parts:
        for path, digest in zip(paths, digests, strict=True):
            source, some = _read(path, digest, parts, extras, limits)
            sources.append(source)
            gaps += some
        parts.finish()
        bills = [_bill(owner, part, incoming, together) for owner, part in parts.parts.items()]
    bills.sort(key=lambda bill: tuple(each or "" for each in bill.key))
    return Delivery(number, together, moment_text(now), tuple(sources), tuple(bills), tuple(gaps))


def _extras(paths: Sequence[Path], limits: Limits) -> dict[str, str]:
    """Columns that are neither FOCUS nor ours, and the name under which they are kept: DuckDB knows no capitals."""
    taken = {column.name.lower() for column in written_columns(NEWEST)}
    found: dict[str, str] = {}
    for path in paths:
        with open_feed(path, limits) as feed:
            for name in recognised(feed, str(path)).unknown:
                if name not in found:
                    kept = name
                    while kept.lower() in taken:
                        kept = f"x_{kept}"
                    taken.add(kept.lower())
                    found[name] = kept
    return found


def _read(path: Path, digest: str, parts: Parts, extras: dict[str, str], limits: Limits) -> tuple[Source, list[Gap]]:
    tally, rows = Tally(1), 0
    with open_feed(path, limits) as feed:
        opened = recognised(feed, str(path))
        for batch, found in survey(feed, opened, tally, absent=True):
            _refuse_lost_costs(path, batch, found, opened)
            parts.add(_table(batch, found, extras), path.name)
            rows += batch.rows
        source = Source(path.name, digest, path.stat().st_size, feed.form, opened.version, rows)
    return source, [_gap(path.name, finding, tally) for finding in tally.findings]


def _gap(name: str, finding: Finding, tally: Tally) -> Gap:
    count = tally.counts[finding.rule, finding.column]
    return Gap(name, finding.rule, finding.column, count, finding.row, finding.line, finding.value)


def _refuse_lost_costs(path: Path, batch: Batch, rows: Typed, opened: Opened) -> None:
    """A cost that is written but cannot be read must not leave the sum."""
    problems = []
    for mark in rows.marks:
        if mark.rule == "unreadable" and mark.column in COSTS:
            tally = Tally(len(mark.rows))
            tally.add_mark(mark, batch, opened.sources)
            problems += [Problem(each.place(str(path)), each.column, each.what, each.why) for each in tally.findings]
    if problems:
        raise InvalidInputError(problems)


def _table(batch: Batch, rows: Typed, extras: dict[str, str]) -> pa.Table:
    columns = {column.name: rows.column(column.name) for column in written_columns(NEWEST)}
    for name, kept in extras.items():
        columns[kept] = batch.columns.get(name, pa.nulls(rows.rows, pa.string()))
    return pa.table(columns)


def _bill(owner: Owner, part: Part, incoming: Path, digest: str) -> Bill:
    start, end = period_text(owner.start), period_text(owner.end)
    told = "\x1f".join(each or "" for each in (digest, owner.issuer, owner.account, start, end, owner.label))
    return Bill(
        id=f"bill-{hashlib.sha256(told.encode()).hexdigest()[:_ID_DIGITS]}",
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


def _texts(sums: dict[str, Decimal | None]) -> dict[str, str | None]:
    return {name: None if amount is None else decimal_text(amount) for name, amount in sums.items()}
