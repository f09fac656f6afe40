"""Lay out the candidates of all jobs as flat arrays, which pricing works on.

A *row* is a candidate of a job; a candidate on which the job runs now has two rows, one that goes on from the first
slot and one that starts anew. A *block* is the rows of one job in one region (of all regions where the job may use
several). A *kind* is a use of limits that many rows share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pricing.egress import Tariff
from pricing.money import UsdPerGb
from pricing.places import RegionId
from pricing.units import BYTES_PER_GB
from router.jobs.spec import Job
from router.planning.columns.clique_rows import CliqueRow, find_clique_rows
from router.planning.find.affinity import affinity_of
from router.planning.find.allowances import own_allowance, team_allowances
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.transfers import Transfer
from router.planning.problem.commitments import buyable_by_place, cover_rate, has_cover, pool_count
from router.planning.problem.precedence import tiers_of
from router.planning.problem.problem import PlacementProblem, Slot, free_starts, most_starts
from router.planning.rules.egress_caps import cap_name, caps_by_month, leaving_gb
from router.planning.rules.job_groups import group_members

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TableRow:
    """A candidate of a job; ``goes_on`` where it is held from before ``now``.

    Maintenance cuts the slots of a candidate into stretches, of which each is a row of its own.
    """

    job: int
    candidate: Candidate
    goes_on: bool
    stretch: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """Gigabytes that a block has to move on a meter, in the month of its first slot."""

    meter: int
    gb: float


@dataclass(frozen=True)
class Table:
    """All rows, sorted by job, block and key. Hours are those of a job's own slots; T slots, J jobs, N rows.

    ``hours`` [J, T] is zero outside the job's window and ``elapsed`` [J, T+1] its running sum. ``need`` [N] is the
    productive hours of the whole job and ``startup`` [N] the hours of a start.

    Dollars without moves: ``usd`` [N] of the whole job in one run with thresholds and carbon, ``paid`` [N] without,
    ``start_usd`` and ``start_paid`` [N] of a start in them, ``saving`` [J] the threshold of a further start,
    ``counted`` [N] what budgets count, moves included. The objective is in ``usd``, ``start_usd`` and ``saving``;
    budgets count ``paid``.

    ``first``, ``end``, ``start_end`` [N] are slots: the first that may be held, the first that may not, the first in
    which no run may begin. ``limits`` and ``amounts`` [K, A] are what each kind takes, padded with the limit that never
    binds. Caps on egress are limits too, one for each cloud (C) and month, all of it in slot 0: ``cap_limits``
    [C, months], and ``cap_gb`` [G, C] the gigabytes that a block takes of them. ``clique_limits`` are those of
    :mod:`router.planning.columns.clique_rows`; they hold within the horizon alone.

    ``pool`` [N] is the pool of committed spend that a row uses, -1 for none, and ``committed`` [N] the dollars that an
    hour held uses of it; ``bought`` [P, T] are the dollars that each pool buys in each slot.

    ``affinity`` [J] numbers the job groups of the job files, -1 for none, and ``place`` [G] the region of each block
    of rows among ``places``.
    """

    problem: PlacementProblem
    jobs: tuple[Job, ...]
    rows: tuple[TableRow, ...]
    hours: Floats
    elapsed: Floats
    order: Bools
    whole: Bools
    job: Ints
    block: Ints
    goes_on: Bools
    kind: Ints
    need: Floats
    startup: Floats
    usd: Floats
    paid: Floats
    start_usd: Floats
    start_paid: Floats
    saving: Floats
    counted: Floats
    first: Ints
    end: Ints
    start_end: Ints
    block_job: Ints
    block_first: Ints
    moves: tuple[tuple[Move, ...], ...]
    dearest_moves: Floats
    tariffs: tuple[Tariff, ...]
    limit_names: tuple[str, ...]
    capacity: Floats
    clique_limits: Ints
    limits: Ints
    amounts: Floats
    team: Ints
    team_names: tuple[str, ...]
    team_left: Floats
    tier: Ints
    allowance: Floats
    cap_limits: Ints
    cap_gb: Floats
    affinity: Ints
    affinities: tuple[str, ...]
    place: Ints
    places: tuple[RegionId, ...]
    pool: Ints
    committed: Floats
    bought: Floats

    @property
    def slots(self) -> int:
        """Return the number of slots."""
        return len(self.problem.slots)

    @cached_property
    def horizon(self) -> int:
        """Return the number of slots of the horizon."""
        return int(self.order.sum())

    @cached_property
    def capacity_by_slot(self) -> Floats:
        """Return the capacity of each limit in each slot, flat; beyond the horizon clique rows do not hold."""
        by_slot = np.repeat(self.capacity, self.slots).reshape(len(self.capacity), self.slots)
        by_slot[np.ix_(self.clique_limits, np.flatnonzero(~self.order))] = np.inf
        flat: Floats = by_slot.ravel()
        return flat

    @cached_property
    def hours_of_rows(self) -> list[list[float]]:
        """Return by row the hours of its job's slots: lists, which single look-ups read faster than arrays."""
        by_job = self.hours.tolist()
        return [by_job[job] for job in self.job.tolist()]

    @cached_property
    def work_of_rows(self) -> list[tuple[float, float]]:
        """Return by row ``need`` and ``startup``, as a list."""
        return list(zip(self.need.tolist(), self.startup.tolist(), strict=True))

    @cached_property
    def use_of_kinds(self) -> list[list[tuple[int, float]]]:
        """Return by kind each limit that it takes and how much of it, as a list."""
        pairs = zip(self.limits.tolist(), self.amounts.tolist(), strict=True)
        return [[pair for pair in zip(*own, strict=True) if pair[0]] for own in pairs]

    @cached_property
    def months(self) -> tuple[str, ...]:
        """Return the months of the slots, in order."""
        return tuple(sorted({slot.month for slot in self.problem.slots}))

    @cached_property
    def month(self) -> Ints:
        """Return the index of each slot's month."""
        return np.array([self.months.index(slot.month) for slot in self.problem.slots], dtype=np.int64)

    @cached_property
    def several(self) -> Bools:
        """Return by job whether it may use several regions."""
        return np.array([job.gang.regions > 1 for job in self.jobs], dtype=np.bool_)

    @cached_property
    def start_months(self) -> Bools:
        """Return [J, months]: whether some row of the job may start in the month."""
        may = np.zeros((len(self.jobs), len(self.months)), dtype=np.bool_)
        slot = np.arange(self.slots)
        for index in range(len(self.months)):
            inside = np.flatnonzero(self.month == index)
            first, last = slot[inside[0]], slot[inside[-1]]
            starts = (self.first <= last) & (self.start_end > first) & (self.end > self.first)
            np.logical_or.at(may[:, index], self.job, starts)
        return may

    @cached_property
    def has_cover(self) -> bool:
        """Return whether committed spend covers any row at any time."""
        return bool((self.bought > 0).any() and (self.committed > 0).any())

    def cover_by_slot(self, rows: Ints) -> Floats:
        """Return [n, T]: the dollars that one job on the row could have covered in each slot that it holds whole."""
        used = self.committed[rows][:, None] * self.hours[self.job[rows]]
        covered: Floats = np.minimum(used, self.bought_by_row(rows))
        return covered

    def bought_by_row(self, rows: Ints) -> Floats:
        """Return [n, T]: the dollars that the row's pool of committed spend buys in each slot."""
        bought: Floats = np.concatenate([self.bought, np.zeros((1, self.slots))])[self.pool[rows]]
        return bought

    @cached_property
    def bound_blocks(self) -> Ints:
        """Return the blocks of rows whose job is in a job group."""
        return np.flatnonzero(self.affinity[self.block_job] >= 0)

    def mates(self, job: int) -> Ints:
        """Return the other jobs of the job's group."""
        own = int(self.affinity[job])
        others = np.arange(len(self.jobs)) != job
        mates: Ints = np.flatnonzero((self.affinity == own) & others & (own >= 0))
        return mates

    @cached_property
    def move_gb(self) -> Floats:
        """Return [G, meters]: gigabytes that each block moves on each meter."""
        moved = np.zeros((len(self.moves), len(self.tariffs)))
        for block, moves in enumerate(self.moves):
            for move in moves:
                moved[block, move.meter] = move.gb
        return moved

    @cached_property
    def flat_elapsed(self) -> tuple[Floats, float]:
        """Return ``elapsed`` as one rising array, each job offset by the figure returned beside it."""
        offset = float(self.elapsed[:, -1].max(initial=0.0) + (self.need + self.startup).max(initial=0.0) + 1.0)
        return (self.elapsed + offset * np.arange(len(self.jobs))[:, None]).ravel(), offset

    def without_costs(self) -> Table:
        """Return the table with an objective in which schedules and moves cost nothing; budgets count as before."""
        nothing = np.zeros(len(self.rows))
        tariffs = tuple(
            replace(tariff, tiers=tuple(replace(tier, price=UsdPerGb(0)) for tier in tariff.tiers))
            for tariff in self.tariffs
        )
        return replace(
            self,
            usd=nothing,
            start_usd=nothing,
            saving=np.zeros(len(self.jobs)),
            tariffs=tariffs,
            committed=nothing,
            bought=np.zeros_like(self.bought),
        )

    def with_cliques(self, cliques: Sequence[CliqueRow]) -> Table:
        """Return the table with more clique rows, which do not bind until they have a capacity."""
        limits, amounts = self.limits, self.amounts
        for number, clique in enumerate(cliques, start=len(self.capacity)):
            own = (limits == self.limit_names.index(clique.limit)) & (amounts >= clique.least)
            taken = own.any(axis=1)
            limits = np.column_stack([limits, np.where(taken, number, 0)])
            amounts = np.column_stack([amounts, np.where(taken, 1.0, 0.0)])
        return replace(
            self,
            limit_names=(*self.limit_names, *(clique.name for clique in cliques)),
            capacity=np.append(self.capacity, [np.inf] * len(cliques)),
            clique_limits=np.append(self.clique_limits, len(self.capacity) + np.arange(len(cliques))),
            limits=limits,
            amounts=amounts,
        )

    @cached_property
    def _rows_of(self) -> Mapping[tuple[int, str], tuple[int, ...]]:
        """Return the rows that start anew by job and candidate key, in order of time."""
        starting_rows: dict[tuple[int, str], tuple[int, ...]] = {}
        for number, row in enumerate(self.rows):
            if not row.goes_on:
                place = (row.job, row.candidate.key)
                starting_rows[place] = (*starting_rows.get(place, ()), number)
        return starting_rows

    @cached_property
    def _going_rows(self) -> Mapping[tuple[int, str], int]:
        return {(row.job, row.candidate.key): number for number, row in enumerate(self.rows) if row.goes_on}

    def going_row(self, job: int, key: str) -> int | None:
        """Return the row of the candidate that goes on from before ``now``; None where the job does not run there."""
        return self._going_rows.get((job, key))

    def fresh_row(self, job: int, key: str, slot: int) -> int:
        """Return the row of the candidate that starts anew and has the slot; KeyError for none at all."""
        found = self._rows_of[job, key]
        return next((row for row in found if self.first[row] <= slot < self.end[row]), found[0])

    def rows_held(self, job: int, holds: Sequence[tuple[int, str, float]]) -> list[tuple[int, int, float]]:
        """Return slot, key and share as slot, row and share.

        What is held from the first slot on goes on where the job runs there.
        """
        result: list[tuple[int, int, float]] = []
        last: dict[str, int] = {}
        for slot, key, share in holds:
            going = self.going_row(job, key)
            if going is not None and last.get(key, -1) == slot - 1:
                last[key] = slot
                result.append((slot, going, share))
            else:
                result.append((slot, self.fresh_row(job, key, slot), share))
        return result

    def block_sizes(self, blocks: Ints) -> Ints:
        """Return the number of rows of each of these blocks."""
        return np.diff(np.append(self.block_first, len(self.rows)))[blocks]

    def members(self, blocks: Ints) -> Ints:
        """Return the rows of these blocks, in order."""
        ends = np.append(self.block_first, len(self.rows))
        spans = [np.arange(ends[g], ends[g + 1]) for g in blocks]
        return np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)


