"""Store of fetched price books on disk: whole files named by moment and digest, and a pointer to the latest.

The pointer is replaced in one step after the book is complete, so that a process killed at any moment leaves either the
old book or the new one. Books are never changed once written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from pricing.atomic_file import make_private_folder, write_atomic
from pricing.book import PriceBook
from pricing.book_file import file_hash, read_trusted_book, write_book
from pricing.problems import InvalidInputError

# Plans name the book they were made on by digest. This is the number of books that stay available for that.
BOOK_LIMIT = 90
_LOCK_WAIT_S = 120.0
_POINTER = "latest.json"


@dataclass(frozen=True, slots=True)
class StoredBook:
    """A book in the store: ``file`` is its name there, ``sha256`` that of the file, ``digest`` that of the content."""

    file: str
    sha256: str
    digest: str
    as_of: str
    offers: int


class BookStore:
    """The books under ``folder``, which is made on the first write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def sandbox(self) -> BookStore:
        """Return the store of simulated clouds' books, which are separate from those of real ones."""
        return BookStore(self.folder / "sandbox")

    def latest(self) -> StoredBook | None:
        """Return the book that the pointer names; None when nothing was ever stored.

        InvalidInputError when it cannot be read.
        """
        path = self.folder / _POINTER
        try:
            return StoredBook(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise _damaged(path, f"cannot be read: {error}") from None

    def load(self, stored: StoredBook) -> PriceBook:
        """Return the book, which must be the very file that was written. InvalidInputError otherwise."""
        path = self.folder / stored.file
        try:
            return read_trusted_book(path, stored.sha256)
        except InvalidInputError as error:
            raise _damaged(path, str(error.problems[0].what)) from None

    def newest_sound(self) -> tuple[PriceBook | None, tuple[str, ...]]:
        """Return the latest undamaged book (None without one), and warnings about damaged ones."""
        warnings: list[str] = []
        candidates: list[StoredBook] = []
        try:
            latest = self.latest()
            if latest is None:
                return None, ()
            candidates.append(latest)
        except InvalidInputError as error:
            warnings.append(str(error.problems[0]))
        for stored in dict.fromkeys((*candidates, *self.all())):
            try:
                return self.load(stored), tuple(warnings)
            except InvalidInputError as error:
                warnings.append(f"{error.problems[0].where}: {error.problems[0].what}; an older book is built upon")
        return None, tuple(warnings)

    def all(self) -> tuple[StoredBook, ...]:
        """Return every stored book, newest first; unreadable descriptions are left out."""
        return tuple(
            stored
            for path in sorted(self.folder.glob("*.book.json"), reverse=True)
            if (stored := _description(path)) is not None
        )

    def find(self, digest: str, field: str = "--book") -> StoredBook:
        """Return the stored book whose digest begins so.

        InvalidInputError, about ``field``, for none or more than one.
        """
        found = {stored.digest: stored for stored in self.all() if stored.digest.startswith(digest.lower())}
        if len(found) == 1:
            return next(iter(found.values()))
        what = f"{len(found)} stored books begin with" if found else "no stored book has the digest"
        remedy = "stepfare prices list shows them"
        raise InvalidInputError.single(f"{what} {digest!r}", field=field, remedy=remedy)

    def commit(self, book: PriceBook) -> StoredBook:
        """Write ``book``, then point to it; call it inside :meth:`lock`. The same content again is the same file."""
        make_private_folder(self.folder)
        name = f"{book.as_of:%Y%m%dT%H%M%SZ}-{book.digest[:16]}"
        path = self.folder / f"{name}.parquet"
        write_book(book, path)
        stored = StoredBook(path.name, file_hash(path), book.digest, book.as_of.isoformat(), len(book.offers))
        _replace(self.folder / f"{name}.book.json", stored)
        self.point_to(stored)
        self._prune()
        return stored

    def point_to(self, stored: StoredBook) -> None:
        """Make ``stored`` the latest; call it inside :meth:`lock`."""
        _replace(self.folder / _POINTER, stored)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Allow one writer at a time, across processes; the lock of a killed process is free at once."""
        with lock_folder(self.folder, _LOCK_WAIT_S, "price books for two minutes"):
            yield

    def _prune(self) -> None:
        for old in self.all()[BOOK_LIMIT:]:
            (self.folder / old.file).unlink(missing_ok=True)
            (self.folder / old.file).with_suffix(".book.json").unlink(missing_ok=True)
        # Temporary files come from writers that were killed, because this process holds the lock.
        for part in self.folder.glob(".*.part"):
            part.unlink(missing_ok=True)


@contextmanager
def lock_folder(folder: Path, wait_s: float, work: str) -> Iterator[None]:
    """Hold the lock of a folder, which is made if missing; InvalidInputError where another command holds it so long."""
    make_private_folder(folder)
    try:
        with FileLock(folder / ".lock", timeout=wait_s):
            yield
    except Timeout:
        what = f"another command has been writing {work}"
        raise InvalidInputError.single(what, where=str(folder), remedy="try again when it has finished") from None


def _description(path: Path) -> StoredBook | None:
    try:
        stored = StoredBook(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return stored if (path.parent / stored.file).is_file() else None


def _replace(path: Path, stored: StoredBook) -> None:
    write_atomic(path, json.dumps(asdict(stored), indent=1), mode=0o600)


def _damaged(path: Path, what: str) -> InvalidInputError:
    remedy = "stepfare prices refresh writes a new one; until then use --book embedded"
    return InvalidInputError.single(what, where=str(path), remedy=remedy)
