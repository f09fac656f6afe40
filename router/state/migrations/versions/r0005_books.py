"""The ledger as books: the use of each entry, its month, a chain of hashes, closed months, archives.

The rows that exist are written again with their hashes; their content stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision: str | None = "0004"
branch_labels: Sequence[str] | None = None
depends_on: Sequence[str] | None = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.DateTime(timezone=True).with_variant(sa.Text(), "sqlite")
_AT_ONCE = 1000
_TEXT, _NULLABLE, _COUNT, _COUNT_OR_NOT, _TIME = "text", "text or not", "count", "count or not", "moment"
_COLUMNS = {
    "key": _TEXT, "kind": _TEXT, "what": _TEXT, "use": _NULLABLE, "recorded_at": _TIME, "period": _TEXT,
    "corrects": _TEXT, "plan": _TEXT, "job": _TEXT, "job_digest": _TEXT, "team": _TEXT, "project": _NULLABLE,
    "cost_center": _NULLABLE, "gang": _TEXT, "attempt": _TEXT, "rank": _COUNT_OR_NOT, "cloud": _TEXT, "region": _TEXT,
    "zone": _NULLABLE, "instance_type": _TEXT, "market": _NULLABLE, "accelerator": _TEXT, "accelerators": _COUNT,
    "machines": _COUNT, "start_at": _TIME, "end_at": _TIME, "quantity": _TEXT, "unit": _TEXT,
    "usd_per_hour_nanos": _COUNT_OR_NOT, "usd_nanos": _COUNT, "unpriced": _COUNT, "steps": _COUNT,
    "lost_steps": _COUNT, "price_as_of": _TEXT, "price_source": _TEXT, "who": _TEXT, "reason": _TEXT,
    "reference": _TEXT,
}  # fmt: skip
_TYPES: dict[str, sa.types.TypeEngine[Any]] = {
    _TEXT: sa.Text(),
    _NULLABLE: sa.Text(),
    _COUNT: sa.BigInteger(),
    _COUNT_OR_NOT: sa.BigInteger(),
    _TIME: _MOMENT,
}
# What the rows that are there do not say.
_NEW: dict[str, Any] = {
    "what": "machine", "use": None, "corrects": "", "unit": "Hours", "unpriced": 0, "who": "", "reason": "",
    "reference": "",
}  # fmt: skip
_KEEPS, _GOES_ON = "is append-only", "goes on after its last row"


def upgrade() -> None:
    """Create the tables, and write the rows of the ledger again."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    _make_ledger("ledger_new")
    _copy(sqlite=sqlite)
    op.drop_table("ledger")
    op.rename_table("ledger_new", "ledger")
    op.create_index("ledger_by_key", "ledger", ["key"], unique=True)
    for name, column in (("start", "start_at"), ("job", "job"), ("attempt", "attempt"), ("period", "period")):
        op.create_index(f"ledger_by_{name}", "ledger", [column])
    _make_others()
    for statement in _triggers_of_sqlite() if sqlite else _triggers_of_postgresql():
        op.get_bind().exec_driver_sql(statement)


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text(), nullable=False) for name in names]


def _seq() -> sa.Column[int]:
    return sa.Column("seq", _NUMBER, primary_key=True, autoincrement=False)


def _make_ledger(name: str) -> None:
    columns = [
        sa.Column(column, _TYPES[kind], nullable=kind in (_NULLABLE, _COUNT_OR_NOT))
        for column, kind in _COLUMNS.items()
    ]
    op.create_table(name, _seq(), *columns, *_texts("previous", "hash"))


def _make_others() -> None:
    op.create_table("ledger_archived", _seq(), *_texts("key", "previous", "hash"))
    op.create_index("ledger_archived_by_key", "ledger_archived", ["key"], unique=True)
    op.create_table(
        "ledger_archives",
        _seq(),
        *_texts("before_month"),
        sa.Column("at", _MOMENT, nullable=False),
        *_texts("who", "file", "sha256"),
        sa.Column("entries", sa.BigInteger(), nullable=False),
        *_texts("totals"),
    )
    op.create_table(
        "ledger_periods",
        _seq(),
        *_texts("period"),
        sa.Column("closed_at", _MOMENT, nullable=False),
        *_texts("who"),
        sa.Column("head", sa.BigInteger(), nullable=False),
        *_texts("hash"),
    )
    op.create_index("ledger_periods_by_period", "ledger_periods", ["period"], unique=True)


