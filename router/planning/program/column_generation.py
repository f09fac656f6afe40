"""Solve programs too large to write down whole over a shortlist of candidates, with a bound over all of them.

The relaxed program over the shortlist gives a price for every limit and slot (its duals). At those prices each job's
cheapest way is found over *all* its candidates, region by region, without a solver; candidates that would be cheaper
join the shortlist, until none helps. The bound is Lagrange's: for any prices π >= 0,

    Σ_j min(penalty_j, v_j(π)) - Σ π K  <=  the least cost,

with v_j the *dual* value of the job's own problem, a lower bound whatever step value ν it is taken at: v = max_ν ν -
Σ_t max(0, max_c h_t (ν g_c/S - κ_c p_c) - Σ_p a_cp π_pt), plus the least start-up and moves of the region.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pricing.places import RegionId
from pricing.units import BYTES_PER_GB
from router.jobs.spec import Job
from router.planning.find.allowances import team_allowances
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.problem.commitments import buyable_by_place, cover_rate, has_cover
from router.planning.problem.egress_to_date import allowance_left, already_moved
from router.planning.problem.problem import PlacementProblem
from router.planning.program.effort import Effort
from router.planning.program.formulation import Formulation, formulate
from router.planning.program.greedy import greedy_holdings
from router.planning.rules.budgets import team_row
from router.planning.rules.commitments import cover_row
from router.planning.rules.job_groups import group_members
from router.planning.rules.program import Program, limit_row

MAX_FULL_SHARES = 8_000  # shares of slots above which the program is built over a shortlist
MAX_WIDE_SHARES = 24_000  # the most a second program may hold
_PHASE = "shortlist"
_FIRST = 3  # candidates of each job in the first shortlist
_MORE_REGIONS = 3
_ROUNDS = 12
_BISECTIONS = 40
Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Shortlist:
    """A smaller problem, with floors of each job's cost at the last prices of the limits.

    ``shared`` (Σ π K) is to be subtracted from the sum of the floors.
    """

    problem: PlacementProblem
    floors: Mapping[str, float]
    shared: float
    blocks: Mapping[str, tuple[tuple[float, frozenset[str]], ...]]

    def within(self, problem: PlacementProblem, slack: float, max_shares: int) -> tuple[PlacementProblem, bool]:
        """Return the whole problem restricted to candidates near their floors, and whether no near one is missing.

        Candidates join whose way of running their job lies within ``slack`` dollars of its floor, the nearest first up
        to ``max_shares`` shares of slots. With ``slack`` the distance from the bound to a known plan, no other
        candidate can be part of a cheaper one.
        """
        chosen = {name: {c.key for c in found} for name, found in self.problem.candidates.items()}
        nearby = sorted(
            (total - self.floors[name], name, sorted(keys))
            for name, blocks in self.blocks.items()
            for total, keys in blocks
            if total - self.floors[name] <= slack
        )
        shares, complete = count_slot_shares(self.problem), True
        for _, name, keys in nearby:
            job = problem.job[name]
            fresh = [c for c in problem.candidates[name] if c.key in keys and c.key not in chosen[name]]
            shares += sum(len(problem.slots_for(job, c)) for c in fresh)
            if shares > max_shares:
                complete = False
                break
            chosen[name] |= {c.key for c in fresh}
        return _restricted(problem, chosen), complete

    def bound(self, left_out: int) -> float:
        """Return the least cost over all candidates when ``left_out`` jobs, whichever they are, are left out."""
        dearest = sorted(self.floors.values(), reverse=True)
        return sum(dearest[left_out:]) - self.shared


def count_slot_shares(problem: PlacementProblem) -> int:
    """Return the number of shares of slots that the whole program would have."""
    return sum(len(problem.slots_for(job, c)) for job in problem.jobs for c in problem.candidates[job.name])


def build_shortlist(problem: PlacementProblem, effort: Effort, gap: float) -> Shortlist:
    """Grow a shortlist until the bound over all candidates meets the relaxed program over the shortlist.

    It is met when they differ by at most a quarter of ``gap``.
    """
    reach = _reach(problem)
    pricers = {job.name: _Pricer(problem, job, reach) for job in problem.jobs}
    penalty = {name: 4 * pricer.dearest + 100.0 for name, pricer in pricers.items()}
    chosen: dict[str, set[str]] = {job.name: pricers[job.name].first() for job in problem.jobs}
    for name, holds in greedy_holdings(problem).items():
        chosen[name] |= {hold.key for hold in holds}
    for members in group_members(problem.jobs).values():
        for name, keys in _common_places([pricers[job.name] for job in members]).items():
            chosen[name] |= keys
    best, _ = _floored(problem, _restricted(problem, chosen), pricers, penalty, {})
    for _ in range(_ROUNDS):
        if effort.late(_PHASE):
            break
        small = _restricted(problem, chosen)
        relaxed = effort.relax(_PHASE, _penalised(formulate(small), penalty))
        if relaxed.outcome != "optimal":
            break
        priced, additions = _floored(problem, small, pricers, penalty, relaxed.duals)
        has_additions = any(additions[name] - chosen[name] for name in additions)
        for name, keys in additions.items():
            chosen[name] |= keys
        best = replace(max(priced, best, key=lambda s: s.bound(0)), problem=small)
        is_tight = relaxed.objective - best.bound(0) <= gap / 4 * abs(relaxed.objective)
        if is_tight or not has_additions:
            break
    else:
        effort.stopped(_PHASE)
    return best


def _floored(
    problem: PlacementProblem,
    small: PlacementProblem,
    pricers: Mapping[str, _Pricer],
    penalty: Mapping[str, float],
    duals: Mapping[str, float],
) -> tuple[Shortlist, dict[str, set[str]]]:
    """Return the floors of all jobs at these prices of the limits, and the candidates worth adding at them."""
    prices = _Prices(problem, duals)
    blocks: dict[str, tuple[tuple[float, frozenset[str]], ...]] = {}
    additions: dict[str, set[str]] = {}
    for name, pricer in pricers.items():
        blocks[name], additions[name] = pricer.price(prices, penalty[name])
    floors = {name: min([penalty[name], *(total for total, _ in parts)]) for name, parts in blocks.items()}
    return Shortlist(small, floors, prices.shared + _free_moves(problem), blocks), additions


def _restricted(problem: PlacementProblem, chosen: Mapping[str, set[str]]) -> PlacementProblem:
    return replace(
        problem,
        candidates={
            name: tuple(c for c in found if c.key in chosen[name] or c.running)
            for name, found in problem.candidates.items()
        },
    )


def _penalised(formulation: Formulation, penalty: Mapping[str, float]) -> Program:
    costs = {i: v.cost for i, v in enumerate(formulation.program.variables)}
    costs.update({u: penalty[name] for name, u in formulation.layout.u.items()})
    return formulation.program.minimising(costs)


def _free_moves(problem: PlacementProblem) -> float:
    """Return the most that free allowances could save: the floors count moves at paid tiers."""
    total = 0.0
    dearest: dict[str, float] = {}
    for found in problem.candidates.values():
        for c in found:
            for t in c.transfers:
                if t.tariff.allowance_bytes:
                    cloud = t.tariff.cloud
                    dearest[cloud] = max(dearest.get(cloud, 0.0), t.tariff.top_price.dollars())
    months = {slot.month for slot in problem.slots} if dearest else set()
    for cloud, price in dearest.items():
        total += sum(price * allowance_left(problem, cloud, month) / BYTES_PER_GB for month in months)
    return total


class _Prices:
    """Duals by limit and slot, by team, and by pool of committed spend and slot.

    ``shared`` is Σ π K, and what cover would save beyond its prices.
    """

    def __init__(self, problem: PlacementProblem, duals: Mapping[str, float]) -> None:
        self.limit: dict[str, Vector] = {}
        self.shared = 0.0
        for name in sorted(problem.binding):
            row = np.array([duals.get(limit_row(name, slot.index), 0.0) for slot in problem.slots])
            if row.any():
                self.limit[name] = row
                self.shared += float(row.sum()) * problem.shared[name].amount
        self.cover: dict[int, Vector] = {}
        self.bought: dict[int, Vector] = {}
        for (pool, index), bought in (buyable_by_place(problem) if has_cover(problem.limits) else {}).items():
            price = min(1.0, max(0.0, duals.get(cover_row((pool, index)), 0.0)))
            self.cover.setdefault(pool, np.zeros(len(problem.slots)))[index] = price
            self.bought.setdefault(pool, np.zeros(len(problem.slots)))[index] = bought.dollars()
            self.shared += bought.dollars() * (1.0 - price)
        self.team: dict[str, float] = {}
        for team, allowed in team_allowances(problem.limits).items():
            price = duals.get(team_row(team), 0.0)
            self.team[team] = price
            self.shared += price * allowed.dollars()


@dataclass(frozen=True)
class _Covered:
    """The saving by cover in each slot by candidate, the hours of it that have cover, and all its hours."""

    usd: Vector
    hours: Vector
    whole_hours: Vector

    def best_gain(self, per_hour: Vector, whole: Vector) -> Vector:
        """Return the better of holding a slot for all its hours (``whole``) and for those that have cover."""
        # Both pay for limits and have the cover in full; the second has fewer hours.
        covered = whole - (self.whole_hours - self.hours) * per_hour[:, None]
        return np.where(self.hours > 0, np.maximum(whole, covered), whole)


class _Pricer:
    """One job's candidates as arrays, with the candidates of a region next to each other."""

    def __init__(self, problem: PlacementProblem, job: Job, reach: Mapping[str, int]) -> None:
        self._job = job
        self._problem = problem
        self._candidates: Sequence[Candidate] = sorted(problem.candidates[job.name], key=lambda c: (c.region, c.key))
        self._rate, self._external, self._done = _per_held_hour(self._candidates, job)
        self._hours = np.zeros((len(self._candidates), len(problem.slots)))
        for i, c in enumerate(self._candidates):
            for slot in problem.slots_for(job, c):
                self._hours[i, slot.index] = slot.hours
        # A job that may use several regions mixes them: all its candidates are one block then.
        alone = job.gang.regions == 1
        regions = [c.region if alone else self._candidates[0].region for c in self._candidates]
        self._firsts = [i for i, r in enumerate(regions) if i == 0 or regions[i - 1] != r]
        self._region = np.cumsum([i in set(self._firsts) for i in range(len(regions))]) - 1
        months = sorted({slot.month for slot in problem.slots})
        moves = np.array([_least_moves(problem, c, reach, months) for c in self._candidates])
        self._moves = np.minimum.reduceat(moves, self._firsts)
        self._whole = self._rate / self._done
        self.dearest = float(self._whole.max() + self._moves.max()) if len(regions) else 0.0

    def first(self) -> set[str]:
        """Return the first shortlist: the cheapest candidates of different regions, moves included, and the fastest."""
        total = self._whole + self._moves[self._region]
        keys: set[str] = set()
        seen: set[RegionId] = set()
        for i in np.argsort(total, kind="stable"):
            c = self._candidates[int(i)]
            if c.region not in seen:
                seen.add(c.region)
                keys.add(c.key)
            if len(keys) >= _FIRST:
                break
        keys.add(self._candidates[int(np.argmax(self._done))].key)
        return keys

    @property
    def job(self) -> Job:
        """Return the job that is priced."""
        return self._job

    def cheapest_by_region(self) -> dict[RegionId, tuple[float, str]]:
        """Return by region the least cost of the job, moves included, and the candidate that has it."""
        total = self._whole + self._moves[self._region]
        best: dict[RegionId, tuple[float, str]] = {}
        for i, c in enumerate(self._candidates):
            best[c.region] = min(best.get(c.region, (float(total[i]), c.key)), (float(total[i]), c.key))
        return best

    def price(self, prices: _Prices, penalty: float) -> tuple[tuple[tuple[float, frozenset[str]], ...], set[str]]:
        """Return the floor of the job's cost in each region at these prices, and the candidates worth adding.

        Each floor comes with the region's candidates. Worth adding are candidates of the regions where the floor is
        least.
        """
        dearer = 1.0 + prices.team.get(self._job.team, 0.0)
        taken = np.zeros_like(self._hours)
        for i, c in enumerate(self._candidates):
            for name, amount in self._problem.use[self._job.name, c.key].items():
                if name in prices.limit:
                    taken[i] += amount * prices.limit[name]
        covered = self._covered(prices)
        if covered is not None:
            taken -= covered.usd
        rate = self._rate * dearer - self._external * (dearer - 1.0)  # no budget counts external cost
        low = np.zeros(len(self._firsts))
        high = np.full(len(self._firsts), 2 * penalty * dearer)
        best = np.zeros(len(self._firsts))
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            gain = self._hours * (middle[self._region] * self._done - rate)[:, None] - taken
            if covered is not None:
                gain = covered.best_gain(middle[self._region] * self._done - rate, gain)
            gain = np.maximum(gain, 0.0)
            top = np.maximum.reduceat(gain, self._firsts, axis=0)
            best = np.maximum(best, middle - top.sum(axis=1))
            winner = (gain >= top[self._region] - 1e-12) & (gain > 0)
            work = np.maximum.reduceat(np.where(winner, self._hours * self._done[:, None], 0.0), self._firsts, axis=0)
            rising = work.sum(axis=1) < 1.0
            low, high = np.where(rising, middle, low), np.where(rising, high, middle)
        total = best + self._moves
        keys: set[str] = set()
        for r in np.argsort(total, kind="stable")[:_MORE_REGIONS]:
            if total[r] < penalty:
                keys |= self._used(int(r), high[r], rate, taken)
        blocks = tuple(
            (float(total[r]), frozenset(self._candidates[int(i)].key for i in np.flatnonzero(self._region == r)))
            for r in range(len(self._firsts))
        )
        return blocks, keys

    def _covered(self, prices: _Prices) -> _Covered | None:
        """Return what cover saves at these prices; None without committed spend."""
        if not prices.cover:
            return None
        usd, hours = np.zeros_like(self._hours), np.zeros_like(self._hours)
        for i, c in enumerate(self._candidates):
            used = cover_rate(self._problem.limits, c)
            if used is not None and used.pool in prices.cover and used.dollars > 0:
                hours[i] = np.minimum(self._hours[i], prices.bought[used.pool] / used.dollars)
                usd[i] = prices.cover[used.pool] * used.dollars * hours[i]
        return _Covered(usd, hours, self._hours)

    def _used(self, region: int, value: float, rate: Vector, taken: Vector) -> set[str]:
        """Return the region's candidates that win some slot at this value of the whole job."""
        members = np.flatnonzero(self._region == region)
        gain = self._hours[members] * (value * self._done[members] - rate[members])[:, None] - taken[members]
        winners = {int(i) for i, g in zip(gain.argmax(axis=0), gain.max(axis=0), strict=True) if g > 0}
        return {self._candidates[int(members[i])].key for i in sorted(winners)[:3]}


