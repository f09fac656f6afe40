"""The stored result of learning from recorded availability: drift and recalibration, used by all quotes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from router.spot.availability.drift import GRID
from router.spot.availability.drift import DriftingHazardModel as _Drifting
from router.spot.availability.hazard_model import HazardModel
from router.spot.availability.recalibration import Recalibration

FORMAT: Final = 1
FRESH_FOR: Final = timedelta(days=31)  # after its last look: availability changes
_SURE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class AvailabilityFit:
    """The drift and the recalibration learned from the recorded past.

    ``since`` and ``until`` are the first and last look at the ``pools`` that it was learned from; ``watched`` is the
    share of the time between that was observed. ``likely`` is the posterior probability of each setting of the drift,
    for the return of spot and for its loss. ``cost`` and ``finish`` say how the quoted levels held in ``outcomes`` made
    of pieces of availability that the model had not seen. Raise ValueError where the shares do not add up to 1.
    """

    since: datetime
    until: datetime
    pools: int
    watched: float
    likely: tuple[tuple[float, ...], tuple[float, ...]]
    cost: Recalibration
    finish: Recalibration
    outcomes: int

    def __post_init__(self) -> None:
        for shares in self.likely:
            if len(shares) != len(GRID) or min(shares) < 0 or abs(sum(shares) - 1) > _SURE:
                raise ValueError(f"give {len(GRID)} shares that add up to 1")

    def is_fresh(self, now: datetime) -> bool:
        """Return whether quotes may still use the fit."""
        return self.since <= now and now - self.until <= FRESH_FOR

    def drifting(self, hazard_model: HazardModel) -> HazardModel:
        """Return a hazard model of the same rates, with the learned drift."""
        sizes = [sum(p * s.size for p, s in zip(shares, GRID, strict=True)) for shares in self.likely]
        return _Drifting(hazard_model.events, hazard_model.hours, sum(sizes) / len(sizes), self.likely)


def fit_to_json(fit: AvailabilityFit) -> str:
    """Return the fit as it is stored."""
    return json.dumps(
        {
            "format": FORMAT,
            "since": fit.since.isoformat(),
            "until": fit.until.isoformat(),
            "pools": fit.pools,
            "watched": fit.watched,
            "likely": [list(shares) for shares in fit.likely],
            "cost": list(fit.cost.held),
            "finish": list(fit.finish.held),
            "outcomes": fit.outcomes,
        },
        indent=1,
    )


def fit_from_json(text: str) -> AvailabilityFit:
    """Return the stored fit; raise ValueError, TypeError or KeyError where the text is not one."""
    content: dict[str, Any] = json.loads(text)
    if content["format"] != FORMAT:
        raise ValueError("is of another version of stepfare")
    since, until = (datetime.fromisoformat(content[name]) for name in ("since", "until"))
    if since.utcoffset() is None or until.utcoffset() is None:
        raise ValueError("has times without a time zone")
    back, lost = (tuple(float(p) for p in shares) for shares in content["likely"])
    cost, finish = (Recalibration(tuple(float(p) for p in content[name])) for name in ("cost", "finish"))
    return AvailabilityFit(
        since,
        until,
        int(content["pools"]),
        float(content["watched"]),
        (back, lost),
        cost,
        finish,
        int(content["outcomes"]),
    )
