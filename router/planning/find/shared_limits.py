"""Count what gangs use of the limits that jobs share, and find which limits can bind.

The kinds of limits are those of :mod:`router.planning.find.limit_kinds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from router.jobs.limits import Limits
from router.planning.find.candidate import Candidate, GangPart
from router.planning.find.limit_kinds import LimitPerMachine, SharedLimit, stated_limits, use_by_machine
from router.planning.find.listings import OfferListing

ENOUGH: Final = 10**15  # an amount of any limit that is never used up

Load = dict[tuple[str, int], float]
"""Use of limits by all jobs together, by name and slot index; of a cap on egress by its name and slot 0."""

LimitUse = Mapping[str, int]
"""Use of limits by name, each in its own unit; a limit that is not touched is absent."""


class LimitCounter:
    """Counts the use of limits by many gangs, each listing and each gang once: equal gangs share one mapping.

    ``is_raised``: the limits of the file are raised beyond need, and what offers hold stays.
    """

    def __init__(self, limits: Limits, *, is_raised: bool = False) -> None:
        self.limits, self.is_raised = limits, is_raised
        # Keyed by identity because listings are slow to hash; listings and candidates are kept so that none is reused.
        self._by_listing: dict[tuple[str, int], tuple[OfferListing, tuple[LimitPerMachine, ...]]] = {}
        self._by_gang: dict[tuple[object, ...], tuple[Candidate, LimitUse]] = {}

    def by_machine(self, listing: OfferListing, team: str) -> tuple[LimitPerMachine, ...]:
        """Return the limits that count a machine of the listing, held by a job of the team."""
        key = (team, id(listing))
        known = self._by_listing.get(key)
        if known is None:
            uses = use_by_machine(self.limits, listing, team)
            if self.is_raised:
                uses = tuple(replace(use, limit=_raised(use.limit)) for use in uses)
            known = self._by_listing[key] = (listing, uses)
        return known[1]

    def use(self, candidate: Candidate, team: str) -> LimitUse:
        """Return what a candidate takes of every limit, its fallback included, for a job of the team.

        An order stays executable at every instant: what a run may fall back on is kept for it while it runs.
        """
        gangs = (candidate.parts, candidate.kept_free)
        key = (team, *(tuple((id(part.listing), part.machines) for part in gang) for gang in gangs))
        known = self._by_gang.get(key)
        if known is None:
            use, behind = (self.use_of_parts(gang, team) for gang in gangs)
            known = self._by_gang[key] = (candidate, use_with_fallback(use, behind))
        return known[1]

    def use_of_parts(self, parts: Iterable[GangPart], team: str) -> dict[str, int]:
        """Return the same of machines that are no whole candidate; what a limit cannot count is left out."""
        taken: dict[str, int] = {}
        for part in parts:
            for use in self.by_machine(part.listing, team):
                if use.per_machine:
                    taken[use.limit.name] = taken.get(use.limit.name, 0) + use.per_machine * part.machines
        return taken

    def amounts(self, candidates: Iterable[tuple[str, Candidate]]) -> Mapping[str, SharedLimit]:
        """Return by name every limit of the file, and every other one that a candidate of a team's job touches."""
        amounts = {limit.name: limit for limit in stated_limits(self.limits)}
        parts = ((team, part) for team, candidate in candidates for part in (*candidate.parts, *candidate.kept_free))
        for listing, team in {(team, id(part.listing)): (part.listing, team) for team, part in parts}.values():
            amounts.update((use.limit.name, use.limit) for use in self.by_machine(listing, team))
        return amounts


def _raised(limit: SharedLimit) -> SharedLimit:
    return replace(limit, amount=ENOUGH) if limit.is_stated else limit


def use_with_fallback(use: LimitUse, behind: LimitUse) -> LimitUse:
    """Return the use by a gang and by its fallback: it falls back after it is given up, so that the larger counts."""
    return {**use, **{name: max(amount, use.get(name, 0)) for name, amount in behind.items()}}


def binding_limits(
    by_job: Mapping[str, Sequence[Candidate]],
    use: Mapping[tuple[str, str], LimitUse],
    shared_limits: Mapping[str, SharedLimit],
) -> frozenset[str]:
    """Return the names of limits that could bind.

    A limit could bind if every job on its greediest candidate would together take more than there is.
    """
    most: dict[str, int] = {}
    for job, candidates in by_job.items():
        peak: dict[str, int] = {}
        for candidate in candidates:
            for name, amount in use[job, candidate.key].items():
                peak[name] = max(peak.get(name, 0), amount)
        for name, amount in peak.items():
            most[name] = most.get(name, 0) + amount
    return frozenset(name for name, amount in most.items() if amount > shared_limits[name].amount)
