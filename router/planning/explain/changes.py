"""Compare two plans job by job: what changed, why, and what follows from what. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pricing.money import NANOS_PER_CENT, ZERO, Usd
from router.planning.document.plan import JobSummary, Plan
from router.planning.document.plan_facts import JobPlacement, PlanFacts
from router.planning.document.takers import Takers
from router.planning.explain.change_causes import Cause, followed_causes, limit_changes, own_causes, unexplained

ChangeKind = str


@dataclass(frozen=True, slots=True)
class PlacementChange:
    """One job's change: ``kind`` is new, gone, placed, dropped, moved, retimed, repriced or same; ``why`` in words.

    ``causes`` say the same one by one. ``root`` is the job at which the chain of consequences begins, ``depth`` the
    number of steps from there (0 for the root itself). A ``quiet`` change is of time alone, or of less than a cent.
    """

    job: str
    kind: ChangeKind
    before: JobPlacement | None
    after: JobPlacement | None
    cost_before: Usd | None
    cost_after: Usd | None
    start_before: datetime | None
    start_after: datetime | None
    why: str
    causes: tuple[Cause, ...] = ()
    root: str = ""
    depth: int = 0
    quiet: bool = False

    @property
    def unexplained(self) -> bool:
        """Return whether the plans show no cause but their gap."""
        return any(cause.kind == "gap" for cause in self.causes)


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """All changes by job, the limits and budgets that changed in words, and the totals."""

    changes: tuple[PlacementChange, ...]
    cost_before: Usd
    cost_after: Usd
    same_book: bool
    same_jobs: bool
    limits: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[PlacementChange, ...]:
        """Return the changes worth a place each: each cause, then what follows from it; those without a cause last.

        The cause that moves most money, with what follows from it, comes first.
        """
        by_name = {change.job: change for change in self.changes}
        moved: dict[str, int] = {}
        for change in self.changes:
            root = change.root or change.job
            more = (change.cost_after or ZERO) - (change.cost_before or ZERO)
            moved[root] = moved.get(root, 0) + abs(more.nanos)

        def key(change: PlacementChange) -> tuple[bool, int, str, int, str]:
            root = by_name[change.root or change.job]
            return (root.unexplained, -moved[root.job], root.job, change.depth, change.job)

        return tuple(sorted((c for c in self.changes if c.causes and not c.quiet), key=key))

    @property
    def quiet(self) -> tuple[PlacementChange, ...]:
        """Return the changes of time alone, or of less than a cent."""
        return tuple(change for change in self.changes if change.quiet)


def plan_diff(before: Plan, after: Plan, fields: Mapping[str, Sequence[str]] | None = None) -> PlanDiff:
    """Return the changes of all jobs of either plan, sorted by name.

    ``fields`` has, by job, the fields of its specification that changed, where both specifications are known.
    """
    old, new = PlanFacts(before), PlanFacts(after)
    names = sorted(old.jobs.keys() | new.jobs.keys())
    changes = {name: _change(name, old, new) for name in names}
    changed = [name for name in names if changes[name].kind != "same" or _has_other_spec(name, old, new)]
    causes = {name: own_causes(name, old, new, (fields or {}).get(name, ())) for name in changed}
    taking, leaving = Takers(old, new), Takers(new, old)
    followed = {name: followed_causes(name, old, new, taking, leaving) for name in changed if not causes[name]}
    changes.update(_with_roots(changed, causes, followed, old, new, changes))
    same_jobs = {n: j.job_digest for n, j in old.jobs.items()} == {n: j.job_digest for n, j in new.jobs.items()}
    return PlanDiff(
        tuple(changes[name] for name in names),
        before.cost_usd,
        after.cost_usd,
        before.book_digest == after.book_digest,
        same_jobs,
        limit_changes(old, new),
    )


@dataclass(frozen=True, slots=True)
class KeptPlaces:
    """The jobs that both plans place, parted by whether they are at the same place; times may differ."""

    stayed: tuple[str, ...]
    moved: tuple[str, ...]


def kept_places(before: Plan, after: Plan) -> KeptPlaces:
    """Return which jobs of an earlier plan are at their places in the later one, and which are not."""
    old, new = PlanFacts(before), PlanFacts(after)
    both = sorted(old.placements.keys() & new.placements.keys())
    kinds = {name: _change(name, old, new).kind for name in both}
    return KeptPlaces(
        tuple(name for name in both if kinds[name] != "moved"), tuple(name for name in both if kinds[name] == "moved")
    )


def _has_other_spec(name: str, before: PlanFacts, after: PlanFacts) -> bool:
    old, new = before.jobs.get(name), after.jobs.get(name)
    return old is not None and new is not None and old.job_digest != new.job_digest


def _change(name: str, before: PlanFacts, after: PlanFacts) -> PlacementChange:
    """Return a job's change without its causes."""
    old, new = before.jobs.get(name), after.jobs.get(name)
    here, there = before.placements.get(name), after.placements.get(name)
    kind = _kind(old, new, here, there)
    less_than_a_cent = old is not None and new is not None and abs((old.cost_usd - new.cost_usd).nanos) < NANOS_PER_CENT
    return PlacementChange(
        job=name,
        kind=kind,
        before=here,
        after=there,
        cost_before=old.cost_usd if old and here else None,
        cost_after=new.cost_usd if new and there else None,
        start_before=old.start if old else None,
        start_after=new.start if new else None,
        why="",
        quiet=kind in ("retimed", "repriced") and less_than_a_cent and not _has_other_spec(name, before, after),
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


def _with_roots(
    names: Sequence[str],
    causes: Mapping[str, tuple[Cause, ...]],
    followed: Mapping[str, tuple[Cause, ...]],
    before: PlanFacts,
    after: PlanFacts,
    changes: Mapping[str, PlacementChange],
) -> dict[str, PlacementChange]:
    """Return the changes with their causes, each consequence tied to the chain of the nearest root.

    Jobs that follow from each other in a circle have no cause but the gap; the one that gains most begins the chain.
    """
    # Jobs with a cause of their own, and those with nobody to follow from, begin chains.
    final = {
        name: causes[name] or (unexplained(name, before, after),)
        for name in names
        if causes[name] or not any(cause.follows in changes for cause in followed[name])
    }
    roots = {name: (name, 0) for name in final}
    followers: dict[str, list[str]] = {}
    for name in names:
        for cause in () if name in final else followed[name]:
            followers.setdefault(cause.follows, []).append(name)
    gaining = sorted((name for name in names if name not in final), key=lambda name: (_more(changes[name]), name))
    fresh: Iterable[str] = tuple(final)
    for first in (None, *gaining):  # each begins a chain if nothing before it reaches it
        if first in final:
            continue
        if first is not None:
            final[first], roots[first], fresh = (unexplained(first, before, after),), (first, 0), (first,)
        while fresh:
            near = {name for found in fresh for name in followers.get(found, ()) if name not in final}
            reached = {name: tuple(c for c in followed[name] if c.follows in final) for name in sorted(near)}
            for name, kept in reached.items():
                nearest = min(kept, key=lambda cause: (roots[cause.follows][1], cause.follows)).follows
                roots[name] = (roots[nearest][0], roots[nearest][1] + 1)
            final.update(reached)
            fresh = reached
    return {
        name: replace(
            changes[name],
            causes=final[name],
            root=roots[name][0],
            depth=roots[name][1],
            why=_why(changes[name], final[name], after),
        )
        for name in names
    }


def _more(change: PlacementChange) -> int:
    """Return by how many nano-dollars the job costs more."""
    if change.cost_before is None or change.cost_after is None:
        return 0
    return (change.cost_after - change.cost_before).nanos


def _why(change: PlacementChange, causes: Sequence[Cause], after: PlanFacts) -> str:
    """Return the causes as one sentence, with the reason for a dropped job, or the cost of a move's old place."""
    words = [cause.text for cause in causes if cause.kind not in ("new", "gone")]
    summary = after.jobs.get(change.job)
    if summary is not None and summary.preemption is not None:
        words.append(str(summary.preemption))
    if change.kind == "same":
        words.append("place, time and cost stay")
    if change.kind == "dropped":
        words.append(next((u.reason for u in after.plan.unplaced if u.job == change.job), ""))
    if change.kind == "moved" and change.before is not None:
        words.append(_old_place_now(change.before, after.jobs[change.job]))
    return "; ".join(word for word in words if word)


def _old_place_now(here: JobPlacement, new: JobSummary) -> str:
    """Return what the old place would cost now, where the new plan has it among its alternatives."""
    for a in new.alternatives:
        place = JobPlacement(a.cloud, a.region, a.zone, a.instance_type, a.market, a.accelerators, a.mix)
        if place == here:
            state = f", but {a.lacks}" if a.lacks else ""
            return f"the old place would now cost ${a.cost_usd.dollars():,.2f}{state}"
    return ""
