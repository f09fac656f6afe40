"""Order jobs by who is left out last, from the words of design note rules-of-the-plan; shares no code with the planner.

A job that runs and cannot resume keeps its place wherever it can. A running job that can resume is paused or moved
where that is cheaper, its restart counted. Among jobs of one priority those that run are left out last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from router.jobs.limits import Limits
from router.jobs.spec import Job
from tests.support.schedules import Ints

Bools = npt.NDArray[np.bool_]


def runs_now(job: Job) -> bool:
    """Whether the job's status says that it runs."""
    return job.status is not None and job.status.running is not None


def stays_in_place(slots: Ints, standing: Collection[int]) -> Bools:
    """Patterns that go on where the job stands and do nothing else, ever: no pause, no other place."""
    on = np.isin(slots[:, 0], list(standing)) if len(standing) else np.zeros(len(slots), dtype=bool)
    unbroken = np.logical_and.accumulate(slots == slots[:, :1], axis=1)
    stays: Bools = on & ((slots == -1) | unbroken).all(axis=1)
    return stays


@dataclass(frozen=True)
class Levels:
    """Counts of jobs left out that plans keep least before any cost: by priority from the highest, two numbers each.

    Running jobs left out, other jobs left out; the last by band of their teams, where shares are stated.
    """

    jobs: tuple[Job, ...]
    bands: Mapping[str, int] = field(default_factory=dict)

    def count(self, left_out: Iterable[str]) -> tuple[int, ...]:
        out = set(left_out)
        counts: list[int] = []
        for priority in sorted({job.priority for job in self.jobs}, reverse=True):
            peers = [job for job in self.jobs if job.priority == priority]
            counts.append(sum(runs_now(job) and job.name in out for job in peers))
            waiting = [job for job in peers if not runs_now(job) and job.name in out]
            counts += [sum(self.bands.get(job.team, 1) == band for job in waiting) for band in self._bands]
        return tuple(counts)

    @property
    def _bands(self) -> tuple[int, ...]:
        return (1, 2, 3, 4) if self.bands else (1,)


def fair_bands(limits: Limits, jobs: Sequence[Job]) -> dict[str, int]:
    """The band of each team: 2^-(part of the use / part of the shares), cut at 2^-1/2, 1/2, 1/4."""
    stated = limits.fair_share
    if stated is None:
        return {}
    teams = {job.team for job in jobs} | set(stated.shares) | set(stated.recent_usd)
    shares = {team: stated.shares.get(team, 1.0) for team in teams}
    used = {team: stated.recent_usd[team].dollars() if team in stated.recent_usd else 0.0 for team in teams}
    everything, bands = sum(used.values()), {}
    for team in teams:
        over = used[team] / everything / (shares[team] / sum(shares.values())) if everything else 0.0
        factor = 2.0**-over
        bands[team] = 1 + sum(factor < cut * (1 - 1e-12) for cut in (2**-0.5, 0.5, 0.25))
    return bands


def admitted(jobs: Sequence[Job], fits: Callable[[Job], bool]) -> frozenset[str]:
    """Return the running jobs that cannot resume and can all stay together, taken by priority, then by name.

    ``fits`` says whether one more does, and keeps what it takes if so.
    """
    ordered = sorted(jobs, key=lambda job: (-job.priority, job.name))
    return frozenset(job.name for job in ordered if fits(job))


@dataclass(frozen=True)
class LateLevels(Levels):
    """The levels of a plan with late jobs (rules-of-the-plan.md): first the jobs that were placed in time, all of them.

    Then other jobs as ever, and after all of them the late ones as ever.
    """

    in_time: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()

    def count(self, left_out: Iterable[str]) -> tuple[int, ...]:
        out = set(left_out)
        last = tuple(job for job in self.jobs if job.name in self.late)
        others = tuple(job for job in self.jobs if job.name not in self.in_time | self.late)
        waiting = [Levels(jobs, self.bands).count(out) for jobs in (others, last)]
        return (len(out & self.in_time), *waiting[0], *waiting[1])
