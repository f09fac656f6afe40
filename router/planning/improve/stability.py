"""Keep jobs where the previous plan placed them, unless moving saves enough: the stage before early starts.

Within the gap there are many plans, and two searches may end at different ones. A job that the previous plan placed and
that has not started is put back to its place and start if limits, budgets and deadline allow it, if that costs less
than the least saving more, and if the plan then still keeps the gap asked for. Where the search ended above that gap,
all that is put back may cost that share of the plan. The bound stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pricing.money import Usd
from router.jobs.spec import Job
from router.planning.document.costing import moves_of
from router.planning.document.cover import covered_usd
from router.planning.document.plan import Line, Plan
from router.planning.find.affinity import affinity_of
from router.planning.find.allowances import has_allowance
from router.planning.find.candidate import Candidate
from router.planning.find.shared_limits import Load
from router.planning.improve.equal_jobs import exchange_equal_jobs, lines_by_gang, place_of, place_of_lines
from router.planning.problem.problem import PlacementProblem, most_starts
from router.planning.problem.run_costs import compute_usd, objective_usd
from router.planning.problem.schedule import ScheduledRun, SlotHold, runs_of, starts_of
from router.planning.program.effort import Effort
from router.planning.program.left_shift import earliest_run, may_begin
from router.planning.program.solve import PlacementSolution, most_to_stay, threshold_of, with_holdings
from router.planning.rules.budgets import overspends
from router.planning.rules.job_groups import are_together
from router.planning.rules.load import add_load, fits_beside

LEAST_USD = Usd(1_000_000_000)
LEAST_SHARE = 100  # of the job's cost: one hundredth
_PHASE = "stability"
_TRIES = 8
_MOST_GROUPED = 300  # jobs that are compared pair by pair
_TOLERANCE = timedelta(milliseconds=1)
_STARTS = 1e-6  # of a start: shares of slots take shares of starts
_ROUNDING = 1_000  # nano-dollars; another start is rounded anew to the microsecond


def keep_previous(
    answer: PlacementSolution, previous: Plan, least_saving: Usd | None, gap: float, effort: Effort
) -> tuple[PlacementSolution, frozenset[str]]:
    """Return the answer with jobs put back to the previous plan's places, and the jobs that are at theirs now.

    No job that is put back costs ``least_saving`` more than in ``answer`` (None: the larger of $1 and 1 % of its cost
    there); of jobs that exchanged places the sum counts, and together they may go back for no more than they cost now.
    Jobs that run now are left alone.
    """
    answer = exchange_equal_jobs(answer, previous)
    targets = _targets(answer, previous)
    if not targets:
        return answer, frozenset()
    restoring = _Restoring(answer, gap, {name: _least_saving(answer, name, least_saving) for name in targets})
    jobs = sorted((answer.problem.job[name] for name in targets), key=lambda job: (-job.priority, job.name))
    _put_back_singly(restoring, jobs, targets, effort)
    everybody = [targets[job.name] for job in jobs]
    # A search that ran out of time may have left the previous plan far behind: it comes back as a whole, if at all.
    if not all(map(restoring.is_at_place, everybody)) and not effort.late(_PHASE):
        restoring.put_back(everybody, restoring.movable(targets), shifted=True)
        restoring.put_back(everybody, restoring.movable(targets), shifted=True, together=True)
    for contenders in restoring.contenders(everybody):
        if effort.late(_PHASE):
            break
        restoring.put_back(contenders, restoring.movable(targets))
        restoring.put_back(contenders, restoring.movable(targets), together=True)
    _put_back_singly(restoring, jobs, targets, effort)
    at_place = frozenset(name for name, target in targets.items() if restoring.is_at_place(target))
    return restoring.answer(), at_place


@dataclass(frozen=True)
class _Target:
    """A job's place and start in the previous plan.

    ``holds`` are the same slots and shares, ``shifted`` those as long after now as they were after the previous plan's
    moment; None where they do not carry today's steps. ``candidate`` is None where the job ran on several.
    """

    job: Job
    keys: frozenset[str]
    candidate: Candidate | None
    start: datetime
    holds: tuple[SlotHold, ...] | None
    shifted: tuple[SlotHold, ...] | None


def _least_saving(answer: PlacementSolution, name: str, least_saving: Usd | None) -> Usd:
    if least_saving is not None:
        return least_saving
    return max(LEAST_USD, Usd(compute_usd(answer.runs[name]).nanos // LEAST_SHARE))


def _targets(answer: PlacementSolution, previous: Plan) -> dict[str, _Target]:
    """Return the targets of the placed jobs that have not started and whose previous places are candidates now."""
    problem, elapsed = answer.problem, answer.problem.now - previous.as_of
    targets = {}
    for name, gangs in lines_by_gang(previous).items():
        if name not in answer.holdings:
            continue
        by_parts = {place_of(candidate): candidate for candidate in reversed(problem.all_candidates[name])}
        places = [(by_parts.get(place_of_lines(gang)), gang[0]) for gang in gangs.values()]
        found = [(candidate, line) for candidate, line in places if candidate is not None]
        runs_now = any(candidate.running for candidate in problem.all_candidates[name])
        if len(found) == len(places) and not runs_now:
            candidates = {candidate.key: candidate for candidate, _ in found}
            later = [(c, replace(x, start=x.start + elapsed, end=x.end + elapsed)) for c, x in found]
            targets[name] = _Target(
                problem.job[name],
                frozenset(candidates),
                found[0][0] if len(candidates) == 1 else None,
                min(line.start for _, line in found),
                _holds_again(problem, problem.job[name], found),
                _holds_again(problem, problem.job[name], later),
            )
    return targets


def _holds_again(
    problem: PlacementProblem, job: Job, lines: Iterable[tuple[Candidate, Line]]
) -> tuple[SlotHold, ...] | None:
    """Return the slots that the lines held; None where they are not all free to use, or carry fewer steps than needed.

    Slots need not be those of the previous plan: a slot counts from the line that covers its start.
    """
    holds: list[SlotHold] = []
    for candidate, line in lines:
        own = [slot for slot in problem.slots_for(job, candidate) if line.start <= slot.start < line.end]
        holds += [SlotHold(slot, candidate.key, 1.0 if slot.order else line.share) for slot in own]
    if not holds:
        return None
    holds.sort(key=lambda hold: (hold.slot.index, hold.key))
    again = tuple(holds)
    try:
        runs = runs_of(problem, job, again)
    except RuntimeError:  # Steps were added, or the slots are others: the previous slots are too few.
        return None
    held = sum((hold.slot.length * hold.share for hold in again), timedelta(0))
    used = sum((run.productive + run.candidate.startup * run.startups for run in runs), timedelta(0))
    most = most_starts(job)
    if most is not None and starts_of(runs) > most + _STARTS:
        return None
    return again if used <= held + _TOLERANCE and may_begin(problem, job, runs[0].candidate, again[0].slot) else None


def _put_back_singly(
    restoring: _Restoring, jobs: Sequence[Job], targets: Mapping[str, _Target], effort: Effort
) -> None:
    """Put back job after job until no more of them can be."""
    changed = True
    while changed:
        changed = False
        for job in jobs:
            if effort.late(_PHASE):
                return
            target = targets[job.name]
            if not restoring.is_back(target) and restoring.put_back((target,)):
                changed = True


class _Restoring:
    """The holdings while jobs are put back; what limits have left is kept up to date."""

    def __init__(self, answer: PlacementSolution, gap: float, least_savings: Mapping[str, Usd]) -> None:
        self._start, self._least_savings = answer, least_savings
        self._most = most_to_stay(answer.spent.nanos, answer.bound_usd.nanos, gap)
        self._problem: PlacementProblem = answer.problem
        self._holdings, self._runs = dict(answer.holdings), dict(answer.runs)
        self._spent = answer.spent
        self._load: Load = {}
        for name, holds in self._holdings.items():
            add_load(self._load, self._problem, self._problem.job[name], holds, 1.0)

    def answer(self) -> PlacementSolution:
        """Return the answer with what was put back; the same object where nothing was."""
        if all(holds is self._start.holdings.get(name) for name, holds in self._holdings.items()):
            return self._start
        return with_holdings(self._start, self._holdings)

    def is_at_place(self, target: _Target) -> bool:
        """Return whether the job runs on its previous candidates alone."""
        return {hold.key for hold in self._holdings[target.job.name]} == target.keys

    def is_back(self, target: _Target) -> bool:
        """Return whether the job holds what it held; where that cannot be had, whether place and start are the same."""
        holds = self._holdings[target.job.name]
        if target.holds is not None:
            return holds == target.holds
        first = holds[0].slot
        return self.is_at_place(target) and first.start <= max(target.start, self._problem.now) < first.end

    def put_back(
        self,
        targets: Sequence[_Target],
        movable: Sequence[Job] = (),
        *,
        shifted: bool = False,
        together: bool = False,
    ) -> bool:
        """Put back these jobs together where that is allowed; return whether anything changed.

        With ``shifted`` each holds what it held, as long after now. With ``together`` what one of them saves where it
        is now does not count, and all of them may cost no more. With either, more have to be at their places than are.

        Jobs that are ``movable``, and targets that find no room, may start at another time at the place that they have.
        A job that then finds none at all is served first in the next try.
        """
        by_name = {target.job.name: target for target in targets}
        jobs = {**{job.name: job for job in movable}, **{target.job.name: target.job for target in targets}}
        before = {name: self._holdings[name] for name in jobs}
        first: list[str] = []
        for _ in range(_TRIES):
            for name, job in jobs.items():
                self._holdings[name] = before[name]
                self._take(job, -1.0)
            trial, without_room = self._trial(by_name, jobs, first, shifted=shifted, together=together)
            back = [name for name, holds in trial.items() if name in by_name and name not in first]
            changed = [name for name, holds in trial.items() if holds != before[name]]
            self._holdings.update({name: trial[name] for name in changed} if not without_room else {})
            for job in jobs.values():
                self._take(job, 1.0)
            if not without_room:
                is_better = any(name in back for name in changed)
                if shifted or together:
                    is_better = self._places(by_name, self._holdings) > self._places(by_name, before)
                if is_better and self._is_allowed(changed, () if together else back):
                    return True
                break
            first.insert(0, without_room)
        for name, job in jobs.items():
            self._take(job, -1.0)
            self._holdings[name] = before[name]
            self._take(job, 1.0)
        return False

    @staticmethod
    def _places(targets: Mapping[str, _Target], holdings: Mapping[str, tuple[SlotHold, ...]]) -> int:
        """Return how many of the jobs are at their previous places alone."""
        return sum({hold.key for hold in holdings[name]} == target.keys for name, target in targets.items())

    def _trial(
        self,
        targets: Mapping[str, _Target],
        jobs: Mapping[str, Job],
        first: Sequence[str],
        *,
        shifted: bool,
        together: bool,
    ) -> tuple[dict[str, tuple[SlotHold, ...]], str]:
        """Return new holdings of these jobs, whose old ones are not counted, and the job without room ("" for none)."""
        trial: dict[str, tuple[SlotHold, ...]] = {}
        ranked = sorted(targets.values(), key=lambda t: (-t.job.priority, t.start, t.job.name))
        rest = sorted(jobs.values(), key=lambda j: (-j.priority, j.name))
        steps = [(name, False) for name in first]
        steps += [(target.job.name, True) for target in ranked if target.job.name not in first]
        steps += [(job.name, False) for job in rest if job.name not in first]
        without_room = ""
        for name, is_back in steps:
            if name in trial:
                continue
            job, target = jobs[name], targets.get(name)
            if is_back and target is not None:
                holds = target.shifted if shifted else None
                if holds is None or self._present(job, holds) is None:
                    holds = self._run_of(target)
                if holds is None or not (together or self._is_worth(job, holds)):
                    continue
            else:
                holds = self._present(job, self._holdings[name]) or self._elsewhen(job, self._holdings[name], target)
                if holds is None:
                    without_room = name
                    break
            trial[name] = holds
            add_load(self._load, self._problem, job, holds, 1.0)
        for name, holds in trial.items():
            add_load(self._load, self._problem, jobs[name], holds, -1.0)
        return trial, without_room

    def contenders(self, targets: Sequence[_Target]) -> list[tuple[_Target, ...]]:
        """Return all jobs that are not back together, then those that contend with each other for limits.

        Of many jobs there is nothing but all of them.
        """
        away = [target for target in targets if not self.is_back(target)]
        sets: list[list[_Target]] = []
        for target in away if len(away) <= _MOST_GROUPED else ():
            near = [contending for contending in sets if any(self._contend(target, other) for other in contending)]
            sets = [contending for contending in sets if contending not in near]
            sets.append([target, *(other for contending in near for other in contending)])
        whole = [tuple(away)] if away else []
        return whole + [tuple(contending) for contending in sets if 1 < len(contending) < len(away)]

    def movable(self, targets: Mapping[str, _Target]) -> tuple[Job, ...]:
        """Return the jobs that may start at another time: on one candidate, not running, not at place and start."""
        problem = self._problem
        return tuple(
            problem.job[name]
            for name, holds in self._holdings.items()
            if not (name in targets and self.is_back(targets[name]))
            and len({hold.key for hold in holds}) == 1
            and not problem.candidate(name, holds[0].key).running
        )

    def _contend(self, first: _Target, second: _Target) -> bool:
        """Return whether one of the jobs holds a limit that can bind and that the other one's place needs."""

        def needs(target: _Target) -> set[str]:
            keys = {limit for key in target.keys for limit in self._problem.use[target.job.name, key]}
            return keys & self._problem.binding

        def takes(target: _Target) -> set[str]:
            keys = {hold.key for hold in self._holdings[target.job.name]}
            return {limit for key in keys for limit in self._problem.use[target.job.name, key]}

        return bool(needs(first) & takes(second) or needs(second) & takes(first))

    def _is_worth(self, job: Job, holds: tuple[SlotHold, ...]) -> bool:
        """Return whether the job's machines there cost less than the least saving more than where it is now."""
        fresh = objective_usd(runs_of(self._problem, job, holds))
        more = (fresh - objective_usd(self._runs[job.name])).nanos
        return more <= _ROUNDING or more < self._least_savings[job.name].nanos

    def _take(self, job: Job, sign: float) -> None:
        add_load(self._load, self._problem, job, self._holdings[job.name], sign)

    def _run_of(self, target: _Target) -> tuple[SlotHold, ...] | None:
        """Return what the job held, else a run at its place and start, else the earliest at its place after that start.

        For a job that is at its place, a run that is no nearer to the previous start is none.
        """
        problem, job, candidate = self._problem, target.job, target.candidate
        if target.holds is not None and self._present(job, target.holds) is not None:
            return target.holds
        if candidate is None:
            return None
        start = max(target.start, problem.now)
        window = tuple(slot for slot in problem.slots_for(job, candidate) if slot.end > start)
        run = earliest_run(problem, job, candidate, self._load, window)
        run = run or earliest_run(problem, job, candidate, self._load)
        if run is None or not self.is_at_place(target):
            return run
        delays = [abs(holds[0].slot.start - start) for holds in (run, self._holdings[job.name])]
        return run if delays[0] < delays[1] else None

    def _present(self, job: Job, holds: tuple[SlotHold, ...]) -> tuple[SlotHold, ...] | None:
        """Return the job's holdings if the limits leave room for them; None if not."""
        return holds if fits_beside(self._problem, job, holds, self._load) else None

    def _elsewhen(self, job: Job, holds: tuple[SlotHold, ...], target: _Target | None) -> tuple[SlotHold, ...] | None:
        """Return the earliest run on the candidate that the job has, else on its previous one; None without room."""
        candidates = [self._problem.candidate(job.name, key) for key in dict.fromkeys(hold.key for hold in holds)]
        if target is not None and target.candidate is not None:
            candidates.append(target.candidate)
        runs = (earliest_run(self._problem, job, candidate, self._load) for candidate in candidates)
        return next((run for run in runs if run is not None), None)

    def _is_allowed(self, changed: Sequence[str], back: Sequence[str]) -> bool:
        """Return whether cost, gap and budgets allow the new holdings; if so, keep the runs and the cost.

        Only jobs that come ``back`` may make the plan dearer.
        """
        problem = self._problem
        if any(affinity_of(problem.job[name]) for name in changed) and not are_together(problem, self._holdings):
            return False
        fresh = {name: runs_of(problem, problem.job[name], self._holdings[name]) for name in changed}
        more = self._extra(fresh).nanos
        spent = self._spent + Usd(more)
        if more > _ROUNDING:
            least = sum(self._least_savings[name].nanos for name in changed if name in back)
            if more >= least or spent.nanos > self._most:
                return False
        bounded = [name for name in changed if has_allowance(problem.limits, problem.job[name])]
        runs = {**self._runs, **fresh} if bounded else {}
        if any(overspends(problem, runs, name) for name in bounded):
            return False
        self._runs.update(fresh)
        self._spent = spent
        return True

    def _extra(self, fresh: Mapping[str, tuple[ScheduledRun, ...]]) -> Usd:
        """Return what the fresh runs cost more, thresholds included; moves count over the whole plan."""
        problem = self._problem
        old = {name: self._runs[name] for name in fresh}
        more = Usd.total(objective_usd(found) for found in fresh.values()) + threshold_of(problem, fresh)
        more -= Usd.total(objective_usd(found) for found in old.values()) + threshold_of(problem, old)
        if any(run.candidate.transfers for found in (*fresh.values(), *old.values()) for run in found):
            both = ({**self._runs, **fresh}, self._runs)
            moves, moved = (Usd.total(m.cost_usd for m in moves_of(problem, runs)) for runs in both)
            more += moves - moved
        return more + covered_usd(problem, self._runs) - covered_usd(problem, {**self._runs, **fresh})
