"""Define the placement plan as a value: frozen, exact, the same bytes for the same inputs.

A plan never holds addresses or instance ids. Its JSON form is :mod:`router.planning.document.plan_json`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Literal

from pricing.carbon import GRAMS_PER_TONNE
from pricing.money import Usd, UsdPerHour
from router.jobs.experience import Experience
from router.jobs.run_policy import RunPolicy
from router.planning.document.inputs import PlanInputs
from router.planning.document.plan_terms import TRIAL
from router.planning.document.plan_usage import PlanUsage

VALID_FOR = timedelta(hours=6)
LineKind = Literal["order", "outlook"]
ReservationCost = Literal["", "amortised", "sunk", "unknown"]
Capacity = Literal["", "unknown"]
PlanStatus = Literal["optimal", "feasible", "infeasible", "time_limit"]


@dataclass(frozen=True, slots=True)
class LineFallback:
    """The on-demand gang on which a spot line ends where the deadline guard says so, or its pool is left.

    ``hours`` are expected to be billed and ``cost_usd`` is expected, moving there included; both are 0 in most runs and
    far more in the others: ``probability`` is how often it is needed. ``max_usd_per_hour`` is its price ceiling.
    ``refusal_probability`` is how often it cannot be had when it is needed, assumed where nobody knows. ``reserved``:
    limits are kept for it, since without it the job would not be as sure as it asks.
    """

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: str
    machines: int
    accelerator: str
    accelerators: int
    usd_per_hour: UsdPerHour
    max_usd_per_hour: UsdPerHour
    hours: Fraction
    cost_usd: Usd
    probability: float
    refusal_probability: float
    reserved: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One period of a job on one offer.

    ``start``..``end`` is held (reserved); ``hours`` are the hours expected to be billed, and ``cost_usd`` =
    ``usd_per_hour`` x ``hours``, rounded once, with what the ``fallback`` of a guarded spot line is expected to cost.
    ``usd_per_hour`` is the marginal price of all ``machines`` (zero on a reservation), ``usd_per_step`` the amortised
    one. A gang with an on-demand core, or of two machine types, has two lines with the same ``gang``, start and end;
    steps stand on the first.

    ``reservation_cost`` says what is known of a reservation's price: amortised, sunk (its amortised price is then
    zero), unknown (None then); "" for any other market. ``policy`` is the one that an accepted quote was made for; None
    where no quote was accepted. ``capacity`` is unknown where no stock or cap of the offer and no limit of the file
    says how many machines there are; they are taken as unlimited.

    ``grams_co2e`` is emitted in the hours billed, and ``carbon_usd`` what it counts; None where no weight of carbon is
    stated. ``carbon_doubt`` says which figures of them stand in for unknown ones.
    """

    job: str
    gang: str
    kind: LineKind
    provisionable: bool
    max_usd_per_hour: UsdPerHour
    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: str
    machines: int
    accelerator: str
    accelerators: int
    start: datetime
    end: datetime
    hours: Fraction
    share: float
    startup: bool
    usd_per_hour: UsdPerHour
    amortised_usd_per_hour: UsdPerHour | None
    steps: int
    steps_per_hour: float
    on_time_steps_per_hour: float
    billed_share: float
    usd_per_step: Usd | None
    cost_usd: Usd
    price_as_of: str
    price_source: str
    weak: str
    reservation_cost: ReservationCost = ""
    policy: RunPolicy | None = None
    capacity: Capacity = ""
    grams_co2e: int | None = None
    carbon_usd: Usd | None = None
    carbon_doubt: str = ""
    fallback: LineFallback | None = None

    @property
    def amortised_usd(self) -> Usd | None:
        """Return the line's cost with a reservation at its amortised price; None where that is not known."""
        rate = self.amortised_usd_per_hour
        if rate is None:
            return None
        own = rate.over(timedelta(microseconds=int(self.hours * 3_600_000_000)))
        return own if self.fallback is None else own + self.fallback.cost_usd

    @property
    def orderable(self) -> bool:
        """Return whether the line is ordered when the plan is applied: no outlook, and a cloud that takes orders."""
        return self.kind == "order" and self.provisionable

    @property
    def at_risk_usd(self) -> Usd:
        """Return the most that the line may cost: its price ceiling, or that of its fallback, for all its time."""
        ceiling = self.max_usd_per_hour
        if self.fallback is not None:
            ceiling = max(ceiling, self.fallback.max_usd_per_hour)
        return ceiling.over(self.end - self.start)


