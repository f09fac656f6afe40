"""Back-test the forecast of the month's end on made-up months (:mod:`tests.bench.made_up_months`).

    python -m tests.bench.month_forecast [--seeds FROM COUNT] [--kinds KIND ...]

Each month is reported at the ends of its 10th, 15th and 20th day, from what the books have then, and the forecast of
the report is compared with the month's cost once it is over. For each kind and day:

- held: the share of months whose cost lies in the range, of which the report says "four times in five";
- error: how far the middle is from the cost, as a share of the cost, on average without sign; lean: with it;
- width: the range as a share of the cost, on average.

A month without a forecast is not held, and is in no other figure.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import mean
from typing import Final

from router.files.duckdb_session import connect
from router.showback.report.query import ReportContext, ReportInputs, ReportQuery
from router.showback.report.rollup_tables import report_months, rollups_of_facts
from router.showback.report.totals import build_totals, forecast_currencies
from tests.bench.made_up_months import FITTED, KINDS, SHIFTED, MadeUpMonth, make_month
from tests.support.reconciled import facts

DAYS: Final = (10, 15, 20)
_INPUTS: Final = ReportInputs(origin="made up", input_hash="0" * 16, budgets=())


@dataclass(frozen=True, slots=True)
class ForecastScore:
    """A forecast beside the cost of its month, in dollars."""

    low: float
    middle: float
    high: float
    cost: float

    @property
    def is_held(self) -> bool:
        return self.low <= self.cost <= self.high


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="How well the month's end is forecast.")
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 40), metavar=("FROM", "COUNT"))
    parser.add_argument("--kinds", nargs="+", choices=sorted(KINDS), default=FITTED + SHIFTED)
    asked = parser.parse_args(arguments)
    first, count = asked.seeds
    print(f"{count} months of each kind, seeds {first} to {first + count - 1}")
    for line in score_lines(asked.kinds, range(first, first + count)):
        print(line, flush=True)


def score_lines(kinds: Iterable[str], seeds: Sequence[int]) -> Iterable[str]:
    """Yield a heading, and a line for each kind and day."""
    yield f"{'kind':12} {'day':>3} {'held':>6} {'error':>6} {'lean':>7} {'width':>6}"
    for kind in kinds:
        months = [make_month(kind, seed) for seed in seeds]
        for day in DAYS:
            scores = [score_month(month, month.month.begins + timedelta(days=day)) for month in months]
            yield f"{kind:12} {day:3d} {summarise(scores)}"


def score_month(month: MadeUpMonth, now: datetime) -> ForecastScore | None:
    """Return the score of the forecast that the report makes at a moment; None where it makes none."""
    query = ReportQuery(month=month.month, now=now)
    table = facts(month.rows_known_at(now))
    with connect() as connection:
        connection.register("facts", table)
        rollups = rollups_of_facts(connection, "facts", report_months(query.month), now)
        context = ReportContext(rollups, query, _INPUTS)
        rows = list(build_totals(context, forecast_currencies(context)).records())
    if not rows or rows[0]["forecast"] is None:
        return None
    low, middle, high = (float(str(rows[0][name])) for name in ("forecast_low", "forecast", "forecast_high"))
    return ForecastScore(low, middle, high, float(month.total))


def summarise(scores: Sequence[ForecastScore | None]) -> str:
    """Return the figures of a line."""
    made = [score for score in scores if score is not None]
    held = sum(score.is_held for score in made) / len(scores)
    if not made:
        return f"{held:6.0%}      -       -      -"
    lean = [(score.middle - score.cost) / score.cost for score in made]
    width = mean((score.high - score.low) / score.cost for score in made)
    return f"{held:6.0%} {mean(map(abs, lean)):6.1%} {mean(lean):+7.1%} {width:6.1%}"


if __name__ == "__main__":
    main()
