"""One line of the ledger: what a stretch of time on machines cost, or was planned to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fractions import Fraction

from pricing.money import Usd, UsdPerHour
from pricing.places import Market


class Kind(StrEnum):
    """What an entry says."""

    PLANNED = "planned"
    METERED = "metered"


@dataclass(frozen=True, slots=True)
class Entry:
    """From ``start`` until before ``end`` (UTC), ``hours`` of it billed at ``usd_per_hour`` (of all ``machines``).

    ``key`` is unique: the same happening again has the same key. ``usd`` is rate x hours, rounded once. A metered entry
    is about one machine (``attempt``, ``rank``), and all of its time is billed; a planned one is a line of a plan.
    ``steps`` are those that the time was planned to do, or, metered, those that were saved in it, which stand with rank
    0 alone; ``lost_steps`` were done and then lost. 0 where nobody knows. ValueError when that does not hold.
    """

    key: str
    kind: Kind
    recorded_at: datetime
    plan: str
    job: str
    job_digest: str
    team: str
    project: str | None
    cost_center: str | None
    gang: str
    attempt: str
    rank: int | None
    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: Market
    accelerator: str
    accelerators: int
    machines: int
    start: datetime
    end: datetime
    hours: Fraction
    usd_per_hour: UsdPerHour
    usd: Usd
    steps: int = 0
    lost_steps: int = 0
    price_as_of: str = ""
    price_source: str = ""

    def __post_init__(self) -> None:
        for name in ("recorded_at", "start", "end"):
            if getattr(self, name).utcoffset() != timedelta(0):
                raise ValueError(f"{self.key}: {name} is not in UTC")
        if self.end <= self.start:
            raise ValueError(f"{self.key}: a period that ends when it begins, or before")
        if self.hours < 0 or self.usd_per_hour.nanos < 0 or self.usd.nanos < 0 or self.machines < 1:
            raise ValueError(f"{self.key}: hours, prices and machines are never negative")
        if self.kind is Kind.METERED and (not self.attempt or self.rank is None or self.machines != 1):
            raise ValueError(f"{self.key}: a metered entry is about one machine of an attempt")


def utc(moment: datetime) -> datetime:
    """The same moment in UTC."""
    return moment.astimezone(UTC)
