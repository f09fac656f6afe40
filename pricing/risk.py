"""Interruption risk of a gang: one distribution, from which plan, quote, policy, guard and saves all read.

Evidence about a spot machine, each level shrunk towards the next: the pool's own record (gangs that were held there,
its availability history), records of pools of the same cloud and accelerator generation, of the same cloud, of all;
then the prior table, moved by what the cloud publishes (an advisor band, an eviction rate, a share of preempted
machines). How long a pool has no machines is as seen of it, shrunk to what its kind shows. A rate that an owner states
is taken as it is. Hardware fails on every market. The rate is never zero; where nobody has published any, it is wide
and says so. Sources and figures: docs/interruptions.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Final

from pricing.hazard import HIGH, LOW, Hazard, HazardShape, deviation_of, mix, operational_time
from pricing.machines import Machine
from pricing.offers import Offer
from pricing.places import Market
from pricing.pool_experience import ExperienceKind, PoolExperience
from pricing.risk_levels import PoolPrior, PoolRecord, RiskLevels

ANY = "*"
# Published failure counts of large training clusters lie between one per 15,000 and 50,000 accelerator-hours.
ACCELERATOR_HOURS_PER_FAILURE = 30_000.0
#: The same at the ends of the interval that holds a rate four times in five.
_HOURS_PER_FAILURE: Final = {LOW: 50_000.0, HIGH: 15_000.0}
# A gang of n machines of one pool is hit n**e times as often as one of them; 0 is always together, 1 independently.
# Held and probed gangs of 4 to 16 lie between 0 and 0.75 (docs/interruptions.md): weights of three values.
GANG_EXPONENTS: Final = ((0.3, 0.0), (0.4, 0.35), (0.3, 0.75))
_USUAL_EXPONENT: Final = 0.35
# So many waits of one pool say as much of their mean as all pools do (docs/interruptions.md).
_WAITS_TO_KNOW: Final = 4.0
_SHARE_POWER: Final = 0.5  # a share of preempted machines twice the usual one counts as sqrt(2)
_DAYS_PER_MONTH: Final = 30.44
# A pool's own record speaks for itself from so many interruptions, or such an operational time, on.
_OWN_INTERRUPTIONS, _OWN_EXPOSURE = 2.0, 5.0
# Bands as the clouds label them, in the order of risk; what they mean is in tables/interruption_signals.csv.
AWS_BANDS: Final = ("<5%", "5-10%", "10-15%", "15-20%", ">20%")
AZURE_BANDS: Final = ("0-5%/h", "5-10%/h", "10-15%/h", "15-20%/h", "20+%/h")
BANDS: Final = (*AWS_BANDS, *AZURE_BANDS)


@dataclass(frozen=True, slots=True, order=True)
class RiskPrior:
    """The assumption about machines of which nothing better is known.

    ``level`` is the median of the hazard's level (:mod:`pricing.hazard`), ``low`` and ``high`` hold it four times in
    five; all are 0 off spot, where hardware alone fails. ``recovery_hours``: unbilled wait for a new gang.
    ``refusal_probability``: how often a gang of this market is refused when it is asked for at once.
    ``cloud``, ``accelerator`` and ``market`` may be ``*`` for any.
    """

    cloud: str
    accelerator: str
    market: str
    shape: str
    level: float
    low: float
    high: float
    recovery_hours: float
    refusal_probability: float
    source: str
    as_of: str
    weak: str

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the log of the level."""
        return deviation_of(self.low, self.high)


@dataclass(frozen=True, slots=True, order=True)
class RiskSignal:
    """The meaning of a band that a cloud publishes: the median level with its 80 % interval.

    ``memory_months`` is how fast a band is forgotten: one of age m counts exp(-m / memory).
    """

    cloud: str
    band: str
    shape: str
    level: float
    low: float
    high: float
    memory_months: float
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class RiskEvidence:
    """One level of evidence about a pool: what it is, what it says, and how much it counts, in words."""

    level: str
    text: str
    as_of: str


