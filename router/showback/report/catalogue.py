"""Which sections a report has, in order, and which columns each can have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from router.showback.report import anomalies, change, daily, groups, jobs, outcomes, spending, totals
from router.showback.report.query import GROUPS
from router.showback.report.values import Column

# `groups` has of the first columns those that were asked for.
SECTIONS: Final[Mapping[str, tuple[Column, ...]]] = {
    "head": totals.HEAD,
    "totals": totals.TOTALS,
    "budgets": outcomes.BUDGETS,
    "change": change.COLUMNS,
    "groups": (*(Column(name, groups.TITLES[name], rank=0) for name in GROUPS), *groups.AMOUNTS),
    "jobs": jobs.JOBS,
    "unit_costs": jobs.BY_MARKET,
    "savings": jobs.BY_CURRENCY,
    "waste": spending.WASTED,
    "movement": spending.MOVED,
    "shared": groups.SHARED,
    "coverage": spending.COVERAGE,
    "anomalies": anomalies.COLUMNS,
    "variance": outcomes.VARIANCE,
    "plans": outcomes.PLANS,
    "quotes": outcomes.QUOTES,
    "corrections": spending.CORRECTIONS,
    "days": daily.COLUMNS,
}


def every_column() -> dict[str, Column]:
    """All columns of all sections by name, in the order in which they are met; one name is of one kind everywhere."""
    found: dict[str, Column] = {}
    for columns in SECTIONS.values():
        for column in columns:
            if found.setdefault(column.name, column).kind is not column.kind:
                raise ValueError(f"{column.name} is of two kinds")
    return found
