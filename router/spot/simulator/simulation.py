"""Simulator of a policy that sees spot availability, over many windows at once, tick by tick.

Rules (Wu et al., "Can't Be Late", NSDI 2024, section 3, and its released simulator):

* At the start of a tick a spot instance whose zone has no machines is lost. The work of earlier ticks is kept.
* The policy decides; the deadline guard may overrule it. Starting anything is billed at once and makes no progress for
  the changeover delay d (plus the transfer); stopping is free. Starting spot where there is none does nothing, free.
* Starting on-demand where it is not sold does nothing, free. A second's work is the zone's speed.
* A tick is billed whole at the price of what runs in it, the last one too; a delay is billed like work.
* When the work is done the job stops (thrifty).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from router.spot.simulator.inputs import HOUR_S, SimulationInputs, SimulationSpec, get_zone_speeds, pick_on_demand_zone
from router.spot.simulator.traces import Bools, Floats, Ints

IDLE: Final = 0
SPOT: Final = 1
ON_DEMAND: Final = 2
NOWHERE: Final = -1
InstanceKinds = NDArray[np.int8]


class GuardMode(Enum):
    """The deadline guard: when a policy is overruled so that the deadline is met.

    Both guards go on demand while there is just time for it. :mod:`router.spot.simulator.blind_simulator` has rules of
    its own for both.

    ``PUBLISHED`` acts, where the job is idle or on demand, at the first tick where, counted in whole ticks, R <= C +
    2d; a spot instance past its delay goes on to R = C + d and beyond. It is for zones of one speed only. ``EXACT``
    acts at the first tick where, whatever the availability, one more tick of what the policy wants could leave less
    time than on-demand needs, there or in the zone that is done soonest; spot that runs goes on instead where one more
    tick of it is safe. ``NONE`` trusts the policy (bounds, other simulators).
    """

    PUBLISHED = "published"
    EXACT = "exact"
    NONE = "none"


@dataclass(eq=False, slots=True)
class WindowView:
    """The start of a tick: one entry a window on the last axis of each array, which is read-only for the policy.

    ``tick`` is the tick of the window, of ``ticks`` before the deadline. ``window`` numbers the windows of the
    specification; finished windows are removed. ``left_s`` is the seconds of work left. ``zone`` is where the job runs,
    or last ran. ``home`` is where the checkpoint is, ``NOWHERE`` at first. ``delay_s`` is the part of the changeover
    that has still to pass. ``spot_usd`` is by [zone, window], zones in the order of the specification.
    """

    tick: int
    ticks: int
    window: Ints
    left_s: Ints
    kind: InstanceKinds
    zone: Ints
    home: Ints
    delay_s: Ints
    spot_usd: Floats

    def at(self, rows: Ints) -> Self:
        """Return the view of these rows of its windows."""
        return replace(self, **{name: values[..., rows] for name, values in self.arrays().items()})

    def keep(self, which: Bools) -> None:
        """Remove the other windows."""
        if not which.all():
            for name, values in self.arrays().items():
                setattr(self, name, values[..., which])

    def arrays(self) -> dict[str, Any]:
        """Return all that the view has for each window, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("tick", "ticks")}


@dataclass(eq=False, slots=True)
class FullView(WindowView):
    """The start of a tick with all availability: ``up`` is by [zone, window].

    ``last`` is where the job last ran, ``NOWHERE`` at first. ``kept`` is work of less than a second, in millionths of
    one, where zones differ in speed.
    """

    last: Ints
    kept: Ints
    up: Bools


Actions = tuple[InstanceKinds, Ints]
FullInfoSession = Callable[[FullView], Actions]
FullViewListener = Callable[[FullView], None]


class FullInfoPolicy(Protocol):
    """A policy that sees availability, for many windows at once."""

    def begin(self, inputs: SimulationInputs) -> FullInfoSession:
        """Return the session of these inputs, which chooses for each window the kind of instance and its zone.

        The session is called with each tick's view. Requesting what runs already keeps it.
        """
        ...


