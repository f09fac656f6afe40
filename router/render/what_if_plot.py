"""Draw the cost of plans against the value that was swept, with the number of jobs left out, as SVG. Pure functions."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from router.planning.what_if.what_if_comparison import VariantResult, WhatIf
from router.planning.what_if.what_if_syntax import CARBON_SWEEP, Sweep
from router.render.svg import COLOURS, GREY, INK, picture, text
from router.render.tables import clip_text, format_usd

_WIDTH, _LEFT, _RIGHT, _TOP, _HEIGHT = 760, 90, 730, 56, 260
_ROW = 18
_LABEL = 58.0  # pixels that the label of a value needs
_MOST_ROWS = 8  # lines whose numbers of jobs left out are listed
_Scale = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class _Line:
    """The plans of one value of the second sweep, along the first one."""

    name: str
    colour: str
    points: tuple[VariantResult, ...]


def cost_plot(found: WhatIf, sweeps: Sequence[Sweep]) -> str:
    """Return a picture: along, the first sweep's values; up, the cost; one line for each value of the second sweep.

    The dashed line is the cost of the base. Below the axis stands how many jobs each plan leaves out. A sweep of carbon
    is drawn as :func:`carbon_plot`.
    """
    first = sweeps[0]
    if first.name == CARBON_SWEEP:
        return carbon_plot(found, sweeps)
    lines = tuple(_lines(found, sweeps))
    values = sorted(first.values, key=lambda value: value.at)
    low, high = values[0].at, values[-1].at
    costs = [result.plan.cost_usd.dollars() for result in found.results]
    ticks = _ticks(min(costs), max(costs))

    def along(at: float) -> float:
        return (_LEFT + _RIGHT) / 2 if high == low else _LEFT + 12 + (at - low) / (high - low) * (_RIGHT - _LEFT - 24)

    def up(dollars: float) -> float:
        return _TOP + _HEIGHT - (dollars - ticks[0]) / (ticks[-1] - ticks[0]) * _HEIGHT

    parts = [text(_LEFT, 20, clip_text(f"Cost of the plan against {first.name}", 80), bold=True)]
    parts += _cost_grid(ticks, up)
    parts += _axis(first, along)
    parts += _base_line(found, up, _RIGHT, "end")
    for each in lines:
        parts += _curve(each, [(along(p.variant.at[0]), up(p.plan.cost_usd.dollars())) for p in each.points])
    foot = _TOP + _HEIGHT + 44
    parts.append(text(_LEFT, foot, "jobs left out (hollow points):", fill=GREY))
    for number, each in enumerate(lines[:_MOST_ROWS], start=1):
        y = foot + _ROW * number
        parts.append(text(_LEFT - 6, y, clip_text(each.name, 12), "end", fill=each.colour))
        kept = _apart([along(point.variant.at[0]) for point in each.points], _LABEL / 3)
        parts += [
            text(along(point.variant.at[0]), y, str(len(point.plan.unplaced)), "middle", fill=each.colour)
            for index, point in enumerate(each.points)
            if index in kept
        ]
    height = foot + _ROW * min(len(lines), _MOST_ROWS) + 12
    if len(sweeps) > 1:
        parts.append(text(_LEFT, 40, clip_text(f"one line for each value of {sweeps[1].name}", 90), fill=GREY))
    return picture(f"Cost against {first.name}", _WIDTH, height, parts, alone=True) + "\n"


def carbon_plot(found: WhatIf, sweeps: Sequence[Sweep]) -> str:
    """Return the trade-off of money and emissions: along, tonnes; up, the cost; each point has its weight.

    The dashed line is the cost of the base.
    """
    lines = tuple(_lines(found, sweeps))
    tonnes = _ticks(*_span([_tonnes(result) for result in found.variants]))
    costs = _ticks(*_span([result.plan.cost_usd.dollars() for result in found.results]))

    def along(at: float) -> float:
        return _LEFT + (at - tonnes[0]) / (tonnes[-1] - tonnes[0]) * (_RIGHT - _LEFT)

    def up(dollars: float) -> float:
        return _TOP + _HEIGHT - (dollars - costs[0]) / (costs[-1] - costs[0]) * _HEIGHT

    bottom = _TOP + _HEIGHT
    parts = [text(_LEFT, 20, "Cost of the plan against its emissions", bold=True)]
    parts += _cost_grid(costs, up)
    parts.append(_straight(_LEFT, bottom, _RIGHT, bottom, INK))
    for tick in tonnes:
        parts.append(_straight(along(tick), bottom, along(tick), bottom + 4, INK))
        parts.append(text(along(tick), bottom + 18, f"{tick:,.6g}", "middle"))
    parts.append(text(_RIGHT, bottom + 44, "tonnes of CO2e", "end", fill=GREY))
    parts.append(text(_LEFT, bottom + 44, f"beside each point: {sweeps[0].unit}; hollow: jobs left out", fill=GREY))
    # The plan without a weight is the base, at the right end.
    parts += _base_line(found, up, _LEFT + 4, "start")
    for each in lines:
        spots = [(along(_tonnes(p)), up(p.plan.cost_usd.dollars())) for p in each.points]
        parts += _curve(each, spots)
        last: tuple[float, float] | None = None
        for spot, point in zip(spots, each.points, strict=True):
            if last is None or math.dist(last, spot) >= _ROW:
                parts.append(text(spot[0] + 7, spot[1] - 7, point.variant.values[0], fill=each.colour))
                last = spot
    if len(sweeps) > 1:
        parts.append(text(_LEFT, 40, clip_text(f"one line for each value of {sweeps[1].name}", 90), fill=GREY))
    return picture("Cost against tonnes of CO2e", _WIDTH, bottom + 60, parts, alone=True) + "\n"


def _tonnes(result: VariantResult) -> float:
    return 0.0 if result.plan.carbon is None else result.plan.carbon.tonnes


def _span(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _lines(found: WhatIf, sweeps: Sequence[Sweep]) -> Iterator[_Line]:
    series = [(value.text, value.at) for value in sweeps[1].values] if len(sweeps) > 1 else [("", 0.0)]
    for number, (name, at) in enumerate(series):
        own = [result for result in found.variants if result.variant.at[1:] in ((), (at,))]
        points = tuple(sorted(own, key=lambda result: result.variant.at[0]))
        yield _Line(name, COLOURS[number % len(COLOURS)], points)


def _ticks(low: float, high: float) -> list[float]:
    """Return four to eight round amounts around the costs; the first is zero where the lowest cost is near to it."""
    if low < (high - low) * 0.5:
        low = 0.0
    spread = max(high - low, 0.02 * high, 1e-6)
    step = 10 ** math.floor(math.log10(spread / 4))
    step = next(step * factor for factor in (1, 2, 5, 10) if spread / (step * factor) <= 6)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [count * step for count in range(first, max(last, first + 1) + 1)]


def _dollars(tick: float, ticks: Sequence[float]) -> str:
    decimals = 0 if ticks[1] - ticks[0] >= 1 else 2
    return f"${tick:,.{decimals}f}"


def _axis(sweep: Sweep, along: _Scale) -> Iterator[str]:
    bottom = _TOP + _HEIGHT
    yield _straight(_LEFT, bottom, _RIGHT, bottom, INK)
    values = sorted(sweep.values, key=lambda value: value.at)
    kept = _apart([along(value.at) for value in values], _LABEL)
    for index, value in enumerate(values):
        x = along(value.at)
        yield _straight(x, bottom, x, bottom + 4, INK)
        if index in kept:
            yield text(x, bottom + 18, clip_text(value.text, 10), "middle")
    yield text(_RIGHT, bottom + 44, sweep.unit, "end", fill=GREY)


def _apart(places: Sequence[float], space: float) -> frozenset[int]:
    """Return the indices of rising places that are at least so far apart; the first is always among them."""
    kept: list[int] = []
    for index, place in enumerate(places):
        if not kept or place - places[kept[-1]] >= space:
            kept.append(index)
    return frozenset(kept)


def _curve(line: _Line, spots: Sequence[tuple[float, float]]) -> Iterator[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    yield f'<polyline points="{path}" fill="none" stroke="{line.colour}" stroke-width="1.6"/>'
    for (x, y), point in zip(spots, line.points, strict=True):
        left_out = len(point.plan.unplaced)
        emitted = "" if point.plan.carbon is None else f"{point.plan.carbon.tonnes:,.3f} t CO2e, "
        words = f"{point.variant.name}: {format_usd(point.plan.cost_usd)}, {emitted}{left_out} left out"
        fill = "white" if left_out else line.colour
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{line.colour}" stroke-width="1.6">'
            f"<title>{html.escape(words)}</title></circle>"
        )


def _cost_grid(ticks: Sequence[float], up: Callable[[float], float]) -> Iterator[str]:
    """Yield a line and its dollars for each tick of cost."""
    for tick in ticks:
        yield _straight(_LEFT, up(tick), _RIGHT, up(tick), "#ddd")
        yield text(_LEFT - 6, up(tick) + 4, _dollars(tick, ticks), "end")


def _base_line(found: WhatIf, up: Callable[[float], float], x: float, anchor: str) -> list[str]:
    """Return the dashed line of the base's cost, with its label from or to ``x``."""
    cost = found.base.plan.cost_usd
    y = up(cost.dollars())
    line = _straight(_LEFT, y, _RIGHT, y, GREY, dashed=True)
    return [line, text(x, y - 8, f"base {format_usd(cost)}", anchor, fill=GREY)]


def _straight(x1: float, y1: float, x2: float, y2: float, colour: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashes}/>'