def _common_places(pricers: Sequence[_Pricer]) -> dict[str, set[str]]:
    """Return by job its cheapest candidates in the regions that are cheapest for all jobs of a group together."""
    own = [pricer.cheapest_by_region() for pricer in pricers]
    common = set.intersection(*(set(found) for found in own))
    ranked = sorted(common, key=lambda region: (sum(found[region][0] for found in own), region))
    return {
        pricer.job.name: {found[region][1] for region in ranked[:_MORE_REGIONS]}
        for pricer, found in zip(pricers, own, strict=True)
    }


def _per_held_hour(candidates: Sequence[Candidate], job: Job) -> tuple[Vector, Vector, Vector]:
    """Return dollars, their external part, and share of the job, for an hour held, the start-up spread over all.

    A used candidate was started (w <= (S/g) Σ z): a share of the steps costs at least that share of a start, in money
    and time.
    """
    rates, external, done = [], [], []
    for c in candidates:
        whole = steps_to_do(job, running=c.running) / c.on_time_steps_per_hour
        startup = 0.0 if c.running else c.startup_hours
        held = whole + startup
        counted = (c.objective_per_reserved_hour * whole + c.objective_per_hour * startup) / held
        rates.append(counted)
        external.append(counted - (c.usd_per_reserved_hour * whole + c.usd_per_hour.dollars() * startup) / held)
        done.append(1.0 / held)
    return np.array(rates), np.array(external), np.array(done)


