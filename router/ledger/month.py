"""A month of the books, in UTC. Pure."""

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
    """``2026-11``: from the first moment of that month in UTC until before that of the next."""

    year: int
    month: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``2026-11``; ValueError for anything else."""
        found = _FORM.fullmatch(text)
        if found is None or not 1 <= int(found[2]) <= _MONTHS or not 1 <= int(found[1]) <= _LAST_YEAR:
            raise ValueError(f"{text!r} is no month such as 2026-11")
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def of(cls, moment: datetime) -> Self:
        """The month in which the moment falls."""
        there = moment.astimezone(UTC)
        return cls(there.year, there.month)

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.month:02d}"

    @property
    def next(self) -> Month:
        """The one after it."""
        return Month(self.year + self.month // _MONTHS, self.month % _MONTHS + 1)

    @property
    def begins(self) -> datetime:
        """Its first moment."""
        return datetime(self.year, self.month, 1, tzinfo=UTC)

    @property
    def ends(self) -> datetime:
        """The first moment after it."""
        return self.next.begins
