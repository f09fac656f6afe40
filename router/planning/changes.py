"""Compare two plans and explain, job by job, what changed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pricing.money import Usd
from router.planning.plan import JobSummary, Line, Plan

ChangeKind = str


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """The place and gang on which most of a job runs; a job that is left out has none."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    market: str
    accelerators: int

    def __str__(self) -> str:
        zone = f"/{self.zone}" if self.zone else ""
        return f"{self.cloud}/{self.region}{zone} {self.instance_type} {self.market} x{self.accelerators}"


@dataclass(frozen=True, slots=True)
class PlacementChange:
    """One job's change: ``kind`` is new, gone, placed, dropped, moved, retimed, repriced or same; ``why`` in words."""

    job: str
    kind: ChangeKind
    before: JobPlacement | None
    after: JobPlacement | None
    cost_before: Usd | None
    cost_after: Usd | None
    start_before: datetime | None
    start_after: datetime | None
    why: str


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """All changes by job, and the totals."""

    changes: tuple[PlacementChange, ...]
    cost_before: Usd
    cost_after: Usd
    same_book: bool
    same_jobs: bool


def main_placement(lines: Sequence[Line], job: str) -> JobPlacement | None:
    """Return the place of the line with the most accelerator-time (all parts of a gang counted), orders first."""
    own = [x for x in lines if x.job == job]
    if not own:
        return None
    best = max(own, key=lambda x: (x.kind == "order", x.hours, x.market == "spot", x.gang))
    whole = sum(x.accelerators for x in own if x.gang == best.gang)
    return JobPlacement(best.cloud, best.region, best.zone, best.instance_type, best.market, whole)


def plan_diff(before: Plan, after: Plan) -> PlanDiff:
    """Return the changes of all jobs of either plan, sorted by name."""
    old = {job.job: job for job in before.jobs}
    new = {job.job: job for job in after.jobs}
    changes = [_change(name, before, after, old.get(name), new.get(name)) for name in sorted(old.keys() | new.keys())]
    same_jobs = {n: j.job_digest for n, j in old.items()} == {n: j.job_digest for n, j in new.items()}
    return PlanDiff(tuple(changes), before.cost_usd, after.cost_usd, before.book_digest == after.book_digest, same_jobs)


def _change(name: str, before: Plan, after: Plan, old: JobSummary | None, new: JobSummary | None) -> PlacementChange:
    here = main_placement(before.lines, name) if old else None
    there = main_placement(after.lines, name) if new else None
    kind = _kind(old, new, here, there)
    return PlacementChange(
        job=name,
        kind=kind,
        before=here,
        after=there,
        cost_before=old.cost_usd if old and here else None,
        cost_after=new.cost_usd if new and there else None,
        start_before=old.start if old else None,
        start_after=new.start if new else None,
        why=_why(kind, name, before, after, old, new, here),
    )


def _kind(
    old: JobSummary | None, new: JobSummary | None, here: JobPlacement | None, there: JobPlacement | None
) -> ChangeKind:
    if old is None or new is None:
        return "new" if old is None else "gone"
    if here is None or there is None:
        return "same" if here is there else "placed" if here is None else "dropped"
    if here != there:
        return "moved"
    if (old.start, old.finish) != (new.start, new.finish):
        return "retimed"
    return "same" if old.cost_usd == new.cost_usd else "repriced"


def _why(
    kind: ChangeKind,
    name: str,
    before: Plan,
    after: Plan,
    old: JobSummary | None,
    new: JobSummary | None,
    here: JobPlacement | None,
) -> str:
    if kind == "dropped":
        return next((u.reason for u in after.unplaced if u.job == name), "")
    if kind in ("new", "gone", "same") or old is None or new is None:
        return ""
    reasons = []
    if old.job_digest != new.job_digest:
        reasons.append("the job changed")
    if before.book_digest != after.book_digest:
        reasons.append("the prices changed")
    if kind == "moved" and here is not None:
        reasons.append(_old_place_now(here, new))
    if not reasons:
        reasons.append("the limits, the time or the other jobs changed")
    return "; ".join(reasons)


def _old_place_now(here: JobPlacement, new: JobSummary) -> str:
    """Return what the old place would cost now, from the new plan's alternatives."""
    for a in new.alternatives:
        place = JobPlacement(a.cloud, a.region, a.zone, a.instance_type, a.market, a.accelerators)
        if place == here:
            state = f", but {a.lacks}" if a.lacks else ""
            return f"the old place would now cost ${a.cost_usd.dollars():,.2f}{state}"
    return "the old place is no longer among its best"
