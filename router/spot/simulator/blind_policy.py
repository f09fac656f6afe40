"""What a policy that does not see the weather is told and what it may ask for
(:mod:`router.spot.simulator.blind_simulator`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np

from router.spot.simulator.inputs import HOUR_S, Scene, Task, Ways, paces
from router.spot.simulator.simulation import NOWHERE, ON_DEMAND, Kinds
from router.spot.simulator.traces import Bools, Floats, Ints

NEVER: Final = -1


@dataclass(frozen=True, eq=False, slots=True)
class Terms:
    """What a policy knows before it begins: the job and the places, nothing of the weather. ``starts``: the tick of the
    series at which each window begins; ``on_demand_usd``: [zone], of the whole gang, dollars an hour, infinite where it
    is not sold. ``speed`` and ``launch_s``: those of the scene, see :func:`router.spot.simulator.inputs.paces`;
    ValueError
    for any that it refuses."""

    task: Task
    tick_s: int
    starts: Ints
    zones: tuple[str, ...]
    regions: tuple[str, ...]
    ways: Ways
    on_demand_usd: Floats
    speed: Floats
    launch_s: Ints

    def __post_init__(self) -> None:
        paces(len(self.zones), self.speed, self.launch_s)

    @classmethod
    def of(cls, scene: Scene) -> Terms:
        """Of ``scene``."""
        zones = tuple(z.zone for z in scene.series.zones)
        ways, usd = scene.ways, scene.on_demand_usd.copy()
        return cls(
            scene.task,
            scene.tick_s,
            scene.starts.copy(),
            zones,
            scene.series.regions,
            ways,
            usd,
            scene.speed.copy(),
            scene.launch_s.copy(),
        )

    @property
    def ticks(self) -> int:
        """Ticks of a window."""
        return self.task.ticks(self.tick_s)

    @property
    def worst_s(self) -> int:
        """d: seconds of the longest launch."""
        return self.task.changeover_s + self.ways.longest_s + int(self.launch_s.max())


@dataclass(eq=False, slots=True)
class Known:
    """One entry a window, zones in the series' order. To be read, not written to.

    ``tick``: of the window; ``ticks`` before the deadline. ``window`` numbers the windows of the terms; those that are
    done are gone. ``zone``: where it runs, or last ran; ``lost``: its spot instance was taken at the start of this
    tick. ``home``: where the checkpoint is, ``NOWHERE`` at first. ``delay_s``: of the changeover, still to pass.
    ``since``: the tick of the last launch. [zone, window]: ``spot_usd``; ``asked``: the tick of the zone's last answer,
    or ``NEVER``; ``was_up``: what it said; ``tried``: where spot was tried in this tick, before that in the last one.
    """

    tick: int
    ticks: int
    window: Ints
    left_s: Ints
    kind: Kinds
    zone: Ints
    lost: Bools
    home: Ints
    delay_s: Ints
    since: Ints
    spot_usd: Floats
    asked: Ints
    was_up: Bools
    tried: Bools

    def at(self, rows: Ints) -> Known:
        """Of these of its windows."""
        own = {name: getattr(self, name)[rows] for name in OF_WINDOWS}
        zones = {name: getattr(self, name)[:, rows] for name in OF_ZONES}
        return Known(self.tick, self.ticks, **own, **zones)


OF_WINDOWS: Final = ("window", "left_s", "kind", "zone", "lost", "home", "delay_s", "since")
OF_ZONES: Final = ("spot_usd", "asked", "was_up", "tried")


@dataclass(eq=False, slots=True)
class Wish:
    """What a policy wants of a tick, in each window.

    ``spot``: [zone, window] spot is tried where it is finite, least first, until one launches; the spot instance that
    runs counts as launched. If none does: on demand in zone ``demand``, unless that is ``NOWHERE``; else what runs goes
    on. ``leave``: what runs is stopped first, whatever comes of it.
    """

    spot: Floats
    demand: Ints
    leave: Bools

    @classmethod
    def nothing(cls, known: Known) -> Wish:
        """Go on as it is."""
        count = known.window.size
        return cls(
            np.full(known.spot_usd.shape, np.inf), np.full(count, NOWHERE, dtype=np.int64), np.zeros(count, dtype=bool)
        )


class Player(Protocol):
    """Decides in one scene, tick by tick."""

    def act(self, known: Known, /) -> Wish:
        """At the start of a tick."""
        ...

    def look(self, known: Known, /) -> Bools | None:
        """Once the tick's launches are known: [zone, window] which zones to probe; None: none. The answers are in
        ``known`` at the next tick; where none could be had, ``asked`` there is older than this tick. Where spot runs a
        probe is neither made nor paid."""
        ...


@runtime_checkable
class Hearer(Player, Protocol):
    """A player that can be told what was without deciding anything about it: nothing that it decides depends on what
    it wished for before, nor on what was tried."""

    def hear(self, known: Known, /) -> None:
        """In place of :meth:`Player.act`, at the start of a tick."""
        ...

    def recall(self, other: object, /) -> bool:
        """Takes over what ``other`` has heard. False, and nothing is taken over, where that heard otherwise."""
        ...


class Explorer(Protocol):
    """A policy for many windows at once."""

    def begin(self, terms: Terms, /) -> Player:
        """What decides in a scene of these terms."""
        ...


def on_demand_place(terms: Terms, known: Known) -> Ints:
    """[window]: where the rest is cheapest on demand, price times work left plus egress; where it runs on demand
    already, there."""
    home = np.maximum(known.home, 0)
    egress = np.where(known.home == NOWHERE, 0.0, terms.ways.egress_usd[home].T)
    best = np.argmin(known.left_s / HOUR_S * terms.on_demand_usd[:, None] + egress, axis=0)
    return np.where(known.kind == ON_DEMAND, known.zone, best)
