"""Build the history that a policy is shown: where a job ran, and what its placements answered. Pure.

It is derived from attempts and shortages alone, so that every caller sees the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pricing.places import Market
from router.controller.history.attempt_history import AttemptHistory
from router.controller.history.lifecycle import ReleaseReason
from router.faults.fault import REFUSED_PLACES
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate
from router.spot.policies.interface import AvailabilityAnswer, Observation, PastAttempt
from router.state.records import Attempt, NodeRecord, Shortage

_INTERRUPTED = frozenset({ReleaseReason.INTERRUPTED.value, ReleaseReason.LOST.value})


def with_history(
    observation: Observation,
    chain: AttemptHistory,
    job: Job,
    candidates: Sequence[Candidate],
    shortages: Iterable[Shortage],
) -> Observation:
    """Return the observation with the history of the job at the ``candidates`` for its remaining work.

    An attempt in a place that is no candidate is left out. ``shortages``: recent ones of anybody's gangs.
    """
    now = observation.now
    first = chain.attempts[0]
    work = max(1, job.steps - first.first_step)
    lives: list[PastAttempt] = []
    answers = _refusals(candidates, shortages)
    for attempt, nodes, saved_step in zip(chain.attempts, chain.nodes, chain.steps, strict=True):
        place = next((c for c in candidates if matches_machines(c, attempt, nodes)), None)
        if place is None:
            continue
        since = attempt.made_at or attempt.created_at
        if attempt.met_at is None:
            if attempt.reason in REFUSED_PLACES:
                answers.append(AvailabilityAnswer(place.key, attempt.gone_at or since, up=False))
            continue
        answers.append(AvailabilityAnswer(place.key, since, up=True))
        over = attempt.phase.is_over or attempt is not chain.last
        until = (attempt.gone_at or now) if over else None
        share_from, share_to = (
            (job.steps - step) / work for step in (attempt.first_step, max(saved_step, attempt.first_step))
        )
        interrupted = attempt.reason in _INTERRUPTED
        lives.append(PastAttempt(place.key, since, attempt.met_at, until, interrupted, share_from, share_to))
    remaining_steps = max(1, job.steps - max(chain.steps))
    past_answers = tuple(sorted((a for a in answers if a.at <= now), key=lambda a: (a.at, a.key)))
    return replace(
        observation,
        began=min(first.created_at, now),
        share=min(1.0, remaining_steps / work),
        lives=tuple(lives),
        answers=past_answers,
    )


def _refusals(candidates: Sequence[Candidate], shortages: Iterable[Shortage]) -> list[AvailabilityAnswer]:
    pools: dict[tuple[str, str, str, Market], list[Shortage]] = {}
    for shortage in shortages:
        pool = (shortage.cloud, shortage.region, shortage.instance_type, shortage.market)
        pools.setdefault(pool, []).append(shortage)
    answers: list[AvailabilityAnswer] = []
    for candidate in candidates if pools else ():
        for part in candidate.parts:
            offer = part.offer
            pool_shortages = pools.get((offer.cloud, offer.region, offer.instance_type, offer.market), ())
            zones = (None, offer.zone)
            answers += [
                AvailabilityAnswer(candidate.key, s.at, up=False, launch=False)
                for s in pool_shortages
                if s.zone in zones
            ]
    return answers


def matches_machines(candidate: Candidate, attempt: Attempt, nodes: Sequence[NodeRecord]) -> bool:
    """Return whether the candidate is what the attempt runs on; an offer without a zone matches any zone."""
    if (candidate.region.cloud, candidate.region.region) != (attempt.cloud, attempt.region):
        return False
    running: Mapping[tuple[str, Market, str | None], int] = Counter(
        (node.instance_type, node.market, node.zone) for node in nodes
    )
    running = dict(running)
    for part in candidate.parts:
        offer, missing = part.offer, part.machines
        for key in [k for k in running if k[:2] == (offer.instance_type, offer.market)]:
            if offer.zone in (None, key[2]) or key[2] is None:
                matched = min(missing, running[key])
                missing, running[key] = missing - matched, running[key] - matched
        if missing:
            return False
    return not any(running.values())
