"""A made-up version of stepfare that comes after this one: its tables have one step more."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.state import state_backup, versions

NEXT = "9001"
# It changes tables and rows; UPGRADED is what becomes of the text of a plan.
UPGRADES = """op.add_column("plans", sa.Column("made_up", sa.Text(), nullable=False, server_default="")); \
op.execute("UPDATE plans SET text = text || ' upgraded'")"""
UPGRADED = "{} upgraded"
_STEP = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "{}", "{}", None, None


def upgrade():
    {}
"""


@contextlib.contextmanager
def next_version(monkeypatch: pytest.MonkeyPatch, folder: Path, upgrade: str = UPGRADES) -> Iterator[None]:
    """Open states as the next version would, inside the block; ``folder`` is for its steps."""
    steps = folder / "migrations"
    shutil.copytree(versions._FOLDER, steps, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    (steps / "versions" / "next.py").write_text(_STEP.format(NEXT, versions.VERSIONS[-1], upgrade))
    known = (*versions.VERSIONS, NEXT)
    with monkeypatch.context() as patch:
        patch.setattr(versions, "_FOLDER", steps)
        # Not the recorded tables of tests, which are those of today's version.
        patch.setattr(versions, "_run_alembic", lambda connection: versions.migrate_tables(connection, "head"))
        for module in (versions, state_backup):
            patch.setattr(module, "VERSIONS", known)
        yield
