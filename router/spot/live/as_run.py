"""Back-test of the very policy that the supervisor runs, over windows of recorded availability.

The policy is asked through its interface, option by option, inside its deadline guard, with what it knows of the
options and no more.

The rules are those of :mod:`router.spot.simulator.blind_simulator`: a launch that fails is free, each launch takes the
changeover, egress is paid from where the job last ran a tick. On top come the rules of the supervisor: a gang that runs
tries one option a tick and goes on until it is obtained; one that runs nowhere tries until something is obtained, and
asks its policy after each refusal; a pool that refused is avoided for an hour, one that was preempted for ten minutes
and longer each time, both for ten minutes under a policy that models availability
(:mod:`router.spot.live.pool_backoff`). No zone is probed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Final

import numpy as np

from pricing.money import Usd, UsdPerHour
from pricing.places import Market
from router.jobs.run_policy import RunPolicy
from router.spot.availability.hazard_model import LossRates
from router.spot.availability.observed import PoolObservation, summarise_observations
from router.spot.live.policy_adapter import PolicyAdapter
from router.spot.live.pool_backoff import (
    BACKOFF_MEMORY,
    BackoffPeriod,
    compute_backoff_end,
    is_backing_off,
    models_availability,
)
from router.spot.live.replay import SessionMemory
from router.spot.live.selection import build_policy, default_run_policy
from router.spot.policies import QUOTED_RULE
from router.spot.policies.deadline_guard import DeadlineGuard
from router.spot.policies.interface import (
    AvailabilityAnswer,
    AvailabilityEstimate,
    CurrentPlacement,
    Decision,
    MoveDecision,
    Observation,
    PastAttempt,
    PlacementOption,
    Policy,
    PolicyEvent,
    SpotPoolKey,
)
from router.spot.policies.registry import PoolLookup
from router.spot.simulator.blind_policy import BlindView
from router.spot.simulator.inputs import HOUR_S, SimulationInputs
from router.spot.simulator.simulation import IDLE, NOWHERE, ON_DEMAND, SPOT, WindowOutcomes
from router.spot.simulator.traces import Ints, Series

# The planner's prior of spot of which nothing is known, and the time-outs of a deploy file.
PRIOR: Final = LossRates((0.45, 0.24, 0.1, 0.03), 1.1)  # of a pool of which nobody has published anything
PRIOR_BACK_H: Final = 1.6
_REFUSED_FOR: Final = timedelta(hours=1)
_QUARANTINE: Final = timedelta(minutes=10)
_OBSERVED_FOR: Final = timedelta(days=31)
_BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
BlindViewListener = Callable[[BlindView], None]
DecisionListener = Callable[[int, int, Observation, Decision], None]


def play_as_run(
    past: Series | None,
    inputs: SimulationInputs,
    watch: BlindViewListener | None = None,
    *,
    chosen: RunPolicy | None = None,
    keeps: bool = True,
    heard: DecisionListener | None = None,
) -> WindowOutcomes:
    """Play all windows of ``inputs``, in which zones are asked, and return their outcome.

    ``past`` is what the price history recorded of the zones before. ``chosen`` is the policy; None: the one that quotes
    are made for. ``heard`` is called with window, tick, observation and decision. Without ``keeps`` each decision
    replays the whole past, as the supervisor's does: the same result, and slower. Raise ValueError where zones differ
    in speed.

    Windows are played side by side, by the time of the series, so that those that see the same prices share fits.
    """
    if not inputs.alike:
        raise ValueError("this back-test supports zones of one speed only")
    world = _World(inputs)
    lookup = pool_lookup(past, inputs)
    asked = chosen or default_run_policy(QUOTED_RULE)
    runs = [_Run(world, row, int(at), _policy(asked, lookup, keeps=keeps)) for row, at in enumerate(inputs.starts)]
    for tick in range(int(inputs.starts.min()), int(inputs.starts.max()) + inputs.ticks):
        for run in runs:
            if run.start <= tick < run.start + inputs.ticks and run.left_s > 0:
                run.play(tick - run.start, heard)
                if watch is not None:
                    watch(run.known())
    for run in runs:
        run.to_the_end()
    return _outcome(runs, inputs)


def _policy(chosen: RunPolicy, lookup: PoolLookup, *, keeps: bool) -> Policy:
    policy = build_policy(chosen, watched=lookup)
    if keeps and isinstance(policy, DeadlineGuard) and isinstance(policy.inner, PolicyAdapter):
        return DeadlineGuard(replace(policy.inner, memory=SessionMemory()))
    return policy


def _pool_key(world_zone: str, region: str) -> SpotPoolKey:
    return ("traces", region, world_zone, "machine")


def pools_of(inputs: SimulationInputs) -> tuple[SpotPoolKey, ...]:
    """Return the pool of each zone."""
    return tuple(_pool_key(zone, region) for zone, region in zip(inputs.zones, inputs.regions, strict=True))


def pool_lookup(past: Series | None, inputs: SimulationInputs) -> PoolLookup:
    """Return the observations of pools as the price history has them.

    They are one look at each tick of the last 31 days before the windows.
    """
    known: dict[SpotPoolKey, PoolObservation] = {}
    if past is not None:
        traces = {zone.zone: zone for zone in past.zones}
        first = max(0, past.ticks - int(_OBSERVED_FOR.total_seconds()) // past.tick_s)
        times = [_BEGIN + timedelta(seconds=tick * past.tick_s) for tick in range(first, past.ticks)]
        for zone, region in zip(inputs.zones, inputs.regions, strict=True):
            up = (traces[zone].counts >= inputs.task.size)[first:].tolist() if zone in traces else []
            observation = summarise_observations(zip(times, up, strict=False), timedelta(seconds=past.tick_s))
            if observation is not None:
                known[_pool_key(zone, region)] = observation

    def lookup(pools: Collection[SpotPoolKey]) -> Mapping[SpotPoolKey, PoolObservation]:
        return {pool: known[pool] for pool in pools if pool in known}

    return lookup


class _World:
    """Keys and prices of the placement options of one simulation.

    On-demand of one price in a region is one option, as clouds sell it.
    """

    def __init__(self, inputs: SimulationInputs) -> None:
        self.inputs, self.tick = inputs, timedelta(seconds=inputs.tick_s)
        self.spot_nanos: Ints = np.rint(inputs.spot_usd * 1e9).astype(np.int64)
        self.zones, self.regions = inputs.zones, inputs.regions
        self.demand: dict[str, int] = {}
        for z in range(len(self.zones)):
            if isfinite(inputs.on_demand_usd[z]) and not any(
                self._sold_as_one(z, other) for other in self.demand.values()
            ):
                self.demand[f"{self.zones[z]} on demand"] = z
        self.spot = {f"{zone} spot": z for z, zone in enumerate(self.zones)}
        self.pools = {key: (_pool_key(self.zones[z], self.regions[z]),) for key, z in self.spot.items()}

    def _sold_as_one(self, zone: int, other: int) -> bool:
        """Return whether on-demand of the two zones is one option.

        It is if both are of one region and price, with nothing to move between them.
        """
        inputs = self.inputs
        apart = inputs.ways.egress_usd[zone, other] or inputs.ways.transfer_s[zone, other]
        same = (self.regions[zone], inputs.on_demand_usd[zone]) == (self.regions[other], inputs.on_demand_usd[other])
        return same and not apart

    def place(self, key: str, left_s: int, home: int, at: int) -> PlacementOption:
        """Return the option as it is seen at a tick of the series, with the checkpoint in zone ``home``."""
        inputs, hours, spot = self.inputs, left_s / HOUR_S, key in self.spot
        z = self.spot[key] if spot else self.demand[key]
        usd, seconds = 0.0, 0
        if home != NOWHERE:
            usd, seconds = float(inputs.ways.egress_usd[home, z]), int(inputs.ways.transfer_s[home, z])
        nanos = int(self.spot_nanos[z, at]) if spot else round(float(inputs.on_demand_usd[z]) * 1e9)
        moves = Usd(round(usd * 1e9))
        chances = (
            AvailabilityEstimate(hours, 0.0, self.pools[key], PRIOR_BACK_H) if spot else AvailabilityEstimate(hours)
        )
        return PlacementOption(
            key=key,
            market=Market.SPOT if spot else Market.ON_DEMAND,
            usd_per_hour=UsdPerHour(nanos),
            hours=hours,
            startup_hours=inputs.task.changeover_s / HOUR_S,
            expected_usd=Usd(round(hours * nanos) + moves.nanos),
            transfer_hours=seconds / HOUR_S,
            losses=PRIOR if spot else LossRates.flat(0.0),
            moves_usd=moves,
            site=f"{self.regions[z]} machine",
            region=self.regions[z],
            chances=chances,
        )


@dataclass(eq=False, slots=True)
class _Run:
    world: _World
    row: int
    start: int
    policy: Policy
    tick: int = 0
    left_s: int = field(init=False)
    kind: int = IDLE
    zone: int = 0
    key: str = ""
    home: int = NOWHERE
    delay_s: int = 0
    run_usd: float = 0.0
    egress_usd: float = 0.0
    spot_ticks: int = 0
    demand_ticks: int = 0
    launches: int = 0
    finish: int = 0
    lives: list[PastAttempt] = field(default_factory=list)
    answers: list[AvailabilityAnswer] = field(default_factory=list)
    alone: dict[str, list[BackoffPeriod]] = field(default_factory=dict)
    modelled: bool = field(init=False)

    def __post_init__(self) -> None:
        self.left_s = self.world.inputs.task.work_s
        self.modelled = models_availability(self.policy)

    @property
    def began(self) -> datetime:
        return _BEGIN + self.start * self.world.tick

    @property
    def now(self) -> datetime:
        return _BEGIN + (self.start + self.tick) * self.world.tick

    def play(self, tick: int, heard: DecisionListener | None) -> None:
        """Play one tick: what is lost, what is decided and tried, and a tick's work."""
        self.tick = tick
        event = PolicyEvent.TICK if self.kind != IDLE else PolicyEvent.ENDED_SHORT
        if self.kind == SPOT and not self._is_up(self.zone):
            key = self.key
            self._end_attempt(taken=True)
            self._start_backoff(key)
            event = PolicyEvent.LOST
        while True:
            seen = self._observe(event)
            decision = self.policy.decide(seen)
            if heard is not None:
                heard(self.row, tick, seen, decision)
            if not isinstance(decision, MoveDecision) or not self._apply(decision):
                break
            event = PolicyEvent.ENDED_SHORT
        self._work_tick()

    def _apply(self, decision: MoveDecision) -> bool:
        """Apply the decision, and return whether to ask again.

        A gang that runs nowhere and was refused is placed again at once.
        """
        to = decision.to
        if self.kind != IDLE and (self.key in to or decision.keep):
            # What runs already is not stopped and started again.
            if to := to[: to.index(self.key)] if self.key in to else to:
                self._try_option(to[0])
            return False
        if self.kind != IDLE:
            self._end_attempt()
            return bool(to)
        return bool(to) and not self._try_option(to[0])

    def _try_option(self, key: str) -> bool:
        if key in self.world.spot:
            zone = self.world.spot[key]
            up = self._is_up(zone)
            self.answers.append(AvailabilityAnswer(key, self.now, up))
            if not up:
                self.alone.setdefault(key, []).append((self.now, self.now + _REFUSED_FOR))
                return False
        else:
            zone = self.world.demand[key]
        self._end_attempt()
        self._launch(SPOT if key in self.world.spot else ON_DEMAND, zone, key)
        return True

    def _is_up(self, zone: int) -> bool:
        return bool(self.world.inputs.up[zone, self.start + self.tick])

    def _start_backoff(self, key: str) -> None:
        lately = [one for one in self.alone.get(key, ()) if one[0] >= self.now - BACKOFF_MEMORY]
        until = compute_backoff_end(lately, self.now, _QUARANTINE)
        if until is not None:
            self.alone.setdefault(key, []).append((self.now, until))

    def _observe(self, event: PolicyEvent) -> Observation:
        world, at = self.world, self.start + self.tick
        task, lives, answers = world.inputs.task, self.lives, self.answers
        if lives and lives[-1].until is None:
            lives = [*lives[:-1], replace(lives[-1], share_to=self.left_s / task.work_s)]
        closed = {
            key
            for key, spans in self.alone.items()
            if any(is_backing_off(span, self.now, _QUARANTINE, modelled=self.modelled) for span in spans)
        }
        here, others, shut = None, list[PlacementOption](), list[PlacementOption]()
        for key in (*world.spot, *world.demand):
            place = world.place(key, self.left_s, self.home, at)
            if self.kind != IDLE and key == self.key:
                here = CurrentPlacement(place, saved=True)
            else:
                (shut if key in closed else others).append(place)
        return Observation(
            now=self.now,
            deadline=self.began + world.inputs.ticks * world.tick,
            tick=world.tick,
            event=event,
            here=here,
            places=tuple(others),
            closed=tuple(shut),
            began=self.began,
            share=self.left_s / task.work_s,
            lives=tuple(lives),
            answers=tuple(answers),
        )

    def _end_attempt(self, *, taken: bool = False) -> None:
        if self.kind != IDLE:
            share = self.left_s / self.world.inputs.task.work_s
            self.lives[-1] = replace(self.lives[-1], until=self.now, taken=taken, share_to=share)
        self.kind, self.delay_s = IDLE, 0

    def _launch(self, kind: int, zone: int, key: str) -> None:
        inputs = self.world.inputs
        self.kind, self.zone, self.key, self.delay_s = kind, zone, key, inputs.task.changeover_s
        self.launches += 1
        if self.home != NOWHERE:
            self.delay_s += int(inputs.ways.transfer_s[self.home, zone])
            self.egress_usd += float(inputs.ways.egress_usd[self.home, zone])
        share = self.left_s / inputs.task.work_s
        self.lives.append(
            PastAttempt(key, self.now, self.now + timedelta(seconds=self.delay_s), None, False, share, share)
        )

    def _work_tick(self) -> None:
        if self.kind == IDLE:
            return
        inputs, g = self.world.inputs, self.world.inputs.tick_s
        spot = self.kind == SPOT
        rate = inputs.spot_usd[self.zone, self.start + self.tick] if spot else inputs.on_demand_usd[self.zone]
        self.run_usd += float(rate) * g / HOUR_S
        self.spot_ticks += spot
        self.demand_ticks += not spot
        passed = min(self.delay_s, g)
        self.left_s = max(0, self.left_s - g + passed)
        self.delay_s -= passed
        self.home = self.zone
        self.finish = self.tick + 1

    def to_the_end(self) -> None:
        """Finish late work after the deadline on demand, where that is cheapest."""
        if not self.left_s:
            return
        inputs = self.world.inputs
        self.tick = inputs.ticks
        if self.kind != ON_DEMAND:
            zone = self.zone if self.kind == SPOT else int(np.argmin(inputs.on_demand_usd))
            self._end_attempt()
            self._launch(ON_DEMAND, zone, "")
        more = -(-(self.left_s + self.delay_s) // inputs.tick_s)
        self.demand_ticks += more
        self.run_usd += more * float(inputs.on_demand_usd[self.zone]) * inputs.tick_s / HOUR_S
        self.left_s, self.finish = 0, inputs.ticks + more

    def known(self) -> BlindView:
        """Return the view for a listener: what ran in the tick, and nothing of the zones."""
        at = self.start + self.tick
        return replace(
            BlindView.initial(self.world.inputs, np.array([self.row])),
            tick=self.tick,
            left_s=np.array([self.left_s]),
            kind=np.array([self.kind], dtype=np.int8),
            zone=np.array([self.zone]),
            home=np.array([self.home]),
            delay_s=np.array([self.delay_s]),
            spot_usd=self.world.inputs.spot_usd[:, at : at + 1],
        )


def _outcome(runs: list[_Run], inputs: SimulationInputs) -> WindowOutcomes:
    finish = np.array([run.finish for run in runs])
    return WindowOutcomes(
        usd=np.array([run.run_usd + run.egress_usd for run in runs]),
        egress_usd=np.array([run.egress_usd for run in runs]),
        probe_usd=np.zeros(len(runs)),
        finish_tick=finish,
        late=finish > inputs.ticks,
        spot_ticks=np.array([run.spot_ticks for run in runs]),
        on_demand_ticks=np.array([run.demand_ticks for run in runs]),
        launches=np.array([run.launches for run in runs]),
    )
