"""Write the comparison of plans that were changed on purpose: table, wide table, JSON, CSV. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pricing.money import Usd
from pricing.units import format_count
from router.files.csv_text import csv_text
from router.planning.explain.changes import PlacementChange
from router.planning.what_if.what_if_comparison import VariantResult, WhatIf, change_of_cost
from router.render.tables import PLAIN, Screen, clip_text, format_table, format_usd, wrap_text

_TONNES = "T CO2E"
_RIGHT = frozenset({"PLACED", "COST", "CHANGE", "BOUND", "GAP", _TONNES})
_MOST_EXPLAINED = 6  # variants; with more of them only the wide table says what changed
_WIDEST_LABEL = 28
_NAMES = (
    ("newly_unplaced", "left out"),
    ("newly_placed", "placed now"),
    ("newly_late", "late or less sure than asked"),
    ("no_longer_late", "in time now"),
)


def table(found: WhatIf, sweeps: Sequence[str] = (), screen: Screen = PLAIN) -> str:
    """Return one row per plan, and below it what changed in each; ``sweeps`` has the names of what was swept."""
    more = _carbon_header(found)
    header = (*_labels(sweeps), "PLACED", "COST", "CHANGE", "BOUND", "GAP", *more)
    rows = [(*_label(result, sweeps), *_figures(result), *_carbon(result, more)) for result in found.results]
    widths = dict.fromkeys(_labels(sweeps), _WIDEST_LABEL // max(1, len(sweeps)))
    parts = [*_fixed(found, sweeps, screen.width), format_table(header, rows, _RIGHT, widths, screen)]
    changed = [result for result in found.variants if _names(result) or result.moves]
    if len(found.variants) <= _MOST_EXPLAINED:
        parts += ["\n".join(_explanation(result, sweeps, screen.width)) for result in changed]
    elif changed:
        parts.append(f"{format_count(len(changed), 'variant')} with other places, times or costs: see -o wide")
    parts += _notes(found, screen.width)
    return "\n\n".join(parts) + "\n"


def wide(found: WhatIf, sweeps: Sequence[str] = (), screen: Screen = PLAIN) -> str:
    """Return one row per plan with its names and greatest moves, as wide as it needs."""
    more = _carbon_header(found)
    figures = ("PLACED", "COST", "CHANGE", "BOUND", "GAP", *more)
    header = (*(sweeps or ("VARIANT",)), *figures, "STATUS", "JOBS", "MOVES")
    rows = [
        (
            *_label(result, sweeps),
            *_figures(result),
            *_carbon(result, more),
            result.plan.status,
            "; ".join(_names(result)),
            "; ".join(_move(move) for move in result.greatest_moves),
        )
        for result in found.results
    ]
    text = format_table(header, rows, _RIGHT, {}, screen)
    return "\n\n".join([*_fixed(found, sweeps, screen.width), text, *_notes(found, screen.width)]) + "\n"


def _labels(sweeps: Sequence[str]) -> tuple[str, ...]:
    return tuple(clip_text(name, _WIDEST_LABEL // len(sweeps)) for name in sweeps) or ("VARIANT",)


def _label(result: VariantResult, sweeps: Sequence[str]) -> tuple[str, ...]:
    base = not result.variant.changes
    if sweeps:
        return ("base", *[""] * (len(sweeps) - 1)) if base else result.variant.values
    return ("base" if base else "changed",)


def _fixed(found: WhatIf, sweeps: Sequence[str], width: int) -> Iterator[str]:
    """Yield the changes that all rows but the base share, in words."""
    shared = found.variants[0].variant.changes
    shared = shared[: len(shared) - len(sweeps)]
    if shared:
        yield wrap_text(
            f"{'in all rows but the base' if sweeps else 'changed'}: {'; '.join(map(str, shared))}", width=width
        )


def _figures(result: VariantResult) -> tuple[str, ...]:
    plan, base = result.plan, not result.variant.changes
    mark = "~" if result.within_gap else ""
    return (
        f"{result.placed} of {len(plan.jobs)}",
        format_usd(plan.cost_usd),
        "" if base else f"{mark}{_signed(result.difference)}",
        format_usd(plan.bound_usd),
        f"{plan.gap:.2%}",
    )


def _carbon_header(found: WhatIf) -> tuple[str, ...]:
    """Return the column of emissions, where some plan counts them."""
    return (_TONNES,) if any(result.plan.carbon is not None for result in found.results) else ()


def _carbon(result: VariantResult, header: Sequence[str]) -> tuple[str, ...]:
    carbon = result.plan.carbon
    return tuple("" if carbon is None else f"{carbon.tonnes:,.3f}" for _ in header)


def _signed(amount: Usd) -> str:
    return f"{'+' if amount.nanos > 0 else ''}{format_usd(amount)}"


def _names(result: VariantResult) -> list[str]:
    """Return the jobs that changed sides, by side."""
    return [f"{words}: {', '.join(jobs)}" for name, words in _NAMES if (jobs := getattr(result, name))]


def _explanation(result: VariantResult, sweeps: Sequence[str], width: int) -> Iterator[str]:
    yield result.variant.name if sweeps else "changed"
    for line in (*_names(result), *map(_move, result.greatest_moves)):
        yield wrap_text(line, "  ", width)
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


def _notes(found: WhatIf, width: int) -> list[str]:
    notes = []
    if any(result.within_gap for result in found.variants):
        notes.append("~ no greater than the gaps of the two plans: it may be due to the searches alone (--gap)")
    if any(result.plan.threshold_usd.nanos for result in found.results):
        notes.append("BOUND also counts stopping and starting (min_saving), which COST does not")
    if any(result.plan.carbon is not None for result in found.results):
        notes.append("BOUND also counts the carbon at its weight, which COST does not")
    cut = sum(result.plan.time_limit_hit for result in found.results)
    if cut:
        what = f"{format_count(cut, 'plan')} ended by the time limit: figures may differ from run to run"
        notes.append(f"{what} (--time-limit)")
    return [wrap_text(note, width=width) for note in notes]


def as_json(found: WhatIf, sweeps: Sequence[str] = ()) -> str:
    """Return ``schema_version``, the names of what was swept, the base and the variants; money as decimal strings."""
    document = {
        "schema_version": 1,
        "sweeps": list(sweeps),
        "base": _plain(found.base),
        "variants": [_plain(result) for result in found.variants],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


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


def as_csv(found: WhatIf, sweeps: Sequence[str] = ()) -> str:
    """Return one row per plan, a column for each sweep; names and moves are separated by semicolons."""
    figures: tuple[str, ...] = (
        "jobs",
        "placed",
        "cost_usd",
        "difference_usd",
        "within_gap",
        "bound_usd",
        "gap",
        "status",
    )
    if _carbon_header(found):
        figures += ("grams_co2e",)
    names = [name for name, _ in _NAMES]
    rows = []
    for result in found.results:
        plain = _plain(result)
        rows.append(
            [
                plain["name"],
                *(result.variant.values or [""] * len(sweeps)),
                *(plain.get(name, "") for name in figures),
                *("; ".join(plain[name]) for name in names),
                "; ".join(_move(move) for move in result.greatest_moves),
            ]
        )
    return csv_text(["variant", *sweeps, *figures, *names, "greatest_moves"], rows)
