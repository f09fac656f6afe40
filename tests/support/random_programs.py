"""Random small programs solved through PuLP; run as a script, it prints what came of them as JSON.

Which PuLP that is depends on the interpreter: two of them must print the same.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pulp

from router.planning.program.solver import PulpSolver
from router.planning.rules.program import ConstraintRow, Program, Variable


def programs(count: int) -> Iterator[Program]:
    """Small programs, some infeasible; whatever lowers the objective is bounded."""
    for seed in range(count):
        chance = random.Random(seed)
        costs = [round(chance.uniform(-5, 10), 3) for _ in range(chance.randint(3, 30))]
        variables = tuple(
            Variable(f"v{i}", 0.0, chance.choice([None, 1.0, 5.0]) if cost > 0 else 3.0, chance.random() < 0.6, cost)
            for i, cost in enumerate(costs)
        )
        rows = tuple(
            ConstraintRow(
                f"row{k}",
                tuple(
                    (i, round(chance.uniform(0.1, 3), 3))
                    for i in chance.sample(range(len(costs)), chance.randint(1, len(costs)))
                ),
                chance.choice(["<=", ">="]),
                round(chance.uniform(1, 4), 3),
            )
            for k in range(chance.randint(1, 15))
        )
        yield Program(variables, rows)


def answers(count: int) -> list[Any]:
    """Outcome, objective, bound, relaxation and its duals, and the objective once more from the answer as a start."""
    solver, found = PulpSolver(), list[Any]()
    for program in programs(count):
        solved, relaxed = solver.solve(program, 0.0, 60.0), solver.relax(program, 60.0)
        start = {i: x for i, x in enumerate(solved.values) if program.variables[i].integer}
        again = solver.solve(program, 0.0, 60.0, start=start, nodes=1000)
        figures = [solved.objective, solved.bound, relaxed.objective, again.objective]
        duals = sorted((name, round(value, 6)) for name, value in relaxed.duals.items())
        found.append([solved.outcome, relaxed.outcome, again.outcome, [round(x, 6) for x in figures], duals])
    return found


if __name__ == "__main__":
    print(json.dumps({"pulp": pulp.__version__, "answers": answers(int(sys.argv[1]))}))
