"""Solve a :class:`Program` with PuLP: the one module that imports it.

HiGHS by default (one thread, fixed seed: the same program gives the same answer unless the time limit cuts in); any
other PuLP solver by name, for which the bound is that of HiGHS's LP relaxation. Works with PuLP 3.3 and 4: their
differences are in ``_expression``, ``_columns`` and ``_rows``.
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
from router.planning.rules.program import Program

SolveOutcome = Literal["optimal", "feasible", "infeasible", "unknown"]
_SENSE = {"<=": pulp.LpConstraintLE, ">=": pulp.LpConstraintGE, "==": pulp.LpConstraintEQ}
# From PuLP 4 on, constraints are made by comparison.
_PULP_4 = hasattr(pulp.LpAffineExpression, "from_list")
_LEAST_SECONDS = 0.1  # HiGHS is never begun with less
_WHOLE = int(highspy.HighsVarType.kInteger)
_ERRORS = (
    highspy.HighsModelStatus.kNotset,
    highspy.HighsModelStatus.kLoadError,
    highspy.HighsModelStatus.kModelError,
    highspy.HighsModelStatus.kPresolveError,
    highspy.HighsModelStatus.kSolveError,
    highspy.HighsModelStatus.kPostsolveError,
    highspy.HighsModelStatus.kMemoryLimit,
)


@dataclass(frozen=True, slots=True)
class Solution:
    """The result of a search: ``values`` by variable index (empty unless optimal or feasible), and a proven ``bound``.

    ``bound`` is a lower bound (-inf if none). ``hit_time_limit`` says that the clock stopped the search, ``nodes`` how
    many it had opened, ``failed`` that the solver ended with an error: nothing is then known of the program.
    """

    outcome: SolveOutcome
    values: tuple[float, ...]
    objective: float
    bound: float
    hit_time_limit: bool
    seconds: float
    nodes: int = 0
    failed: bool = False


@dataclass(frozen=True, slots=True)
class LpRelaxation:
    """An LP relaxation: objective, and dual values (dollars a unit) of the rows asked for, by row name."""

    outcome: SolveOutcome
    objective: float
    duals: dict[str, float]
    hit_time_limit: bool = False
    failed: bool = False


class SolverFailedError(Exception):
    """A solver ended with an error, ran out of memory, or was killed."""


class Solver(Protocol):
    """The interface that the planner needs of a solver."""

    @property
    def name(self) -> str:
        """Return the name as given on the command line, lower case."""
        ...

    def solve(
        self,
        program: Program,
        gap: float,
        seconds: float,
        start: Mapping[int, float] | None = None,
        nodes: int | None = None,
    ) -> Solution:
        """Minimise to a relative ``gap`` within ``seconds`` and ``nodes``.

        The search begins from ``start`` (values of whole-number variables).
        """
        ...

    def relax(self, program: Program, seconds: float) -> LpRelaxation:
        """Solve without integrality; return duals of all ``<=`` rows, as what one more unit would save (>= 0)."""
        ...


@contextmanager
def _quietly() -> Iterator[None]:
    """Ignore the warnings that PuLP 3.3 gives on every call about changes in PuLP 4."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@contextmanager
def solver_failures() -> Iterator[None]:
    """Turn what a solver raises into SolverFailedError."""
    try:
        yield
    except (pulp.PulpError, MemoryError, OSError, RuntimeError) as error:
        raise SolverFailedError(str(error) or type(error).__name__) from error


