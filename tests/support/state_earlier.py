"""States as earlier versions made them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, MetaData, text

from router.state import versions
from router.state.ledger_backup import ledger_lines
from router.state.ledger_checking import LedgerChecker
from router.state.ledger_file import LedgerFileKind, LedgerFileTitle, write_file
from router.state.periods import read_closings
from router.state.store import StateStore
from router.state.tables import METADATA


@contextlib.contextmanager
def made_by(monkeypatch: pytest.MonkeyPatch, version: str) -> Iterator[None]:
    """What is opened meanwhile is made by the steps up to that version."""

    def upto(connection: Connection) -> None:
        versions.migrate_tables(connection, version)

    known = versions.VERSIONS
    with monkeypatch.context() as patch:
        patch.setattr(versions, "_run_alembic", upto)
        patch.setattr(versions, "VERSIONS", known[: known.index(version) + 1])
        yield


# What no backup ever had as rows.
_NO_ROWS = {"ledger", "ledger_archived", "ledger_archives", "ledger_periods", "leases", "turns", "stepfare_version"}


def write_backup_of(store: StateStore, path: Path, version: str) -> None:
    """The backup that this version would have written: its own tables, as the database has them."""
    with store._database.read() as connection:
        lines = [
            ["version", version],
            *_rows(connection),
            *ledger_lines(connection, LedgerChecker(read_closings(connection))),
        ]
    write_file(path, LedgerFileTitle(LedgerFileKind.STATE, store.id), lines)


def _rows(connection: Connection) -> Iterator[list[Any]]:
    found = MetaData()
    found.reflect(connection)
    for table in found.sorted_tables:
        if table.name in _NO_ROWS:
            continue
        keys = {column.name: column.key for column in METADATA.tables[table.name].columns}
        for row in connection.execute(text(f"SELECT * FROM {table.name}")).mappings():
            yield ["row", table.name, {keys.get(name, name): _written(name, value) for name, value in row.items()}]


def _written(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    moment = isinstance(value, str) and value.endswith("Z") and (name.endswith("_at") or name in ("at", "as_of"))
    return datetime.fromisoformat(value).isoformat() if moment else value
