"""Availability of the options of a quote: what was observed of their pools, and the prior of the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from router.spot.availability.fit import AvailabilityFit
from router.spot.availability.hazard_model import CLASSES, POOL_EVENTS, HazardModel, ZoneStates, age_class
from router.spot.simulator.traces import Floats
from router.spot.venues import QuoteOption

# A prior counts as this many events: its hazards are known to about 70 %.
PRIOR_EVENTS: Final = 2.0
_LEAST_WAIT_HOURS: Final = 0.1
_NEVER_PER_HOUR: Final = 1e-6
_RECENT: Final = timedelta(hours=1)
_OBSERVED: Final = "observed"


@dataclass(frozen=True, eq=False, slots=True)
class PoolObservation:
    """Observations of one pool.

    ``events`` and ``hours`` are by [up, class of age], of the time that was watched. ``up`` is its last state,
    ``age_h`` for how long it had lasted, and ``at`` the time of that last look; ``since`` is the first look.
    """

    events: Floats
    hours: Floats
    up: bool
    age_h: float
    since: datetime
    at: datetime

    @property
    def watched_h(self) -> float:
        """The hours that were watched."""
        return float(self.hours.sum())


def summarise_observations(
    observations: Iterable[tuple[datetime, bool]], longest_gap: timedelta
) -> PoolObservation | None:
    """Return the observations of one pool, seen at strictly increasing moments; None where nothing was watched.

    An observation holds until the next one; after a gap longer than ``longest_gap`` nothing is known of the time
    between, and ages begin anew.
    """
    events, hours = np.zeros((2, CLASSES)), np.zeros((2, CLASSES))
    last: tuple[datetime, bool] | None = None
    first = born = None
    for at, up in observations:
        if last is None or born is None or first is None:
            first = first or at
            born = at
        elif at - last[0] > longest_gap:
            born = at
        else:
            age = (last[0] - born) / timedelta(hours=1)
            cell = (int(last[1]), int(age_class(np.array(age))))
            hours[cell] += (at - last[0]) / timedelta(hours=1)
            if up != last[1]:
                events[cell] += 1
                born = at
        last = (at, up)
    if last is None or born is None or first is None or not hours.any():
        return None
    return PoolObservation(events, hours, last[1], max((last[0] - born) / timedelta(hours=1), 1e-3), first, last[0])


@dataclass(frozen=True, eq=False, slots=True)
class OptionAvailability:
    """Expected availability of the options of a quote.

    ``hazard_model`` is by [option]. ``state`` is the present state, where it is known of all options that may be lost.
    ``basis`` is by [option] the source of the estimate, in words. ``pool`` is by [option] the option whose availability
    it shares.
    """

    hazard_model: HazardModel
    state: ZoneStates | None
    basis: tuple[str, ...]
    pool: tuple[int, ...]

    @property
    def observed(self) -> bool:
        """True if any option was observed."""
        return self.observed_count > 0

    @property
    def observed_count(self) -> int:
        """The number of options that were observed."""
        return sum(word.startswith(_OBSERVED) for word in self.basis)


def estimate_availability(
    venues: Sequence[QuoteOption],
    seen: Mapping[str, PoolObservation],
    now: datetime,
    fit: AvailabilityFit | None = None,
) -> OptionAvailability:
    """Return the expected availability of these options; ``seen`` is by pool.

    The rates of a prior are the candidate's: interruptions of the gang, and the wait for a new one. ``fit`` is the
    learned drift, for options of which anything was observed.
    """
    known = [None if v.sure or len(v.pool) != 1 else seen.get(v.pool[0]) for v in venues]
    hazard_model = HazardModel(*posterior_hazards(np.array([_hazard_rates(v) for v in venues]), known))
    basis, states = [], []
    for v, own in zip(venues, known, strict=True):
        if v.sure:
            basis.append("on-demand: assumed to be available")
        elif own is not None:
            days = max(1, (own.at - own.since).days)
            basis.append(f"{_OBSERVED} {own.watched_h:,.0f} h over {days} days, added to a prior")
        else:
            basis.append("prior: interruptions by cloud and accelerator")
        recent = own is not None and now - own.at <= _RECENT
        states.append((own.up, own.age_h) if own is not None and recent else None)
    if fit is not None and any(word.startswith(_OBSERVED) for word in basis):
        hazard_model = fit.drifting(hazard_model)
    return OptionAvailability(hazard_model, _current_states(venues, states), tuple(basis), _shared_pools(venues))


def posterior_hazards(rates: Floats, seen: Sequence[PoolObservation | None]) -> tuple[Floats, Floats]:
    """Return events and hours [place, up, class of age] of the posterior of each place's hazards.

    ``rates`` [place, up] are the priors, an hour. A place that was not observed keeps its prior alone, worth two events
    in each class of age. The others add to their observations the rate of all observed places together with the prior,
    worth half an event where much was observed: a prior for each place and class would say of spot that has been away
    for days that it is soon back.
    """
    events = np.full((*rates.shape, CLASSES), PRIOR_EVENTS)
    hours = events / rates[:, :, None]
    observed = [one for one in seen if one is not None]
    if not observed:
        return events, hours
    event_totals = np.sum([one.events for one in observed], axis=0)
    hour_totals = np.sum([one.hours for one in observed], axis=0)
    for i, one in enumerate(seen):
        if one is not None:
            rate = (event_totals + PRIOR_EVENTS) / (hour_totals + hours[i])
            prior_events = POOL_EVENTS + (PRIOR_EVENTS - POOL_EVENTS) * hours[i] / (hour_totals + hours[i])
            events[i], hours[i] = one.events + prior_events, one.hours + prior_events / rate
    return events, hours


def _hazard_rates(v: QuoteOption) -> tuple[float, float]:
    """Return the hazards an hour: return and loss."""
    risk = v.candidate.risk
    return prior_hazards(None if v.sure else (risk.recovery_hours, risk.interruptions_per_hour))


def prior_hazards(prior: tuple[float, float] | None) -> tuple[float, float]:
    """Return the hazards an hour, return and loss, of a prior.

    ``prior`` is the hours until spot is back, and the losses an hour. None: no spot, ever.
    """
    if prior is None:
        return _NEVER_PER_HOUR, 1.0
    return 1 / max(prior[0], _LEAST_WAIT_HOURS), max(prior[1], _NEVER_PER_HOUR)


def _current_states(venues: Sequence[QuoteOption], states: Sequence[tuple[bool, float] | None]) -> ZoneStates | None:
    known = [(False, 1.0) if v.sure else state for v, state in zip(venues, states, strict=True)]
    if any(state is None for state in known) or all(v.sure for v in venues):
        return None
    return ZoneStates(np.array([s[0] for s in known if s]), np.array([s[1] for s in known if s]))


def _shared_pools(venues: Sequence[QuoteOption]) -> tuple[int, ...]:
    """Return for each option the one of its pool with the most interruptions."""
    shared = []
    for v in venues:
        pool = [i for i, w in enumerate(venues) if w.pool == v.pool and w.sure == v.sure]
        shared.append(max(pool, key=lambda i: (venues[i].candidate.risk.interruptions_per_hour, -i)))
    return tuple(shared)
