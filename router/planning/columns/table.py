"""Lay out the candidates of all jobs as flat arrays, which pricing works on.

A *row* is a candidate of a job; a candidate on which the job runs now has two rows, one that goes on from the first
slot and one that starts anew. A *group* is the rows of one job in one region (of all regions where the job may use
several). A *kind* is a use of limits that many rows share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pricing.egress import Tariff
from pricing.units import BYTES_PER_GB
from router.jobs.spec import Job
from router.planning.candidates import Candidate, steps_to_do
from router.planning.egress_rows import already_moved
from router.planning.formulation import free_starts
from router.planning.precedence import tiers_of
from router.planning.problem import PlacementProblem
from router.planning.transfers import Transfer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TableRow:
    """A candidate of a job; ``goes_on`` where it is held from before ``now``."""

    job: int
    candidate: Candidate
    goes_on: bool


@dataclass(frozen=True, slots=True)
class Move:
    """Gigabytes that a group has to move on a meter, in the month of its first slot."""

    meter: int
    gb: float


@dataclass(frozen=True)
class Table:
    """All rows, sorted by job, group and key. Hours are those of a job's own slots; T slots, J jobs, N rows.

    ``hours`` [J, T] is zero outside the job's window and ``elapsed`` [J, T+1] its running sum. ``need`` [N] is the
    productive hours of the whole job and ``startup`` [N] the hours of a start.

    Dollars without moves: ``usd`` [N] of the whole job in one run with thresholds, ``paid`` [N] the same without,
    ``start_usd`` and ``start_paid`` [N] of a start in them, ``saving`` [J] the threshold of a further start,
    ``counted`` [N] what budgets count, moves included. The objective is in ``usd``, ``start_usd`` and ``saving``;
    budgets count ``paid``.

    ``first``, ``end``, ``start_end`` [N] are slots: the first that may be held, the first that may not, the first in
    which no run may begin. ``limits`` and ``amounts`` [K, A] are what each kind takes, padded with the limit that never
    binds.
    """

    problem: PlacementProblem
    jobs: tuple[Job, ...]
    rows: tuple[TableRow, ...]
    hours: Floats
    elapsed: Floats
    order: Bools
    whole: Bools
    job: Ints
    group: Ints
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
    group_job: Ints
    group_first: Ints
    moves: tuple[tuple[Move, ...], ...]
    dearest_moves: Floats
    tariffs: tuple[Tariff, ...]
    limit_names: tuple[str, ...]
    capacity: Floats
    limits: Ints
    amounts: Floats
    team: Ints
    team_names: tuple[str, ...]
    team_left: Floats
    tier: Ints
    budget: Floats

    @property
    def slots(self) -> int:
        """Return the number of slots."""
        return len(self.problem.slots)

    @cached_property
    def horizon(self) -> int:
        """Return the number of slots of the horizon."""
        return int(self.order.sum())

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
    def move_gb(self) -> Floats:
        """Return [G, meters]: gigabytes that each group moves on each meter."""
        moved = np.zeros((len(self.moves), len(self.tariffs)))
        for group, moves in enumerate(self.moves):
            for move in moves:
                moved[group, move.meter] = move.gb
        return moved

    @cached_property
    def flat_elapsed(self) -> tuple[Floats, float]:
        """Return ``elapsed`` as one rising array, each job offset by the figure returned beside it."""
        offset = float(self.elapsed[:, -1].max(initial=0.0) + (self.need + self.startup).max(initial=0.0) + 1.0)
        return (self.elapsed + offset * np.arange(len(self.jobs))[:, None]).ravel(), offset

    def without_costs(self) -> Table:
        """Return the same table with an objective in which schedules cost nothing; budgets count as before."""
        nothing = np.zeros(len(self.rows))
        return replace(self, usd=nothing, start_usd=nothing, saving=np.zeros(len(self.jobs)))

    def members(self, groups: Ints) -> Ints:
        """Return the rows of these groups, in order."""
        ends = np.append(self.group_first, len(self.rows))
        spans = [np.arange(ends[g], ends[g + 1]) for g in groups]
        return np.concatenate(spans) if spans else np.zeros(0, dtype=np.int64)


def build_table(problem: PlacementProblem) -> Table:
    """Return the table of a placement problem; all its jobs have candidates."""
    jobs = problem.jobs
    meters = _Meters(problem)
    rows: list[TableRow] = []
    group: list[int] = []
    group_job: list[int] = []
    group_first: list[int] = []
    moves: list[tuple[Move, ...]] = []
    dearest: list[float] = []
    for number, job in enumerate(jobs):
        several = job.gang.regions > 1
        found = sorted(problem.candidates[job.name], key=lambda c: (c.region, c.key))
        region = None
        for candidate in found:
            if candidate.region != region:
                group_job.append(number)
                group_first.append(len(rows))
                moves.append(meters.moves(candidate.transfers, several=several))
                dearest.append(sum(t.dearest.dollars() for t in candidate.transfers))
                region = candidate.region
            if candidate.running:
                rows.append(TableRow(number, candidate, goes_on=True))
                group.append(len(group_job) - 1)
            rows.append(TableRow(number, candidate, goes_on=False))
            group.append(len(group_job) - 1)
    kinds = _Kinds(problem)
    kind = np.array([kinds.kind(jobs[row.job].name, row.candidate.key) for row in rows], dtype=np.int64)
    limits, amounts = kinds.arrays()
    hours, order = _hours(problem)
    physics = np.array([_physics(jobs[row.job], row) for row in rows]).reshape(len(rows), 5)
    spans = np.array([_span(problem, jobs[row.job], row) for row in rows], dtype=np.int64).reshape(len(rows), 3)
    teams = {team.team: (team.budget - team.spent).dollars() for team in problem.limits.teams}
    names = tuple(sorted({job.team for job in jobs} & teams.keys()))
    tiers = {job.name: number for number, tier in enumerate(tiers_of(problem)) for job in tier}
    groups = np.array(group, dtype=np.int64)
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
        group=groups,
        goes_on=np.array([row.goes_on for row in rows], dtype=np.bool_),
        kind=kind,
        need=physics[:, 0],
        startup=physics[:, 1],
        usd=physics[:, 2],
        paid=physics[:, 3],
        start_usd=physics[:, 4],
        start_paid=physics[:, 4],
        saving=np.array([job.gang.min_saving.dollars() for job in jobs]),
        counted=physics[:, 3] + (dearest_moves[groups] if len(rows) else 0.0),
        first=spans[:, 0],
        end=spans[:, 1],
        start_end=spans[:, 2],
        group_job=np.array(group_job, dtype=np.int64),
        group_first=np.array(group_first, dtype=np.int64),
        moves=tuple(moves),
        dearest_moves=dearest_moves,
        tariffs=tuple(meters.tariffs),
        limit_names=kinds.names,
        capacity=kinds.capacity,
        limits=limits,
        amounts=amounts,
        team=np.array([names.index(job.team) if job.team in names else -1 for job in jobs], dtype=np.int64),
        team_names=names,
        team_left=np.array([teams[name] for name in names]),
        tier=np.array([tiers[job.name] for job in jobs], dtype=np.int64),
        budget=np.array([np.inf if job.budget is None else job.budget.dollars() for job in jobs]),
    )


def _hours(problem: PlacementProblem) -> tuple[Floats, Bools]:
    """Return the hours of each job's own slots, and whether each slot is an order's."""
    hours = np.zeros((len(problem.jobs), len(problem.slots)))
    for number, job in enumerate(problem.jobs):
        for slot in problem.window(job):
            hours[number, slot.index] = slot.hours
    return hours, np.array([slot.order for slot in problem.slots], dtype=np.bool_)


def _physics(job: Job, row: TableRow) -> tuple[float, float, float, float, float]:
    """Return productive hours, hours of a start, dollars of one run, the same as paid, dollars of a start.

    The threshold of a first start that is a move counts for the plan's choice alone.
    """
    c = row.candidate
    need = steps_to_do(job, running=row.goes_on) / c.on_time_steps_per_hour
    startup = 0.0 if row.goes_on else c.startup_hours
    start_usd = c.usd_per_hour.dollars() * startup
    paid = c.usd_per_reserved_hour * need + start_usd
    threshold = job.gang.min_saving.dollars() if not row.goes_on and free_starts(job) == 0 else 0.0
    return need, startup, paid + threshold, paid, start_usd


def _span(problem: PlacementProblem, job: Job, row: TableRow) -> tuple[int, int, int]:
    """Return the row's first slot, the end of its slots, and the end of those in which a run may begin."""
    slots = problem.slots_for(job, row.candidate)
    if not slots or (row.goes_on and slots[0].index != 0):
        return 0, 0, 0
    if row.goes_on:
        return 0, slots[-1].index + 1, 1
    if job.name in problem.stays:
        return 0, 0, 0
    starts = [slot.index for slot in slots if problem.may_start(job, slot)]
    return slots[0].index, slots[-1].index + 1, (starts[-1] + 1 if starts else 0)


class _Meters:
    """Number the meters on which something may have to be moved."""

    def __init__(self, problem: PlacementProblem) -> None:
        self._problem = problem
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

    def already_gb(self, meter: int, month: str) -> float:
        """Return what was moved on the meter before the plan."""
        return already_moved(self._problem, self.tariffs[meter], month) / BYTES_PER_GB


class _Kinds:
    """Number the different uses of limits that can bind; limit 0 is a pad that never does."""

    def __init__(self, problem: PlacementProblem) -> None:
        self._problem = problem
        self.names = ("", *sorted(problem.binding))
        self._limit = {name: number for number, name in enumerate(self.names)}
        self.capacity = np.array([np.inf, *(float(problem.shared[name].amount) for name in self.names[1:])])
        self._kinds: dict[tuple[tuple[int, int], ...], int] = {}
        self._by_key: dict[int, int] = {}

    def kind(self, job: str, key: str) -> int:
        use: Mapping[str, int] = self._problem.use[job, key]
        known = self._by_key.get(id(use))
        if known is not None:
            return known
        limit = self._limit
        taken = tuple(sorted((limit[name], amount) for name, amount in use.items() if name in limit and amount))
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
