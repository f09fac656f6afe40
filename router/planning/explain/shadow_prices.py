"""Compute what more of each limit would save: LP duals summed over slots, re-solved plans for the largest.

Of large plans the relaxation is solved again, not the plan, unless jobs are left out for a limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pricing.money import NANOS, Usd
from router.planning.document.plan import ShadowPrice
from router.planning.find.allowances import team_allowances
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.limit_kinds import use_by_machine
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.run_costs import compute_usd
from router.planning.program.column_generation import count_slot_shares
from router.planning.program.effort import Effort
from router.planning.program.formulation import formulate
from router.planning.program.single_runs import rank_candidates
from router.planning.program.solve import LimitRaise, LimitWorth, PlacementSolution, PlanRelaxation, solve_in_stages
from router.planning.rules.budgets import raised_allowance, team_row
from router.planning.rules.program import Program, limit_row

_WORTH_SHOWING = 0.005  # dollars
_CENTS = 100  # of a dollar
_PHASE = "shadow prices"
_FEW_SHARES = 1_500  # shares of slots up to which a plan is solved again only for money
_MOST_SHARES = 12_000  # a program with more shares of slots is not solved again
_MOST_JOBS = 400  # jobs of a plan by columns above which estimates are enough
_SMALL = 0.1  # share of the figure within which both solutions must be proven optimal
_TIGHT = 1e-6


@dataclass(frozen=True, slots=True)
class _Limit:
    name: str
    unit: str
    estimate: float
    team: str = ""


def shadow_prices(
    answer: PlacementSolution, whole: PlacementProblem, effort: Effort, resolve: int
) -> tuple[ShadowPrice, ...]:
    """Return limits and team budgets of which more would place a job or save money: resolved first, dearest first.

    ``lp_estimate`` is the dual of the relaxation, with the set of placed jobs held fixed: at a kink it can be far above
    what one more unit really saves. The top ``resolve`` are ``resolved`` where they block jobs that are left out, or
    the program is small: planned again with as much more as one machine of the blocked gang takes, or else all its
    machines, over the answer's candidates and all of ``whole``'s that touch them; where the program is not too large
    and both optima are proven to a tenth of the figure. Thresholds decide which jobs move, but are never paid: they are
    in no figure here.

    The others of the top are ``lp_resolved``: what the relaxation costs less with all the machines of the blocked gang
    more, for as many jobs left out. Of a plan by columns that is so for all, thresholds included, and ``lp_at_least``
    where only that much is proven.
    """
    if not answer.runs:
        return ()
    problem = answer.problem
    duals = answer.estimates
    if answer.stage_two is not None:
        relaxed = effort.relax(_PHASE, _money_alone(answer, answer.stage_two))
        if relaxed.outcome != "optimal":
            return ()
        duals = relaxed.duals
    limits = [_limit(problem, name, duals) for name in sorted(problem.binding)]
    limits += [_money_limit(team, duals) for team in team_allowances(problem.limits)]
    shown = sorted((f for f in limits if f.estimate >= _WORTH_SHOWING), key=lambda f: (-f.estimate, f.name))
    exact: dict[str, ShadowPrice | None] = {}
    relaxation = answer.relaxation
    if answer.stage_two is not None:
        first = _blocking(answer)
        top = sorted((f for f in limits if f.name in first), key=lambda f: first.index(f.name))
        if count_slot_shares(problem) <= _FEW_SHARES:
            top += [f for f in shown if f.name not in first]
        exact = _resolved(answer, whole, effort, top[:resolve])
        relaxation = _CompactRelaxation(answer, whole)
    others = [f for f in shown if f.name not in exact]
    if relaxation is not None and len(problem.jobs) <= _MOST_JOBS:
        exact |= _relaxed(answer, relaxation, effort, others, resolve - len(exact))
    prices = [price for price in exact.values() if price is not None]
    prices += [_estimated(limit) for limit in shown if limit.name not in exact]
    return tuple(sorted(prices, key=_dearest_first))


def _estimated(limit: _Limit) -> ShadowPrice:
    return ShadowPrice(limit.name, Usd(round(limit.estimate * NANOS)), limit.unit, "lp_estimate")


def _dearest_first(price: ShadowPrice) -> tuple[int, bool, int, str]:
    money = price.usd_per_unit if price.saves_usd is None else price.saves_usd
    return (-price.places, price.basis == "lp_estimate", -money.nanos, price.limit)


@dataclass(frozen=True)
class _CompactRelaxation:
    """The relaxation of the last stage's program, with every candidate that takes some of a raised limit."""

    answer: PlacementSolution
    whole: PlacementProblem

    def worths(self, raises: Sequence[LimitRaise], effort: Effort) -> tuple[LimitWorth, ...]:
        """Return the worth of each raise alone, for the same jobs left out; of fewer where time or solver gave out.

        Thresholds are in no cost here.
        """
        wide = _touching(self.answer.problem, self.whole, {more.limit for more in raises})
        costs: list[float] = []
        for problem in (wide, *(_raised(wide, more) for more in raises)):
            relaxed = effort.relax(_PHASE, _money_alone(self.answer, formulate(problem).program))
            if relaxed.outcome != "optimal":
                break
            costs.append(relaxed.objective)
        return tuple(LimitWorth(max(0.0, costs[0] - cost), ended=True) for cost in costs[1:])


