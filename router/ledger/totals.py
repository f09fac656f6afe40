"""Sum entries by any of their fields. Pure; money and hours are exact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pricing.money import ZERO, Usd
from router.ledger.entry import LedgerEntry, LedgerEntryKind

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
    "kind",
    "what",
    "use",
    "period",
)


@dataclass(frozen=True, slots=True)
class Total:
    """The sums of a group of entries: planned, metered, and added by people apart. Hours are of single machines.

    ``unpriced`` counts entries whose price is not known: their money is in no sum.
    """

    planned: Usd = ZERO
    metered: Usd = ZERO
    planned_hours: Fraction = Fraction(0)
    metered_hours: Fraction = Fraction(0)
    entries: int = 0
    added: Usd = ZERO
    unpriced: int = 0

    def plus(self, entry: LedgerEntry) -> Total:
        """Return the total with one more entry."""
        planned, metered = entry.kind is LedgerEntryKind.PLANNED, entry.kind is LedgerEntryKind.METERED
        return Total(
            planned=self.planned + entry.usd if planned else self.planned,
            metered=self.metered + entry.usd if metered else self.metered,
            planned_hours=self.planned_hours + entry.hours if planned else self.planned_hours,
            metered_hours=self.metered_hours + entry.hours if metered else self.metered_hours,
            entries=self.entries + 1,
            added=self.added + entry.usd if entry.kind.is_added else self.added,
            unpriced=self.unpriced + entry.unpriced,
        )


def totals(entries: Iterable[LedgerEntry], by: Sequence[str] = ()) -> dict[tuple[str | None, ...], Total]:
    """Return sums by the entries' values of each name in ``by`` (of :data:`GROUPS`), groups in order, None first.

    The parts of any grouping add up to the whole exactly. No names: one group, ``()``, also of no entries. ValueError
    for an unknown name.
    """
    unknown = sorted(set(by) - set(GROUPS))
    if unknown:
        raise ValueError(f"entries have no {', '.join(unknown)}; they have {', '.join(GROUPS)}")
    sums: dict[tuple[str | None, ...], Total] = {} if by else {(): Total()}
    for entry in entries:
        group = tuple(None if (value := getattr(entry, name)) is None else str(value) for name in by)
        sums[group] = sums.get(group, Total()).plus(entry)
    return dict(sorted(sums.items(), key=lambda item: [(word is not None, word or "") for word in item[0]]))
