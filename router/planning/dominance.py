"""Leaving out candidates that can never be part of a better plan. Exact: the optimum stays the same.

A drops B only if it is in the same region, costs no more an hour and a step, is no slower (expected and on
time), is there whenever B is, and takes no
more of every limit that could bind; what the job runs on now is never dropped. A whole region is dropped for
another when
each of its candidates is so dropped by one of the other's, and moving there is free or on the very same meters
(for a job that uses one region only). What is dropped stays known as alternative and fallback.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pricing.places import RegionId
from router.jobs.spec import Job
from router.planning.candidates import Candidate
from router.planning.shared_limits import Use

Matrix = NDArray[np.bool_]


def undominated(
    job: Job, candidates: Sequence[Candidate], use: Mapping[tuple[str, str], Use], binding: frozenset[str]
) -> tuple[Candidate, ...]:
    """The candidates that the program needs, in the order given."""
    if len(candidates) < 2:
        return tuple(candidates)
    better = _better(job, candidates, use, binding)
    regions = [c.region for c in candidates]
    same = np.array([[a == b for b in regions] for a in regions])
    dropped = (better & same).any(axis=0)
    kept = [i for i in range(len(candidates)) if not dropped[i]]
    if job.gang.regions == 1:
        kept = _without_poor_regions(candidates, kept, better)
    return tuple(candidates[i] for i in kept)


def _better(
    job: Job, candidates: Sequence[Candidate], use: Mapping[tuple[str, str], Use], binding: frozenset[str]
) -> Matrix:
    """``[a, b]``: a is at least as good as b in everything, and first by key among equals."""
    columns = [
        [float(c.usd_per_hour.nanos) for c in candidates],
        [c.usd_per_step for c in candidates],
        [-c.steps_per_hour for c in candidates],
        [-c.on_time_steps_per_hour for c in candidates],
    ]
    touched = sorted({name for c in candidates for name in use[job.name, c.key]} & binding)
    columns += [[float(use[job.name, c.key].get(name, 0)) for c in candidates] for name in touched]
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


def _dates(candidates: Sequence[Candidate]) -> list[list[float]]:
    """Seconds of start and end, less being better: who is there longer can stand for who is there in it."""
    if all(c.dates == (None, None) for c in candidates):
        return []
    begin = [-math.inf if c.dates[0] is None else c.dates[0].timestamp() for c in candidates]
    end = [-math.inf if c.dates[1] is None else -c.dates[1].timestamp() for c in candidates]
    return [begin, end]


def _without_poor_regions(candidates: Sequence[Candidate], kept: list[int], better: Matrix) -> list[int]:
    members: dict[RegionId, list[int]] = {}
    for i in kept:
        members.setdefault(candidates[i].region, []).append(i)
    alive = dict(members)
    for poor in sorted(members):
        rivals = [r for r in alive if r != poor]
        if any(_covers(candidates, alive[r], members[poor], better) for r in rivals):
            del alive[poor]
    keep = {i for rows in alive.values() for i in rows}
    return [i for i in kept if i in keep]


def _covers(candidates: Sequence[Candidate], rich: list[int], poor: list[int], better: Matrix) -> bool:
    if not bool(better[np.ix_(rich, poor)].any(axis=0).all()):
        return False
    there = {(t.what, t.tariff.meter, t.volume_bytes) for t in candidates[poor[0]].transfers}
    return all(t.free or (t.what, t.tariff.meter, t.volume_bytes) in there for t in candidates[rich[0]].transfers)
