"""Registry of policies by name; each plays with full information, or by asking zones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from router.spot.policies.baselines import Greedy, TimeSliced, UniformProgress, cheapest_elsewhere
from router.spot.policies.our_policy import explorer_from, policy_from
from router.spot.policies.payback import CheapestWithMoves, Lindy
from router.spot.policies.skynomad import SkyNomad
from router.spot.policies.uniform_probing import CheapestSpot, FailoverProgress, RatePerUsdProgress, RateProgress
from router.spot.simulator.blind_policy import Explorer, Known
from router.spot.simulator.blind_simulator import Guard, explore
from router.spot.simulator.inputs import Scene
from router.spot.simulator.simulation import Net, Now, VectorPolicy, simulate
from router.spot.simulator.traces import Bools, Floats, Ints, Series

SLICES: Final = 8
Sees = Callable[[Series | None, Scene], VectorPolicy]
Asks = Callable[[Series | None, Scene, float], Explorer]
Watch = Callable[[Now | Known], None]


@dataclass(frozen=True, eq=False, slots=True)
class Played:
    """The outcome of windows, one entry a window; ``usd`` is the whole cost.

    ``finish_tick`` is the first tick after the last billed one.
    """

    usd: Floats
    egress_usd: Floats
    probe_usd: Floats
    finish_tick: Ints
    late: Bools
    spot_ticks: Ints
    on_demand_ticks: Ints
    launches: Ints


Plays = Callable[[Series | None, Scene, Watch | None], Played]


@dataclass(frozen=True, slots=True)
class Named:
    """A policy of the registry.

    ``sees`` makes it for a world in which each zone's availability is free to see, ``asks`` for one in which zones are
    asked, for money; None: there is none. Both get the past (None where there is none) and inputs like those to be
    played; ``asks`` also the checkpoint in GB. ``learns``: it needs a past. ``exact``: it needs the exact guard; else
    the published one. ``plays`` plays the inputs by itself, asking zones, with a guard of its own.
    """

    name: str
    about: str
    sees: Sees | None = None
    asks: Asks | None = None
    learns: bool = False
    exact: bool = False
    plays: Plays | None = None

    def play(
        self,
        past: Series | None,
        scene: Scene,
        checkpoint_gb: float,
        *,
        paid: bool = False,
        exact: bool | None = None,
        watch: Watch | None = None,
    ) -> Played:
        """Play all windows of ``scene`` and return their outcome.

        ``paid``: by asking zones, though it could see. ``exact`` overrides which guard is used. Raise ValueError where
        it cannot do that, or needs a past that is missing.
        """
        if self.learns and past is None:
            raise ValueError(f"{self.name} learns from the past, and there is none")
        if self.plays is not None:
            return self.plays(past, scene, watch)
        sure = self.exact if exact is None else exact
        if self.sees is not None and not paid:
            free = simulate(scene, self.sees(past, scene), Net.EXACT if sure else Net.PUBLISHED, watch=watch)
            return Played(
                free.usd,
                free.egress_usd,
                0 * free.usd,
                free.finish_tick,
                free.late,
                free.spot_ticks,
                free.on_demand_ticks,
                free.launches,
            )
        if self.asks is None:
            raise ValueError(f"{self.name} does not ask")
        bill = explore(
            scene, self.asks(past, scene, checkpoint_gb), Guard.EXACT if sure else Guard.PUBLISHED, None, watch
        )
        return Played(
            bill.usd,
            bill.egress_usd,
            bill.probe_usd,
            bill.finish_tick,
            bill.late,
            bill.spot_ticks,
            bill.on_demand_ticks,
            bill.launches,
        )


OURS: Final = "ours"
_ALL: Final = (
    Named(
        OURS,
        "stepfare's own, fitted on the past",
        sees=lambda past, scene: policy_from(_require_past(past), scene),
        asks=lambda past, scene, _: explorer_from(_require_past(past), scene),
        learns=True,
        exact=True,
    ),
    Named("greedy", "the cheapest spot, else wait", lambda *_: Greedy(), lambda *_: CheapestSpot()),
    Named("sliced", f"Time Sliced: greedy in each of {SLICES} slices of the time", lambda *_: TimeSliced(SLICES)),
    Named("up", "Uniform Progress, the cheapest zone first", lambda *_: UniformProgress()),
    Named("up-plain", "the same, leaving on-demand for any spot", lambda *_: UniformProgress(hysteresis=False)),
    Named(
        "up-s",
        "UP(S): the region where spot was lost comes last",
        lambda *_: UniformProgress(ranking=cheapest_elsewhere),
        lambda *_: FailoverProgress(),
    ),
    Named("up-a", "UP(A): the zone with the best share of answers first", asks=lambda *_: RateProgress()),
    Named("up-ap", "UP(AP): share of answers over price", asks=lambda *_: RatePerUsdProgress()),
    Named("moves", "the cheapest spot, moves when that pays if it lasts", asks=lambda *_: CheapestWithMoves()),
    Named("lindy", "moves when that pays if spot lasts as long again", asks=lambda *_: Lindy()),
    Named("skynomad", "SkyNomad as its H100 figures have it", asks=lambda _, __, gb: SkyNomad(checkpoint_gb=gb)),
    Named("skynomad-v100", "SkyNomad as its V100 figure has it", asks=lambda *_: SkyNomad.v100()),
)
POLICIES: Final = {policy.name: policy for policy in _ALL}
# The names of deploy files are among them.
ALIASES: Final = {
    "cheapest": "greedy",
    "spot-or-wait": "greedy",
    "up-cheapest": "up",
    "uniform-progress": "up",
    "uniform-progress-plain": "up-plain",
    "uniform-progress-failover": "up-s",
    "uniform-progress-rate": "up-a",
    "uniform-progress-rate-per-usd": "up-ap",
    "time-sliced": "sliced",
    "foresight": OURS,
}


def named(name: str, among: Mapping[str, Named] = POLICIES) -> Named:
    """Return the policy of that name; else raise KeyError with similar names, or with all."""
    policy = among.get(ALIASES.get(name.lower(), name.lower()))
    if policy is None:
        similar = get_close_matches(name.lower(), [*among, *ALIASES], n=2)
        raise KeyError(f"did you mean {' or '.join(similar)}?" if similar else f"one of {', '.join(among)}")
    return policy


def _require_past(past: Series | None) -> Series:
    assert past is not None  # play() has checked it
    return past
