"""Define the rules of a file of charges, and tally what breaks them. Pure.

Each rule has an id, the fault where it is broken, and the reason for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from router.showback.focus.feed import Batch


@dataclass(frozen=True, slots=True)
class FocusRule:
    """``what`` describes the fault of a cell, with ``{value}`` for its text; ``why`` is the reason for the rule."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class RuleViolation:
    """Rows of a batch that break a rule in one column, as the file names it, by their index in the batch."""

    rule: str
    column: str
    rows: NDArray[np.intp]


RULES: dict[str, FocusRule] = {
    # Of the file.
    "missing-column": FocusRule("is not in the file", "mandatory in that version of FOCUS"),
    "absent-column": FocusRule("is not in the file", "FOCUS has it where what it is about exists"),
    "unknown-column": FocusRule("is no FOCUS column", "FOCUS: a column of one's own begins with x_"),
    "column-name": FocusRule("is written {value}", "read as that column; FOCUS writes it in one way"),
    "binary-fraction": FocusRule("is kept as binary fractions", "amounts are decimal: sums of binary ones drift"),
    # Of a cell.
    "null": FocusRule("is empty", "must not be null in FOCUS"),
    "null-word": FocusRule("says {value} in the place of nothing", "null is an empty cell"),
    "missing-word": FocusRule("says {value} for something unknown", "what is unknown is null"),
    "number": FocusRule("{value} is not a number as FOCUS writes it", "digits, a point, E; no plus sign"),
    "unreadable": FocusRule("{value} cannot be read", "neither a number nor a time is guessed"),
    "rounded": FocusRule("{value} has more decimals than are kept", "24 for money, 18 for quantities; half to even"),
    "negative-price": FocusRule("{value} is below zero", "a unit price is not negative; the quantity is"),
    "time": FocusRule("{value} is not a time as FOCUS writes it", "UTC, and saying so: 2026-11-01T00:00:00Z"),
    "currency": FocusRule("{value} is no currency", "ISO 4217, three capitals"),
    "word": FocusRule("{value} is not one of its words", "FOCUS lists them; spot is Dynamic"),
    "unit": FocusRule("{value} is no unit", "a word such as Hours or GB, without blanks around it"),
    "json": FocusRule("{value} is not a JSON object", "as FOCUS wants it there; a key stands there once"),
    "key-values": FocusRule("lists keys and values: {value}", "read as the JSON object that FOCUS wants"),
    "json-key": FocusRule("has keys of its own without x_: {value}", "FOCUS: a key of one's own begins with x_"),
    # Of a row.
    "list-cost": FocusRule("{value} is not ListUnitPrice x PricingQuantity", "FOCUS, to one part in a billion"),
    "contracted-cost": FocusRule(
        "{value} is not ContractedUnitPrice x PricingQuantity", "FOCUS, to one part in a billion"
    ),
    "price-missing": FocusRule("is empty beside a SkuPriceId", "who names a price says it"),
    "unit-alone": FocusRule("{value} without a quantity", "a unit is null when its quantity is"),
    "quantity-alone": FocusRule("{value} without a unit", "a quantity has a unit"),
    "sku-details": FocusRule("says details without a SkuPriceId", "null when SkuPriceId is null"),
    "sku-meter": FocusRule("{value} without a SkuId", "null when SkuId is null"),
    "subcategory": FocusRule("{value} belongs to another ServiceCategory", "FOCUS gives each one parent"),
    "tax-price": FocusRule("{value} on a tax", "a tax has neither price nor SKU"),
    "costs-differ": FocusRule(
        "{value} differs from BilledCost", "a credit or adjustment has four equal costs, a tax two"
    ),
    "purchase-frequency": FocusRule("{value} on a purchase", "a purchase is One-Time or Recurring"),
    "status-alone": FocusRule("{value} without what it is the status of", "null when the id is null"),
    "charge-period": FocusRule("{value} is not after ChargePeriodStart", "an end is exclusive, and after the start"),
    "billing-period": FocusRule("{value} is not after BillingPeriodStart", "an end is exclusive, and after the start"),
    "outside-period": FocusRule("{value} is outside the billing period", "usage is billed in the period of its use"),
    "open-correction": FocusRule("{value} in a period that is still open", "only what is closed is corrected"),
    # Of several rows.
    "overlap": FocusRule("overlaps {value}", "metered once at any moment, for each meter and price"),
    "split-ratio": FocusRule("ratios of {value} do not sum to 1", "the parts of a split charge are the whole"),
    "split-sum": FocusRule("parts of {value} do not add up to the origin", "splitting neither makes nor loses cost"),
    "split-part": FocusRule("is empty on a part of a split charge", "a part says method, receiver and ratio"),
    "split-tags": FocusRule(
        "lacks tags of the charge that was split", "AllocatedTags hold all keys and values of Tags"
    ),
}

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
        return RULES[self.rule].what.replace("{value}", self.value)

    @property
    def why(self) -> str:
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
