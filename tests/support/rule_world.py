"""One simulated future of spot and speeds, the same for every rule that is played in it.

Whatever is drawn depends on the world's seed and on names alone (job, offer, moment), never on who asks first or how
often: two rules that hold the same gang at the same time meet the same interruption.

Price of spot: the book's, times a lognormal factor of mean 1 (``NOISE`` is the deviation of its logarithm), anew for
each offer and day. Spot outages: an offer is gone for exponential times of mean the book's recovery time, as often as
one of its machines is interrupted. Interruptions: exponential at the rate of the gang in its first hours; after one,
the job waits an exponential time of the same mean. Speed: the candidate's, times 1 + its relative error x a standard
normal of the job and accelerator.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pricing.places import Market
from pricing.risk import TOLD_HOURS, RiskTable
from router.planning.find.candidate import Candidate, GangPart

TICK = 0.25  # hours
NOISE = 0.15
SPAN = 45 * 24  # hours that a world lasts at most
_TICKS = round(SPAN / TICK)
_LEAST_SPEED = 0.2
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class World:
    """A future by its seed. ``rate_factor`` and ``speed_factor`` make it worse than anybody believed."""

    seed: int
    risk: RiskTable
    rate_factor: float = 1.0
    speed_factor: float = 1.0
    noise: float = NOISE
    _drawn: dict[str, Floats] = field(default_factory=dict, compare=False)
    _gone: dict[str, Bools] = field(default_factory=dict, compare=False)

    def interruption(self, job: str, candidate: Candidate, tick: int) -> float | None:
        """Hours into the tick at which the job's gang is interrupted, None where it is not."""
        hours = -math.log1p(-self._uniform(f"interruption {job} {candidate.key}", tick)) / self._rate(candidate)
        return hours if hours < TICK else None

    def wait(self, job: str, candidate: Candidate, tick: int) -> float:
        """Hours for which nothing like it can be had after an interruption in the tick."""
        return -math.log1p(-self._uniform(f"wait {job} {candidate.key}", tick)) * candidate.risk.recovery_hours

    def speed(self, job: str, candidate: Candidate) -> float:
        """True steps an hour of compute."""
        drawn = float(self._rng(f"speed {job} {candidate.accelerator}").standard_normal())
        error = max(_LEAST_SPEED, 1 + candidate.risk.relative_error * drawn)
        return candidate.risk.nominal_steps_per_hour * error * self.speed_factor

    def usd_per_hour(self, candidate: Candidate, tick: int) -> float:
        """Return the price of the whole gang an hour on that day."""
        return sum(
            part.offer.usd_per_hour.dollars() * part.machines * self._factor(part, tick) for part in candidate.parts
        )

    def is_gone(self, candidate: Candidate, tick: int) -> bool:
        """Whether some part of the gang cannot be had because spot of its offer is out."""
        return any(part.offer.market is Market.SPOT and bool(self._outages(part)[tick]) for part in candidate.parts)

    def _rate(self, candidate: Candidate) -> float:
        spot = any(part.offer.market is Market.SPOT for part in candidate.parts)
        return candidate.gang_risk.per_hour_over(TOLD_HOURS) * (self.rate_factor if spot else 1.0)

    def _factor(self, part: GangPart, tick: int) -> float:
        if part.offer.market is not Market.SPOT:
            return 1.0
        day = int(tick * TICK // 24)
        name = f"price {part.listing.name}"
        if name not in self._drawn:
            normal = self._rng(name).standard_normal(SPAN // 24 + 1)
            self._drawn[name] = np.exp(self.noise * normal - self.noise**2 / 2)
        return float(self._drawn[name][day])

    def _outages(self, part: GangPart) -> Bools:
        """By tick whether the offer is gone: there and gone in turn, the first by the share of time it is there."""
        name = part.listing.name
        if name not in self._gone:
            one = self.risk.gang(part.offer, part.machine, 1)
            up, mean = 1 / (one.per_hour_over(TOLD_HOURS) * self.rate_factor), one.recovery_hours
            rng = self._rng(f"outage {name}")
            gone = np.zeros(_TICKS, dtype=np.bool_)
            at, is_up = 0.0, bool(rng.random() < up / (up + mean))
            while at < SPAN:
                length = float(rng.exponential(up if is_up else mean))
                if not is_up:
                    gone[math.ceil(at / TICK) : math.ceil((at + length) / TICK)] = True
                at, is_up = at + length, not is_up
            self._gone[name] = gone
        return self._gone[name]

    def _uniform(self, name: str, tick: int) -> float:
        if name not in self._drawn:
            self._drawn[name] = self._rng(name).random(_TICKS)
        return float(self._drawn[name][tick])

    def _rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])
