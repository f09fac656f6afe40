"""Policies that decide about a gang at each tick: ours, published ones, and the lower bound on cost. Pure.

Their names and modules stand here, to be read without loading any of them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Rule(StrEnum):
    """The names of the policies that a person may choose (:mod:`router.spot.live.selection`)."""

    GREEDY = "greedy"
    SPOT_OR_WAIT = "spot-or-wait"
    TIME_SLICED = "time-sliced"
    UNIFORM_PROGRESS = "uniform-progress"
    UNIFORM_PROGRESS_PLAIN = "uniform-progress-plain"
    FAILOVER_PROGRESS = "uniform-progress-failover"
    RATE_PROGRESS = "uniform-progress-rate"
    RATE_PER_USD_PROGRESS = "uniform-progress-rate-per-usd"
    SKYNOMAD = "skynomad"
    FORESIGHT = "foresight"


# Quotes are made for this policy, so it runs wherever a deploy file names none.
QUOTED_RULE = Rule.FORESIGHT
#: The modules of policies in the order in which lists show them; each has ``POLICIES``.
POLICY_MODULES: Final = (
    "router.spot.live.foresight_cache",
    "router.spot.policies.published.baselines",
    "router.spot.policies.published.uniform_probing",
    "router.spot.policies.published.moves",
    "router.spot.policies.published.skynomad",
)
