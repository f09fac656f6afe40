"""Define a month of the books, in UTC. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

_FORM = re.compile(r"(\d{4})-(\d{2})")
_MONTHS = 12
_LAST_YEAR = 9998  # the one after it still has a beginning


@dataclass(frozen=True, slots=True, order=True)
class Month:
    """A month such as ``2026-11``: from its first moment in UTC until before that of the next."""

    year: int
    month: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the month of ``2026-11``; ValueError for anything else."""
        match = _FORM.fullmatch(text)
        if match is None or not 1 <= int(match[2]) <= _MONTHS or not 1 <= int(match[1]) <= _LAST_YEAR:
            raise ValueError(f"{text!r} is no month such as 2026-11")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def of(cls, moment: datetime) -> Self:
        there = moment.astimezone(UTC)
        return cls(there.year, there.month)

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.month:02d}"

    @property
    def next(self) -> Month:
        return Month(self.year + self.month // _MONTHS, self.month % _MONTHS + 1)

    @property
    def begins(self) -> datetime:
        return datetime(self.year, self.month, 1, tzinfo=UTC)

    @property
    def ends(self) -> datetime:
        return self.next.begins
