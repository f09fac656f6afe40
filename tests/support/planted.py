"""The month of tests/golden/showback/planted.csv, whose head says what its differences are."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.support.repository import ROOT

PLANTED = ROOT / "tests/golden/showback/planted.csv"
_STATES = {"billed": "Invoiced"}


def planted() -> list[dict[str, Any]]:
    with PLANTED.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(line for line in stream if not line.startswith("#")))
    return [{**fact, "row": number} for number, fact in enumerate((f for row in rows for f in _facts(row)), 1)]


def _facts(row: dict[str, str]) -> Iterator[dict[str, Any]]:
    start, end = _moment(row["start"]), _moment(row["end"])
    each = timedelta(hours=int(row["each"])) if row["each"] else end - start
    while start < end:
        hours = Decimal(int(each.total_seconds())) / 3600
        money = Decimal(row["money"]) if row["money"] else Decimal(row["rate"]) * hours
        machine = row["what"] == "machine"
        yield {
            "source": row["source"],
            "origin": "bill-1" if row["source"] == "billed" else "ledger",
            "state": _STATES.get(row["source"], "Estimated"),
            "start": start,
            "end": start + each,
            "billed": money,
            "effective": money,
            "what": row["what"],
            "use": row["use"] or None,
            "hours": hours if machine else None,
            "job": row["job"] or None,
            "team": row["team"] or None,
            "attempt": f"{row['job']}-1" if row["source"] == "metered" else None,
            "cloud": "aws",
            "region": "us-east-1",
            "instance_type": "p5" if machine else None,
            "market": (row["market"] or "spot") if machine else None,
            "resource": row["resource"] or None,
            "currency": row["currency"] or "USD",
            "category": row["category"] or "Usage",
            "corrects": row["corrects"] or None,
        }
        start += each


def _moment(text: str) -> datetime:
    day, _, hour = text.partition("T")
    return datetime.fromisoformat("2026-11-01T00:00:00+00:00") + timedelta(
        days=int(day) - 1, hours=int(hour[:2]), minutes=int(hour[3:])
    )
