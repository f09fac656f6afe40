"""Count the findings of a file, and keep the first of each kind with its place. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from router.showback.focus.batches import Batch
from router.showback.focus.rules import RULES, RuleViolation

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class FocusFinding:
    """One rule that is broken in one column.

    ``row`` counts from 1, ``line`` is that of a text file. ``value`` is the cell's text, short and without control
    characters.
    """

    rule: str
    column: str
    row: int | None = None
    line: int | None = None
    value: str = ""

    @property
    def what(self) -> str:
        """The fault."""
        return RULES[self.rule].what.replace("{value}", self.value)

    @property
    def why(self) -> str:
        """The reason for the rule."""
        return RULES[self.rule].why

    def place(self, name: str) -> str:
        """Return ``bill.csv:12``, or the row where there are no lines, or the file alone."""
        if self.line is not None:
            return f"{name}:{self.line}"
        return f"{name}: row {self.row}" if self.row is not None else name


@dataclass(slots=True)
class FindingTally:
    """Counts by rule and column; of each pair the first ``keep`` findings are listed."""

    keep: int
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    findings: list[FocusFinding] = field(default_factory=list)

    def add(self, finding: FocusFinding) -> None:
        """Add one finding."""
        if self._count(finding.rule, finding.column, 1) > 0:
            self.findings.append(finding)

    def add_mark(self, mark: RuleViolation, batch: Batch, sources: Mapping[str, str]) -> None:
        """Add all rows of a violation.

        ``sources`` gives a column of the newest version the name that the file has for it.
        """
        column = sources.get(mark.column, mark.column)
        room = self._count(mark.rule, column, len(mark.rows))
        for index in mark.rows[: max(room, 0)].tolist():
            text = batch.columns[column][index].as_py() if column in batch.columns else None
            line = batch.lines[index] if batch.lines is not None else None
            self.findings.append(
                FocusFinding(mark.rule, column, batch.first + index, line, "" if text is None else quote_cell(text))
            )

    def _count(self, rule: str, column: str, more: int) -> int:
        before = self.counts.get((rule, column), 0)
        self.counts[rule, column] = before + more
        return self.keep - before


def quote_cell(text: str) -> str:
    """Return the text in quotes, cut to 60 characters, and with nothing in it that a terminal would obey."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