class PulpSolver:
    """A PuLP solver by name, case ignored.

    Raises InvalidInputError when PuLP has none of that name or it is not installed.
    """

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
        """Return the name as given, lower case."""
        return self._name

    @_quietly()
    def solve(
        self,
        program: Program,
        gap: float,
        seconds: float,
        start: Mapping[int, float] | None = None,
        nodes: int | None = None,
    ) -> Solution:
        """Solve as :class:`Solver` says.

        HiGHS alone takes start and nodes, and its time includes writing the program down.
        """
        began = time.monotonic()
        try:
            with solver_failures():
                problem, variables = _to_pulp(program, relaxed=False)
                if self._full == "HiGHS":
                    known = [(variables[i].name, value) for i, value in sorted((start or {}).items())]
                    ended = _run_highs(problem, gap, began + seconds, known, nodes)
                else:
                    problem.solve(self._engine(seconds, gap))
                    outcome, bound = _outcome(problem.status, problem.sol_status), -math.inf
                    if outcome in ("optimal", "feasible"):
                        bound = self.relax(program, seconds).objective
                    ended = _Ended(outcome, bound, outcome in ("feasible", "unknown"), 0)
        except SolverFailedError:
            # Where another solver fails, the relaxation by HiGHS still gives a bound.
            bound = -math.inf if self._full == "HiGHS" else self.relax(program, seconds).objective
            return Solution("unknown", (), math.inf, bound, False, time.monotonic() - began, failed=True)
        took = time.monotonic() - began
        if ended.outcome not in ("optimal", "feasible"):
            return Solution(ended.outcome, (), math.inf, ended.bound, ended.hit_time_limit, took, ended.nodes)
        values = tuple(float(v.varValue or 0.0) for v in variables)
        objective = sum(v.cost * x for v, x in zip(program.variables, values, strict=True))
        bound = min(ended.bound, objective)
        return Solution(ended.outcome, values, objective, bound, ended.hit_time_limit, took, ended.nodes)

    def _engine(self, seconds: float, gap: float) -> Any:
        return pulp.getSolver(self._full, msg=False, timeLimit=max(1, math.ceil(seconds)), gapRel=gap)

    @_quietly()
    def relax(self, program: Program, seconds: float) -> LpRelaxation:
        """Solve the relaxation as :class:`Solver` says, always by HiGHS."""
        began = time.monotonic()
        try:
            with solver_failures():
                problem, _ = _to_pulp(program, relaxed=True)
                ended = _run_highs(problem, 0.0, began + seconds)
        except SolverFailedError:
            return LpRelaxation("unknown", -math.inf, {}, failed=True)
        if ended.outcome != "optimal":
            return LpRelaxation(ended.outcome, -math.inf, {}, ended.hit_time_limit)
        rows = _rows(problem)
        duals = {
            row.name: max(0.0, -float(rows[i].pi or 0.0)) for i, row in enumerate(program.rows) if row.sense == "<="
        }
        return LpRelaxation(ended.outcome, float(pulp.value(problem.objective) or 0.0), duals)


def usd_below(dollars: float) -> Usd:
    """Return a bound in whole nano-dollars, a billionth below the solver's figure for its arithmetic.

    It is never below zero.
    """
    if not math.isfinite(dollars) or dollars <= 0:
        return Usd(0)
    return Usd(int((Decimal(dollars * (1 - 1e-9)) * NANOS).to_integral_value(ROUND_FLOOR)))


def _to_pulp(program: Program, *, relaxed: bool) -> tuple[Any, list[Any]]:
    """Write the program under short names (x0, r0), so that the solver's own limits on names never matter."""
    problem = pulp.LpProblem("plan", pulp.LpMinimize)
    variables = [
        problem.add_variable(f"x{i}", v.low, v.high, pulp.LpInteger if v.integer and not relaxed else pulp.LpContinuous)
        for i, v in enumerate(program.variables)
    ]
    costed = [(variables[i], v.cost) for i, v in enumerate(program.variables) if v.cost != 0.0]
    problem.setObjective(_expression(costed))
    for i, row in enumerate(program.rows):
        terms = _expression([(variables[k], a) for k, a in row.terms])
        problem.addConstraint(_constraint(terms, row.sense, f"r{i}", row.rhs))
    return problem, variables


def _expression(terms: list[tuple[Any, float]]) -> Any:
    """Return a linear expression; PuLP 4 makes it by a class method."""
    make = getattr(pulp.LpAffineExpression, "from_list", pulp.LpAffineExpression)
    return make(terms)


def _constraint(terms: Any, sense: str, name: str, rhs: float) -> Any:
    """Return a named row; PuLP 4 makes it by comparison, which PuLP 3 does slowly."""
    if not _PULP_4:
        return pulp.LpConstraint(terms, _SENSE[sense], name, rhs)
    row = terms <= rhs if sense == "<=" else terms >= rhs if sense == ">=" else terms == rhs
    row.name = name
    return row


def _columns(problem: Any) -> dict[str, int]:
    """Return the solver's column of each variable, by name, once PuLP has built the model."""
    if _PULP_4:
        return {variable.name: column for column, variable in enumerate(problem.exported_variables())}
    return {variable.name: variable.index for variable in problem.variables()}


def _rows(problem: Any) -> list[Any]:
    """Return the rows in the order in which they were added."""
    return list(problem.constraints() if _PULP_4 else problem.constraints.values())