def first_places(sizes: Ints) -> Ints:
    """Return where each of some runs of these lengths begins, laid end to end."""
    return (np.cumsum(sizes) - sizes).astype(np.int64)


def build_table(problem: PlacementProblem) -> Table:
    """Return the table of a placement problem; all its jobs have candidates."""
    jobs = problem.jobs
    meters = _Meters()
    rows: list[TableRow] = []
    block: list[int] = []
    block_job: list[int] = []
    block_first: list[int] = []
    moves: list[tuple[Move, ...]] = []
    dearest: list[float] = []
    leaving: list[Mapping[str, float]] = []
    regions: list[RegionId] = []
    for number, job in enumerate(jobs):
        several = job.gang.regions > 1
        found = sorted(problem.candidates[job.name], key=lambda c: (c.region, c.key))
        region = None
        for candidate in found:
            if candidate.region != region:
                block_job.append(number)
                block_first.append(len(rows))
                moves.append(meters.moves(candidate.transfers, several=several))
                dearest.append(sum(t.dearest.dollars() for t in candidate.transfers))
                leaving.append(leaving_gb(problem.limits, candidate.transfers, candidate.region))
                regions.append(candidate.region)
                region = candidate.region
            if candidate.running:
                rows.append(TableRow(number, candidate, goes_on=True))
            rows += [
                TableRow(number, candidate, False, stretch) for stretch in range(_stretches(problem, job, candidate))
            ]
            block += [len(block_job) - 1] * (len(rows) - len(block))
    kinds = _Kinds(problem)
    kind = np.array([kinds.kind(jobs[row.job].name, row.candidate.key) for row in rows], dtype=np.int64)
    limits, amounts = kinds.arrays()
    hours, order = _hours(problem)
    physics = np.array([_physics(jobs[row.job], row) for row in rows]).reshape(len(rows), 6)
    spans = np.array([_span(problem, jobs[row.job], row) for row in rows], dtype=np.int64).reshape(len(rows), 3)
    teams = {team: usd.dollars() for team, usd in team_allowances(problem.limits).items()}
    names = tuple(sorted({job.team for job in jobs} & teams.keys()))
    tiers = {job.name: number for number, tier in enumerate(tiers_of(problem)) for job in tier}
    affinities, places = tuple(group_members(jobs)), tuple(sorted(set(regions)))
    caps = caps_by_month(problem)
    capped = list(dict.fromkeys(cloud for cloud, _ in caps))
    months = len({slot.month for slot in problem.slots})
    blocks = np.array(block, dtype=np.int64)
    pool, committed = _committed(problem, rows)
    dearest_moves = np.array(dearest)
    return Table(
        problem=problem,
        jobs=jobs,
        rows=tuple(rows),
        hours=hours,
        elapsed=np.concatenate([np.zeros((len(jobs), 1)), np.cumsum(hours, axis=1)], axis=1),
        order=order,
        whole=np.array([job.checkpoint is None for job in jobs], dtype=np.bool_),
        job=np.array([row.job for row in rows], dtype=np.int64),
        block=blocks,
        goes_on=np.array([row.goes_on for row in rows], dtype=np.bool_),
        kind=kind,
        need=physics[:, 0],
        startup=physics[:, 1],
        usd=physics[:, 2],
        paid=physics[:, 3],
        start_usd=physics[:, 4],
        start_paid=physics[:, 5],
        saving=np.array([job.gang.min_saving.dollars() for job in jobs]),
        counted=physics[:, 3] + (dearest_moves[blocks] if len(rows) else 0.0),
        first=spans[:, 0],
        end=spans[:, 1],
        start_end=spans[:, 2],
        block_job=np.array(block_job, dtype=np.int64),
        block_first=np.array(block_first, dtype=np.int64),
        moves=tuple(moves),
        dearest_moves=dearest_moves,
        tariffs=tuple(meters.tariffs),
        limit_names=(*kinds.names, *(cap_name(*cap) for cap in caps)),
        capacity=np.append(kinds.capacity, list(caps.values())),
        clique_limits=len(kinds.names) - len(kinds.cliques) + np.arange(len(kinds.cliques)),
        limits=limits,
        amounts=amounts,
        team=np.array([names.index(job.team) if job.team in names else -1 for job in jobs], dtype=np.int64),
        team_names=names,
        team_left=np.array([teams[name] for name in names]),
        tier=np.array([tiers[job.name] for job in jobs], dtype=np.int64),
        allowance=np.array([np.inf if usd is None else usd.dollars() for usd in map(own_allowance, jobs)]),
        cap_limits=len(kinds.names) + np.arange(len(caps)).reshape(len(capped), months),
        cap_gb=np.array([[gb.get(cloud, 0.0) for cloud in capped] for gb in leaving]).reshape(
            len(leaving), len(capped)
        ),
        affinity=np.array(
            [affinities.index(own) if own in affinities else -1 for own in map(affinity_of, jobs)], dtype=np.int64
        ),
        affinities=affinities,
        place=np.array([places.index(region) for region in regions], dtype=np.int64),
        places=places,
        pool=pool,
        committed=committed,
        bought=_bought(problem),
    )


