"""Define the context that every section of a report is built with. Pure but for querying the rollups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from router.ledger.entry import Use
from router.showback.report.query import Asked, Beside
from router.showback.report.rollup_tables import Cubes

WASTE: Final = tuple(use.value for use in Use if use.is_waste)
# Uses of an interrupted run that an uninterrupted one would not have had.
RESTART: Final = (Use.RESTART_LOST_WORK.value, Use.FAILED_LAUNCH.value)
STARTUP: Final = Use.STARTUP.value


@dataclass(frozen=True, slots=True)
class Setting:
    """The rollups, and the query that the report answers."""

    cubes: Cubes
    asked: Asked
    beside: Beside

    @property
    def cost(self) -> str:
        """The column of costs that the query asks for."""
        return self.asked.basis.value

    @property
    def month(self) -> str:
        """The month, as rollups write it."""
        return str(self.asked.month)

    @property
    def before(self) -> str:
        """The month before it."""
        return str(self.asked.before)

    @property
    def spent(self) -> str:
        """The SQL condition for money of the month that was spent."""
        return f"month = '{self.month}' AND source <> 'planned'"

    @property
    def planned(self) -> str:
        """The SQL condition for what was planned for the month."""
        return f"month = '{self.month}' AND source = 'planned'"


def words(values: tuple[str, ...]) -> str:
    """Return the SQL list of the values, for IN."""
    return "(" + ", ".join("'" + value.replace("'", "''") + "'" for value in values) + ")"
