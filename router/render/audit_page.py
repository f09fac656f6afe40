"""Draw the audit log: who did what with which plan, newest first, and whether its chain is whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from router.files.csv_text import csv_text
from router.render.page_frame import PageFrame
from router.render.pages import fill_template
from router.state.records import AuditEntry

AUDIT_FIELDS = ("seq", "at", "who", "what", "plan", "at_risk_usd", "by", "note", "policies", "hash")


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
    def words(self) -> str:
        """Return what the entry says beside who, what and when."""
        by = f"as {self.by}" if self.by else ""
        policies = f"policies {self.policies}" if self.policies else ""
        return "; ".join(filter(None, (by, policies, self.note)))


@dataclass(frozen=True, slots=True)
class AuditView:
    """The entries shown, and what is known of the whole log. ``broken`` is the first entry that was changed."""

    rows: Sequence[AuditRow]
    fitting: int
    count: int
    last_hash: str
    broken: int | None
    who: str
    what: str
    plan: str
    older: str
    now: datetime

    @property
    def is_filtered(self) -> bool:
        """Return whether some entries are left out by the filter."""
        return bool(self.who or self.what or self.plan)


def audit_page(view: AuditView, frame: PageFrame | None = None) -> str:
    """Return the page as HTML."""
    return fill_template("audit.html", frame=frame, view=view)


def audit_csv(rows: Sequence[AuditRow]) -> str:
    """Return the entries as CSV."""
    return csv_text(
        AUDIT_FIELDS,
        [
            (
                row.entry.seq,
                row.entry.at.isoformat(),
                row.entry.who,
                row.entry.what,
                row.entry.digest or None,
                row.entry.usd,
                row.by or None,
                row.note or None,
                row.policies or None,
                row.entry.hash,
            )
            for row in rows
        ],
        unknown="none",
    )
