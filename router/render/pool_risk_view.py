"""Values that the command, the page and the API show of the interruption risk of spot pools. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pricing.hazard import Hazard, HazardShape, operational_time
from pricing.machines import Machine
from pricing.offers import Offer
from pricing.pool_experience import ExperienceKind, LossReason, PoolExperience, PoolLosses
from pricing.risk import GangRisk

#: The hours for which the chance of no interruption is told, and the ages at which the rate is.
TOLD_CHANCES: Final = (8.0, 24.0)
TOLD_AGES: Final = (0.0, 1.0, 4.0, 12.0, 24.0)
#: The words by which a prior says that it rests on no published measurement (``weak`` of interruption_priors.csv).
UNPUBLISHED: Final = "nobody has published any"


@dataclass(frozen=True, slots=True)
class PossibleWatch:
    """Something that may be seen of a pool: interruptions, and the lives of one machine in which they fell."""

    what: str
    interruptions: int
    lives: int
    hours: float

    def exposure(self, shape: HazardShape) -> float:
        """Return the operational time of these lives, each from its own age 0."""
        return self.lives * operational_time(shape, self.hours)


WATCHES: Final = (
    PossibleWatch("one interruption tomorrow, an hour after the start", 1, 1, 1.0),
    PossibleWatch("one interruption after a day of running", 1, 1, 24.0),
    PossibleWatch("three interruptions, each after 2 h", 3, 3, 2.0),
    PossibleWatch("four machines for 10 h without one", 0, 4, 10.0),
    PossibleWatch("one machine for a week without one", 0, 1, 168.0),
)


@dataclass(frozen=True, slots=True)
class RiskChange:
    """The effect that seeing something would have: the median level and the chance of no interruption in 24 h."""

    watch: PossibleWatch
    exposure: float
    median: float
    chance: float


REASON_WORDS: Final = {
    LossReason.CAPACITY: "capacity",
    LossReason.PRICE: "own price limit",
    LossReason.MAINTENANCE: "maintenance",
    LossReason.HOST: "host failure",
}


@dataclass(frozen=True, slots=True)
class PoolRisk:
    """The interruption risk of one machine of a spot pool, with the records of the pool itself, and losses by reason.

    ``losses`` are those of gangs; only losses of capacity are in the risk.
    """

    offer: Offer
    machine: Machine
    risk: GangRisk
    experience: tuple[PoolExperience, ...]
    losses: tuple[PoolLosses, ...] = ()

    @property
    def place(self) -> str:
        """Return cloud and zone, or region where the offer is of no zone."""
        return f"{self.offer.cloud}/{self.offer.zone or self.offer.region}"

    @property
    def pool(self) -> str:
        """Return the pool as commands take it: ``aws/us-east-1/use1-az1/p5.48xlarge``, without a zone where none is."""
        offer = self.offer
        return "/".join(filter(None, (offer.cloud, offer.region, offer.zone, offer.instance_type)))

    @property
    def hazard(self) -> Hazard:
        return self.risk.machine

    @property
    def median(self) -> float:
        return self.hazard.quantile(0.5)

    @property
    def interval(self) -> tuple[float, float]:
        """Return the levels that hold four times in five."""
        return self.hazard.interval

    @property
    def is_constant(self) -> bool:
        """Return whether the level is a rate an hour, the same at any age."""
        return self.hazard.shape is HazardShape.CONSTANT

    @property
    def is_unpublished(self) -> bool:
        """Return whether nobody has published any measurement of such machines, and the pool's own is not enough."""
        return UNPUBLISHED in self.risk.weak

    @property
    def interruptions(self) -> float:
        """Return the interruptions recorded in the pool itself; older ones count less."""
        return sum(record.interruptions for record in self.experience)

    @property
    def hours(self) -> float:
        """Return the hours recorded in the pool itself; older ones count less."""
        return sum(record.hours for record in self.experience)

    @property
    def losses_by_reason(self) -> dict[LossReason, float | None]:
        """Return the losses recorded in the pool itself by reason; None: no record could show one for that reason.

        Observations of availability know losses of capacity alone; gangs know all reasons. Older ones count less.
        """
        has_gangs = any(record.kind is ExperienceKind.GANGS for record in self.experience)
        counts: dict[LossReason, float | None] = {
            reason: sum(row.losses for row in self.losses if row.reason is reason) if has_gangs else None
            for reason in LossReason
        }
        return {**counts, LossReason.CAPACITY: self.interruptions if self.experience else None}

    @property
    def without_reason(self) -> float:
        """Return the losses without a recorded reason, which count as losses of capacity."""
        return sum(row.losses for row in self.losses if row.reason is None)

    @property
    def told_losses(self) -> tuple[tuple[str, str], ...]:
        """Return a row in words for each reason: its name, and how many losses; none without a record."""
        if not self.experience:
            return ()
        rows = []
        for reason, count in self.losses_by_reason.items():
            text = "not recorded" if count is None else f"{count:.2g}"
            if reason is LossReason.CAPACITY and self.without_reason:
                text += f", {self.without_reason:.2g} of them without a recorded reason"
            rows.append((REASON_WORDS[reason], text))
        return tuple(rows)

    @property
    def basis(self) -> tuple[str, ...]:
        """Return the levels of evidence, nearest first."""
        return tuple(dict.fromkeys(row.level for row in self.risk.evidence))

    @property
    def changes(self) -> tuple[RiskChange, ...]:
        """Return what each of :data:`WATCHES` would make of it; nothing changes a rate that an owner states."""
        if len(self.hazard.levels) == 1:
            return ()
        found = []
        for watch in WATCHES:
            exposure = watch.exposure(self.hazard.shape)
            after = self.hazard.observed(watch.interruptions, exposure)
            found.append(RiskChange(watch, exposure, after.quantile(0.5), after.survival(TOLD_CHANCES[-1])))
        return tuple(found)
