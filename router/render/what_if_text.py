"""Write the comparison of plans that were changed on purpose: table, wide table, JSON, CSV. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pricing.money import Usd
from pricing.units import format_count
from router.planning.explain.changes import PlacementChange
from router.planning.what_if.what_if_comparison import VariantResult, WhatIf, change_of_cost
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
