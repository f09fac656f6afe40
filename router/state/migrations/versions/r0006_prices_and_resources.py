"""The cloud's name for the machine of a metered entry, and the source of its price.

No row changes: a column that is empty is in no hash.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision: str | None = "0005"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    """Add columns to the nodes and to the ledger."""
    for name in ("price_as_of", "price_source"):
        op.add_column("nodes", sa.Column(name, sa.Text(), nullable=False, server_default=""))
    op.add_column("ledger", sa.Column("resource", sa.Text(), nullable=False, server_default=""))
    for table in ("nodes", "ledger"):
        op.add_column(table, sa.Column("on_demand_usd_per_hour_nanos", sa.BigInteger(), nullable=True))
