"""What one more unit of a limit would save: LP duals summed over slots, and for the largest a re-solve."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from pricing.money import NANOS, Usd
from router.planning.formulation import limit_row, team_row
from router.planning.plan import ShadowPrice
from router.planning.program import Program
from router.planning.scene import Scene
from router.planning.solver import Solver

_WORTH_SHOWING = 0.005  # dollars
_MOST_INTEGERS = 6000  # beyond this a re-solve costs more than its answer is worth


def shadow_prices(
    scene: Scene, program: Program, solver: Solver, resolve: int, deadline: float
) -> tuple[ShadowPrice, ...]:
    """Of every limit and team budget with a price above half a cent, dearest first.

    ``lp_estimate`` is the dual of the relaxation with who is placed held fixed; the top ``resolve`` limits are
    solved again with one unit more (``resolved``) where the program is small enough for both optima to be proven.
    """
    relaxed = solver.relax(program, max(1.0, deadline - time.monotonic()))
    if relaxed.outcome != "optimal":
        return ()
    found: list[tuple[float, str, str, tuple[str, ...]]] = []
    for name in sorted(scene.binding):
        rows = tuple(limit_row(name, slot.index) for slot in scene.slots)
        price = sum(relaxed.duals.get(row, 0.0) for row in rows)
        found.append((price, name, scene.shared[name].unit, rows))
    for team in scene.limits.teams:
        row = team_row(team.team)
        found.append((relaxed.duals.get(row, 0.0), row, "USD", (row,)))
    ranked = sorted((f for f in found if f[0] >= _WORTH_SHOWING), key=lambda f: (-f[0], f[1]))
    exact = _resolved(program, solver, ranked[:resolve], deadline) if resolve else {}
    prices = [
        ShadowPrice(
            name, Usd(round(exact.get(name, price) * NANOS)), unit, "resolved" if name in exact else "lp_estimate"
        )
        for price, name, unit, _ in ranked
    ]
    return tuple(sorted(prices, key=lambda p: (-p.usd_per_unit.nanos, p.limit)))


def _resolved(
    program: Program, solver: Solver, top: list[tuple[float, str, str, tuple[str, ...]]], deadline: float
) -> Mapping[str, float]:
    """Optimum less optimum with one unit more, both proven to a tenth of the estimate; what cannot be proven
    is left out."""
    found: dict[str, float] = {}
    if not top or program.integers > _MOST_INTEGERS:
        return found
    for price, name, _, rows in top:
        seconds = (deadline - time.monotonic()) / 4
        if seconds < 1:
            break
        objective_scale = max(abs(sum(v.cost for v in program.variables)), 1.0)
        tight = min(1e-3, max(1e-7, 0.1 * price / objective_scale))
        base = solver.solve(program, tight, seconds)
        more = solver.solve(_raised(program, frozenset(rows)), tight, seconds)
        if base.outcome == more.outcome == "optimal":
            saved = base.objective - more.objective
            if (base.objective - base.bound) + (more.objective - more.bound) <= 0.1 * max(saved, price):
                found[name] = max(0.0, saved)
    return found


def _raised(program: Program, rows: frozenset[str]) -> Program:
    return replace(
        program, rows=tuple(replace(row, rhs=row.rhs + 1) if row.name in rows else row for row in program.rows)
    )
