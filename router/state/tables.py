"""The tables of the state database. :mod:`router.state.migrations` creates them; a test compares the two.

A table whose rows are values of one record has a column for each of its fields. Tables of one part of the state stand
in the module of that part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import datetime
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, get_args, get_type_hints

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, MetaData, Table
from sqlalchemy.types import TypeEngine

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.ledger.entry import CostItem, LedgerEntryKind, MachineUse
from router.ledger.month import Month
from router.state.columns import DETAILS, MONTH, REAL, USD, USD_PER_HOUR, WHOLE, WORDS, UtcMoment, enum_column
from router.state.records import Attempt, AuditEntry, JournalEntry, NodeRecord, NoticeRecord, Shortage

METADATA = MetaData()

# A key column of SQLite has to be INTEGER to be the row's own number; it holds 64 bits.
_NUMBER = BigInteger().with_variant(Integer(), "sqlite")
_TYPES: Mapping[Any, TypeEngine[Any] | type[TypeEngine[Any]]] = {
    str: WORDS,
    int: WHOLE,
    float: REAL,
    datetime: UtcMoment,
    Month: MONTH,
    Usd: USD,
    UsdPerHour: USD_PER_HOUR,
    dict[str, object]: DETAILS,
}


def record_table(
    name: str,
    kind: type[Any],
    *more: Column[Any] | Index,
    key: Collection[str] = (),
    names: Mapping[str, str] | None = None,
) -> Table:
    """Return a table with a column of the right type for each field of a record.

    A field that may be None may be null. ``more`` are indexes and columns: such that stand for a field, and such that
    are no field, which come first. ``key``: the fields of the primary key. ``names``: names of columns by field, where
    the field's own is a word of SQL.
    """
    given = {item.key: item for item in more if isinstance(item, Column)}
    hints = get_type_hints(kind)
    columns = [
        given.pop(each.name) if each.name in given else _field_column(each.name, hints[each.name], key, names or {})
        for each in fields(kind)
    ]
    return Table(name, METADATA, *given.values(), *columns, *(item for item in more if isinstance(item, Index)))


def _field_column(field: str, hint: Any, key: Collection[str], names: Mapping[str, str]) -> Column[Any]:
    kind = next(each for each in get_args(hint) if each is not NoneType) if isinstance(hint, UnionType) else hint
    is_enum = isinstance(kind, type) and issubclass(kind, StrEnum)
    column_type = enum_column(kind) if is_enum else _TYPES[kind]
    name = names.get(field, f"{field}_nanos" if kind in (Usd, UsdPerHour) else field)
    return Column(name, column_type, key=field, nullable=kind is not hint, primary_key=field in key)


def texts(*names: str, null: bool = False, primary: bool = False) -> list[Column[Any]]:
    """Return columns of text."""
    return [Column(name, WORDS, nullable=null, primary_key=primary) for name in names]


def moments(*names: str, null: bool = False) -> list[Column[Any]]:
    """Return columns of moments."""
    return [Column(name, UtcMoment, nullable=null) for name in names]


def counts(*names: str, null: bool = False) -> list[Column[Any]]:
    """Return columns of whole numbers."""
    return [Column(name, WHOLE, nullable=null) for name in names]


def row_number(name: str = "seq") -> Column[int]:
    """Return the key column of a list: 1, 2, 3 ..."""
    return Column(name, _NUMBER, primary_key=True, autoincrement=False)


# Writers that append to a list or take a lease lock their row (FOR UPDATE); SQLite has one writer anyway.
TURNS = Table("turns", METADATA, *texts("name", primary=True))

FACTS = Table("facts", METADATA, *texts("name", primary=True), *texts("value"))

PLANS = Table("plans", METADATA, *texts("digest", primary=True), *texts("text"), *moments("at"))

JOBS = Table("jobs", METADATA, *texts("digest", primary=True), *texts("spec"), *moments("at"))

ATTEMPTS = record_table(
    "attempts",
    Attempt,
    Index("attempts_by_plan", "plan"),
    Index("attempts_by_job", "job"),
    Index("attempts_by_phase", "phase"),
    key=("id",),
    names={"start": "start_at", "end": "end_at"},
)


def _attempt_and_rank() -> tuple[Column[Any], Column[Any]]:
    return (
        Column("attempt", WORDS, ForeignKey("attempts.id"), primary_key=True),
        Column("rank", WHOLE, primary_key=True, autoincrement=False),
    )


NODES = record_table("nodes", NodeRecord, *_attempt_and_rank())

NOTICES = record_table(
    "notices", NoticeRecord, *_attempt_and_rank(), Index("notices_by_heard_at", "heard_at"), key=("id",)
)

SHORTAGES = record_table("shortages", Shortage, Column("number", _NUMBER, primary_key=True))

LEASES = Table(
    "leases",
    METADATA,
    *texts("name", primary=True),
    *texts("token", "host"),
    *counts("pid"),
    *texts("started", "boot"),
    *moments("since", "renewed_at", "until"),
)

# These tables are only ever appended to: seq is 1, 2, 3 ..., and triggers refuse everything else.
JOURNAL = record_table("journal", JournalEntry, row_number(), Index("journal_by_attempt", "attempt"))

AUDIT_LOG = record_table("audit_log", AuditEntry, row_number())

LEDGER = Table(
    "ledger",
    METADATA,
    row_number(),
    *texts("key"),
    Column("kind", enum_column(LedgerEntryKind), nullable=False),
    Column("what", enum_column(CostItem), nullable=False),
    Column("use", enum_column(MachineUse), nullable=True),
    *moments("recorded_at"),
    *texts("period", "corrects", "plan", "job", "job_digest", "team"),
    *texts("project", "cost_center", null=True),
    *texts("gang", "attempt"),
    *counts("rank", null=True),
    *texts("cloud", "region"),
    *texts("zone", null=True),
    *texts("instance_type"),
    Column("market", enum_column(Market), nullable=True),
    *texts("accelerator"),
    *counts("accelerators", "machines"),
    *moments("start_at", "end_at"),
    *texts("quantity", "unit"),
    *counts("usd_per_hour_nanos", null=True),
    *counts("usd_nanos", "unpriced", "steps", "lost_steps"),
    *texts("price_as_of", "price_source", "who", "reason", "reference", "previous", "hash", "resource"),
    *counts("on_demand_usd_per_hour_nanos", null=True),
    *texts("closing"),
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
    row_number(),
    *texts("key", "previous", "hash"),
    Index("ledger_archived_by_key", "key", unique=True),
)

LEDGER_ARCHIVES = Table(
    "ledger_archives",
    METADATA,
    row_number(),
    *texts("before_month"),
    *moments("at"),
    *texts("who", "file", "sha256"),
    *counts("entries"),
    Column("totals", DETAILS, nullable=False),
)

# Each row holds from its month on; a row without an amount ends the budget.
BUDGETS = Table(
    "budgets",
    METADATA,
    *texts("scope", "name", "since", primary=True),
    *counts("usd_nanos", null=True),
    *counts("hard"),
    Column("warn", DETAILS, nullable=False),
    *texts("who"),
    Column("at", UtcMoment, primary_key=True),
)
