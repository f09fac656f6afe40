"""The notices to machines."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def upgrade() -> None:
    """Create the table of notices."""
    op.create_table(
        "notices",
        sa.Column("attempt", sa.Text(), sa.ForeignKey("attempts.id"), primary_key=True),
        sa.Column("rank", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("what", sa.Text(), nullable=False),
        sa.Column("heard_at", _MOMENT, nullable=False),
    )
    op.create_index("notices_by_heard_at", "notices", ["heard_at"])
