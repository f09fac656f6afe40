"""What one more unit of a limit would save: LP duals summed over slots, and for the largest a re-solve."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pricing.money import NANOS, Usd
from router.planning.formulation import formulate, limit_row, team_row
from router.planning.plan import ShadowPrice
from router.planning.program import Program
from router.planning.scene import Scene
from router.planning.shortlist import size
from router.planning.solver import Solution, Solver

_WORTH_SHOWING = 0.005  # dollars
_MOST_SHARES = 12_000  # a program with more shares of slots is not solved again
_SMALL = 0.1  # of the figure: how near to the optimum both solutions must be proven


@dataclass(frozen=True, slots=True)
class _Limit:
    name: str
    unit: str
    rows: tuple[str, ...]
    estimate: float


def shadow_prices(
    scene: Scene, whole: Scene, program: Program, solver: Solver, resolve: int, deadline: float
) -> tuple[ShadowPrice, ...]:
    """Of every limit and team budget with a price above half a cent, dearest first.

    ``lp_estimate`` is the dual of the relaxation, with who is placed held fixed: at a kink it can be far above what one
    more unit really saves. So the top ``resolve`` are solved again with one unit more (``resolved``), over ``scene``'s
    candidates and all of ``whole``'s that touch them, where the program is not too large and both optima are proven to
    a tenth of the figure.
    """
    relaxed = solver.relax(program, max(1.0, deadline - time.monotonic()))
    if relaxed.outcome != "optimal":
        return ()
    found = [_limit(scene, name, relaxed.duals) for name in sorted(scene.binding)]
    for team in scene.limits.teams:
        row = team_row(team.team)
        found.append(_Limit(row, "USD", (row,), relaxed.duals.get(row, 0.0)))
    ranked = sorted((f for f in found if f.estimate >= _WORTH_SHOWING), key=lambda f: (-f.estimate, f.name))
    exact = _resolved(scene, whole, solver, ranked[:resolve], deadline)
    prices = [
        ShadowPrice(
            limit=limit.name,
            usd_per_unit=Usd(round(exact.get(limit.name, limit.estimate) * NANOS)),
            unit=limit.unit,
            basis="resolved" if limit.name in exact else "lp_estimate",
        )
        for limit in ranked
    ]
    return tuple(sorted(prices, key=lambda p: (-p.usd_per_unit.nanos, p.limit)))


def _limit(scene: Scene, name: str, duals: Mapping[str, float]) -> _Limit:
    rows = tuple(limit_row(name, slot.index) for slot in scene.slots)
    return _Limit(name, scene.shared[name].unit, rows, sum(duals.get(row, 0.0) for row in rows))


def _resolved(
    scene: Scene, whole: Scene, solver: Solver, top: Sequence[_Limit], deadline: float
) -> Mapping[str, float]:
    """Optimum less optimum with one unit more; what cannot be proven in time is left out."""
    found: dict[str, float] = {}
    if not top:
        return found
    wide = _touching(scene, whole, {limit.name for limit in top})
    if size(wide) > _MOST_SHARES:
        return found
    formulation = formulate(wide)
    program = formulation.program.fixed(dict.fromkeys(formulation.layout.u.values(), 0.0))
    base: Solution | None = None
    for limit in top:
        left = deadline - time.monotonic()
        if left < 1:
            break
        if base is None:
            base = solver.solve(program, _TIGHT, left / 2)
        more = solver.solve(_raised(program, frozenset(limit.rows)), _TIGHT, left / 2)
        if not base.values or not more.values:
            continue
        saved = max(0.0, base.objective - more.objective)
        doubt = (base.objective - base.bound) + (more.objective - more.bound)
        if doubt <= max(_SMALL * saved, 0.01):
            found[limit.name] = saved
    return found


_TIGHT = 1e-6


def _touching(scene: Scene, whole: Scene, names: set[str]) -> Scene:
    """The scene with every candidate of the whole one that takes some of these limits; only jobs that were placed."""
    kept = {name: {c.key for c in found} for name, found in scene.candidates.items()}
    candidates = {
        name: tuple(c for c in found if c.key in kept[name] or names & whole.use[name, c.key].keys())
        for name, found in whole.candidates.items()
    }
    return replace(scene, candidates=candidates)


def _raised(program: Program, rows: frozenset[str]) -> Program:
    raised = (replace(row, rhs=row.rhs + 1) if row.name in rows else row for row in program.rows)
    return replace(program, rows=tuple(raised))
