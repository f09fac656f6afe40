"""The seal of a closed month, over the sources of its report beside its entries: bills, budgets, figures.

No row changes: months that are closed already have no seal.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision: str | None = "0008"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    """Add columns to the closings."""
    for name in ("seal", "seal_hash"):
        op.add_column("ledger_periods", sa.Column(name, sa.Text(), nullable=False, server_default=""))
