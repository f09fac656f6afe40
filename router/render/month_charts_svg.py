"""Draw what was spent by day against the budget, and the months beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal

from router.ledger.month import Month
from router.render.axes import ChartLayout, Scale, tick_unit, value_grid
from router.render.drawing import dot, line, picture, polygon, polyline, rect, text, text_width, title
from router.render.figures import amount_in, tick_in
from router.render.waterfall_svg import LEAST_HEIGHT

_TOP, _BOTTOM = 30.0, 26.0
CHARTS = (ChartLayout(1078, 60, 150, 212), ChartLayout(692, 60, 150, 212), ChartLayout(340, 52, 10, 190))


def draw_days(
    days: Sequence[tuple[date, Decimal]],
    coming: Sequence[tuple[date, Decimal]],
    month: Month,
    budget: Decimal | None,
    currency: str,
    layout: ChartLayout,
) -> str:
    """Return the sums by day as a line over the whole month, with the budget's line.

    The line ends at the last of ``days``; what is charged for the days that are ``coming`` goes on from there, dashed.
    """
    days = days or [(month.begins.date(), Decimal(0))]
    values = [float(amount) for _, amount in (*days, *coming)]
    low, high = min(0.0, *values), max(*values, float(budget or 0), LEAST_HEIGHT)
    axis, scale = _axis(low, high, currency, layout)
    length = (month.ends.date() - month.begins.date()).days
    first, step = month.begins.date(), (layout.width - layout.left_margin - layout.right_margin) / max(length - 1, 1)

    def x_of(day: date) -> float:
        return layout.left_margin + (day - first).days * step

    points = [(x_of(day), scale.at(float(amount))) for day, amount in days]
    last, amount = days[-1]
    ground = [(x_of(last), scale.at(0)), (x_of(days[0][0]), scale.at(0))]
    x, y = x_of(last), scale.at(float(amount))
    right = layout.width - layout.right_margin
    parts = [*axis, polygon([*points, *ground], "band inv")]
    parts.append(polyline(points, "ln inv"))
    if coming:
        ahead = [(x_of(day), scale.at(float(sum_then))) for day, sum_then in coming]
        parts.append(polyline([points[-1], *ahead], "ln inv", stroke_dasharray="4 4"))
    if budget is not None:
        parts.append(line(layout.left_margin, scale.at(float(budget)), right, scale.at(float(budget)), "mk"))
        words = f"budget {amount_in(budget, currency)}"
        parts.append(text(layout.left_margin, scale.at(float(budget)) - 6, words, "b halo"))
    parts.append(dot(x, y, 3.5, "full inv"))
    beside = x + 100 < layout.width
    words = amount_in(amount, currency)
    parts.append(text(x + 10 if beside else x, y + (4 if beside else 22), words, "b halo" if beside else "b halo e"))
    for number in sorted({0, 7, 14, 21, length - 1}):
        day = first + timedelta(days=number)
        anchor = "s" if number == 0 else "s e" if number == length - 1 else "s m"
        if layout.width > 400 or number in (0, 14, length - 1):
            parts.append(text(x_of(day), layout.height - 8, f"{day.day} {day:%b}", anchor))
    name = f"Spent so far by day in {currency}, against the budget. The table of days holds the same figures."
    return picture(name, layout.width, layout.height, parts)


def draw_months(months: Sequence[tuple[Month, Decimal]], currency: str, layout: ChartLayout) -> str:
    """Return a column for each month; the last, which is reported, in ink."""
    values = [float(amount) for _, amount in months]
    low, high = min(0.0, *values), max(*values, LEAST_HEIGHT)
    axis, scale = _axis(low, high, currency, layout)
    step = (layout.width - layout.left_margin - 10) / len(months)
    parts = list(axis)
    for number, (month, amount) in enumerate(months):
        x, value = layout.left_margin + number * step, float(amount)
        top, height = min(scale.at(0), scale.at(value)), max(abs(scale.at(0) - scale.at(value)), 2.0)
        words = title(f"{month} {amount_in(amount, currency)}")
        cls = "full inv" if number == len(months) - 1 else "full met"
        parts.append(rect(x + step * 0.15, top, min(step * 0.7, 64.0), height, cls, words))
        middle = x + step * 0.15 + min(step * 0.7, 64.0) / 2
        parts.append(text(middle, layout.height - 8, f"{month.begins:%b}", "s m"))
        words = amount_in(amount, currency)
        if step >= text_width(words) + 8:
            parts.append(text(middle, top - 5, words, "m"))
    name = f"Cost by month in {currency}. The table below holds the same figures."
    return picture(name, layout.width, layout.height, parts)


def _axis(low: float, high: float, currency: str, layout: ChartLayout) -> tuple[list[str], Scale]:
    scale = Scale(low, high, layout.height - _BOTTOM, _TOP)
    unit, right = tick_unit(high - low, 4), layout.width - max(layout.right_margin, 10)
    parts = value_grid(scale, unit, layout.left_margin, right, lambda number: tick_in(number, unit, currency))
    return list(parts), scale
