"""Add up by kind of change what the jobs of two plans cost more and less. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pricing.money import ZERO, Usd
from router.planning.changes import PlacementChange, PlanDiff

# In the order in which pages and JSON list them; "same" is a job whose file alone changed.
KINDS = ("new", "placed", "moved", "retimed", "repriced", "same", "dropped", "gone")


@dataclass(frozen=True, slots=True)
class KindChange:
    """All changes of one kind: the number of jobs, what the dearer ones cost more and the cheaper ones less.

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
    found: dict[str, list[PlacementChange]] = {}
    for change in diff.changes:
        if change.causes or cost_change(change).nanos:
            found.setdefault(change.kind, []).append(change)
    return tuple(_together(kind, found[kind]) for kind in KINDS if kind in found)


def _together(kind: str, changes: Iterable[PlacementChange]) -> KindChange:
    differences = [cost_change(change) for change in changes]
    more = Usd.total(usd for usd in differences if usd.nanos > 0)
    return KindChange(kind, len(differences), more, Usd.total(usd for usd in differences if usd.nanos < 0))
