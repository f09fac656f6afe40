"""Add up by kind of change what the jobs of two plans cost more and less. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pricing.money import NANOS_PER_CENT, ZERO, Usd
from router.planning.explain.changes import PlacementChange, PlanDiff

# In the order in which JSON lists them; "same" is a job whose file alone changed.
KINDS = ("new", "placed", "moved", "retimed", "repriced", "same", "dropped", "gone")
# In the order in which pages list them: a job that stays at its place has another price, cost or time.
REASONS = ("new", "placed", "moved", "price", "cost", "time", "same", "dropped", "gone")


@dataclass(frozen=True, slots=True)
class KindChange:
    """Changes of one kind or for one reason: how many, what the dearer jobs cost more and the cheaper ones less.

    ``more_usd`` is zero or above, ``less_usd`` zero or below. A job that a plan leaves out costs nothing there.
    """

    kind: str
    jobs: int
    more_usd: Usd
    less_usd: Usd

    @property
    def together_usd(self) -> Usd:
        """Return the difference that these jobs make."""
        return self.more_usd + self.less_usd


def cost_change(change: PlacementChange) -> Usd:
    """Return what the job costs more in the later plan; below zero where it costs less."""
    return (change.cost_after or ZERO) - (change.cost_before or ZERO)


def changes_by_kind(diff: PlanDiff) -> tuple[KindChange, ...]:
    """Return the kinds of change that occur; their differences add up to that of the plans to the nano-dollar.

    Jobs that are placed as before at the same cost are left out.
    """
    return _add_up(diff, KINDS, lambda change: change.kind)


def changes_by_reason(diff: PlanDiff) -> tuple[KindChange, ...]:
    """Return the same changes and sums as :func:`changes_by_kind`, arranged by :func:`reason_of`."""
    return _add_up(diff, REASONS, reason_of)


def reason_of(change: PlacementChange) -> str:
    """Return why the cost changed, one of :data:`REASONS`.

    A job that every night starts at another time is dearer by its price, not by its time.
    """
    if change.kind not in ("retimed", "repriced"):
        return change.kind
    if change.kind == "retimed" and abs(cost_change(change).nanos) < NANOS_PER_CENT:
        return "time"
    return "price" if any(cause.kind == "price" for cause in change.causes) else "cost"


def _add_up(diff: PlanDiff, kinds: Sequence[str], kind_of: Callable[[PlacementChange], str]) -> tuple[KindChange, ...]:
    found: dict[str, list[PlacementChange]] = {}
    for change in diff.changes:
        if change.causes or cost_change(change).nanos:
            found.setdefault(kind_of(change), []).append(change)
    return tuple(_together(kind, found[kind]) for kind in kinds if kind in found)


def _together(kind: str, changes: Iterable[PlacementChange]) -> KindChange:
    differences = [cost_change(change) for change in changes]
    more = Usd.total(usd for usd in differences if usd.nanos > 0)
    return KindChange(kind, len(differences), more, Usd.total(usd for usd in differences if usd.nanos < 0))
