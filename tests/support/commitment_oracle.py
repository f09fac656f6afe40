"""Cover by committed spend, worked out a second time from the words of design note rules-of-the-plan."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pricing.machines import Machine
from pricing.places import Market
from router.jobs.limits import Commitment

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def matches(commitment: Commitment, offer: Any, machine: Machine) -> bool:
    """Whether the commitment covers machines of this offer at all: on demand, of what it names."""
    named = {
        "cloud": offer.cloud,
        "region": offer.region,
        "instance_type": offer.instance_type,
        "accelerator": machine.accelerator,
    }
    wished = {name: getattr(commitment, name) for name in named}
    fits = all(wished[name] in (None, named[name]) for name in named)
    return fits and str(offer.market) == Market.ON_DEMAND and machine.family in (commitment.family or (machine.family,))


def bought(commitment: Commitment, begin: datetime, end: datetime) -> Fraction:
    """On-demand nano-dollars that it covers between two slot edges; nothing outside its dates."""
    if begin < (commitment.start or begin) or end > (commitment.until or end):
        return Fraction(0)
    hours = Fraction((end - begin) // timedelta(microseconds=1), 3_600_000_000)
    return commitment.usd_per_hour.nanos * hours / (1 - Fraction(str(commitment.discount)))


def bought_by_slot(commitments: Sequence[Commitment], edges: Sequence[datetime]) -> Floats:
    """Dollars by commitment and slot, in one row."""
    return np.array([float(bought(c, *slot)) / 1e9 for c in commitments for slot in pairwise(edges)])


def rates(candidate: Any, commitments: Sequence[Commitment]) -> list[float]:
    """On-demand dollars that an hour held on the candidate uses, by commitment."""
    billed = candidate.billed_share * candidate.on_time_steps_per_hour / candidate.steps_per_hour
    return [
        sum(
            part.offer.usd_per_hour.dollars() * part.machines * billed
            for part in candidate.parts
            if matches(commitment, part.offer, part.machine)
        )
        for commitment in commitments
    ]


def used_by_slot(
    slots: Ints, lengths: Floats, used: Floats, candidates: Sequence[Any], commitments: Sequence[Commitment]
) -> Floats:
    """[patterns, commitments x slots]: dollars used.

    Of each candidate's slots the last ones are given up first, down to the hours ``used`` [patterns, candidates].
    """
    found = np.zeros((len(slots), len(commitments), slots.shape[1]))
    for c, candidate in enumerate(candidates):
        each = rates(candidate, commitments)
        if not any(each):
            continue
        held = (slots == c) * lengths
        upto = np.minimum(np.cumsum(held, axis=1), used[:, c : c + 1])
        hours = np.diff(upto, axis=1, prepend=0.0)
        for k, rate in enumerate(each):
            found[:, k, :] += rate * hours
    return found.reshape(len(slots), len(commitments) * slots.shape[1])


def covered(used: Floats, bought_there: Floats) -> float:
    """Dollars covered: what is used in each slot, and no more than is bought there."""
    return float(np.minimum(used, bought_there).sum())
