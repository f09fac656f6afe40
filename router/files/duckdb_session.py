"""Open DuckDB over files: in memory, within bounds, with nothing loaded from a network."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

MEMORY = "2GB"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Two connections of one process must not write to the same temporary files.
_NUMBERS = count()


@contextmanager
def connect(memory: str = MEMORY, *, ordered: bool = False) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection of one's own.

    What does not fit into ``memory`` goes to the folder for temporary files. ``ordered``: rows of files keep their
    order.
    """
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory,
        "temp_directory": str(Path(tempfile.gettempdir()) / f"stepfare-{os.getpid()}-{next(_NUMBERS)}"),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "preserve_insertion_order": ordered,
    }
    with duckdb.connect(config=settings) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        try:
            yield connection
        except RuntimeError as error:
            if "interrupted" in str(error):  # This is how DuckDB reports Ctrl-C.
                raise KeyboardInterrupt from None
            raise


def rows_of(relation: duckdb.DuckDBPyRelation) -> list[dict[str, Any]]:
    """Return the rows of a relation by name, exact; moments in UTC."""
    table = relation.to_arrow_table()
    values = [
        _moments(column) if str(column.type).startswith("timestamp") else column.to_pylist() for column in table.columns
    ]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*values, strict=True)]


def _moments(column: pa.ChunkedArray) -> list[datetime | None]:
    """Return the moments of a column. Arrow itself would import pandas for them, which takes long."""
    import pyarrow as pa

    since = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return [None if us is None else _EPOCH + timedelta(microseconds=us) for us in since]


def parquet_relation(paths: Sequence[Path]) -> str:
    """Return the files as one relation for a FROM; each must be there, at least one."""
    names = ", ".join(sql_text(glob.escape(str(path))) for path in paths)
    return f"read_parquet([{names}], hive_partitioning = false, union_by_name = true)"


def sql_text(value: str) -> str:
    """Return a text within SQL, where no parameter can stand."""
    return "'" + value.replace("'", "''") + "'"


def sql_list(values: Iterable[object]) -> str:
    """Return the texts of the values as an SQL list, for IN; one that holds nothing where there are none."""
    return f"({', '.join(sql_text(str(value)) for value in values) or 'NULL'})"
