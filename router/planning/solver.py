"""Solving a :class:`Program` with PuLP: the one module that imports it.

HiGHS by default (one thread, fixed seed: the same program gives the same answer unless the time limit cuts in);
any other PuLP solver by name, for which the bound is that of HiGHS's LP relaxation.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from typing import Any, Literal, Protocol

import highspy
import numpy as np
import pulp

from pricing.money import NANOS, Usd
from pricing.problems import InvalidInputError
from router.planning.program import Program

Outcome = Literal["optimal", "feasible", "infeasible", "unknown"]
_SENSE = {"<=": pulp.LpConstraintLE, ">=": pulp.LpConstraintGE, "==": pulp.LpConstraintEQ}
_TINY = 1e-9
_WHOLE = int(highspy.HighsVarType.kInteger)


@dataclass(frozen=True, slots=True)
class Solution:
    """``values`` by variable index (empty unless optimal or feasible); ``bound`` is a proven lower bound (-inf
    if none)."""

    outcome: Outcome
    values: tuple[float, ...]
    objective: float
    bound: float
    hit_time_limit: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Relaxed:
    """An LP relaxation: objective, and dual values (dollars a unit) of the rows asked for, by row name."""

    outcome: Outcome
    objective: float
    duals: dict[str, float]


class Solver(Protocol):
    """What the planner needs of a solver."""

    @property
    def name(self) -> str:
        """As given on the command line, lower case."""
        ...

    def solve(self, program: Program, gap: float, seconds: float, start: Mapping[int, float] | None = None) -> Solution:
        """Minimise to a relative ``gap`` within ``seconds``, from ``start`` (values of whole-number variables)."""
        ...

    def relax(self, program: Program, seconds: float) -> Relaxed:
        """Solve without integrality; duals of all ``<=`` rows, as what one more unit would save (>= 0)."""
        ...


@contextmanager
def _quietly() -> Iterator[None]:
    """PuLP 3 announces what 4 will change, on every call; the pin keeps 4 out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


class PulpSolver:
    """A PuLP solver by name, case ignored. InvalidInputError when PuLP has none of that name or it is not installed."""

    @_quietly()
    def __init__(self, name: str = "highs") -> None:
        known = {s.lower(): s for s in pulp.listSolvers()}
        aliases = {"cbc": "pulp_cbc_cmd", "highs": "highs", "glpk": "glpk_cmd", "scip": "scip_py"}
        wanted = name.lower()
        full = known.get(wanted) or known.get(aliases.get(wanted, ""))
        if full is None:
            raise InvalidInputError.single(
                f"PuLP knows no solver {name!r}", field="--solver", remedy=f"one of {', '.join(sorted(known))}"
            )
        self._full = full
        self._name = wanted
        if full != "HiGHS" and not pulp.getSolver(full, msg=False).available():
            raise InvalidInputError.single(f"solver {name!r} is not installed", field="--solver", remedy="highs is")

    @property
    def name(self) -> str:
        """As given, lower case."""
        return self._name

    @_quietly()
    def solve(self, program: Program, gap: float, seconds: float, start: Mapping[int, float] | None = None) -> Solution:
        """See :class:`Solver`; HiGHS alone takes the start, and its time includes writing the program down."""
        began = time.monotonic()
        problem, variables = _to_pulp(program, relaxed=False)
        if self._full == "HiGHS":
            known = [(variables[i], value) for i, value in sorted((start or {}).items())]
            outcome, bound = _run_highs(problem, gap, seconds - (time.monotonic() - began), known)
        else:
            problem.solve(pulp.getSolver(self._full, msg=False, timeLimit=max(1, math.ceil(seconds)), gapRel=gap))
            outcome, bound = _outcome(problem.status, problem.sol_status), -math.inf
            if outcome in ("optimal", "feasible"):
                bound = self.relax(program, seconds).objective
        took = time.monotonic() - began
        if outcome not in ("optimal", "feasible"):
            return Solution(outcome, (), math.inf, bound, outcome == "unknown", took)
        values = tuple(float(v.varValue or 0.0) for v in variables)
        objective = sum(v.cost * x for v, x in zip(program.variables, values, strict=True))
        return Solution(outcome, values, objective, min(bound, objective), outcome == "feasible", took)

    @_quietly()
    def relax(self, program: Program, seconds: float) -> Relaxed:
        """See :class:`Solver`; always by HiGHS."""
        problem, _ = _to_pulp(program, relaxed=True)
        outcome, _ = _run_highs(problem, 0.0, seconds)
        if outcome != "optimal":
            return Relaxed(outcome, -math.inf, {})
        duals = {
            row.name: max(0.0, -float(problem.constraints[f"r{i}"].pi or 0.0))
            for i, row in enumerate(program.rows)
            if row.sense == "<="
        }
        return Relaxed(outcome, float(pulp.value(problem.objective) or 0.0), duals)


