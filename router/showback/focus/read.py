"""Read charges out of a file of ours, exactly as they were written.

Bills of others are read by ``survey``, which accepts more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pricing.problems import InvalidInputError
from router.showback.focus.cells import charge_of_row
from router.showback.focus.charge import Charge
from router.showback.focus.feed import open_feed
from router.showback.focus.versions import detect_version


def read_charges(path: Path) -> Iterator[Charge]:
    """Yield the charges of a file, one after the other.

    InvalidInputError with file, line and column: what ``open_feed`` refuses, no FOCUS columns, a value that FOCUS does
    not allow, none where 1.4 demands one.
    """
    with open_feed(path) as feed:
        if detect_version(feed.header) is None:
            raise InvalidInputError.single("has no FOCUS Cost and Usage columns", where=f"{path}:1")
        for batch in feed.batches:
            columns = [column.to_pylist() for column in batch.columns.values()]
            for index, row in enumerate(zip(*columns, strict=True)):
                try:
                    yield charge_of_row(dict(zip(feed.header, row, strict=True)))
                except ValueError as error:
                    line = f"{path}:{batch.lines[index]}" if batch.lines else f"{path}: row {batch.first + index}"
                    raise InvalidInputError.single(str(error), where=line) from None
