"""Calibration of quotes as text and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from router.spot.availability.calibration import LEVELS, CalibrationReport


def as_table(rows: Sequence[CalibrationReport]) -> str:
    """Return one line per kind of quote.

    It shows for each level the share that held with its 90 % interval, then the sharpness of the quotes.
    """
    size = max((len(row.name) for row in rows), default=0)
    head = f"{'':{size}}  {'of':6} {'n':>6} {'eff':>5}  "
    head += "".join(f"{f'{level:.0%} held':20}" for level in LEVELS) + f"{'width':>7}{'loss':>7}"
    return "\n".join([head, *(_line(row, size) for row in rows)])


def _line(row: CalibrationReport, size: int) -> str:
    effective = min(c.held.effective for c in row.covered)
    shares = "".join(
        f"{f'{c.held.mean:5.1%} [{c.held.low:3.0%},{c.held.high:4.0%}]' + ('' if c.is_in else ' !'):20}"
        for c in row.covered
    )
    return f"{row.name:{size}}  {row.what:6} {row.count:6,} {effective:5.0f}  {shares}{row.width:7.3f}{row.loss:7.4f}"


def as_csv(rows: Sequence[CalibrationReport]) -> str:
    """Return the same as CSV, one row per kind of quote and level."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["name", "of", "quotes", "level", "held", "low", "high", "effective", "at_or_below", "width_80", "loss"]
    )
    for row in rows:
        for covered, plain in zip(row.covered, row.plain, strict=True):
            held = covered.held
            writer.writerow(
                [row.name, row.what, row.count, covered.level]
                + [f"{x:.4f}" for x in (held.mean, held.low, held.high, held.effective, plain, row.width, row.loss)]
            )
    return out.getvalue()
