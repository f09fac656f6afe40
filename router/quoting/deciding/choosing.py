"""The policies by name: what a deploy file may ask for, and what the watcher then runs. All in the exact safety net."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from router.quoting.deciding.reckoning import Watched, foreseeing, nothing_watched
from router.quoting.deciding.steering import MOST_SITES, MOST_TICKS, Site, Steered
from router.quoting.play.asking import Explorer, Terms
from router.quoting.policies.baselines import Greedy as SpotOrWait
from router.quoting.policies.baselines import TimeSliced, UniformProgress
from router.quoting.policies.believing import Believing
from router.quoting.policies.policy import Greedy, Policy, Rule
from router.quoting.policies.safety import SafetyNet
from router.quoting.policies.skynomad import SkyNomad
from router.quoting.policies.uniform_probing import FailoverProgress, RatePerUsdProgress, RateProgress

Factory = Callable[[Terms, Sequence[Site], Watched], Explorer]
# What is fitted to several zones takes long with many, and so does showing it its past.
_FORESEEN_SITES: Final = 8
_FORESEEN_TICKS: Final = 240


@dataclass(frozen=True, slots=True)
class Known:
    """How an explorer is made for terms of these sites; the other fields as in
    :class:`~router.quoting.deciding.steering.Steered`."""

    factory: Factory
    remembers: bool = True
    most_sites: int = MOST_SITES
    most_ticks: int = MOST_TICKS
    apart: bool = False

    def steered(self, watched: Watched = nothing_watched, otherwise: Policy | None = None) -> Steered:
        """It as the policy of a job, without a net."""
        return Steered(
            lambda terms, sites: self.factory(terms, sites, watched), self.remembers, otherwise or Greedy(),
            self.most_sites, self.most_ticks, self.apart,
        )  # fmt: skip


def _same(explorer: Explorer, *, remembers: bool = True) -> Known:
    return Known(lambda *_: explorer, remembers)


EXPLORERS: Final[Mapping[Rule, Known]] = MappingProxyType({
    Rule.SPOT_OR_WAIT: _same(Believing(SpotOrWait()), remembers=False),
    Rule.TIME_SLICED: _same(Believing(TimeSliced()), remembers=False),
    Rule.UNIFORM_PROGRESS: _same(Believing(UniformProgress()), remembers=False),
    Rule.UNIFORM_PROGRESS_PLAIN: _same(Believing(UniformProgress(False)), remembers=False),
    Rule.FAILOVER_PROGRESS: _same(FailoverProgress()),
    Rule.RATE_PROGRESS: _same(RateProgress()),
    Rule.RATE_PER_USD_PROGRESS: _same(RatePerUsdProgress()),
    Rule.SKYNOMAD: _same(SkyNomad()),
    Rule.FORESIGHT: Known(foreseeing, most_sites=_FORESEEN_SITES, most_ticks=_FORESEEN_TICKS, apart=True),
})  # fmt: skip


def policy_named(rule: Rule, *, heeds_hints: bool = False, watched: Watched = nothing_watched) -> Policy:
    """The policy in its net. ``watched``: what was seen of spot pools, for those that learn from it."""
    greedy = Greedy(heeds_hints=heeds_hints)
    if rule is Rule.GREEDY:
        return SafetyNet(greedy)
    return SafetyNet(EXPLORERS[rule].steered(watched, greedy))
