"""Draw the cost of plans against the value that was swept, with the number of jobs left out, as SVG. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from router.planning.what_if.what_if_comparison import VariantResult, WhatIf
from router.planning.what_if.what_if_syntax import CARBON_SWEEP, Sweep
from router.render.axes import Scale, foot_tick, free_ticks, scale_around, value_grid
from router.render.drawing import dot, line, picture, polyline, series_class, stand_alone, text, title
from router.render.figures import tick_in
from router.render.tables import clip_text, format_usd

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 90.0, 730.0, 56.0, 316.0
_MOST_TICKS = 6
_ROW = 18
_MOST_ROWS = 8  # lines whose numbers of jobs left out are listed


@dataclass(frozen=True, slots=True)
class _Line:
    """The plans of one value of the second sweep, along the first one; ``number`` chooses the colour."""

    name: str
    number: int
    points: tuple[VariantResult, ...]

    @property
    def ink(self) -> str:
        return f"full {series_class(self.number).split()[0]}"


def cost_plot(what_if: WhatIf, sweeps: Sequence[Sweep]) -> str:
    """Return a picture: along, the first sweep's values; up, the cost; one line for each value of the second sweep.

    The dashed line is the cost of the base. Below the axis stands how many jobs each plan leaves out. A sweep of carbon
    is drawn as :func:`carbon_plot`.
    """
    first = sweeps[0]
    if first.name == CARBON_SWEEP:
        return carbon_plot(what_if, sweeps)
    lines = tuple(_lines(what_if, sweeps))
    values = sorted(first.values, key=lambda value: value.at)
    low, high = values[0].at, values[-1].at
    x = Scale(low, high, _LEFT + 12, _RIGHT - 12) if low < high else Scale(low - 1, low + 1, _LEFT, _RIGHT)
    parts, y = _cost_axis(what_if)
    ticks = [(x.at(value.at), clip_text(value.text, 10)) for value in values]
    named = frozenset(at for at, _ in free_ticks(ticks, str, 0, _WIDTH))
    for at, words in ticks:
        parts += foot_tick(at, _BOTTOM, words if at in named else "")
    parts += [text(_LEFT, 20, clip_text(f"Cost of the plan against {first.name}", 80), "b"), *_base_line(what_if, y)]
    for each in lines:
        parts += _curve(each, [(x.at(p.variant.at[0]), y.at(p.plan.cost_usd.dollars())) for p in each.points])
    foot = _BOTTOM + 44
    parts += [text(_RIGHT, foot, first.unit, "s e"), text(_LEFT, foot, "jobs left out (hollow points):", "s")]
    for number, each in enumerate(lines[:_MOST_ROWS], start=1):
        row = foot + _ROW * number
        parts.append(text(_LEFT - 6, row, clip_text(each.name, 12), f"e {each.ink}"))
        counts = [(x.at(point.variant.at[0]), str(len(point.plan.unplaced))) for point in each.points]
        parts += [text(at, row, count, f"m {each.ink}") for at, count in free_ticks(counts, str, 0, _WIDTH)]
    height = foot + _ROW * min(len(lines), _MOST_ROWS) + 12
    return stand_alone(picture(f"Cost against {first.name}", _WIDTH, height, [*parts, *_series_note(sweeps)]))


def carbon_plot(what_if: WhatIf, sweeps: Sequence[Sweep]) -> str:
    """Return the trade-off of money and emissions: along, tonnes; up, the cost; each point has its weight.

    The dashed line is the cost of the base.
    """
    x, unit = scale_around((_tonnes(result) for result in what_if.variants), _LEFT, _RIGHT, _MOST_TICKS)
    parts, y = _cost_axis(what_if)
    for number in x.ticks(unit):
        parts += foot_tick(x.at(number * unit), _BOTTOM, f"{number * unit:,.6g}")
    parts.append(text(_LEFT, 20, "Cost of the plan against its emissions", "b"))
    parts.append(text(_RIGHT, _BOTTOM + 44, "tonnes of CO2e", "s e"))
    parts.append(text(_LEFT, _BOTTOM + 44, f"beside each point: {sweeps[0].unit}; hollow: jobs left out", "s"))
    # The plan without a weight is the base, at the right end.
    parts += _base_line(what_if, y, at_start=True)
    for each in _lines(what_if, sweeps):
        spots = [(x.at(_tonnes(p)), y.at(p.plan.cost_usd.dollars())) for p in each.points]
        parts += _curve(each, spots)
        last: tuple[float, float] | None = None
        for spot, point in zip(spots, each.points, strict=True):
            if last is None or math.dist(last, spot) >= _ROW:
                parts.append(text(spot[0] + 7, spot[1] - 7, point.variant.values[0], each.ink))
                last = spot
    return stand_alone(picture("Cost against tonnes of CO2e", _WIDTH, _BOTTOM + 60, [*parts, *_series_note(sweeps)]))


def _tonnes(result: VariantResult) -> float:
    return 0.0 if result.plan.carbon is None else result.plan.carbon.tonnes


def _lines(what_if: WhatIf, sweeps: Sequence[Sweep]) -> Iterator[_Line]:
    series = [(value.text, value.at) for value in sweeps[1].values] if len(sweeps) > 1 else [("", 0.0)]
    for number, (name, at) in enumerate(series):
        own = [result for result in what_if.variants if result.variant.at[1:] in ((), (at,))]
        points = tuple(sorted(own, key=lambda result: result.variant.at[0]))
        yield _Line(name, number, points)


def _series_note(sweeps: Sequence[Sweep]) -> list[str]:
    words = [clip_text(f"one line for each value of {sweep.name}", 90) for sweep in sweeps[1:2]]
    return [text(_LEFT, 40, each, "s") for each in words]


def _cost_axis(what_if: WhatIf) -> tuple[list[str], Scale]:
    """Return the lines and dollars of the costs of all plans, the axis below them, and their scale."""
    costs = [result.plan.cost_usd.dollars() for result in what_if.results]
    scale, unit = scale_around(costs, _BOTTOM, _TOP, _MOST_TICKS)
    grid = value_grid(scale, unit, _LEFT, _RIGHT, lambda number: tick_in(number, unit, "USD"))
    return [*grid, line(_LEFT, _BOTTOM, _RIGHT, _BOTTOM, "ax")], scale


def _curve(drawn: _Line, spots: Sequence[tuple[float, float]]) -> Iterator[str]:
    yield polyline(spots, f"ln {series_class(drawn.number)}")
    for (x, y), point in zip(spots, drawn.points, strict=True):
        left_out = len(point.plan.unplaced)
        emitted = "" if point.plan.carbon is None else f"{point.plan.carbon.tonnes:,.3f} t CO2e, "
        words = f"{point.variant.name}: {format_usd(point.plan.cost_usd)}, {emitted}{left_out} left out"
        yield dot(x, y, 4, drawn.ink.replace("full", "fg") if left_out else drawn.ink, title(words))


def _base_line(what_if: WhatIf, scale: Scale, *, at_start: bool = False) -> list[str]:
    """Return the dashed line of the base's cost with its label, at the right end or ``at_start``."""
    cost = what_if.base.plan.cost_usd
    y = scale.at(cost.dollars())
    label = text(
        _LEFT + 4 if at_start else _RIGHT, y - 8, f"base {format_usd(cost)}", "s halo" if at_start else "s e halo"
    )
    return [line(_LEFT, y, _RIGHT, y, "dash"), label]
