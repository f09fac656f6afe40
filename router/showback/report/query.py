"""Define the query that a report answers, the inputs beside facts, and the context of its sections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Final

from router.files.duckdb_session import sql_list
from router.ledger.entry import CostBasis, MachineUse
from router.ledger.month import Month
from router.showback.apportion import sum_known
from router.showback.focus.columns import WASTE_KINDS
from router.showback.labels import LABEL, label_name
from router.showback.reconcile.variance import FactAggregate
from router.showback.report.rollup_tables import RollupRow, RollupTables
from router.showback.report.values import divide_known
from router.showback.shared_costs import Group, SharingMethod

# A report can be grouped by these columns of facts, and by labels of jobs (router.showback.labels).
GROUPS = (
    "team",
    "project",
    "cost_center",
    "job",
    "plan",
    "attempt",
    "cloud",
    "account",
    "region",
    "instance_type",
    "market",
    "accelerator",
    "what",
    "use",
    "category",
    "state",
)
# The owners among them: where nobody is named the cost is unallocated, not unknown.
OWNERS = frozenset({"team", "project", "cost_center", "job"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthQuery:
    """A query for a month of the books without its moment.

    ``teams``: the report is of the rows of these teams alone, "" for rows without a team; None: of all.
    """

    month: Month
    by: tuple[str, ...] = ("team",)
    basis: CostBasis = CostBasis.EFFECTIVE
    share: SharingMethod = SharingMethod.NONE
    teams: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportQuery(MonthQuery):
    """A query for a month of the books as of ``now`` (UTC).

    ``as_of``: what was recorded after it (entries, bills, budgets, closings) is left out; None: nothing is. ``fixed``:
    shares of 1 by group, for the method fixed alone. ValueError for a query that cannot be answered.
    """

    now: datetime
    as_of: datetime | None = None
    fixed: Mapping[Group, Decimal] | None = None

    def __post_init__(self) -> None:
        unknown = [name for name in self.by if name not in GROUPS and label_name(name) is None]
        if unknown or not self.by or len(set(self.by)) < len(self.by):
            wrong = f"{unknown[0]!r} is no group" if unknown else "one group at least, each once"
            raise ValueError(f"{wrong}; there are {', '.join(GROUPS)}, and {LABEL}NAME for a label of jobs")
        if (self.share is SharingMethod.FIXED) != (self.fixed is not None):
            raise ValueError("fixed shares are for the method fixed, which needs them")

    @property
    def asks_labels(self) -> bool:
        return any(label_name(name) is not None for name in self.by)

    def admits(self, team: str | None) -> bool:
        """Return whether rows of that team are in the report; None is no team."""
        return self.teams is None or (team or "") in self.teams

    @property
    def before(self) -> Month:
        month = self.month
        return Month(month.year - 1, 12) if month.month == 1 else Month(month.year, month.month - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """A budget of the month and what counts towards it.

    ``scope`` is as people write it (``team research``); ``spent``, ``running`` (of machines that no entry has yet) and
    ``forecast`` are None where unknown.
    """

    scope: str
    currency: str
    budget: Decimal
    hard: bool
    spent: Decimal | None = None
    running: Decimal | None = None
    forecast: Decimal | None = None

    @property
    def used(self) -> Decimal | None:
        """The sum of what is spent and what runs, as a share of the budget."""
        return None if self.spent is None else divide_known(sum_known((self.spent, self.running)), self.budget)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDue:
    """The deadline of a job's last run in the month, and when that was done.

    ``done_at`` None: it was not done, or nobody knows (``is_done_known`` False). ``late_before``: how many of the job's
    earlier runs in the month were done after their deadlines. ``runs_now``: machines of the job are there, unmetered
    until they are gone.
    """

    job: str
    deadline: datetime | None
    done_at: datetime | None
    is_done_known: bool = True
    late_before: int = 0
    runs_now: bool = False

    @property
    def met(self) -> bool | None:
        """True if the deadline was met; None where it is unknown, or there was none."""
        if self.deadline is None or not self.is_done_known:
            return None
        return self.done_at is not None and self.done_at <= self.deadline


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteResult:
    """An accepted quote whose job is over: dollars of machines and the end, as promised and as they were.

    ``p50`` and ``p90`` are what half and nine of ten scenarios cost at most. ``done_at`` None: given up.
    """

    quote: str
    job: str
    deadline: datetime
    promised: Decimal
    p50: Decimal | None
    p90: Decimal | None
    cost: Decimal
    p50_at: datetime | None
    p90_at: datetime | None
    done_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthCost:
    """The cost of a month in a currency on the basis of the report; ``sealed``: the month was closed with it."""

    month: str
    currency: str
    cost: Decimal
    sealed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInputs:
    """Inputs of a report beside the facts.

    ``origin`` tells people what the facts were made from; ``input_hash`` names it exactly. ``bills_through``: until
    when bills reach; None where there are none. ``warnings`` name what is missing. An input that is None was not looked
    at, and the report says so. ``past``: the state knows of records after the moment of the report, and nothing is
    forecast. ``aggregates`` are the facts of a reconciliation, for variances; without them the bridge sums its own.
    ``months`` are costs of months up to the reported one.
    """

    origin: str
    input_hash: str
    past: bool = False
    bills_through: datetime | None = None
    closed: bool | None = None
    budgets: tuple[BudgetUse, ...] | None = None
    dues: Mapping[str, JobDue] = field(default_factory=dict)
    quotes: tuple[QuoteResult, ...] | None = None
    aggregates: tuple[FactAggregate, ...] | None = None
    months: tuple[MonthCost, ...] | None = None
    warnings: tuple[str, ...] = ()


# Uses of an interrupted run that an uninterrupted one would not have had.
RESTART: Final = (MachineUse.RESTART_LOST_WORK.value, MachineUse.FAILED_LAUNCH.value)
STARTUP: Final = MachineUse.STARTUP.value
# The SQL condition for waste.
WASTED: Final = f"use IN {sql_list(sorted(WASTE_KINDS))}"

# Sums of the rollups by the names that sections have for them; any other name sums the column of that name.
_SUMS: Final[Mapping[str, str]] = {
    "cost": "sum({cost})",
    "waste": f"sum({{cost}}) FILTER ({WASTED})",
    "compared": "sum({cost}_compared)",
    "machines": "sum({cost}) FILTER (what = 'machine')",
    "accelerators": "sum({cost}) FILTER (what = 'machine' AND gpu_hours > 0)",
    "accelerator_hours": "sum(gpu_hours)",
    "priced_hours": "sum(gpu_hours) FILTER (what = 'machine' AND {cost} IS NOT NULL)",
    "facts": "sum(facts)::BIGINT",
    "unpriced": "coalesce(sum(facts) FILTER (unpriced), 0)::BIGINT",
    "start": "min(first_start)",
}


@dataclass(frozen=True, slots=True)
class ReportContext:
    """The rollups, and the query that the report answers."""

    rollups: RollupTables
    query: ReportQuery
    beside: ReportInputs

    @property
    def cost(self) -> str:
        """The column of costs that the query asks for."""
        return self.query.basis.value

    @property
    def month(self) -> str:
        """The month, as rollups write it."""
        return str(self.query.month)

    @property
    def before(self) -> str:
        return str(self.query.before)

    @property
    def spent(self) -> str:
        """The SQL condition for money of the month that was spent."""
        return f"month = '{self.month}' AND source <> 'planned'"

    @property
    def planned(self) -> str:
        """The SQL condition for what was planned for the month."""
        return f"month = '{self.month}' AND source = 'planned'"

    @property
    def dearest_first(self) -> str:
        """The SQL order by cost, unknown ones last."""
        return f"sum({self.cost}) DESC NULLS LAST"

    def sums_of(self, *names: str) -> str:
        return ", ".join(f"{_SUMS.get(name, f'sum({name})').format(cost=self.cost)} AS {name}" for name in names)

    def sum_by(self, keys: str, *names: str, where: str | None = None, order: str = "ALL") -> list[RollupRow]:
        """Return the sums of these names of the month's spending, or of other rows, by the SQL columns ``keys``."""
        return self.rollups.ask(
            f"SELECT {keys}, {self.sums_of(*names)} FROM sums WHERE {where or self.spent} GROUP BY ALL ORDER BY {order}"
        )
