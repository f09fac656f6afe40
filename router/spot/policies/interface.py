"""The interface of a policy for a gang: observations at a tick or an event, and decisions. Pure.

A policy sees one job (:class:`Observation`) and returns a decision: stay, save, move, wait or probe. Where several jobs
move at once, :func:`router.planning.improve.replacement.place_gangs` picks among the options that each one's policy
allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.spot.availability.hazard_model import LossRates

_LONGEST_HOURS = 1e6  # longer durations count as never
_NONE = timedelta(0)
_NOTHING = Usd(0)
_NEVER_LOST = LossRates.flat(0.0, 0.0)
_BACK_HOURS = 1.0
SpotPoolKey = tuple[str, str, str, str]  # cloud, region, zone ("" for none), instance type


class PolicyEvent(StrEnum):
    """The reason why the policy is asked.

    ``REBALANCE``, and ``MAINTENANCE`` without a time, are hints. ``HEALTH``: a machine of the gang is not to be
    trusted. ``LOST``: the gang is gone. ``ENDED_SHORT``: an option could not be obtained whole. ``LAUNCHED``: the
    decision has been applied, as the observation says; the policy may ask for probes, and nothing else.
    """

    TICK = "tick"
    INTERRUPTION = "interruption"
    LOST = "lost"
    REBALANCE = "rebalance"
    HEALTH = "health"
    MAINTENANCE = "maintenance"
    PRICE = "price"
    ENDED_SHORT = "ended_short"
    LAUNCHED = "launched"


def to_duration(hours: float) -> timedelta:
    """Return hours as a duration; what is longer than a century, infinity too, is cut there."""
    return timedelta(hours=min(hours, _LONGEST_HOURS))


@dataclass(frozen=True, slots=True)
class AvailabilityEstimate:
    """Availability of an option, for a policy that models losses itself.

    ``steady_hours`` is the time for all that is left from the last confirmed checkpoint if nothing is ever lost;
    ``lost_hours`` is the work that a loss costs.

    For spot, ``pools`` are the pools of its machines, and ``back_hours`` is how long a pool that ran short takes to
    have machines again, as far as is known without having observed it.
    """

    steady_hours: float
    lost_hours: float = 0.0
    pools: tuple[SpotPoolKey, ...] = ()
    back_hours: float = _BACK_HOURS


@dataclass(frozen=True, slots=True)
class PlacementOption:
    """One placement option for the rest of the job.

    ``hours`` is the time for all that is left from the last *confirmed* checkpoint, there, once the job runs (at a
    speed that is sure enough where the job has a deadline; on spot without interruptions). Before that come
    ``transfer_hours`` for checkpoint and data, and ``startup_hours`` for all else from the decision to the first new
    step: machines, boot, restore, warm-up. A launch that takes longer is to be given up. ``expected_usd`` is for all
    the rest, start-up and moves included; for the option where the job runs it is without them. ``moves_usd`` is the
    part of it for bringing checkpoint and data there.

    ``site`` is the same for the same machines in the same ``region`` on whatever market ("": the key). ``usd_since`` is
    since when the price is known to be what it is; ``earlier_usd`` are prices before that with the times when they
    began, oldest first. ``chances`` is the availability estimate; None where there is none. ``losses`` are how often
    spot is lost there; ``knows_losses`` says that they rest on the availability history of the pool.
    """

    key: str
    market: Market
    usd_per_hour: UsdPerHour
    hours: float
    startup_hours: float
    expected_usd: Usd
    transfer_hours: float = 0.0
    losses: LossRates = _NEVER_LOST
    knows_losses: bool = False
    moves_usd: Usd = _NOTHING
    site: str = ""
    region: str = ""
    usd_since: datetime | None = None
    earlier_usd: tuple[tuple[datetime, UsdPerHour], ...] = ()
    chances: AvailabilityEstimate | None = None

    @property
    def sure(self) -> bool:
        """True if the cloud does not preempt it once it is obtained: anything but spot."""
        return self.market is not Market.SPOT

    @property
    def delay(self) -> timedelta:
        """d: the time from the decision to the first new step."""
        return to_duration(self.startup_hours + self.transfer_hours)

    @property
    def needs(self) -> timedelta:
        """W + d: the time from the decision to the last step."""
        return to_duration(self.hours) + self.delay


@dataclass(frozen=True, slots=True)
class PolicyZone:
    """A zone of the blind policy; at least one of the two options is there."""

    spot: PlacementOption | None
    demand: PlacementOption | None

    @property
    def first(self) -> PlacementOption:
        place = self.spot or self.demand
        assert place is not None
        return place

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(place.key for place in (self.spot, self.demand) if place is not None)


@dataclass(frozen=True, slots=True)
class CurrentPlacement:
    """The current placement of the gang, also while it starts there.

    ``leaves_in`` is how long until the machines are preempted; None: no notice was given. ``saved``: its work is
    confirmed to be saved, or can no longer be saved. ``unsaved_hours`` is the work done there since the last confirmed
    checkpoint. ``checkpoint_transfer_hours`` is how long the transfer of that checkpoint to here takes: to save here
    brings it away from the options that are near it now, and at most that far.
    """

    place: PlacementOption
    leaves_in: timedelta | None = None
    saved: bool = False
    unsaved_hours: float = 0.0
    checkpoint_transfer_hours: float = 0.0


@dataclass(frozen=True, slots=True)
class AvailabilityAnswer:
    """The answer of an option: it could be obtained whole (``up``), or not.

    ``launch`` marks the answer to a launch; else it is the answer to a probe.
    """

    key: str
    at: datetime
    up: bool
    launch: bool = True


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """One past attempt: the job was at the option ``key`` from ``since`` until ``until`` (None: it still is).

    Its first new step was at ``ready``. ``taken``: it was preempted, or lost. ``share_from`` and ``share_to`` are the
    shares of the job's initial work that were left then, and at the end.
    """

    key: str
    since: datetime
    ready: datetime
    until: datetime | None
    taken: bool
    share_from: float
    share_to: float


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a policy may know of one job.

    ``places`` are the options that are available now, as far as is known; ``closed`` those that were not available
    lately and are not to be tried yet.

    The policy is asked again at most ``tick`` later (above zero, else ValueError). ``save`` is how long leaving a
    running gang takes, with its last checkpoint.

    The past: ``began``, when the job began (None: now); ``share`` of the initial work that is left, from the last
    confirmed checkpoint; ``lives``, the attempts in order, the last one open where the gang runs; ``answers`` in order.
    """

    now: datetime
    deadline: datetime | None
    tick: timedelta
    event: PolicyEvent
    here: CurrentPlacement | None
    places: tuple[PlacementOption, ...]
    save: timedelta = _NONE
    closed: tuple[PlacementOption, ...] = ()
    began: datetime | None = None
    share: float = 1.0
    lives: tuple[PastAttempt, ...] = ()
    answers: tuple[AvailabilityAnswer, ...] = ()

    def __post_init__(self) -> None:
        if self.tick <= _NONE:
            raise ValueError("a tick must be longer than zero seconds")

    @property
    def left(self) -> timedelta | None:
        return None if self.deadline is None else self.deadline - self.now

    @property
    def age(self) -> timedelta | None:
        """The time since the gang began where it is; None where it runs nowhere, or that is not known."""
        return None if self.here is None or not self.lives else self.now - self.lives[-1].since

    @property
    def must_go(self) -> bool:
        """True if the gang cannot stay where it is, or is not there any more."""
        lost = self.event in (PolicyEvent.LOST, PolicyEvent.HEALTH, PolicyEvent.INTERRUPTION)
        return self.here is None or lost or self.here.leaves_in is not None

    @property
    def last_words(self) -> timedelta:
        """The time that the gang may still take to save before it leaves."""
        if self.here is None or self.here.saved or self.event is PolicyEvent.LOST:
            return _NONE
        return self.save if self.here.leaves_in is None else min(self.save, max(_NONE, self.here.leaves_in))


