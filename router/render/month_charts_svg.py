"""Draw costs: what was spent by day against the budget, months beside each other, and waterfalls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal

from router.ledger.month import Month
from router.render.axes import ChartLayout, RowLayout, Scale, tick_unit, value_grid
from router.render.drawing import dot, element, line, picture, polygon, polyline, rect, text, text_width, title
from router.render.figures import amount_in, tick_in

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


# The least range of an axis: four ticks a cent apart.
LEAST_HEIGHT = 0.04
_BAR, _HEAD = 16.0, 20.0
_LEAST = 2.0
_NOTE_GAP = 12.0


@dataclass(frozen=True, slots=True)
class WaterfallStep:
    """A step: ``level`` is where the sum stands after it; ``kind`` is planned, metered, spent, reason or waste."""

    name: str
    note: str
    kind: str
    amount: Decimal
    level: Decimal

    @property
    def is_station(self) -> bool:
        return self.kind in ("planned", "metered", "spent")


BRIDGES = (
    RowLayout(1078, 330, 110, 30),
    RowLayout(692, 170, 100, 30, notes=False),
    RowLayout(340, 0, 100, 37, above=True),
)
_CLASSES = {"planned": "hol plan", "metered": "full met", "spent": "full inv", "reason": "full met", "waste": "wh"}
MONTH_NAME = "Waterfall from planned to invoiced"


def draw_waterfall(steps: Sequence[WaterfallStep], currency: str, layout: RowLayout, name: str = MONTH_NAME) -> str:
    """Return the drawing of the steps, which have their amounts beside them."""
    levels = [float(step.level) for step in steps]
    low, high = min(0.0, *levels), max(LEAST_HEIGHT, *levels)
    unit = tick_unit(high - low, 4)
    end = layout.width - layout.right_margin
    scale = Scale(low, high, layout.left_margin, end)
    height = _HEAD + len(steps) * layout.row + 6

    parts: list[str] = []
    for number in scale.ticks(unit):
        x = scale.at(number * unit)
        anchor = "s" if number == 0 and low == 0 else "s m"
        parts.append(line(x, _HEAD, x, height, "ax" if number == 0 else "g"))
        if x + 24 <= end + layout.right_margin:
            parts.append(text(x, 12, tick_in(number, unit, currency), anchor))
    names: list[str] = []
    before = 0.0
    for number, step in enumerate(steps):
        y = _HEAD + number * layout.row + (layout.row - _BAR - 2 if layout.above else (layout.row - _BAR) / 2)
        start = 0.0 if step.is_station else before
        x1, x2 = sorted((scale.at(start), scale.at(float(step.level))))
        wide = max(x2 - x1, _LEAST)
        words = amount_in(step.amount, currency, signed=not step.is_station)
        if step.is_station and number:
            above = y - 19 if layout.above else y - (layout.row - _BAR) / 2
            parts.append(line(0, above, layout.width, above, "ax"))
        parts.append(rect(x1, y, wide, _BAR, _CLASSES[step.kind], title(f"{step.name} {words}"), rx=1))
        parts.append(text(layout.width, y + 12, words, "b e" if step.is_station else "e"))
        names += _name(step, y, layout)
        before = float(step.level)
        if number + 1 < len(steps):
            parts.append(line(scale.at(before), y + _BAR, scale.at(before), y + layout.row, "mkl"))
    words = f"{name}, {currency}. The table below holds the same figures."
    return picture(words, layout.width, height, [*parts, *names])


def _name(step: WaterfallStep, y: float, layout: RowLayout) -> Iterator[str]:
    bold = "b" if step.is_station else ""
    at = y - 4 if layout.above else y + 12
    if layout.above:
        note = element("tspan", step.note, cls="s", dx=6) if step.note else ""
        yield element("text", f"{step.name}{note}", x=0.0, y=at, cls=f"halo {bold}".strip())
        return
    yield text(0, at, step.name, bold)
    x = text_width(step.name, bold=step.is_station) + _NOTE_GAP
    if layout.notes and step.note and x + text_width(step.note) < layout.left_margin:
        yield text(x, at, step.note, "s")
