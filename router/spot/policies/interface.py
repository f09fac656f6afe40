"""What to do with a gang at a tick or when something happened: stay, save, move, wait. Pure.

A policy sees one job (:class:`Observation`) and says what may be done; where several jobs move at once,
:func:`router.planning.replacement.reassign` picks among the places that each one's policy allows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from fractions import Fraction
from typing import Protocol

from pricing.money import Usd, UsdPerHour
from pricing.places import Market

_LONGEST_HOURS = 1e6  # beyond it a duration is as good as never
_NONE = timedelta(0)
_NOTHING = Usd(0)
_LEAST_SAVING = Usd(1_000_000_000)
_LEAST_SHARE = Fraction(1, 10)
_BACK_HOURS = 1.0
Pool = tuple[str, str, str, str]  # cloud, region, zone ("" for none), instance type


class Rule(StrEnum):
    """The policies that a person may choose, by name (:mod:`router.spot.live.selection`)."""

    GREEDY = "greedy"
    SPOT_OR_WAIT = "spot-or-wait"
    TIME_SLICED = "time-sliced"
    UNIFORM_PROGRESS = "uniform-progress"
    UNIFORM_PROGRESS_PLAIN = "uniform-progress-plain"
    FAILOVER_PROGRESS = "uniform-progress-failover"
    RATE_PROGRESS = "uniform-progress-rate"
    RATE_PER_USD_PROGRESS = "uniform-progress-rate-per-usd"
    SKYNOMAD = "skynomad"
    FORESIGHT = "foresight"


# Quotes are made for this policy, so it runs wherever a deploy file names none.
QUOTED_RULE = Rule.FORESIGHT


class Event(StrEnum):
    """Why the policy is asked. ``REBALANCE``, and ``MAINTENANCE`` without a time, are hints; ``HEALTH``: a machine of
    the gang is not to be trusted; ``LOST``: the gang is gone; ``ENDED_SHORT``: a place could not be had whole.
    ``LAUNCHED``: what it decided is done, as the observation says; it may say what to ask, and nothing else."""

    TICK = "tick"
    INTERRUPTION = "interruption"
    LOST = "lost"
    REBALANCE = "rebalance"
    HEALTH = "health"
    MAINTENANCE = "maintenance"
    PRICE = "price"
    ENDED_SHORT = "ended_short"
    LAUNCHED = "launched"


def span(hours: float) -> timedelta:
    """Hours as a duration; what is longer than a century, infinity too, is cut there."""
    return timedelta(hours=min(hours, _LONGEST_HOURS))


@dataclass(frozen=True, slots=True)
class Chances:
    """Of a place, for who reckons with its weather himself. ``steady_hours``: to do all that is left from the last
    confirmed checkpoint if nothing is ever lost; ``lost_hours``: of work, that a loss costs.

    Of spot: the ``pools`` that its machines are of, and ``back_hours``, how long one that ran short takes to have
    machines again, as far as is known of it without having watched it.
    """

    steady_hours: float
    lost_hours: float = 0.0
    pools: tuple[Pool, ...] = ()
    back_hours: float = _BACK_HOURS


@dataclass(frozen=True, slots=True)
class Place:
    """Where the rest of the job could be done.

    ``hours``: to do all that is left from the last *confirmed* checkpoint, there, once it runs (on-time hours where the
    job has a deadline). Before that come ``transfer_hours`` for checkpoint and data, and ``startup_hours`` for all
    else from the decision to the first new step: machines, boot, restore, warm-up. A launch that takes longer is to be
    given up. ``expected_usd``: for all the rest, start-up and moves too; for the place where the job runs without them.
    ``moves_usd``: of that, bringing checkpoint and data there.

    ``site``: the same for the same machines in the same ``region`` on whatever market ("": the key). ``usd_since``:
    since when the price is known to be what it is; ``earlier_usd``: prices before that with when they began, oldest
    first. ``chances``: None where nobody knows them.
    """

    key: str
    market: Market
    usd_per_hour: UsdPerHour
    hours: float
    startup_hours: float
    expected_usd: Usd
    transfer_hours: float = 0.0
    interruptions_per_hour: float = 0.0
    moves_usd: Usd = _NOTHING
    site: str = ""
    region: str = ""
    usd_since: datetime | None = None
    earlier_usd: tuple[tuple[datetime, UsdPerHour], ...] = ()
    chances: Chances | None = None

    @property
    def sure(self) -> bool:
        """Whether the cloud leaves it to us once we have it: anything but spot."""
        return self.market is not Market.SPOT

    @property
    def delay(self) -> timedelta:
        """d: from the decision to the first new step."""
        return span(self.startup_hours + self.transfer_hours)

    @property
    def needs(self) -> timedelta:
        """W + d: from the decision to the last step."""
        return span(self.hours) + self.delay


@dataclass(frozen=True, slots=True)
class Here:
    """Where the gang is, also while it starts there.

    ``leaves_in``: how long until the machines are taken; None: nobody said so. ``saved``: what it has done is
    confirmed to be saved, or cannot be any more. ``unsaved_hours``: work done there since the last confirmed
    checkpoint.
    """

    place: Place
    leaves_in: timedelta | None = None
    saved: bool = False
    unsaved_hours: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a place said: it could be had whole (``up``), or not. ``launch``: to whoever tried to launch there; else to
    a question."""

    key: str
    at: datetime
    up: bool
    launch: bool = True


