"""Define what a plan uses of limits and budgets, and the money that it puts at risk.

This part of a plan describes its circumstances: the plan's digest is not over it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pricing.money import ZERO, Usd
from router.jobs.speed import SpeedEvidence
from router.planning.find.limit_kinds import UsageKind
from router.planning.find.placement_type import JobPlacementType


@dataclass(frozen=True, slots=True)
class UseStep:
    """The use of a limit from ``start`` until ``end``, in the limit's unit; a share of an outlook counts as a share."""

    start: datetime
    end: datetime
    used: float


@dataclass(frozen=True, slots=True)
class LimitUsage:
    """The use of one limit that is full at some time or has a shadow price.

    ``limit`` is the name in the shadow prices. ``cloud``, ``region`` and ``market`` are None where the limit holds for
    all of them. ``use`` is in time order without overlaps; nothing is used between its steps.
    """

    limit: str
    kind: UsageKind
    cloud: str | None
    region: str | None
    market: str | None
    unit: str
    amount: int
    full: bool
    use: tuple[UseStep, ...]


@dataclass(frozen=True, slots=True)
class TeamUsage:
    """The budget of a team, what of it was spent before, and what the plan adds in the month of the plan.

    Orders count whole. A line of the outlook counts by the share of its time that lies in the month.
    """

    team: str
    budget_usd: Usd
    spent_usd: Usd
    orders_usd: Usd
    outlook_usd: Usd

    @property
    def together_usd(self) -> Usd:
        """Return the spending by the end of the month: before, orders and outlook."""
        return Usd.total((self.spent_usd, self.orders_usd, self.outlook_usd))


@dataclass(frozen=True, slots=True)
class EgressUsage:
    """The gigabytes (10**9 bytes) that may leave a cloud in a month: the cap, what left before, what the plan adds."""

    cloud: str
    month: str
    cap_gb: float
    before_gb: float
    plan_gb: float


@dataclass(frozen=True, slots=True)
class StatedQuantity:
    """A quantity that the job file states and that a term of the job's cost rests on.

    ``term`` is a name of :data:`COST_TERMS`, ``field`` the key of the job file with a dot between levels, ``value`` its
    value in words.
    """

    term: str
    field: str
    value: str

    @property
    def is_input(self) -> bool:
        """Return whether every job states it; all else stands in for a default or a model."""
        return self.field in ("workload.profile", "data.gib", "data.passes")


@dataclass(frozen=True, slots=True)
class JobCostTerms:
    """The terms of a placed job's cost, which add up to it to the nano-dollar.

    ``compute_usd`` pays for steps that last, ``lost_work_usd`` for those repeated after interruptions,
    ``restarts_usd`` for start-ups after interruptions and ``startups_usd`` for those of the plan's own runs,
    ``idle_usd`` for waiting, at both, for the last machine of the gang, ``fallback_usd`` for the on-demand gang on
    which a guarded run may end. ``stated`` is what the job file states of them.
    """

    job: str
    compute_usd: Usd
    lost_work_usd: Usd
    checkpoints_usd: Usd
    restarts_usd: Usd
    startups_usd: Usd
    moves_usd: Usd
    stream_usd: Usd
    idle_usd: Usd = ZERO
    fallback_usd: Usd = ZERO
    stated: tuple[StatedQuantity, ...] = ()

    @property
    def together_usd(self) -> Usd:
        """Return the job's cost."""
        return Usd.total(getattr(self, name) for name in COST_TERMS)


@dataclass(frozen=True, slots=True)
class PointToMeasure:
    """A gang whose speed is worth measuring first, for ``cost_usd``, and the error of the planned speed after that."""

    accelerator: str
    accelerators: int
    placement: str
    cost_usd: Usd
    error_after: float


@dataclass(frozen=True, slots=True)
class GangSpeed:
    """The evidence for the speed of a placed gang, with the standard deviation of its run time as a share of it.

    ``points`` are worth measuring first, where much money rests on a speed that nobody measured.
    """

    job: str
    gang: str
    accelerator: str
    accelerators: int
    speed_evidence: SpeedEvidence
    speed_basis: str
    relative_error: float
    points: tuple[PointToMeasure, ...] = ()


COST_TERMS = tuple(name for name in JobCostTerms.__dataclass_fields__ if name not in ("job", "stated"))


@dataclass(frozen=True, slots=True)
class PlanUsage:
    """The use of limits and budgets; ``month`` is the calendar month (UTC) of the plan, ``2026-11``.

    ``at_risk_usd`` is the cost of all orders if each runs to its end at its price ceiling, or that of its fallback.
    ``cost_terms`` and ``speeds`` are those of placed jobs, ``placement_types`` of all, by name.
    """

    month: str
    at_risk_usd: Usd
    limits: tuple[LimitUsage, ...]
    teams: tuple[TeamUsage, ...]
    egress: tuple[EgressUsage, ...] = ()
    cost_terms: tuple[JobCostTerms, ...] = ()
    placement_types: tuple[JobPlacementType, ...] = ()
    speeds: tuple[GangSpeed, ...] = ()
