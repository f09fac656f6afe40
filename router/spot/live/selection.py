"""Selection of a policy by name: what a deploy file may ask for, each inside the exact deadline guard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from pricing.money import Usd
from router.jobs.run_policy import Number, RunPolicy
from router.spot.live.foresight_cache import MOST_CLOCK_TICKS, PoolLookup, find_no_observations, fit_foresight
from router.spot.live.policy_adapter import MOST_TICKS, MOST_ZONES, PolicyAdapter, PolicyZone
from router.spot.policies.baselines import GreedySpot as SpotOrWait
from router.spot.policies.baselines import TimeSliced, UniformProgress
from router.spot.policies.deadline_guard import DeadlineGuard
from router.spot.policies.foresight import DRAWS
from router.spot.policies.greedy import GreedyPolicy
from router.spot.policies.interface import Policy
from router.spot.policies.optimistic import OptimisticAdapter
from router.spot.policies.rules import Rule
from router.spot.policies.skynomad import SkyNomad
from router.spot.policies.uniform_probing import FailoverProgress, RatePerUsdProgress, RateProgress
from router.spot.simulator.blind_policy import BlindPolicy
from router.spot.simulator.inputs import SimulationSpec

Factory = Callable[[SimulationSpec, Sequence[PolicyZone], PoolLookup], BlindPolicy]
Parameters = Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class SelectablePolicy:
    """A policy that may be selected: how its blind policy is made for the specification of these zones.

    The other fields are those of :class:`~router.spot.live.policy_adapter.PolicyAdapter`.
    """

    factory: Factory
    replays_past: bool = True
    most_zones: int = MOST_ZONES
    most_ticks: int = MOST_TICKS
    models_losses: bool = False

    def steered(self, watched: PoolLookup = find_no_observations, fallback: Policy | None = None) -> PolicyAdapter:
        """Return it as the policy of a job, without a guard."""
        return PolicyAdapter(
            lambda terms, sites: self.factory(terms, sites, watched),
            self.replays_past,
            fallback or GreedyPolicy(),
            self.most_zones,
            self.most_ticks,
            self.models_losses,
        )


def _fixed(policy: BlindPolicy, *, replays_past: bool = True) -> Callable[[Parameters], SelectablePolicy]:
    known = SelectablePolicy(lambda *_: policy, replays_past)
    return lambda _: known


def _time_sliced(given: Parameters) -> SelectablePolicy:
    return SelectablePolicy(lambda *_: OptimisticAdapter(TimeSliced(int(given["slices"]))), replays_past=False)


def _foresight(given: Parameters) -> SelectablePolicy:
    draws, clock_ticks = int(given["draws"]), int(given["clock_ticks"])

    def make(terms: SimulationSpec, sites: Sequence[PolicyZone], watched: PoolLookup) -> BlindPolicy:
        return fit_foresight(terms, sites, watched, draws=draws, clock_ticks=clock_ticks)

    return SelectablePolicy(make, most_zones=int(given["places"]), most_ticks=int(given["ticks"]), models_losses=True)


_FACTORIES: Final[Mapping[Rule, Callable[[Parameters], SelectablePolicy]]] = MappingProxyType(
    {
        Rule.SPOT_OR_WAIT: _fixed(OptimisticAdapter(SpotOrWait()), replays_past=False),
        Rule.TIME_SLICED: _time_sliced,
        Rule.UNIFORM_PROGRESS: _fixed(OptimisticAdapter(UniformProgress()), replays_past=False),
        Rule.UNIFORM_PROGRESS_PLAIN: _fixed(OptimisticAdapter(UniformProgress(False)), replays_past=False),
        Rule.FAILOVER_PROGRESS: _fixed(FailoverProgress()),
        Rule.RATE_PROGRESS: _fixed(RateProgress()),
        Rule.RATE_PER_USD_PROGRESS: _fixed(RatePerUsdProgress()),
        Rule.SKYNOMAD: _fixed(SkyNomad()),
        Rule.FORESIGHT: _foresight,
    }
)
# ``places`` and ``ticks`` are limited: a fit to many options takes long, and so does the replay of its past.
_PARAMETERS: Final[Mapping[Rule, Parameters]] = MappingProxyType(
    {
        Rule.GREEDY: {"least_saving_usd": 1, "least_saving_share": 0.1},
        Rule.TIME_SLICED: {"slices": 8},
        Rule.FORESIGHT: {"clock_ticks": MOST_CLOCK_TICKS, "draws": DRAWS, "places": 8, "ticks": 240},
    }
)


def default_run_policy(rule: Rule) -> RunPolicy:
    """Return the policy of that name with the parameters of this version."""
    return RunPolicy.of(rule.value, **_PARAMETERS.get(rule, {}))


BLIND_POLICIES: Final[Mapping[Rule, SelectablePolicy]] = MappingProxyType(
    {rule: make(_PARAMETERS.get(rule, {})) for rule, make in _FACTORIES.items()}
)


def build_policy(chosen: RunPolicy, *, heeds_hints: bool = False, watched: PoolLookup = find_no_observations) -> Policy:
    """Return the policy inside its guard.

    ``watched`` returns the observations of spot pools, for policies that learn from them. Raise ValueError where this
    version does not know the name, or uses other parameters.
    """
    if chosen.name not in set(Rule):
        raise ValueError(f"this version knows no policy {chosen.name}")
    rule = Rule(chosen.name)
    given, usual = dict(chosen.parameters), _PARAMETERS.get(rule, {})
    if given.keys() != usual.keys() or any(value <= 0 for value in given.values()):
        takes = ", ".join(usual) or "none"
        raise ValueError(f"this version cannot run {chosen}: the parameters of {rule.value} are {takes}, above zero")
    if rule is Rule.GREEDY:
        least, share = Usd.parse(f"{given['least_saving_usd']:.9f}"), Fraction(str(given["least_saving_share"]))
        return DeadlineGuard(GreedyPolicy(least, share, heeds_hints))
    return DeadlineGuard(_FACTORIES[rule](given).steered(watched, GreedyPolicy(heeds_hints=heeds_hints)))


def build_named_policy(rule: Rule, *, heeds_hints: bool = False, watched: PoolLookup = find_no_observations) -> Policy:
    """Return the policy of that name inside its guard, with the parameters of this version."""
    return build_policy(default_run_policy(rule), heeds_hints=heeds_hints, watched=watched)
