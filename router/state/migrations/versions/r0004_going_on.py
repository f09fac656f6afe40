"""Attempts that resume from others, and the checkpoints that they are told to save."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision: str | None = "0003"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    """Add columns to the attempts and to the ledger."""
    for name in ("resumes", "first_manifest", "order_id", "order_reason"):
        op.add_column("attempts", sa.Column(name, sa.Text(), nullable=False, server_default=""))
    op.add_column("attempts", sa.Column("first_step", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("attempts", sa.Column("order_seconds", sa.Double(), nullable=False, server_default="0"))
    op.add_column("attempts", sa.Column("checkpoint_seconds", sa.Double(), nullable=True))
    op.add_column("attempts", sa.Column("ordered_at", _MOMENT, nullable=True))
    for name in ("last_step", "kept_step"):
        op.add_column("attempts", sa.Column(name, sa.BigInteger(), nullable=True))
    op.add_column("ledger", sa.Column("lost_steps", sa.BigInteger(), nullable=False, server_default="0"))
