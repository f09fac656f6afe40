"""The exact optimum of small instances by enumeration (design note placement-program); shares no code with the program.

First the numbers of jobs left out, as precedence_rules.py orders them; then cost plus thresholds, carbon
among them. Each job's schedules are reduced to those that no other beats in cost and in use of everything shared, then
combined depth first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from pricing.book import PriceBook
from pricing.places import RegionId
from router.jobs.limits import Limits
from router.jobs.spec import Job
from tests.support.check_carbon import counted_per_hour
from tests.support.commitment_oracle import bought_by_slot, covered
from tests.support.precedence_rules import Bools, Levels, admitted, fair_bands, stays_in_place
from tests.support.schedules import (
    CandidateLike,
    Floats,
    Ints,
    Ways,
    dates_of,
    enumerate_ways,
    fallback_hours_per_step,
    own_slots,
    slot_edges,
    standing,
)
from tests.support.shared_limits import Holding, OfferName, Shared, shared_things
from tests.support.shipping import Need
from tests.support.tariff_oracle import Shipment, bill

SLACK = 1e-9


@dataclass(frozen=True)
class Options:
    """One job's undominated schedules, cheapest first. ``use`` [n, limits x slots]; ``regions`` the first of each.

    ``committed`` [n, commitments x slots]: dollars that could be covered.
    ``stays`` marks those that go on in place; ``must``: the job has no other choice and is never left out.
    """

    job: Job
    slots: Ints
    cost: Floats
    threshold: Floats
    top: Floats
    use: Ints
    arrivals: Ints
    shipments: tuple[tuple[tuple[str, Need, RegionId], ...], ...]
    stays: Bools
    committed: Floats
    regions: tuple[str, ...] = ()
    must: bool = False


@dataclass(frozen=True)
class Problem:
    """An instance, enumerated. ``amounts`` of the limits, a value for each slot."""

    options: tuple[Options, ...]
    amounts: Ints
    limits: Limits
    book: PriceBook
    now: datetime
    edges: tuple[datetime, ...]
    levels: Levels
    bought: Floats

    def without_limits(self) -> Problem:
        """The same with more than enough of everything shared (each job still fits alone)."""
        return replace(self, amounts=np.full_like(self.amounts, 10**9))


@dataclass(frozen=True)
class Solution:
    """``unplaced`` numbers of the levels, highest first; ``cost`` compute and moves, less what commitments cover;
    ``threshold`` on top."""

    unplaced: tuple[int, ...]
    cost: float
    threshold: float
    choice: tuple[tuple[str, tuple[int, ...] | None], ...]

    @property
    def value(self) -> float:
        return self.cost + self.threshold

    def better_than(self, other: Solution, relative: float = 1e-6) -> bool:
        """Strictly, beyond ``relative`` of the cost."""
        if self.unplaced != other.unplaced:
            return self.unplaced < other.unplaced
        return self.value < other.value * (1 - relative) - SLACK


def enumerate_problem(
    jobs: Sequence[Job],
    candidates: Mapping[str, Sequence[CandidateLike]],
    book: PriceBook,
    limits: Limits,
    now: datetime,
    horizon: timedelta,
    slot: timedelta,
    *,
    levels: Levels | None = None,
    displace_nobody: Collection[str] = (),
) -> Problem:
    """All undominated schedules of all jobs; ``candidates`` by job name. All within the horizon.

    ``levels`` other than those of rules-of-the-plan.md may be given; jobs of ``displace_nobody`` need never stay where
    they run.
    """
    edges = slot_edges(
        now, now + horizon, slot, dates_of(*limits.reservations, *limits.maintenance, *limits.commitments)
    )
    caps = {
        _offer_name(part.offer): part.offer.machines_cap
        for kept in candidates.values()
        for candidate in kept
        for part in (*candidate.parts, *_kept_free(candidate))
    }
    shared = shared_things(limits, caps)
    amounts = np.repeat([item.amount for item in shared], len(edges) - 1).astype(np.int64)
    options = []
    cannot_resume: list[Options] = []
    for job in sorted(jobs, key=lambda job: (-job.priority, job.name)):
        kept = list(candidates[job.name])
        table = np.array(
            [[_use(item, c) for item in shared] for c in kept] + [[0] * len(shared)],
            dtype=np.int64,
        ).reshape(len(kept) + 1, len(shared))
        budgeted = any(budget.team == job.team for budget in limits.teams)
        carbon = [counted_per_hour(candidate, book, limits) for candidate in kept]
        behind = [_fallback_carbon(candidate, book, limits) for candidate in kept]
        ways = (
            enumerate_ways(job, kept, edges, now, book, limits, carbon, fallback_carbon=behind, budgeted=budgeted)
            if kept
            else None
        )
        stays = (
            np.zeros(0, dtype=bool) if ways is None else stays_in_place(ways.slots, _standing(job, kept, edges, now))
        )
        found = _undominated(job, ways, table, amounts, len(edges) - 1, stays, budgeted=budgeted)
        first = tuple(str(kept[next(c for c in row if c >= 0)].region) for row in found.slots)
        found = replace(found, regions=first)
        if found.stays.any() and job.checkpoint is None and job.name not in displace_nobody:
            cannot_resume.append(found)
        options.append(found)
    left = _Room(amounts, limits, now)
    staying = {found.job.name: found for found in cannot_resume}
    must = admitted([found.job for found in cannot_resume], lambda job: left.take(staying[job.name]))
    options = [_only_staying(found) if found.job.name in must else found for found in options]
    return Problem(
        tuple(options),
        amounts,
        limits,
        book,
        now,
        edges,
        levels or Levels(tuple(jobs), fair_bands(limits, jobs)),
        bought_by_slot(limits.commitments, edges),
    )


def _fallback_carbon(candidate: CandidateLike, book: PriceBook, limits: Limits) -> float:
    """Dollars that the emissions of a guarded run's fallback count for a step."""
    if candidate.fallback is None:
        return 0.0
    return fallback_hours_per_step(candidate) * counted_per_hour(candidate.fallback, book, limits)


