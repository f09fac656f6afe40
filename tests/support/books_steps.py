"""A small history of books: entries, months that are closed, a late one, a backup, archives. Every step may be done
again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pricing.money import Usd
from router.ledger.entry import CostItem, LedgerEntry, LedgerEntryKind, MachineUse
from router.ledger.month import Month
from router.state.errors import ExistsError, StateError
from router.state.store import StateStore
from tests.support.state_values import HOUR, NOW, entry

SEPTEMBER, OCTOBER, NOVEMBER = (Month(2026, month) for month in (9, 10, 11))
BACKUP, ARCHIVE, LATER = "backup.gz", "archive.gz", "later.gz"


def of(month: int, key: str, hour: int = 1, **changes: Any) -> LedgerEntry:
    """An hour of a machine in that month."""
    start = datetime(2026, month, 3, hour, tzinfo=UTC)
    return entry(key, start=start, end=start + HOUR, use=MachineUse.WORK, **changes)


def fee(key: str, month: int = 11, **changes: Any) -> LedgerEntry:
    said = {
        "kind": LedgerEntryKind.FEE,
        "what": CostItem.OTHER,
        "who": "anna",
        "reason": "support",
        "usd": Usd.parse("100"),
    }
    return of(month, key, **{**said, **changes})


FIRST = [
    of(9, "s1"),
    of(9, "s2", 2),
    of(10, "o1"),
    of(9, "s3", 3),
    of(11, "n1"),
    of(10, "o2", 2, team="ops"),
    fee("f1", 9),
]

STEPS: tuple[Callable[[StateStore, Path], object], ...] = (
    lambda store, _: store.ledger.add(FIRST),
    lambda store, _: store.periods.close(SEPTEMBER, who="anna", at=NOW),
    lambda store, _: store.ledger.add([of(9, "late", 9), of(11, "n2", 2)]),
    lambda store, _: store.periods.close(OCTOBER, who="anna", at=NOW + timedelta(seconds=1)),
    lambda store, folder: store.backups.write(folder / BACKUP),
    lambda store, folder: store.archives.archive(OCTOBER, folder / ARCHIVE, who="anna", at=NOW),
    lambda store, _: store.ledger.add([of(11, "n3", 3), of(9, "s1"), of(10, "later", 9)]),
    lambda store, folder: store.archives.archive(NOVEMBER, folder / LATER, who="bob", at=NOW),
)


def seen(store: StateStore) -> tuple[object, ...]:
    """All that the steps change in the database, but for the sums of files, which name the state."""
    rows = [row for batch in store.ledger.batches(size=3) for row in batch]
    archives = tuple(replace(one, sha256="") for one in store.archives.all())
    return (rows, store.periods.closings(), store.periods.sums(), archives, store.ledger.verify())


def views(store: StateStore, folder: Path) -> Iterator[tuple[object, ...]]:
    """What is seen after 0, 1, 2 ... steps."""
    yield seen(store)
    for step in STEPS:
        step(store, folder)
        yield seen(store)


def go_on(store: StateStore, folder: Path, done: int) -> None:
    """Does the steps after the first ``done``, of which the next may have been done too."""
    for number, step in enumerate(STEPS[done:]):
        with contextlib.ExitStack() as stack:
            if number == 0:
                stack.enter_context(contextlib.suppress(ExistsError, NothingToDo))
            try:
                step(store, folder)
            except StateError as error:
                if number == 0 and "there are no entries" in error.what:
                    raise NothingToDo from None
                raise


class NothingToDo(Exception):  # noqa: N818  no failure
    """It was archived already."""
