"""Draw the list of plans that were made, the latest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from router.render.pages import PageFrame, fill_template
from router.render.record_table import RecordTable, TableColumn, attribute_columns
from router.state.made_plans import ListedPlan


@dataclass(frozen=True, slots=True)
class PlanListRow:
    """A row of the list; ``approvals`` is None where the reader may not see them.

    ``has_earlier`` says that there is a plan of its name of an earlier night to compare it with.
    """

    plan: ListedPlan
    approvals: tuple[str, ...] | None
    has_earlier: bool = True

    @property
    def approved_by(self) -> str:
        """Return who approved it, in words."""
        return "not shown" if self.approvals is None else ", ".join(self.approvals) or "nobody"


_PLANS: RecordTable[PlanListRow] = RecordTable(
    (
        TableColumn("plan", lambda row: row.plan.plan_id),
        *attribute_columns("name", "as_of", "made_at", "made_by", "jobs", "placed", "cost_usd", "gap", of="plan"),
        TableColumn("approved_by", lambda row: row.approved_by),
    )
)


def plan_list_page(
    rows: Sequence[PlanListRow],
    names: Sequence[ListedPlan],
    older: str,
    now: datetime,
    frame: PageFrame | None = None,
) -> str:
    """Return the page as HTML.

    ``names`` are the last plan of each name; ``older`` is the URL of earlier plans, "" where there are none.
    """
    return fill_template("plan_list.html", frame=frame, rows=rows, names=names, older=older, now=now)


def plans_csv(rows: Sequence[PlanListRow]) -> str:
    """Return the list as CSV."""
    return _PLANS.csv(rows, unknown="none")