@dataclass(frozen=True, slots=True)
class GangRisk:
    """The interruption risk of a gang as a whole, its members bought as one offer.

    ``hazard`` is of preemptions of the gang, ``machine`` of one of its machines; ``hardware_per_hour`` comes on top.
    ``recovery_hours`` is the mean unbilled wait after an interruption, ``weak`` the reason for doubt ("" if none).
    """

    hazard: Hazard
    machine: Hazard
    hardware_per_hour: float
    recovery_hours: float
    evidence: tuple[RiskEvidence, ...]
    weak: str

    @property
    def knows_availability(self) -> bool:
        """Return whether the availability history of the pool itself is among the evidence."""
        return any(row.level == f"own {ExperienceKind.AVAILABILITY}" for row in self.evidence)

    @property
    def source(self) -> str:
        """Return the evidence in words, nearest first."""
        return "; ".join(f"{one.level}: {one.text}" for one in self.evidence)

    def per_hour_over(self, hours: float) -> float:
        """Return the mean interruptions an hour in the first ``hours`` of a life, hardware included."""
        return self.hazard.rate_over(hours) + self.hardware_per_hour

    def interval_over(self, hours: float) -> tuple[float, float]:
        """Return the interval that holds that rate four times in five."""
        few, many = (
            self.hardware_per_hour * ACCELERATOR_HOURS_PER_FAILURE / _HOURS_PER_FAILURE[end] for end in (LOW, HIGH)
        )
        low, high = (self.hazard.rate_over(hours, level) for level in self.hazard.interval)
        return low + few, high + many

    def per_hour_at(self, age_hours: float) -> float:
        """Return the mean interruptions an hour of a gang that has lived so long, hardware included."""
        return self.hazard.rate_at(age_hours) + self.hardware_per_hour


def join_risks(risks: Sequence[GangRisk]) -> GangRisk:
    """Return the risk of a gang of these parts: it is hit when any of them is.

    Levels add up as if all parts were calm or contested together; a constant part beside one that falls with age counts
    at its rate over a typical life.
    """
    if len(risks) == 1:
        return risks[0]
    spot = max(risks, key=lambda risk: (risk.hazard.shape is HazardShape.FALLING, risk.hazard.mean))
    level = spot.hazard.mean
    if level > 0:
        per_hour = operational_time(spot.hazard.shape, TOLD_HOURS) / TOLD_HOURS
        total = sum(risk.hazard.rate_over(TOLD_HOURS) for risk in risks) / per_hour
        hazard = spot.hazard.scaled(total / level)
    else:
        hazard = spot.hazard
    return GangRisk(
        hazard,
        spot.machine,
        sum(risk.hardware_per_hour for risk in risks),
        max(risk.recovery_hours for risk in risks),
        tuple(dict.fromkeys(row for risk in risks for row in risk.evidence)),
        "; ".join(dict.fromkeys(risk.weak for risk in risks if risk.weak)),
    )


#: Rates are told over the first hours of a life, since they fall with age.
TOLD_HOURS: Final = 8.0


def describe_risk(risks: Sequence[GangRisk]) -> str:
    """Return how often a gang of these parts is interrupted, with its interval, and the evidence."""
    low, high = (sum(edge) for edge in zip(*(risk.interval_over(TOLD_HOURS) for risk in risks), strict=True))
    mean = sum(risk.per_hour_over(TOLD_HOURS) for risk in risks)
    sources = "; ".join(dict.fromkeys(risk.source for risk in risks))
    return f"interrupted {mean:.2g} times an hour in its first {TOLD_HOURS:.0f} h ({low:.2g} to {high:.2g}): {sources}"