@dataclass(frozen=True, eq=False, slots=True)
class WindowOutcomes:
    """The outcome of windows, one entry a window.

    ``usd`` is the whole cost, of which ``egress_usd`` and ``probe_usd`` are parts. ``finish_tick`` is the first tick
    after the last billed one, counted from where the window begins. A window that is ``late`` ends on demand after its
    deadline; the cost of that is included.
    """

    usd: Floats
    egress_usd: Floats
    probe_usd: Floats
    finish_tick: Ints
    late: Bools
    spot_ticks: Ints
    on_demand_ticks: Ints
    launches: Ints


@dataclass(frozen=True, eq=False, slots=True)
class SimulationOutcome(WindowOutcomes):
    """The outcome of a simulation; ``spot_usd`` is a part of the cost.

    Where on-demand is sold in no zone a late window never ends: ``usd`` is infinite, and ``finish_tick`` says no more
    than that it is late. ``spare_s`` is the seconds of the last tick after the work was done; their ``spare_usd`` are
    in ``usd`` too.
    """

    spot_usd: Floats
    spare_s: Floats
    spare_usd: Floats


View = TypeVar("View", bound=WindowView)


class WindowRun(Generic[View]):
    """State of one simulation: ``view`` has the windows that are not done; the totals are of all windows."""

    def __init__(self, inputs: SimulationInputs, guard: GuardMode, view: View) -> None:
        count = inputs.starts.size
        self.inputs, self.guard, self.view, self.g = inputs, guard, view, inputs.tick_s
        self.egress, self.done_tick = np.zeros(count), np.full(count, -1, dtype=np.int64)
        self.spot, self.demand, self.launches = (np.zeros(count, dtype=np.int64) for _ in range(3))

    def launch(self, which: Ints, zone: Ints) -> None:
        """Begin the changeover of these windows in their zones, and bill what brings the checkpoints there."""
        view, ways = self.view, self.inputs.ways
        view.delay_s[which] = self.inputs.task.changeover_s + self.inputs.launch_s[zone[which]]
        self.launches[view.window[which]] += 1
        moved = which[view.home[which] != NOWHERE]
        there = (view.home[moved], zone[moved])
        view.delay_s[moved] += ways.transfer_s[there]
        self.egress[view.window[moved]] += ways.egress_usd[there]


def simulate(
    inputs: SimulationInputs,
    policy: FullInfoPolicy,
    guard: GuardMode = GuardMode.PUBLISHED,
    work_s: Ints | None = None,
    watch: FullViewListener | None = None,
) -> SimulationOutcome:
    """Play all windows of ``inputs`` and return their outcome.

    ``work_s`` is the work of each window, where it differs from the task's. ``watch`` is called with each tick once it
    has passed, with what ran in it. Raise ValueError for the published guard where zones differ in speed or launch
    time.
    """
    run = _Run(inputs, guard, work_s)
    player = policy.begin(inputs)
    for tick in range(inputs.ticks):
        if not run.begin(tick):
            if inputs.begins is None:
                break
            continue
        run.finish(*player(run.view))
        if watch is not None:
            watch(run.view)
    return run.outcome()


def initial_fields(spec: SimulationSpec, window: Ints, left_s: Ints) -> dict[str, Any]:
    """Return the fields of :class:`WindowView` for these windows before anything ran."""
    zeros = np.zeros(window.size, dtype=np.int64)
    return {
        "tick": 0,
        "ticks": spec.ticks,
        "window": window,
        "left_s": left_s,
        "kind": zeros.astype(np.int8),
        "zone": zeros.copy(),
        "home": zeros + NOWHERE,
        "delay_s": zeros.copy(),
        "spot_usd": np.empty((len(spec.zones), window.size)),
    }


def _initial_view(inputs: SimulationInputs, window: Ints, left_s: Ints) -> FullView:
    zeros = np.zeros(window.size, dtype=np.int64)
    up = np.empty((len(inputs.zones), window.size), dtype=bool)
    return FullView(**initial_fields(inputs, window, left_s), last=zeros + NOWHERE, kept=zeros, up=up)


