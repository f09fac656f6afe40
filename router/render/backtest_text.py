"""Back-test results as a table, JSON and CSV. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np

from router.backtest.scores import PolicyScore, PooledWindows
from router.backtest.windows import POLICIES, BacktestCell, WindowLayout
from router.files.csv_text import csv_text
from router.jobs.quantities import format_duration
from router.render.tables import PLAIN, Screen, format_table, wrap_text
from router.spot.policies.registry import ALIASES
from router.spot.simulator.inputs import HOUR_S
from router.spot.simulator.simulation import WindowOutcomes

ScoredCells = Sequence[tuple[PooledWindows, tuple[PolicyScore, ...]]]
_HEADER = ("POLICY", "MEAN USD", "OF OD", "OVER", "LESS", "DIFFERENCE, 90 %", "EFF N", "LATE")
_RIGHT = frozenset({"MEAN USD", "OF OD", "OVER", "EFF N", "LATE"})
_WIDTHS = {"POLICY": 13, "LESS": 9}
_DIGITS = 6


def policies(screen: Screen = PLAIN) -> str:
    """Return a table of the policies: names, descriptions, and how they can be replayed."""
    rows = []
    for name, policy in POLICIES.items():
        ways = [word for word, way in (("sees", policy.sees), ("asks", policy.asks or policy.plays)) if way is not None]
        rows.append((name, ", ".join(ways), policy.about))
    others: dict[str, list[str]] = {}
    for alias, name in ALIASES.items():
        others.setdefault(name, []).append(alias)
    also = wrap_text("also called: " + ", ".join(f"{name} ({', '.join(aliases)})" for name, aliases in others.items()))
    notes = (
        "sees: what is available is free to know, in every zone at every tick",
        "asks: knows what zones answered; a probe that finds spot is billed for a minute",
        "with --probes all ask; else those that can do both see",
        also,
        wrap_text("`policy: greedy` of a deploy file is another one, which does not wait: docs/policies.md"),
    )
    table = format_table(("POLICY", "PLAYS", "WHAT IT IS"), rows, frozenset(), {}, screen)
    return "\n".join([table, "", *notes])


def title(cell: BacktestCell) -> str:
    """Return job, deadline and place of a cell in one line."""
    task = cell.task
    deadline, launch = (format_duration(timedelta(seconds=s)) for s in (task.deadline_s, task.changeover_s))
    job = cell.job if cell.job.endswith(" of work") else f"{cell.job}: {task.work_s / HOUR_S:.4g}h of work"
    gang = f" on {task.size} machines" if task.size > 1 else ""
    moved = f", checkpoint {cell.move.checkpoint_gb:.4g} GB" if cell.zones > 1 else ""
    return f"{job}{gang} in {deadline}, launch {launch}{moved}, {cell.place}"


def difference(score: PolicyScore) -> str:
    """Return a difference, such as ``-0.019 [-0.028, -0.012]``, without interval if there is only one stretch."""
    gap = score.difference
    if gap is None:
        return ""
    if score.effective <= 1 or gap.effective <= 1:
        return f"{gap.mean:+.3f} (one stretch)"
    return f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"


def score_rows(pooled: PooledWindows, scores: Sequence[PolicyScore]) -> list[tuple[str, ...]]:
    """Return the rows of a cell's policies, and after them those of the optimum and of on-demand."""
    least, demand = float(pooled.least_usd.mean()), float(pooled.demand_usd.mean())
    blank = ("",) * 4
    return [
        *map(_score_row, scores),
        ("optimum", f"{least:,.2f}", f"{least / demand:.3f}", "0.0%", *blank),
        ("on-demand", f"{demand:,.2f}", "1.000", f"{demand / least - 1:.1%}", *blank),
    ]


def _score_row(score: PolicyScore) -> tuple[str, ...]:
    return (
        score.policy,
        f"{score.usd:,.2f}",
        f"{score.share:.3f}",
        f"{score.over:.1%}",
        score.against or "",
        difference(score),
        f"{score.effective:.1f}",
        str(score.misses),
    )


