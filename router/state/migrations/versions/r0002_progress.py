"""A machine has the time of its training's last progress."""

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
    """Add the column; of machines that are up nobody knows it."""
    op.add_column("nodes", sa.Column("progress_at", _MOMENT, nullable=True))
