"""Start every job as early as the cost found allows, in one piece where that costs nothing: the last stage.

A job's cost on a candidate does not depend on when it runs there (within a month, for what is moved), so there are many
schedules of the same cost. This stage chooses among them by a small program of its own: a column is one unbroken run of
a job from one slot on, or what the job holds already; limits hold in every slot. First the sum of priority-weighted
delays is minimised, then jobs are served in the order of their names: the choice does not depend on the solver's search
path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pricing.money import Usd
from router.jobs.spec import Job
from router.planning.document.cover import committed_jobs
from router.planning.find.affinity import affinity_of
from router.planning.find.candidate import Candidate
from router.planning.find.shared_limits import Load
from router.planning.problem.commitments import has_cover
from router.planning.problem.problem import PlacementProblem
from router.planning.problem.run_costs import compute_usd, objective_usd
from router.planning.problem.schedule import SlotHold, runs_of
from router.planning.program.effort import Effort
from router.planning.program.left_shift import may_begin, run_from
from router.planning.program.solve import PlacementSolution, with_holdings
from router.planning.rules.egress_caps import month_matters
from router.planning.rules.load import add_load
from router.planning.rules.program import ConstraintRow, ProgramBuilder, limit_row

_PHASE = "early starts"
_MOST_COLUMNS = 20_000
_ROUNDING = Usd(1_000)  # a run in two pieces is rounded twice to the microsecond, which adds no more than this
_SAME = 1e-6  # hours
_PLACE = 1e-4  # hours added to the last candidate by name, so that equally early ones are told apart
_HOUR = timedelta(hours=1)


def start_early(answer: PlacementSolution, effort: Effort, fixed: frozenset[str] = frozenset()) -> PlacementSolution:
    """Return the same jobs at the same cost, with the least sum of priority-weighted delays.

    A job is later than it could be only where that gains a job of at least its weight. Jobs that run now stay,
    and so do those that are ``fixed``. Where starting all of them early would lose cover by commitments, jobs that use
    committed spend stay too.
    """
    earlier = _started_early(answer, effort, fixed)
    if earlier is answer and has_cover(answer.problem.limits):
        return _started_early(answer, effort, fixed | committed_jobs(answer.problem, answer.holdings))
    return earlier


def _started_early(answer: PlacementSolution, effort: Effort, fixed: frozenset[str]) -> PlacementSolution:
    options = _options(answer, fixed)
    if sum(len(found) for found in options.values()) > _MOST_COLUMNS:
        effort.stopped(_PHASE)
        return answer
    if all(len(found) == 1 for found in options.values()) or effort.late(_PHASE):
        return answer
    holdings = _chosen(answer, options, effort)
    if holdings is None:
        return answer
    earlier = with_holdings(answer, {**answer.holdings, **holdings})
    return earlier if earlier.spent <= answer.spent + _ROUNDING else answer


@dataclass(frozen=True, slots=True)
class _Option:
    """A way to run a job; ``delay`` is the middle of its last unbroken piece, in hours from ``now``."""

    holds: tuple[SlotHold, ...]
    delay: float


def _options(answer: PlacementSolution, fixed: frozenset[str]) -> dict[str, list[_Option]]:
    """Return each job's options, its present holdings first; jobs without a choice are absent."""
    problem = answer.problem
    options: dict[str, list[_Option]] = {}
    for name in sorted(answer.holdings):
        holds = answer.holdings[name]
        keys = {hold.key for hold in holds}
        candidate = problem.candidate(name, holds[0].key)
        if len(keys) > 1 or candidate.running or name in fixed:
            continue
        job = problem.job[name]
        other_runs = [
            _Option(run, _delay(problem, run)) for c in _equals(answer, job, candidate) for run in _runs(answer, job, c)
        ]
        options[name] = [_Option(holds, _delay(problem, holds)), *(o for o in other_runs if o.holds != holds)]
    return options


def _equals(answer: PlacementSolution, job: Job, here: Candidate) -> list[Candidate]:
    """Return the candidate and those on which the job costs as much or less and moves the same."""
    problem = answer.problem
    present = answer.runs[job.name]
    most_paid, most_counted = compute_usd(present) + _ROUNDING, objective_usd(present) + _ROUNDING
    offered = (here, *(c for c in problem.candidates[job.name] if affinity_of(job) is None or c.region == here.region))
    rivals = {c.key: c for c in offered if not c.running and _as_good(c, here)}
    equals = []
    for _, c in sorted(rivals.items()):
        run = next(iter(_runs(answer, job, c)), None)
        found = () if run is None else runs_of(problem, job, run)
        if found and compute_usd(found) <= most_paid and objective_usd(found) <= most_counted:
            equals.append(c)
    return equals


def _as_good(candidate: Candidate, here: Candidate) -> bool:
    """Return whether the candidate moves the same, has no other doubt, and costs no more at amortised prices."""
    mine, other = here.amortised_usd_per_step, candidate.amortised_usd_per_step
    # An unknown price never counts as lower than another one.
    dearer = other != mine and (mine is None or other is None or other > mine * (1 + 1e-12))
    return candidate.transfers == here.transfers and candidate.weak in ("", here.weak) and not dearer


