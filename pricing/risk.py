"""Interruption risk: how often a gang is interrupted and how long the wait for a new one is.

Evidence for a spot machine's rate, best first: a rate that the offer states (from the availability
history, where it was refreshed from one), the cloud's published band, the dated prior table (weak). The rate is never
zero: hardware fails on every market. Every rate has a source, and an interval where its evidence gives one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pricing.interruption_rates import RateInterval, prior_interval
from pricing.machines import Machine
from pricing.offers import Offer
from pricing.places import Market

ANY = "*"
HOURS_PER_MONTH = 730.0
# Published failure counts of large training clusters lie between one per 15,000 and 50,000 accelerator-hours.
ACCELERATOR_HOURS_PER_FAILURE = 30_000.0
FEWEST_HOURS_PER_FAILURE, MOST_HOURS_PER_FAILURE = 15_000.0, 50_000.0
# Upper edges of the AWS Spot Advisor's labels; the open one is counted as 40 % a month.
BAND_UPPER_EDGES = {"<5%": 0.05, "5-10%": 0.10, "10-15%": 0.15, "15-20%": 0.20, ">20%": 0.40}
_BAND_LOWER_EDGES = {"<5%": 0.0, "5-10%": 0.05, "10-15%": 0.10, "15-20%": 0.15, ">20%": 0.20}
_OPEN_BAND = ">20%"


def band_rate(band: str) -> float:
    """Return interruptions per machine-hour of a monthly band, at its upper edge: -ln(1-b)/730; KeyError if none."""
    return _monthly_rate(BAND_UPPER_EDGES[band])


def band_interval(band: str) -> RateInterval:
    """Return the rate of a band with its edges; the open band has no upper one. KeyError for no band."""
    upper = None if band == _OPEN_BAND else band_rate(band)
    return RateInterval(band_rate(band), _monthly_rate(_BAND_LOWER_EDGES[band]), upper)


def _monthly_rate(share: float) -> float:
    return -math.log1p(-share) / HOURS_PER_MONTH


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
    """The risk of a gang as a whole: interruptions (1/h, above zero), unbilled wait after one, reason for doubt.

    ``low_per_hour`` and ``high_per_hour`` hold the rate four times in five; None where its evidence gives no edge.
    """

    interruptions_per_hour: float
    recovery_hours: float
    weak: str
    source: str
    low_per_hour: float | None = None
    high_per_hour: float | None = None


def describe_risk(risks: Sequence[GangRisk]) -> str:
    """Return how often a gang of these parts is interrupted, with its interval where there is one, and the evidence."""
    lows, highs = [r.low_per_hour for r in risks], [r.high_per_hour for r in risks]
    low = None if None in lows else sum(low for low in lows if low is not None)
    high = None if None in highs else sum(high for high in highs if high is not None)
    edges = [f"{word} {edge:.2g}" for word, edge in (("at least", low), ("at most", high)) if edge is not None]
    interval = f"{low:.2g} to {high:.2g}" if low is not None and high is not None else "".join(edges) or "no interval"
    sources = "; ".join(dict.fromkeys(r.source for r in risks))
    return f"interrupted {sum(r.interruptions_per_hour for r in risks):.2g} times an hour ({interval}): {sources}"


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
        found = _machine_rate(offer, prior)
        together, accelerators = machines**prior.pool_exponent, machines * machine.accelerator_count
        low, high = found.rate.low, found.rate.high
        return GangRisk(
            interruptions_per_hour=found.rate.per_hour * together + accelerators / ACCELERATOR_HOURS_PER_FAILURE,
            recovery_hours=prior.recovery_hours,
            weak=found.weak,
            source=found.source,
            low_per_hour=None if low is None else low * together + accelerators / MOST_HOURS_PER_FAILURE,
            high_per_hour=None if high is None else high * together + accelerators / FEWEST_HOURS_PER_FAILURE,
        )


@dataclass(frozen=True, slots=True)
class _MachineRate:
    rate: RateInterval
    weak: str
    source: str


def _machine_rate(offer: Offer, prior: RiskPrior) -> _MachineRate:
    """Return the rate at which one machine is preempted by what is published or assumed."""
    if offer.interruptions_per_hour is not None:
        stated = RateInterval(offer.interruptions_per_hour, None, None)
        return _MachineRate(stated, "", f"stated with the offer: {offer.source}")
    if offer.market is not Market.SPOT:
        return _MachineRate(RateInterval(0.0, 0.0, 0.0), prior.weak, prior.source)
    band = offer.interruption_band
    if band in BAND_UPPER_EDGES:
        weak = "the band >20% a month has no upper edge, counted as 40%" if band == _OPEN_BAND else ""
        return _MachineRate(band_interval(band), weak, f"interrupted {band} a month: {offer.source}")
    return _MachineRate(prior_interval(prior.interruptions_per_machine_hour), prior.weak, prior.source)
