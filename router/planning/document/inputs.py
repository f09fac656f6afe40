"""Record what a plan was made with beside jobs and prices: its limits, and what each gang takes of them.

Comparing two plans needs this. It stands outside the plan's digest: it decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from router.planning.find.limit_kinds import stated_limits

if TYPE_CHECKING:
    # A plan holds these values, and reading one needs no solver.
    from router.jobs.limits import Limits
    from router.planning.problem.problem import PlacementProblem
    from router.planning.problem.schedule import ScheduledRun


@dataclass(frozen=True, slots=True)
class LimitAmount:
    """How much a limit allows at every instant, in ``unit``; also the capacity of an offer that a gang uses."""

    name: str
    amount: int
    unit: str


@dataclass(frozen=True, slots=True)
class GangUse:
    """How much one gang of the plan takes of a limit while it holds its machines."""

    gang: str
    limit: str
    amount: int


@dataclass(frozen=True, slots=True)
class LimitSource:
    """A limit or reservation that was read from a cloud at ``read_at``, with what the limits file says of the same.

    ``source`` names the reading; ``in_file`` is None where the file has no such limit. The smaller amount binds.
    """

    limit: str
    source: str
    read_at: datetime
    read: int
    in_file: int | None
    unit: str

    @property
    def binds_by_file(self) -> bool:
        """Return whether the file's amount is the smaller one."""
        return self.in_file is not None and self.in_file <= self.read


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """The limits of a plan by name, and their use by gang; all sorted. Budgets are in the plan's usage.

    ``limits_digest`` covers the whole limits file with hard budgets, spending and shortages, as it was planned with.
    ``sources`` are the limits that were read from clouds; empty where none were.
    """

    limits_digest: str
    limits: tuple[LimitAmount, ...]
    use: tuple[GangUse, ...]
    sources: tuple[LimitSource, ...] = ()


def plan_inputs(
    limits: Limits,
    problem: PlacementProblem,
    runs: Mapping[str, Sequence[ScheduledRun]],
    sources: tuple[LimitSource, ...] = (),
) -> PlanInputs:
    """Return the inputs of a plan with these runs; gangs are named and numbered as its lines are.

    Of the capacities of offers, those that a gang uses count.
    """
    use = [
        GangUse(f"{name}/{number}", limit, amount)
        for name, found in runs.items()
        for number, run in enumerate(found, start=1)
        for limit, amount in problem.use[name, run.candidate.key].items()
    ]
    amounts = {limit.name: LimitAmount(limit.name, limit.amount, limit.unit) for limit in stated_limits(limits)}
    for taken in use:
        shared = problem.shared[taken.limit]
        amounts.setdefault(taken.limit, LimitAmount(shared.name, shared.amount, shared.unit))
    return PlanInputs(
        limits_digest=limits.digest,
        limits=tuple(amounts[name] for name in sorted(amounts)),
        use=tuple(sorted(use, key=lambda u: (u.gang, u.limit))),
        sources=sources,
    )
