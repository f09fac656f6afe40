"""Find days that cost far more than the same weekdays before them, and name the likely cause.

A day is unusual where it is above the median of up to eight same weekdays before it by more than five times their
spread (1.4826 x the median absolute deviation, which is a standard deviation where days vary normally) and by more than
a floor of dollars. Fewer than four such days before it give no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from statistics import median

from router.showback.report.context import Setting
from router.showback.report.rollup_tables import Found, day_number, day_of
from router.showback.report.values import Cell, Column, Kind, Section, ratio, section

FLOOR, SPREADS, LEAST, MOST = Decimal(20), Decimal(5), 4, 8
_NORMAL = Decimal("1.4826")
_WEEK = 7
_WIDE = Context(prec=60)
COLUMNS = (
    Column("day", "Day", Kind.DAY, 0),
    Column("team", "Team", rank=0),
    Column("cloud", "Cloud", rank=1),
    Column("currency", "Currency", rank=0),
    Column("cost", "Cost", Kind.MONEY, 0),
    Column("usual", "Usual", Kind.MONEY, 0),
    Column("above", "Above", Kind.MONEY, 1),
    Column("cause", "Likely", rank=1),
    Column("times", "Times usual", Kind.RATE, 2),
)


@dataclass(frozen=True, slots=True)
class Day:
    """The usage of one series on a day; ``count`` is how many machines (stretches of them) began."""

    cost: Decimal
    hours: Decimal
    count: int


def anomalies(context: Setting) -> Section:
    """Return a row for each unusual day, team and cloud, in order. Days that are not over are not judged."""
    query = context.asked
    rows = context.cubes.ask(
        f"SELECT currency, team, cloud, day, sum({context.cost}) AS cost, sum(hours) AS hours, "
        f"sum(count)::BIGINT AS count FROM days WHERE category = 'Usage' GROUP BY ALL ORDER BY ALL"
    )
    first, last = day_number(query.month.begins.date()), day_number(query.month.ends.date())
    last = min(last, day_number(query.now.date()))
    series: dict[tuple[str, str | None, str | None], dict[int, Day]] = {}
    for row in rows:
        series.setdefault((row["currency"], row["team"], row["cloud"]), {})[row["day"]] = _day(row)
    table: list[dict[str, Cell]] = []
    for (currency, team, cloud), days in series.items():
        for number in range(first, last):
            anomaly = unusual(days, number)
            if anomaly is not None:
                table.append({"day": day_of(number), "team": team, "cloud": cloud, "currency": currency, **anomaly})
    ordered = sorted(
        table, key=lambda row: (str(row["day"]), str(row["currency"]), str(row["team"]), str(row["cloud"]))
    )
    note = f"Against the median of {LEAST} to {MOST} same weekdays; below {FLOOR} above it nothing is told."
    return section("anomalies", "Unusual days", COLUMNS, ordered, note)


def unusual(days: Mapping[int, Day], number: int) -> dict[str, Cell] | None:
    """Return what is unusual about a day of a series; None where nothing is, or too little is known."""
    today = days.get(number)
    if today is None:
        return None
    begins = min(days)
    numbers = [n for n in range(number - _WEEK, number - _WEEK * (MOST + 1), -_WEEK) if n >= begins]
    if len(numbers) < LEAST:
        return None
    past = [days.get(n, Day(Decimal(0), Decimal(0), 0)) for n in numbers]
    median_cost = median(day.cost for day in past)
    spread = _WIDE.multiply(_NORMAL, median(abs(day.cost - median_cost) for day in past))
    above = _WIDE.subtract(today.cost, median_cost)
    if above <= max(FLOOR, _WIDE.multiply(SPREADS, spread)):
        return None
    cause, times = _cause(today, past)
    return {"cost": today.cost, "usual": median_cost, "above": above, "cause": cause, "times": times}


def _cause(today: Day, past: Sequence[Day]) -> tuple[str, Decimal | None]:
    """Return the factor that is furthest above its own median: cost is price x hours a machine x machines."""
    if not any(day.cost for day in past):
        return "new: nothing on such days before", None
    factors = {
        "price of an hour": _ratios([today, *past], lambda day: ratio(day.cost, day.hours)),
        "run time": _ratios([today, *past], lambda day: ratio(day.hours, day.count)),
        "number of machines": _ratios([today, *past], lambda day: Decimal(day.count)),
    }
    ratio_by_factor = {name: times for name, times in factors.items() if times is not None}
    if not ratio_by_factor:
        return "not known", ratio(today.cost, median(day.cost for day in past))
    name = max(ratio_by_factor, key=lambda name: ratio_by_factor[name])
    return name, ratio_by_factor[name]


def _ratios(days: Sequence[Day], measure: object) -> Decimal | None:
    values = [measure(day) for day in days]  # type: ignore[operator]
    past = [value for value in values[1:] if value]
    return None if values[0] is None or not past else ratio(values[0], median(past))


def _day(row: Found) -> Day:
    return Day(row["cost"] or Decimal(0), row["hours"] or Decimal(0), row["count"])
