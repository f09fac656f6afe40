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
_TURNS = ("audit_log", "budgets", "journal", "leases", "ledger")


def upgrade() -> None:
    """Create all tables and triggers."""
    _create_small_tables()
    _create_attempts()
    _create_lists()
    _create_ledger()
    _create_console_tables()
    sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in _triggers_of_sqlite() if sqlite else _triggers_of_postgresql():
        op.get_bind().exec_driver_sql(statement)
    turns = op.create_table("turns", *_texts("name", primary=True))
    op.bulk_insert(turns, [{"name": name} for name in _TURNS])


def _texts(*names: str, null: bool = False, primary: bool = False) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=null, primary_key=primary) for name in names]


def _moments(*names: str, null: bool = False) -> list[sa.Column[object]]:
    return [sa.Column(name, _MOMENT, nullable=null) for name in names]


def _counts(*names: str, null: bool = False) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), nullable=null) for name in names]


def _reals(*names: str, null: bool = False) -> list[sa.Column[float]]:
    return [sa.Column(name, sa.Double(), nullable=null) for name in names]


def _seq() -> sa.Column[int]:
    return sa.Column("seq", _NUMBER, primary_key=True, autoincrement=False)


def _create_small_tables() -> None:
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
    op.create_table(
        "budgets",
        *_texts("scope", "name", "since", primary=True),
        *_counts("usd_nanos", null=True),
        *_counts("hard"),
        *_texts("warn", "who"),
        sa.Column("at", _MOMENT, primary_key=True),
    )


def _create_attempts() -> None:
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
        *_texts("reason", "message", "resumes"),
        *_counts("first_step"),
        *_texts("first_manifest"),
        *_reals("checkpoint_seconds", null=True),
        *_texts("order_id", "order_reason"),
        *_reals("order_seconds"),
        *_moments("ordered_at", null=True),
        *_counts("last_step", "kept_step", null=True),
        *_texts("policy", "quoted_policy"),
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
        *_counts("step", null=True),
        *_reals("step_seconds", null=True),
        *_counts("saved_step", null=True),
        *_texts("saved_manifest", null=True),
        *_moments("saved_at", null=True),
        *_texts("price_as_of", "price_source"),
        *_counts("on_demand_usd_per_hour_nanos", null=True),
        *_texts("reservation_cost"),
    )
    op.create_table(
        "notices",
        sa.Column("attempt", sa.Text(), sa.ForeignKey("attempts.id"), primary_key=True),
        sa.Column("rank", sa.BigInteger(), primary_key=True, autoincrement=False),
        *_texts("id", primary=True),
        *_texts("kind", "source"),
        *_reals("seconds", null=True),
        *_texts("what"),
        *_moments("heard_at"),
    )
    op.create_index("notices_by_heard_at", "notices", ["heard_at"])


def _create_lists() -> None:
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


def _create_ledger() -> None:
    op.create_table(
        "ledger",
        _seq(),
        *_texts("key", "kind", "what"),
        *_texts("use", null=True),
        *_moments("recorded_at"),
        *_texts("period", "corrects", "plan", "job", "job_digest", "team"),
        *_texts("project", "cost_center", null=True),
        *_texts("gang", "attempt"),
        *_counts("rank", null=True),
        *_texts("cloud", "region"),
        *_texts("zone", null=True),
        *_texts("instance_type"),
        *_texts("market", null=True),
        *_texts("accelerator"),
        *_counts("accelerators", "machines"),
        *_moments("start_at", "end_at"),
        *_texts("quantity", "unit"),
        *_counts("usd_per_hour_nanos", null=True),
        *_counts("usd_nanos", "unpriced", "steps", "lost_steps"),
        *_texts("price_as_of", "price_source", "who", "reason", "reference", "resource"),
        *_counts("on_demand_usd_per_hour_nanos", null=True),
        *_texts("closing", "previous", "hash"),
    )
    op.create_index("ledger_by_key", "ledger", ["key"], unique=True)
    for name, column in (("start", "start_at"), ("job", "job"), ("attempt", "attempt"), ("period", "period")):
        op.create_index(f"ledger_by_{name}", "ledger", [column])
    op.create_table("ledger_archived", _seq(), *_texts("key", "previous", "hash"))
    op.create_index("ledger_archived_by_key", "ledger_archived", ["key"], unique=True)
    op.create_table(
        "ledger_archives",
        _seq(),
        *_texts("before_month"),
        *_moments("at"),
        *_texts("who", "file", "sha256"),
        *_counts("entries"),
        *_texts("totals"),
    )
    op.create_table(
        "ledger_periods",
        _seq(),
        *_texts("period"),
        *_moments("closed_at"),
        *_texts("who"),
        *_counts("head"),
        *_texts("hash", "seal", "seal_hash"),
    )
    op.create_index("ledger_periods_by_period", "ledger_periods", ["period"], unique=True)


