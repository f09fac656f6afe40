"""Compute what runs cost, exactly: each part's rate times the time billed, the fallback expected, external cost."""

from __future__ import annotations

from collections.abc import Sequence

from pricing.money import Usd
from router.planning.problem.schedule import ScheduledRun


def compute_usd(runs: Sequence[ScheduledRun]) -> Usd:
    """Return the cost of the runs without moves: each part's rate times billed time."""
    own = [
        part.offer.usd_per_hour.times(part.machines).over(run.billed) for run in runs for part in run.candidate.parts
    ]
    return Usd.total([*own, *(run.fallback_usd for run in runs)])


def external_usd(runs: Sequence[ScheduledRun]) -> Usd:
    """Return what the runs cost others, which nobody pays; nothing where the limits weigh none of it."""
    own = [run.candidate.external.usd_per_hour.over(run.billed) for run in runs if run.candidate.external is not None]
    behind = [(run, run.candidate.fallback) for run in runs]
    own += [
        f.external.usd_per_hour.over(run.fallback_billed)
        for run, f in behind
        if f is not None and f.external is not None
    ]
    return Usd.total(own)


def objective_usd(runs: Sequence[ScheduledRun]) -> Usd:
    """Return what the objective counts of the runs, without moves and thresholds: cost and external cost."""
    return compute_usd(runs) + external_usd(runs)
