"""The comparison of two plans as text, Markdown and JSON; a plan beside the one with calm spot pools."""

from __future__ import annotations

import json
from collections.abc import Sequence, Set
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pricing.money import Usd
from pricing.units import format_count
from router.planning.document.plan import Plan
from router.planning.document.plan_facts import JobPlacement
from router.planning.document.plan_json import OPTIMISTIC, plan_content
from router.planning.explain.changes import PlacementChange, PlanDiff
from router.planning.explain.cost_changes import changes_by_kind
from router.render.record_table import RecordTable, TableColumn, attribute_columns, json_document
from router.render.tables import (
    MARKETS,
    PLAIN,
    Screen,
    escape_markdown,
    format_day_time,
    format_difference,
    format_table,
    format_usd,
    markdown_table,
    wrap_text,
)

if TYPE_CHECKING:
    from router.planning.what_if.what_if_comparison import VariantResult

_CHANGES = {"same": "job file"}  # shown although it is placed as before, because the job itself changed


def diff_text(diff: PlanDiff, screen: Screen = PLAIN, *, wide: bool = False) -> str:
    """Return one row per change worth a place, the reasons below, a line for quiet changes, and totals at the end.

    ``wide`` lists the quiet changes too.
    """
    shown, quiet = diff.shown, diff.quiet
    parts = []
    if diff.limits:
        lines = [wrap_text(text, "  ") for text in diff.limits]
        parts.append("\n".join(["LIMITS AND BUDGETS THAT CHANGED", *lines]))
    if shown:
        rows = [(c.job, _CHANGES.get(c.kind, c.kind), _cost(c.cost_before), _cost(c.cost_after)) for c in shown]
        header = ("JOB", "CHANGE", "BEFORE", "AFTER")
        parts.append(format_table(header, rows, frozenset({"BEFORE", "AFTER"}), {"JOB": 40}, screen))
        names = {c.job for c in quiet}
        parts.append("\n".join(_where(c, names) for c in shown))
    parts += _quiet_lines(quiet, wide=wide)
    same = len(diff.changes) - len(shown) - len(quiet)
    prices = "the same prices" if diff.same_book else "other prices"
    jobs = "the same jobs" if diff.same_jobs else "other jobs"
    total = format_difference(diff.cost_after - diff.cost_before)
    retimed = sum(change.kind == "retimed" for change in quiet)
    only = f"{retimed} in time alone, " if retimed else ""
    only += f"{len(quiet) - retimed} by less than a cent, " if len(quiet) > retimed else ""
    parts.append(
        f"{len(shown)} changed, {only}{same} as before; {prices}, {jobs}\n"
        f"total {format_usd(diff.cost_before)} -> {format_usd(diff.cost_after)} ({total})"
    )
    return "\n\n".join(parts) + "\n"


def diff_markdown(diff: PlanDiff) -> str:
    """Return the comparison as GitHub's Markdown, such as for a comment on a change of job files."""
    total = format_difference(diff.cost_after - diff.cost_before)
    head = (
        f"**{format_usd(diff.cost_before)} → {format_usd(diff.cost_after)} ({total})**: "
        f"{len(diff.shown)} changed, {len(diff.changes) - len(diff.shown)} as before, "
        f"or in time alone or by less than a cent; {'the same' if diff.same_book else 'other'} prices"
    )
    parts = [head, "\n".join(f"- {escape_markdown(text)}" for text in diff.limits)]
    rows = [
        (
            change.job,
            _CHANGES.get(change.kind, change.kind),
            _cost(change.cost_before),
            _cost(change.cost_after),
            str(change.after or "nowhere"),
            change.why or ", ".join(f"follows from {cause.follows}" for cause in change.causes if cause.follows),
        )
        for change in diff.shown
    ]
    if rows:
        names = ("Job", "Change", "Before", "After", "Where now", "Why")
        parts.append(markdown_table(names, rows, frozenset({"Before", "After"})))
    return "\n\n".join(part for part in parts if part) + "\n"


def _cost(amount: Usd | None) -> str:
    return "" if amount is None else format_usd(amount)


def _quiet_lines(quiet: Sequence[PlacementChange], *, wide: bool) -> list[str]:
    retimed = sum(change.kind == "retimed" for change in quiet)
    lines = []
    if retimed:
        verb = "starts" if retimed == 1 else "start"
        lines.append(f"{format_count(retimed, 'job')} {verb} at other times at the same place and cost")
    if len(quiet) > retimed:
        verb = "differs" if len(quiet) - retimed == 1 else "differ"
        lines.append(f"{format_count(len(quiet) - retimed, 'job')} {verb} by less than a cent")
    if lines and not wide:
        lines[-1] += " (-o wide lists them)"
    if wide:
        lines += [
            f"  {change.job}: {format_day_time(change.start_before)} -> {format_day_time(change.start_after)}"
            for change in quiet
        ]
    return ["\n".join(lines)] if lines else []