class _Run(WindowRun[FullView]):
    def __init__(self, inputs: SimulationInputs, guard: GuardMode, work_s: Ints | None) -> None:
        count = inputs.starts.size
        self.work_s = np.full(count, inputs.task.work_s) if work_s is None else work_s.astype(np.int64)
        first = np.arange(count) if inputs.begins is None else np.flatnonzero(inputs.begins == 0)
        super().__init__(inputs, guard, _initial_view(inputs, first, self.work_s[first]))
        self.paces = None if inputs.alike else get_zone_speeds(inputs)
        if self.paces is not None and guard is GuardMode.PUBLISHED:
            raise ValueError("the published guard supports zones of one speed only; use the exact one")
        self.sold = np.isfinite(inputs.on_demand_usd)
        usd = float(inputs.on_demand_usd[0])
        self.one_price = usd * self.g / HOUR_S if self.sold[0] and (inputs.on_demand_usd == usd).all() else None
        self.spot_usd, self.demand_usd, self.spare_s, self.spare_usd = (np.zeros(count) for _ in range(4))

    def begin(self, tick: int) -> bool:
        """Show this tick to the windows that have begun and are not done; return False where there is none."""
        now, begins = self.view, self.inputs.begins
        now.keep(now.left_s > 0)
        if begins is not None and tick and (begins == tick).any():
            window = np.flatnonzero(begins == tick)
            new = _initial_view(self.inputs, window, self.work_s[window]).arrays()
            for name, values in now.arrays().items():
                setattr(now, name, np.concatenate([values, new[name]], axis=-1))
        if not now.window.size:
            return False
        now.tick = tick
        at = self.inputs.starts[now.window] + (tick if begins is None else tick - begins[now.window])
        now.up, now.spot_usd = self.inputs.up[:, at], self.inputs.spot_usd[:, at]
        zone_up = now.up[0] if len(now.up) == 1 else now.up[now.zone, np.arange(now.zone.size)]
        now.kind[(now.kind == SPOT) & ~zone_up] = IDLE
        return True

    def finish(self, kind: InstanceKinds, zone: Ints) -> None:
        now, inputs = self.view, self.inputs
        rows = np.arange(zone.size)
        kind = np.where((kind == SPOT) & ~(now.up[0] if len(now.up) == 1 else now.up[zone, rows]), IDLE, kind)
        if not self.sold.all():
            kind = np.where((kind == ON_DEMAND) & ~self.sold[zone], IDLE, kind)
        guarded = self._guard if self.paces is None else self._guard_by_speed
        kind, zone = guarded(kind.astype(np.int8), zone)
        runs = kind != IDLE
        fresh = runs & ((kind != now.kind) | (zone != now.zone))
        if fresh.any():
            self.launch(np.flatnonzero(fresh), zone)
        self._bill(kind, zone, rows)
        delay_passed_s = np.minimum(now.delay_s, self.g)
        worked = self.g - delay_passed_s
        if self.paces is not None:
            worked, kept = self.paces.done_s(worked, zone, now.kept)
            now.kept = np.where(runs, kept, now.kept)
        spare_s = (worked - now.left_s) / inputs.speed[zone]
        now.left_s = np.where(runs, np.maximum(now.left_s - worked, 0), now.left_s)
        now.delay_s = np.where(runs, now.delay_s - delay_passed_s, 0)
        now.kind = kind
        now.zone = np.where(runs, zone, now.zone)
        now.last = now.zone if runs.all() else np.where(runs, zone, now.last)
        now.home = np.where(runs & (now.delay_s == 0), zone, now.home)
        finished = now.left_s == 0
        if finished.any():
            self._record_finished(np.flatnonzero(finished), spare_s)
        if now.tick + 1 == inputs.ticks and not finished.all():
            self._finish_late(np.flatnonzero(~finished))

    def _record_finished(self, which: Ints, spare_s: Floats) -> None:
        now = self.view
        window, zone = now.window[which], now.zone[which]
        self.done_tick[window] = now.tick + 1
        self.spare_s[window] = spare_s[which]
        usd = np.where(now.kind[which] == SPOT, now.spot_usd[zone, which], self.inputs.on_demand_usd[zone])
        self.spare_usd[window] = spare_s[which] / HOUR_S * usd

    def _bill(self, kind: InstanceKinds, zone: Ints, rows: Ints) -> None:
        now, share = self.view, self.g / HOUR_S
        spot, demand = kind == SPOT, kind == ON_DEMAND
        price = now.spot_usd[0] if len(now.up) == 1 else now.spot_usd[zone, rows]
        self.spot_usd[now.window] += np.where(spot, price * share, 0.0)
        self.spot[now.window] += spot
        self.demand[now.window] += demand
        if self.one_price is None:
            self.demand_usd[now.window] += np.where(demand, self.inputs.on_demand_usd[zone] * share, 0.0)

    def _guard(self, kind: InstanceKinds, zone: Ints) -> Actions:
        """Return the actions after the deadline guard.

        All comparisons are of whole ticks: ceil(x / g) >= n is x > (n - 1) * g.
        """
        if self.guard is GuardMode.NONE:
            return kind, zone
        now, g, worst_s = self.view, self.g, self.inputs.worst_s
        rest = (now.ticks - now.tick - 1) * g
        least = now.left_s + worst_s
        running = now.kind == SPOT
        if self.guard is GuardMode.PUBLISHED:
            must = least > rest
            riding = running & (now.delay_s == 0)
            kind = np.where(must & riding, np.int8(SPOT), kind)
            zone = np.where(must & riding, now.zone, zone)
            forced = (must & ~riding) | (~running & (least + worst_s > rest))
        else:
            stays = (kind == now.kind) & ((zone == now.zone) | (kind == IDLE))
            works = np.where(kind == IDLE, 0, np.maximum(g - np.where(stays, now.delay_s, worst_s), 0))
            forced = (kind != ON_DEMAND) & (works < now.left_s) & (least - works > rest)
            on = np.maximum(g - now.delay_s, 0)
            goes_on = forced & running & ((on >= now.left_s) | (least - on <= rest))
            kind, zone = np.where(goes_on, np.int8(SPOT), kind), np.where(goes_on, now.zone, zone)
            forced &= ~goes_on
        stuck = (now.kind == ON_DEMAND) & (kind == ON_DEMAND) & (zone != now.zone) & (least > rest + g)
        return self._force_on_demand(kind, zone, (forced & (kind != ON_DEMAND)) | stuck)

    def _guard_by_speed(self, kind: InstanceKinds, zone: Ints) -> Actions:
        """Return the actions after the exact guard, for zones of different speeds."""
        paces, now, task = self.paces, self.view, self.inputs.task
        if self.guard is GuardMode.NONE or paces is None:
            return kind, zone
        rest = (now.ticks - now.tick - 1) * self.g
        if paces.soonest_s(now.left_s.max(keepdims=True))[0] <= rest:
            return kind, zone  # there is time enough whatever this tick does
        stays = (kind == now.kind) & ((zone == now.zone) | (kind == IDLE))
        moves = np.where(now.home == NOWHERE, 0, self.inputs.ways.transfer_s[np.maximum(now.home, 0), zone])
        delay = np.where(stays, now.delay_s, task.changeover_s + self.inputs.launch_s[zone] + moves)
        seconds = np.where(kind == IDLE, 0, np.maximum(self.g - delay, 0))
        works, _ = paces.done_s(seconds, zone, np.zeros_like(zone))
        risky = (works < now.left_s) & (paces.soonest_s(now.left_s - works) > rest)
        to_the_end = (kind == ON_DEMAND) & (delay + paces.takes_s(now.left_s, zone, now.kept) <= rest + self.g)
        on, _ = paces.done_s(np.maximum(self.g - now.delay_s, 0), now.zone, np.zeros_like(zone))
        safe = (on >= now.left_s) | (paces.soonest_s(np.maximum(now.left_s - on, 0)) <= rest)
        goes_on = risky & (kind != ON_DEMAND) & (now.kind == SPOT) & safe
        kind, zone = np.where(goes_on, np.int8(SPOT), kind), np.where(goes_on, now.zone, zone)
        return self._force_on_demand(kind, zone, risky & ~to_the_end & ~goes_on)

    def _force_on_demand(self, kind: InstanceKinds, zone: Ints, which: Bools) -> Actions:
        """Return the actions with these windows on demand in their best zone; unchanged where none is sold."""
        at = np.flatnonzero(which)
        if at.size and self.sold.any():
            kind, zone = kind.copy(), zone.copy()
            kind[at] = ON_DEMAND
            zone[at] = find_on_demand_zone(self.inputs, self.view, at)
        return kind, zone

    def _finish_late(self, which: Ints) -> None:
        now = self.view
        zone = find_on_demand_zone(self.inputs, now, which)
        on = now.kind[which] == ON_DEMAND
        left = now.left_s[which]
        delay = np.where(on, now.delay_s[which], self.inputs.task.changeover_s + self.inputs.launch_s[zone])
        takes_s = (left if self.paces is None else self.paces.takes_s(left, zone, now.kept[which])) + delay
        more = -(-takes_s // self.g)
        window = now.window[which]
        self.spare_s[window] = more * self.g - takes_s
        usd = self.inputs.on_demand_usd[zone]
        self.spare_usd[window] = self.spare_s[window] / HOUR_S * np.where(np.isfinite(usd), usd, 0.0)
        self.demand[window] += more
        if self.one_price is None:
            self.demand_usd[window] += more * self.inputs.on_demand_usd[zone] * self.g / HOUR_S
        self.launches[window] += ~on
        self.done_tick[window] = self.inputs.ticks + more

    def outcome(self) -> SimulationOutcome:
        inputs = self.inputs
        if not inputs.ticks:
            self._finish_late(np.arange(inputs.starts.size))
        demand = self.demand_usd if self.one_price is None else self.demand * self.one_price
        usd = self.spot_usd + demand + self.egress
        late = self.done_tick > inputs.ticks
        done = self.done_tick if inputs.begins is None else self.done_tick - inputs.begins
        return SimulationOutcome(
            usd=usd,
            egress_usd=self.egress,
            probe_usd=np.zeros(usd.size),
            finish_tick=done,
            late=late,
            spot_ticks=self.spot,
            on_demand_ticks=self.demand,
            launches=self.launches,
            spot_usd=self.spot_usd,
            spare_s=self.spare_s,
            spare_usd=self.spare_usd,
        )


def find_on_demand_zone(inputs: SimulationSpec, now: FullView, which: Ints) -> Ints:
    """Return the zone where the rest is cheapest on demand, for the windows ``which`` of ``now``.

    Where a window runs on demand already, it stays there. Else the zone has the least price times work left plus
    egress; the checkpoint's own zone is taken where it costs no more than the best. Where zones differ in speed, the
    launch is paid too, and the zone must be in time if any is; else it is the one done soonest.
    """
    home = now.home[which]
    if not inputs.alike:
        return _on_demand_zone_by_speed(inputs, now, which)
    dollars = now.left_s[which] / HOUR_S * inputs.on_demand_usd[:, None]
    dollars = dollars + np.where(home == NOWHERE, 0.0, inputs.ways.egress_usd[np.maximum(home, 0)].T)
    best: Ints = np.argmin(dollars, axis=0)
    at_home = dollars[np.maximum(home, 0), np.arange(home.size)] <= dollars.min(axis=0)
    best = np.where((home != NOWHERE) & at_home, home, best)
    return np.where(now.kind[which] == ON_DEMAND, now.zone[which], best)


def _on_demand_zone_by_speed(inputs: SimulationSpec, now: FullView, which: Ints) -> Ints:
    paces, left, at = get_zone_speeds(inputs), now.left_s[which], np.maximum(now.home[which], 0)
    nowhere = now.home[which] == NOWHERE
    rest = (now.ticks - now.tick) * inputs.tick_s
    transfer = np.where(nowhere, 0, inputs.ways.transfer_s[at].T)
    egress = np.where(nowhere, 0.0, inputs.ways.egress_usd[at].T)
    best = pick_on_demand_zone(inputs, paces, left, rest, transfer, egress)
    zone = now.zone[which]
    there = now.delay_s[which] + paces.takes_s(left, zone, now.kept[which])
    stays = (now.kind[which] == ON_DEMAND) & ((there <= rest) | (zone == best))
    return np.where(stays, zone, best)
