"""Selection of a policy by name: what a deploy file may ask for, each inside the exact deadline guard."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Final

from pricing.money import Usd
from router.jobs.run_policy import RunPolicy
from router.spot.live.policy_adapter import PolicyAdapter
from router.spot.policies import Rule
from router.spot.policies.deadline_guard import DeadlineGuard
from router.spot.policies.greedy import GreedyPolicy
from router.spot.policies.interface import Policy
from router.spot.policies.registry import (
    LivePolicy,
    Parameters,
    PoolLookup,
    RegisteredPolicy,
    find_no_observations,
    registered_policies,
)

_GREEDY: Final[Parameters] = {"least_saving_usd": 1, "least_saving_share": 0.1}


@cache
def _policies() -> Mapping[Rule, RegisteredPolicy]:
    """Return the policies that a running job may have; the greedy one is none of them."""
    return {policy.rule: policy for policy in registered_policies().values() if policy.rule is not None}


def _parameters(rule: Rule) -> Parameters:
    return _GREEDY if rule is Rule.GREEDY else _policies()[rule].parameters


def live_policy(rule: Rule, given: Parameters | None = None) -> LivePolicy:
    """Return how a running job plays the policy, with these parameters or those of this version."""
    live = _policies()[rule].live
    assert live is not None
    return live(_parameters(rule) if given is None else given)


def default_run_policy(rule: Rule) -> RunPolicy:
    """Return the policy of that name with the parameters of this version."""
    return RunPolicy.of(rule.value, **_parameters(rule))


def build_policy(chosen: RunPolicy, *, heeds_hints: bool = False, watched: PoolLookup = find_no_observations) -> Policy:
    """Return the policy inside its guard.

    ``watched`` returns the observations of spot pools, for policies that learn from them. Raise ValueError where this
    version does not know the name, or uses other parameters.
    """
    if chosen.name not in set(Rule):
        raise ValueError(f"this version knows no policy {chosen.name}")
    rule = Rule(chosen.name)
    given, usual = dict(chosen.parameters), _parameters(rule)
    if given.keys() != usual.keys() or any(value <= 0 for value in given.values()):
        takes = ", ".join(usual) or "none"
        raise ValueError(f"this version cannot run {chosen}: the parameters of {rule.value} are {takes}, above zero")
    if rule is Rule.GREEDY:
        least, share = Usd.parse(f"{given['least_saving_usd']:.9f}"), Fraction(str(given["least_saving_share"]))
        return DeadlineGuard(GreedyPolicy(least, share, heeds_hints))
    return DeadlineGuard(PolicyAdapter(live_policy(rule, given), GreedyPolicy(heeds_hints=heeds_hints), watched))


def build_named_policy(rule: Rule, *, heeds_hints: bool = False, watched: PoolLookup = find_no_observations) -> Policy:
    """Return the policy of that name inside its guard, with the parameters of this version."""
    return build_policy(default_run_policy(rule), heeds_hints=heeds_hints, watched=watched)
