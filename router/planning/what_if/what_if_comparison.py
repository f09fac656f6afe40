"""Compare the plans of variants with the plan of the request as it is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from pricing.money import NANOS_PER_CENT, ZERO, Usd
from router.jobs.spec import is_less_sure
from router.planning.document.plan import JobSummary, Plan
from router.planning.explain.changes import PlacementChange, plan_diff
from router.planning.what_if.what_if import Variant

_SHOWN_MOVES = 3


@dataclass(frozen=True, slots=True)
class VariantResult:
    """A variant's plan, and how it differs from the base: cost, jobs that are placed or late, places.

    ``moves`` has the changes of jobs in both plans, the greatest change of cost first. Names are sorted. A difference
    ``within_gap`` may be due to the two searches alone: the plans place the same jobs, and their bounds do not part
    their costs.
    """

    variant: Variant
    plan: Plan
    difference: Usd
    newly_unplaced: tuple[str, ...] = ()
    newly_placed: tuple[str, ...] = ()
    newly_late: tuple[str, ...] = ()
    no_longer_late: tuple[str, ...] = ()
    moves: tuple[PlacementChange, ...] = ()
    within_gap: bool = False

    @property
    def placed(self) -> int:
        """Return the number of jobs that the plan places."""
        return len(self.plan.jobs) - len(self.plan.unplaced)

    @property
    def greatest_moves(self) -> tuple[PlacementChange, ...]:
        """Return the three moves that change the cost most; those of time alone are none of them."""
        telling = (
            move for move in self.moves if move.kind != "retimed" or abs(change_of_cost(move).nanos) >= NANOS_PER_CENT
        )
        return tuple(islice(telling, _SHOWN_MOVES))


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The plan of the request as it is, and those of its variants in the order asked."""

    base: VariantResult
    variants: tuple[VariantResult, ...]

    @property
    def results(self) -> tuple[VariantResult, ...]:
        """Return the base, then the variants."""
        return (self.base, *self.variants)


def compare_variants(base: Plan, variants: Sequence[tuple[Variant, Plan]]) -> WhatIf:
    """Return the comparison of each variant's plan with the base."""
    return WhatIf(
        VariantResult(Variant("base", ()), base, ZERO),
        tuple(_compare(base, variant, plan) for variant, plan in variants),
    )


def late_jobs(plan: Plan) -> frozenset[str]:
    """Return the placed jobs that end after their deadline, or are less sure to hold it than they ask."""
    return frozenset(job.job for job in plan.jobs if _is_late(job))


def _is_late(job: JobSummary) -> bool:
    if job.finish is None or job.deadline is None:
        return False
    return job.finish > job.deadline or is_less_sure(job.on_time_probability, job.confidence)


def _compare(base: Plan, variant: Variant, plan: Plan) -> VariantResult:
    left_out, left_out_now = ({item.job for item in each.unplaced} for each in (base, plan))
    late, late_now = late_jobs(base), late_jobs(plan)
    there = {job.job for job in plan.jobs}
    changes = plan_diff(base, plan).changes
    moves = (change for change in changes if change.kind not in ("same", "gone", "new"))
    return VariantResult(
        variant=variant,
        plan=plan,
        difference=plan.cost_usd - base.cost_usd,
        newly_unplaced=tuple(sorted(left_out_now - left_out)),
        newly_placed=tuple(sorted((left_out - left_out_now) & there)),
        newly_late=tuple(sorted(late_now - late)),
        no_longer_late=tuple(sorted((late - late_now) & (there - left_out_now))),
        moves=tuple(sorted(moves, key=lambda change: (-abs(change_of_cost(change).nanos), change.job))),
        within_gap=left_out == left_out_now and plan.cost_usd != base.cost_usd and not _bounds_part(base, plan),
    )


def _bounds_part(plan: Plan, other: Plan) -> bool:
    """Return whether the bound of one plan lies above what the other one minimised."""
    return plan.bound_usd > other.objective_usd or other.bound_usd > plan.objective_usd


def change_of_cost(change: PlacementChange) -> Usd:
    """Return how much more the job costs; a job that is not placed costs nothing."""
    return (change.cost_after or ZERO) - (change.cost_before or ZERO)