def usd_below(dollars: float) -> Usd:
    """A bound in whole nano-dollars, below the solver's figure by a billionth for its arithmetic; never below zero."""
    if not math.isfinite(dollars) or dollars <= 0:
        return Usd(0)
    return Usd(int((Decimal(dollars * (1 - 1e-9)) * NANOS).to_integral_value(ROUND_FLOOR)))


def _to_pulp(program: Program, *, relaxed: bool) -> tuple[Any, list[Any]]:
    """Short names (x0, r0): the solver's own limits on names then never matter."""
    problem = pulp.LpProblem("plan", pulp.LpMinimize)
    variables = [
        pulp.LpVariable(f"x{i}", v.low, v.high, pulp.LpInteger if v.integer and not relaxed else pulp.LpContinuous)
        for i, v in enumerate(program.variables)
    ]
    problem.addVariables(variables)
    costed = [(variables[i], v.cost) for i, v in enumerate(program.variables) if v.cost != 0.0]
    problem.setObjective(pulp.LpAffineExpression(costed))
    for i, row in enumerate(program.rows):
        terms = pulp.LpAffineExpression([(variables[k], a) for k, a in row.terms])
        problem.addConstraint(pulp.LpConstraint(terms, _SENSE[row.sense], f"r{i}", row.rhs))
    return problem, variables


class _StartedHighs(pulp.HiGHS):  # type: ignore[misc]  # PuLP has no types
    """PuLP's HiGHS, begun from known values: its own interface has no way to say them."""

    known: Sequence[tuple[Any, float]] = ()
    mip: bool

    def buildSolverModel(self, lp: Any) -> None:  # noqa: N802  PuLP's name
        """As PuLP does, but that whole numbers are said all at once: one by one that takes longer than all the rest."""
        mip, self.mip = self.mip, False
        try:
            super().buildSolverModel(lp)
        finally:
            self.mip = mip
        whole = np.array([v.index for v in lp.variables() if v.cat == pulp.LpInteger], dtype=np.int32)
        if mip and whole.size:
            lp.solverModel.changeColsIntegrality(whole.size, whole, np.full(whole.size, _WHOLE, dtype=np.uint8))

    def callSolver(self, lp: Any) -> None:  # noqa: N802  PuLP's name
        """Between building the model and reading the answer."""
        if self.known:
            places = np.array([variable.index for variable, _ in self.known], dtype=np.int32)
            values = np.array([value for _, value in self.known], dtype=np.float64)
            lp.solverModel.setSolution(len(self.known), places, values)
        lp.solverModel.run()


def _run_highs(
    problem: Any, gap: float, seconds: float, known: Sequence[tuple[Any, float]] = ()
) -> tuple[Outcome, float]:
    solver = _StartedHighs(
        msg=False,
        timeLimit=max(seconds, 0.1),
        gapRel=gap,
        threads=1,
        random_seed=1,
        mip_abs_gap=1e-7 if gap == 0 else 1e-6,
        mip_feasibility_tolerance=1e-7,
        primal_feasibility_tolerance=1e-8,
    )
    solver.known = known
    problem.solve(solver)
    info = problem.solverModel.getInfo()
    outcome = _outcome(problem.status, problem.sol_status)
    if outcome == "unknown" and math.isfinite(info.objective_function_value) and info.primal_solution_status == 2:
        outcome = "feasible"
    bound = float(info.mip_dual_bound) if problem.isMIP() else float(info.objective_function_value)
    return outcome, bound if math.isfinite(bound) else -math.inf


def _outcome(status: int, solution: int) -> Outcome:
    """PuLP reports a time-limited run as Optimal; only ``sol_status`` tells."""
    if solution == pulp.LpSolutionOptimal:
        return "optimal"
    if solution == pulp.LpSolutionIntegerFeasible:
        return "feasible"
    if status in (pulp.LpStatusInfeasible, pulp.LpStatusUnbounded) or solution == pulp.LpSolutionInfeasible:
        return "infeasible"
    return "unknown"
