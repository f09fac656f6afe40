"""Three rules of where and when jobs run: the cheapest sticker price, the cheapest expected step, and a plan."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from pricing.places import Market
from router.planning.document.plan import Line, Plan
from router.planning.find.candidate import Candidate
from tests.support.rule_simulator import TICK, JobState, Rule, RuleNight, Stage


def _is_sure(candidate: Candidate) -> bool:
    return all(part.offer.market is not Market.SPOT for part in candidate.parts)


class LeavableRule(Rule, Protocol):
    """A rule that is told where somebody else decided for a job."""

    def leave(self, job: str) -> None: ...


class GuardedRule:
    """A rule with the guard; jobs without a deadline, and those that not even on demand is in time, are the rule's."""

    def __init__(self, night: RuleNight, inner: LeavableRule) -> None:
        self.inner = inner
        self.name = f"{inner.name}, guarded"
        self.sure = {
            job: tuple(sorted((c for c in found if _is_sure(c)), key=lambda c: (-c.on_time_steps_per_hour, c.key)))
            for job, found in night.candidates.items()
        }
        self.hurried: set[str] = set()

    def order(self, waiting: Sequence[JobState]) -> Sequence[JobState]:
        return sorted(self.inner.order(waiting), key=lambda s: s.job.name not in self.hurried)

    def choose(self, state: JobState, hour: float, stage: Stage) -> Candidate | None:
        name = state.job.name
        if name in self.hurried or self._is_last_moment(state, hour, stage):
            found = list(self._in_time(state, state.steps_left, hour, stage))
            if found:
                self.hurried.discard(name)
                self.inner.leave(name)
                return min(found, key=lambda c: (stage.expected_usd(state, c), c.key))
        self.hurried.discard(name)
        return None if state.wait_until > hour else self.inner.choose(state, hour, stage)

    def stops(self, state: JobState, hour: float, stage: Stage) -> bool:
        c = state.running
        if c is not None and c not in self.sure[state.job.name] and self._is_last_moment(state, hour, stage):
            self.hurried.add(state.job.name)
            return True
        return self.inner.stops(state, hour, stage)

    def hurries(self, state: JobState, hour: float, stage: Stage) -> bool:
        return state.has_started and self._is_last_moment(state, hour, stage)

    def leave(self, job: str) -> None:
        self.inner.leave(job)

    def _is_last_moment(self, state: JobState, hour: float, stage: Stage) -> bool:
        """Whether what is not spot would be on time now, and no more so after another tick."""
        if not state.has_started or math.isinf(state.deadline):
            return False
        steps, leaving = state.steps_left, 0.0
        if state.running is not None:
            steps -= state.steps_kept(by_hand=False)
            leaving = state.running.risk.stall_hours
        if self._is_in_time(state, steps, hour + leaving + 2 * TICK, stage):
            return False
        return self._is_in_time(state, steps, hour + leaving, stage)

    def _is_in_time(self, state: JobState, steps: float, hour: float, stage: Stage) -> bool:
        return any(True for _ in self._in_time(state, steps, hour, stage))

    def _in_time(self, state: JobState, steps: float, hour: float, stage: Stage) -> Iterator[Candidate]:
        """Yield what is not spot, has room now and is on time with that many steps from the hour on."""
        for c in self.sure[state.job.name]:
            if hour + stage.reserved_hours(state, c, steps) <= state.deadline and stage.has_room(state.job.name, c):
                yield c


_DONE = 1e-6
_SLOT = 1.0  # hours between two tries


def _in_turn(waiting: Iterable[JobState]) -> list[JobState]:
    """By priority, then name; what runs already keeps its place first."""
    return sorted(waiting, key=lambda s: (not _goes_on(s), -s.job.priority, s.job.name))


def _goes_on(state: JobState) -> bool:
    return not state.has_started and state.job.status is not None and state.job.status.running is not None


