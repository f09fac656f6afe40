"""Inputs of a simulation: the job's size and deadline, what moving costs, and the availability in its windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Final

import numpy as np

from router.spot.simulator.traces import Bools, Floats, Ints, Series

HOUR_S = 3600
MILLION = 1_000_000
NOT_SOLD_S = 2**61  # longer than any window
SPEED_TOLERANCE: Final = 1e-9  # speeds that differ by less count as equal


@dataclass(frozen=True, slots=True)
class Task:
    """One job, in whole seconds.

    ``work_s`` is the work to do (C), ``deadline_s`` the time to the deadline (R), and ``changeover_s`` (d) the time
    without progress, billed, at every launch. ``size`` machines start together or not at all.

    Raise ValueError for a job without work, or with a negative time.
    """

    work_s: int
    deadline_s: int
    changeover_s: int
    size: int = 1

    def __post_init__(self) -> None:
        if self.work_s <= 0 or self.deadline_s < 0 or self.changeover_s < 0 or self.size < 1:
            raise ValueError("a task has work to do, no negative time, and at least one machine")

    def ticks(self, tick_s: int) -> int:
        """Return the number of whole ticks before the deadline; the remainder is not counted on."""
        return self.deadline_s // tick_s

    def on_demand_is_in_time(self, tick_s: int) -> bool:
        """Return whether on-demand from the first tick on meets the deadline."""
        return self.work_s + self.changeover_s <= self.ticks(tick_s) * tick_s


@dataclass(frozen=True, eq=False, slots=True)
class ZoneMoveCosts:
    """Costs of moving the checkpoint, by [from zone, to zone].

    Each entry is the dollars of one move, and the seconds that it adds to the changeover.
    """

    egress_usd: Floats
    transfer_s: Ints

    def __post_init__(self) -> None:
        if self.egress_usd.shape != self.transfer_s.shape or (self.egress_usd < 0).any() or (self.transfer_s < 0).any():
            raise ValueError("give the cost and time of a move from each zone to each, none below zero")
        if self.egress_usd.diagonal().any() or self.transfer_s.diagonal().any():
            raise ValueError("a move within a zone must cost nothing and take no time")

    @classmethod
    def free(cls, zones: int) -> ZoneMoveCosts:
        """Return moves that cost nothing."""
        return cls(np.zeros((zones, zones)), np.zeros((zones, zones), dtype=np.int64))

    @classmethod
    def between(cls, regions: Sequence[str], usd: Callable[[str, str], float], seconds: int = 0) -> ZoneMoveCosts:
        """Return moves of ``usd`` from region to region, each taking ``seconds``; moves within a region are free."""
        costs_usd = [[0.0 if a == b else usd(a, b) for b in regions] for a in regions]
        seconds_by_zone = [[0 if a == b else seconds for b in regions] for a in regions]
        return cls(np.array(costs_usd), np.array(seconds_by_zone, dtype=np.int64))

    @property
    def longest_s(self) -> int:
        return int(self.transfer_s.max())


def validate_speeds(zones: int, speed: Floats | None, launch_s: Ints | None) -> tuple[Floats, Ints]:
    """Return by [zone] the speed and the launch time, with defaults for what is None: speed one, no launch time.

    Speed is the seconds of the task's work that a second there does, to a millionth; it is one where the work was
    measured, usually the fastest on-demand zone. The launch time is the seconds that a launch there takes on top of the
    task's changeover.

    Raise ValueError for another number of entries than ``zones``, and where one is out of range.
    """
    speed = np.ones(zones) if speed is None else np.asarray(speed, dtype=np.float64)
    launch_s = np.zeros(zones, dtype=np.int64) if launch_s is None else np.asarray(launch_s, dtype=np.int64)
    if speed.shape != (zones,) or launch_s.shape != (zones,) or (launch_s < 0).any():
        raise ValueError(f"give each of {zones} zones a speed and a launch time, none below zero")
    if not (np.isfinite(speed) & (speed * MILLION >= 1)).all():
        raise ValueError("a speed must be at least a millionth")
    return speed, launch_s


@dataclass(frozen=True, eq=False, slots=True)
class SimulationSpec:
    """The specification of a simulation: many windows for one task, its zones and clock, but no availability.

    ``starts`` is the first tick of each window. ``on_demand_usd`` is by [zone], in dollars an hour of the whole gang,
    infinite where on-demand is not sold. ``speed`` and ``launch_s``: see :func:`validate_speeds`, which raises
    ValueError for those that it refuses.
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

    @property
    def ticks(self) -> int:
        return self.task.ticks(self.tick_s)

    @property
    def worst_s(self) -> int:
        """d: the seconds of the longest launch."""
        return self.task.changeover_s + self.ways.longest_s + int(self.launch_s.max())

    @property
    def alike(self) -> bool:
        """True if all zones have speed one and launch in the task's changeover."""
        return not self.launch_s.any() and bool((self.speed == 1).all())

    @property
    def region_numbers(self) -> Ints:
        """The number of each zone's region, in the order of the zones."""
        names = list(dict.fromkeys(self.regions))
        return np.array([names.index(name) for name in self.regions])


