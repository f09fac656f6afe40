"""DuckDB as showback uses it: in memory, within bounds, nothing loaded from a net."""

from __future__ import annotations

import glob
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

MEMORY = "2GB"


@contextmanager
def connect() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection of one's own; what does not fit into :data:`MEMORY` goes to the folder for temporary files."""
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": MEMORY,
        "temp_directory": str(Path(tempfile.gettempdir()) / f"stepfare-{os.getpid()}"),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "preserve_insertion_order": False,
    }
    with duckdb.connect(config=settings) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        try:
            yield connection
        except RuntimeError as error:
            if "interrupted" in str(error):  # what DuckDB makes of Ctrl-C
                raise KeyboardInterrupt from None
            raise


def parquet(paths: Sequence[Path]) -> str:
    """The files as one relation for a FROM; each must be there, at least one."""
    names = ", ".join(_text(glob.escape(str(path))) for path in paths)
    return f"read_parquet([{names}], hive_partitioning = false, union_by_name = true)"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
