"""The interface of a policy that does not see spot availability: what it is told, and what it may request.

The simulator that plays such policies is :mod:`router.spot.simulator.blind_simulator`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np

from router.spot.simulator.inputs import HOUR_S, SimulationInputs, Task, ZoneMoveCosts, validate_speeds
from router.spot.simulator.simulation import NOWHERE, ON_DEMAND, InstanceKinds
from router.spot.simulator.traces import Bools, Floats, Ints

NEVER: Final = -1


@dataclass(frozen=True, eq=False, slots=True)
class SimulationSpec:
    """The specification given to a policy before it begins: the job and the zones, but no availability.

    ``starts`` is the tick of the series at which each window begins. ``on_demand_usd`` is by [zone], in dollars an hour
    of the whole gang, infinite where on-demand is not sold.

    ``speed`` and ``launch_s`` are those of the simulation inputs, see
    :func:`router.spot.simulator.inputs.validate_speeds`, which raises ValueError for those that it refuses.
    """

    task: Task
    tick_s: int
    starts: Ints
    zones: tuple[str, ...]
    regions: tuple[str, ...]
    ways: ZoneMoveCosts
    on_demand_usd: Floats
    speed: Floats
    launch_s: Ints

    def __post_init__(self) -> None:
        validate_speeds(len(self.zones), self.speed, self.launch_s)

    @classmethod
    def of(cls, inputs: SimulationInputs) -> SimulationSpec:
        """Return the specification of these simulation inputs."""
        zones = tuple(z.zone for z in inputs.series.zones)
        ways, usd = inputs.ways, inputs.on_demand_usd.copy()
        return cls(
            inputs.task,
            inputs.tick_s,
            inputs.starts.copy(),
            zones,
            inputs.series.regions,
            ways,
            usd,
            inputs.speed.copy(),
            inputs.launch_s.copy(),
        )

    @property
    def ticks(self) -> int:
        """The number of ticks of a window."""
        return self.task.ticks(self.tick_s)

    @property
    def worst_s(self) -> int:
        """d: the seconds of the longest launch."""
        return self.task.changeover_s + self.ways.longest_s + int(self.launch_s.max())


@dataclass(eq=False, slots=True)
class BlindView:
    """The start of a tick as a blind policy sees it, with one entry a window.

    Zones are in the order of the series. The arrays are read-only for the policy.

    ``tick`` is the tick of the window, of ``ticks`` before the deadline. ``window`` numbers the windows of the
    specification; finished windows are removed. ``left_s`` is the seconds of work left. ``zone`` is where the job runs,
    or last ran. ``lost`` says whether its spot instance was preempted at the start of this tick. ``home`` is where the
    checkpoint is, ``NOWHERE`` at first. ``delay_s`` is the part of the changeover that has still to pass. ``since`` is
    the tick of the last launch.

    The others are by [zone, window]: ``spot_usd``; ``answer_tick``, the tick of the zone's last answer, or ``NEVER``;
    ``was_up``, that answer; ``tried``, where spot was tried in this tick or, before the launches of this tick, in the
    last one.
    """

    tick: int
    ticks: int
    window: Ints
    left_s: Ints
    kind: InstanceKinds
    zone: Ints
    lost: Bools
    home: Ints
    delay_s: Ints
    since: Ints
    spot_usd: Floats
    answer_tick: Ints
    was_up: Bools
    tried: Bools

    def at(self, rows: Ints) -> BlindView:
        """Return the view of these rows of its windows."""
        own = {name: getattr(self, name)[rows] for name in WINDOW_FIELDS}
        zones = {name: getattr(self, name)[:, rows] for name in ZONE_FIELDS}
        return BlindView(self.tick, self.ticks, **own, **zones)


WINDOW_FIELDS: Final = ("window", "left_s", "kind", "zone", "lost", "home", "delay_s", "since")
ZONE_FIELDS: Final = ("spot_usd", "answer_tick", "was_up", "tried")


@dataclass(eq=False, slots=True)
class LaunchRequest:
    """The launches that a policy requests for a tick, in each window.

    ``spot`` is by [zone, window]: spot is tried where it is finite, the least first, until one launches; a spot
    instance that runs counts as launched. If none launches, the job goes on demand in zone ``demand``, unless that is
    ``NOWHERE``; else what runs goes on. Where ``leave`` is set, what runs is stopped first, whatever comes of the
    request.
    """

    spot: Floats
    demand: Ints
    leave: Bools

    @classmethod
    def nothing(cls, view: BlindView) -> LaunchRequest:
        """Return a request that changes nothing."""
        count = view.window.size
        return cls(
            np.full(view.spot_usd.shape, np.inf), np.full(count, NOWHERE, dtype=np.int64), np.zeros(count, dtype=bool)
        )


class PolicySession(Protocol):
    """One policy at work in one simulation, called tick by tick."""

    def act(self, view: BlindView, /) -> LaunchRequest:
        """Return the launches requested at the start of a tick."""
        ...

    def look(self, view: BlindView, /) -> Bools | None:
        """Return by [zone, window] which zones to probe once the tick's launches are known; None for none.

        The answers are in ``view`` at the next tick; where no answer could be obtained, ``answer_tick`` there is older
        than this tick. Where spot runs, a probe is neither made nor paid.
        """
        ...


@runtime_checkable
class ReplayableSession(PolicySession, Protocol):
    """A session that can be shown the past without deciding anything about it.

    Nothing that it decides depends on what it requested before, nor on what was tried.
    """

    def hear(self, view: BlindView, /) -> None:
        """Take in the start of a tick, in place of :meth:`PolicySession.act`."""
        ...

    def recall(self, other: object, /) -> bool:
        """Take over what ``other`` has observed; return False, and take over nothing, where that does not fit."""
        ...


class BlindPolicy(Protocol):
    """A policy that has to ask zones for spot, for many windows at once."""

    def begin(self, terms: SimulationSpec, /) -> PolicySession:
        """Return the session that decides in a simulation of this specification."""
        ...


def find_blind_on_demand_zone(terms: SimulationSpec, view: BlindView) -> Ints:
    """Return by [window] the zone where the rest is cheapest on demand: price times work left plus egress.

    Where the job runs on demand already, it is the zone where it runs.
    """
    home = np.maximum(view.home, 0)
    egress = np.where(view.home == NOWHERE, 0.0, terms.ways.egress_usd[home].T)
    best = np.argmin(view.left_s / HOUR_S * terms.on_demand_usd[:, None] + egress, axis=0)
    return np.where(view.kind == ON_DEMAND, view.zone, best)