@dataclass(frozen=True, slots=True)
class StayDecision:
    """Decision to go on unchanged.

    ``late``: the deadline will be missed as far as can be known; the same below.
    """

    why: str = ""
    late: bool = False


@dataclass(frozen=True, slots=True)
class SaveDecision:
    """Decision to have all ranks save now, and go on."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class MoveDecision:
    """Decision to leave for one of these options and no other, best first.

    What can be saved is saved first. Without options: stop, and wait until the next tick.

    ``late``: none of them surely meets the deadline; the job is to finish as soon as possible, whatever it costs.
    ``keep``: what runs goes on until one of them is obtained, and where none can be. ``ordered``: an option is to be
    taken only where those before it cannot be obtained; else the order is a preference.
    """

    to: tuple[str, ...]
    why: str = ""
    late: bool = False
    keep: bool = False
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class WaitDecision:
    """Decision to run nowhere, because nothing is available or worth it.

    The policy is asked again at ``until`` at the latest.
    """

    until: datetime
    why: str = ""


@dataclass(frozen=True, slots=True)
class ProbeDecision:
    """Decision to go on unchanged and to ask whether these options are available.

    A caller that cannot probe does nothing; the answers are in the next observation.
    """

    keys: tuple[str, ...]
    why: str = ""


Decision = StayDecision | SaveDecision | MoveDecision | WaitDecision | ProbeDecision


class Policy(Protocol):
    """A policy of one job; the same observation gives the same decision."""

    def decide(self, o: Observation) -> Decision:
        """Return the decision for now."""
        ...


def sort_by_cost(places: Iterable[PlacementOption]) -> tuple[str, ...]:
    """Return the keys, least expected dollars first."""
    return tuple(p.key for p in sorted(places, key=lambda p: (p.expected_usd, p.key)))


def sort_by_finish(places: Iterable[PlacementOption]) -> tuple[str, ...]:
    """Return the keys, soonest done first."""
    return tuple(p.key for p in sorted(places, key=lambda p: (p.needs, p.expected_usd, p.key)))
