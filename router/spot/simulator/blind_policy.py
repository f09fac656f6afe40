"""The interface of a policy that does not see spot availability: what it is told, and what it may request.

The simulator that plays such policies is :mod:`router.spot.simulator.blind_simulator`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np

from router.spot.simulator.inputs import HOUR_S, SimulationSpec
from router.spot.simulator.simulation import NOWHERE, ON_DEMAND, WindowView, initial_fields
from router.spot.simulator.traces import Bools, Floats, Ints

NEVER: Final = -1


@dataclass(eq=False, slots=True)
class BlindView(WindowView):
    """The start of a tick as a blind policy sees it.

    ``lost`` says whether the spot instance was preempted at the start of this tick. ``since`` is the tick of the last
    launch. The others are by [zone, window]: ``answer_tick``, the tick of the zone's last answer, or ``NEVER``;
    ``was_up``, that answer; ``tried``, where spot was tried in this tick or, before the launches of this tick, in the
    last one.
    """

    lost: Bools
    since: Ints
    answer_tick: Ints
    was_up: Bools
    tried: Bools

    @classmethod
    def initial(cls, spec: SimulationSpec, window: Ints) -> BlindView:
        """Return the view of these windows before anything ran."""
        none: Ints = np.zeros(window.size, dtype=np.int64)
        unseen: Bools = np.zeros((len(spec.zones), window.size), dtype=bool)
        return cls(
            **initial_fields(spec, window, none + spec.task.work_s),
            lost=none > 0,
            since=none + NEVER,
            answer_tick=np.full(unseen.shape, NEVER, dtype=np.int64),
            was_up=unseen.copy(),
            tried=unseen,
        )


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

    def look(self, _: BlindView, /) -> Bools | None:
        """Return by [zone, window] which zones to probe once the tick's launches are known; None for none.

        The answers are in the view of the next tick; where no answer could be obtained, ``answer_tick`` there is older
        than this tick. Where spot runs, a probe is neither made nor paid.
        """
        return None


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
