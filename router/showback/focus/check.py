"""Check a file of charges against every rule that can be checked on the file alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from router.showback.focus.batches import LIMITS, FeedLimits
from router.showback.focus.counts import FindingTally, FocusFinding
from router.showback.focus.feed import open_feed
from router.showback.focus.survey import recognise_layout, survey_feed

# The most findings listed of each rule in each column; the others are counted.
MAX_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class FocusCheck:
    """The result of a check.

    ``findings`` are in the order of rows, the file's own first; ``counts`` is how many there are by rule and column.
    """

    name: str
    form: str
    version: str
    rows: int
    findings: tuple[FocusFinding, ...]
    counts: dict[tuple[str, str], int]

    @property
    def total(self) -> int:
        """The number of all findings."""
        return sum(self.counts.values())


def check_file(
    path: Path, closed_until: datetime | None = None, *, keep: int = MAX_FINDINGS, limits: FeedLimits = LIMITS
) -> FocusCheck:
    """Check the file in one pass, a batch at a time.

    ``closed_until``: corrections from then on are wrong. InvalidInputError for a file that is no FOCUS Cost and Usage
    at all.
    """
    tally, rows = FindingTally(keep), 0
    with open_feed(path, limits) as feed:
        opened = recognise_layout(feed, str(path))
        for batch, _ in survey_feed(feed, opened, tally, closed_until):
            rows += batch.rows
    findings = sorted(tally.findings, key=lambda each: each.row or 0)
    return FocusCheck(path.name, feed.form, opened.version, rows, tuple(findings), tally.counts)