def _standing(job: Job, kept: Sequence[CandidateLike], edges: Sequence[datetime], now: datetime) -> set[int]:
    first = own_slots(job, edges, now)[0]
    placement = job.status.running if job.status is not None else None
    return standing(placement, kept) if first is not None and first[0] == now else set()


class _Room:
    """The room that limits, budgets, caps on egress and regions of groups leave for jobs that must stay."""

    def __init__(self, amounts: Ints, limits: Limits, now: datetime) -> None:
        self.left = amounts.copy()
        self.money = {b.team: b.budget.dollars() - b.spent.dollars() for b in limits.teams}
        self.limits = limits
        self.now = now
        self.needs: tuple[tuple[str, Need, RegionId], ...] = ()
        self.homes: dict[str | None, str] = {}

    def take(self, options: Options) -> bool:
        """Whether the job's cheapest stay fits; what it takes is gone then."""
        row = int(np.flatnonzero(options.stays)[0])
        dollars = options.cost[row] + options.top[row]
        team, group, home = options.job.team, options.job.group, options.regions[row]
        if (options.use[row] > self.left).any() or dollars > self.money.get(team, np.inf) + SLACK:
            return False
        needs = options.shipments[options.arrivals[row]]
        if not _within_caps(self.limits, self.now, _leaving(self.needs), needs):
            return False
        if group is not None and self.homes.setdefault(group, home) != home:
            return False
        self.needs += needs
        self.left = self.left - options.use[row]
        if team in self.money:
            self.money[team] -= dollars
        return True


def _only_staying(options: Options) -> Options:
    row = np.flatnonzero(options.stays)[:1]
    return replace(
        options,
        slots=options.slots[row],
        cost=options.cost[row],
        threshold=options.threshold[row],
        top=options.top[row],
        use=options.use[row],
        arrivals=options.arrivals[row],
        stays=options.stays[row],
        committed=options.committed[row],
        regions=tuple(options.regions[i] for i in row),
        must=True,
    )


