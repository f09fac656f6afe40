"""Price points for tests: what is not said does not matter to the test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from pricing.history import PricePoint
from pricing.money import UsdPerHour
from pricing.places import Market
from router.prices import history

START = datetime(2026, 11, 1, tzinfo=UTC)
A_POINT = PricePoint(
    "aws", "us-east-1", "us-east-1a", "p5.48xlarge", Market.SPOT, START, "a feed", UsdPerHour.parse("20")
)


def a_point(hours: float = 0, price: str | None = "20", **changes: object) -> PricePoint:
    """A_POINT so many hours after START at that price."""
    rate = None if price is None else UsdPerHour.parse(price)
    point = replace(A_POINT, at=START + timedelta(hours=hours), usd_per_hour=rate)
    return replace(point, **changes)  # type: ignore[arg-type]


def read_back(folder: Path, which: history.Selection = history.EVERYTHING) -> list[PricePoint]:
    """Every point that counts, in the order of queries."""
    frame = history.read_series(folder, which).astype(object)
    rows = frame.where(frame.notna(), None).to_dict("records")
    return [_point(**{str(name): value for name, value in row.items()}) for row in rows]


def _point(*, at: Any, market: str, usd_nanos_per_hour: int | None, **others: Any) -> PricePoint:
    rate = None if usd_nanos_per_hour is None else UsdPerHour(usd_nanos_per_hour)
    return PricePoint(at=at.to_pydatetime(), market=Market(market), usd_per_hour=rate, **others)


def in_order(points: Iterable[PricePoint]) -> list[PricePoint]:
    """In the order of queries: series by series, unknown zones last, then time."""
    return sorted(
        points,
        key=lambda p: (
            p.cloud,
            p.region,
            p.instance_type,
            p.market.value,
            p.zone is None,
            p.zone or "",
            p.at,
            p.source,
        ),
    )


def parts_of(folder: Path) -> list[Path]:
    """The parts on disk, sorted."""
    return sorted(folder.glob("month=*/part-*.parquet"))


def rows_on_disk(folder: Path) -> int:
    """Rows in all parts, whether they count or not."""
    return sum(int(pq.read_metadata(part).num_rows) for part in parts_of(folder))
