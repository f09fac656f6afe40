"""Simulator of jobs that do not see spot availability: a policy knows only what each zone last answered, and when.

Rules (SkyNomad, NSDI 2027, and its released simulator), on top of those of :mod:`router.spot.simulator.simulation`:

* A launch of spot says whether the zone is up. One that fails is free, and the next zone is tried in the same tick.
* A probe says so too, without launching. One that succeeds is billed for a minute of spot, one that fails is not
  billed.
* A spot instance that runs says each tick that its zone is up or, when it is preempted, that it is not. Prices are
  known.
* Every launch takes the changeover again, in the same zone too. Egress is paid from the zone where the job last ran a
  tick.
* The published deadline guard goes on demand to the end when ceil((C + d) / tick) >= ticks left: in the zone where the
  job runs, off a healthy spot instance too, else where the rest is cheapest. The exact one overrules a policy only
  where, whatever the availability, one more tick of what it requests could leave too little time for C + d; a spot
  instance past that moment goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from router.spot.simulator.blind_policy import BlindPolicy, BlindView, LaunchRequest, find_blind_on_demand_zone
from router.spot.simulator.inputs import HOUR_S, SimulationInputs
from router.spot.simulator.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT, GuardMode, WindowOutcomes, WindowRun
from router.spot.simulator.traces import Bools, Floats, Ints

PROBE_S: Final = 60


@dataclass(frozen=True, slots=True)
class ProbeFees:
    """The cost of a probe, in seconds of the zone's spot price.

    ``up_s`` is billed for a probe that finds the zone up, ``down_s`` for one that does not.
    """

    up_s: int = PROBE_S
    down_s: int = 0

    def __post_init__(self) -> None:
        if self.up_s < 0 or self.down_s < 0:
            raise ValueError("a probe must not cost less than zero seconds")


@dataclass(frozen=True, eq=False, slots=True)
class BlindOutcome(WindowOutcomes):
    """The outcome of a blind simulation: ``probes`` were made, of which ``probes_up`` found a zone up."""

    probes: Ints
    probes_up: Ints


def simulate_blind(
    inputs: SimulationInputs,
    policy: BlindPolicy,
    guard: GuardMode = GuardMode.PUBLISHED,
    fees: ProbeFees | None = None,
    watch: Callable[[BlindView], None] | None = None,
) -> BlindOutcome:
    """Play all windows of ``inputs`` and return what they cost.

    Work that is not done at the deadline goes on on demand, late. ``watch`` is called with each tick once it has
    passed, with what ran in it. Raise ValueError where zones differ in speed.
    """
    if not inputs.alike:
        raise ValueError("the blind simulator supports zones of one speed only")
    run = _Run(inputs, guard, fees or ProbeFees())
    player = policy.begin(inputs.spec)
    for tick in range(inputs.ticks):
        if not run.begin(tick):
            break
        run.apply(player.act(run.view))
        run.probe(player.look(run.view))
        run.finish()
        if watch is not None:
            watch(run.view)
    return run.bill()


class _Run(WindowRun[BlindView]):
    def __init__(self, inputs: SimulationInputs, guard: GuardMode, fees: ProbeFees) -> None:
        count = inputs.starts.size
        super().__init__(inputs, guard, BlindView.initial(inputs, np.arange(count)))
        self.fees, self.worst_s = fees, inputs.worst_s
        self.up = self.view.was_up
        self.run_usd, self.probe_usd = np.zeros(count), np.zeros(count)
        self.probes, self.probes_up = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)

    def begin(self, tick: int) -> bool:
        """Apply the preemptions of this tick; return False where no window is left."""
        known = self.view
        known.tick = tick
        if tick:
            self._keep_rows(known.left_s > 0)
        at = self.inputs.starts[known.window] + tick
        self.up, known.spot_usd = self.inputs.up[:, at], self.inputs.spot_usd[:, at]
        rows = np.flatnonzero(known.kind == SPOT)
        there = self.up[known.zone[rows], rows]
        known.lost = np.zeros(known.window.size, dtype=bool)
        known.lost[rows] = ~there
        known.answer_tick[known.zone[rows], rows] = tick
        known.was_up[known.zone[rows], rows] = there
        known.kind[known.lost] = IDLE
        if self.guard is GuardMode.PUBLISHED:
            must = known.left_s + self.worst_s > (known.ticks - tick - 1) * self.g
            if must.any():
                self._finish_on_demand(must)
        return known.window.size > 0

    def apply(self, wish: LaunchRequest) -> None:
        known = self.view
        rows = np.arange(known.window.size)
        order, demand, leave = wish.spot, wish.demand, wish.leave
        if self.guard is GuardMode.EXACT:
            order, demand, leave = self._apply_exact_guard(order, demand, leave)
        hits = np.where(self.up, order, np.inf)
        first = np.argmin(hits, axis=0)
        least = hits[first, rows]
        got = np.isfinite(least)
        zones = np.arange(len(order))[:, None]
        known.tried = np.isfinite(order) & ((order < least) | ((order == least) & (zones <= first)))
        self._record_answers(known.tried)
        wanted = ~got & (demand != NOWHERE)
        kind = np.where(got, SPOT, np.where(wanted, ON_DEMAND, np.where(leave, IDLE, known.kind))).astype(np.int8)
        zone = np.where(got, first, np.where(wanted, demand, known.zone))
        fresh = (kind != IDLE) & ((kind != known.kind) | (zone != known.zone) | leave)
        known.kind, known.zone = kind, zone
        known.delay_s = np.where(kind == IDLE, 0, known.delay_s)
        self._record_launches(np.flatnonzero(fresh))

    def probe(self, looks: Bools | None) -> None:
        if looks is None or not looks.any():
            return
        known = self.view
        looks = looks.copy()
        rows = np.flatnonzero(known.kind == SPOT)
        looks[known.zone[rows], rows] = False
        self._record_answers(looks)
        found = looks & self.up
        seconds = np.where(found, self.fees.up_s, self.fees.down_s) * looks
        self.probe_usd[known.window] += (seconds * known.spot_usd).sum(axis=0) / HOUR_S
        self.probes[known.window] += looks.sum(axis=0)
        self.probes_up[known.window] += found.sum(axis=0)

    def finish(self) -> None:
        known, rows = self.view, np.arange(self.view.window.size)
        spot, demand = known.kind == SPOT, known.kind == ON_DEMAND
        runs = spot | demand
        rate = np.where(spot, known.spot_usd[known.zone, rows], self.inputs.on_demand_usd[known.zone])
        self.run_usd[known.window] += np.where(runs, rate * self.g / HOUR_S, 0.0)
        self.spot[known.window] += spot
        self.demand[known.window] += demand
        passed = np.minimum(known.delay_s, self.g)
        known.left_s = np.where(runs, np.maximum(known.left_s - self.g + passed, 0), known.left_s)
        known.delay_s = np.where(runs, known.delay_s - passed, 0)
        known.home = np.where(runs, known.zone, known.home)
        self.done_tick[known.window[known.left_s == 0]] = known.tick + 1

    def bill(self) -> BlindOutcome:
        known = self.view
        known.tick = self.inputs.ticks
        self._keep_rows(known.left_s > 0)
        if known.window.size:
            self._finish_on_demand(np.ones(known.window.size, dtype=bool))
        usd = self.run_usd + self.egress + self.probe_usd
        return BlindOutcome(
            usd=usd,
            egress_usd=self.egress,
            probe_usd=self.probe_usd,
            finish_tick=self.done_tick,
            late=self.done_tick > self.inputs.ticks,
            spot_ticks=self.spot,
            on_demand_ticks=self.demand,
            launches=self.launches,
            probes=self.probes,
            probes_up=self.probes_up,
        )

    def _apply_exact_guard(self, order: Floats, demand: Ints, leave: Bools) -> tuple[Floats, Ints, Bools]:
        known, worst = self.view, self.worst_s
        after = (known.ticks - known.tick - 1) * self.g
        spare = after - known.left_s - worst  # seconds of slack if this tick does no work
        runs = known.kind != IDLE
        stays = spare + np.maximum(self.g - known.delay_s, 0) >= 0
        stays |= (known.left_s + known.delay_s <= self.g) | (known.kind == ON_DEMAND)
        starts = (spare + max(self.g - worst, 0) >= 0) | (known.left_s + worst <= self.g)
        rows = np.arange(known.window.size)
        own = np.where((known.kind == SPOT) & ~leave, order[known.zone, rows], np.inf)
        order = np.where(starts, order, np.inf)
        order[known.zone, rows] = np.where(starts, order[known.zone, rows], np.where(stays, own, np.inf))
        moves = (known.kind == ON_DEMAND) & (demand != known.zone) & (spare + self.g < 0)
        leave = leave & ~((known.kind == ON_DEMAND) & (spare + self.g < 0))
        demand = np.where(moves, NOWHERE, demand)
        idles = np.where(
            runs & ~leave, stays, spare >= 0
        )  # True where it may go on without on-demand if nothing launches
        return (
            order,
            np.where(~idles & (demand == NOWHERE), find_blind_on_demand_zone(self.inputs, known), demand),
            leave,
        )

    def _record_answers(self, which: Bools) -> None:
        known = self.view
        known.answer_tick = np.where(which, known.tick, known.answer_tick)
        known.was_up = np.where(which, self.up, known.was_up)

    def _record_launches(self, which: Ints) -> None:
        self.launch(which, self.view.zone)
        self.view.since[which] = self.view.tick

    def _finish_on_demand(self, which: Bools) -> None:
        """Run these windows on demand from now on until their work is done, and remove them."""
        known = self.view
        zone = np.where(known.kind == IDLE, find_blind_on_demand_zone(self.inputs, known), known.zone)
        fresh = np.flatnonzero(which & (known.kind != ON_DEMAND))
        known.zone = np.where(which, zone, known.zone)
        self._record_launches(fresh)
        more = -(-(known.left_s + known.delay_s) // self.g)[which]
        window = known.window[which]
        self.demand[window] += more
        self.run_usd[window] += more * self.inputs.on_demand_usd[known.zone[which]] * self.g / HOUR_S
        self.done_tick[window] = known.tick + more
        self._keep_rows(~which)

    def _keep_rows(self, which: Bools) -> None:
        self.view.keep(which)
        self.up = self.up[:, which]