class StickerRule:
    """Cheapest $/h in turn: of all gangs with room now the one with the lowest price, and it starts at once.

    Nothing is said of speed, deadlines, interruptions or moves. A job that runs already stays.
    """

    name = "sticker price"

    def __init__(self, night: RuleNight) -> None:
        self.ranked = {
            job: tuple(sorted(found, key=lambda c: (c.usd_per_hour.nanos, c.key)))
            for job, found in night.candidates.items()
        }

    def order(self, waiting: Sequence[JobState]) -> Sequence[JobState]:
        return _in_turn(waiting)

    def choose(self, state: JobState, hour: float, stage: Stage) -> Candidate | None:
        ranked = self.ranked[state.job.name]
        if hour == 0 and _goes_on(state):
            ranked = tuple(sorted(ranked, key=lambda c: not c.running))
        for candidate in ranked:
            if stage.has_room(state.job.name, candidate) and stage.moves(state, candidate) is not None:
                return candidate
        state.gave_up = not ranked or (not state.has_started and hour >= state.deadline)
        return None

    def leave(self, job: str) -> None:
        return None

    def stops(self, state: JobState, hour: float, stage: Stage) -> bool:
        return False

    def hurries(self, state: JobState, hour: float, stage: Stage) -> bool:
        return False


class StepRule:
    """Cheapest expected cost of the rest in turn, among gangs with room now that meet the deadline.

    A job waits while a gang without room could still meet it. Where none can any more, a job that has not started gives
    up, and one that has goes on where that is cheapest.
    """

    name = "cost a step"

    def __init__(self, night: RuleNight) -> None:
        self.candidates = night.candidates

    def order(self, waiting: Sequence[JobState]) -> Sequence[JobState]:
        return _in_turn(waiting)

    def choose(self, state: JobState, hour: float, stage: Stage) -> Candidate | None:
        candidates = self.candidates[state.job.name]
        if hour == 0 and _goes_on(state):
            here = next((c for c in candidates if c.running and stage.has_room(state.job.name, c)), None)
            if here is not None:
                return here
        return self.cheapest(state, candidates, hour, stage)

    def cheapest(self, state: JobState, candidates: Sequence[Candidate], hour: float, stage: Stage) -> Candidate | None:
        """The cheapest gang to start now, None to wait."""
        on_time = [c for c in candidates if stage.can_be_on_time(state, c, hour)]
        room = [c for c in on_time if stage.has_room(state.job.name, c)]
        if not room and not any(stage.can_be_on_time(state, c, hour + _SLOT) for c in on_time):
            if not state.has_started:
                state.gave_up = True
                return None
            room = [c for c in candidates if stage.has_room(state.job.name, c)]
        costs = {c.key: stage.expected_usd(state, c) for c in room}
        best = min(room, key=lambda c: (costs[c.key], c.key), default=None)
        return best if best is not None and costs[best.key] < float("inf") else None

    def leave(self, job: str) -> None:
        return None

    def stops(self, state: JobState, hour: float, stage: Stage) -> bool:
        return False

    def hurries(self, state: JobState, hour: float, stage: Stage) -> bool:
        return False


@dataclass(frozen=True)
class _Part:
    """One unbroken run of a job on one candidate in a plan; ``upto`` steps of the job are done at its end."""

    candidate: Candidate
    start: float
    upto: float


