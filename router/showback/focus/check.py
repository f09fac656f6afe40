"""A file of charges held against every rule that it can be held against alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from router.showback.focus.batches import LIMITS, Limits
from router.showback.focus.counts import Finding, Tally
from router.showback.focus.feed import open_feed
from router.showback.focus.survey import recognised, survey

# Of each rule in each column; the rest is counted.
KEPT = 20


@dataclass(frozen=True, slots=True)
class Checked:
    """``findings`` in the order of rows, the file's own first; ``counts``: how many there are by rule and column."""

    name: str
    form: str
    version: str
    rows: int
    findings: tuple[Finding, ...]
    counts: dict[tuple[str, str], int]

    @property
    def total(self) -> int:
        """All that was found."""
        return sum(self.counts.values())


def check_file(
    path: Path, closed_until: datetime | None = None, *, keep: int = KEPT, limits: Limits = LIMITS
) -> Checked:
    """Goes through the file once, a batch at a time. ``closed_until``: corrections from then on are wrong.
    InvalidInputError for what is no FOCUS Cost and Usage file at all."""
    tally, rows = Tally(keep), 0
    with open_feed(path, limits) as feed:
        opened = recognised(feed, str(path))
        for batch, _ in survey(feed, opened, tally, closed_until):
            rows += batch.rows
    findings = sorted(tally.findings, key=lambda each: each.row or 0)
    return Checked(path.name, feed.form, opened.version, rows, tuple(findings), tally.counts)
