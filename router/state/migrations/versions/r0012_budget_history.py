"""Budgets retain earlier settings: a later setting of the same month stands beside the earlier one."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision: str | None = "0011"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
_COLUMNS = "scope, name, since, usd_nanos, hard, warn, who, at"


def upgrade() -> None:
    """Add the moment to the key of budgets."""
    op.rename_table("budgets", "budgets_before")
    op.create_table(
        "budgets",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("since", sa.Text(), nullable=False),
        sa.Column("usd_nanos", sa.BigInteger(), nullable=True),
        sa.Column("hard", sa.BigInteger(), nullable=False),
        sa.Column("warn", sa.Text(), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("at", _MOMENT, nullable=False),
        # PostgreSQL: the old table has the name that the key would get by itself until it is gone.
        sa.PrimaryKeyConstraint("scope", "name", "since", "at", name="budgets_of_a_moment"),
    )
    op.execute(f"INSERT INTO budgets ({_COLUMNS}) SELECT {_COLUMNS} FROM budgets_before")
    op.drop_table("budgets_before")
