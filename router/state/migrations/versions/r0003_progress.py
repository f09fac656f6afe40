"""The progress of a training, and its last checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    """Add columns to the nodes."""
    op.add_column("nodes", sa.Column("step", sa.BigInteger(), nullable=True))
    op.add_column("nodes", sa.Column("step_seconds", sa.Double(), nullable=True))
    op.add_column("nodes", sa.Column("saved_step", sa.BigInteger(), nullable=True))
    op.add_column("nodes", sa.Column("saved_manifest", sa.Text(), nullable=True))
    op.add_column("nodes", sa.Column("saved_at", _MOMENT, nullable=True))
