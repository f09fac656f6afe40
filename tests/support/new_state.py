"""A new state without the migrations that make its tables: a copy of an empty one, with an identity of its own.

Making the tables takes a tenth of a second of processor time, which hundreds of tests would pay. Tests of how a state
is made, upgraded or killed meanwhile open it themselves.
"""

from __future__ import annotations

import secrets
import sqlite3
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from router.state.store import StateStore


def open_state(path: Path, now: datetime) -> StateStore:
    """Open the state at ``path``; where there is none, it is a new one."""
    write_new_state(path, now)
    return StateStore.open(f"sqlite:///{path}", now=now)


def write_new_state(path: Path, now: datetime) -> None:
    """Write a new state to ``path``, unless there is one."""
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(_empty_state())
    path.chmod(0o600)
    with closing(sqlite3.connect(path)) as database, database:
        facts = {"id": f"s{secrets.token_hex(5)}", "made_at": now.astimezone(UTC).isoformat()}
        for name, value in facts.items():
            changed = database.execute("UPDATE facts SET value = ? WHERE name = ?", (value, name)).rowcount
            assert changed == 1, name


@cache
def _empty_state() -> bytes:
    with tempfile.TemporaryDirectory(prefix="stepfare-empty-") as folder:
        path = Path(folder) / "state.db"
        StateStore.open(f"sqlite:///{path}", now=datetime(2026, 1, 1, tzinfo=UTC)).close()
        return path.read_bytes()
