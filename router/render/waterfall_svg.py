"""Draw the bridge of a month as a lying waterfall: stations from zero, reasons from where the last step ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from router.render.axes import RowLayout, Scale, tick_unit
from router.render.drawing import element, line, picture, rect, text, text_width, title
from router.render.figures import amount_in, tick_in

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
