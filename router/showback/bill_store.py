"""Store imported bills on disk: an immutable Parquet file for each bill, and a manifest for each delivery.

The manifest makes a delivery count. It is renamed into place when all files of the delivery are there. A process killed
before leaves files that no manifest names, which the next import removes; one killed after has imported. Nothing is
ever changed: that an older bill stands again, or one stands no more, is a decision with a file of its own.

Beside them lie the corrections of closed months, as facts in the books of an open month: what a bill changed that
came, was restated, restored or removed after the closing. Each is a Parquet file of facts and a manifest. A correction
belongs to one state, since the state knows which months are closed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pricing.atomic_file import make_private_folder, publish_file, sync_folder, sync_stream
from pricing.problems import InvalidInputError
from router.files.stored_records import FORMAT, hold_folder, parse_fields, read_records
from router.showback.bills import (
    BillDecision,
    BillDecisionKind,
    BillStanding,
    Delivery,
    DuplicateRule,
    ImportedBill,
    compute_standings,
    manifest_json,
    read_decision,
    read_delivery,
    read_rule,
    select_until,
)
from router.showback.duplicates import find_shared_charges, shared_charges_error
from router.showback.facts import MONEY
from router.showback.focus.columns import COSTS
from router.showback.focus.texts import moment_text

# The most issuers, accounts and periods in one delivery; each is an open file.
MOST_BILLS = 300
_ROWS_AT_ONCE = 65_536
_WIDE = Context(prec=200)
# A sum of a batch must not overflow where a single amount may fill 38 digits.
_SUMMED = pa.decimal256(70, MONEY.scale)
_KEY = ("InvoiceIssuerName", "BillingAccountId", "BillingPeriodStart", "BillingPeriodEnd")
# The bill that a row is on: issuer, account, start and end of the period, and its label, as in ImportedBill.
BillOwner = tuple[str | None, str | None, datetime | None, datetime | None, str]


@dataclass(slots=True)
class BillPart:
    """A bill while it is being written."""

    file: str
    rows: int = 0
    sums: dict[str, dict[str, Decimal | None]] = field(default_factory=dict)
    through: datetime | None = None
    waiting: list[pa.Table] = field(default_factory=list)
    stream: Any = None
    writer: pq.ParquetWriter | None = None


class BillPartWriter:
    """Write ``<stem>-<n>.parquet`` files to ``folder``, all with one schema.

    A context manager: its files are closed at its end, and complete when :meth:`finish` was called.
    """

    def __init__(self, folder: Path, stem: str, schema: pa.Schema) -> None:
        self.parts: dict[BillOwner, BillPart] = {}
        self._folder, self._stem, self._schema, self._waiting = folder, stem, schema, 0

    def add(self, table: pa.Table, name: str) -> None:
        """Add rows of the file ``name``. InvalidInputError for more bills than one delivery may hold."""
        identities = table.select(_KEY).group_by(list(_KEY)).aggregate([]).to_pylist()
        for identity in identities:
            values = [identity[column] for column in _KEY]
            rows = table if len(identities) == 1 else table.filter(_mask_of_bill(table, values))
            issuer, account, start, end = values
            owner = (issuer, account, start, end, "" if issuer is not None and account is not None else name)
            self._take(self._part(owner, name), rows)
        if self._waiting >= _ROWS_AT_ONCE:
            self._flush()

    def _part(self, owner: BillOwner, name: str) -> BillPart:
        part = self.parts.get(owner)
        if part is None:
            if len(self.parts) == MOST_BILLS:
                what = f"holds more than {MOST_BILLS} bills (issuers, accounts and periods)"
                raise InvalidInputError.single(what, where=name, remedy="import it in parts")
            part = self.parts[owner] = BillPart(f"{self._stem}-{len(self.parts) + 1}.parquet")
        return part

    def _take(self, part: BillPart, rows: pa.Table) -> None:
        part.rows += rows.num_rows
        part.waiting.append(rows)
        self._waiting += rows.num_rows
        currencies = rows["BillingCurrency"].combine_chunks()
        for currency in pc.unique(currencies).to_pylist():
            mask = pc.is_null(currencies) if currency is None else pc.equal(currencies, currency)
            costs = rows.select(COSTS).filter(mask)
            sums = part.sums.setdefault(currency or "", dict.fromkeys(COSTS))
            for column in COSTS:
                more, before = pc.sum(costs[column].cast(_SUMMED)).as_py(), sums[column]
                if more is not None:  # An unknown sum is not zero.
                    sums[column] = more if before is None else _WIDE.add(before, more)
        used = pc.max(rows["ChargePeriodEnd"].filter(pc.equal(rows["ChargeCategory"], "Usage"))).as_py()
        if used is not None:
            part.through = used if part.through is None else max(part.through, used)

    def _flush(self) -> None:
        for part in self.parts.values():
            if part.waiting:
                if part.writer is None:
                    part.stream = (self._folder / part.file).open("wb")
                    part.writer = pq.ParquetWriter(part.stream, self._schema, compression="zstd")
                part.writer.write_table(pa.concat_tables(part.waiting))
                part.waiting = []
        self._waiting = 0

    def finish(self) -> None:
        """Complete every file and sync it to the disk."""
        self._flush()
        for part in self.parts.values():
            if part.writer is not None:
                part.writer.close()
                sync_stream(part.stream)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for part in self.parts.values():
            if part.writer is not None:
                with suppress(OSError, pa.ArrowException):  # The failure that led here is the one to report.
                    part.writer.close()
                part.stream.close()


def _mask_of_bill(table: pa.Table, values: list[Any]) -> Any:
    mask = None
    for column, value in zip(_KEY, values, strict=True):
        equal = (
            pc.is_null(table[column])
            if value is None
            else pc.equal(table[column], pa.scalar(value, table[column].type))
        )
        equal = pc.fill_null(equal, fill_value=False)
        mask = equal if mask is None else pc.and_(mask, equal)
    return mask


def period_text(moment: datetime | None) -> str | None:
    """Return the moment as FOCUS writes it; None for None."""
    return None if moment is None else moment_text(moment)


_LOCK_WAIT_S = 120.0
_DELIVERIES, _DECISIONS, _RULES, _PARQUET, _INCOMING = "deliveries", "decisions", "rules", "parquet", ".incoming"
_LEAST_PREFIX = 4
T = TypeVar("T")


def file_sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class BillStore:
    """The bills under ``folder``, which is made on the first import."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def deliveries(self) -> tuple[Delivery, ...]:
        """Return all deliveries, the oldest first.

        InvalidInputError for a damaged manifest, since its bills would be missing.
        """
        return self._records(_DELIVERIES, read_delivery)

    def decisions(self) -> tuple[BillDecision, ...]:
        """Return which bills people restored or removed, the oldest first. InvalidInputError as for deliveries."""
        return self._records(_DECISIONS, read_decision)

    def rules(self) -> tuple[DuplicateRule, ...]:
        """Return which issuers' bills may hold charges twice, by the newest rule of each; errors as for deliveries."""
        return tuple({each.issuer: each for each in self._records(_RULES, read_rule)}.values())

    def allowed_issuers(self) -> frozenset[str]:
        """Return the issuers whose bills may hold charges twice."""
        return frozenset(each.issuer for each in self.rules() if each.allowed)

    def set_rule(self, issuer: str, reason: str, who: str, now: datetime, *, allowed: bool) -> DuplicateRule:
        """Store whether bills of the issuer may hold charges twice, and return the rule."""
        with self.incoming() as incoming:
            number = len(list((self.folder / _RULES).glob("*.json"))) + 1
            rule = DuplicateRule(number, moment_text(now), who, issuer, allowed, reason)
            self._publish(incoming, _RULES, f"{number:06}", rule)
        return rule

    def bills(self, as_of: datetime | None = None) -> tuple[BillStanding, ...]:
        """Return all bills, replaced ones too, in the order of import.

        ``as_of``: as if nothing had been imported or decided after it.
        """
        return compute_standings(*select_until(self.deliveries(), self.decisions(), as_of))

    def standing(self, as_of: datetime | None = None) -> tuple[BillStanding, ...]:
        """Return the bills that count, or counted at ``as_of``."""
        return tuple(each for each in self.bills(as_of) if each.stands)

    def changed_after(self, moment: datetime) -> bool:
        """Return whether anything was imported or decided after the moment."""
        known = select_until(self.deliveries(), self.decisions(), moment)
        return known != (self.deliveries(), self.decisions())

    def number(self) -> int:
        """Return the next number of a delivery or a decision."""
        known = [each.number for each in self.deliveries()] + [each.number for each in self.decisions()]
        return max(known, default=0) + 1

    def current(self, as_of: datetime | None = None) -> tuple[Path, ...]:
        """Return the Parquet files of the bills that stand, or stood at ``as_of``.

        Each has the columns of FOCUS 1.4 and ours. InvalidInputError where a file is gone.
        """
        paths = tuple(self.path(each) for each in self.standing(as_of))
        gone = next((path for path in paths if not path.is_file()), None)
        if gone is not None:
            raise InvalidInputError.single("is gone: a bill would be missing", where=str(gone), remedy=_AGAIN)
        return paths

    def path(self, standing: BillStanding) -> Path:
        return self.folder / _PARQUET / standing.bill.file

    def find(self, identity: str) -> BillStanding:
        """Find a bill by its id, or the first digits of it. InvalidInputError where there is none or are several."""
        digits = identity.removeprefix("bill-").lower()
        matches = [each for each in self.bills() if each.bill.id.removeprefix("bill-").startswith(digits)]
        if len(digits) < _LEAST_PREFIX or len(matches) != 1:
            what = f"names {len(matches)} bills" if len(digits) >= _LEAST_PREFIX else "is too short"
            remedy = f"`stepfare bills list` shows them; {_LEAST_PREFIX} digits at least"
            raise InvalidInputError.single(f"{identity!r} {what}", field="ID", remedy=remedy)
        return matches[0]

    def whole(self, standing: BillStanding) -> bool:
        """Return whether the bill's file is there and is the one that was written."""
        path = self.path(standing)
        return path.is_file() and file_sha256(path) == standing.bill.sha256

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """Yield an empty folder for one import, which alone may write while the block runs.

        The folder is removed afterwards.
        """
        with self.held():
            self._sweep()
            folder = self.folder / _INCOMING
            folder.mkdir(mode=0o700)
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep everybody else from changing which bills stand while the block runs.

        InvalidInputError where somebody else holds the lock for long.
        """
        with hold_folder(self.folder, _LOCK_WAIT_S, "importing bills"):
            yield

    def commit(self, delivery: Delivery, incoming: Path) -> None:
        """Commit the delivery whose files lie, synced, in ``incoming``; call it inside the block of that."""
        (self.folder / _PARQUET).mkdir(mode=0o700, exist_ok=True)
        for bill in delivery.bills:
            (incoming / bill.file).replace(self.folder / _PARQUET / bill.file)
        sync_folder(self.folder / _PARQUET)
        self._publish(incoming, _DELIVERIES, f"{delivery.number:06}-{delivery.digest[:12]}", delivery)

    def decide(
        self, what: BillDecisionKind, identity: str, reason: str, who: str, now: datetime
    ) -> tuple[BillStanding, ...]:
        """Restore a bill, in the place of the one that stands, or remove one that stands.

        Returns the bills concerned as they are afterwards, the one that was decided on first. InvalidInputError: no
        such bill, nothing would change, or the rows of a bill to be restored are gone, or stand on another bill too.
        """
        with self.incoming() as incoming:
            target = self.find(identity)
            replaced = [each for each in self.standing() if each.bill.key == target.bill.key and each != target]
            if target.stands is (what is BillDecisionKind.RESTORE):
                problem = "stands already" if target.stands else "does not stand: there is nothing to take away"
                remedy = "`stepfare bills list --all` shows what stands"
                raise InvalidInputError.single(f"{target.bill.id} {problem}", field="ID", remedy=remedy)
            if what is BillDecisionKind.RESTORE and not self.whole(target):
                problem = "its rows are gone, or not those that were stored"
                raise InvalidInputError.single(problem, where=str(self.path(target)), remedy=_AGAIN)
            if what is BillDecisionKind.RESTORE:
                self.refuse_shared({self.path(target): target.bill})
            decision = BillDecision(self.number(), moment_text(now), who, what, target.bill.id, reason)
            self._publish(incoming, _DECISIONS, f"{decision.number:06}-{what}", decision)
            concerned = {target.bill.id: 0, **{each.bill.id: 1 for each in replaced}}
            after = [each for each in self.bills() if each.bill.id in concerned]
        return tuple(sorted(after, key=lambda standing: concerned[standing.bill.id]))

    def refuse_shared(self, new: Mapping[Path, ImportedBill]) -> None:
        """Raise InvalidInputError for charges of the new bills that would count twice when these stand."""
        keys = {bill.key for bill in new.values()}
        others = {
            path: each.bill
            for each in self.standing()
            if each.bill.key not in keys and (path := self.path(each)).is_file()
        }
        if shared := find_shared_charges(others, new, self.allowed_issuers()):
            raise shared_charges_error(shared)

    def _records(self, kind: str, parse: Callable[[str], T]) -> tuple[T, ...]:
        return read_records(self.folder / kind, parse, "manifest of bills")

    def _publish(self, incoming: Path, kind: str, name: str, record: Delivery | BillDecision | DuplicateRule) -> None:
        """Write a manifest in the folder of the import, which is swept after a crash, then give it its name."""
        (self.folder / kind).mkdir(mode=0o700, exist_ok=True)
        part = incoming / "manifest"
        part.write_text(manifest_json(record), encoding="utf-8")
        publish_file(part, self.folder / kind / f"{name}.json")

    def _sweep(self) -> None:
        """Remove what killed imports left behind. Nobody else writes, for this process holds the lock."""
        shutil.rmtree(self.folder / _INCOMING, ignore_errors=True)
        known_files = {bill.file for delivery in self.deliveries() for bill in delivery.bills}
        for path in (self.folder / _PARQUET).glob("*.parquet"):
            if path.name not in known_files:
                path.unlink()


_AGAIN = "import the bill again, or bring the folder back from a backup"


_FOLDER = "corrections"


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """The manifest of one correction.

    ``number`` counts from 1 in each state. ``period`` is the open month in whose books it stands, ``corrects`` the
    closed months, ``at`` when the bills changed (UTC, ISO), ``after`` the ids of all bills that stood then. ``amounts``
    has the billed and effective sums (exact text) by currency. ``file`` holds the facts, and has the checksum
    ``sha256``: none where ``rows`` is 0, for another bill may come to the same money.
    """

    id: str
    number: int
    state: str
    period: str
    corrects: tuple[str, ...]
    at: str
    who: str
    reason: str
    after: tuple[str, ...]
    rows: int
    amounts: dict[str, dict[str, str]]
    file: str
    sha256: str = ""


class CorrectionStore:
    """The corrections of one state under the folder of the bills."""

    def __init__(self, bills: Path, state: str) -> None:
        self._folder, self._state = bills / _FOLDER, state

    def all(self) -> tuple[Correction, ...]:
        """Return all corrections, in order. InvalidInputError for a damaged manifest."""
        own = (each for each in read_records(self._folder, _parse, "correction") if each.state == self._state)
        return tuple(sorted(own, key=lambda correction: correction.number))

    def path(self, correction: Correction) -> Path:
        return self._folder / correction.file

    def whole(self, correction: Correction) -> bool:
        """Return whether the correction's facts are there and are the ones that were written."""
        path = self.path(correction)
        return not correction.rows or (path.is_file() and file_sha256(path) == correction.sha256)

    def add(self, correction: Correction, facts: pa.Table) -> Correction:
        """Store one more correction, whole or not at all; call it while the bills are held. OSError."""
        make_private_folder(self._folder)
        part = self._folder / ".part"
        pq.write_table(facts, part, compression="zstd")
        publish_file(part, self.path(correction))
        correction = replace(correction, sha256=file_sha256(self.path(correction)))
        part.write_text(json.dumps({"format": FORMAT, **asdict(correction)}, indent=1) + "\n", encoding="utf-8")
        publish_file(part, self._folder / f"{correction.id}.json")
        return correction


def correction_id(number: int, state: str) -> str:
    return f"correction-{state}-{number:06}"


def find_damaged_correction(corrections: Sequence[Correction], store: CorrectionStore) -> Correction | None:
    """Return the first correction whose facts are not as they were written."""
    return next((each for each in corrections if not store.whole(each)), None)


def _parse(text: str) -> Correction:
    fields = parse_fields(text)
    return Correction(**{**fields, "corrects": tuple(fields["corrects"]), "after": tuple(fields["after"])})