def _committed(problem: PlacementProblem, rows: Sequence[TableRow]) -> tuple[Ints, Floats]:
    """Return the pool of committed spend of each row, -1 for none, and the dollars that an hour held uses of it."""
    pool, committed = np.full(len(rows), -1, dtype=np.int64), np.zeros(len(rows))
    for number, row in enumerate(rows if has_cover(problem.limits) else ()):
        rate = cover_rate(problem.limits, row.candidate)
        if rate is not None:
            pool[number], committed[number] = rate.pool, rate.dollars
    return pool, committed


def _bought(problem: PlacementProblem) -> Floats:
    """Return the dollars that each pool of committed spend buys in each slot, nothing beyond the horizon."""
    bought = np.zeros((pool_count(problem.limits), len(problem.slots)))
    for place, usd in buyable_by_place(problem).items():
        bought[place] = usd.dollars()
    return bought


def _hours(problem: PlacementProblem) -> tuple[Floats, Bools]:
    """Return the hours of each job's own slots, and whether each slot is an order's."""
    hours = np.zeros((len(problem.jobs), len(problem.slots)))
    for number, job in enumerate(problem.jobs):
        for slot in problem.window(job):
            hours[number, slot.index] = slot.hours
    return hours, np.array([slot.order for slot in problem.slots], dtype=np.bool_)


