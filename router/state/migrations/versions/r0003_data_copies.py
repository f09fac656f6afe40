"""The table of copies of training data."""

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
    """Create the table."""
    op.create_table(
        "data_copies",
        *(sa.Column(name, sa.Text(), primary_key=True) for name in ("uri", "cloud", "region")),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("url", "team")),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("bytes", "files")),
        sa.Column("begun_at", _MOMENT, nullable=False),
        sa.Column("made_at", _MOMENT, nullable=True),
        sa.Column("until", _MOMENT, nullable=False),
    )
