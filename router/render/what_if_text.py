"""Write and draw the comparison of plans that were changed on purpose: tables, JSON, CSV, pictures. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pricing.money import Usd
from pricing.units import format_count
from router.planning.explain.changes import PlacementChange
from router.planning.what_if.what_if_comparison import VariantResult, WhatIf, change_of_cost
from router.planning.what_if.what_if_syntax import CARBON_SWEEP, Sweep
from router.render.axes import Scale, foot_tick, free_ticks, scale_around, value_grid
from router.render.drawing import dot, line, picture, polyline, series_class, stand_alone, text, title
from router.render.figures import tick_in
from router.render.record_table import RecordTable, TableColumn, json_document
from router.render.tables import PLAIN, Screen, clip_text, format_usd, wrap_text

_MOST_EXPLAINED = 6  # variants; with more of them only the wide table says what changed
_WIDEST_LABEL = 28
_NAMES = (
    ("newly_unplaced", "left out"),
    ("newly_placed", "placed now"),
    ("newly_late", "late or less sure than asked"),
    ("no_longer_late", "in time now"),
)


def table(what_if: WhatIf, sweeps: Sequence[str] = (), screen: Screen = PLAIN) -> str:
    """Return one row per plan, and below it what changed in each; ``sweeps`` has the names of what was swept."""
    parts = [*_fixed(what_if, sweeps, screen.width), _variant_table(what_if, sweeps).text(what_if.results, screen)]
    changed = [result for result in what_if.variants if _names(result) or result.moves]
    if len(what_if.variants) <= _MOST_EXPLAINED:
        parts += ["\n".join(_explanation(result, sweeps, screen.width)) for result in changed]
    elif changed:
        parts.append(f"{format_count(len(changed), 'variant')} with other places, times or costs: see -o wide")
    parts += _notes(what_if, screen.width)
    return "\n\n".join(parts) + "\n"


def wide(what_if: WhatIf, sweeps: Sequence[str] = (), screen: Screen = PLAIN) -> str:
    """Return one row per plan with its names and greatest moves, as wide as it needs."""
    text = _variant_table(what_if, sweeps).text(what_if.results, screen, wide=True)
    return "\n\n".join([*_fixed(what_if, sweeps, screen.width), text, *_notes(what_if, screen.width)]) + "\n"


def _variant_table(what_if: WhatIf, sweeps: Sequence[str]) -> RecordTable[VariantResult]:
    """Return the table of plans, with a column for each sweep, and for emissions where some plan counts them."""
    counts_carbon = any(result.plan.carbon is not None for result in what_if.results)
    tonnes: TableColumn[VariantResult] = TableColumn(
        "", lambda r: r.plan.carbon and r.plan.carbon.tonnes, "T CO2E", "{:,.3f}".format, right=True
    )
    grams: TableColumn[VariantResult] = TableColumn("grams_co2e", lambda r: r.plan.carbon and r.plan.carbon.grams_co2e)
    return RecordTable(
        (
            TableColumn("variant", lambda r: r.variant.name),
            *(column for at, name in enumerate(sweeps) for column in _sweep_columns(at, name, len(sweeps))),
            *([] if sweeps else [_KIND]),
            TableColumn("jobs", lambda r: len(r.plan.jobs)),
            TableColumn("placed", lambda r: r.placed),
            TableColumn("", lambda r: f"{r.placed} of {len(r.plan.jobs)}", "PLACED", right=True),
            TableColumn("cost_usd", lambda r: r.plan.cost_usd, "COST", format_usd, right=True),
            TableColumn("difference_usd", lambda r: r.difference),
            TableColumn("within_gap", lambda r: r.within_gap, csv=str),
            TableColumn("", _change, "CHANGE", right=True),
            TableColumn("bound_usd", lambda r: r.plan.bound_usd, "BOUND", format_usd, right=True),
            TableColumn("gap", lambda r: r.plan.gap, "GAP", "{:.2%}".format, right=True),
            *([tonnes] if counts_carbon else []),
            TableColumn("status", lambda r: r.plan.status, "STATUS", wide=True),
            *([grams] if counts_carbon else []),
            *(_side(name) for name, _ in _NAMES),
            TableColumn("", lambda r: "; ".join(_names(r)), "JOBS", wide=True),
            TableColumn("greatest_moves", lambda r: "; ".join(map(_move, r.greatest_moves)), "MOVES", wide=True),
        )
    )


_KIND: TableColumn[VariantResult] = TableColumn("", lambda r: "changed" if r.variant.changes else "base", "VARIANT")


def _sweep_columns(at: int, name: str, sweeps: int) -> tuple[TableColumn[VariantResult], ...]:
    """Return the columns of one sweep: its field, and its heading, clipped in the narrow table."""
    width = _WIDEST_LABEL // sweeps

    def label(result: VariantResult) -> str | None:
        if result.variant.changes:
            return result.variant.values[at]
        return None if at else "base"

    return (
        TableColumn(name, lambda result: result.variant.values[at] if result.variant.values else None),
        TableColumn("", label, clip_text(name, width), width=width, wide=False),
        TableColumn("", label, name, wide=True),
    )


def _side(name: str) -> TableColumn[VariantResult]:
    return TableColumn(name, lambda result: "; ".join(getattr(result, name)))


def _change(result: VariantResult) -> str:
    return f"{'~' if result.within_gap else ''}{_signed(result.difference)}" if result.variant.changes else ""


def _fixed(what_if: WhatIf, sweeps: Sequence[str], width: int) -> Iterator[str]:
    shared = what_if.variants[0].variant.changes
    shared = shared[: len(shared) - len(sweeps)]
    if shared:
        yield wrap_text(
            f"{'in all rows but the base' if sweeps else 'changed'}: {'; '.join(map(str, shared))}", width=width
        )


def _signed(amount: Usd) -> str:
    return f"{'+' if amount.nanos > 0 else ''}{format_usd(amount)}"


def _names(result: VariantResult) -> list[str]:
    return [f"{words}: {', '.join(jobs)}" for name, words in _NAMES if (jobs := getattr(result, name))]


def _explanation(result: VariantResult, sweeps: Sequence[str], width: int) -> Iterator[str]:
    yield result.variant.name if sweeps else "changed"
    for words in (*_names(result), *map(_move, result.greatest_moves)):
        yield wrap_text(words, "  ", width)
    more = len(result.moves) - len(result.greatest_moves)
    if more:
        yield f"  {format_count(more, 'smaller change')} of other jobs"


def _move(move: PlacementChange) -> str:
    """Return a change in words, such as ``mpt-13b +$3.20: from ... to ...``."""
    cost = _signed(change_of_cost(move))
    if move.before is None:
        return f"{move.job} {cost}: placed on {move.after}"
    if move.after is None:
        return f"{move.job} {cost}: left out, was on {move.before}"
    if move.before == move.after:
        return f"{move.job} {cost}: {move.kind} on {move.after}"
    return f"{move.job} {cost}: from {move.before} to {move.after}"


def _notes(what_if: WhatIf, width: int) -> list[str]:
    notes = []
    if any(result.within_gap for result in what_if.variants):
        notes.append("~ no greater than the gaps of the two plans: it may be due to the searches alone (--gap)")
    if any(result.plan.threshold_usd.nanos for result in what_if.results):
        notes.append("BOUND also counts stopping and starting (min_saving), which COST does not")
    if any(result.plan.carbon is not None for result in what_if.results):
        notes.append("BOUND also counts the carbon at its weight, which COST does not")
    cut = sum(result.plan.time_limit_hit for result in what_if.results)
    if cut:
        what = f"{format_count(cut, 'plan')} ended by the time limit: figures may differ from run to run"
        notes.append(f"{what} (--time-limit)")
    return [wrap_text(note, width=width) for note in notes]


def as_json(what_if: WhatIf, sweeps: Sequence[str] = ()) -> str:
    """Return ``schema_version``, the names of what was swept, the base and the variants; money as decimal strings."""
    document = {
        "sweeps": list(sweeps),
        "base": _plain(what_if.base),
        "variants": [_plain(result) for result in what_if.variants],
    }
    return json_document(document, ascii_only=False)


def _plain(result: VariantResult) -> dict[str, Any]:
    plan = result.plan
    return {
        "name": result.variant.name,
        "changes": [str(change) for change in result.variant.changes],
        "values": list(result.variant.values),
        "jobs": len(plan.jobs),
        "placed": result.placed,
        "cost_usd": str(plan.cost_usd),
        "difference_usd": str(result.difference),
        "within_gap": result.within_gap,
        "threshold_usd": str(plan.threshold_usd),
        **({} if plan.carbon is None else {"grams_co2e": plan.carbon.grams_co2e}),
        "bound_usd": str(plan.bound_usd),
        "gap": plan.gap,
        "status": plan.status,
        "time_limit_hit": plan.time_limit_hit,
        "unplaced": [item.job for item in plan.unplaced],
        **{name: list(getattr(result, name)) for name, _ in _NAMES},
        "moves": [
            {
                "job": move.job,
                "change": move.kind,
                "before": None if move.before is None else str(move.before),
                "after": None if move.after is None else str(move.after),
                "difference_usd": str(change_of_cost(move)),
            }
            for move in result.moves
        ],
    }


def as_csv(what_if: WhatIf, sweeps: Sequence[str] = ()) -> str:
    """Return one row per plan, a column for each sweep; names and moves are separated by semicolons."""
    return _variant_table(what_if, sweeps).csv(what_if.results)


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