def _reach(problem: PlacementProblem) -> Mapping[str, int]:
    """Return the most bytes that could ever be moved on each meter: every job that might use it does."""
    max_bytes: dict[str, int] = {}
    for name, found in problem.candidates.items():
        volumes: dict[str, int] = {}
        for c in found:
            own: dict[str, int] = {}
            for t in c.transfers:
                own[t.tariff.meter] = own.get(t.tariff.meter, 0) + t.volume_bytes
            for meter, volume in own.items():
                volumes[meter] = max(volumes.get(meter, 0), volume)
        for meter, volume in volumes.items():
            max_bytes[meter] = max_bytes.get(meter, 0) + volume * problem.job[name].gang.regions
    return max_bytes


def _least_moves(
    problem: PlacementProblem, candidate: Candidate, reach: Mapping[str, int], months: Sequence[str]
) -> float:
    """Return the dollars for the region's moves at the cheapest paid tier within reach."""
    total = 0.0
    for transfer in candidate.transfers:
        if transfer.what == "checkpoint" and problem.job[candidate.job].gang.regions > 1:
            continue
        moved = [already_moved(problem, transfer.tariff, m) for m in months]
        most = max(moved) + reach[transfer.tariff.meter]
        paid = [
            tier.price.dollars()
            for index, tier in enumerate(transfer.tariff.tiers)
            if not (index == 0 and transfer.tariff.allowance_bytes)
            and (tier.to_bytes is None or tier.to_bytes > min(moved))
            and tier.from_bytes < most
        ]
        total += min(paid, default=0.0) * transfer.volume_bytes / BYTES_PER_GB
    return total
