"""Sums over entries by any of their words. Pure; money and hours are exact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pricing.money import ZERO, Usd
from router.ledger.entry import Entry, Kind

GROUPS = (
    "team",
    "project",
    "cost_center",
    "plan",
    "job",
    "job_digest",
    "gang",
    "attempt",
    "cloud",
    "region",
    "zone",
    "instance_type",
    "market",
    "accelerator",
)


@dataclass(frozen=True, slots=True)
class Total:
    """What the entries of a group come to, planned and metered apart. Hours are of single machines."""

    planned: Usd = ZERO
    metered: Usd = ZERO
    planned_hours: Fraction = Fraction(0)
    metered_hours: Fraction = Fraction(0)
    entries: int = 0

    def plus(self, entry: Entry) -> Total:
        """With one more entry."""
        hours = entry.hours * entry.machines
        is_planned = entry.kind is Kind.PLANNED
        return Total(
            planned=self.planned + entry.usd if is_planned else self.planned,
            metered=self.metered if is_planned else self.metered + entry.usd,
            planned_hours=self.planned_hours + hours if is_planned else self.planned_hours,
            metered_hours=self.metered_hours if is_planned else self.metered_hours + hours,
            entries=self.entries + 1,
        )


def totals(entries: Iterable[Entry], by: Sequence[str] = ()) -> dict[tuple[str | None, ...], Total]:
    """Sums by what the entries say for each name in ``by`` (of :data:`GROUPS`), groups in order, None first.

    The parts of any grouping add up to the whole exactly. No names: one group, ``()``, also of no entries.
    ValueError for a name that is none.
    """
    unknown = sorted(set(by) - set(GROUPS))
    if unknown:
        raise ValueError(f"entries have no {', '.join(unknown)}; they have {', '.join(GROUPS)}")
    sums: dict[tuple[str | None, ...], Total] = {} if by else {(): Total()}
    for entry in entries:
        group = tuple(None if (value := getattr(entry, name)) is None else str(value) for name in by)
        sums[group] = sums.get(group, Total()).plus(entry)
    return dict(sorted(sums.items(), key=lambda item: [(word is not None, word or "") for word in item[0]]))
