"""The policies by name: what a deploy file may ask for, and what the watcher then runs. All in the exact safety net."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from pricing.money import Usd
from router.jobs.run_policy import Number, RunPolicy
from router.spot.live.foresight_cache import MOST_CLOCK_TICKS, Watched, foreseeing, nothing_watched
from router.spot.live.policy_adapter import MOST_SITES, MOST_TICKS, Site, Steered
from router.spot.policies.baselines import Greedy as SpotOrWait
from router.spot.policies.baselines import TimeSliced, UniformProgress
from router.spot.policies.deadline_guard import SafetyNet
from router.spot.policies.foresight import DRAWS
from router.spot.policies.interface import Greedy, Policy, Rule
from router.spot.policies.optimistic import Believing
from router.spot.policies.skynomad import SkyNomad
from router.spot.policies.uniform_probing import FailoverProgress, RatePerUsdProgress, RateProgress
from router.spot.simulator.blind_policy import Explorer, Terms

Factory = Callable[[Terms, Sequence[Site], Watched], Explorer]
Parameters = Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class Known:
    """How an explorer is made for terms of these sites; the other fields as in
    :class:`~router.spot.live.policy_adapter.Steered`."""

    factory: Factory
    remembers: bool = True
    most_sites: int = MOST_SITES
    most_ticks: int = MOST_TICKS
    apart: bool = False

    def steered(self, watched: Watched = nothing_watched, otherwise: Policy | None = None) -> Steered:
        """It as the policy of a job, without a net."""
        return Steered(
            lambda terms, sites: self.factory(terms, sites, watched),
            self.remembers,
            otherwise or Greedy(),
            self.most_sites,
            self.most_ticks,
            self.apart,
        )


def _same(explorer: Explorer, *, remembers: bool = True) -> Callable[[Parameters], Known]:
    known = Known(lambda *_: explorer, remembers)
    return lambda _: known


def _sliced(given: Parameters) -> Known:
    return Known(lambda *_: Believing(TimeSliced(int(given["slices"]))), remembers=False)


def _foreseen(given: Parameters) -> Known:
    draws, clock_ticks = int(given["draws"]), int(given["clock_ticks"])

    def made(terms: Terms, sites: Sequence[Site], watched: Watched) -> Explorer:
        return foreseeing(terms, sites, watched, draws=draws, clock_ticks=clock_ticks)

    return Known(made, most_sites=int(given["places"]), most_ticks=int(given["ticks"]), apart=True)


_MAKING: Final[Mapping[Rule, Callable[[Parameters], Known]]] = MappingProxyType({
    Rule.SPOT_OR_WAIT: _same(Believing(SpotOrWait()), remembers=False),
    Rule.TIME_SLICED: _sliced,
    Rule.UNIFORM_PROGRESS: _same(Believing(UniformProgress()), remembers=False),
    Rule.UNIFORM_PROGRESS_PLAIN: _same(Believing(UniformProgress(False)), remembers=False),
    Rule.FAILOVER_PROGRESS: _same(FailoverProgress()),
    Rule.RATE_PROGRESS: _same(RateProgress()),
    Rule.RATE_PER_USD_PROGRESS: _same(RatePerUsdProgress()),
    Rule.SKYNOMAD: _same(SkyNomad()),
    Rule.FORESIGHT: _foreseen,
})  # fmt: skip
# ``places`` and ``ticks``: what is fitted to several places takes long with many, and so does showing it its past.
_PARAMETERS: Final[Mapping[Rule, Parameters]] = MappingProxyType(
    {
        Rule.GREEDY: {"least_saving_usd": 1, "least_saving_share": 0.1},
        Rule.TIME_SLICED: {"slices": 8},
        Rule.FORESIGHT: {"clock_ticks": MOST_CLOCK_TICKS, "draws": DRAWS, "places": 8, "ticks": 240},
    }
)


def run_policy(rule: Rule) -> RunPolicy:
    """The policy of that name with the parameters that this version gives it."""
    return RunPolicy.of(rule.value, **_PARAMETERS.get(rule, {}))


EXPLORERS: Final[Mapping[Rule, Known]] = MappingProxyType(
    {rule: make(_PARAMETERS.get(rule, {})) for rule, make in _MAKING.items()}
)


def policy_of(chosen: RunPolicy, *, heeds_hints: bool = False, watched: Watched = nothing_watched) -> Policy:
    """The policy in its net. ``watched``: what was seen of spot pools, for those that learn from it. ValueError where
    this version does not know the name, or other parameters than these."""
    if chosen.name not in set(Rule):
        raise ValueError(f"this version knows no policy {chosen.name}")
    rule = Rule(chosen.name)
    given, usual = dict(chosen.parameters), _PARAMETERS.get(rule, {})
    if given.keys() != usual.keys() or any(value <= 0 for value in given.values()):
        takes = ", ".join(usual) or "none"
        raise ValueError(f"this version cannot run {chosen}: the parameters of {rule.value} are {takes}, above zero")
    if rule is Rule.GREEDY:
        least, share = Usd.parse(f"{given['least_saving_usd']:.9f}"), Fraction(str(given["least_saving_share"]))
        return SafetyNet(Greedy(least, share, heeds_hints))
    return SafetyNet(_MAKING[rule](given).steered(watched, Greedy(heeds_hints=heeds_hints)))


def policy_named(rule: Rule, *, heeds_hints: bool = False, watched: Watched = nothing_watched) -> Policy:
    """The policy of that name in its net, with the parameters that this version gives it."""
    return policy_of(run_policy(rule), heeds_hints=heeds_hints, watched=watched)