def _copy(*, sqlite: bool) -> None:
    old = [name for name in _COLUMNS if name not in _NEW and name not in ("period", "quantity")]
    form = "{0}" if sqlite else "to_char({0} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
    said = [form.format(name) if _COLUMNS[name] == _TIME else name for name in old]
    read = f"SELECT seq, hours, {', '.join(said)} FROM ledger WHERE seq > {{}} ORDER BY seq LIMIT {_AT_ONCE}"
    mark = "?" if sqlite else "%s"
    names = ["seq", *_COLUMNS, "previous", "hash"]
    write = f"INSERT INTO ledger_new ({', '.join(names)}) VALUES ({', '.join([mark] * len(names))})"
    seq, previous = 0, "0" * 64
    while found := op.get_bind().exec_driver_sql(read.format(seq)).fetchall():
        rows = []
        for number, hours, *values in found:
            row = {**dict(zip(old, values, strict=True)), **_NEW, "quantity": hours}
            row["period"] = row["start_at"][:7]
            this = _hash(number, {name: row[name] for name in sorted(_COLUMNS) if row[name]}, previous)
            rows.append((number, *(row[name] for name in _COLUMNS), previous, this))
            seq, previous = number, this
        op.get_bind().exec_driver_sql(write, rows)


def _hash(seq: int, said: dict[str, Any], previous: str) -> str:
    text = json.dumps([seq, previous, said], ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


# The next number of the ledger, beside what was archived; and whether a row of the new numbers may stand there.
_NEXT = """1 + (SELECT coalesce(max(seq), 0) FROM (
    SELECT max(seq) AS seq FROM ledger UNION ALL SELECT max(seq) FROM ledger_archived) AS both_of_them)"""
_STANDS = "EXISTS (SELECT 1 FROM ledger WHERE seq = {0}.seq AND key = {0}.key AND hash = {0}.hash)"
_ARCHIVED = "EXISTS (SELECT 1 FROM ledger_archived WHERE seq = OLD.seq AND key = OLD.key AND hash = OLD.hash)"
_TAKEN = (
    "EXISTS (SELECT 1 FROM ledger WHERE key = NEW.key) OR EXISTS (SELECT 1 FROM ledger_archived WHERE key = NEW.key)"
)
_LISTS = ("ledger_archives", "ledger_periods")


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
        return f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$"

    def trigger(table: str, name: str, when: str, each: str, runs: str) -> str:
        return f"CREATE TRIGGER {table}_{name} BEFORE {when} ON {table} FOR EACH {each} EXECUTE FUNCTION {runs}()"

    def refuse(table: str, why: str) -> str:
        return f"RAISE EXCEPTION USING MESSAGE = '{table} {why}';"

    def unless(table: str, condition: str, why: str, row: str) -> str:
        return f"IF NOT ({condition}) THEN {refuse(table, why)} END IF; RETURN {row};"

    next_one = f"NEW.seq IS NOT DISTINCT FROM {_NEXT}"
    stands_or_next = f"{_STANDS.format('NEW')} OR ({next_one} AND NOT ({_TAKEN}))"
    made = [
        function("ledger_next", unless("ledger", f"{next_one} AND NOT ({_TAKEN})", _GOES_ON, "NEW")),
        function("ledger_removed", unless("ledger", _ARCHIVED, _KEEPS, "OLD")),
        trigger("ledger", "keeps_rows", "UPDATE", "ROW", "ledger_refuse"),
        trigger("ledger", "loses_no_rows", "DELETE", "ROW", "ledger_removed"),
        trigger("ledger", "keeps_all", "TRUNCATE", "STATEMENT", "ledger_refuse"),
        trigger("ledger", "has_no_gaps", "INSERT", "ROW", "ledger_next"),
        function("ledger_archived_next", unless("ledger_archived", stands_or_next, _GOES_ON, "NEW")),
    ]
    for table in ("ledger_archived", *_LISTS):
        gap = f"NEW.seq IS NOT DISTINCT FROM (SELECT coalesce(max(seq), 0) + 1 FROM {table})"
        if table == "ledger_periods":
            gap += " AND NOT EXISTS (SELECT 1 FROM ledger_periods WHERE period >= NEW.period)"
        if table in _LISTS:
            made.append(function(f"{table}_next", unless(table, gap, _GOES_ON, "NEW")))
        made += [
            function(f"{table}_refuse", refuse(table, _KEEPS)),
            trigger(table, "keeps_rows", "UPDATE OR DELETE", "ROW", f"{table}_refuse"),
            trigger(table, "keeps_all", "TRUNCATE", "STATEMENT", f"{table}_refuse"),
            trigger(table, "has_no_gaps", "INSERT", "ROW", f"{table}_next"),
        ]
    return made
