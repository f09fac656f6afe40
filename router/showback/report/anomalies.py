"""Find days that cost far more than the same weekdays before them, and name the likely cause.

A day is unusual where it is above the median of up to eight same weekdays before it by more than five times their
spread (1.4826 x the median absolute deviation, which is a standard deviation where days vary normally) and by more than
a floor of dollars. Fewer than four such days before it give no result, nor does a median of nothing: what runs now and
then has no usual level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from statistics import median

from router.showback.report.query import ReportContext
from router.showback.report.rollup_tables import date_of_day, day_number
from router.showback.report.values import (
    CURRENCY,
    CellKind,
    CellValue,
    ReportColumn,
    ReportSection,
    define_section,
    divide_known,
)

FLOOR, SPREADS, LEAST, MOST = Decimal(20), Decimal(5), 4, 8
_NORMAL = Decimal("1.4826")
_WEEK = 7
_WIDE = Context(prec=60)
ANOMALIES = define_section(
    "anomalies",
    "Unusual days",
    ReportColumn("day", "Day", CellKind.DAY, 0),
    ReportColumn("team", "Team", rank=0),
    ReportColumn("cloud", "Cloud", rank=1),
    CURRENCY,
    ReportColumn("cost", "Cost", CellKind.MONEY, 0),
    ReportColumn("usual", "Usual", CellKind.MONEY, 0),
    ReportColumn("above", "Above", CellKind.MONEY, 1),
    ReportColumn("cause", "Likely", rank=1),
    ReportColumn("times", "Times usual", CellKind.RATE, 2),
)


@dataclass(frozen=True, slots=True)
class SeriesDay:
    """The usage of one series on a day; ``count`` is how many machines (stretches of them) began."""

    cost: Decimal
    hours: Decimal
    count: int


def build_anomalies(context: ReportContext) -> ReportSection:
    """Return a row for each unusual day, team and cloud, in order. Days that are not over are not judged."""
    query = context.query
    rows = context.rollups.ask(
        f"SELECT currency, team, cloud, day, sum({context.cost}) AS cost, sum(hours) AS hours, "
        f"sum(count)::BIGINT AS count FROM days WHERE category = 'Usage' AND NOT correction GROUP BY ALL ORDER BY ALL"
    )
    first, last = day_number(query.month.begins.date()), day_number(query.month.ends.date())
    last = min(last, day_number(query.now.date()))
    series: dict[tuple[str, str | None, str | None], dict[int, SeriesDay]] = {}
    for row in rows:
        day = SeriesDay(row["cost"] or Decimal(0), row["hours"] or Decimal(0), row["count"])
        series.setdefault((row["currency"], row["team"], row["cloud"]), {})[row["day"]] = day
    table: list[dict[str, CellValue]] = []
    for (currency, team, cloud), days in series.items():
        for number in range(first, last):
            anomaly = find_anomaly(days, number)
            if anomaly is not None:
                table.append(
                    {"day": date_of_day(number), "team": team, "cloud": cloud, "currency": currency, **anomaly}
                )
    ordered = sorted(
        table, key=lambda row: (str(row["day"]), str(row["currency"]), str(row["team"]), str(row["cloud"]))
    )
    note = (
        f"Against the median of {LEAST} to {MOST} same weekdays; where that is nothing, or the day is less than "
        f"{FLOOR} above it, nothing is told."
    )
    return ANOMALIES.fill(ordered, note)


def find_anomaly(days: Mapping[int, SeriesDay], number: int) -> dict[str, CellValue] | None:
    """Return what is unusual about a day of a series; None where nothing is, or too little is known."""
    today = days.get(number)
    if today is None:
        return None
    begins = min(days)
    numbers = [n for n in range(number - _WEEK, number - _WEEK * (MOST + 1), -_WEEK) if n >= begins]
    if len(numbers) < LEAST:
        return None
    past = [days.get(n, SeriesDay(Decimal(0), Decimal(0), 0)) for n in numbers]
    median_cost = median(day.cost for day in past)
    spread = _WIDE.multiply(_NORMAL, median(abs(day.cost - median_cost) for day in past))
    above = _WIDE.subtract(today.cost, median_cost)
    if median_cost <= 0:
        return None
    if above <= max(FLOOR, _WIDE.multiply(SPREADS, spread)):
        return None
    cause, times = _cause(today, past)
    return {"cost": today.cost, "usual": median_cost, "above": above, "cause": cause, "times": times}


def _cause(today: SeriesDay, past: Sequence[SeriesDay]) -> tuple[str, Decimal | None]:
    """Return the factor that is furthest above its own median: cost is price x hours a machine x machines.

    Where none is above it, none is the cause.
    """
    factors = {
        "price of an hour": _ratios([today, *past], lambda day: divide_known(day.cost, day.hours)),
        "run time": _ratios([today, *past], lambda day: divide_known(day.hours, day.count)),
        "number of machines": _ratios([today, *past], lambda day: Decimal(day.count)),
    }
    ratio_by_factor = {name: times for name, times in factors.items() if times is not None and times > 1}
    if not ratio_by_factor:
        return "not known", divide_known(today.cost, median(day.cost for day in past))
    name = max(ratio_by_factor, key=lambda name: ratio_by_factor[name])
    return name, ratio_by_factor[name]


def _ratios(days: Sequence[SeriesDay], measure: object) -> Decimal | None:
    values = [measure(day) for day in days]  # type: ignore[operator]
    past = [value for value in values[1:] if value]
    return None if values[0] is None or not past else divide_known(values[0], median(past))