@dataclass(frozen=True, slots=True)
class Life:
    """The job was in the place ``key`` from ``since``, with its first new step at ``ready``, until ``until`` (None: it
    is there). ``taken``: it was taken away, or lost. ``share_from`` and ``share_to``: of the work that there was when
    the job began, how much was left then, and at the end."""

    key: str
    since: datetime
    ready: datetime
    until: datetime | None
    taken: bool
    share_from: float
    share_to: float


@dataclass(frozen=True, slots=True)
class Observation:
    """All that a policy may know. ``places`` are those that could be had now, as far as is known; ``closed`` those that
    could not lately and are not to be asked yet.

    The next time it is asked is at most ``tick`` (above zero, else ValueError) later. ``save``: how long leaving a
    running gang takes, with its last checkpoint.

    What was: ``began``, when the job did (None: now), ``share`` of the work of then that is left, from the last
    confirmed checkpoint; ``lives`` in order, the last one open where the gang is; ``answers`` in order.
    """

    now: datetime
    deadline: datetime | None
    tick: timedelta
    event: Event
    here: Here | None
    places: tuple[Place, ...]
    save: timedelta = _NONE
    closed: tuple[Place, ...] = ()
    began: datetime | None = None
    share: float = 1.0
    lives: tuple[Life, ...] = ()
    answers: tuple[Answer, ...] = ()

    def __post_init__(self) -> None:
        if self.tick <= _NONE:
            raise ValueError("a tick must be longer than nothing")

    @property
    def left(self) -> timedelta | None:
        """Until the deadline; None without one."""
        return None if self.deadline is None else self.deadline - self.now

    @property
    def age(self) -> timedelta | None:
        """Since when the gang is where it is; None where it is nowhere, or that is not known."""
        return None if self.here is None or not self.lives else self.now - self.lives[-1].since

    @property
    def must_go(self) -> bool:
        """Whether the gang cannot stay where it is, or is not there any more."""
        lost = self.event in (Event.LOST, Event.HEALTH, Event.INTERRUPTION)
        return self.here is None or lost or self.here.leaves_in is not None

    @property
    def last_words(self) -> timedelta:
        """How long the gang that is there may still take to save before it leaves."""
        if self.here is None or self.here.saved or self.event is Event.LOST:
            return _NONE
        return self.save if self.here.leaves_in is None else min(self.save, max(_NONE, self.here.leaves_in))


@dataclass(frozen=True, slots=True)
class Stay:
    """Go on as it is. ``late``: the deadline will be missed as far as anybody can tell; the same below."""

    why: str = ""
    late: bool = False