@dataclass(frozen=True)
class RiskTable:
    """The priors and signals of a book with the records of pools: from these follows the risk of any gang.

    ``generations`` are accelerator generations by name, ``as_of`` the day from which the age of a band counts,
    ``shares`` the mean share of preempted machines by cloud and accelerator, where a cloud publishes it. With
    ``quantile`` the level of each gang on spot counts as known there, instead of as uncertain as it is; at an end of
    the interval hardware fails as seldom, or as often, as at that end of its own.
    """

    priors: tuple[RiskPrior, ...]
    signals: tuple[RiskSignal, ...] = ()
    generations: Mapping[str, str] = field(default_factory=dict)
    as_of: date | None = None
    records: tuple[PoolExperience, ...] = ()
    shares: Mapping[tuple[str, str], float] = field(default_factory=dict)
    accelerators: Mapping[tuple[str, str], str] = field(default_factory=dict)
    quantile: float | None = None

    def with_records(self, records: Iterable[PoolExperience]) -> RiskTable:
        """Return the table with these records beside its own; itself where there are none."""
        more = tuple(records)
        return replace(self, records=(*self.records, *more)) if more else self

    def at_quantile(self, quantile: float | None) -> RiskTable:
        """Return the table in which the level of each spot pool counts as known at this quantile; None: as it is."""
        return self if quantile == self.quantile else replace(self, quantile=quantile)

    @cached_property
    def _by_key(self) -> dict[tuple[str, str, str], RiskPrior]:
        return {(p.cloud, p.accelerator, p.market): p for p in self.priors}

    @cached_property
    def _signals(self) -> dict[tuple[str, str], RiskSignal]:
        return {(s.cloud, s.band): s for s in self.signals}

    def prior(self, cloud: str, accelerator: str, market: Market) -> RiskPrior:
        """Return the most specific row; LookupError when none covers it, not even ``*``."""
        for c in (cloud, ANY):
            for a in (accelerator, ANY):
                for m in (market.value, ANY):
                    row = self._by_key.get((c, a, m))
                    if row is not None:
                        return row
        raise LookupError(f"no interruption prior covers {cloud} {accelerator} {market.value}")

    def gang(self, offer: Offer, machine: Machine, machines: int) -> GangRisk:
        """Return the risk of ``machines`` of ``machine`` bought as ``offer``, taken together.

        ValueError without a machine, LookupError when no prior covers the offer.
        """
        if machines < 1:
            raise ValueError("a gang has at least one machine")
        prior = self.prior(offer.cloud, machine.accelerator, offer.market)
        hardware = machines * machine.accelerator_count / ACCELERATOR_HOURS_PER_FAILURE
        if offer.interruptions_per_hour is not None:
            stated = Hazard.known(offer.interruptions_per_hour)
            evidence = RiskEvidence("stated", f"with the offer, {offer.source}", str(offer.as_of or ""))
            return GangRisk(_of_gang(stated, machines), stated, hardware, prior.recovery_hours, (evidence,), "")
        if offer.market is not Market.SPOT:
            none = Hazard.known(0.0)
            evidence = RiskEvidence("hardware", prior.source, prior.as_of)
            return GangRisk(none, none, hardware, prior.recovery_hours, (evidence,), prior.weak)
        one, rows, weak, recovery = self._machine(offer, machine.accelerator, prior)
        whole = _of_gang(one, machines)
        if self.quantile is not None:
            one, whole = one.at_quantile(self.quantile), whole.at_quantile(self.quantile)
            hardware *= ACCELERATOR_HOURS_PER_FAILURE / _HOURS_PER_FAILURE.get(
                self.quantile, ACCELERATOR_HOURS_PER_FAILURE
            )
        return GangRisk(whole, one, hardware, recovery, rows, weak)

    def refusal_probability(self, offer: Offer, machine: Machine) -> float:
        """Return how often a gang of this offer is refused when it is asked for at once; assumed where unknown."""
        return self.prior(offer.cloud, machine.accelerator, offer.market).refusal_probability

    @cached_property
    def _machines(self) -> dict[tuple[object, ...], tuple[Hazard, tuple[RiskEvidence, ...], str, float]]:
        return {}

    def _machine(
        self, offer: Offer, accelerator: str, prior: RiskPrior
    ) -> tuple[Hazard, tuple[RiskEvidence, ...], str, float]:
        """Return the hazard of one spot machine, its evidence, the reason for doubt, and the mean wait for another."""
        signal = (offer.interruption_band, offer.band_as_of, offer.preempted_share)
        key = (offer.cloud, offer.region, offer.zone, offer.instance_type, accelerator, *signal)
        risk = self._machines.get(key)
        if risk is None:
            assumed, rows = self._assumed(offer, accelerator, prior)
            own = [record for record in self.records if record.concerns(offer)]
            hazard = self._levels.hazard(assumed, frozenset(record.key for record in own))
            rows = (*_told_records(own), *self._told_level(assumed, own), *rows)
            events, exposure = sum(r.interruptions for r in own), sum(r.exposure for r in own)
            proven = events >= _OWN_INTERRUPTIONS or exposure >= _OWN_EXPOSURE
            recovery = _mean_wait(own, prior)
            risk = self._machines[key] = hazard, rows, "" if proven else prior.weak, recovery
        return risk

    def _assumed(self, offer: Offer, accelerator: str, prior: RiskPrior) -> tuple[PoolPrior, tuple[RiskEvidence, ...]]:
        """Return what is assumed of a pool before any record: the prior, moved by what its cloud publishes."""
        shape, middle, deviation = HazardShape(prior.shape), prior.level, prior.deviation
        rows: list[RiskEvidence] = []
        signal = self._signals.get((offer.cloud, offer.interruption_band or ""))
        if signal is not None:
            kept = self._kept(signal, offer.band_as_of)
            if signal.shape == prior.shape:
                middle = math.exp(kept * math.log(signal.level) + (1 - kept) * math.log(middle))
                counts = f"counts {kept:.0%}"
            elif kept >= 0.5:
                shape, middle, deviation = (
                    HazardShape(signal.shape),
                    signal.level,
                    deviation_of(signal.low, signal.high),
                )
                counts = "read as it is defined"
            else:
                counts = "too old to count"
            dated = offer.band_as_of.isoformat() if offer.band_as_of else "undated"
            rows.append(RiskEvidence("band", f"{signal.band} ({dated}), {counts}", dated))
        usual = self.shares.get((offer.cloud, accelerator))
        if offer.preempted_share is not None and usual:
            ratio = max(0.1, min(10.0, offer.preempted_share / usual))
            middle *= ratio**_SHARE_POWER
            text = f"{offer.preempted_share:.0%} of stops were preemptions, {usual:.0%} in the mean of its kind"
            rows.append(RiskEvidence("share", text, ""))
        doubt = f" ({prior.weak})" if prior.weak else ""
        rows.append(RiskEvidence("prior", prior.source + doubt, prior.as_of))
        return PoolPrior((offer.cloud, self._generation(accelerator)), shape, middle, deviation), tuple(rows)

    def _generation(self, accelerator: str) -> str:
        return self.generations.get(accelerator, accelerator)

    def _kept(self, signal: RiskSignal, dated: date | None) -> float:
        """Return how much a band still counts: exp(-months / memory); without a date as if it were one memory old."""
        if dated is None or self.as_of is None:
            return math.exp(-1.0)
        months = max(0.0, (self.as_of - dated).days / _DAYS_PER_MONTH)
        return math.exp(-months / signal.memory_months)

    @cached_property
    def _levels(self) -> RiskLevels:
        return RiskLevels(tuple(record for record in map(self._as_record, self.records) if record is not None))

    def _as_record(self, row: PoolExperience) -> PoolRecord | None:
        """Return a row as evidence about one machine of its pool; None off spot, and where no prior covers it."""
        accelerator = self.accelerators.get((row.cloud, row.instance_type))
        if row.market != Market.SPOT.value or accelerator is None:
            return None
        try:
            prior = self.prior(row.cloud, accelerator, Market.SPOT)
        except LookupError:
            return None
        level = (row.cloud, self._generation(accelerator))
        assumed = PoolPrior(level, HazardShape(prior.shape), prior.level, prior.deviation)
        together = row.machines**_USUAL_EXPONENT
        return PoolRecord(row.key, assumed, row.interruptions, row.exposure * together, row.hours * together)

    def _told_level(self, assumed: PoolPrior, experiences: Sequence[PoolExperience]) -> tuple[RiskEvidence, ...]:
        pools = {row.key for row in experiences}
        level = {r.pool for r in self._levels.records if r.prior.level == assumed.level} - pools
        others = {r.pool for r in self._levels.records} - pools - level
        rows = []
        if level:
            rows.append(RiskEvidence("level", f"{len(level)} recorded pools of {' '.join(assumed.level)}", ""))
        if others:
            rows.append(RiskEvidence("all", f"{len(others)} recorded pools of other kinds", ""))
        return tuple(rows)


