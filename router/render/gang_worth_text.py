"""Render the worth of changes to a job on its spot gang, as text and JSON. Pure functions."""

from __future__ import annotations

from typing import Any

from pricing.money import ZERO
from pricing.units import to_percent
from router.planning.what_if.gang_worth import GangCase, GangFigures, GangWorth
from router.render.figures import stamp
from router.render.tables import PLAIN, Screen, format_day_time, format_table, format_usd, wrap_text

_RIGHT = frozenset({"COST", "MORE", "FALLBACK", "SURE"})
_HALF_CENT = 5_000_000  # nano-dollars
_NUMBERS = ("on_time_probability", "fallback_probability", "interruptions_per_hour")
_HOURS = {"+1h": "deadline an hour later", "-1h": "deadline an hour earlier"}
_ENDS = {"low": "pool at the lower end", "high": "pool at the upper end"}


def worth_text(worth: GangWorth, screen: Screen = PLAIN) -> str:
    """Return a row for the gang as planned and for each change, and in words what is refused."""
    title = (
        f"What changes are worth on {worth.gang}, begun {format_day_time(worth.start)}: this gang alone, other jobs "
        f"held fixed"
    )
    if worth.shared:
        title += "; the plan gives some steps to other gangs, here it does them all"
    parts = [wrap_text(title)]
    planned = worth.planned.figures
    if planned is not None:
        rows = [_row(_label(worth, worth.planned), planned, planned)]
        rows += [_row(_label(worth, case), case.figures, planned) for case in worth.changed if case.figures is not None]
        header = ("IF", "COST", "MORE", "FALLBACK", "SURE", "UNTIL")
        parts.append(format_table(header, rows, _RIGHT, {}, screen))
        legend = (
            "UNTIL: when the time ends that is reserved for it, in whole slots in a plan; SURE: to be done by then; "
            "lower and upper end: of the 80 % interval of its interruptions; as planned, far worse pools count as well"
        )
        parts.append(wrap_text(legend, "  "))
    refused = [case for case in (worth.planned, *worth.changed) if case.figures is None]
    parts += [wrap_text(f"{_label(worth, case)}: {case.refused}", "  ") for case in refused]
    return "\n".join(parts) + "\n"


def unknown_text(reason: str) -> str:
    """Return why it is not known what changes are worth to a job, and what would tell."""
    words = (
        f"What changes are worth on its gang is not known here: {reason}; --jobs, --limits and --book name the files"
    )
    return wrap_text(words) + "\n"


def _row(label: str, figures: GangFigures, planned: GangFigures) -> tuple[str, ...]:
    more = figures.cost_usd - planned.cost_usd
    if abs(more.nanos) < _HALF_CENT:
        more = ZERO
    fallback = figures.fallback_probability
    return (
        label,
        format_usd(figures.cost_usd),
        "" if figures is planned else f"{'+' if more.nanos >= 0 else ''}{format_usd(more)}",
        "none" if fallback is None else f"{fallback:.1%}",
        f"{figures.on_time_probability:.1%}",
        f"{figures.reserved_until:%m-%d %H:%M}",
    )


def _label(worth: GangWorth, case: GangCase) -> str:
    if case.kind == "none":
        return "all steps on it" if worth.shared else "as planned"
    if case.kind == "deadline":
        return _HOURS[case.value]
    if case.kind == "confidence":
        return f"asked {to_percent(float(case.value))} sure, not {to_percent(worth.confidence)}"
    rate = "" if case.figures is None else f", {case.figures.interruptions_per_hour:.2g}/h"
    return f"{_ENDS[case.value]}{rate}"


def worth_content(worth: GangWorth) -> dict[str, Any]:
    """Return the figures as JSON has them, amounts of money as decimal strings; null where a case is refused."""
    return {
        "job": worth.job,
        "gang": worth.gang,
        "start": stamp(worth.start),
        "shared": worth.shared,
        "cases": [_case_content(case, worth.planned.figures) for case in (worth.planned, *worth.changed)],
    }


def _case_content(case: GangCase, planned: GangFigures | None) -> dict[str, Any]:
    content: dict[str, Any] = {"change": case.kind, "to": case.value, "refused": case.refused}
    names = ("cost_usd", "difference_usd", "reserved_until", *_NUMBERS)
    figures = case.figures
    if figures is None or planned is None:
        return {**content, **dict.fromkeys(names)}
    return {
        **content,
        "cost_usd": str(figures.cost_usd),
        "difference_usd": str(figures.cost_usd - planned.cost_usd),
        "reserved_until": stamp(figures.reserved_until),
        **{name: getattr(figures, name) for name in _NUMBERS},
    }
