"""Find the on-demand gang on which a spot gang of a job ends if it must. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from pricing.money import Usd
from pricing.places import RegionId
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate
from router.planning.find.gang_rates import FallbackGang
from router.planning.find.transfers import TRANSFER_GIB_PER_S, Routes

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Fallback:
    """A gang on demand on which others of the job may end, in time.

    ``usd`` is what the whole job costs there, ``moved`` what bringing data and checkpoint there does.
    """

    usd: float
    candidate: Candidate
    gang: FallbackGang
    moved: Usd

    @property
    def rank(self) -> tuple[float, str]:
        """Return by what the best is chosen."""
        return self.usd + self.moved.dollars(), self.candidate.key


class FallbackFinder:
    """Finds the fallbacks of one job among its on-demand gangs, which are added before the first is asked for."""

    def __init__(self, window_hours: float | None, routes: Routes) -> None:
        self._window_hours, self._routes = window_hours, routes
        self._sure: list[Candidate] = []
        self._found: dict[RegionId, Fallback | None] = {}
        # Those of the region where a gang is lost, the cheapest by region; and of other regions, rising in cost.
        self._here: dict[RegionId, Fallback] | None = None
        self._elsewhere: list[Fallback] | None = None

    def add(self, candidate: Candidate) -> None:
        """Add an on-demand gang of the job."""
        self._sure.append(candidate)

    def find(self, job: Job, region: RegionId, steps: int) -> Fallback | None:
        """Return the gang on which a spot gang of the region ends if it must, and what moving there costs.

        It is the one of the region on which the whole job costs least, and in time; else of any region, moves counted.
        """
        if region not in self._found:
            if self._here is None:
                self._here = self._cheapest_by_region(job, steps)
            self._found[region] = self._here.get(region) or self._find_elsewhere(job, region, steps)
        return self._found[region]

    def _cheapest_by_region(self, job: Job, steps: int) -> dict[RegionId, Fallback]:
        best: dict[RegionId, Fallback] = {}
        for each in self._in_time(job, steps, moves=False):
            known = best.get(each.candidate.region)
            if known is None or each.rank < known.rank:
                best[each.candidate.region] = each
        return best

    def _find_elsewhere(self, job: Job, region: RegionId, steps: int) -> Fallback | None:
        if self._elsewhere is None:
            self._elsewhere = sorted(self._in_time(job, steps, moves=True), key=lambda fallback: fallback.rank)
        best: Fallback | None = None
        for fallback in self._elsewhere:
            if best is not None and fallback.rank > best.rank:
                break  # the checkpoint's move only adds to it
            if fallback.candidate.region == region:
                continue
            (saved,) = self._routes.moves_usd(region, [fallback.candidate.region], job.checkpoint)
            if saved is None:
                continue
            moved = replace(fallback, moved=fallback.moved + saved)
            if best is None or moved.rank < best.rank:
                best = moved
        return best

    def _in_time(self, job: Job, steps: int, *, moves: bool) -> Iterator[Fallback]:
        """Yield the gangs that are in time if begun at once, with what moving the data costs there."""
        most = math.inf if self._window_hours is None else self._window_hours
        for candidate in self._sure:
            gang = self._as_gang(job, candidate, moves=moves)
            needed = gang.start_hours + steps / candidate.on_time_steps_per_hour
            if needed <= most:
                moved = self._routes.total_usd(t for t in candidate.transfers if moves and t.what == "data")
                yield Fallback(candidate.expected_usd(steps), candidate, gang, moved)

    def _as_gang(self, job: Job, candidate: Candidate, *, moves: bool) -> FallbackGang:
        part = candidate.parts[-1]
        gib = job.checkpoint.size_gib if moves and job.checkpoint is not None else 0.0
        return FallbackGang(
            key=candidate.key,
            steps_per_hour=candidate.steps_per_hour,
            start_hours=job.restart_time / _HOUR + gib / TRANSFER_GIB_PER_S / 3600,
            usd_per_hour=candidate.usd_per_hour.dollars(),
            refusal=self._routes.book.risk.refusal_probability(part.offer, part.machine),
            failures_per_hour=candidate.gang_risk.hardware_per_hour,
        )
