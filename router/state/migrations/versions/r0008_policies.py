"""The policy that runs an attempt, and the one of its quote if another one was to run.

No row changes: earlier attempts name none.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision: str | None = "0007"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None


def upgrade() -> None:
    """Add columns to the attempts."""
    for name in ("policy", "quoted_policy"):
        op.add_column("attempts", sa.Column(name, sa.Text(), nullable=False, server_default=""))