class PlanRule:
    """A plan carried out: each job starts its parts at their times and on their gangs, and does their steps there.

    A job that is behind goes on with its part as long as that takes. One that finds no room tries again each slot;
    where waiting longer would miss the deadline, it takes what :class:`StepRule` would take, and leaves the plan. Jobs
    that the plan leaves out do not run; those that it has late wait for their place.
    """

    name = "plan"

    def __init__(self, night: RuleNight, plan: Plan) -> None:
        self.parts = {job.name: _parts(night, job.name, plan) for job in night.jobs}
        self.steps = {name: parts[-1].upto if parts else 0.0 for name, parts in self.parts.items()}
        self.fallback = StepRule(night)
        self.left_plan: set[str] = set()
        self.late = {job.job for job in plan.jobs if job.late is not None}

    def order(self, waiting: Sequence[JobState]) -> Sequence[JobState]:
        return sorted(waiting, key=lambda s: (not _goes_on(s), self._start(s), -s.job.priority, s.job.name))

    def leave(self, job: str) -> None:
        """Let the job run where it was taken to, whatever the plan has for it."""
        self.left_plan.add(job)

    def choose(self, state: JobState, hour: float, stage: Stage) -> Candidate | None:
        part = self._part(state)
        if part is None:
            state.gave_up = True
            return None
        if state.job.name not in self.left_plan:
            if hour < part.start - _DONE:
                return None
            if stage.has_room(state.job.name, part.candidate) and (
                not state.has_started
                or state.job.name in self.late
                or stage.can_be_on_time(state, part.candidate, hour)
            ):
                return part.candidate
            if state.job.name in self.late or stage.can_be_on_time(state, part.candidate, hour + _SLOT):
                return None
        found = self.fallback.cheapest(state, self.fallback.candidates[state.job.name], hour, stage)
        if found is not None:
            self.left_plan.add(state.job.name)
        return found

    def hurries(self, state: JobState, hour: float, stage: Stage) -> bool:
        return False

    def stops(self, state: JobState, hour: float, stage: Stage) -> bool:
        """Whether the next part is elsewhere or later; a job that left the plan stays."""
        if state.job.name in self.left_plan or state.running is None:
            return False
        part = self._part(state, state.steps_kept(by_hand=True))
        if part is None or part is self._part_of_life(state):
            return False
        return part.candidate.key != state.running.key or part.start > hour + _DONE

    def _part_of_life(self, state: JobState) -> _Part | None:
        return self._part(state)

    def _part(self, state: JobState, more: float = 0.0) -> _Part | None:
        """The first part whose steps are not done yet."""
        parts = self.parts[state.job.name]
        if not parts:
            return None
        done = self.steps[state.job.name] - state.steps_left + more
        return next((part for part in parts if done < part.upto - max(1.0, _DONE * part.upto)), parts[-1])

    def _start(self, state: JobState) -> float:
        part = self._part(state)
        return part.start if part is not None else 0.0


def _parts(night: RuleNight, job: str, plan: Plan) -> tuple[_Part, ...]:
    """The job's lines as parts in time order, adjoining lines on one candidate joined."""
    gangs: dict[str, list[Line]] = defaultdict(list)
    for line in plan.lines:
        if line.job == job:
            gangs[line.gang].append(line)
    known = {_offers_of(c): c for c in night.candidates[job]}
    joined: list[tuple[Candidate, datetime, datetime, float]] = []
    for lines in sorted(gangs.values(), key=lambda lines: (lines[0].start, lines[0].gang)):
        candidate = known[_offers_of_lines(lines)]
        steps = float(sum(line.steps for line in lines))
        before = joined[-1] if joined else None
        if before is not None and before[0] is candidate and before[2] == lines[0].start:
            joined[-1] = (candidate, before[1], lines[0].end, before[3] + steps)
        else:
            joined.append((candidate, lines[0].start, lines[0].end, steps))
    parts, upto = [], 0.0
    for candidate, start, _, steps in joined:
        upto += steps
        parts.append(_Part(candidate, (start - night.now) / timedelta(hours=1), upto))
    return tuple(parts)


_Offers = tuple[tuple[str, ...], ...]


def _offers_of(candidate: Candidate) -> _Offers:
    return tuple(
        sorted(
            (o.cloud, o.region, o.zone or "", o.instance_type, o.market.value, str(part.machines), o.source)
            for part in candidate.parts
            for o in (part.offer,)
        )
    )


def _offers_of_lines(lines: Iterable[Line]) -> _Offers:
    return tuple(
        sorted(
            (x.cloud, x.region, x.zone or "", x.instance_type, x.market, str(x.machines), x.price_source) for x in lines
        )
    )


def rules_of(night: RuleNight, plan: Plan) -> Mapping[str, Rule]:
    """Return the rules by name, made anew: a rule remembers what happened in its world."""
    rules = (
        StickerRule(night),
        StepRule(night),
        PlanRule(night, plan),
        GuardedRule(night, StepRule(night)),
        GuardedRule(night, PlanRule(night, plan)),
    )
    return {rule.name: rule for rule in rules}
