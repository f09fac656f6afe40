"""Show on pages what changed since an earlier plan: the cost by kind of change, then each job with its reason. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cached_property

from pricing.money import Usd
from pricing.units import format_count
from router.planning.document.plan import Plan
from router.planning.explain.changes import PlacementChange, PlanDiff
from router.planning.explain.cost_changes import KindChange, changes_by_reason, cost_change, reason_of
from router.render.drawing import in_widths
from router.render.figures import day, day_clock
from router.render.month_charts_svg import BRIDGES, WaterfallStep, draw_waterfall
from router.render.pages import PageFrame, fill_template

SHOWN_CHANGES = 12
_BRIDGE_NAME = "Waterfall of what each kind of change adds to the cost"
_FOLDED_AT_LEAST = 4  # fewer rows are shorter than what unfolds them
_WORDS = {
    "new": "new",
    "placed": "placed now",
    "moved": "moved",
    "price": "other price",
    "cost": "other cost",
    "time": "other time",
    "same": "job file changed",
    "dropped": "left out now",
    "gone": "gone",
}
# What one job, and what several do; in the order of the sentence.
_SENTENCE = {
    "new": ("is new", "are new"),
    "gone": ("is gone", "are gone"),
    "placed": ("is placed now", "are placed now"),
    "dropped": ("is left out now", "are left out now"),
    "moved": ("moved", "moved"),
    "price": ("has another price", "have other prices"),
    "cost": ("has another cost", "have other costs"),
    "same": ("has another job file", "have other job files"),
    "time": ("changed in time alone", "changed in time alone"),
}


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One job's change: from where to where, what it costs more, and why."""

    job: str
    words: str
    place: str
    came_from: str
    more_usd: Usd
    why: str


@dataclass(frozen=True)
class SinceView:
    """The changes from an earlier plan to a later one; ``kinds`` add up to ``more_usd`` exactly."""

    diff: PlanDiff
    before: Plan
    before_digest: str
    after: Plan

    @property
    def title(self) -> str:
        is_yesterday = self.after.as_of.date() - self.before.as_of.date() == timedelta(days=1)
        return "Since yesterday" if is_yesterday else f"Since {day(self.before.as_of)}"

    @property
    def before_id(self) -> str:
        return f"plan-{self.before_digest[:12]}"

    @cached_property
    def kinds(self) -> tuple[KindChange, ...]:
        """Return the reasons for changes, with what each adds to the cost and takes from it."""
        return changes_by_reason(self.diff)

    def kind_words(self, kind: str) -> str:
        """Return a reason for changes in words."""
        return _WORDS[kind]

    @cached_property
    def sentence(self) -> str:
        """Return the numbers of jobs that came, went and changed, such as ``2 jobs are new, 1 is gone``.

        Jobs that changed in time alone are told where nothing else changed.
        """
        counts = {each.kind: each.jobs for each in self.kinds if each.kind != "time" or len(self.kinds) == 1}
        found = [(counts[kind], words[counts[kind] > 1]) for kind, words in _SENTENCE.items() if kind in counts]
        if not found:
            return "No job changed"
        (first, words), *others = found
        return ", ".join([f"{format_count(first, 'job')} {words}", *(f"{count:,} {words}" for count, words in others)])

    @cached_property
    def changes(self) -> tuple[ChangeRow, ...]:
        return tuple(_row(change) for change in self.diff.shown)

    @property
    def quiet(self) -> str:
        """Return how many jobs changed too little to be listed, in words; "" for none."""
        count = len(self.diff.quiet)
        if not count:
            return ""
        verb = "is" if count == 1 else "are"
        return f"{format_count(count, 'job')} changed in time alone or by less than a cent, and {verb} not listed"

    @property
    def more_usd(self) -> Usd:
        """Return what the later plan costs more; below zero where it costs less."""
        return self.diff.cost_after - self.diff.cost_before

    @property
    def changed_jobs(self) -> int:
        return sum(each.jobs for each in self.kinds)

    @property
    def first_changes(self) -> tuple[ChangeRow, ...]:
        """Return the changes that a page shows at once."""
        return self.changes[: self._shown]

    @property
    def other_changes(self) -> tuple[ChangeRow, ...]:
        """Return the changes that a page folds."""
        return self.changes[self._shown :]

    @property
    def _shown(self) -> int:
        few = len(self.changes) < SHOWN_CHANGES + _FOLDED_AT_LEAST
        return len(self.changes) if few else SHOWN_CHANGES


def bridge_of(since: SinceView) -> tuple[WaterfallStep, ...]:
    """Return the steps of the difference, by reason, and their sum."""
    level, steps = Decimal(0), []
    for each in since.kinds:
        amount = Decimal(each.together_usd.nanos).scaleb(-9)
        level += amount
        if each.kind != "time":  # less than a cent a job: no bar would be seen
            steps.append(WaterfallStep(_WORDS[each.kind], format_count(each.jobs, "job"), "reason", amount, level))
    return (*steps, WaterfallStep("all changes", "", "spent", level, level))


def _row(change: PlacementChange) -> ChangeRow:
    here, there = change.before, change.after
    place = str(there or here or "none")
    came_from = f"from {here}" if here is not None and there is not None and here != there else ""
    if here is not None and there is None:
        came_from = "no longer placed"
    elif here == there and change.start_before != change.start_after:
        came_from = f"starts {day_clock(change.start_after)}, not {day_clock(change.start_before)}"
    follows = ", ".join(dict.fromkeys(cause.follows for cause in change.causes if cause.follows))
    why = "; ".join(filter(None, (f"follows from {follows}" if follows else "", change.why)))
    if not why:
        why = {"new": "new job", "gone": "no longer among the jobs"}.get(change.kind, "not said")
    return ChangeRow(change.job, _WORDS[reason_of(change)], place, came_from, cost_change(change), why)


def plan_diff_page(plan: Plan, digest: str, since: SinceView, frame: PageFrame | None = None) -> str:
    """Return the page of the whole comparison as HTML; the same plans give the same bytes."""
    steps = bridge_of(since)
    return fill_template(
        "plan_diff.html",
        frame=frame,
        plan=plan,
        digest=digest,
        plan_id=f"plan-{digest[:12]}",
        since=since,
        drawings=in_widths(lambda layout: draw_waterfall(steps, "USD", layout, _BRIDGE_NAME), BRIDGES),
    )
