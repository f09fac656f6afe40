"""Draw the approval of a plan: who approved it and until when, what is missing, and forms to approve and revoke."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from markupsafe import Markup

from pricing.money import Usd
from router.render.pages import fill_template


@dataclass(frozen=True, slots=True)
class ApprovalRow:
    """An approval of the table; ``until`` is None where no rules say how long it holds."""

    name: str
    at: datetime
    until: datetime | None
    usd: Usd
    state: str
    note: str


@dataclass(frozen=True, slots=True)
class ApprovalBox:
    """The contents of the box; ``needed`` is None without rules. Forms are shown only with the permission.

    ``why_not`` with ``remedy`` says why the reader cannot approve all the same.
    """

    url: str
    at_risk_usd: Usd
    needed: int | None
    missing: int
    approvers: Sequence[str]
    rows: Sequence[ApprovalRow]
    refusals: Sequence[str]
    may_approve: bool
    why_not: str
    remedy: str
    may_revoke: bool
    is_given: bool

    @property
    def until(self) -> datetime | None:
        """Return until when the approvals that count hold together."""
        found = [row.until for row in self.rows if row.state == "counts" and row.name in self.approvers]
        return min((moment for moment in found if moment is not None), default=None)


def draw_approval_box(box: ApprovalBox, csrf_token: str) -> Markup:
    """Return the box as a section of a page; text in it is escaped."""
    return Markup(fill_template("approval.html", box=box, csrf_token=csrf_token))
