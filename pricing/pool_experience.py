"""Interruption rates from a user's own machines: how often gangs of a pool were interrupted, against the book's rate.

The book's rate of a gang is multiplied by a factor f with a Gamma prior of mean 1 that weighs as much as
``PRIOR_INTERRUPTIONS`` interruptions. Where the book expects E interruptions in the time that gangs of the pool were
held, and n were counted, the posterior mean is

    E[f] = (PRIOR_INTERRUPTIONS + n) / (PRIOR_INTERRUPTIONS + E)

A factor keeps what the book says of gang sizes: E sums, over the sizes that were held, hours times the book's rate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pricing.machines import Machine
from pricing.offers import Offer
from pricing.risk import RiskTable

# A factor of this prior has a standard deviation of 0.7: the book may be off by two either way.
PRIOR_INTERRUPTIONS = 2.0


@dataclass(frozen=True, slots=True)
class PoolExperience:
    """The hours in which gangs of ``machines`` machines of one pool were held, and how often they were interrupted.

    Older hours and interruptions count less, both alike. ``runs`` is the number of gangs, ``first_at`` and ``last_at``
    when the earliest and the latest of them ended.
    """

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: str
    machines: int
    hours: float
    interruptions: float
    runs: int
    first_at: datetime
    last_at: datetime

    def concerns(self, offer: Offer) -> bool:
        """Return whether it says something of the offer: the same pool, or one of them is of the whole region."""
        own = (self.cloud, self.region, self.instance_type, self.market)
        same = own == (offer.cloud, offer.region, offer.instance_type, offer.market.value)
        return same and (self.zone is None or offer.zone is None or self.zone == offer.zone)


def rate_factor(expected: float, counted: float) -> float:
    """Return by how much the book's rate is multiplied after ``counted`` interruptions where it expects ``expected``.

    Above zero and finite. ValueError for a negative number.
    """
    if not (expected >= 0 and counted >= 0):
        raise ValueError("interruptions are counted from 0 on")
    return (PRIOR_INTERRUPTIONS + counted) / (PRIOR_INTERRUPTIONS + expected)


def pool_rate_factor(rows: Iterable[PoolExperience], offer: Offer, machine: Machine, risk: RiskTable) -> float:
    """Return the factor of an offer's rate by the rows that concern it; 1 where none does."""
    known = [row for row in rows if row.concerns(offer)]
    if not known:
        return 1.0
    expected = sum(row.hours * risk.gang(offer, machine, row.machines).interruptions_per_hour for row in known)
    return rate_factor(expected, sum(row.interruptions for row in known))