def _create_console_tables() -> None:
    op.create_table(
        "access_tokens",
        *_texts("id", primary=True),
        *_texts("kind", "digest", "subject", "note", "grants", "scopes", "parent", "made_by"),
        *_moments("made_at", "expires_at"),
        *_moments("revoked_at", null=True),
    )
    op.create_index("access_tokens_by_digest", "access_tokens", ["digest"], unique=True)
    op.create_table(
        "made_plans",
        *_texts("digest", primary=True),
        *_texts("text"),
        *_moments("as_of", "made_at"),
        *_texts("made_by"),
        *_texts("name", primary=True),
        *_texts("summary"),
    )
    op.create_index("made_plans_by_as_of", "made_plans", ["as_of"])
    op.create_table(
        "quotes",
        *_texts("id", primary=True),
        *_texts("job", "team"),
        *_moments("asked_at"),
        *_texts("asked_by", "text", "document"),
        *_texts("acceptance", null=True),
    )
    op.create_index("quotes_by_asked_at", "quotes", ["asked_at"])
    op.create_table(
        "tasks",
        *_texts("id", primary=True),
        *_texts("kind", "subject", "team", "request", "state", "events"),
        *_texts("result", null=True),
        *_texts("message"),
        *_moments("asked_at"),
        *_moments("ended_at", null=True),
        *_texts("worker"),
        *_moments("alive_at", null=True),
        *_counts("tries"),
    )
    op.create_index("tasks_by_state", "tasks", ["state", "asked_at"])
    op.create_index("tasks_by_subject", "tasks", ["subject", "asked_at"])
    op.create_table(
        "idempotency_keys",
        *_texts("subject", "key", primary=True),
        *_texts("request_digest"),
        *_counts("status", null=True),
        *_texts("answer", null=True),
        *_moments("at"),
    )
    op.create_table(
        "webhook_deliveries",
        *_texts("id", primary=True),
        *_texts("event", "hook", "payload", "state"),
        *_counts("tries"),
        *_moments("at", "next_at"),
        *_texts("message"),
    )
    op.create_index("webhook_deliveries_by_next_at", "webhook_deliveries", ["state", "next_at"])


# Rows are never changed or removed, and seq is always the next number; entries of the ledger may move to a file.
_KEEPS, _GOES_ON = "is append-only", "goes on after its last row"
_LISTS = ("journal", "audit_log", "ledger_archives", "ledger_periods")
# The next number of the ledger, beside what was archived; and whether a row of the new numbers may stand there.
_NEXT = """1 + (SELECT coalesce(max(seq), 0) FROM (
    SELECT max(seq) AS seq FROM ledger UNION ALL SELECT max(seq) FROM ledger_archived) AS both_of_them)"""
_STANDS = "EXISTS (SELECT 1 FROM ledger WHERE seq = {0}.seq AND key = {0}.key AND hash = {0}.hash)"
_ARCHIVED = "EXISTS (SELECT 1 FROM ledger_archived WHERE seq = OLD.seq AND key = OLD.key AND hash = OLD.hash)"
_TAKEN = (
    "EXISTS (SELECT 1 FROM ledger WHERE key = NEW.key) OR EXISTS (SELECT 1 FROM ledger_archived WHERE key = NEW.key)"
)


