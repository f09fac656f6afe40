"""Published baseline policies over one zone or several, and the optimistic adapter of full-information policies.

Their sources are Wu et al., "Can't Be Late", NSDI 2024, and over zones SkyNomad, NSDI 2027. They need the guard
:attr:`router.spot.simulator.simulation.GuardMode.PUBLISHED`.

Symbols: C work, R deadline, d changeover, t seconds since the start, cp work done, ep(t) = t * C / R. All is exact, in
whole seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from router.spot.policies import Rule
from router.spot.policies.registry import LivePolicy, RegisteredPolicy
from router.spot.simulator.blind_policy import BlindView, LaunchRequest, PolicySession
from router.spot.simulator.inputs import SimulationSpec
from router.spot.simulator.simulation import (
    IDLE,
    NOWHERE,
    ON_DEMAND,
    SPOT,
    Actions,
    FullInfoSession,
    FullView,
    InstanceKinds,
    find_on_demand_zone,
)
from router.spot.simulator.traces import Bools, Floats, Ints


class PresentPolicy(Protocol):
    """A policy that looks at no more than the present tick."""

    def begin(self, inputs: SimulationSpec) -> FullInfoSession: ...


@dataclass(frozen=True, slots=True)
class OptimisticAdapter:
    """A blind policy that asks ``policy`` what it would do if all zones were up.

    Where the answer is spot in some zone, it asks what the policy would do if that one was down, and so on. It requests
    the zones in that order, and at its end what is left to do.

    Several answers are asked of the policy for each tick. A zone that said no is taken to be down for the rest of the
    tick and ``holds_ticks`` more; 0: every tick is a new chance.
    """

    policy: PresentPolicy
    holds_ticks: int = 0

    def begin(self, terms: SimulationSpec, /) -> PolicySession:
        return _OptimisticSession(self.policy.begin(terms), self.holds_ticks)


class _OptimisticSession(PolicySession):
    def __init__(self, player: FullInfoSession, holds_ticks: int) -> None:
        self.player, self.holds = player, holds_ticks

    def act(self, view: BlindView, /) -> LaunchRequest:
        wish = LaunchRequest.nothing(view)
        rows = np.arange(view.window.size)
        up = (view.answer_tick < view.tick - self.holds) | view.was_up
        open_ = np.ones(rows.size, dtype=bool)
        for place in range(len(up) + 1):
            kind, zone = self.player(_full_view(view, up))
            spot = open_ & (kind == SPOT) & up[zone, rows]
            wish.spot[zone[spot], rows[spot]] = place
            demand = open_ & (kind == ON_DEMAND)
            wish.demand[demand] = zone[demand]
            wish.leave[open_ & (kind == IDLE) & (view.kind != IDLE)] = True
            up = up.copy()
            up[zone[spot], rows[spot]] = False
            open_ = spot & ~((view.kind == SPOT) & (view.zone == zone))
            if not open_.any():
                break
        return wish


def _full_view(view: BlindView, up: Bools) -> FullView:
    last = np.where(view.home == NOWHERE, NOWHERE, view.zone)
    return FullView(
        tick=view.tick,
        ticks=view.ticks,
        window=view.window,
        left_s=view.left_s,
        kind=view.kind,
        zone=view.zone,
        home=view.home,
        last=last,
        delay_s=view.delay_s,
        kept=np.zeros_like(view.left_s),
        up=up,
        spot_usd=view.spot_usd,
    )


Ranking = Callable[[SimulationSpec, FullView], Floats]


def rank_by_price(inputs: SimulationSpec, now: FullView) -> Floats:
    """Return by [zone, window] the present spot price in dollars for an hour's work; the least ranks first."""
    return now.spot_usd if inputs.alike else now.spot_usd / inputs.speed[:, None]


def rank_by_price_elsewhere(inputs: SimulationSpec, now: FullView) -> Floats:
    """Rank as :func:`rank_by_price`, but the whole region where the job last ran last: "eager failover", UP(S)."""
    region = inputs.region_numbers
    was = np.where(now.last < 0, -1, region[np.maximum(now.last, 0)])
    usd = rank_by_price(inputs, now)
    return usd + np.where(region[:, None] == was, float(usd.max()), 0.0)


def choose_spot_or_idle(
    inputs: SimulationSpec, now: FullView, ranking: Ranking = rank_by_price
) -> tuple[Bools, InstanceKinds, Ints]:
    """Return whether there is spot for each window, and the greedy action.

    A live spot instance is kept; else the best zone that is up is taken; else the job is idle.
    """
    if len(now.up) == 1:
        has, zone = now.up[0], now.zone
    else:
        first = np.argmin(np.where(now.up, ranking(inputs, now), np.inf), axis=0)
        has = now.up.any(axis=0)
        zone = np.where((now.kind == SPOT) | ~has, now.zone, first)
    return has, np.where(has, np.int8(SPOT), np.int8(IDLE)), zone


def add_on_demand(inputs: SimulationSpec, now: FullView, kind: InstanceKinds, zone: Ints, needed: Bools) -> Actions:
    """Return the actions with on-demand where it is ``needed``."""
    which = np.flatnonzero(needed)
    if which.size:
        kind, zone = kind.copy(), zone.copy()
        kind[which] = ON_DEMAND
        zone[which] = find_on_demand_zone(inputs, now, which)
    return kind, zone


