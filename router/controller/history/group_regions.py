"""Keep the gangs of a job group in one region where they are placed again. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pricing.money import Usd
from pricing.places import RegionId
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate, steps_to_do

MOST_REGIONS = 6


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A job of a group that needs a place.

    ``open_candidates`` are those that it could take now. ``mates_in`` are the regions of the group's gangs that keep
    running.
    """

    job: Job
    open_candidates: tuple[Candidate, ...]
    mates_in: frozenset[RegionId] = frozenset()


# The number of members that find a place together, and their expected dollars.
Trial = Callable[[Sequence[GroupMember]], tuple[int, Usd]]


def regions_of_groups(members: Mapping[int, GroupMember], place: Trial) -> Mapping[int, frozenset[RegionId]]:
    """Return the regions that each member may go to, by its number; one that is alone may go anywhere and is left out.

    Where gangs of the group keep running, it is their region. Else it is the region where most of those that wait find
    a place by ``place``, then where they cost least; the ``MOST_REGIONS`` that look best are tried.
    """
    regions: dict[int, frozenset[RegionId]] = {}
    waiting: dict[str, list[int]] = {}
    for number, member in members.items():
        if member.mates_in:
            regions[number] = member.mates_in
        elif member.job.group is not None:
            waiting.setdefault(member.job.group, []).append(number)
    for numbers in waiting.values():
        if len(numbers) > 1:
            region = _common_region([members[number] for number in numbers], place)
            regions |= dict.fromkeys(numbers, frozenset() if region is None else frozenset({region}))
    return regions


def _common_region(members: Sequence[GroupMember], place: Trial) -> RegionId | None:
    least: dict[RegionId, list[float]] = {}
    for member in members:
        costs: dict[RegionId, float] = {}
        for c in member.open_candidates:
            usd = c.expected_usd(steps_to_do(member.job, running=c.running))
            usd += sum(t.dearest.dollars() for t in c.transfers)
            costs[c.region] = min(usd, costs.get(c.region, usd))
        for region, usd in costs.items():
            least.setdefault(region, []).append(usd)
    ranked = sorted(least, key=lambda region: (-len(least[region]), sum(least[region]), region))[:MOST_REGIONS]
    found: dict[RegionId, tuple[int, Usd]] = {}
    for region in ranked:
        there = [
            replace(member, open_candidates=tuple(c for c in member.open_candidates if c.region == region))
            for member in members
        ]
        found[region] = place(there)
    return min(ranked, key=lambda region: (-found[region][0], found[region][1]), default=None)
