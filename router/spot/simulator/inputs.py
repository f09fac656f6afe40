"""What a simulated job is given: its size and deadline, what moving costs, and the weather of its windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from router.spot.simulator.traces import Bools, Floats, Ints, Series

HOUR_S = 3600
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Task:
    """One job, in whole seconds: ``work_s`` to do (C), a deadline after ``deadline_s`` (R), and ``changeover_s`` (d)
    without progress, billed, at every launch. ``size`` machines start together or not at all.

    ValueError for a job without work, or with less than no time.
    """

    work_s: int
    deadline_s: int
    changeover_s: int
    size: int = 1

    def __post_init__(self) -> None:
        if self.work_s <= 0 or self.deadline_s < 0 or self.changeover_s < 0 or self.size < 1:
            raise ValueError("a task has work to do, a deadline and a changeover of at least nothing, and a machine")

    def ticks(self, tick_s: int) -> int:
        """Whole ticks before the deadline; what is left over is not counted on."""
        return self.deadline_s // tick_s

    def on_demand_is_in_time(self, tick_s: int) -> bool:
        """Whether on-demand from the first tick on meets the deadline."""
        return self.work_s + self.changeover_s <= self.ticks(tick_s) * tick_s


@dataclass(frozen=True, eq=False, slots=True)
class Ways:
    """[from zone, to zone]: dollars for one move of the checkpoint, and seconds that it adds to the changeover."""

    egress_usd: Floats
    transfer_s: Ints

    def __post_init__(self) -> None:
        if self.egress_usd.shape != self.transfer_s.shape or (self.egress_usd < 0).any() or (self.transfer_s < 0).any():
            raise ValueError("a move costs at least nothing and takes at least no time, from each zone to each")
        if self.egress_usd.diagonal().any() or self.transfer_s.diagonal().any():
            raise ValueError("what stays in its zone costs nothing and takes no time")

    @classmethod
    def free(cls, zones: int) -> Ways:
        """Moves that cost nothing."""
        return cls(np.zeros((zones, zones)), np.zeros((zones, zones), dtype=np.int64))

    @classmethod
    def between(cls, regions: Sequence[str], usd: Callable[[str, str], float], seconds: int = 0) -> Ways:
        """``usd`` from region to region, and ``seconds`` for it; nothing within a region."""
        there = [[0.0 if a == b else usd(a, b) for b in regions] for a in regions]
        takes = [[0 if a == b else seconds for b in regions] for a in regions]
        return cls(np.array(there), np.array(takes, dtype=np.int64))

    @property
    def longest_s(self) -> int:
        """Seconds of the longest transfer."""
        return int(self.transfer_s.max())


def paces(zones: int, speed: Floats | None, launch_s: Ints | None) -> tuple[Floats, Ints]:
    """[zone] each. Speed: seconds of the task's work that a second there does, to a millionth; one where the work was
    measured, usually the fastest on-demand zone. Seconds that a launch there takes on top of the task's changeover.

    None: ones, and nothing. ValueError for other than ``zones`` of them, and where one is out of range.
    """
    speed = np.ones(zones) if speed is None else np.asarray(speed, dtype=np.float64)
    launch_s = np.zeros(zones, dtype=np.int64) if launch_s is None else np.asarray(launch_s, dtype=np.int64)
    if speed.shape != (zones,) or launch_s.shape != (zones,) or (launch_s < 0).any():
        raise ValueError(f"a speed and a launch time of at least nothing for each of {zones} zones")
    if not (np.isfinite(speed) & (speed * MILLION >= 1)).all():
        raise ValueError("a speed is a millionth at least")
    return speed, launch_s


@dataclass(frozen=True, eq=False, slots=True)
class Scene:
    """Many windows of one series for one task. ``starts``: the first tick of each window. ``begins``: the tick of the
    task at which each begins, None: all at the first. All end at the deadline: what begins later has less time. Only
    policies that go by what is left, not by what has passed, play such a scene.

    ``speed`` and ``launch_s``: see :func:`paces`.

    ValueError where a window goes beyond the series, or ``ways``, ``speed`` or ``launch_s`` are not of its zones. A
    policy may read all but ``up`` and ``spot_usd``, which know the future; what was before a window's start it asks of
    :meth:`before`.
    """

    task: Task
    series: Series
    starts: Ints
    ways: Ways
    up: Bools
    spot_usd: Floats
    on_demand_usd: Floats
    speed: Floats
    launch_s: Ints
    begins: Ints | None = None

    @classmethod
    def of(
        cls,
        task: Task,
        series: Series,
        starts: Sequence[int] | Ints,
        ways: Ways | None = None,
        speed: Floats | None = None,
        launch_s: Ints | None = None,
    ) -> Scene:
        """With free moves, one speed and no launch times of zones unless said otherwise; prices are of the gang."""
        first = np.asarray(starts, dtype=np.int64)
        needed = task.ticks(series.tick_s)
        if first.ndim != 1 or (first < 0).any() or (first + needed > series.ticks).any():
            raise ValueError(f"a window of {needed} ticks goes beyond the {series.ticks} of the series")
        zones = len(series.zones)
        ways = ways or Ways.free(zones)
        if ways.egress_usd.shape != (zones, zones):
            raise ValueError(f"moves between {ways.egress_usd.shape[0]} zones, but the series has {zones}")
        speed, launch_s = paces(zones, speed, launch_s)
        up, prices = series.up(task.size), series.spot_usd(task.size)
        return cls(task, series, first, ways, up, prices, series.on_demand_usd(task.size), speed, launch_s)

    @property
    def tick_s(self) -> int:
        """Seconds of a tick."""
        return self.series.tick_s

    @property
    def ticks(self) -> int:
        """Ticks of a window."""
        return self.task.ticks(self.tick_s)

    @property
    def alike(self) -> bool:
        """Whether all zones are of speed one and launch as quickly as the task says."""
        return not self.launch_s.any() and bool((self.speed == 1).all())

    def before(self, count: int) -> tuple[Bools, Bools]:
        """[zone, window, tick]: whether the gang could start, for the ``count`` ticks before each window, oldest first;
        and whether that is known: it is not before the series begins, and then False."""
        at = self.starts[:, None] + np.arange(-count, 0)
        known = at >= 0
        up = self.up[:, np.maximum(at, 0)] & known
        return up, np.broadcast_to(known, up.shape)