@dataclass(frozen=True, slots=True)
class GreedySpot:
    """A policy that takes the cheapest spot whenever there is any, and else waits."""

    ranking: Ranking = rank_by_price

    def begin(self, inputs: SimulationSpec) -> FullInfoSession:
        def play(now: FullView) -> Actions:
            _, kind, zone = choose_spot_or_idle(inputs, now, self.ranking)
            return kind, zone

        return play


@dataclass(frozen=True, slots=True)
class UniformProgress:
    """Uniform Progress: on-demand where there is no spot and cp < ep(t), or where it runs already.

    With ``hysteresis`` it leaves on-demand for spot only when cp > ep(t + 2d); without ("plain") it takes any spot at
    once.
    """

    hysteresis: bool = True
    ranking: Ranking = rank_by_price

    def begin(self, inputs: SimulationSpec) -> FullInfoSession:
        task = inputs.task

        def play(now: FullView) -> Actions:
            has, kind, zone = choose_spot_or_idle(inputs, now, self.ranking)
            done, passed = (task.work_s - now.left_s) * task.deadline_s, now.tick * inputs.tick_s
            on_demand = now.kind == ON_DEMAND
            needed = ~has & (on_demand | (done < passed * task.work_s))
            if self.hysteresis:
                needed |= on_demand & (done <= (passed + 2 * task.changeover_s) * task.work_s)
            return add_on_demand(inputs, now, kind, zone, needed)

        return play


@dataclass(frozen=True, slots=True)
class TimeSliced:
    """Time Sliced: greedy in each of ``slices`` parts of R / n, each with a safety net of its own.

    The net of a part keeps n-ths of C done by its end; surplus work is carried over. A tick belongs to the slice in
    which it begins.

    With need = target - cp and rest = the slice's end - t: where nothing is needed, spot or idle; else, where idle or
    on demand and need + 2d > rest - tick, on demand; spot past its delay goes on to need + d. On demand with no spot it
    stays there until the target is met.
    """

    slices: int = 8

    def begin(self, inputs: SimulationSpec) -> FullInfoSession:
        task, g, n = inputs.task, inputs.tick_s, self.slices
        d = task.changeover_s + inputs.ways.longest_s

        def play(now: FullView) -> Actions:
            has, kind, zone = choose_spot_or_idle(inputs, now)
            slice_ = min(n - 1, now.tick * g * n // task.deadline_s)
            # Times are multiplied by n, so that all stay whole seconds.
            need = task.work_s * (slice_ + 1) - n * (task.work_s - now.left_s)
            after = task.deadline_s * (slice_ + 1) - n * (now.tick + 1) * g
            spot, on_demand = now.kind == SPOT, now.kind == ON_DEMAND
            riding = spot & (now.delay_s == 0)
            late = (~spot & (need + 2 * n * d > after)) | (~riding & (need + n * d > after))
            return add_on_demand(inputs, now, kind, zone, (need > 0) & (late | (on_demand & ~has)))

        return play


@dataclass(frozen=True, slots=True)
class CheapestSpot:
    """A policy that takes the cheapest spot whenever there is any, and else waits; it has to ask for it."""

    def begin(self, _: SimulationSpec, /) -> PolicySession:
        return _CheapestSession()


def order_by_price(view: BlindView) -> Floats:
    """Return by [zone, window] the order in which a job that is idle tries spot: the cheapest first."""
    return np.where(view.kind == IDLE, view.spot_usd, np.inf)


class _CheapestSession(PolicySession):
    def act(self, view: BlindView, /) -> LaunchRequest:
        wish = LaunchRequest.nothing(view)
        wish.spot = order_by_price(view)
        return wish


SLICES: Final = 8
POLICIES: Final = (
    RegisteredPolicy(
        "greedy",
        "the cheapest spot, else wait",
        lambda *_: GreedySpot(),
        lambda *_: CheapestSpot(),
        rule=Rule.SPOT_OR_WAIT,
        live=lambda _: LivePolicy.fixed(OptimisticAdapter(GreedySpot()), replays_past=False),
    ),
    RegisteredPolicy(
        "sliced",
        f"Time Sliced: greedy in each of {SLICES} slices of the time",
        lambda *_: TimeSliced(SLICES),
        rule=Rule.TIME_SLICED,
        live=lambda given: LivePolicy.fixed(OptimisticAdapter(TimeSliced(int(given["slices"]))), replays_past=False),
        parameters={"slices": SLICES},
    ),
    RegisteredPolicy(
        "up",
        "Uniform Progress, the cheapest zone first",
        lambda *_: UniformProgress(),
        rule=Rule.UNIFORM_PROGRESS,
        live=lambda _: LivePolicy.fixed(OptimisticAdapter(UniformProgress()), replays_past=False),
    ),
    RegisteredPolicy(
        "up-plain",
        "the same, leaving on-demand for any spot",
        lambda *_: UniformProgress(hysteresis=False),
        rule=Rule.UNIFORM_PROGRESS_PLAIN,
        live=lambda _: LivePolicy.fixed(OptimisticAdapter(UniformProgress(False)), replays_past=False),
    ),
)