def _offer_name(offer: object) -> OfferName:
    names = ("cloud", "region", "zone", "instance_type", "market")
    cloud, region, zone, instance_type, market = (getattr(offer, name) for name in names)
    return (cloud, region, zone, instance_type, str(market))


def _use(item: Shared, candidate: CandidateLike) -> int:
    """The larger of what the gang takes and what its fallback takes: it is given up before it falls back."""
    gangs = (candidate.parts, _kept_free(candidate))
    return max(
        sum(item.use(Holding(_offer_name(part.offer), part.machine, part.machines)) for part in gang) for gang in gangs
    )


def _kept_free(candidate: CandidateLike) -> tuple[Any, ...]:
    """Machines on demand that are kept free for a guarded run which is not sure enough without them."""
    if candidate.fallback is None or not candidate.guard.reserves_fallback:
        return ()
    return tuple(candidate.fallback.parts)


def _undominated(
    job: Job, ways: Ways | None, table: Ints, amounts: Ints, slots: int, stays: Bools, *, budgeted: bool
) -> Options:
    if ways is None or not len(ways.cost):
        none, empty = np.zeros(0), np.zeros(0, dtype=np.int64)
        no_use = np.zeros((0, len(amounts)), int)
        stay_none = np.zeros(0, dtype=bool)
        no_cover = np.zeros((0, 0 if ways is None else ways.committed.shape[1]))
        return Options(job, np.zeros((0, slots), int), none, none, none, no_use, empty, (), stay_none, no_cover)
    use = table[ways.slots].transpose(0, 2, 1).reshape(len(ways.slots), -1)
    fits = np.flatnonzero((use <= amounts).all(axis=1))
    top = np.array([sum(need.top_dollars for _, need, _ in needs) for needs in ways.shipments])[ways.arrivals]
    value = ways.cost + ways.threshold
    order = fits[np.lexsort((ways.cost[fits], value[fits]))]
    # The same use and the same moves: only the cheapest is worth keeping (in a budget also what costs less
    # before thresholds, which no budget counts).
    # Dollars that could be covered are told apart to the micro-dollar.
    cover = np.round(ways.committed * 1e6).astype(np.int64)
    key = np.concatenate([use, ways.arrivals[:, None], stays[:, None], cover], axis=1)[order]
    _, first = np.unique(key, axis=0, return_index=True)
    cheaper = _lower_cost_rows(key, ways.cost[order]) if budgeted else np.zeros(0, int)
    kept: list[int] = []
    for i in order[np.unique(np.concatenate([first, cheaper]))]:
        rivals = np.array(kept, dtype=np.int64)
        if (
            len(kept)
            and (
                (use[rivals] <= use[i]).all(axis=1)
                & (ways.arrivals[rivals] == ways.arrivals[i])
                & (stays[rivals] >= stays[i])
                & (not budgeted or ways.cost[rivals] <= ways.cost[i] + SLACK)
                & _cheaper_whatever_is_covered(value, ways.committed, rivals, i)
            ).any()
        ):
            continue
        kept.append(int(i))
    rows = np.array(kept, dtype=np.int64)
    return Options(
        job,
        ways.slots[rows],
        ways.cost[rows],
        ways.threshold[rows],
        top[rows],
        use[rows],
        ways.arrivals[rows],
        ways.shipments,
        stays[rows],
        ways.committed[rows],
    )


def _cheaper_whatever_is_covered(value: Floats, committed: Floats, rivals: Ints, i: int) -> Bools:
    """Whether the rivals cost no more even where all that row ``i`` has more of in a slot would be covered."""
    more = np.maximum(0.0, committed[i] - committed[rivals]).sum(axis=1)
    result: Bools = value[rivals] + more <= value[i] + SLACK
    return result


def _lower_cost_rows(key: Ints, cost: Floats) -> Ints:
    """Rows that cost less, before thresholds, than every earlier row of the same key."""
    least: dict[bytes, float] = {}
    result = []
    for i, (row, dollars) in enumerate(zip(key, cost, strict=True)):
        name = row.tobytes()
        if dollars < least.get(name, np.inf) - SLACK:
            least[name] = dollars
            result.append(i)
    return np.array(result, dtype=np.int64)


