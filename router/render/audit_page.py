"""Show entries of the audit log in words, and write them as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pricing.money import Usd
from router.ledger.budget import BUDGET_REMOVE, BUDGET_SET
from router.render.record_table import RecordTable, TableColumn, attribute_columns
from router.render.tables import format_usd
from router.state.records import AuditEntry


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry in words: the approver's name and remark, and the policies that were accepted.

    ``has_plan`` says that the plan of its digest is stored, and can be shown.
    """

    entry: AuditEntry
    policies: str
    has_plan: bool = False

    @property
    def by(self) -> str:
        """Return the name of an approver or of who revoked; "" for other actions."""
        return str(self.entry.details.get("by", ""))

    @property
    def note(self) -> str:
        """Return the remark; "" without one."""
        return str(self.entry.details.get("note", ""))

    @property
    def budget(self) -> str:
        """Return whose budget the entry set or removed, how much it is and from when; "" for other actions."""
        return describe_budget(self.entry)

    @property
    def at_risk(self) -> Usd | None:
        """Return the most that could be spent by it; None of a budget."""
        return at_risk(self.entry)

    @property
    def words(self) -> str:
        """Return what the entry says beside who, what and when."""
        by = f"as {self.by}" if self.by else ""
        policies = f"policies {self.policies}" if self.policies else ""
        return "; ".join(filter(None, (self.budget, by, policies, self.note)))


def describe_budget(entry: AuditEntry) -> str:
    """Return whose budget an entry set or removed, how much it is and from when; "" for other actions."""
    if entry.what not in (BUDGET_SET, BUDGET_REMOVE):
        return ""
    details = entry.details
    hard = ", hard" if details.get("hard") else ""
    amount = f"{format_usd(entry.usd)} a month{hard}, " if entry.what == BUDGET_SET else ""
    return f"{details.get('budget', '')}: {amount}from {details.get('since', '')} on"


def at_risk(entry: AuditEntry) -> Usd | None:
    """Return the most that could be spent by what an entry records; None of a budget, by which nothing is spent."""
    return None if entry.what in (BUDGET_SET, BUDGET_REMOVE) else entry.usd


_ENTRIES: RecordTable[AuditRow] = RecordTable(
    (
        *attribute_columns("seq", "at", "who", "what", of="entry"),
        TableColumn("plan", lambda row: row.entry.digest or None),
        TableColumn("at_risk_usd", lambda row: row.at_risk),
        TableColumn("by", lambda row: row.by or None),
        TableColumn("note", lambda row: row.note or None),
        TableColumn("policies", lambda row: row.policies or None),
        TableColumn("hash", lambda row: row.entry.hash),
        TableColumn("budget", lambda row: row.budget or None),
    )
)


def audit_csv(rows: Sequence[AuditRow]) -> str:
    """Return the entries as CSV."""
    return _ENTRIES.csv(rows, unknown="none")
