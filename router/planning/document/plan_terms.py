"""State the terms of a plan that somebody may choose, with defaults and bounds, for commands, API and requests."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class LengthTerm:
    """A length of time: its default, as people write it and as a value, and the least that it may be."""

    text: str
    default: timedelta
    least: timedelta


HORIZON: Final = LengthTerm("24h", timedelta(hours=24), timedelta(hours=1))
MAX_HORIZON: Final = timedelta(days=14)
SLOT: Final = LengthTerm("1h", timedelta(hours=1), timedelta(minutes=5))
TIME_LIMIT: Final = LengthTerm("3m", timedelta(minutes=3), timedelta(seconds=1))
GAP: Final = 0.005
MAX_GAP: Final = 0.5
SOLVER: Final = "highs"
BOOK: Final = "latest"
#: The name of a plan that nobody gave one.
TRIAL: Final = "trial"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTerms:
    """How long a plan is, in which steps, how near to the bound, how long it may take, and by which solver.

    ``gap`` is relative. ``time_limit`` is the longest it may take, from which the searches have their counts of nodes.
    ``advisory``: clouds count that cannot be ordered from here.
    """

    horizon: timedelta = HORIZON.default
    slot: timedelta = SLOT.default
    gap: float = GAP
    time_limit: timedelta = TIME_LIMIT.default
    solver: str = SOLVER
    advisory: bool = False

    def terms(self) -> dict[str, Any]:
        """Return the terms alone by their names, to make a value of them that has more."""
        return {field.name: getattr(self, field.name) for field in fields(PlanTerms)}
