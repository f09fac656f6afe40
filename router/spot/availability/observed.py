"""Availability of the options of a quote: what was observed of their pools, and the prior of the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np

from pricing.risk_levels import POOL_DEVIATION
from router.jobs.pool_waits import return_rates
from router.spot.availability.fit import AvailabilityFit
from router.spot.availability.hazard_model import (
    AGES_H,
    CLASSES,
    POOL_EVENTS,
    HazardModel,
    LossRates,
    ZoneStates,
    age_class,
)
from router.spot.simulator.traces import Floats
from router.spot.venues import QuoteOption

# A prior counts as this many events: its hazards are known to about 70 %.
PRIOR_EVENTS: Final = 2.0
# The ages of losses are known well without an observation, and a little less than what four events show with one.
_SHAPE_EVENTS: Final = 1000.0
_AGE_EVENTS: Final = 4.0
_POOL_SHAPE: Final = 1 / POOL_DEVIATION**2  # of a gamma that is as wide as pools of one level differ
_LEAST_WAIT_HOURS: Final = 0.1
_NEVER_PER_HOUR: Final = 1e-6
_RECENT: Final = timedelta(hours=1)
_OBSERVED: Final = "observed"
_PRIOR: Final = "prior: "


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
        return self.observed_count > 0

    @property
    def observed_count(self) -> int:
        return sum(word.startswith(_OBSERVED) for word in self.basis)


def estimate_availability(
    venues: Sequence[QuoteOption],
    seen: Mapping[str, PoolObservation],
    now: datetime,
    fit: AvailabilityFit | None = None,
) -> OptionAvailability:
    """Return the expected availability of these options; ``seen`` is by pool.

    Losses are by the candidate's interruption risk, as in a plan; returns by the wait for a new gang. ``fit`` is the
    learned drift, for options of which anything was observed.
    """
    known = [None if v.sure or len(v.pool) != 1 else seen.get(v.pool[0]) for v in venues]
    hazard_model = posterior_hazards([_prior_of(v) for v in venues], known)
    basis, states = [], []
    for v, own in zip(venues, known, strict=True):
        if v.sure:
            basis.append("on-demand: assumed to be available")
        elif own is not None:
            days = max(1, (own.at - own.since).days)
            basis.append(f"{_OBSERVED} {own.watched_h:,.0f} h over {days} days, added to a prior")
        else:
            basis.append(f"{_PRIOR}{v.candidate.gang_risk.source.removeprefix(_PRIOR)}")
        recent = own is not None and now - own.at <= _RECENT
        states.append((own.up, own.age_h) if own is not None and recent else None)
    if fit is not None and any(word.startswith(_OBSERVED) for word in basis):
        hazard_model = fit.drifting(hazard_model)
    return OptionAvailability(hazard_model, _current_states(venues, states), tuple(basis), _shared_pools(venues))


def posterior_hazards(priors: Sequence[HazardPrior], seen: Sequence[PoolObservation | None]) -> HazardModel:
    """Return the hazards of places after what was seen of each of them; of one that was not seen, its prior's.

    Returns are counted by class of age, shrunk to the rate of all observed places together with the prior, worth half
    an event where much was observed: a prior for each place and class would say of spot that has been away for days
    that it is soon back. Losses have the ages of their prior, at a level that all observed places shift together, and
    each by what it showed; where much was seen at an age, that counts.
    """
    count = len(priors)
    events = np.full((count, 2, CLASSES), PRIOR_EVENTS)
    hours = events.copy()
    for i, prior in enumerate(priors):
        hours[i, 0] = PRIOR_EVENTS / np.array(prior.back_per_hour)
        events[i, 1] = _SHAPE_EVENTS
        hours[i, 1] = _SHAPE_EVENTS / np.array(prior.losses.per_hour)
    spread = [prior.losses.spread for prior in priors]
    observed = [one for one in seen if one is not None]
    if not observed:
        return HazardModel(events, hours, spread=tuple(spread))
    event_totals = np.sum([one.events[0] for one in observed], axis=0)
    hour_totals = np.sum([one.hours[0] for one in observed], axis=0)
    shared = _shared_level(priors, seen)
    for i, (prior, one) in enumerate(zip(priors, seen, strict=True)):
        if one is None:
            continue
        rate = (event_totals + PRIOR_EVENTS) / (hour_totals + hours[i, 0])
        prior_events = POOL_EVENTS + (PRIOR_EVENTS - POOL_EVENTS) * hours[i, 0] / (hour_totals + hours[i, 0])
        events[i, 0], hours[i, 0] = one.events[0] + prior_events, one.hours[0] + prior_events / rate
        if prior.knows_losses:
            continue
        expected = np.array(prior.losses.per_hour)
        lost, likely = one.events[1].sum(), (one.hours[1] * expected).sum()
        level = (_POOL_SHAPE + lost) / (_POOL_SHAPE / shared + likely)
        events[i, 1] = _AGE_EVENTS + one.events[1]
        hours[i, 1] = _AGE_EVENTS / (expected * level) + one.hours[1]
        spread[i] = float(min(spread[i], 1 / np.sqrt(_POOL_SHAPE + lost)))
    return HazardModel(events, hours, spread=tuple(spread))


def _shared_level(priors: Sequence[HazardPrior], seen: Sequence[PoolObservation | None]) -> float:
    """Return by how much the losses of all observed places together exceed their priors."""
    lost = likely = 0.0
    shapes = []
    for prior, one in zip(priors, seen, strict=True):
        if one is not None and not prior.knows_losses:
            lost += float(one.events[1].sum())
            likely += float((one.hours[1] * np.array(prior.losses.per_hour)).sum())
            shapes.append(1 / max(prior.losses.spread, 0.1) ** 2)
    shape = float(np.mean(shapes)) if shapes else 1.0
    return (shape + lost) / (shape + likely)


@dataclass(frozen=True, slots=True)
class HazardPrior:
    """The hazards of a place before it is observed, by class of age: those of waits fall with age as plans assume it.

    ``knows_losses``: the rates rest on the availability history of the pool, which must not be counted twice.
    """

    back_per_hour: tuple[float, ...]
    losses: LossRates
    knows_losses: bool = False

    @classmethod
    def of(cls, back_hours: float, losses: LossRates, *, knows_losses: bool = False) -> HazardPrior:
        """Return the prior of spot that takes ``back_hours`` to be back."""
        per_hour = tuple(max(rate, _NEVER_PER_HOUR) for rate in losses.per_hour)
        back = return_rates((0.0, *AGES_H), max(back_hours, _LEAST_WAIT_HOURS))
        return cls(back, LossRates(per_hour, losses.spread), knows_losses)

    @classmethod
    def never(cls) -> HazardPrior:
        """Return the prior of a place that has no spot, ever."""
        return cls((_NEVER_PER_HOUR,) * CLASSES, LossRates((1.0,) * CLASSES, 0.0))


def _prior_of(v: QuoteOption) -> HazardPrior:
    if v.sure:
        return HazardPrior.never()
    risk = v.candidate.gang_risk
    return HazardPrior.of(risk.recovery_hours, LossRates.of(risk), knows_losses=risk.knows_availability)


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
        shared.append(max(pool, key=lambda i: (venues[i].candidate.gang_risk.hazard.mean, -i)))
    return tuple(shared)
