"""Months made by hand for the page of a month: a full one with two currencies, and what a page says of amounts."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from router.showback.report.query import BudgetUse, MonthCost
from router.showback.report.values import ShowbackReport
from tests.support.showback_reports import BESIDE, OVER, cost, report_of_rows

LONG = "a-job-with-a-name-of-sixty-three-letters-" + "n" * 22


def machine(amount: str, hours: int, day: int = 3, month: int = 11, **said: Any) -> dict[str, Any]:
    """Hours of a machine with eight accelerators, on a bill where nothing else is said."""
    start = datetime(2026, month, day, 2, tzinfo=UTC)
    given: dict[str, Any] = {
        "team": "research", "job": "llama", "cloud": "aws", "region": "us-east-1", "market": "spot", "what": "machine",
        "use": "work", "unit": "Hours", "hours": Decimal(hours), "gpu_hours": Decimal(8 * hours), "start": start,
        "end": start + timedelta(hours=hours), "source": "billed", "state": "Invoiced",
        "month": f"2026-{month:02d}", **said,
    }  # fmt: skip
    return cost(amount, **given)


def full_month(now: datetime = OVER) -> ShowbackReport:
    """A month over plan and over a budget, with waste, a credit, euros, twelve months and names at their longest."""
    rows = [
        machine("4000", 40, source="planned", plan="p1", use=None),
        machine("5000.125", 50),
        machine("700.5", 7, use="idle_allocated", day=9),
        machine("33.333333333", 3, use="startup", day=10, job=LONG, team="t" * 40),
        machine("90", 4, source="planned", plan="p2", use=None, job=LONG, team="t" * 40),
        machine("64", 4, source="metered", state="Estimated", job="late", day=20),
        cost("-250", category="Credit", what="other", source="billed", state="Invoiced"),
        machine("120.004", 2, currency="EUR", team="search", job="embed"),
        machine("2000", 20, month=10),
    ]
    budgets = (
        BudgetUse(scope="all", currency="USD", budget=Decimal(10000), hard=False, spent=Decimal("5547.96")),
        BudgetUse(scope="team research", currency="USD", budget=Decimal(5000), hard=False, spent=Decimal("5700.63")),
    )
    months = tuple(
        MonthCost(month=f"{year}-{number:02d}", currency="USD", cost=Decimal(900 + 100 * number), sealed=True)
        for year, number in [(2025, 12), *((2026, n) for n in range(1, 10))]
    )
    return report_of_rows(rows, now=now, beside=replace(BESIDE, closed=False, budgets=budgets, months=months))


def amounts_between(text: str, begin: str, end: str = "</section>") -> list[Decimal]:
    """The amounts of ``<data>`` in order, from a marker until another."""
    start = text.index(begin)
    return [Decimal(found) for found in re.findall(r'<data value="([^"]+)">', text[start : text.index(end, start)])]
