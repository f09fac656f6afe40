"""The first tables, and the triggers that keep the journal, the audit log and the ledger append-only."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
_APPENDED = ("journal", "audit_log", "ledger")
_KEEPS = "is append-only"
_GOES_ON = "goes on after its last row"


def upgrade() -> None:
    """Create all tables and triggers."""
    _make_small_tables()
    _make_attempts()
    _make_lists()
    for name in _APPENDED:
        _append_only(name)
    turns = op.create_table("turns", *_texts("name", primary=True))
    op.bulk_insert(turns, [{"name": name} for name in (*_APPENDED, "leases")])


def _texts(*names: str, null: bool = False, primary: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=null, primary_key=primary) for name in names]


def _moments(*names: str, null: bool = False) -> list[sa.Column[object]]:
    return [sa.Column(name, _MOMENT, nullable=null) for name in names]


def _counts(*names: str, null: bool = False) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), nullable=null) for name in names]


def _seq() -> sa.Column[int]:
    return sa.Column("seq", _NUMBER, primary_key=True, autoincrement=False)


def _make_small_tables() -> None:
    op.create_table("facts", *_texts("name", primary=True), *_texts("value"))
    op.create_table("plans", *_texts("digest", primary=True), *_texts("text"), *_moments("at"))
    op.create_table("jobs", *_texts("digest", primary=True), *_texts("spec"), *_moments("at"))
    op.create_table(
        "shortages",
        sa.Column("number", _NUMBER, primary_key=True),
        *_texts("cloud", "region"),
        *_texts("zone", null=True),
        *_texts("instance_type", "market"),
        *_counts("machines"),
        *_moments("at", "until"),
        *_texts("why"),
    )
    op.create_table(
        "leases",
        *_texts("name", primary=True),
        *_texts("token", "host"),
        *_counts("pid"),
        *_texts("started", "boot"),
        *_moments("since", "renewed_at", "until"),
    )


def _make_attempts() -> None:
    op.create_table(
        "attempts",
        *_texts("id", primary=True),
        *_texts("plan", "job", "job_digest", "gang"),
        *_moments("start_at", "end_at"),
        *_counts("choice", "number"),
        *_texts("cloud", "region"),
        *_counts("machines"),
        *_texts("engine", "team"),
        *_texts("project", "cost_center", null=True),
        *_counts("usd_per_hour_nanos", "max_usd_per_hour_nanos", "at_risk_usd_nanos"),
        *_texts("directory", "token_hash"),
        *_moments("created_at"),
        *_texts("phase"),
        *_moments("made_at", "met_at", null=True),
        *_texts("result"),
        *_moments("result_at", "gone_at", null=True),
        *_texts("reason", "message"),
        *_counts("version"),
    )
    for column in ("plan", "job", "phase"):
        op.create_index(f"attempts_by_{column}", "attempts", [column])
    op.create_table(
        "nodes",
        sa.Column("attempt", sa.Text(), sa.ForeignKey("attempts.id"), primary_key=True),
        sa.Column("rank", sa.BigInteger(), primary_key=True, autoincrement=False),
        *_texts("name"),
        *_texts("zone", null=True),
        *_texts("instance_type", "market", "accelerator"),
        *_counts("accelerators", "usd_per_hour_nanos", "max_usd_per_hour_nanos"),
        *_texts("machine_id", "address", "private_address", null=True),
        *_moments("made_at", "gone_at", null=True),
        *_texts("agent", "incarnation", "agent_address"),
        *_counts("master_port", null=True),
        *_moments("heard_at", null=True),
        *_texts("ended_reason"),
        *_counts("exit_code", null=True),
        *_texts("ended_message"),
        *_counts("log_offset", "log_size"),
    )


def _make_lists() -> None:
    op.create_table("journal", _seq(), *_moments("at"), *_texts("attempt", "what", "details"))
    op.create_index("journal_by_attempt", "journal", ["attempt"])
    op.create_table(
        "audit_log",
        _seq(),
        *_moments("at"),
        *_texts("who", "what", "digest"),
        *_counts("usd_nanos"),
        *_texts("details", "previous", "hash"),
    )
    op.create_table(
        "ledger",
        _seq(),
        *_texts("key", "kind"),
        *_moments("recorded_at"),
        *_texts("plan", "job", "job_digest", "team"),
        *_texts("project", "cost_center", null=True),
        *_texts("gang", "attempt"),
        *_counts("rank", null=True),
        *_texts("cloud", "region"),
        *_texts("zone", null=True),
        *_texts("instance_type", "market", "accelerator"),
        *_counts("accelerators", "machines"),
        *_moments("start_at", "end_at"),
        *_texts("hours"),
        *_counts("usd_per_hour_nanos", "usd_nanos", "steps"),
        *_texts("price_as_of", "price_source"),
    )
    op.create_index("ledger_by_key", "ledger", ["key"], unique=True)
    for name, column in (("start", "start_at"), ("job", "job"), ("attempt", "attempt")):
        op.create_index(f"ledger_by_{name}", "ledger", [column])


def _append_only(table: str) -> None:
    """Create triggers that refuse to change or remove a row, and a seq that is not the next one."""
    statements = _for_sqlite(table) if op.get_bind().dialect.name == "sqlite" else _for_postgresql(table)
    for statement in statements:
        op.get_bind().exec_driver_sql(statement)


def _for_sqlite(table: str) -> list[str]:
    # The key too: INSERT OR REPLACE removes the row in its way without asking a trigger for deletions.
    taken = " OR EXISTS (SELECT 1 FROM ledger WHERE key = NEW.key)" if table == "ledger" else ""
    gap = f"NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM {table})"

    def refuse(why: str) -> str:
        return f"BEGIN SELECT RAISE(ABORT, '{table} {why}'); END"

    return [
        f"CREATE TRIGGER {table}_keeps_rows BEFORE UPDATE ON {table} {refuse(_KEEPS)}",
        f"CREATE TRIGGER {table}_loses_no_rows BEFORE DELETE ON {table} {refuse(_KEEPS)}",
        f"CREATE TRIGGER {table}_has_no_gaps BEFORE INSERT ON {table} WHEN {gap}{taken} {refuse(_GOES_ON)}",
    ]


def _for_postgresql(table: str) -> list[str]:
    def function(name: str, body: str) -> str:
        return f"CREATE FUNCTION {table}_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"

    def trigger(name: str, when: str, each: str, runs: str) -> str:
        return (
            f"CREATE TRIGGER {table}_{name} BEFORE {when} ON {table} FOR EACH {each} EXECUTE FUNCTION {table}_{runs}()"
        )

    def refuse(why: str) -> str:
        return f"RAISE EXCEPTION USING MESSAGE = '{table} {why}';"

    gap = f"NEW.seq IS DISTINCT FROM (SELECT coalesce(max(seq), 0) + 1 FROM {table})"
    return [
        function("refuse", refuse(_KEEPS)),
        function("next", f"IF {gap} THEN {refuse(_GOES_ON)} END IF; RETURN NEW;"),
        trigger("keeps_rows", "UPDATE OR DELETE", "ROW", "refuse"),
        trigger("keeps_all", "TRUNCATE", "STATEMENT", "refuse"),
        trigger("has_no_gaps", "INSERT", "ROW", "next"),
    ]
