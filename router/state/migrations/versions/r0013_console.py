"""The console: tokens, plans as they were made, quotes and long work asked for at a server, webhooks."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision: str | None = "0012"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")


def _text(name: str, *, null: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=null)


def _moment(name: str, *, null: bool = False) -> sa.Column[object]:
    return sa.Column(name, _MOMENT, nullable=null)


def _count(name: str, *, null: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=null)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "access_tokens",
        *(_text(name) for name in ("id", "kind", "digest", "subject", "note", "grants", "scopes", "parent", "made_by")),
        _moment("made_at"),
        _moment("expires_at"),
        _moment("revoked_at", null=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("access_tokens_by_digest", "access_tokens", ["digest"], unique=True)
    op.create_table(
        "made_plans",
        _text("digest"),
        _text("text"),
        _moment("as_of"),
        _moment("made_at"),
        _text("made_by"),
        _text("summary"),
        sa.PrimaryKeyConstraint("digest"),
    )
    op.create_index("made_plans_by_as_of", "made_plans", ["as_of"])
    op.create_table(
        "quotes",
        _text("id"),
        _text("job"),
        _text("team"),
        _moment("asked_at"),
        _text("text"),
        _text("acceptance", null=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("quotes_by_asked_at", "quotes", ["asked_at"])
    op.create_table(
        "tasks",
        *(_text(name) for name in ("id", "kind", "subject", "team", "request", "state", "events")),
        _text("result", null=True),
        _text("message"),
        _moment("asked_at"),
        _moment("ended_at", null=True),
        _text("worker"),
        _moment("alive_at", null=True),
        _count("tries"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("tasks_by_state", "tasks", ["state", "asked_at"])
    op.create_index("tasks_by_subject", "tasks", ["subject", "asked_at"])
    op.create_table(
        "idempotency_keys",
        _text("subject"),
        _text("key"),
        _text("request_digest"),
        _count("status", null=True),
        _text("answer", null=True),
        _moment("at"),
        sa.PrimaryKeyConstraint("subject", "key"),
    )
    op.create_table(
        "webhook_deliveries",
        *(_text(name) for name in ("id", "event", "hook", "payload", "state")),
        _count("tries"),
        _moment("at"),
        _moment("next_at"),
        _text("message"),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("webhook_deliveries_by_next_at", "webhook_deliveries", ["state", "next_at"])