def _where(change: PlacementChange, quiet: Set[str]) -> str:
    lines = [change.job]
    if change.before is not None and change.before == change.after:
        lines.append(f"  stays on {change.before}")
    else:
        lines += [f"  from {change.before}"] if change.before is not None else []
        lines += [f"  to   {change.after}"] if change.after is not None else []
    if change.start_before != change.start_after and change.before is not None and change.after is not None:
        lines.append(f"  starts {format_day_time(change.start_before)} -> {format_day_time(change.start_after)}")
    follows = [cause.follows for cause in change.causes if cause.follows]
    if follows and quiet >= set(follows) and change.root not in quiet:
        lines.append(wrap_text(f"follows from {change.root}, through {', '.join(follows)}", "  "))
    elif follows:
        lines.append(wrap_text(f"follows from {', '.join(follows)}", "  "))
    if change.why:
        lines.append(wrap_text(f"why: {change.why}", "  "))
    return "\n".join(lines)


def _plain_place(place: JobPlacement) -> dict[str, Any]:
    """Return a placement as plain data; ``mix`` and ``markets`` are there for gangs of two types or markets alone."""
    return {name: value for name, value in asdict(place).items() if value or name not in ("mix", "markets")}


_CHANGE_RECORDS: RecordTable[PlacementChange] = RecordTable(
    (
        TableColumn("job", lambda change: change.job),
        TableColumn("change", lambda change: change.kind),
        TableColumn("before", lambda change: change.before, plain=_plain_place),
        TableColumn("after", lambda change: change.after, plain=_plain_place),
        TableColumn("cost_before_usd", lambda change: change.cost_before),
        TableColumn("cost_after_usd", lambda change: change.cost_after),
        *attribute_columns("start_before", "start_after", "why", "causes", "root", "quiet"),
    )
)


def diff_json(diff: PlanDiff) -> str:
    """Return ``schema_version``, totals and changes as JSON; money is written as decimal strings."""

    document = {
        "cost_before_usd": str(diff.cost_before),
        "cost_after_usd": str(diff.cost_after),
        "same_book": diff.same_book,
        "same_jobs": diff.same_jobs,
        "limits": list(diff.limits),
        "by_kind": [
            {"change": each.kind, "jobs": each.jobs, "more_usd": str(each.more_usd), "less_usd": str(each.less_usd)}
            for each in changes_by_kind(diff)
        ],
        "order": [change.job for change in diff.shown],
        "changes": _CHANGE_RECORDS.records(diff.changes),
    }
    return json_document(document, ascii_only=False)


_LEFT_OUT = "left out"


def optimistic_text(plan: Plan, lower: VariantResult, screen: Screen = PLAIN) -> str:
    """Return the total of both plans, and a row for each job whose place or cost differs."""
    words = (
        f"total {format_usd(plan.cost_usd)} now, {format_usd(lower.plan.cost_usd)} with every spot pool at the lower "
        f"end of the 80 % interval of its interruptions; the plan is the one above"
    )
    if lower.within_gap:
        words += " (the gaps of the two plans may explain the difference)"
    parts = [wrap_text(words, width=screen.width)]
    changes = _changes(lower)
    parts.append(_JOBS.text(changes, screen) if changes else "no job has another place or cost then")
    return "\n\n".join(parts) + "\n"


def with_optimistic(plan: Plan, lower: VariantResult) -> str:
    """Return the plan's JSON with the comparison under a key of its own, which readers of plans pass over."""
    content = {**plan_content(plan), OPTIMISTIC: _content(lower)}
    return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _content(lower: VariantResult) -> dict[str, Any]:
    return {
        "cost_usd": str(lower.plan.cost_usd),
        "difference_usd": str(lower.difference),
        "within_gap": lower.within_gap,
        "unplaced": [item.job for item in lower.plan.unplaced],
        "jobs": _JOBS.records(_changes(lower)),
    }


def _changes(lower: VariantResult) -> Sequence[PlacementChange]:
    return [move for move in lower.moves if not move.quiet]


def _place(place: JobPlacement | None) -> str:
    return _LEFT_OUT if place is None else f"{place.cloud}/{place.region} {MARKETS[place.market]}"


_JOBS: RecordTable[PlacementChange] = RecordTable(
    (
        TableColumn("job", lambda change: change.job, "JOB", width=18),
        TableColumn("", lambda change: _place(change.before), "NOW", width=19),
        TableColumn("before", lambda change: change.before, plain=str),
        TableColumn("cost_before_usd", lambda change: change.cost_before, "COST", format_usd, right=True),
        TableColumn("", lambda change: _place(change.after), "AT THE LOWER END", width=19),
        TableColumn("after", lambda change: change.after, plain=str),
        TableColumn("cost_after_usd", lambda change: change.cost_after, "COSTS", format_usd, right=True),
    )
)