def table(scored: ScoredCells, windows: WindowLayout, screen: Screen = PLAIN) -> str:
    """Return one block of text per cell, with a legend."""
    blocks = []
    for pooled, scores in scored:
        rows = score_rows(pooled, scores)
        count = f"{pooled.start.size} windows in {np.unique(pooled.stretch).size} stretches of time"
        results = format_table(_HEADER, rows, _RIGHT, _WIDTHS, screen)
        blocks.append(f"{wrap_text(title(pooled.cell))}\n{count}\n\n{results}")
    return "\n\n".join([*blocks, _legend(windows)])


def _legend(windows: WindowLayout) -> str:
    learns = f"learned from the blocks before, {windows.blocks} in all" if windows.blocks > 1 else "nothing learned"
    return wrap_text(
        "OF OD: of on-demand from the start. OVER: the least that was possible, known afterwards. DIFFERENCE: to LESS, "
        "the cheapest of the others, on the same windows, as a share of on-demand; interval by resampling stretches. "
        f"Windows every {format_duration(timedelta(seconds=windows.every_s))}; {learns}."
    )


def as_json(scored: ScoredCells, windows: WindowLayout) -> str:
    """Return everything in the table, unrounded, as JSON."""
    content = {
        "blocks": windows.blocks,
        "every_s": windows.every_s,
        "cells": [_cell(pooled, scores) for pooled, scores in scored],
    }
    return json.dumps(content, indent=2)


def _cell(pooled: PooledWindows, scores: Sequence[PolicyScore]) -> dict[str, Any]:
    cell = pooled.cell
    return {
        **_task(cell),
        "sites": [
            {"name": s.name, "tick_s": s.series.tick_s, "zones": [z.zone for z in s.series.zones]} for s in cell.sites
        ],
        "windows": int(pooled.start.size),
        "stretches": int(np.unique(pooled.stretch).size),
        "optimum_usd": float(pooled.least_usd.mean()),
        "on_demand_usd": float(pooled.demand_usd.mean()),
        "policies": [_policy(score) for score in scores],
    }


def _task(cell: BacktestCell) -> dict[str, Any]:
    task = cell.task
    return {
        "job": cell.job,
        "place": cell.place,
        "zones": cell.zones,
        "work_h": task.work_s / HOUR_S,
        "deadline_h": task.deadline_s / HOUR_S,
        "changeover_h": task.changeover_s / HOUR_S,
        "machines": task.size,
        "checkpoint_gb": cell.move.checkpoint_gb,
    }


def _policy(score: PolicyScore) -> dict[str, Any]:
    gap = score.difference
    return {
        "policy": score.policy,
        "mean_usd": score.usd,
        "of_on_demand": score.share,
        "over_optimum": score.over,
        "less": score.against,
        "difference": None if gap is None else {"mean": gap.mean, "low": gap.low, "high": gap.high, "level": 0.9},
        "effective_n": score.effective,
        "misses": score.misses,
        "spot_h": score.spot_h,
        "on_demand_h": score.on_demand_h,
        "launches": score.launches,
    }


def rows(pools: Sequence[PooledWindows]) -> str:
    """Return CSV with one row per window and policy; hours count from the start of the traces or of the window."""
    windows = [_windows(pooled, name, played) for pooled in pools for name, played in pooled.played.items()]
    lines = (
        [round(value, _DIGITS) if isinstance(value, float) else value for value in row]
        for columns in windows
        for row in zip(*columns.values(), strict=True)
    )
    return csv_text(list(windows[0]), lines) if windows else ""


def _windows(pooled: PooledWindows, policy: str, played: WindowOutcomes) -> dict[str, Sequence[object]]:
    count = pooled.start.size
    return {
        **{name: [value] * count for name, value in _task(pooled.cell).items()},
        "site": [pooled.cell.sites[number].name for number in pooled.site.tolist()],
        "block": pooled.block.tolist(),
        "start_h": pooled.hours(pooled.start).tolist(),
        "policy": [policy] * count,
        "cost_usd": played.usd.tolist(),
        "on_demand_usd": pooled.demand_usd.tolist(),
        "optimum_usd": pooled.least_usd.tolist(),
        "egress_usd": played.egress_usd.tolist(),
        "probes_usd": played.probe_usd.tolist(),
        "spot_h": pooled.hours(played.spot_ticks).tolist(),
        "on_demand_h": pooled.hours(played.on_demand_ticks).tolist(),
        "finish_h": pooled.hours(played.finish_tick).tolist(),
        "launches": played.launches.tolist(),
        "late": played.late.astype(int).tolist(),
    }
