"""Place gangs that all need a place at the same moment: one program over all of them, in one period.

x[g,c] in {0,1}: gang g takes candidate c, for all remaining work of its job. First the fewest gangs without a place, by
strict tiers of priority; then the least expected dollars of the remaining work, moves included. At every limit the
gangs together take at most what the running machines leave.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from pricing.money import NANOS, Usd
from pricing.places import RegionId
from router.jobs.limits import Limits
from router.jobs.spec import Job
from router.planning.find.candidate import Candidate, steps_to_do
from router.planning.find.shared_limits import LimitCounter, LimitUse, binding_limits
from router.planning.problem.remaining_work import moves_usd, remaining_hours, remaining_usd
from router.planning.program.solver import Solution, Solver, usd_below
from router.planning.rules.program import ConstraintRow, Program, ProgramBuilder

MOST_CANDIDATES = 20
_ENOUGH = timedelta(seconds=10)
_SEARCHING = 0.85  # share of the time limit; the rest is for collecting options and writing programs
_WORTH_OF_LATENESS = 10.0  # an hour late counts as ten hours of the gang's dearest candidate
_LEAST_SECONDS = 0.2
_CHOSEN = 0.5


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A gang that needs a place for the remaining work of ``job``.

    ``job`` is what :func:`router.planning.problem.remaining_work.remaining_job` returns. ``allowed``: keys of the
    candidates that its policy lets it take; None: all. ``late``: the sooner it is over the better, whatever it costs.
    ``most_usd``: the most that it may be expected to cost. ``gang`` names it in the answer ("": the job's name).
    ``order``: keys, each to be taken only where those before it cannot be had.
    """

    job: Job
    candidates: tuple[Candidate, ...]
    allowed: frozenset[str] | None = None
    late: bool = False
    most_usd: Usd | None = None
    gang: str = ""
    order: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return a name that is unique among the gangs that are placed together."""
        return self.gang or self.job.name


@dataclass(frozen=True, slots=True)
class Placements:
    """The gangs ``placed`` and the expected cost of each, by gang; the others, sorted, are ``waiting``.

    ``fewest_waiting``: it is proven that, tier by tier, no fewer could wait. ``objective_usd`` is what was minimised,
    with the worth of being late; no assignment that keeps as few waiting has less than ``bound_usd``, and ``gap`` is
    the relative difference. All of that is over the candidates that were ``looked_at``, out of the number ``of`` that
    fit and that no other one beats in everything.
    """

    placed: Mapping[str, Candidate]
    expected_usd: Mapping[str, Usd]
    waiting: tuple[str, ...]
    fewest_waiting: bool
    objective_usd: Usd
    bound_usd: Usd
    gap: float
    hit_time_limit: bool
    looked_at: int
    of: int


def place_gangs(
    wants: Sequence[PlacementRequest],
    limits: Limits,
    held: Sequence[LimitUse] = (),
    *,
    solver: Solver,
    time_limit: timedelta = _ENOUGH,
    gap: float = 0.005,
    money_left: Mapping[str, Usd] | None = None,
) -> Placements:
    """Return the joint placement of the gangs.

    It is the same whatever the order of wants and candidates, unless the time limit cuts in. ``held``: what running
    machines take of the limits (:func:`router.planning.problem.current_use.running_use`). ``money_left``: what teams
    may still spend, those that are missing without bound. ValueError for two gangs of one name.
    """
    deadline = time.monotonic() + _SEARCHING * time_limit.total_seconds()
    table = _Table(wants, limits, held, money_left or {})
    quick = table.greedy()
    table.shorten(quick)
    program, x, u = table.program()
    start = {i: float(quick.get(name) == key) for (name, key), i in x.items()}
    start.update({i: float(name not in quick) for name, i in u.items()})
    fewest, late, begin = True, False, start
    if len(quick) < len(u):
        program, begin, fewest, late = _fewest_waiting(program, table.tiers(u), start, solver, deadline)
    elif u:
        program = program.fixed(dict.fromkeys(u.values(), 0.0))
    solution = solver.solve(program, gap / (1 + gap), _seconds_left(deadline), begin) if u else None
    values = solution.values if solution is not None and solution.values else begin
    chosen = {name: key for (name, key), i in x.items() if values[i] > _CHOSEN}
    return table.answer(chosen, solution, fewest=fewest, late=late)


def _fewest_waiting(
    program: Program, tiers: Sequence[Sequence[int]], start: dict[int, float], solver: Solver, deadline: float
) -> tuple[Program, dict[int, float], bool, bool]:
    """Return the program with the fewest waiting gangs of the highest tier, then of the next.

    With it come values that keep that, whether it is proven, and whether the time limit cut in.
    """
    fewest, late, values = True, False, start
    for number, tier in enumerate(tiers):
        if any(values[i] for i in tier):
            seconds = _seconds_left(deadline) / (len(tiers) - number + 1)
            stage = solver.solve(program.minimising(dict.fromkeys(tier, 1.0)), 0.0, seconds, values)
            fewest = fewest and stage.outcome == "optimal"
            late = late or stage.hit_time_limit
            if stage.values:
                values = {i: float(round(stage.values[i])) for i in values}
        most = sum(values[i] for i in tier)
        program = program.with_rows([ConstraintRow(f"waiting {number}", tuple((i, 1.0) for i in tier), "<=", most)])
    return program, values, fewest, late


def _seconds_left(deadline: float) -> float:
    return max(_LEAST_SECONDS, deadline - time.monotonic())


@dataclass(frozen=True, slots=True)
class _Option:
    """A candidate of a gang: ``usd`` is expected to be paid, ``value`` is what it counts for.

    ``tight`` is its use of limits that can bind.
    """

    candidate: Candidate
    usd: float
    value: float
    tight: LimitUse

    @property
    def rank(self) -> tuple[float, float, str]:
        """Return the sort key, best first."""
        return (self.value, self.usd, self.candidate.key)


class _Table:
    """The options of every gang; each option fits alone into what is left of the limits."""

    def __init__(
        self, wants: Sequence[PlacementRequest], limits: Limits, held: Sequence[LimitUse], money_left: Mapping[str, Usd]
    ) -> None:
        self._wants = {want.name: want for want in sorted(wants, key=lambda want: want.name)}
        if len(self._wants) != len(wants):
            raise ValueError("two gangs have one name")
        self._limits = limits
        self._money = {team: usd.dollars() for team, usd in money_left.items()}
        self._counter = LimitCounter(limits)
        allowed = {
            name: [c for c in want.candidates if want.allowed is None or c.key in want.allowed]
            for name, want in self._wants.items()
        }
        amounts = self._counter.amounts(
            (self._wants[name].job.team, c) for name, found in allowed.items() for c in found
        )
        self._known = {
            name: replace(limit, amount=max(0, limit.amount - sum(use.get(name, 0) for use in held)))
            for name, limit in amounts.items()
        }
        self._tight = self._binding(allowed)
        self._options = {
            name: drop_beaten_options(self._priced(want, allowed[name])) for name, want in self._wants.items()
        }
        self._allowed = sum(len(found) for found in self._options.values())

    def _binding(self, allowed: Mapping[str, Sequence[Candidate]]) -> frozenset[str]:
        """Return the limits that all gangs together could exceed, each with its greediest candidate."""
        use = {
            (name, c.key): self._counter.use(c, self._wants[name].job.team)
            for name, found in allowed.items()
            for c in found
        }
        return binding_limits(allowed, use, self._known)

    def _priced(self, want: PlacementRequest, allowed: Sequence[Candidate]) -> list[_Option]:
        """Return the options that fit alone, best first."""
        options = []
        dearest = max((c.usd_per_hour.dollars() for c in allowed), default=0.0)
        most = self._money.get(want.job.team, math.inf)
        if want.most_usd is not None:
            most = min(most, want.most_usd.dollars())
        moves: dict[RegionId, float] = {}
        for candidate in allowed:
            use = self._counter.use(candidate, want.job.team)
            if any(amount > self._known[name].amount for name, amount in use.items()):
                continue
            if candidate.region not in moves:
                moves[candidate.region] = moves_usd(candidate, self._limits).dollars()
            steps = steps_to_do(want.job, running=candidate.running)
            usd = candidate.usd_per_hour.dollars() * remaining_hours(want.job, candidate) + moves[candidate.region]
            usd += candidate.fallback_usd_per_reserved_hour * steps / candidate.on_time_steps_per_hour
            if math.isfinite(most):  # budgets count the exact amount
                usd = remaining_usd(want.job, candidate, self._limits).dollars()
            if usd > most:
                continue
            late = _WORTH_OF_LATENESS * dearest * candidate.reserved_hours(steps) if want.late else 0.0
            tight = {name: amount for name, amount in use.items() if name in self._tight}
            options.append(_Option(candidate, usd, usd + late, tight))
        if want.order:
            options = _in_order(options, want.order)
        return sorted(options, key=lambda option: option.rank)

    def greedy(self) -> dict[str, str]:
        """Return, gang by gang, the best option that fits: highest priority first, then the fewest options."""
        room = {name: limit.amount for name, limit in self._known.items()}
        money = dict(self._money)
        chosen: dict[str, str] = {}
        for want in sorted(self._wants.values(), key=lambda w: (-w.job.priority, len(self._options[w.name]), w.name)):
            team = want.job.team
            for option in self._options[want.name]:
                if option.usd > money.get(team, math.inf) or any(n > room[p] for p, n in option.tight.items()):
                    continue
                chosen[want.name] = option.candidate.key
                for limit, amount in option.tight.items():
                    room[limit] -= amount
                if team in money:
                    money[team] -= option.usd
                break
        return chosen

    def shorten(self, keep: Mapping[str, str]) -> None:
        """Keep at most ``MOST_CANDIDATES`` options a gang, the one to keep among them."""
        for name, options in self._options.items():
            mixed = _mixed(options, keep.get(name))[:MOST_CANDIDATES]
            self._options[name] = sorted(mixed, key=lambda option: option.candidate.key)

    def program(self) -> tuple[Program, dict[tuple[str, str], int], dict[str, int]]:
        """Return the program over the gangs that have any option, and the indexes of x and u."""
        builder = ProgramBuilder()
        x: dict[tuple[str, str], int] = {}
        u: dict[str, int] = {}
        taken: dict[str, list[tuple[int, float]]] = {}
        paid: dict[str, list[tuple[int, float]]] = {}
        for name, options in self._options.items():
            if not options:
                continue
            u[name] = builder.binary(f"u {name}")
            for option in options:
                i = builder.binary(f"x {name} {option.candidate.key}", cost=option.value)
                x[name, option.candidate.key] = i
                for limit, amount in option.tight.items():
                    taken.setdefault(limit, []).append((i, float(amount)))
                team = self._wants[name].job.team
                if team in self._money:
                    paid.setdefault(team, []).append((i, option.usd))
            places = [(x[name, option.candidate.key], 1.0) for option in options]
            builder.row(f"one place {name}", [*places, (u[name], 1.0)], "==", 1.0)
        for limit, terms in sorted(taken.items()):
            builder.row(f"limit {limit}", terms, "<=", float(self._known[limit].amount))
        for team, terms in sorted(paid.items()):
            builder.row(f"money of team {team}", terms, "<=", self._money[team])
        return builder.build(), x, u

    def tiers(self, u: Mapping[str, int]) -> list[list[int]]:
        """Return the gangs by priority, highest first."""
        priorities = sorted({self._wants[name].job.priority for name in u}, reverse=True)
        return [[i for name, i in u.items() if self._wants[name].job.priority == p] for p in priorities]

    def answer(self, chosen: Mapping[str, str], solution: Solution | None, *, fewest: bool, late: bool) -> Placements:
        """Return the chosen options, priced, with what is proven of them."""
        options = {
            name: next(o for o in self._options[name] if o.candidate.key == key) for name, key in sorted(chosen.items())
        }
        objective = Usd(round(sum(option.value for option in options.values()) * NANOS))
        bound = min(usd_below(solution.bound), objective) if solution is not None else objective
        return Placements(
            placed={name: option.candidate for name, option in options.items()},
            expected_usd={
                name: remaining_usd(self._wants[name].job, option.candidate, self._limits)
                for name, option in options.items()
            },
            waiting=tuple(name for name in self._wants if name not in options),
            fewest_waiting=fewest,
            objective_usd=objective,
            bound_usd=bound,
            gap=(objective - bound).nanos / objective.nanos if objective.nanos > 0 else 0.0,
            hit_time_limit=late or (solution is not None and solution.hit_time_limit),
            looked_at=sum(len(found) for found in self._options.values()),
            of=self._allowed,
        )


def _in_order(options: Sequence[_Option], order: Sequence[str]) -> list[_Option]:
    """Return the options in the given order: each counts for the dearest of them more than the one before it.

    Options that are not in the order come last.
    """
    place = {key: number for number, key in enumerate(order)}
    dearest = max((option.value for option in options), default=0.0)
    return [replace(o, value=o.value + dearest * place.get(o.candidate.key, len(order))) for o in options]


def drop_beaten_options(ranked: Sequence[_Option]) -> list[_Option]:
    """Return the options without those that another beats or equals in dollars and in use of every binding limit.

    This is exact, since a gang takes one place only.
    """
    remaining: list[_Option] = []
    # A rival that takes no more of anything touches no other limit, so it is listed under one of the option's limits.
    by_limit: dict[str, list[_Option]] = {}
    for option in ranked:
        rivals = (rival for limit in ("", *option.tight) for rival in by_limit.get(limit, ()))
        if any(
            rival.usd <= option.usd and all(n <= option.tight.get(limit, 0) for limit, n in rival.tight.items())
            for rival in rivals
        ):
            continue
        remaining.append(option)
        by_limit.setdefault(min(option.tight, default=""), []).append(option)
    return remaining


def _mixed(ranked: Sequence[_Option], keep: str | None) -> list[_Option]:
    """Return the options, first the one to keep, then in rounds over regions and markets, each round best first."""
    seen: dict[tuple[RegionId, str], int] = {}
    rounds: list[tuple[bool, int, int]] = []
    for index, option in enumerate(ranked):
        place = (option.candidate.region, option.candidate.market.value)
        rounds.append((option.candidate.key != keep, seen.get(place, 0), index))
        seen[place] = seen.get(place, 0) + 1
    return [ranked[index] for _, _, index in sorted(rounds)]