def describe_mix(machines: Iterable[tuple[int, str]]) -> str:
    """Return numbers and types as ``3x p4d.24xlarge + 1x p4de.24xlarge``; "" where all are of one type."""
    by_type: dict[str, int] = {}
    for count, instance_type in machines:
        by_type[instance_type] = by_type.get(instance_type, 0) + count
    if len(by_type) < 2:
        return ""
    return " + ".join(f"{count}x {name}" for name, count in sorted(by_type.items()))


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """Bytes moved into a region for a job; ``what`` is data, stream or checkpoint."""

    job: str
    what: str
    source: str
    to: str
    gib: float
    month: str
    meter: str
    cost_usd: Usd


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A change of one rule that would place a job beside all others where they are, and what it would cost there.

    Both are upper ends: where all are planned again, less may do.
    """

    change: str
    detail: str
    cost_usd: Usd | None


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A job that the plan leaves out, and the reason."""

    job: str
    team: str
    priority: int
    reason: str
    relaxations: tuple[Relaxation, ...]


WorthBasis = Literal["lp_estimate", "resolved", "lp_resolved", "lp_at_least"]


@dataclass(frozen=True, slots=True)
class ShadowPrice:
    """The gain from more of a limit over the whole plan; ``basis`` says how it was found.

    ``usd_per_unit`` is what a unit saves, below zero where the bill rises. For a resolved one, the limit was raised by
    ``raised_by`` units, which ``machines`` of ``instance_type`` take (the gang that is blocked; 0 of a budget), and the
    raise places ``places`` more jobs and saves ``saves_usd`` in all, thresholds excluded. For ``lp_resolved`` and
    ``lp_at_least`` ones that is what the relaxation saves, and at least saves, for as many jobs left out.
    """

    limit: str
    usd_per_unit: Usd
    unit: str
    basis: WorthBasis
    raised_by: int = 1
    machines: int = 0
    instance_type: str = ""
    saves_usd: Usd | None = None
    places: int = 0


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way to run all remaining steps of a job, the other jobs held in place; also the fallback order.

    ``lacks`` says what it lacks against the chosen one ("" when it could be had, only dearer). ``mix`` tells the
    machines of a gang of two types, which ``instance_type`` names one of; "" for any other.
    """

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: str
    machines: int
    accelerator: str
    accelerators: int
    usd_per_hour: UsdPerHour
    usd_per_step: Usd | None
    cost_usd: Usd
    finish: datetime | None
    provisionable: bool
    dominated: bool
    lacks: str
    reservation_cost: ReservationCost = ""
    amortised_usd_per_hour: UsdPerHour | None = None
    grams_co2e: int | None = None
    carbon_usd: Usd | None = None
    mix: str = ""

    @property
    def objective_usd(self) -> Usd:
        """Return the cost with what its carbon counts."""
        return self.cost_usd if self.carbon_usd is None else self.cost_usd + self.carbon_usd


@dataclass(frozen=True, slots=True)
class ConstraintCost:
    """The cost of a rule to its job, the other jobs held in place.

    It is the least cost that was found with all rules less that without the rule; of moves, both count what they add
    to the bill of the others.
    """

    rule: str
    saving_usd: Usd
    instead: str


@dataclass(frozen=True, slots=True)
class DroppedOffers:
    """Offers that cannot serve a job, for one reason; ``example`` is the cheapest an accelerator-hour."""

    reason: str
    offers: int
    example: str


PreemptionKind = Literal["paused", "moved", "left out"]


@dataclass(frozen=True, slots=True)
class Preemption:
    """A running job that does not go on where it runs, and the jobs that go first and hold what it would need.

    ``restart_usd`` is what its start-ups and moves cost; None where it is left out.
    """

    what: PreemptionKind
    by: tuple[str, ...]
    restart_usd: Usd | None

    def __str__(self) -> str:
        jobs = f" for {', '.join(self.by)}" if self.by else ""
        cost = "" if self.restart_usd is None else f"; its restart costs ${self.restart_usd.dollars():,.2f}"
        return f"runs now, and is {self.what}{jobs}{cost}"


@dataclass(frozen=True, slots=True)
class Lateness:
    """By how much a job ends after its deadline, and why no plan holds it.

    It was planned with ``planned_deadline`` instead of its own one.
    """

    by_hours: float
    planned_deadline: datetime
    why: str

    def __str__(self) -> str:
        return f"late: {max(0.1, self.by_hours):,.1f} h after its deadline; {self.why}"


@dataclass(frozen=True, slots=True)
class JobSummary:
    """One job's result. ``runner_up`` is the best alternative, None where there is none.

    ``preemption`` is None unless the job runs now and makes way for others. ``late`` is None unless the job ends after
    its deadline, as its file allows; ``on_time_probability`` is that of its own deadline all the same.
    """

    job: str
    job_digest: str
    team: str
    project: str | None
    cost_usd: Usd
    usd_per_step: Usd | None
    steps: int
    start: datetime | None
    finish: datetime | None
    deadline: datetime | None
    confidence: float
    on_time_probability: float | None
    runner_up: Alternative | None
    alternatives: tuple[Alternative, ...]
    constraint_costs: tuple[ConstraintCost, ...]
    dropped: tuple[DroppedOffers, ...]
    notes: tuple[str, ...]
    preemption: Preemption | None = None
    grams_co2e: int | None = None
    carbon_usd: Usd | None = None
    late: Lateness | None = None

    @property
    def objective_usd(self) -> Usd:
        """Return the cost with what its carbon counts."""
        return self.cost_usd if self.carbon_usd is None else self.cost_usd + self.carbon_usd


@dataclass(frozen=True, slots=True)
class Cut:
    """A phase of planning that ended before it was done.

    ``by`` is the time limit, the phase's own count of rounds or nodes (``work``), or a solver that failed.
    """

    phase: str
    by: Literal["time", "work", "failure"]


@dataclass(frozen=True, slots=True)
class PlanCarbon:
    """The emissions of a plan's lines, and what they count at the weight of the limits file; nobody pays that."""

    usd_per_tonne: Usd
    grams_co2e: int
    carbon_usd: Usd

    @property
    def tonnes(self) -> float:
        """Return the emissions in tonnes."""
        return self.grams_co2e / GRAMS_PER_TONNE