def _relaxed(
    answer: PlacementSolution, relaxation: PlanRelaxation, effort: Effort, shown: Sequence[_Limit], max_raises: int
) -> dict[str, ShadowPrice | None]:
    """Return what raises save in the relaxation, of the limits whose estimates promise most for a gang.

    None where nothing; a limit that could not be solved again is left out.
    """
    raises: dict[str, LimitRaise] = {}
    for limit in shown if max_raises > 0 else ():
        limit_raises = [] if limit.team else list(_raises(answer, limit))
        if limit_raises:
            raises[limit.name] = limit_raises[-1]
    by_name = {limit.name: limit for limit in shown}
    top = sorted(raises.values(), key=lambda more: (-by_name[more.limit].estimate * more.by, more.limit))[
        : max(0, max_raises)
    ]
    worths = relaxation.worths(top, effort) if top else ()
    return {
        more.limit: _price_of(by_name[more.limit], more, worth)
        for more, worth in zip(top, worths, strict=False)
        if worth.ended or worth.usd >= _WORTH_SHOWING
    }


def _price_of(limit: _Limit, more: LimitRaise, worth: LimitWorth) -> ShadowPrice | None:
    """Return what the raise saves in the relaxation, to the cent as it is solved; None where nothing."""
    saved = Usd(round(worth.usd * _CENTS) * (NANOS // _CENTS))
    if not saved.nanos:
        return None
    return ShadowPrice(
        limit=limit.name,
        usd_per_unit=Usd(round(saved.nanos / more.by)),
        unit=limit.unit,
        basis="lp_resolved" if worth.ended else "lp_at_least",
        raised_by=more.by,
        machines=more.machines,
        instance_type=more.instance_type,
        saves_usd=saved,
    )


def _money_alone(answer: PlacementSolution, program: Program) -> Program:
    """Return the last stage's program without thresholds in its cost and with the set of placed jobs fixed."""
    costs = {i: v.cost for i, v in enumerate(program.variables) if not v.name.startswith("more starts ")}
    left_out = {
        i: float(v.name.removeprefix("u ") not in answer.runs)
        for i, v in enumerate(program.variables)
        if v.name.startswith("u ")
    }
    return program.minimising(costs).fixed(left_out)


def _limit(problem: PlacementProblem, name: str, duals: Mapping[str, float]) -> _Limit:
    total = sum(duals.get(limit_row(name, slot.index), 0.0) for slot in problem.slots)
    return _Limit(name, problem.shared[name].unit, total)


def _money_limit(team: str, duals: Mapping[str, float]) -> _Limit:
    return _Limit(team_row(team), "USD", duals.get(team_row(team), 0.0), team)


def _blocking(answer: PlacementSolution) -> list[str]:
    """Return the limits that left-out jobs would use.

    Those of the highest priority and of their cheapest candidates come first.
    """
    problem = answer.problem
    names: dict[str, None] = {}
    for job in sorted(problem.jobs, key=lambda j: (-j.priority, j.name)):
        for c in rank_candidates(job, problem.candidates[job.name]) if job.name not in answer.runs else ():
            names |= dict.fromkeys(sorted(problem.use[job.name, c.key].keys() & problem.binding))
    return list(names)


def _resolved(
    answer: PlacementSolution, whole: PlacementProblem, effort: Effort, top: Sequence[_Limit]
) -> dict[str, ShadowPrice | None]:
    """Return by limit what a raise brings, None where nothing; what cannot be proven is left out."""
    prices: dict[str, ShadowPrice | None] = {}
    if not top:
        return prices
    wide = _touching(answer.problem, whole, {limit.name for limit in top})
    if count_slot_shares(wide) > _MOST_SHARES:
        return prices
    formulation = formulate(wide)
    if not effort.affords(_PHASE, formulation.program):
        return prices
    base = solve_in_stages(wide, formulation, effort.within(1 / 2), _TIGHT, _PHASE)
    if not base.runs:
        return prices
    for limit in top:
        for more in _raises(base, limit):
            if not effort.affords(_PHASE, formulation.program):
                return prices
            problem = _raised(wide, more)
            after = solve_in_stages(problem, formulate(problem), effort.within(1 / 2), _TIGHT, _PHASE)
            if not _comparable(base, after):
                break
            price = prices[limit.name] = _priced(limit, more, base, after)
            if price is not None:
                break
    return prices


def _touching(problem: PlacementProblem, whole: PlacementProblem, names: set[str]) -> PlacementProblem:
    """Return the problem with every candidate of the whole one that takes some of these limits."""
    keys = {name: {c.key for c in found} for name, found in problem.candidates.items()}
    candidates = {
        name: tuple(c for c in found if c.key in keys[name] or names & whole.use[name, c.key].keys())
        for name, found in whole.candidates.items()
    }
    return replace(problem, candidates=candidates)


def _raised(problem: PlacementProblem, more: LimitRaise) -> PlacementProblem:
    if more.limit in problem.shared:
        shared = problem.shared[more.limit]
        amount = shared.amount + more.by
        return replace(problem, shared={**problem.shared, more.limit: replace(shared, amount=amount)})
    return raised_allowance(problem, more.limit, Usd(more.by * NANOS))


def _raises(base: PlacementSolution, limit: _Limit) -> Iterator[LimitRaise]:
    """Yield one machine more of the gang that gains most, and all its machines; for a budget one dollar."""
    if limit.team:
        yield LimitRaise(limit.name, 1)
        return
    blocked = _blocked(base, limit.name)
    if blocked is None:
        return
    job, c = blocked
    taken = base.problem.use[job, c.key][limit.name]
    machines, instance_type = _counted_machines(base.problem, job, c, limit.name)
    yield LimitRaise(limit.name, math.ceil(taken / machines), 1, instance_type)
    if machines > 1:
        yield LimitRaise(limit.name, taken, machines, instance_type)


def _blocked(base: PlacementSolution, name: str) -> tuple[str, Candidate] | None:
    """Return the job with most to gain from the limit, and its candidate that takes of it.

    Left-out jobs come first, by priority; then the money that each would save alone counts.
    """
    problem = base.problem
    best: tuple[tuple[bool, int, float], str, Candidate] | None = None
    for job in problem.jobs:
        runs = base.runs.get(job.name, ())
        now = compute_usd(runs).dollars()
        for c in problem.candidates[job.name]:
            if name not in problem.use[job.name, c.key]:
                continue
            moves = sum(t.dearest.dollars() for t in c.transfers)
            gain = now - c.expected_usd(steps_to_do(job, running=c.running)) - moves
            rank = (not runs, job.priority if not runs else 0, gain)
            if best is None or rank > best[0]:
                best = (rank, job.name, c)
    return None if best is None else best[1:]


def _counted_machines(problem: PlacementProblem, job: str, c: Candidate, name: str) -> tuple[int, str]:
    """Return how many of the candidate's machines the limit counts, and their type.

    These are all, or those of the part whose capacity it is; of several types the last one's name.
    """
    team = problem.job[job].team
    uses = [(part, use_by_machine(problem.limits, part.listing, team)) for part in c.parts]
    counted = [part for part, found in uses if any(u.limit.name == name and u.per_machine for u in found)] or c.parts
    return sum(part.machines for part in counted), counted[-1].offer.instance_type


def _comparable(base: PlacementSolution, after: PlacementSolution) -> bool:
    """Return whether both are proven: the set of jobs placed, and the cost to a tenth of the difference."""
    if not (base.stage_one_proven and after.stage_one_proven):
        return False
    doubt = (base.spent - base.bound_usd) + (after.spent - after.bound_usd)
    saved = abs((_money(base) - _money(after)).dollars())
    return doubt.dollars() <= max(_SMALL * saved, 0.01)


def _money(answer: PlacementSolution) -> Usd:
    return answer.spent - answer.threshold - answer.external_usd


def _priced(limit: _Limit, more: LimitRaise, base: PlacementSolution, after: PlacementSolution) -> ShadowPrice | None:
    """Return what the raise brings: jobs of the highest priority that differs, and money; None where neither."""
    places = next((a - b for a, b in zip(base.rank, after.rank, strict=True) if a != b), 0)
    saved = _money(base) - _money(after)
    if places < 0 or (places == 0 and saved.dollars() < _WORTH_SHOWING):
        return None
    return ShadowPrice(
        limit=limit.name,
        usd_per_unit=Usd(round(saved.nanos / more.by)),
        unit=limit.unit,
        basis="resolved",
        raised_by=more.by,
        machines=more.machines,
        instance_type=more.instance_type,
        saves_usd=saved,
        places=places,
    )
