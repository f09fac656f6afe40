"""Interruption risk: how often a gang is interrupted and how long the wait for a new one is.

Evidence for a spot machine's rate, best first: a rate that the offer states, the cloud's published band, the dated
prior table (weak). The rate is never zero: hardware fails on every market.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from pricing.machines import Machine
from pricing.offers import Offer
from pricing.places import Market

ANY = "*"
HOURS_PER_MONTH = 730.0
# Published failure counts of large training clusters lie between one per 15,000 and 50,000 accelerator-hours.
ACCELERATOR_HOURS_PER_FAILURE = 30_000.0
# Upper edges of the AWS Spot Advisor's labels; the open one is counted as 40 % a month.
BAND_UPPER_EDGES = {"<5%": 0.05, "5-10%": 0.10, "10-15%": 0.15, "15-20%": 0.20, ">20%": 0.40}


def band_rate(band: str) -> float:
    """Return interruptions per machine-hour of a monthly band, at its upper edge: -ln(1-b)/730; KeyError if none."""
    return -math.log1p(-BAND_UPPER_EDGES[band]) / HOURS_PER_MONTH


@dataclass(frozen=True, slots=True, order=True)
class RiskPrior:
    """The assumption about a pool of machines of which nothing better is known.

    ``interruptions_per_machine_hour``: how often the cloud preempts one machine (hardware not included).
    ``pool_exponent``: a gang of n is interrupted n**exponent times as often as one machine, 0 (machines of a pool are
    always preempted together) to 1 (independently). ``recovery_hours``: unbilled wait until a new gang is obtained.
    ``cloud``, ``accelerator`` and ``market`` may be ``*`` for any.
    """

    cloud: str
    accelerator: str
    market: str
    interruptions_per_machine_hour: float
    pool_exponent: float
    recovery_hours: float
    source: str
    as_of: str
    weak: str


@dataclass(frozen=True, slots=True)
class GangRisk:
    """The risk of a gang as a whole: interruptions (1/h, above zero), unbilled wait after one, reason for doubt."""

    interruptions_per_hour: float
    recovery_hours: float
    weak: str
    source: str


@dataclass(frozen=True)
class RiskTable:
    """The priors of a book; the most specific row applies (cloud before accelerator before market)."""

    priors: tuple[RiskPrior, ...]

    @cached_property
    def _by_key(self) -> dict[tuple[str, str, str], RiskPrior]:
        return {(p.cloud, p.accelerator, p.market): p for p in self.priors}

    def prior(self, cloud: str, accelerator: str, market: Market) -> RiskPrior:
        """Return the most specific row; LookupError when none covers it, not even ``*``."""
        for c in (cloud, ANY):
            for a in (accelerator, ANY):
                for m in (market.value, ANY):
                    found = self._by_key.get((c, a, m))
                    if found is not None:
                        return found
        raise LookupError(f"no interruption prior covers {cloud} {accelerator} {market.value}")

    def gang(self, offer: Offer, machine: Machine, machines: int) -> GangRisk:
        """Return the risk of ``machines`` of ``machine`` bought as ``offer``, taken together.

        Preemption: machine rate x machines**pool_exponent, on spot from the best evidence there is, on the other
        markets only where the offer states a rate. Hardware: once per 30,000 accelerator-hours, on top. ValueError
        without a machine, LookupError when no prior covers the offer.
        """
        if machines < 1:
            raise ValueError("a gang has at least one machine")
        prior = self.prior(offer.cloud, machine.accelerator, offer.market)
        rate, weak, source = _preemption_rate(offer, prior)
        hardware = machines * machine.accelerator_count / ACCELERATOR_HOURS_PER_FAILURE
        return GangRisk(
            interruptions_per_hour=rate * machines**prior.pool_exponent + hardware,
            recovery_hours=prior.recovery_hours,
            weak=weak,
            source=source,
        )


def _preemption_rate(offer: Offer, prior: RiskPrior) -> tuple[float, str, str]:
    """Return the rate at which one machine is preempted, why it is weak, and its source."""
    if offer.interruptions_per_hour is not None:
        return offer.interruptions_per_hour, "", f"stated with the offer: {offer.source}"
    if offer.market is not Market.SPOT:
        return 0.0, prior.weak, prior.source
    band = offer.interruption_band
    if band in BAND_UPPER_EDGES:
        weak = "the band >20% a month has no upper edge, counted as 40%" if band == ">20%" else ""
        return band_rate(band), weak, f"interrupted {band} a month: {offer.source}"
    return prior.interruptions_per_machine_hour, prior.weak, prior.source
