"""Draw the list of plans that were made, the latest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pricing.money import Usd
from router.files.csv_text import csv_text
from router.render.page_frame import PageFrame
from router.render.pages import fill_template

PLAN_FIELDS = ("plan", "name", "as_of", "made_at", "made_by", "jobs", "placed", "cost_usd", "gap", "approved_by")


@dataclass(frozen=True, slots=True)
class PlanListRow:
    """A plan of the list; ``approvals`` is None where who asks may not see them.

    ``has_earlier`` says that there is a plan of its name of an earlier night to compare it with.
    """

    digest: str
    as_of: datetime
    made_at: datetime
    made_by: str
    name: str
    jobs: int
    placed: int
    cost_usd: Usd
    gap: float
    approvals: tuple[str, ...] | None
    has_earlier: bool = True

    @property
    def plan_id(self) -> str:
        """Return the name of the plan."""
        return f"plan-{self.digest[:12]}"

    @property
    def approved_by(self) -> str:
        """Return who approved it, in words."""
        return "not shown" if self.approvals is None else ", ".join(self.approvals) or "nobody"


@dataclass(frozen=True, slots=True)
class LastPlan:
    """The last plan of a name."""

    name: str
    digest: str
    as_of: datetime


def plan_list_page(
    rows: Sequence[PlanListRow],
    names: Sequence[LastPlan],
    older: str,
    now: datetime,
    frame: PageFrame | None = None,
) -> str:
    """Return the page as HTML; ``older`` is the URL of earlier plans, "" where there are none."""
    return fill_template("plan_list.html", frame=frame, rows=rows, names=names, older=older, now=now)


def plans_csv(rows: Sequence[PlanListRow]) -> str:
    """Return the list as CSV."""
    return csv_text(
        PLAN_FIELDS,
        [
            (
                row.plan_id,
                row.name,
                row.as_of.isoformat(),
                row.made_at.isoformat(),
                row.made_by,
                row.jobs,
                row.placed,
                row.cost_usd,
                row.gap,
                row.approved_by,
            )
            for row in rows
        ],
        unknown="none",
    )