@dataclass(frozen=True, eq=False, slots=True)
class SimulationInputs(SimulationSpec):
    """The inputs of a simulation: its specification, with availability and spot prices by [zone, tick].

    ``begins`` is the tick of the task at which each window begins; None: all begin at the first. All windows end at the
    deadline, so that one which begins later has less time. Only policies that decide by the time left, not by the time
    passed, may play such windows.

    A policy may read all but ``up`` and ``spot_usd``, which hold the future; the ticks before a window's start it gets
    from :meth:`before`.
    """

    up: Bools
    spot_usd: Floats
    begins: Ints | None = None

    @classmethod
    def of(
        cls,
        task: Task,
        series: Series,
        starts: Sequence[int] | Ints,
        ways: ZoneMoveCosts | None = None,
        speed: Floats | None = None,
        launch_s: Ints | None = None,
    ) -> SimulationInputs:
        """Return inputs with prices of the whole gang.

        Moves are free, zones have one speed and no launch times unless these are given. Raise ValueError where a window
        goes beyond the series, or where ``ways``, ``speed`` or ``launch_s`` do not fit its zones.
        """
        first = np.asarray(starts, dtype=np.int64)
        needed = task.ticks(series.tick_s)
        if first.ndim != 1 or (first < 0).any() or (first + needed > series.ticks).any():
            raise ValueError(f"a window of {needed} ticks goes beyond the {series.ticks} of the series")
        zones = len(series.zones)
        ways = ways or ZoneMoveCosts.free(zones)
        if ways.egress_usd.shape != (zones, zones):
            raise ValueError(f"the moves are between {ways.egress_usd.shape[0]} zones, but the series has {zones}")
        speed, launch_s = validate_speeds(zones, speed, launch_s)
        return cls(
            task=task,
            tick_s=series.tick_s,
            starts=first,
            zones=tuple(zone.zone for zone in series.zones),
            regions=series.regions,
            ways=ways,
            on_demand_usd=series.on_demand_usd(task.size),
            speed=speed,
            launch_s=launch_s,
            up=series.up(task.size),
            spot_usd=series.spot_usd(task.size),
        )

    @property
    def spec(self) -> SimulationSpec:
        """The specification alone, as a policy that does not see availability gets it."""
        return SimulationSpec(*(getattr(self, field.name) for field in fields(SimulationSpec)))

    def before(self, count: int) -> tuple[Bools, Bools]:
        """Return availability by [zone, window, tick] in the ``count`` ticks before each window.

        The second result says whether it is known. The oldest tick comes first. Availability is whether the gang could
        start; before the series begins it is not known, and then False.
        """
        at = self.starts[:, None] + np.arange(-count, 0)
        known = at >= 0
        up = self.up[:, np.maximum(at, 0)] & known
        return up, np.broadcast_to(known, up.shape)


