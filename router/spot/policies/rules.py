"""Names of the policies that a person may choose, and the modules of all policies: read without loading one."""

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
    "router.spot.policies.baselines",
    "router.spot.policies.uniform_probing",
    "router.spot.policies.moves",
    "router.spot.policies.skynomad",
)
