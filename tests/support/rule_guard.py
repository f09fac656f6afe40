"""The guard of deadlines around a rule: what is not spot, while there is just time enough for it.

Written from the words of PLANNING-MODEL 4, apart from the product's own guard: at the last tick where a job on spot,
stopped and started from its last checkpoint on machines that are not spot, would still be on time, it goes there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

from pricing.places import Market
from router.planning.find.candidate import Candidate
from tests.support.rule_simulator import JobState, Rule, RuleNight, Stage
from tests.support.rule_world import TICK


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
