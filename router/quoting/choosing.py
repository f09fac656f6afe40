"""The policies by name: what a deploy file may ask for, and what the watcher then runs. All in the exact safety net."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from router.quoting.asking import Explorer, Terms
from router.quoting.baselines import Greedy as SpotOrWait
from router.quoting.baselines import TimeSliced, UniformProgress
from router.quoting.believing import Believing
from router.quoting.outlook import Outlook
from router.quoting.policy import Greedy, Policy, Rule
from router.quoting.safety import SafetyNet
from router.quoting.skynomad import SkyNomad
from router.quoting.steering import Steered
from router.quoting.uniform_probing import FailoverProgress, RatePerUsdProgress, RateProgress

Factory = Callable[[Outlook | None, Terms], Explorer]


@dataclass(frozen=True, slots=True)
class Known:
    """How an explorer is made, for the outlook (None: nobody has one) of the zones of the terms; ``remembers`` as in
    :class:`~router.quoting.steering.Steered`."""

    factory: Factory
    remembers: bool = True


def _free(policy: Believing) -> Known:
    return Known(lambda _outlook, _terms: policy, remembers=False)


EXPLORERS: Final[Mapping[Rule, Known]] = MappingProxyType({
    Rule.SPOT_OR_WAIT: _free(Believing(SpotOrWait())),
    Rule.TIME_SLICED: _free(Believing(TimeSliced())),
    Rule.UNIFORM_PROGRESS: _free(Believing(UniformProgress())),
    Rule.UNIFORM_PROGRESS_PLAIN: _free(Believing(UniformProgress(False))),
    Rule.FAILOVER_PROGRESS: Known(lambda _outlook, _terms: FailoverProgress()),
    Rule.RATE_PROGRESS: Known(lambda _outlook, _terms: RateProgress()),
    Rule.RATE_PER_USD_PROGRESS: Known(lambda _outlook, _terms: RatePerUsdProgress()),
    Rule.SKYNOMAD: Known(lambda _outlook, _terms: SkyNomad()),
})  # fmt: skip


def policy_named(
    rule: Rule, *, heeds_hints: bool = False, outlook: Callable[[Terms], Outlook | None] = lambda _: None
) -> Policy:
    """The policy in its net. ``outlook``: what is expected of the weather of the zones of these terms."""
    greedy = Greedy(heeds_hints=heeds_hints)
    if rule is Rule.GREEDY:
        return SafetyNet(greedy)
    known = EXPLORERS[rule]
    return SafetyNet(Steered(lambda terms: known.factory(outlook(terms), terms), known.remembers, greedy))
