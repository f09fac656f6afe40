"""The knowledge of a reserved machine's price: amortised, sunk or unknown.

Earlier rows say nothing. Their reserved machines were recorded at 0, which nobody knew, and are metered unpriced.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision: str | None = "0009"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    """Add a column to the nodes."""
    op.add_column("nodes", sa.Column("reservation_cost", sa.Text(), nullable=False, server_default=""))
