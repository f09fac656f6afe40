"""Registry of policies by name; each plays with full information, or by asking zones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from router.spot.policies.baselines import (
    CheapestSpot,
    CheapestWithMoves,
    GreedySpot,
    Lindy,
    TimeSliced,
    UniformProgress,
    rank_by_price_elsewhere,
)
from router.spot.policies.our_policy import blind_policy_from, policy_from
from router.spot.policies.skynomad import SkyNomad
from router.spot.policies.uniform_probing import FailoverProgress, RatePerUsdProgress, RateProgress
from router.spot.simulator.blind_policy import BlindPolicy, BlindView
from router.spot.simulator.blind_simulator import simulate_blind
from router.spot.simulator.inputs import SimulationInputs
from router.spot.simulator.simulation import FullInfoPolicy, FullView, GuardMode, WindowOutcomes, simulate
from router.spot.simulator.traces import Series

SLICES: Final = 8
FullInfoFactory = Callable[[Series | None, SimulationInputs], FullInfoPolicy]
BlindFactory = Callable[[Series | None, SimulationInputs, float], BlindPolicy]
ViewListener = Callable[[FullView | BlindView], None]
WindowPlayer = Callable[[Series | None, SimulationInputs, ViewListener | None], WindowOutcomes]


@dataclass(frozen=True, slots=True)
class RegisteredPolicy:
    """A policy of the registry.

    ``sees`` makes it for a world in which each zone's availability is free to see, ``asks`` for one in which zones are
    asked, for money; None: there is none. Both get the past (None where there is none) and inputs like those to be
    played; ``asks`` also the checkpoint in GB. ``learns``: it needs a past. ``exact``: it needs the exact guard; else
    the published one. ``plays`` plays the inputs by itself, asking zones, with a guard of its own.
    """

    name: str
    about: str
    sees: FullInfoFactory | None = None
    asks: BlindFactory | None = None
    learns: bool = False
    exact: bool = False
    plays: WindowPlayer | None = None

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
_ALL: Final = (
    RegisteredPolicy(
        OUR_POLICY,
        "stepfare's own, fitted on the past",
        sees=lambda past, inputs: policy_from(_require_past(past), inputs),
        asks=lambda past, inputs, _: blind_policy_from(_require_past(past), inputs),
        learns=True,
        exact=True,
    ),
    RegisteredPolicy("greedy", "the cheapest spot, else wait", lambda *_: GreedySpot(), lambda *_: CheapestSpot()),
    RegisteredPolicy(
        "sliced", f"Time Sliced: greedy in each of {SLICES} slices of the time", lambda *_: TimeSliced(SLICES)
    ),
    RegisteredPolicy("up", "Uniform Progress, the cheapest zone first", lambda *_: UniformProgress()),
    RegisteredPolicy(
        "up-plain", "the same, leaving on-demand for any spot", lambda *_: UniformProgress(hysteresis=False)
    ),
    RegisteredPolicy(
        "up-s",
        "UP(S): the region where spot was lost comes last",
        lambda *_: UniformProgress(ranking=rank_by_price_elsewhere),
        lambda *_: FailoverProgress(),
    ),
    RegisteredPolicy("up-a", "UP(A): the zone with the best share of answers first", asks=lambda *_: RateProgress()),
    RegisteredPolicy("up-ap", "UP(AP): share of answers over price", asks=lambda *_: RatePerUsdProgress()),
    RegisteredPolicy(
        "moves", "the cheapest spot, moves when that pays if it lasts", asks=lambda *_: CheapestWithMoves()
    ),
    RegisteredPolicy("lindy", "moves when that pays if spot lasts as long again", asks=lambda *_: Lindy()),
    RegisteredPolicy(
        "skynomad", "SkyNomad as its H100 figures have it", asks=lambda _, __, gb: SkyNomad(checkpoint_gb=gb)
    ),
    RegisteredPolicy("skynomad-v100", "SkyNomad as its V100 figure has it", asks=lambda *_: SkyNomad.v100()),
)
POLICIES: Final = {policy.name: policy for policy in _ALL}
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


def find_policy(name: str, among: Mapping[str, RegisteredPolicy] = POLICIES) -> RegisteredPolicy:
    """Return the policy of that name; else raise KeyError with similar names, or with all."""
    policy = among.get(ALIASES.get(name.lower(), name.lower()))
    if policy is None:
        similar = get_close_matches(name.lower(), [*among, *ALIASES], n=2)
        raise KeyError(f"did you mean {' or '.join(similar)}?" if similar else f"one of {', '.join(among)}")
    return policy


def _require_past(past: Series | None) -> Series:
    assert past is not None  # play() has checked it
    return past