class _StartedHighs(pulp.HiGHS):  # type: ignore[misc]  # PuLP has no types
    """PuLP's HiGHS, begun from start values, which PuLP's own interface cannot pass."""

    start_values: Sequence[tuple[str, float]] = ()
    until: float = math.inf  # on the monotonic clock
    mip: bool

    def buildSolverModel(self, lp: Any) -> None:  # noqa: N802  PuLP's name
        """Build the model as PuLP does, but declare all whole numbers at once.

        Declaring them one by one takes longer than all the rest.
        """
        mip, self.mip = self.mip, False
        try:
            super().buildSolverModel(lp)
        finally:
            self.mip = mip
        columns = _columns(lp)
        whole = np.array([columns[v.name] for v in lp.variables() if v.cat == pulp.LpInteger], dtype=np.int32)
        if mip and whole.size:
            lp.solverModel.changeColsIntegrality(whole.size, whole, np.full(whole.size, _WHOLE, dtype=np.uint8))

    def callSolver(self, lp: Any) -> None:  # noqa: N802  PuLP's name
        """Run HiGHS with the start values and the time that building the model has left."""
        if self.start_values:
            columns = _columns(lp)
            places = np.array([columns[name] for name, _ in self.start_values], dtype=np.int32)
            values = np.array([value for _, value in self.start_values], dtype=np.float64)
            lp.solverModel.setSolution(len(self.start_values), places, values)
        # Building the model takes time as well, so the time left is known only now.
        lp.solverModel.setOptionValue("time_limit", max(self.until - time.monotonic(), _LEAST_SECONDS))
        lp.solverModel.run()

    def findSolutionValues(self, lp: Any) -> tuple[int, int]:  # noqa: N802  PuLP's name
        """Read the solution as PuLP does, also for a search ended by its nodes, which PuLP does not know."""
        try:
            statuses: tuple[int, int] = super().findSolutionValues(lp)
        except KeyError:
            statuses = (pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound)
        return statuses


@dataclass(frozen=True, slots=True)
class _Ended:
    outcome: SolveOutcome
    bound: float
    hit_time_limit: bool
    nodes: int


def _run_highs(
    problem: Any,
    gap: float,
    until: float,
    start_values: Sequence[tuple[str, float]] = (),
    nodes: int | None = None,
) -> _Ended:
    """Solve up to ``until`` (monotonic clock) or up to the number of ``nodes``."""
    solver = _StartedHighs(
        msg=False,
        gapRel=gap,
        threads=1,
        random_seed=1,
        mip_abs_gap=1e-7 if gap == 0 else 1e-6,
        mip_feasibility_tolerance=1e-7,
        primal_feasibility_tolerance=1e-8,
        **({} if nodes is None else {"mip_max_nodes": nodes}),
    )
    solver.start_values = start_values
    solver.until = until
    problem.solve(solver)
    info = problem.solverModel.getInfo()
    status = problem.solverModel.getModelStatus()
    if status in _ERRORS:
        raise SolverFailedError(str(status))
    outcome = _outcome(problem.status, problem.sol_status)
    if outcome == "unknown" and math.isfinite(info.objective_function_value) and info.primal_solution_status == 2:
        outcome = "feasible"
    whole = problem.isMIP()
    bound = float(info.mip_dual_bound) if whole else _lp_bound(outcome, info)
    return _Ended(
        outcome,
        bound if math.isfinite(bound) else -math.inf,
        status == highspy.HighsModelStatus.kTimeLimit,
        max(0, int(info.mip_node_count)) if whole else 0,
    )


def _lp_bound(outcome: SolveOutcome, info: Any) -> float:
    """Return the value of a program without whole numbers, which bounds it only where it is the optimum."""
    return float(info.objective_function_value) if outcome == "optimal" else -math.inf


def _outcome(status: int, solution: int) -> SolveOutcome:
    """Return the outcome of PuLP's status; PuLP reports a time-limited run as Optimal, only ``sol_status`` differs."""
    if solution == pulp.LpSolutionOptimal:
        return "optimal"
    if solution == pulp.LpSolutionIntegerFeasible:
        return "feasible"
    if status in (pulp.LpStatusInfeasible, pulp.LpStatusUnbounded) or solution == pulp.LpSolutionInfeasible:
        return "infeasible"
    return "unknown"
