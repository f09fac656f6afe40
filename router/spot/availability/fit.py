"""What the recorded past says of how far quotes may be off, as it is kept: learned once, used by all quotes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from router.spot.availability.drift import GRID
from router.spot.availability.drift import Drifting as _Drifting
from router.spot.availability.hazard_model import Outlook
from router.spot.availability.recalibration import Calibrating

FORMAT: Final = 1
FRESH: Final = timedelta(days=31)  # after its last look: weather changes
_SURE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class WeatherFit:
    """``since`` and ``until``: of the looks at ``pools`` that it was learned from, ``watched`` of the time between.
    ``likely``: how likely each setting of the drift is, of the return of spot and of its loss. ``cost`` and ``finish``:
    how their levels held in ``outcomes`` made of pieces of weather that the model had not seen. ValueError where the
    shares do not add up."""

    since: datetime
    until: datetime
    pools: int
    watched: float
    likely: tuple[tuple[float, ...], tuple[float, ...]]
    cost: Calibrating
    finish: Calibrating
    outcomes: int

    def __post_init__(self) -> None:
        for shares in self.likely:
            if len(shares) != len(GRID) or min(shares) < 0 or abs(sum(shares) - 1) > _SURE:
                raise ValueError(f"{len(GRID)} shares that add up to 1")

    def is_fresh(self, now: datetime) -> bool:
        """Whether quotes may still go by it."""
        return self.since <= now and now - self.until <= FRESH

    def drifting(self, outlook: Outlook) -> Outlook:
        """The same rates, with the drift that was learned."""
        sizes = [sum(p * s.size for p, s in zip(shares, GRID, strict=True)) for shares in self.likely]
        return _Drifting(outlook.events, outlook.hours, sum(sizes) / len(sizes), self.likely)


def fit_to_json(fit: WeatherFit) -> str:
    """As it is kept."""
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


def fit_from_json(text: str) -> WeatherFit:
    """ValueError, TypeError or KeyError where it is none of ours."""
    found: dict[str, Any] = json.loads(text)
    if found["format"] != FORMAT:
        raise ValueError("is of another version of stepfare")
    since, until = (datetime.fromisoformat(found[name]) for name in ("since", "until"))
    if since.utcoffset() is None or until.utcoffset() is None:
        raise ValueError("has moments without a zone")
    back, lost = (tuple(float(p) for p in shares) for shares in found["likely"])
    cost, finish = (Calibrating(tuple(float(p) for p in found[name])) for name in ("cost", "finish"))
    return WeatherFit(
        since, until, int(found["pools"]), float(found["watched"]), (back, lost), cost, finish, int(found["outcomes"])
    )