def _of_gang(hazard: Hazard, machines: int) -> Hazard:
    """Return the hazard of a gang of machines of one pool: joint loss by size, with its uncertainty."""
    if machines == 1 or hazard.mean == 0:
        return hazard
    parts = [(share, hazard.scaled(machines**exponent)) for share, exponent in GANG_EXPONENTS]
    if len(hazard.levels) > 1:
        return mix(parts)
    levels = sorted((part.levels[0], share) for share, part in parts)
    return Hazard(hazard.shape, tuple(level for level, _ in levels), tuple(share for _, share in levels))


def _told_wait(row: PoolExperience) -> str:
    if row.waits >= 1:
        return f", machines again after {row.waited_hours / row.waits:.2g} h"
    return f", none for {row.waited_hours:,.1f} h" if row.waited_hours > 0 else ""


def _mean_wait(experiences: Sequence[PoolExperience], prior: RiskPrior) -> float:
    """Return the mean hours until a pool has machines again: as seen of it, shrunk to what is assumed of its kind."""
    waited, waits = sum(r.waited_hours for r in experiences), sum(r.waits for r in experiences)
    return (waited + _WAITS_TO_KNOW * prior.recovery_hours) / (waits + _WAITS_TO_KNOW)


def _told_records(experiences: Sequence[PoolExperience]) -> tuple[RiskEvidence, ...]:
    return tuple(
        RiskEvidence(
            f"own {row.kind}",
            f"{row.interruptions:.2g} interruptions in {row.hours:,.1f} h of {row.runs:,} lives"
            + (f" of {row.machines} machines" if row.machines > 1 else "")
            + _told_wait(row),
            row.last_at.date().isoformat(),
        )
        for row in experiences
    )
