"""Define the context that every section of a report is built with. Pure but for querying the rollups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from router.ledger.entry import MachineUse
from router.showback.report.query import ReportInputs, ReportQuery
from router.showback.report.rollup_tables import RollupTables

WASTE: Final = tuple(use.value for use in MachineUse if use.is_waste)
# Uses of an interrupted run that an uninterrupted one would not have had.
RESTART: Final = (MachineUse.RESTART_LOST_WORK.value, MachineUse.FAILED_LAUNCH.value)
STARTUP: Final = MachineUse.STARTUP.value


@dataclass(frozen=True, slots=True)
class ReportContext:
    """The rollups, and the query that the report answers."""

    cubes: RollupTables
    asked: ReportQuery
    beside: ReportInputs

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


def sql_list(values: tuple[str, ...]) -> str:
    """Return the SQL list of the values, for IN."""
    return "(" + ", ".join("'" + value.replace("'", "''") + "'" for value in values) + ")"