@dataclass(frozen=True, slots=True)
class Save:
    """Have all ranks save now, and go on."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """Leave (saving first what can be saved) for one of these places and no other, best first; for none: stop, and wait
    until the next tick.

    ``late``: none of them surely meets the deadline; the sooner it is over the better, whatever it costs. ``keep``:
    what runs goes on until one of them is had, and where none can be. ``ordered``: a place is to be taken only where
    those before it cannot be had; else the order is a preference.
    """

    to: tuple[str, ...]
    why: str = ""
    late: bool = False
    keep: bool = False
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Nowhere to go, or not worth it: ask again then at the latest."""

    until: datetime
    why: str = ""


@dataclass(frozen=True, slots=True)
class Probe:
    """Go on as it is, and ask these places whether they could be had. Who cannot ask does nothing; what is answered is
    among the answers next time."""

    keys: tuple[str, ...]
    why: str = ""


Decision = Stay | Save | Move | Wait | Probe


class Policy(Protocol):
    """What decides. The same observation gives the same decision."""

    def decide(self, o: Observation) -> Decision:
        """What to do now."""
        ...


def by_cost(places: Iterable[Place]) -> tuple[str, ...]:
    """Keys, least expected dollars first."""
    return tuple(p.key for p in sorted(places, key=lambda p: (p.expected_usd, p.key)))


def by_finish(places: Iterable[Place]) -> tuple[str, ...]:
    """Keys, soonest done first."""
    return tuple(p.key for p in sorted(places, key=lambda p: (p.needs, p.expected_usd, p.key)))


@dataclass(frozen=True, slots=True)
class Greedy:
    """Stays while it can; when it must go, wherever the rest is cheapest among the places that are in time.

    A change of prices moves it only where that saves at least ``saving`` and that ``share`` of what is left to pay.
    Hints make it save; with ``heeds_hints`` it leaves then, before anything is taken.
    """

    saving: Usd = _LEAST_SAVING
    share: Fraction = _LEAST_SHARE
    heeds_hints: bool = False

    def decide(self, o: Observation) -> Decision:
        """See :class:`Policy`."""
        here = o.here
        if o.event is Event.LAUNCHED:
            return Stay() if here is not None else Wait(o.now + o.tick)
        if here is None or o.event is Event.LOST:
            return _go(o, "it is not running")
        if o.must_go or (self.heeds_hints and _is_hint(o.event)):
            return _save_first(here, o.event.value) or _go(o, o.event.value)
        if o.event is Event.PRICE:
            return self._cheaper(o, here)
        if _is_hint(o.event):
            return _save_first(here, o.event.value) or Stay("a hint, nothing is taken yet")
        return Stay()

    def _cheaper(self, o: Observation, here: Here) -> Decision:
        paid = here.place.expected_usd
        least = max(self.saving, Usd(int(self.share * paid.nanos)))
        worth = [p for p in o.places if p.key != here.place.key and paid - p.expected_usd >= least and _in_time(o, p)]
        if not worth:
            return Stay("no other place saves enough")
        return _save_first(here, "before moving") or Move(by_cost(worth), f"saves at least ${least.dollars():,.2f}")


def _is_hint(event: Event) -> bool:
    return event in (Event.REBALANCE, Event.MAINTENANCE)


def _save_first(here: Here, why: str) -> Save | None:
    gone = here.leaves_in is not None and here.leaves_in <= _NONE
    return None if here.saved or gone else Save(why)


def _go(o: Observation, why: str) -> Move | Wait:
    if not o.places:
        return Wait(o.now + o.tick, f"{why}, and no place is left")
    in_time = [p for p in o.places if _in_time(o, p)]
    return Move(by_cost(in_time), why) if in_time else Move(by_finish(o.places), f"{why}; late anywhere", late=True)


def _in_time(o: Observation, place: Place) -> bool:
    return o.left is None or o.last_words + place.needs <= o.left