def moved_bytes(limits: Limits) -> dict[str, int]:
    return {cloud: round(gb * 10**9) for cloud, gb in dict(limits.egress_month_to_date_gb).items()}


def _leaving(needs: Sequence[tuple[str, Need, RegionId]]) -> dict[tuple[str, str], float]:
    """Gigabytes by cloud and month that leave for another cloud."""
    total: dict[tuple[str, str], float] = {}
    for month, need, to in needs:
        if need.source.cloud != to.cloud:
            total[need.source.cloud, month] = total.get((need.source.cloud, month), 0.0) + need.volume / 1e9
    return total


def _within_caps(
    limits: Limits,
    now: datetime,
    before: Mapping[tuple[str, str], float],
    needs: Sequence[tuple[str, Need, RegionId]],
) -> bool:
    """Whether these moves, on top of the others', keep every cap."""
    for (cloud, month), gb in _leaving(needs).items():
        cap = limits.egress_caps_gb.get(cloud)
        earlier = float(limits.egress_month_to_date_gb.get(cloud, 0)) if month == now.strftime("%Y-%m") else 0.0
        if cap is not None and gb + earlier + before.get((cloud, month), 0.0) > float(cap) + SLACK:
            return False
    return True


def _egress(problem: Problem, needs: Sequence[tuple[str, Need, RegionId]]) -> float:
    return _bill(needs, problem.limits, problem.book, problem.now)


def _bill(needs: Sequence[tuple[str, Need, RegionId]], limits: Limits, book: PriceBook, now: datetime) -> float:
    shipments = [Shipment(need.tariff, month, need.volume) for month, need, _ in needs if need.tariff is not None]
    if not shipments:
        return 0.0
    bills = bill(
        shipments,
        tariffs=book.tariffs,
        this_month=now.strftime("%Y-%m"),
        moved_bytes=moved_bytes(limits),
    )
    return float(sum(bills.values())) / 1e9


@dataclass(frozen=True)
class _State:
    """The choices made so far; ``needs`` are moves by month, ``groups`` the region of each group that has one."""

    level: int
    used: Ints
    spent: Mapping[str, float]
    needs: tuple[tuple[str, Need, RegionId], ...]
    left_out: frozenset[str]
    cost: float
    threshold: float
    chosen: tuple[tuple[str, tuple[int, ...] | None], ...]
    groups: tuple[tuple[str, str], ...] = ()
    committed: Floats | float = 0.0


