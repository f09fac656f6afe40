"""Hold the candidates of all jobs and the placement problem made from them, as one search of a plan needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from router.jobs.spec import Job
from router.planning.candidates import Candidate, CandidateFinder, DroppedListing
from router.planning.problem import PlacementProblem
from router.planning.solve import PlacementSolution


@dataclass(frozen=True)
class PlanningInput:
    """The candidates of all jobs and the placement problem made from them; ``infeasible`` has reasons by job."""

    jobs: tuple[Job, ...]
    finder: CandidateFinder
    problem: PlacementProblem
    advisory: Mapping[str, tuple[Candidate, ...]]
    dropped: Mapping[str, tuple[DroppedListing, ...]]
    infeasible: Mapping[str, str]


@dataclass(frozen=True)
class PlannedJobs:
    """The answer of one search, with what it was found for."""

    planning_input: PlanningInput
    answer: PlacementSolution
