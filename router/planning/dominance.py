"""Leave out candidates that can never be part of a better plan. Exact: the optimum stays the same.

Candidate A drops B only if it is in the same region, costs no more an hour and a step, is no slower (expected and on
time), is available whenever B is, and takes no more of every limit that could bind; the candidate that the job runs on
now is never dropped. A whole region is dropped for another when each of its candidates is so dropped by one of the
other's, and moving there is free or on the very same meters (for a job that uses one region only and is in no group).
Dropped candidates stay known as alternatives and fallbacks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pricing.places import RegionId
from router.jobs.limits import Limits, Maintenance
from router.jobs.spec import Job
from router.planning.candidates import Candidate
from router.planning.commitments import cover_rate
from router.planning.shared_limits import LimitUse

Matrix = NDArray[np.bool_]


def drop_dominated(
    job: Job,
    candidates: Sequence[Candidate],
    use: Mapping[tuple[str, str], LimitUse],
    binding: frozenset[str],
    limits: Limits | None = None,
) -> tuple[Candidate, ...]:
    """Return the candidates that the program needs, in the order given; committed spend is that of ``limits``."""
    if len(candidates) < 2:
        return tuple(candidates)
    better = _better(job, candidates, use, binding)
    if limits is not None and limits.commitments:
        better &= _no_less_covered(limits, candidates)
    regions = [c.region for c in candidates]
    same = np.array([[a == b for b in regions] for a in regions])
    dropped = (better & same).any(axis=0)
    indexes = [i for i in range(len(candidates)) if not dropped[i]]
    if job.gang.regions == 1 and job.group is None:
        indexes = _without_poor_regions(candidates, indexes, better)
    return tuple(candidates[i] for i in indexes)


def _better(
    job: Job, candidates: Sequence[Candidate], use: Mapping[tuple[str, str], LimitUse], binding: frozenset[str]
) -> Matrix:
    """Return a matrix whose ``[a, b]`` is true if a is at least as good as b in everything.

    Among equals the first by key is the better one.
    """
    columns = [
        [float(c.usd_per_hour.nanos) for c in candidates],
        [c.usd_per_step for c in candidates],
        [-c.steps_per_hour for c in candidates],
        [-c.on_time_steps_per_hour for c in candidates],
    ]
    if any(c.carbon is not None for c in candidates):  # the objective counts more than the price, budgets do not
        columns += [[c.objective_per_hour for c in candidates], [c.objective_per_step for c in candidates]]
    names = sorted({name for c in candidates for name in use[job.name, c.key]} & binding)
    columns += [[float(use[job.name, c.key].get(name, 0)) for c in candidates] for name in names]
    columns += _dates(candidates)
    figures = np.array(columns)
    no_worse = np.ones((len(candidates), len(candidates)), dtype=np.bool_)
    equal = no_worse.copy()
    for row in figures:
        no_worse &= row[:, None] <= row[None, :]
        equal &= row[:, None] == row[None, :]
    running = np.array([c.running for c in candidates])
    order = np.arange(len(candidates))
    first = (order[:, None] < order[None, :]) | running[:, None]
    better: Matrix = no_worse & (~equal | first)
    better[:, running] = False
    np.fill_diagonal(better, val=False)
    return better


def _no_less_covered(limits: Limits, candidates: Sequence[Candidate]) -> Matrix:
    """Return a matrix whose ``[a, b]`` is true unless committed spend could make b the cheaper one.

    It could where b uses committed spend and a uses none, that of another pool, or part of a dearer gang's price.
    """
    rates = [cover_rate(limits, c) for c in candidates]

    def may_replace(a: int, b: int) -> bool:
        mine, other = rates[a], rates[b]
        if other is None:
            return True
        whole = mine is not None and mine.usd_per_hour == candidates[a].usd_per_hour
        return whole and mine is not None and mine.pool == other.pool

    order = range(len(candidates))
    return np.array([[may_replace(a, b) for b in order] for a in order])


def _dates(candidates: Sequence[Candidate]) -> list[list[float]]:
    """Return seconds of start and end, and whether each maintenance window closes it, smaller being better.

    A longer availability can replace a shorter one inside it.
    """
    closed = [[float(window in c.closed) for c in candidates] for window in dict.fromkeys(_windows(candidates))]
    if all(c.dates == (None, None) for c in candidates):
        return closed
    begin = [-math.inf if c.dates[0] is None else c.dates[0].timestamp() for c in candidates]
    end = [-math.inf if c.dates[1] is None else -c.dates[1].timestamp() for c in candidates]
    return [begin, end, *closed]


def _windows(candidates: Sequence[Candidate]) -> Iterator[Maintenance]:
    return (window for c in candidates for window in c.closed)


def _without_poor_regions(candidates: Sequence[Candidate], indexes: list[int], better: Matrix) -> list[int]:
    """Return the indexes without those of regions that another region replaces."""
    members: dict[RegionId, list[int]] = {}
    for i in indexes:
        members.setdefault(candidates[i].region, []).append(i)
    remaining_regions = dict(members)
    for poor in sorted(members):
        rivals = [r for r in remaining_regions if r != poor]
        if any(_covers(candidates, remaining_regions[r], members[poor], better) for r in rivals):
            del remaining_regions[poor]
    remaining = {i for rows in remaining_regions.values() for i in rows}
    return [i for i in indexes if i in remaining]


def _covers(candidates: Sequence[Candidate], rich: list[int], poor: list[int], better: Matrix) -> bool:
    """Return whether the rich region's candidates replace all of the poor one's at no higher moving cost."""
    if not bool(better[np.ix_(rich, poor)].any(axis=0).all()):
        return False
    poor_transfers = {(t.what, t.tariff.meter, t.volume_bytes) for t in candidates[poor[0]].transfers}
    return all(
        t.free or (t.what, t.tariff.meter, t.volume_bytes) in poor_transfers for t in candidates[rich[0]].transfers
    )
