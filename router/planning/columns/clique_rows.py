"""Find clique rows: how many large jobs a limit lets run at a time, which the relaxation does not know.

Where K machines are left and three jobs want 2/3 K each, the relaxation runs one and a half of them at a time. Within
the horizon machines are held whole, so that of the jobs that take more than K/(k+1), at most k hold any in a slot. Such
a row follows from the limit for every plan, and makes the bound sharper.
"""

from __future__ import annotations

from dataclasses import dataclass

from router.planning.problem.problem import PlacementProblem

MOST_TOGETHER = 3


@dataclass(frozen=True, slots=True)
class CliqueRow:
    """At most ``jobs`` of the jobs that take ``least`` or more of a limit fit in at a time."""

    limit: str
    jobs: int
    least: int

    @property
    def name(self) -> str:
        """Return a name that no limit has."""
        return f"{self.jobs} at a time: {self.limit}"


def find_clique_rows(problem: PlacementProblem) -> tuple[CliqueRow, ...]:
    """Return the rows that cut something off: more jobs are large than fit, and the limit alone does not say so."""
    large: dict[str, dict[int, set[str]]] = {}
    for job in problem.jobs:
        seen: set[int] = set()
        for c in problem.candidates[job.name]:
            use = problem.use[job.name, c.key]
            if id(use) in seen:
                continue
            seen.add(id(use))
            for name, amount in use.items():
                if name in problem.binding and amount * (MOST_TOGETHER + 1) > problem.shared[name].amount:
                    large.setdefault(name, {}).setdefault(amount, set()).add(job.name)
    cliques = []
    for name, by_amount in sorted(large.items()):
        capacity = problem.shared[name].amount
        for most in range(1, MOST_TOGETHER + 1):
            fitting = {a: jobs for a, jobs in by_amount.items() if a <= capacity < a * (most + 1)}
            jobs = set().union(*fitting.values())
            if len(jobs) > most and min(fitting) * most < capacity:
                cliques.append(CliqueRow(name, most, min(fitting)))
    return tuple(cliques)
