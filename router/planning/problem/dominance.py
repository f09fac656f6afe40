"""Leave out candidates that can never be part of a better plan. Exact: the optimum stays the same.

Candidate A drops B only if it is in the same region, costs no more an hour and a step, is no slower (expected and on
time), is available whenever B is, and takes no more of every limit that could bind; the candidate that the job runs on
now is never dropped, and none that uses committed spend. A whole region is dropped for another when each of its
candidates is so dropped by one of the other's, and moving there is free or on the very same meters (for a job that uses
one region only and is in no group).
Dropped candidates stay known as alternatives and fallbacks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pricing.places import RegionId
from router.jobs.limits import Limits, Maintenance
from router.jobs.spec import Job
from router.planning.find.affinity import affinity_of
from router.planning.find.candidate import Candidate
from router.planning.find.shared_limits import LimitUse
from router.planning.problem.commitments import cover_rate, has_cover

_FEW = 20  # names of which all subsets may be gone through
Matrix = NDArray[np.bool_]
Indexes = NDArray[np.intp]


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
    order = _Order(job, candidates, use, binding, limits)
    members: dict[RegionId, list[int]] = {}
    for i, candidate in enumerate(candidates):
        members.setdefault(candidate.region, []).append(i)
    for region, found in members.items():
        rows = np.array(found)
        members[region] = rows[~order.better(rows, rows).any(axis=0)].tolist()
    if job.gang.regions == 1 and affinity_of(job) is None:
        members = _without_poor_regions(candidates, members, order)
    return tuple(candidates[i] for i in sorted(i for found in members.values() for i in found))


class _Order:
    """Says which candidates of a job are at least as good as which others in everything.

    Candidate a takes no more of any binding limit than b only if b touches all that a touches. Candidates that touch
    the same are compared together, so that limits of single offers, of which there may be thousands, cost nothing.
    """

    def __init__(
        self,
        job: Job,
        candidates: Sequence[Candidate],
        use: Mapping[tuple[str, str], LimitUse],
        binding: frozenset[str],
        limits: Limits | None,
    ) -> None:
        figures = [
            [float(c.usd_per_hour.nanos) for c in candidates],
            [c.usd_per_step for c in candidates],
            [-c.steps_per_hour for c in candidates],
            [-c.on_time_steps_per_hour for c in candidates],
        ]
        if any(c.external is not None for c in candidates):  # the objective counts more than the price, budgets do not
            figures += [[c.objective_per_hour for c in candidates], [c.objective_per_step for c in candidates]]
        figures += _dates(candidates)
        self._figures = np.array(figures)
        self._running = np.array([c.running for c in candidates])
        self._taken = [
            {name: float(amount) for name, amount in use[job.name, c.key].items() if name in binding and amount}
            for c in candidates
        ]
        self._touched = [frozenset(taken) for taken in self._taken]
        self._cover = _Cover(limits, candidates) if limits is not None and has_cover(limits) else None
        self._everything = np.arange(len(candidates))
        self._touching = self._by_touched(self._everything)

    def betters_of(self, row: int) -> Indexes:
        """Return all candidates that are at least as good as this one."""
        one, names = np.array([row]), self._touched[row]
        return np.concatenate(
            [
                rows[self._compare(rows, one, sorted(fewer), fewer == names)[:, 0]]
                for fewer, rows in self._fewer(self._touching, names)
            ]
        )

    def better(self, rows: Indexes, others: Indexes) -> Matrix:
        """Return a matrix that is true where a candidate of ``rows`` is at least as good as one of ``others``.

        Among equals the first is the better one.
        """
        is_better = np.zeros((len(rows), len(others)), dtype=np.bool_)
        mine = self._by_touched(rows)
        for names, theirs in self._by_touched(others).items():
            for fewer, own in self._fewer(mine, names):
                same = fewer == names
                is_better[np.ix_(own, theirs)] = self._compare(rows[own], others[theirs], sorted(fewer), same)
        return is_better

    def _by_touched(self, rows: Indexes) -> dict[frozenset[str], Indexes]:
        """Return the places in ``rows`` by the binding limits that their candidates touch."""
        places: dict[frozenset[str], list[int]] = {}
        for place, row in enumerate(rows.tolist()):
            places.setdefault(self._touched[row], []).append(place)
        return {names: np.array(found) for names, found in places.items()}

    def _fewer(
        self, rows_by_limits: Mapping[frozenset[str], Indexes], names: frozenset[str]
    ) -> Iterator[tuple[frozenset[str], Indexes]]:
        """Yield the rows that touch nothing beside these limits."""
        parts = 2 ** len(names) if len(names) < _FEW else math.inf
        if parts < len(rows_by_limits):
            for size in range(len(names) + 1):
                for chosen in combinations(sorted(names), size):
                    part = frozenset(chosen)
                    if part in rows_by_limits:
                        yield part, rows_by_limits[part]
        else:
            yield from ((fewer, found) for fewer, found in rows_by_limits.items() if fewer <= names)

    def _compare(self, rows: Indexes, others: Indexes, names: Sequence[str], same: bool) -> Matrix:
        """Return :meth:`better` of candidates of which all of ``rows`` touch ``names``, and ``others`` these too."""
        no_worse = np.ones((len(rows), len(others)), dtype=np.bool_)
        equal = np.full_like(no_worse, same)
        mine, theirs = self._figures[:, rows], self._figures[:, others]
        if names:
            mine = np.concatenate([mine, self._amounts(rows, names)])
            theirs = np.concatenate([theirs, self._amounts(others, names)])
        for left, right in zip(mine, theirs, strict=True):
            no_worse &= left[:, None] <= right[None, :]
            equal &= left[:, None] == right[None, :]
        first = (rows[:, None] < others[None, :]) | self._running[rows][:, None]
        better: Matrix = no_worse & (~equal | first) & (rows[:, None] != others[None, :])
        better &= ~self._running[others][None, :]
        return better if self._cover is None else better & self._cover.may_replace(others)

    def _amounts(self, rows: Indexes, names: Sequence[str]) -> NDArray[np.float64]:
        return np.array([[self._taken[row][name] for row in rows.tolist()] for name in names])


class _Cover:
    """Says which candidates committed spend may make the cheaper ones: those that use it, even beside their equals.

    A job that holds two of them works on one in the hours that are covered and gives up hours of the other, which no
    hours of one alone would let it do.
    """

    def __init__(self, limits: Limits, candidates: Sequence[Candidate]) -> None:
        self._uses_none = np.array([cover_rate(limits, c) is None for c in candidates])

    def may_replace(self, others: Indexes) -> Matrix:
        """Return a matrix of one row that is true where one of ``others`` may be replaced."""
        return np.asarray(self._uses_none[others][None, :])


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


def _without_poor_regions(
    candidates: Sequence[Candidate], members: Mapping[RegionId, list[int]], order: _Order
) -> dict[RegionId, list[int]]:
    """Return the candidates by region, without regions that another region replaces."""
    remaining = dict(members)
    for poor in sorted(members):
        # What replaces a region replaces the candidate that is cheapest there.
        cheapest = min(members[poor], key=lambda i: candidates[i].usd_per_step)
        better = {candidates[i].region for i in order.betters_of(cheapest).tolist()} - {poor}
        if any(_covers(candidates, remaining[r], members[poor], order) for r in remaining if r in better):
            del remaining[poor]
    return remaining


def _covers(candidates: Sequence[Candidate], rich: list[int], poor: list[int], order: _Order) -> bool:
    """Return whether the rich region's candidates replace all of the poor one's at no higher moving cost."""
    poor_transfers = {(t.what, t.tariff.meter, t.volume_bytes) for t in candidates[poor[0]].transfers}
    free = all(
        t.free or (t.what, t.tariff.meter, t.volume_bytes) in poor_transfers for t in candidates[rich[0]].transfers
    )
    return free and bool(order.better(np.array(rich), np.array(poor)).any(axis=0).all())
