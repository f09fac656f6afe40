"""What every part of a report is made with. Pure but for asking the cubes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from router.ledger.entry import Use
from router.showback.report.query import Asked, Beside
from router.showback.report.rollup_tables import Cubes

WASTE: Final = tuple(use.value for use in Use if use.is_waste)
# Of an interrupted run that an uninterrupted one would not have had.
RESTART: Final = (Use.RESTART_LOST_WORK.value, Use.FAILED_LAUNCH.value)
STARTUP: Final = Use.STARTUP.value


@dataclass(frozen=True, slots=True)
class Setting:
    """The cubes, and what is asked of them."""

    cubes: Cubes
    asked: Asked
    beside: Beside

    @property
    def cost(self) -> str:
        """The column of costs that is asked for."""
        return self.asked.basis.value

    @property
    def month(self) -> str:
        """As cubes write it."""
        return str(self.asked.month)

    @property
    def before(self) -> str:
        """The month before it."""
        return str(self.asked.before)

    @property
    def spent(self) -> str:
        """A condition: money of the month that was spent."""
        return f"month = '{self.month}' AND source <> 'planned'"

    @property
    def planned(self) -> str:
        """A condition: what was planned for the month."""
        return f"month = '{self.month}' AND source = 'planned'"


def words(values: tuple[str, ...]) -> str:
    """For IN."""
    return "(" + ", ".join("'" + value.replace("'", "''") + "'" for value in values) + ")"
