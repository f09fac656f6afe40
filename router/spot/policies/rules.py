"""Names of the policies that a person may choose, which settings read without loading a policy."""

from __future__ import annotations

from enum import StrEnum


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
