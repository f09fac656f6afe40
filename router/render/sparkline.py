"""Sparklines: a series as one line of block characters. Pure."""

from __future__ import annotations

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None]) -> str:
    """Return one block per value, scaled from the lowest to the highest value; a blank for unknown values.

    A constant series is drawn in the middle.
    """
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    top = len(BLOCKS) - 1
    return "".join(
        " " if value is None else BLOCKS[round((value - low) / (high - low) * top) if high > low else top // 2]
        for value in values
    )
