"""What was, as a policy hears of it: where a job lived, what places answered; from attempts and shortages alone, so
that whoever looks next hears the same. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pricing.places import Market
from router.controller.attempt_history import Chain
from router.controller.causes import Cause
from router.controller.lifecycle import Reason
from router.jobs.spec import Job
from router.planning.candidates import Candidate
from router.spot.policies.interface import Answer, Life
from router.state.records import Attempt, NodeRecord, Shortage

_REFUSED = frozenset({Cause.SHORT.value, Cause.QUOTA.value, Cause.PRICE.value})
_TAKEN = frozenset({Reason.INTERRUPTED.value, Reason.LOST.value})


@dataclass(frozen=True, slots=True)
class Past:
    """As :class:`router.spot.policies.interface.Observation` has it."""

    began: datetime
    share: float
    lives: tuple[Life, ...]
    answers: tuple[Answer, ...]


def past_of(
    chain: Chain, job: Job, candidates: Sequence[Candidate], shortages: Iterable[Shortage], now: datetime
) -> Past:
    """Of a chain, at the ``candidates`` of what is left of its job. An attempt in a place that is none of them is left
    out. ``shortages``: of anybody's gangs, of late."""
    first = chain.attempts[0]
    work = max(1, job.steps - first.first_step)
    lives: list[Life] = []
    answers = _refusals(candidates, shortages)
    for attempt, nodes, kept in zip(chain.attempts, chain.nodes, chain.steps, strict=True):
        place = next((c for c in candidates if same_machines(c, attempt, nodes)), None)
        if place is None:
            continue
        since = attempt.made_at or attempt.created_at
        if attempt.met_at is None:
            if attempt.reason in _REFUSED:
                answers.append(Answer(place.key, attempt.gone_at or since, up=False))
            continue
        answers.append(Answer(place.key, since, up=True))
        over = attempt.phase.is_over or attempt is not chain.last
        until = (attempt.gone_at or now) if over else None
        share_from, share_to = (
            (job.steps - step) / work for step in (attempt.first_step, max(kept, attempt.first_step))
        )
        taken = attempt.reason in _TAKEN
        lives.append(Life(place.key, since, attempt.met_at, until, taken, share_from, share_to))
    left = max(1, job.steps - max(chain.steps))
    said = tuple(sorted((a for a in answers if a.at <= now), key=lambda a: (a.at, a.key)))
    return Past(min(first.created_at, now), min(1.0, left / work), tuple(lives), said)


def _refusals(candidates: Sequence[Candidate], shortages: Iterable[Shortage]) -> list[Answer]:
    """Pools that ran short for others are as good as asked."""
    pools: dict[tuple[str, str, str, Market], list[Shortage]] = {}
    for shortage in shortages:
        pool = (shortage.cloud, shortage.region, shortage.instance_type, shortage.market)
        pools.setdefault(pool, []).append(shortage)
    found: list[Answer] = []
    for candidate in candidates if pools else ():
        for part in candidate.parts:
            offer = part.offer
            known = pools.get((offer.cloud, offer.region, offer.instance_type, offer.market), ())
            zones = (None, offer.zone)
            found += [Answer(candidate.key, s.at, up=False, launch=False) for s in known if s.zone in zones]
    return found


def same_machines(candidate: Candidate, attempt: Attempt, nodes: Sequence[NodeRecord]) -> bool:
    """Whether the candidate is what runs; an offer without a zone fits any."""
    if (candidate.region.cloud, candidate.region.region) != (attempt.cloud, attempt.region):
        return False
    wanted: Mapping[tuple[str, Market, str | None], int] = Counter(
        (node.instance_type, node.market, node.zone) for node in nodes
    )
    wanted = dict(wanted)
    for part in candidate.parts:
        offer, left = part.offer, part.machines
        for key in [k for k in wanted if k[:2] == (offer.instance_type, offer.market)]:
            if offer.zone in (None, key[2]) or key[2] is None:
                taken = min(left, wanted[key])
                left, wanted[key] = left - taken, wanted[key] - taken
        if left:
            return False
    return not any(wanted.values())