class ZoneSpeeds:
    """The speeds and launch times of the zones of one simulation."""

    def __init__(self, inputs: SimulationSpec) -> None:
        self.pace: Ints = np.rint(inputs.speed * MILLION).astype(np.int64)
        self.launch_s: Ints = inputs.task.changeover_s + inputs.launch_s
        self.from_afar_s: Ints = self.launch_s + inputs.ways.transfer_s.max(axis=0)
        self.sold = np.isfinite(inputs.on_demand_usd)

    def takes_s(self, left_s: Ints, zone: Ints, kept: Ints | int = 0) -> Ints:
        """Return the seconds that this work takes in ``zone``, less the carried fraction.

        All arguments are broadcast.
        """
        seconds: Ints = -((kept - left_s * MILLION) // self.pace[zone])
        return seconds

    def soonest_s(self, left_s: Ints) -> Ints:
        """Return by [window] the seconds until on-demand has done the work, wherever the checkpoint is now."""
        zones = np.arange(self.pace.size)[:, None]
        whole = self.from_afar_s[:, None] + self.takes_s(left_s, zones)
        soonest: Ints = np.where(self.sold[:, None], whole, NOT_SOLD_S).min(axis=0)
        return soonest

    def done_s(self, seconds: Ints, zone: Ints, kept: Ints) -> tuple[Ints, Ints]:
        """Return the work done in these seconds in ``zone``, and the fraction carried to the next tick.

        The fraction is in millionths of a second.
        """
        whole = seconds * self.pace[zone] + kept
        return whole // MILLION, whole % MILLION


@lru_cache(maxsize=4)
def get_zone_speeds(inputs: SimulationSpec) -> ZoneSpeeds:
    """Return the speeds of these inputs, cached for the last inputs: policies ask at every tick."""
    return ZoneSpeeds(inputs)


def pick_on_demand_zone(
    inputs: SimulationSpec, paces: ZoneSpeeds, left_s: Ints, rest_s: int, transfer_s: Ints, egress_usd: Floats
) -> Ints:
    """Return by [window] the zone where on-demand does the work at the least cost within ``rest_s``.

    Where none is in time, it is the zone that is done soonest. ``transfer_s`` and ``egress_usd`` are by [zone, window],
    of the checkpoint.
    """
    zones = np.arange(paces.pace.size)[:, None]
    needs = paces.launch_s[:, None] + transfer_s + paces.takes_s(left_s, zones)
    needs = np.where(paces.sold[:, None], needs, NOT_SOLD_S)
    usd = needs / 3600 * inputs.on_demand_usd[:, None] + egress_usd
    in_time = needs <= rest_s
    cheap: Ints = np.argmin(np.where(in_time, usd, np.inf), axis=0)
    return np.where(in_time.any(axis=0), cheap, np.argmin(needs, axis=0))


@dataclass(frozen=True, eq=False, slots=True)
class ZoneMarket:
    """The market of a :mod:`router.spot.policies.foresight` model: prices and launches by zone.

    Prices are dollars an hour of the whole gang on spot and on demand (infinite: not sold). ``speed`` is relative to
    the reference; ``launch_s`` is the seconds of a launch there without a transfer.
    """

    spot_usd: Floats
    on_demand_usd: Floats
    speed: Floats
    launch_s: Floats
    ways: ZoneMoveCosts

    @classmethod
    def of(cls, spec: SimulationSpec, spot_usd: Floats, part_s: int = 1) -> ZoneMarket:
        """Return the market of these zones at spot prices [zone]; launches and moves take whole parts of ``part_s``."""
        launch_s = _round_up(spec.task.changeover_s + spec.launch_s, part_s).astype(np.float64)
        ways = replace(spec.ways, transfer_s=_round_up(spec.ways.transfer_s, part_s))
        return cls(spot_usd, spec.on_demand_usd, spec.speed, launch_s, ways)

    @property
    def zones(self) -> int:
        return len(self.spot_usd)

    def homes(self) -> tuple[Ints, Ints]:
        """Return by [zone] its group, and by [group] a zone of it.

        Moves from zones of one group cost the same.
        """
        rows = np.concatenate([self.ways.egress_usd, self.ways.transfer_s], axis=1)
        _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return group.ravel(), first

    def on_demand_zones(self) -> Ints:
        """Return the cheapest on-demand zone of each group of homes and each speed."""
        group, _ = self.homes()
        best: dict[tuple[int, float], int] = {}
        for z in np.flatnonzero(np.isfinite(self.on_demand_usd)):
            key = (int(group[z]), float(self.speed[z]))
            if key not in best or self.on_demand_usd[z] < self.on_demand_usd[best[key]]:
                best[key] = int(z)
        return np.array(sorted(best.values()), dtype=np.int64)


def _round_up(seconds: Ints, part_s: int) -> Ints:
    return np.asarray(-(-seconds // max(1, part_s)) * max(1, part_s), dtype=np.int64)


def sells_reference(on_demand_usd: Floats, speed: Floats) -> bool:
    """Return whether any zone sells on-demand machines that are as fast as the reference."""
    return bool((np.isfinite(on_demand_usd) & (speed >= 1 - SPEED_TOLERANCE)).any())
