"""Hold the candidates of all jobs and the placement problem made from them, as one search of a plan needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from router.jobs.spec import Job
from router.planning.find.candidate import Candidate
from router.planning.find.candidates import CandidateFinder
from router.planning.find.dropped_listings import DroppedListing
from router.planning.problem.problem import PlacementProblem
from router.planning.program.solve import PlacementSolution

#: The reason of a job for which no time was left, and the note of one for which some was.
NOT_LOOKED_AT: Final = "the time limit came before its offers were looked at: raise --time-limit"
PARTLY_LOOKED_AT: Final = "the time limit came before all its spot offers were looked at: raise --time-limit"


@dataclass(frozen=True)
class PlanningInput:
    """The candidates of all jobs and the placement problem made from them; ``infeasible`` has reasons by job.

    ``partly`` names the jobs of which the time limit left only some offers to look at.
    """

    jobs: tuple[Job, ...]
    finder: CandidateFinder
    problem: PlacementProblem
    advisory: Mapping[str, tuple[Candidate, ...]]
    dropped: Mapping[str, tuple[DroppedListing, ...]]
    infeasible: Mapping[str, str]
    partly: frozenset[str] = frozenset()

    @property
    def looked_at_all(self) -> bool:
        """Return whether the offers of every job were looked at."""
        return not self.partly


@dataclass(frozen=True)
class PlannedJobs:
    """The answer of one search, with what it was found for."""

    planning_input: PlanningInput
    answer: PlacementSolution