def _physics(job: Job, row: TableRow) -> tuple[float, float, float, float, float, float]:
    """Return productive hours, hours of a start, dollars of one run, the same as paid, dollars of a start, as paid.

    The threshold of a first start that is a move counts for the plan's choice alone, and so does carbon.
    """
    c = row.candidate
    need = steps_to_do(job, running=row.goes_on) / c.on_time_steps_per_hour
    startup = 0.0 if row.goes_on else c.startup_hours
    start_paid, start_usd = c.usd_per_hour.dollars() * startup, c.objective_per_hour * startup
    paid = c.usd_per_reserved_hour * need + start_paid
    counted = c.objective_per_reserved_hour * need + start_usd
    threshold = job.gang.min_saving.dollars() if not row.goes_on and free_starts(job) == 0 else 0.0
    return need, startup, counted + threshold, paid, start_usd, start_paid


def _span(problem: PlacementProblem, job: Job, row: TableRow) -> tuple[int, int, int]:
    """Return the row's first slot, the end of its slots, and the end of those in which a run may begin."""
    slots = _unbroken(problem.slots_for(job, row.candidate))[row.stretch]
    if not slots or (row.goes_on and slots[0].index != 0):
        return 0, 0, 0
    if row.goes_on:
        return 0, slots[-1].index + 1, 1
    if job.name in problem.stays or most_starts(job) == 0:
        return 0, 0, 0
    last_start = next((slot.index for slot in reversed(slots) if problem.may_start(job, slot)), -1)
    return slots[0].index, slots[-1].index + 1, last_start + 1