def _runs(answer: PlacementSolution, job: Job, candidate: Candidate) -> Iterator[tuple[SlotHold, ...]]:
    """Yield unbroken runs from every slot in which one may begin, in order of time; moves stay in their month."""
    problem = answer.problem
    window = problem.slots_for(job, candidate)
    moves = month_matters(problem, candidate)
    month = answer.holdings[job.name][0].slot.month
    for first, slot in enumerate(window):
        if not may_begin(problem, job, candidate, slot) or (moves and slot.month != month):
            continue
        run = run_from(problem, job, candidate, {}, window[first:])
        if run is not None:
            yield run


def _delay(problem: PlacementProblem, holds: Sequence[SlotHold]) -> float:
    """Return the middle of the last unbroken piece of the holdings, in hours from ``now``."""
    first = len(holds) - 1
    while first > 0 and holds[first - 1].slot.index == holds[first].slot.index - 1:
        first -= 1
    last = holds[-1].slot
    end = last.start + last.length * holds[-1].share
    return ((holds[first].slot.start - problem.now) + (end - problem.now)) / 2 / _HOUR


def _chosen(
    answer: PlacementSolution, options: Mapping[str, Sequence[_Option]], effort: Effort
) -> dict[str, tuple[SlotHold, ...]] | None:
    """Return the chosen holdings by job; None when no choice was found in time."""
    problem = answer.problem
    builder = ProgramBuilder()
    columns = {
        (name, number): builder.binary(f"{name} {number}")
        for name, found in options.items()
        for number in range(len(found))
    }
    for name, found in options.items():
        builder.row(f"one {name}", [(columns[name, n], 1.0) for n in range(len(found))], "==", 1.0)
    for row in _limit_rows(answer, options, columns):
        builder.rows.append(row)
    program = builder.build()
    tiers = {p: float(rank) for rank, p in enumerate(sorted({job.priority for job in problem.jobs}), start=1)}
    weighted = {
        i: tiers[problem.job[name].priority] * options[name][number].delay for (name, number), i in columns.items()
    }
    start = {i: float(number == 0) for (_, number), i in columns.items()}
    first = effort.solve(_PHASE, program.minimising(weighted), 0.0, start)
    if not first.values:
        return None
    values = first.values
    if first.outcome == "optimal":
        within_delay = program.with_rows(
            [ConstraintRow("delay", tuple(weighted.items()), "<=", first.objective + _SAME)]
        )
        start_values = {i: float(round(value)) for i, value in enumerate(values)}
        second = effort.solve(_PHASE, within_delay.minimising(_by_name(options, columns)), 0.0, start_values)
        values = second.values or values
    return {name: options[name][number].holds for (name, number), i in columns.items() if values[i] > 0.5}


def _by_name(options: Mapping[str, Sequence[_Option]], columns: Mapping[tuple[str, int], int]) -> dict[int, float]:
    """Return delays weighted by the order of the jobs' names, then of the candidates' keys."""
    rank = {name: len(options) - place for place, name in enumerate(sorted(options))}
    keys = sorted({option.holds[0].key for found in options.values() for option in found})
    place = {key: number / (1 + len(keys)) for number, key in enumerate(keys)}
    return {
        i: rank[name] * (options[name][number].delay + _PLACE * place[options[name][number].holds[0].key])
        for (name, number), i in columns.items()
    }


def _limit_rows(
    answer: PlacementSolution, options: Mapping[str, Sequence[_Option]], columns: Mapping[tuple[str, int], int]
) -> list[ConstraintRow]:
    """Return rows for every slot in which the options could exceed what the limits leave.

    The limits are those left by the jobs without a choice.
    """
    problem = answer.problem
    fixed: Load = {}
    for name, holds in answer.holdings.items():
        if name not in options:
            add_load(fixed, problem, problem.job[name], holds, 1.0)
    terms: dict[tuple[str, int], list[tuple[int, float]]] = {}
    most: dict[tuple[str, int], dict[str, float]] = {}
    for (name, number), i in columns.items():
        taken: Load = {}
        add_load(taken, problem, problem.job[name], options[name][number].holds, 1.0)
        for place, amount in taken.items():
            terms.setdefault(place, []).append((i, amount))
            peak = most.setdefault(place, {})
            peak[name] = max(peak.get(name, 0.0), amount)
    rows = []
    for (limit, index), found in sorted(terms.items()):
        if limit not in problem.shared:
            continue  # A cap on egress: all options of a job move the same in the same month.
        room = problem.shared[limit].amount - fixed.get((limit, index), 0.0)
        if sum(most[limit, index].values()) > room + _SAME:
            rows.append(ConstraintRow(limit_row(limit, index), tuple(found), "<=", room))
    return rows
