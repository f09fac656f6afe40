"""The tables of the state database. :mod:`router.state.migrations` creates them; a test compares the two.

A column whose key and name differ stores another unit than the value's, or its name is a word of SQL.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, Table

from pricing.places import Market
from router.ledger.entry import CostItem, LedgerEntryKind, MachineUse
from router.state.columns import DETAILS, REAL, USD, USD_PER_HOUR, WHOLE, WORDS, UtcMoment, enum_column
from router.state.records import Phase

METADATA = MetaData()

# A key column of SQLite has to be INTEGER to be the row's own number; it holds 64 bits.
_NUMBER = BigInteger().with_variant(Integer(), "sqlite")


def _text(name: str, *, null: bool = False, primary: bool = False) -> Column[str]:
    return Column(name, WORDS, nullable=null, primary_key=primary)


def _moment(name: str, *, key: str | None = None, null: bool = False) -> Column[object]:
    return Column(name, UtcMoment, key=key or name, nullable=null)


def _usd(key: str) -> Column[object]:
    return Column(f"{key}_nanos", USD, key=key, nullable=False)


def _rate(key: str, *, null: bool = False) -> Column[object]:
    return Column(f"{key}_nanos", USD_PER_HOUR, key=key, nullable=null)


def _count(name: str, *, null: bool = False) -> Column[int]:
    return Column(name, WHOLE, nullable=null)


# Writers that append to a list or take a lease lock their row (FOR UPDATE); SQLite has one writer anyway.
TURNS = Table("turns", METADATA, _text("name", primary=True))

FACTS = Table("facts", METADATA, _text("name", primary=True), _text("value"))

PLANS = Table("plans", METADATA, _text("digest", primary=True), _text("text"), _moment("at"))

JOBS = Table("jobs", METADATA, _text("digest", primary=True), _text("spec"), _moment("at"))

ATTEMPTS = Table(
    "attempts",
    METADATA,
    _text("id", primary=True),
    _text("plan"),
    _text("job"),
    _text("job_digest"),
    _text("gang"),
    _moment("start_at", key="start"),
    _moment("end_at", key="end"),
    _count("choice"),
    _count("number"),
    _text("cloud"),
    _text("region"),
    _count("machines"),
    _text("engine"),
    _text("team"),
    _text("project", null=True),
    _text("cost_center", null=True),
    _rate("usd_per_hour"),
    _rate("max_usd_per_hour"),
    _usd("at_risk_usd"),
    _text("directory"),
    _text("token_hash"),
    _moment("created_at"),
    Column("phase", enum_column(Phase), nullable=False),
    _moment("made_at", null=True),
    _moment("met_at", null=True),
    _text("result"),
    _moment("result_at", null=True),
    _moment("gone_at", null=True),
    _text("reason"),
    _text("message"),
    _text("resumes"),
    _count("first_step"),
    _text("first_manifest"),
    Column("checkpoint_seconds", REAL, nullable=True),
    _text("order_id"),
    _text("order_reason"),
    Column("order_seconds", REAL, nullable=False),
    _moment("ordered_at", null=True),
    _count("last_step", null=True),
    _count("kept_step", null=True),
    _text("policy"),
    _text("quoted_policy"),
    _count("version"),
    Index("attempts_by_plan", "plan"),
    Index("attempts_by_job", "job"),
    Index("attempts_by_phase", "phase"),
)

NODES = Table(
    "nodes",
    METADATA,
    Column("attempt", WORDS, ForeignKey("attempts.id"), primary_key=True),
    Column("rank", WHOLE, primary_key=True, autoincrement=False),
    _text("name"),
    _text("zone", null=True),
    _text("instance_type"),
    Column("market", enum_column(Market), nullable=False),
    _text("accelerator"),
    _count("accelerators"),
    _rate("usd_per_hour"),
    _rate("max_usd_per_hour"),
    _text("machine_id", null=True),
    _text("address", null=True),
    _text("private_address", null=True),
    _moment("made_at", null=True),
    _moment("gone_at", null=True),
    _text("agent"),
    _text("incarnation"),
    _text("agent_address"),
    _count("master_port", null=True),
    _moment("heard_at", null=True),
    _text("ended_reason"),
    _count("exit_code", null=True),
    _text("ended_message"),
    _count("log_offset"),
    _count("log_size"),
    _count("step", null=True),
    Column("step_seconds", REAL, nullable=True),
    _count("saved_step", null=True),
    _text("saved_manifest", null=True),
    _moment("saved_at", null=True),
    _text("price_as_of"),
    _text("price_source"),
    _rate("on_demand_usd_per_hour", null=True),
    _text("reservation_cost"),
)

NOTICES = Table(
    "notices",
    METADATA,
    Column("attempt", WORDS, ForeignKey("attempts.id"), primary_key=True),
    Column("rank", WHOLE, primary_key=True, autoincrement=False),
    _text("id", primary=True),
    _text("kind"),
    _text("source"),
    Column("seconds", REAL, nullable=True),
    _text("what"),
    _moment("heard_at"),
    Index("notices_by_heard_at", "heard_at"),
)

SHORTAGES = Table(
    "shortages",
    METADATA,
    Column("number", _NUMBER, primary_key=True),
    _text("cloud"),
    _text("region"),
    _text("zone", null=True),
    _text("instance_type"),
    Column("market", enum_column(Market), nullable=False),
    _count("machines"),
    _moment("at"),
    _moment("until"),
    _text("why"),
)

LEASES = Table(
    "leases",
    METADATA,
    _text("name", primary=True),
    _text("token"),
    _text("host"),
    _count("pid"),
    _text("started"),
    _text("boot"),
    _moment("since"),
    _moment("renewed_at"),
    _moment("until"),
)

# These tables are only ever appended to: seq is 1, 2, 3 ..., and triggers refuse everything else.
JOURNAL = Table(
    "journal",
    METADATA,
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    _moment("at"),
    _text("attempt"),
    _text("what"),
    Column("details", DETAILS, nullable=False),
    Index("journal_by_attempt", "attempt"),
)

AUDIT_LOG = Table(
    "audit_log",
    METADATA,
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    _moment("at"),
    _text("who"),
    _text("what"),
    _text("digest"),
    _usd("usd"),
    Column("details", DETAILS, nullable=False),
    _text("previous"),
    _text("hash"),
)

LEDGER = Table(
    "ledger",
    METADATA,
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    _text("key"),
    Column("kind", enum_column(LedgerEntryKind), nullable=False),
    Column("what", enum_column(CostItem), nullable=False),
    Column("use", enum_column(MachineUse), nullable=True),
    _moment("recorded_at"),
    _text("period"),
    _text("corrects"),
    _text("plan"),
    _text("job"),
    _text("job_digest"),
    _text("team"),
    _text("project", null=True),
    _text("cost_center", null=True),
    _text("gang"),
    _text("attempt"),
    _count("rank", null=True),
    _text("cloud"),
    _text("region"),
    _text("zone", null=True),
    _text("instance_type"),
    Column("market", enum_column(Market), nullable=True),
    _text("accelerator"),
    _count("accelerators"),
    _count("machines"),
    _moment("start_at"),
    _moment("end_at"),
    _text("quantity"),
    _text("unit"),
    _count("usd_per_hour_nanos", null=True),
    _count("usd_nanos"),
    _count("unpriced"),
    _count("steps"),
    _count("lost_steps"),
    _text("price_as_of"),
    _text("price_source"),
    _text("who"),
    _text("reason"),
    _text("reference"),
    _text("previous"),
    _text("hash"),
    _text("resource"),
    _count("on_demand_usd_per_hour_nanos", null=True),
    _text("closing"),
    Index("ledger_by_key", "key", unique=True),
    Index("ledger_by_start", "start_at"),
    Index("ledger_by_job", "job"),
    Index("ledger_by_attempt", "attempt"),
    Index("ledger_by_period", "period"),
)

# The remains of entries that were moved to a file: enough to check the chain, and to know each key once.
LEDGER_ARCHIVED = Table(
    "ledger_archived",
    METADATA,
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    _text("key"),
    _text("previous"),
    _text("hash"),
    Index("ledger_archived_by_key", "key", unique=True),
)

LEDGER_ARCHIVES = Table(
    "ledger_archives",
    METADATA,
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    _text("before_month"),
    _moment("at"),
    _text("who"),
    _text("file"),
    _text("sha256"),
    _count("entries"),
    Column("totals", DETAILS, nullable=False),
)

LEDGER_PERIODS = Table(
    "ledger_periods",
    METADATA,
    Column("seq", _NUMBER, primary_key=True, autoincrement=False),
    _text("period"),
    _moment("closed_at"),
    _text("who"),
    _count("head"),
    _text("hash"),
    _text("seal"),
    _text("seal_hash"),
    Index("ledger_periods_by_period", "period", unique=True),
)

# Each row holds from its month on; a row without an amount ends the budget.
BUDGETS = Table(
    "budgets",
    METADATA,
    _text("scope", primary=True),
    _text("name", primary=True),
    _text("since", primary=True),
    _count("usd_nanos", null=True),
    _count("hard"),
    Column("warn", DETAILS, nullable=False),
    _text("who"),
    Column("at", UtcMoment, primary_key=True),
)

# What the console keeps: hashes of tokens and sessions, never tokens themselves.
ACCESS_TOKENS = Table(
    "access_tokens",
    METADATA,
    _text("id", primary=True),
    _text("kind"),
    _text("digest"),
    _text("subject"),
    _text("note"),
    Column("grants", DETAILS, nullable=False),
    Column("scopes", DETAILS, nullable=False),
    # The token that a session was signed in with; "" where there was none.
    _text("parent"),
    _text("made_by"),
    _moment("made_at"),
    _moment("expires_at"),
    _moment("revoked_at", null=True),
    Index("access_tokens_by_digest", "digest", unique=True),
)

# Plans as they were written, accepted or not: the next night is compared with the one before.
MADE_PLANS = Table(
    "made_plans",
    METADATA,
    _text("digest", primary=True),
    _text("text"),
    _moment("as_of"),
    _moment("made_at"),
    _text("made_by"),
    _text("name", primary=True),
    _text("summary"),
    Index("made_plans_by_as_of", "as_of"),
)

# Quotes with the jobs that they are for, as written; those of the command line lie in files, too.
QUOTES = Table(
    "quotes",
    METADATA,
    _text("id", primary=True),
    _text("job"),
    _text("team"),
    _moment("asked_at"),
    _text("asked_by"),
    _text("text"),
    _text("document"),
    _text("acceptance", null=True),
    Index("quotes_by_asked_at", "asked_at"),
)

# Long work that was asked for at a server, each taken by one worker.
TASKS = Table(
    "tasks",
    METADATA,
    _text("id", primary=True),
    _text("kind"),
    _text("subject"),
    _text("team"),
    _text("request"),
    _text("state"),
    Column("events", DETAILS, nullable=False),
    _text("result", null=True),
    _text("message"),
    _moment("asked_at"),
    _moment("ended_at", null=True),
    _text("worker"),
    _moment("alive_at", null=True),
    _count("tries"),
    Index("tasks_by_state", "state", "asked_at"),
    Index("tasks_by_subject", "subject", "asked_at"),
)

# The first answer to a request with a key, given again when the request is repeated.
IDEMPOTENCY_KEYS = Table(
    "idempotency_keys",
    METADATA,
    _text("subject", primary=True),
    _text("key", primary=True),
    _text("request_digest"),
    _count("status", null=True),
    _text("answer", null=True),
    _moment("at"),
)

WEBHOOK_DELIVERIES = Table(
    "webhook_deliveries",
    METADATA,
    _text("id", primary=True),
    _text("event"),
    _text("hook"),
    _text("payload"),
    _text("state"),
    _count("tries"),
    _moment("at"),
    _moment("next_at"),
    _text("message"),
    Index("webhook_deliveries_by_next_at", "state", "next_at"),
)
