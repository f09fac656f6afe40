"""Budgets of a month: whose, how much, from when, and whether they are hard."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision: str | None = "0006"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    """Create the table, and a turn for those who write it."""
    op.create_table(
        "budgets",
        sa.Column("scope", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("since", sa.Text(), primary_key=True),
        sa.Column("usd_nanos", sa.BigInteger(), nullable=True),
        sa.Column("hard", sa.BigInteger(), nullable=False),
        sa.Column("warn", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
    )
    # Whoever sets one has its turn (router/state/database.py).
    op.bulk_insert(sa.table("turns", sa.column("name", sa.Text())), [{"name": "budgets"}])
