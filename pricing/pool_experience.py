"""Records of interruptions by pool: how long gangs (or probes) lived there, how often that ended, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from pricing.hazard import HazardShape, operational_time
from pricing.offers import MachinePool
from pricing.units import hours

#: What was seen so long ago counts half. A day or more predicts alike (docs/design/interruption-risk.md).
HALF_LIFE: Final = timedelta(days=7)
_NONE: Final = timedelta(0)


class ExperienceKind(StrEnum):
    """The origin of a record: gangs that were held, or observations of whether machines could be had."""

    GANGS = "gangs"
    AVAILABILITY = "availability"


class LossReason(StrEnum):
    """A reason for the loss of machines. Only losses of capacity say something of the pool's hazard."""

    CAPACITY = "capacity"
    PRICE = "price_limit"
    MAINTENANCE = "maintenance"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class PoolLosses(MachinePool):
    """How often gangs of one pool were lost for one reason; older losses count less.

    ``reason`` None: none is recorded, so that they count as losses of capacity.
    """

    reason: LossReason | None
    losses: float


@dataclass(frozen=True, slots=True)
class PoolExperience(MachinePool):
    """The time in which gangs of ``machines`` machines of one pool lived, and how often they were interrupted.

    ``hours`` is that time; ``exposure`` is the same in operational time (:func:`pricing.hazard.operational_time`, every
    life from its own age 0). ``interruptions`` are losses of capacity alone (:class:`LossReason`). Older lives and
    interruptions count less, both alike. ``runs`` is the number of lives, ``first_at`` and ``last_at`` when the
    earliest and the latest of them ended. ``waited_hours`` is the time in which the pool was seen to have no machines,
    and ``waits`` how often it then had some again; both weigh the same, and are 0 where nobody looked.
    """

    machines: int
    hours: float
    exposure: float
    interruptions: float
    runs: int
    first_at: datetime
    last_at: datetime
    kind: ExperienceKind = ExperienceKind.GANGS
    waited_hours: float = 0.0
    waits: float = 0.0


@dataclass(frozen=True, slots=True)
class Exposure:
    """Hours in which a machine could be had, the same as operational time, how often that ended, and lives seen.

    ``waited_hours`` are those in which none could be had, ``waits`` how often that ended.
    """

    hours: float = 0.0
    losses: float = 0.0
    operational: float = 0.0
    lives: int = 0
    waited_hours: float = 0.0
    waits: float = 0.0


def memory_weight(at: datetime, now: datetime) -> float:
    """Return what something of that moment counts now: a half after :data:`HALF_LIFE`."""
    return float(2.0 ** (-((now - at) / HALF_LIFE)))


def measure_exposure(
    observations: Iterable[tuple[datetime, bool]], longest_gap: timedelta, now: datetime | None = None
) -> Exposure:
    """Return the exposure of one pool, observed at strictly increasing moments (ValueError otherwise).

    An observation holds until the next: an available one counts its whole interval, at the age that it has since the
    pool came back, and a loss when the next is not available; one without machines counts as waiting. An interval
    longer than ``longest_gap`` counts neither, since nobody observed the pool, and ages begin anew after it. With
    ``now``, what is older counts less (:func:`memory_weight`). A probe asks for a fresh machine, and a pool that has
    none to give may leave running ones alone; where both were recorded, the two agree (docs/interruptions.md).
    """
    exposed = lost = operational = waited = waits = 0.0
    lives, born = 0, None
    before: tuple[datetime, bool] | None = None
    for at, available in observations:
        gap = _NONE if before is None else at - before[0]
        if before is not None and gap <= _NONE:
            raise ValueError(f"observations are not in the order of time at {at.isoformat()}")
        if before is None or gap > longest_gap:
            born = at if available else None
            lives += available
        else:
            weight = 1.0 if now is None else memory_weight(before[0], now)
            if not before[1]:
                waited += weight * hours(gap)
                waits += weight if available else 0.0
            elif born is not None:
                exposed += weight * hours(gap)
                operational += weight * operational_time(HazardShape.FALLING, hours(gap), hours(before[0] - born))
                lost += 0.0 if available else weight
            if available and not before[1]:
                born, lives = at, lives + 1
        before = (at, available)
    return Exposure(exposed, lost, operational, lives, waited, waits)
