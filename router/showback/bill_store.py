"""Imported bills on disk: an immutable Parquet file each, and a manifest for each delivery, which is what makes it
count.

The manifest is renamed into place when all files of the delivery are. A process killed before leaves files that no
manifest names, which the next import removes; one killed after has imported. Nothing is ever changed: that an older
bill stands again, or one no more, is a decision, a file of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from pricing.problems import InvalidInputError
from router.showback.bills import (
    Decision,
    Deed,
    Delivery,
    Standing,
    decision_from_json,
    from_json,
    known_by,
    standings,
    to_json,
)
from router.showback.focus.texts import moment_text

_LOCK_WAIT_S = 120.0
_DELIVERIES, _DECISIONS, _PARQUET, _INCOMING = "deliveries", "decisions", "parquet", ".incoming"
_LEAST_PREFIX = 4
T = TypeVar("T")


def file_sha256(path: Path) -> str:
    """Of what the file holds, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class BillStore:
    """The bills under ``folder``; made on the first import."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def deliveries(self) -> tuple[Delivery, ...]:
        """All of them, the oldest first. InvalidInputError for a manifest that is damaged: its bills would be
        missing."""
        return tuple(_manifest(path, from_json) for path in sorted((self.folder / _DELIVERIES).glob("*.json")))

    def decisions(self) -> tuple[Decision, ...]:
        """Which bills people brought back or took away, the oldest first. InvalidInputError as for deliveries."""
        return tuple(_manifest(path, decision_from_json) for path in sorted((self.folder / _DECISIONS).glob("*.json")))

    def bills(self, as_of: datetime | None = None) -> tuple[Standing, ...]:
        """All bills, also those that were replaced, in the order of import; ``as_of``: as if nothing had been imported
        or decided after it."""
        return standings(*known_by(self.deliveries(), self.decisions(), as_of))

    def standing(self, as_of: datetime | None = None) -> tuple[Standing, ...]:
        """The bills that count, or counted then."""
        return tuple(each for each in self.bills(as_of) if each.stands)

    def changed_after(self, moment: datetime) -> bool:
        """Whether something was imported, or decided, after it."""
        known = known_by(self.deliveries(), self.decisions(), moment)
        return known != (self.deliveries(), self.decisions())

    def number(self) -> int:
        """The next number of a delivery or a decision."""
        known = [each.number for each in self.deliveries()] + [each.number for each in self.decisions()]
        return max(known, default=0) + 1

    def current(self, as_of: datetime | None = None) -> tuple[Path, ...]:
        """The Parquet files of the bills that stand, or stood then, each with the columns of FOCUS 1.4 and ours.
        InvalidInputError where one is gone."""
        paths = tuple(self.path(each) for each in self.standing(as_of))
        gone = next((path for path in paths if not path.is_file()), None)
        if gone is not None:
            raise InvalidInputError.single("is gone: a bill would be missing", where=str(gone), remedy=_AGAIN)
        return paths

    def path(self, standing: Standing) -> Path:
        """Where its rows are."""
        return self.folder / _PARQUET / standing.bill.file

    def find(self, identity: str) -> Standing:
        """By its id, or the first digits of it. InvalidInputError where there is none or are several."""
        digits = identity.removeprefix("bill-").lower()
        fitting = [each for each in self.bills() if each.bill.id.removeprefix("bill-").startswith(digits)]
        if len(digits) < _LEAST_PREFIX or len(fitting) != 1:
            what = f"names {len(fitting)} bills" if len(digits) >= _LEAST_PREFIX else "is too short"
            remedy = f"`stepfare bills list` shows them; {_LEAST_PREFIX} digits at least"
            raise InvalidInputError.single(f"{identity!r} {what}", field="ID", remedy=remedy)
        return fitting[0]

    def whole(self, standing: Standing) -> bool:
        """Whether its file is there and the very one that was written."""
        path = self.path(standing)
        return path.is_file() and file_sha256(path) == standing.bill.sha256

    @contextmanager
    def incoming(self) -> Iterator[Path]:
        """An empty folder for one import, which alone may write while the block runs; it is gone after it."""
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
        """Nobody else changes which bills stand while the block runs. InvalidInputError where somebody does for
        long."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with FileLock(self.folder / ".lock", timeout=_LOCK_WAIT_S):
                yield
        except Timeout:
            what = f"another command has been importing bills for {_LOCK_WAIT_S:.0f} seconds"
            raise InvalidInputError.single(
                what, where=str(self.folder), remedy="try again when it has finished"
            ) from None

    def commit(self, delivery: Delivery, incoming: Path) -> None:
        """Its files lie, synced, in ``incoming``; call it inside the block of that."""
        (self.folder / _PARQUET).mkdir(mode=0o700, exist_ok=True)
        (self.folder / _DELIVERIES).mkdir(mode=0o700, exist_ok=True)
        for bill in delivery.bills:
            (incoming / bill.file).replace(self.folder / _PARQUET / bill.file)
        _put(incoming, self.folder / _DELIVERIES / f"{delivery.number:06}-{delivery.digest[:12]}.json", delivery)

    def decide(self, what: Deed, identity: str, reason: str, who: str, now: datetime) -> tuple[Standing, ...]:
        """Brings a bill back, in the place of the one that stands, or takes away one that stands; both as they are
        then, the one that is decided on first. InvalidInputError: no such bill, nothing would change, or the rows of
        a bill to be brought back are gone."""
        with self.incoming() as incoming:
            found = self.find(identity)
            before = [each for each in self.standing() if each.bill.key == found.bill.key and each != found]
            if found.stands is (what is Deed.RESTORE):
                what_is = "stands already" if found.stands else "does not stand: there is nothing to take away"
                remedy = "`stepfare bills list --all` shows what stands"
                raise InvalidInputError.single(f"{found.bill.id} {what_is}", field="ID", remedy=remedy)
            if what is Deed.RESTORE and not self.whole(found):
                told = "its rows are gone, or not those that were stored"
                raise InvalidInputError.single(told, where=str(self.path(found)), remedy=_AGAIN)
            decision = Decision(self.number(), moment_text(now), who, what, found.bill.id, reason)
            (self.folder / _DECISIONS).mkdir(mode=0o700, exist_ok=True)
            _put(incoming, self.folder / _DECISIONS / f"{decision.number:06}-{what}.json", decision)
            concerned = {found.bill.id: 0, **{each.bill.id: 1 for each in before}}
            after = [each for each in self.bills() if each.bill.id in concerned]
        return tuple(sorted(after, key=lambda each: concerned[each.bill.id]))

    def _sweep(self) -> None:
        """What imports left that were killed: nobody else writes, for we hold the lock."""
        shutil.rmtree(self.folder / _INCOMING, ignore_errors=True)
        named = {bill.file for delivery in self.deliveries() for bill in delivery.bills}
        for path in (self.folder / _PARQUET).glob("*.parquet"):
            if path.name not in named:
                path.unlink()


_AGAIN = "import the bill again, or bring the folder back from a backup"


def current(folder: Path) -> tuple[Path, ...]:
    """The Parquet files of the bills under ``folder`` that stand; none where nothing was imported."""
    return BillStore(folder).current()


def _put(incoming: Path, path: Path, said: Delivery | Decision) -> None:
    """On the disk, whole, before it has its name."""
    part = incoming / "manifest"
    with part.open("w", encoding="utf-8") as stream:
        stream.write(to_json(said))
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)


def _manifest(path: Path, read: Callable[[str], T]) -> T:
    try:
        return read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        remedy = "bring the folder back from a backup"
        raise InvalidInputError.single(f"is no manifest of bills: {error}", where=str(path), remedy=remedy) from None
