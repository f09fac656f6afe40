"""Imported bills on disk: an immutable Parquet file each, and a manifest for each delivery, which is what makes it
count.

The manifest is renamed into place when all files of the delivery are. A process killed before leaves files that no
manifest names, which the next import removes; one killed after has imported. Nothing is ever changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from pricing.problems import InvalidInputError
from router.showback.bills import Delivery, Standing, from_json, standings, to_json

_LOCK_WAIT_S = 120.0
_DELIVERIES, _PARQUET, _INCOMING = "deliveries", "parquet", ".incoming"
_LEAST_PREFIX = 4


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
        return tuple(_manifest(path) for path in sorted((self.folder / _DELIVERIES).glob("*.json")))

    def bills(self) -> tuple[Standing, ...]:
        """All bills, also those that were replaced, in the order of import."""
        return standings(self.deliveries())

    def current(self) -> tuple[Path, ...]:
        """The Parquet files of the bills that stand, each with the columns of FOCUS 1.4 and ours. InvalidInputError
        where one is gone."""
        paths = tuple(self.path(each) for each in self.bills() if each.replaced_by is None)
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
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with FileLock(self.folder / ".lock", timeout=_LOCK_WAIT_S):
                self._sweep()
                folder = self.folder / _INCOMING
                folder.mkdir(mode=0o700)
                try:
                    yield folder
                finally:
                    shutil.rmtree(folder, ignore_errors=True)
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
        part = incoming / "manifest"
        with part.open("w", encoding="utf-8") as stream:
            stream.write(to_json(delivery))
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(self.folder / _DELIVERIES / f"{delivery.number:06}-{delivery.digest[:12]}.json")

    def _sweep(self) -> None:
        """What imports left that were killed: nobody else writes, for we hold the lock."""
        shutil.rmtree(self.folder / _INCOMING, ignore_errors=True)
        named = {bill.file for delivery in self.deliveries() for bill in delivery.bills}
        for path in (self.folder / _PARQUET).glob("*.parquet"):
            if path.name not in named:
                path.unlink()


_AGAIN = "bring the folder back from a backup; `stepfare bills import` will not take the same file again"


def current(folder: Path) -> tuple[Path, ...]:
    """The Parquet files of the bills under ``folder`` that stand; none where nothing was imported."""
    return BillStore(folder).current()


def _manifest(path: Path) -> Delivery:
    try:
        return from_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InvalidInputError.single(f"is no manifest of bills: {error}", where=str(path), remedy=_AGAIN) from None