class _Search:
    """Depth first over the jobs, pruned by what the other jobs cost at least in the room that is left."""

    def __init__(self, problem: Problem, order: Sequence[Options], start: Solution | None) -> None:
        self.problem = problem
        self.order = order
        self.best = start
        self.budgets = {b.team: b.budget.dollars() - b.spent.dollars() for b in problem.limits.teams}
        self.bought = problem.bought
        self.bills: dict[tuple[tuple[str, Need, RegionId], ...], float] = {}
        self.counts: dict[frozenset[str], tuple[int, ...]] = {}

    def start(self) -> _State:
        none: frozenset[str] = frozenset()
        return _State(0, np.zeros_like(self.problem.amounts), {}, (), none, 0.0, 0.0, ())

    def egress(self, needs: tuple[tuple[str, Need, RegionId], ...]) -> float:
        if needs not in self.bills:
            self.bills[needs] = _egress(self.problem, needs)
        return self.bills[needs]

    def unplaced(self, left_out: frozenset[str]) -> tuple[int, ...]:
        if left_out not in self.counts:
            self.counts[left_out] = self.problem.levels.count(left_out)
        return self.counts[left_out]

    def rows(self, state: _State, level: int) -> Ints:
        """Schedules of the job at ``level`` that still fit, cheapest first."""
        options = self.order[level]
        free = (options.use + state.used <= self.problem.amounts).all(axis=1)
        budget = self.budgets.get(options.job.team)
        if budget is not None:
            free &= options.cost + options.top + state.spent.get(options.job.team, 0.0) <= budget + SLACK
        home = dict(state.groups).get(options.job.group or "")
        if home is not None:
            free &= np.array([region == home for region in options.regions], dtype=bool)
        if self.problem.limits.egress_caps_gb:
            before = _leaving(state.needs)
            limits, now = self.problem.limits, self.problem.now
            within = [_within_caps(limits, now, before, needs) for needs in options.shipments]
            free &= np.array(within or [True])[options.arrivals]
        return np.flatnonzero(free)

    def placed(self, state: _State, row: int) -> _State:
        options = self.order[state.level]
        team, group = options.job.team, options.job.group
        return _State(
            state.level + 1,
            state.used + options.use[row],
            {**state.spent, team: state.spent.get(team, 0.0) + options.cost[row] + options.top[row]},
            state.needs + options.shipments[options.arrivals[row]],
            state.left_out,
            state.cost + options.cost[row],
            state.threshold + options.threshold[row],
            (*state.chosen, (options.job.name, tuple(int(c) for c in options.slots[row]))),
            state.groups if group is None else (*state.groups, (group, options.regions[row])),
            state.committed + options.committed[row],
        )

    def left_out(self, state: _State) -> _State:
        name = self.order[state.level].job.name
        out = state.left_out | {name}
        return replace(state, level=state.level + 1, left_out=out, chosen=(*state.chosen, (name, None)))

    def covered(self, state: _State) -> float:
        return covered(state.committed + np.zeros_like(self.bought), self.bought)

    def solution(self, state: _State) -> Solution:
        unplaced = self.unplaced(state.left_out)
        cost = state.cost + self.egress(state.needs) - self.covered(state)
        return Solution(unplaced, cost, state.threshold, state.chosen)

    def cannot_beat(self, state: _State) -> bool:
        """Whether no completion of ``state`` is better than the best so far."""
        if self.best is None:
            return False
        out = set(state.left_out)
        value = state.cost + state.threshold + self.egress(state.needs)
        net = value - self.covered(state)  # all that the other jobs use is covered; in ``value`` all that is bought
        for level in range(state.level, len(self.order)):
            options = self.order[level]
            rows = self.rows(state, level)
            if len(rows):
                each = options.cost[rows] + options.threshold[rows]
                value += each.min()
                net += (each - options.committed[rows].sum(axis=1)).min()
            elif options.must:
                return True
            else:
                out.add(options.job.name)
        missing = self.unplaced(frozenset(out))
        if missing != self.best.unplaced:
            return missing > self.best.unplaced
        return bool(max(value - self.bought.sum(), net) >= self.best.value - SLACK)

    def descend(self, state: _State) -> None:
        if self.cannot_beat(state):
            return
        if state.level == len(self.order):
            self.best = self.solution(state)
            return
        for row in self.rows(state, state.level):
            self.descend(self.placed(state, int(row)))
        if not self.order[state.level].must:
            self.descend(self.left_out(state))


def greedy_in_turn(problem: Problem) -> Solution:
    """Each job in turn (those that must stay, priority, then name) takes what is cheapest for it of what is left."""
    order = sorted(problem.options, key=lambda options: not options.must)
    search = _Search(problem, order, None)
    state = search.start()
    for level, options in enumerate(order):
        rows = search.rows(state, level)
        if not len(rows):
            state = search.left_out(state)
            continue
        values = [
            options.cost[i]
            + options.threshold[i]
            + search.egress(state.needs + options.shipments[options.arrivals[i]])
            - covered(state.committed + options.committed[i], search.bought)
            for i in rows
        ]
        state = search.placed(state, int(rows[int(np.argmin(values))]))
    return search.solution(state)


def optimum(problem: Problem) -> Solution:
    order = sorted(problem.options, key=lambda options: len(options.cost))
    search = _Search(problem, order, greedy_in_turn(problem))
    search.descend(search.start())
    assert search.best is not None
    return search.best
