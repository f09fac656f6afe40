"""Outcomes of quoted jobs beside their quotes. Dollars are floats: statistics, never a bill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from pricing.money import Usd
from router.quotes.quote import Quote
from router.spot.availability.calibration import CalibrationReport, assess_calibration
from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.traces import Floats

LEAST_JOBS: Final = 20  # number of jobs below which shares say little


@dataclass(frozen=True, slots=True)
class JobEnding:
    """The cost of a job in machines, and when its training was done: None where it was given up."""

    usd: Usd
    done_at: datetime | None


@dataclass(frozen=True, slots=True)
class QuoteRecord:
    """The track record of quotes that are over.

    ``promised`` is the mean of the probabilities of being on time that they named; ``on_time`` of ``count`` were on
    time. ``given_up`` are among the others. ``rows`` are cost and finish of those that were done, in shares of the
    median that was quoted; empty where none was done.
    """

    count: int
    promised: float
    on_time: int
    given_up: int
    rows: tuple[CalibrationReport, ...]


def assess_quotes(pairs: Sequence[tuple[Quote, JobEnding]]) -> QuoteRecord:
    """Return the track record of quotes and their outcomes.

    Those that started on one day form one group: they share availability. A quote without an end, on spot alone, is
    left out of the row that it has no levels for.
    """
    promised = float(np.mean([quote.on_time for quote, _ in pairs])) if pairs else 0.0
    done = [(quote, ending, ending.done_at) for quote, ending in pairs if ending.done_at is not None]
    cost, finish, days = [], [], ([], [])  # type: ignore[var-annotated]
    for quote, ending, at in done:
        day = quote.start.toordinal()
        dollars = [usd.dollars() for usd in quote.usd_levels if usd is not None]
        hours = [_hours(quote, moment) for moment in quote.finish_levels if moment is not None]
        for values, full, outcome, rows, group in (
            (dollars, quote.usd_levels, ending.usd.dollars(), cost, days[0]),
            (hours, quote.finish_levels, _hours(quote, at), finish, days[1]),
        ):
            if values and len(values) == len(full):
                middle = values[len(values) // 2]
                rows.append((np.array(values) / middle, outcome / middle))
                group.append(day)
    report_rows = [
        _row(what, rows, group) for what, rows, group in (("cost", cost, days[0]), ("finish", finish, days[1]))
    ]
    return QuoteRecord(
        len(pairs),
        promised,
        sum(at <= quote.deadline for quote, _, at in done),
        len(pairs) - len(done),
        tuple(row for row in report_rows if row is not None),
    )


def _hours(quote: Quote, moment: datetime) -> float:
    return (moment - quote.start).total_seconds() / HOUR_S


def _row(what: str, rows: list[tuple[Floats, float]], days: list[int]) -> CalibrationReport | None:
    if not rows:
        return None
    quoted, outcomes = np.stack([values for values, _ in rows]), np.array([outcome for _, outcome in rows])
    return assess_calibration("accepted quotes", what, quoted, outcomes, np.array(days))
