"""Registry of policies: how each is played in back-tests, and how a running job plays it.

A policy is a module with ``POLICIES``, which :data:`router.spot.policies.POLICY_MODULES` names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final, Self

from router.jobs.run_policy import Number
from router.spot.availability.observed import PoolObservation
from router.spot.policies import POLICY_MODULES, Rule
from router.spot.policies.interface import PolicyZone, SpotPoolKey
from router.spot.simulator.blind_policy import BlindPolicy, BlindView
from router.spot.simulator.blind_simulator import simulate_blind
from router.spot.simulator.inputs import SimulationInputs, SimulationSpec
from router.spot.simulator.simulation import FullInfoPolicy, FullView, GuardMode, WindowOutcomes, simulate
from router.spot.simulator.traces import Series

FullInfoFactory = Callable[[Series | None, SimulationInputs], FullInfoPolicy]
BlindFactory = Callable[[Series | None, SimulationInputs, float], BlindPolicy]
ViewListener = Callable[[FullView | BlindView], None]
WindowPlayer = Callable[[Series | None, SimulationInputs, ViewListener | None], WindowOutcomes]
PoolLookup = Callable[[Collection[SpotPoolKey]], Mapping[SpotPoolKey, PoolObservation]]
Parameters = Mapping[str, Number]


def find_no_observations(_: Collection[SpotPoolKey]) -> Mapping[SpotPoolKey, PoolObservation]:
    """Return no observations: priors alone are used."""
    return {}


@dataclass(frozen=True, slots=True)
class LivePolicy:
    """How a running job plays a blind policy, which ``factory`` makes for the specification of these zones.

    ``replays_past``: the session's decisions depend on more than the present view; else the past is not replayed to it.
    Longer jobs are seen in longer ticks, ``most_ticks`` at most; of more than ``most_zones`` zones it keeps those where
    the job was, the fastest on demand and the cheapest.

    ``models_losses``: for a blind policy that models losses itself. Each option is a zone of its own, and as fast as it
    is where nothing is lost; every launch on spot takes longer by what a loss there costs.
    """

    factory: Callable[[SimulationSpec, Sequence[PolicyZone], PoolLookup], BlindPolicy]
    replays_past: bool = True
    most_zones: int = 24
    most_ticks: int = 1000
    models_losses: bool = False

    @classmethod
    def fixed(cls, policy: BlindPolicy, *, replays_past: bool = True) -> Self:
        """Return how a job plays a policy that is the same for all zones."""
        return cls(lambda *_: policy, replays_past)


@dataclass(frozen=True, slots=True)
class RegisteredPolicy:
    """A policy of the registry.

    ``sees`` makes it for a world in which each zone's availability is free to see, ``asks`` for one in which zones are
    asked, for money; None: there is none. Both get the past (None where there is none) and inputs like those to be
    played; ``asks`` also the checkpoint in GB. ``learns``: it needs a past. ``exact``: it needs the exact guard; else
    the published one. ``plays`` plays the inputs by itself, asking zones, with a guard of its own.

    ``rule`` is its name in deploy files, where a running job may have it; ``live`` is how that plays it, with
    parameters of these names, ``parameters`` unless others are asked for.
    """

    name: str
    about: str
    sees: FullInfoFactory | None = None
    asks: BlindFactory | None = None
    learns: bool = False
    exact: bool = False
    plays: WindowPlayer | None = None
    rule: Rule | None = None
    live: Callable[[Parameters], LivePolicy] | None = None
    parameters: Parameters = field(default_factory=dict)

    def play(
        self,
        past: Series | None,
        inputs: SimulationInputs,
        checkpoint_gb: float,
        *,
        paid: bool = False,
        exact: bool | None = None,
        watch: ViewListener | None = None,
    ) -> WindowOutcomes:
        """Play all windows of ``inputs`` and return their outcome.

        ``paid``: by asking zones, though it could see. ``exact`` overrides which guard is used. Raise ValueError where
        it cannot do that, or needs a past that is missing.
        """
        if self.learns and past is None:
            raise ValueError(f"{self.name} learns from the past, and there is none")
        if self.plays is not None:
            return self.plays(past, inputs, watch)
        guard = GuardMode.EXACT if (self.exact if exact is None else exact) else GuardMode.PUBLISHED
        if self.sees is not None and not paid:
            return simulate(inputs, self.sees(past, inputs), guard, watch=watch)
        if self.asks is None:
            raise ValueError(f"{self.name} does not ask")
        return simulate_blind(inputs, self.asks(past, inputs, checkpoint_gb), guard, watch=watch)


OUR_POLICY: Final = "ours"
# The names of deploy files.
ALIASES: Final = {
    "spot-or-wait": "greedy",
    "uniform-progress": "up",
    "uniform-progress-plain": "up-plain",
    "uniform-progress-failover": "up-s",
    "uniform-progress-rate": "up-a",
    "uniform-progress-rate-per-usd": "up-ap",
    "time-sliced": "sliced",
    "foresight": OUR_POLICY,
}


@cache
def registered_policies() -> Mapping[str, RegisteredPolicy]:
    """Return all policies by name."""
    policies: list[RegisteredPolicy] = [each for name in POLICY_MODULES for each in import_module(name).POLICIES]
    return MappingProxyType({policy.name: policy for policy in policies})


def find_policy(name: str, among: Mapping[str, RegisteredPolicy] | None = None) -> RegisteredPolicy:
    """Return the policy of that name; else raise KeyError with similar names, or with all."""
    among = registered_policies() if among is None else among
    policy = among.get(ALIASES.get(name.lower(), name.lower()))
    if policy is None:
        similar = get_close_matches(name.lower(), [*among, *ALIASES], n=2)
        raise KeyError(f"did you mean {' or '.join(similar)}?" if similar else f"one of {', '.join(among)}")
    return policy
