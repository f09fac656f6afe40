"""Show entries of the audit log in words, as a table and as CSV."""

from __future__ import annotations

from dataclasses import dataclass

from pricing.money import Usd
from router.ledger.budget import BUDGET_REMOVE, BUDGET_SET
from router.render.record_table import RecordTable, TableColumn
from router.render.tables import format_timestamp, format_usd
from router.state.records import AuditEntry


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry in words: the approver's name and remark, and the policies that were accepted."""

    entry: AuditEntry

    @property
    def by(self) -> str:
        """Return the name of an approver or of who revoked; "" for other actions."""
        return str(self.entry.details.get("by", ""))

    @property
    def note(self) -> str:
        """Return the remark; "" without one."""
        return str(self.entry.details.get("note", ""))

    @property
    def policies(self) -> str:
        """Return the names of the accepted policies, followed in brackets by the quoted policies they replaced."""
        overridden = self._policy_names("overridden_policies")
        return self._policy_names("policies") + (f" (quoted: {overridden})" if overridden else "")

    def _policy_names(self, key: str) -> str:
        policies = self.entry.details.get(key)
        return ", ".join(sorted({str(p["name"]) for p in policies.values()})) if isinstance(policies, dict) else ""

    @property
    def budget(self) -> str:
        """Return whose budget the entry set or removed, how much it is and from when; "" for other actions."""
        if self.entry.what not in (BUDGET_SET, BUDGET_REMOVE):
            return ""
        details = self.entry.details
        hard = ", hard" if details.get("hard") else ""
        amount = f"{format_usd(self.entry.usd)} a month{hard}, " if self.entry.what == BUDGET_SET else ""
        return f"{details.get('budget', '')}: {amount}from {details.get('since', '')} on"

    @property
    def at_risk(self) -> Usd | None:
        """Return the most that could be spent by it; None of a budget, by which nothing is spent."""
        return None if self.entry.what in (BUDGET_SET, BUDGET_REMOVE) else self.entry.usd

    @property
    def words(self) -> str:
        """Return what the entry says beside who, what and when."""
        by = f"as {self.by}" if self.by else ""
        policies = f"policies {self.policies}" if self.policies else ""
        return "; ".join(filter(None, (self.budget, by, policies, self.note)))


AUDIT_ENTRIES: RecordTable[AuditRow] = RecordTable(
    (
        TableColumn("seq", lambda row: row.entry.seq, "SEQ", right=True),
        TableColumn("at", lambda row: row.entry.at, "AT", format_timestamp),
        TableColumn("who", lambda row: row.entry.who, "WHO"),
        TableColumn("what", lambda row: row.entry.what, "WHAT"),
        TableColumn("", lambda row: row.at_risk, "AT RISK", format_usd, right=True),
        TableColumn("plan", lambda row: row.entry.digest or None, "PLAN", lambda digest: digest[:12]),
        TableColumn("at_risk_usd", lambda row: row.at_risk),
        TableColumn("by", lambda row: row.by or None),
        TableColumn("note", lambda row: row.note or None),
        TableColumn("policies", lambda row: row.policies or None),
        TableColumn("hash", lambda row: row.entry.hash, "HASH", lambda digest: digest[:12]),
        TableColumn("budget", lambda row: row.budget or None),
        TableColumn("", lambda row: row.policies or row.budget, "ABOUT"),
    )
)
