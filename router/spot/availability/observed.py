"""What is known of the weather of a quote's venues: what was seen of their pools, and what is assumed of the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from router.spot.availability.fit import WeatherFit
from router.spot.availability.hazard_model import CLASSES, POOL_EVENTS, Outlook, Sky, age_class
from router.spot.simulator.traces import Floats
from router.spot.venues import Venue

# What a prior says is worth so many events: its hazards are known to about 70 %.
PRIOR_EVENTS: Final = 2.0
_LEAST_WAIT_HOURS: Final = 0.1
_NEVER_PER_HOUR: Final = 1e-6
_RECENT: Final = timedelta(hours=1)
_OBSERVED: Final = "observed"


@dataclass(frozen=True, eq=False, slots=True)
class Sighting:
    """Of one pool: [up, class of age] ``events`` and ``hours`` that were watched, how it was last, since how long and
    when that was; ``since``: the first look."""

    events: Floats
    hours: Floats
    up: bool
    age_h: float
    since: datetime
    at: datetime

    @property
    def watched_h(self) -> float:
        """Hours."""
        return float(self.hours.sum())


def sighting(observations: Iterable[tuple[datetime, bool]], longest_gap: timedelta) -> Sighting | None:
    """Of one pool, seen at strictly increasing moments. An observation holds until the next one; after a gap longer
    than ``longest_gap`` nothing is known of the time between, and ages begin anew. None where nothing was watched."""
    events, hours = np.zeros((2, CLASSES)), np.zeros((2, CLASSES))
    before: tuple[datetime, bool] | None = None
    first = born = None
    for at, up in observations:
        if before is None or born is None or first is None:
            first = first or at
            born = at
        elif at - before[0] > longest_gap:
            born = at
        else:
            age = (before[0] - born) / timedelta(hours=1)
            cell = (int(before[1]), int(age_class(np.array(age))))
            hours[cell] += (at - before[0]) / timedelta(hours=1)
            if up != before[1]:
                events[cell] += 1
                born = at
        before = (at, up)
    if before is None or born is None or first is None or not hours.any():
        return None
    return Sighting(events, hours, before[1], max((before[0] - born) / timedelta(hours=1), 1e-3), first, before[0])


@dataclass(frozen=True, eq=False, slots=True)
class Weather:
    """``outlook`` [venue]; ``sky`` of this moment where it is known of all that comes and goes; ``basis``: [venue]
    where it is from, in words; ``pool``: [venue] the venue whose weather it shares."""

    outlook: Outlook
    sky: Sky | None
    basis: tuple[str, ...]
    pool: tuple[int, ...]

    @property
    def observed(self) -> bool:
        """Whether anything was seen of any venue."""
        return any(word.startswith(_OBSERVED) for word in self.basis)


def weather_of(
    venues: Sequence[Venue], seen: Mapping[str, Sighting], now: datetime, fit: WeatherFit | None = None
) -> Weather:
    """``seen`` by pool. A prior's rates are the candidate's: interruptions of the gang, and the wait for a new one.
    ``fit``: what was learned of drift, for weather of which anything was seen."""
    known = [None if v.sure or len(v.pool) != 1 else seen.get(v.pool[0]) for v in venues]
    outlook = Outlook(*known_hazards(np.array([_rates(v) for v in venues]), known))
    basis, skies = [], []
    for v, own in zip(venues, known, strict=True):
        if v.sure:
            basis.append("on-demand: taken to be there")
        elif own is not None:
            days = max(1, (own.at - own.since).days)
            basis.append(f"{_OBSERVED} {own.watched_h:,.0f} h over {days} days, added to a prior")
        else:
            basis.append("prior: interruptions by cloud and accelerator")
        recent = own is not None and now - own.at <= _RECENT
        skies.append((own.up, own.age_h) if own is not None and recent else None)
    if fit is not None and any(word.startswith(_OBSERVED) for word in basis):
        outlook = fit.drifting(outlook)
    return Weather(outlook, _sky(venues, skies), tuple(basis), _shared(venues))


def known_hazards(rates: Floats, seen: Sequence[Sighting | None]) -> tuple[Floats, Floats]:
    """Events and hours [place, up, class of age] of each place's hazards, by what was seen of them.

    ``rates`` [place, up]: priors, an hour. A place of which nothing was seen keeps its prior alone, worth two events in
    each class of age. The others add to what they showed the rate of all that were seen together with the prior, worth
    half an event where much was seen: a prior for each place and class tells of spot that has been away for days that
    it is soon back.
    """
    events = np.full((*rates.shape, CLASSES), PRIOR_EVENTS)
    hours = events / rates[:, :, None]
    watched = [one for one in seen if one is not None]
    if not watched:
        return events, hours
    happened = np.sum([one.events for one in watched], axis=0)
    passed = np.sum([one.hours for one in watched], axis=0)
    for i, one in enumerate(seen):
        if one is not None:
            rate = (happened + PRIOR_EVENTS) / (passed + hours[i])
            worth = POOL_EVENTS + (PRIOR_EVENTS - POOL_EVENTS) * hours[i] / (passed + hours[i])
            events[i], hours[i] = one.events + worth, one.hours + worth / rate
    return events, hours


def _rates(v: Venue) -> tuple[float, float]:
    """An hour: back, lost."""
    risk = v.candidate.risk
    return hazards_of(None if v.sure else (risk.recovery_hours, risk.interruptions_per_hour))


def hazards_of(prior: tuple[float, float] | None) -> tuple[float, float]:
    """An hour, back and lost, of a prior: hours until spot is back, and losses an hour. None: no spot, ever."""
    if prior is None:
        return _NEVER_PER_HOUR, 1.0
    return 1 / max(prior[0], _LEAST_WAIT_HOURS), max(prior[1], _NEVER_PER_HOUR)


def _sky(venues: Sequence[Venue], skies: Sequence[tuple[bool, float] | None]) -> Sky | None:
    known = [(False, 1.0) if v.sure else sky for v, sky in zip(venues, skies, strict=True)]
    if any(sky is None for sky in known) or all(v.sure for v in venues):
        return None
    return Sky(np.array([s[0] for s in known if s]), np.array([s[1] for s in known if s]))


def _shared(venues: Sequence[Venue]) -> tuple[int, ...]:
    """Of venues of one pool the one that is hit most often."""
    found = []
    for v in venues:
        same = [i for i, w in enumerate(venues) if w.pool == v.pool and w.sure == v.sure]
        found.append(max(same, key=lambda i: (venues[i].candidate.risk.interruptions_per_hour, -i)))
    return tuple(found)
