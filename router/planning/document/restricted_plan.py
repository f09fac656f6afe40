"""Restrict a plan to the jobs of some teams, for readers who may see no others. Pure.

Nothing of another team is left: no name, line, budget or reason, and no sum that its jobs are part of. Totals are those
of the jobs that are left. Figures that exist for the whole plan alone are left out: what limits are worth, the bound,
what commitments cost, what left a cloud before.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from pricing.money import ZERO, Usd
from router.jobs.experience import Experience
from router.planning.document.cover import cover_of_part
from router.planning.document.external_costs import external_of_part
from router.planning.document.inputs import PlanInputs
from router.planning.document.plan import (
    Alternative,
    JobSummary,
    Line,
    Plan,
    Preemption,
    Unplaced,
)
from router.planning.document.plan_facts import PlanFacts
from router.planning.document.plan_usage import LimitUsage, PlanUsage, UseStep
from router.planning.document.usage_totals import add_up_use, orders_cost

ANOTHER_JOB = "another team's job"
ANOTHER_TEAM = "another team"
_WORD = re.compile(r"\w(?:[\w.-]*\w)?")
_TIGHT = 1e-6


def restrict_plan(plan: Plan, teams: Collection[str]) -> Plan:
    """Return the part of a plan that is about jobs of these teams; ``restricted_to`` names them."""
    kept = {job.job for job in plan.jobs if job.team in teams}
    names = ForeignNames.of(plan, kept, teams)
    lines = tuple(line for line in plan.lines if line.job in kept)
    moves = tuple(move for move in plan.moves if move.job in kept)
    part = replace(
        plan,
        restricted_to=tuple(sorted(teams)),
        cost_usd=Usd.total([*(line.cost_usd for line in lines), *(move.cost_usd for move in moves)]),
        orders_usd=orders_cost(lines, moves),
        threshold_usd=ZERO,
        bound_usd=ZERO,
        lines=lines,
        moves=moves,
        unplaced=tuple(names.hide_in_unplaced(job) for job in plan.unplaced if job.team in teams),
        shadow_prices=(),
        jobs=tuple(names.hide_in_summary(job) for job in plan.jobs if job.job in kept),
        inputs=_inputs(plan.inputs, lines),
        fair_share=tuple(standing for standing in plan.fair_share if standing.team in teams),
        **external_of_part(plan, lines),
        **cover_of_part(plan, kept),
        learned=_learned(plan.learned, kept),
    )
    return replace(part, usage=_usage(plan.usage, part, teams, names))


@dataclass(frozen=True)
class ForeignNames:
    """The names of other teams and of their jobs, which texts about a job that is kept may hold."""

    jobs: frozenset[str]
    teams: frozenset[str]
    kept: frozenset[str]

    @classmethod
    def of(cls, plan: Plan, kept: Collection[str], teams: Collection[str]) -> ForeignNames:
        known = {job.team for job in plan.jobs} | {standing.team for standing in plan.fair_share}
        known |= {each.team for each in plan.usage.teams}
        jobs = frozenset(job.job for job in plan.jobs if job.job not in kept)
        return cls(jobs, frozenset(known - set(teams) - set(kept)), frozenset(kept))

    def hide(self, text: str) -> str:
        """Return the text with words in place of those names."""
        text = _WORD.sub(lambda match: self._instead(match[0]), text)
        # Names of several words, or with signs in them, longest first.
        for name in sorted((n for n in self.jobs | self.teams if not _WORD.fullmatch(n)), key=len, reverse=True):
            text = text.replace(name, self._instead(name))
        return text

    def _instead(self, word: str) -> str:
        return ANOTHER_JOB if word in self.jobs else ANOTHER_TEAM if word in self.teams else word

    def hide_in_unplaced(self, job: Unplaced) -> Unplaced:
        """Return a job left out without other names in its reasons."""
        changes = tuple(
            replace(each, change=self.hide(each.change), detail=self.hide(each.detail)) for each in job.relaxations
        )
        return replace(job, reason=self.hide(job.reason), relaxations=changes)

    def hide_in_summary(self, job: JobSummary) -> JobSummary:
        """Return a summary without other names in its texts."""
        return replace(
            job,
            runner_up=None if job.runner_up is None else self._hide_in_alternative(job.runner_up),
            alternatives=tuple(self._hide_in_alternative(each) for each in job.alternatives),
            constraint_costs=tuple(
                replace(each, rule=self.hide(each.rule), instead=self.hide(each.instead))
                for each in job.constraint_costs
            ),
            dropped=tuple(replace(each, example=self.hide(each.example)) for each in job.dropped),
            notes=tuple(self.hide(note) for note in job.notes),
            preemption=None if job.preemption is None else self._hide_in_preemption(job.preemption),
            late=None if job.late is None else replace(job.late, why=self.hide(job.late.why)),
        )

    def _hide_in_alternative(self, other: Alternative) -> Alternative:
        return replace(other, lacks=self.hide(other.lacks)) if other.lacks else other

    def _hide_in_preemption(self, preemption: Preemption) -> Preemption:
        by = dict.fromkeys(job if job in self.kept else ANOTHER_JOB for job in preemption.by)
        return replace(preemption, by=tuple(by))


def _inputs(inputs: PlanInputs, lines: Iterable[Line]) -> PlanInputs:
    """Return the limits that the gangs of these lines take, and what they take of them."""
    gangs = {line.gang for line in lines}
    use = tuple(taken for taken in inputs.use if taken.gang in gangs)
    taken_limits = {taken.limit for taken in use}
    return PlanInputs(
        inputs.limits_digest,
        tuple(limit for limit in inputs.limits if limit.name in taken_limits),
        use,
        tuple(source for source in inputs.sources if source.limit in taken_limits),
    )


def _learned(learned: Experience | None, kept: Collection[str]) -> Experience | None:
    """Return what was learned of the speeds of these jobs; pools are known by the runs of all teams."""
    speeds = () if learned is None else tuple(row for row in learned.speeds if row.job in kept)
    return Experience(speeds) if speeds else None


def _usage(
    usage: PlanUsage,
    part: Plan,
    teams: Collection[str],
    names: ForeignNames,
) -> PlanUsage:
    """Return the use of limits and budgets by these teams; what left a cloud before is known of all jobs alone."""
    kept = {job.job for job in part.jobs}
    holds = PlanFacts(part).holds_by_limit
    limits = []
    for limit in usage.limits:
        use = add_up_use([UseStep(hold.start, hold.end, hold.amount) for hold in holds.get(limit.limit, ())])
        if use:
            limits.append(_limit(limit, use))
    return PlanUsage(
        month=usage.month,
        at_risk_usd=part.at_risk_usd,
        limits=tuple(limits),
        teams=tuple(team for team in usage.teams if team.team in teams),
        cost_terms=tuple(terms for terms in usage.cost_terms if terms.job in kept),
        speeds=tuple(speed for speed in usage.speeds if speed.job in kept),
        placement_types=tuple(
            replace(each, why=names.hide(each.why)) for each in usage.placement_types if each.job in kept
        ),
    )


def _limit(limit: LimitUsage, use: tuple[UseStep, ...]) -> LimitUsage:
    full = max(step.used for step in use) >= limit.amount - _TIGHT
    return replace(limit, full=full, use=use)