def _unbroken(slots: Sequence[Slot]) -> list[Sequence[Slot]]:
    """Return the slots in stretches without a gap; one empty stretch for no slots."""
    breaks = [i for i in range(1, len(slots)) if slots[i].index != slots[i - 1].index + 1]
    return [slots[a:b] for a, b in pairwise([0, *breaks, len(slots)])]


def _stretches(problem: PlacementProblem, job: Job, candidate: Candidate) -> int:
    """Return into how many stretches maintenance cuts the candidate's slots."""
    return len(_unbroken(problem.slots_for(job, candidate))) if candidate.closed else 1


class _Meters:
    """Number the meters on which something may have to be moved."""

    def __init__(self) -> None:
        self._index: dict[str, int] = {}
        self.tariffs: list[Tariff] = []

    def moves(self, transfers: Sequence[Transfer], *, several: bool) -> tuple[Move, ...]:
        """Return what these transfers move; a checkpoint between several regions is charged in costing."""
        volumes: dict[int, float] = {}
        for t in transfers:
            if t.free or (t.what == "checkpoint" and several):
                continue
            index = self._index.setdefault(t.tariff.meter, len(self._index))
            if index == len(self.tariffs):
                self.tariffs.append(t.tariff)
            volumes[index] = volumes.get(index, 0.0) + t.volume_bytes / BYTES_PER_GB
        return tuple(Move(meter, gb) for meter, gb in sorted(volumes.items()))