def _triggers_of_sqlite() -> list[str]:
    def trigger(table: str, name: str, when: str, only: str, why: str) -> str:
        condition = f"WHEN {only} " if only else ""
        return (
            f"CREATE TRIGGER {table}_{name} BEFORE {when} ON {table} {condition}"
            f"BEGIN SELECT RAISE(ABORT, '{table} {why}'); END"
        )

    # INSERT OR REPLACE removes the row in its way without asking a trigger for deletions.
    made = [
        trigger("ledger", "keeps_rows", "UPDATE", "", _KEEPS),
        trigger("ledger", "loses_no_rows", "DELETE", f"NOT {_ARCHIVED}", _KEEPS),
        trigger("ledger", "has_no_gaps", "INSERT", f"NEW.seq IS NOT {_NEXT} OR {_TAKEN}", _GOES_ON),
        trigger("ledger_archived", "keeps_rows", "UPDATE", "", _KEEPS),
        trigger("ledger_archived", "loses_no_rows", "DELETE", "", _KEEPS),
        trigger(
            "ledger_archived",
            "has_no_gaps",
            "INSERT",
            f"EXISTS (SELECT 1 FROM ledger_archived WHERE seq = NEW.seq OR key = NEW.key) OR NOT "
            f"({_STANDS.format('NEW')} OR (NEW.seq IS {_NEXT} AND NOT ({_TAKEN})))",
            _GOES_ON,
        ),
    ]
    for table in _LISTS:
        gap = f"NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM {table})"
        if table == "ledger_periods":
            gap += " OR EXISTS (SELECT 1 FROM ledger_periods WHERE period >= NEW.period)"
        made += [
            trigger(table, "keeps_rows", "UPDATE", "", _KEEPS),
            trigger(table, "loses_no_rows", "DELETE", "", _KEEPS),
            trigger(table, "has_no_gaps", "INSERT", gap, _GOES_ON),
        ]
    return made


def _triggers_of_postgresql() -> list[str]:
    def function(name: str, body: str) -> str:
        return f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"

    def trigger(table: str, name: str, when: str, granularity: str, runs: str) -> str:
        return (
            f"CREATE TRIGGER {table}_{name} BEFORE {when} ON {table} FOR EACH {granularity} EXECUTE FUNCTION {runs}()"
        )

    def refuse(table: str, why: str) -> str:
        return f"RAISE EXCEPTION USING MESSAGE = '{table} {why}';"

    def unless(table: str, condition: str, why: str, row: str) -> str:
        return f"IF NOT ({condition}) THEN {refuse(table, why)} END IF; RETURN {row};"

    next_one = f"NEW.seq IS NOT DISTINCT FROM {_NEXT}"
    made = [
        function("ledger_next", unless("ledger", f"{next_one} AND NOT ({_TAKEN})", _GOES_ON, "NEW")),
        function("ledger_removed", unless("ledger", _ARCHIVED, _KEEPS, "OLD")),
        trigger("ledger", "loses_no_rows", "DELETE", "ROW", "ledger_removed"),
    ]
    for table in ("ledger", "ledger_archived", *_LISTS):
        going_on = f"NEW.seq IS NOT DISTINCT FROM (SELECT coalesce(max(seq), 0) + 1 FROM {table})"
        if table == "ledger_archived":
            going_on = f"{_STANDS.format('NEW')} OR ({next_one} AND NOT ({_TAKEN}))"
        elif table == "ledger_periods":
            going_on += " AND NOT EXISTS (SELECT 1 FROM ledger_periods WHERE period >= NEW.period)"
        if table != "ledger":
            made.append(function(f"{table}_next", unless(table, going_on, _GOES_ON, "NEW")))
        changes = "UPDATE" if table == "ledger" else "UPDATE OR DELETE"
        made += [
            function(f"{table}_refuse", refuse(table, _KEEPS)),
            trigger(table, "keeps_rows", changes, "ROW", f"{table}_refuse"),
            trigger(table, "keeps_all", "TRUNCATE", "STATEMENT", f"{table}_refuse"),
            trigger(table, "has_no_gaps", "INSERT", "ROW", f"{table}_next"),
        ]
    return made
