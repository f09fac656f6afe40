"""Find the on-demand gang on which a spot gang of a job ends if it must. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from pricing.book import PriceBook
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

    ``moved`` is what bringing data and checkpoint there costs.
    """

    candidate: Candidate
    gang: FallbackGang
    moved: Usd


@dataclass(frozen=True, slots=True)
class _RankedGang:
    """An on-demand gang that does the whole job in time, and at what cost."""

    usd: float
    candidate: Candidate
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
        self._moved: dict[RegionId, Usd] = {}
        # Those of the region where a gang is lost, the cheapest by region; and of other regions, rising in cost.
        self._here: dict[RegionId, _RankedGang] | None = None
        self._elsewhere: list[_RankedGang] | None = None

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
            here = self._here.get(region)
            found = None if here is None else _as_fallback(job, here, self._routes.book, moves=False)
            self._found[region] = found or self._find_elsewhere(job, region, steps)
        return self._found[region]

    def _cheapest_by_region(self, job: Job, steps: int) -> dict[RegionId, _RankedGang]:
        best: dict[RegionId, _RankedGang] = {}
        for gang in self._in_time(job, steps, moves=False):
            cheapest = best.get(gang.candidate.region)
            if cheapest is None or gang.rank < cheapest.rank:
                best[gang.candidate.region] = gang
        return best

    def _find_elsewhere(self, job: Job, region: RegionId, steps: int) -> Fallback | None:
        if self._elsewhere is None:
            self._elsewhere = sorted(self._in_time(job, steps, moves=True), key=lambda gang: gang.rank)
        best: _RankedGang | None = None
        for gang in self._elsewhere:
            if best is not None and gang.rank > best.rank:
                break  # the checkpoint's move only adds to it
            if gang.candidate.region == region:
                continue
            (saved,) = self._routes.moves_usd(region, [gang.candidate.region], job.checkpoint)
            if saved is None:
                continue
            moved = replace(gang, moved=gang.moved + saved)
            if best is None or moved.rank < best.rank:
                best = moved
        return None if best is None else _as_fallback(job, best, self._routes.book, moves=True)

    def _in_time(self, job: Job, steps: int, *, moves: bool) -> Iterator[_RankedGang]:
        """Yield the gangs that are in time if begun at once, with what moving the data costs there."""
        most = math.inf if self._window_hours is None else self._window_hours
        start_hours = _start_hours(job, moves=moves)
        for candidate in self._sure:
            if start_hours + steps / candidate.on_time_steps_per_hour <= most:
                moved = self._data_usd(candidate) if moves else Usd(0)
                yield _RankedGang(candidate.expected_usd(steps), candidate, moved)

    def _data_usd(self, candidate: Candidate) -> Usd:
        """Return the cost of bringing the data to the candidate's region."""
        if candidate.region not in self._moved:
            self._moved[candidate.region] = self._routes.total_usd(t for t in candidate.transfers if t.what == "data")
        return self._moved[candidate.region]


def _as_fallback(job: Job, gang: _RankedGang, book: PriceBook, *, moves: bool) -> Fallback:
    """Return the gang as a fallback; with ``moves`` it is in another region."""
    candidate, part = gang.candidate, gang.candidate.parts[-1]
    rates = FallbackGang(
        key=candidate.key,
        steps_per_hour=candidate.steps_per_hour,
        start_hours=_start_hours(job, moves=moves),
        usd_per_hour=candidate.usd_per_hour.dollars(),
        refusal=book.risk.refusal_probability(part.offer, part.machine),
        failures_per_hour=candidate.gang_risk.hardware_per_hour,
    )
    return Fallback(candidate, rates, gang.moved)


def _start_hours(job: Job, *, moves: bool) -> float:
    """Return the hours until a fallback begins to work; one in another region waits for the checkpoint."""
    gib = job.checkpoint.size_gib if moves and job.checkpoint is not None else 0.0
    return job.restart_time / _HOUR + gib / TRANSFER_GIB_PER_S / 3600