@dataclass(frozen=True, slots=True)
class JobCover:
    """The on-demand dollars of a job that a commitment covers."""

    job: str
    covered_usd: Usd


@dataclass(frozen=True, slots=True)
class CommitmentUse:
    """A commitment within the horizon: dollars committed, used and lost, and the on-demand dollars that it covers."""

    commitment: str
    committed_usd: Usd
    used_usd: Usd
    unused_usd: Usd
    covered_usd: Usd
    jobs: tuple[JobCover, ...]


@dataclass(frozen=True, slots=True)
class TeamStanding:
    """A team's share, its recent use, and the band (1 to 4) that follows: jobs of band 1 are left out last.

    ``factor`` is 1 for a team that used nothing lately and 1/2 for one that used just its share.
    """

    team: str
    share: float
    recent_usd: Usd
    factor: float
    band: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The placement of each job, its cost, and its probability of being on time.

    Tuples are sorted; see ``docs/schema/plan.json``. The digest is not over ``inputs`` and ``usage``. ``carbon`` is
    None where the limits state no weight of it; ``fair_share`` is empty unless the limits file states shares.
    ``cost_usd`` and all costs of jobs and lines are at on-demand prices, of which ``commitments`` cover what they say.
    ``learned`` is what earlier runs said of speeds and interruptions; None where the plan was made without.
    ``restricted_to`` names the teams whose part of a plan this is (:mod:`router.planning.document.restricted_plan`);
    empty for a whole plan. ``name`` says which plans it follows, outside the digest.
    """

    as_of: datetime
    expires_at: datetime
    book_digest: str
    book_as_of: datetime
    horizon_start: datetime
    horizon_end: datetime
    status: PlanStatus
    stage_one_proven: bool
    time_limit_hit: bool
    cost_usd: Usd
    orders_usd: Usd
    threshold_usd: Usd
    bound_usd: Usd
    gap: float
    gap_asked: float
    solver: str
    lines: tuple[Line, ...]
    moves: tuple[PlannedMove, ...]
    unplaced: tuple[Unplaced, ...]
    shadow_prices: tuple[ShadowPrice, ...]
    jobs: tuple[JobSummary, ...]
    inputs: PlanInputs
    usage: PlanUsage
    cuts: tuple[Cut, ...] = ()
    fair_share: tuple[TeamStanding, ...] = ()
    carbon: PlanCarbon | None = None
    commitments: tuple[CommitmentUse, ...] = ()
    learned: Experience | None = None
    restricted_to: tuple[str, ...] = ()
    name: str = TRIAL

    @property
    def covered_usd(self) -> Usd:
        """Return the part of the cost that commitments cover: it is paid already."""
        return Usd.total(use.covered_usd for use in self.commitments)

    @property
    def objective_usd(self) -> Usd:
        """Return what was minimised: cost without what commitments cover, thresholds, and what carbon counts."""
        counted = self.cost_usd - self.covered_usd + self.threshold_usd
        return counted if self.carbon is None else counted + self.carbon.carbon_usd

    @property
    def at_risk_usd(self) -> Usd:
        """Return the most that the orders may cost, as ``plan check`` counts it."""
        return Usd.total(line.at_risk_usd for line in self.lines if line.orderable)
