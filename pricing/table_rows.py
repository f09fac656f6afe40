"""Values from the rows (CSV cells) of the embedded tables: a field is the cell of its name, read by the field's type.

The tables are the package's own and are checked by tests, so a bad cell raises ValueError without a place. A blank cell
is unknown.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from importlib import resources
from typing import TypeVar, get_type_hints

Row = Mapping[str, str]
T = TypeVar("T")
_READERS: Mapping[object, Callable[[str], object]] = {
    str: str,
    int: int,
    float: float,
    Fraction: Fraction,
    bool: lambda cell: cell == "yes",
    str | None: lambda cell: cell or None,
    int | None: lambda cell: int(cell) if cell else None,
    float | None: lambda cell: float(cell) if cell else None,
}


def read_table(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of ``tables/<name>.csv``."""
    text = resources.files("pricing").joinpath(f"tables/{name}.csv").read_text(encoding="utf-8")
    rows = csv.reader(text.splitlines())
    header = next(rows)
    return (dict(zip(header, row, strict=True)) for row in rows)


def parse_rows(kind: Callable[..., T], rows: Iterable[Row], **derived: Callable[[Row], object]) -> tuple[T, ...]:
    """Return a ``kind`` (a dataclass) for each row; ``derived`` makes, by name, the fields that are no single cell."""
    hints = get_type_hints(kind)
    readers = {name: _READERS[hint] for name, hint in hints.items() if name not in derived}

    def parse(row: Row) -> T:
        cells = {name: read(row[name]) for name, read in readers.items()}
        return kind(**cells, **{name: derive(row) for name, derive in derived.items()})

    return tuple(map(parse, rows))