class _Kinds:
    """Number the different uses of limits that can bind; limit 0 is a pad that never does.

    ``cliques`` follow from the limits where machines are held whole: at most so many large jobs at a time.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        self._problem = problem
        self.cliques = find_clique_rows(problem)
        plain = ("", *sorted(problem.binding))
        self.names = (*plain, *(clique.name for clique in self.cliques))
        self._limit = {name: number for number, name in enumerate(plain)}
        self.capacity = np.array(
            [
                np.inf,
                *(float(problem.shared[name].amount) for name in plain[1:]),
                *(float(clique.jobs) for clique in self.cliques),
            ]
        )
        self._clique_limits = {clique.name: len(plain) + number for number, clique in enumerate(self.cliques)}
        self._kinds: dict[tuple[tuple[int, int], ...], int] = {}
        self._by_key: dict[int, int] = {}

    def kind(self, job: str, key: str) -> int:
        use: Mapping[str, int] = self._problem.use[job, key]
        kind = self._by_key.get(id(use))
        if kind is not None:
            return kind
        limit = self._limit
        taken = tuple(sorted((limit[name], amount) for name, amount in use.items() if name in limit and amount))
        taken += tuple((self._clique_limits[c.name], 1) for c in self.cliques if use.get(c.limit, 0) >= c.least)
        kind = self._by_key[id(use)] = self._kinds.setdefault(taken, len(self._kinds))
        return kind

    def arrays(self) -> tuple[Ints, Floats]:
        """Return limits and amounts by kind, padded to the same length."""
        most = max((len(taken) for taken in self._kinds), default=0)
        limits = np.zeros((len(self._kinds), max(1, most)), dtype=np.int64)
        amounts = np.zeros((len(self._kinds), max(1, most)))
        for taken, kind in self._kinds.items():
            for place, (limit, amount) in enumerate(taken):
                limits[kind, place], amounts[kind, place] = limit, amount
        return limits, amounts
