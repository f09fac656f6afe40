"""Made plans have names; a plan may stand under several. Earlier ones are of the night, or of a quote."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision: str | None = "0013"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
_COLUMNS = "digest, text, as_of, made_at, made_by, summary"


def upgrade() -> None:
    """Add the name to the key of made plans, in place of the quote."""
    op.drop_index("made_plans_by_as_of", "made_plans")
    op.rename_table("made_plans", "made_plans_before")
    op.create_table(
        "made_plans",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("as_of", _MOMENT, nullable=False),
        sa.Column("made_at", _MOMENT, nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        # PostgreSQL: the old table has the name that the key would get by itself until it is gone.
        sa.PrimaryKeyConstraint("digest", "name", name="made_plans_of_a_name"),
    )
    op.create_index("made_plans_by_as_of", "made_plans", ["as_of"])
    name = "CASE WHEN quote = '' THEN 'night' ELSE 'quote' END"
    op.execute(f"INSERT INTO made_plans ({_COLUMNS}, name) SELECT {_COLUMNS}, {name} FROM made_plans_before")
    op.drop_table("made_plans_before")
    # What is last follows from the plans themselves.
    op.execute("DELETE FROM facts WHERE name = 'last plan'")
