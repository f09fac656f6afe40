"""Compute what runs cost, exactly: each part's rate times the time billed, the fallback expected, carbon."""

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


def carbon_usd(runs: Sequence[ScheduledRun]) -> Usd:
    """Return what the carbon of the runs counts; nothing where the limits state no weight of it."""
    own = [run.candidate.carbon.usd_per_hour.over(run.billed) for run in runs if run.candidate.carbon is not None]
    behind = [(run, run.candidate.fallback) for run in runs]
    own += [
        f.carbon.usd_per_hour.over(run.fallback_billed) for run, f in behind if f is not None and f.carbon is not None
    ]
    return Usd.total(own)


def objective_usd(runs: Sequence[ScheduledRun]) -> Usd:
    """Return what the objective counts of the runs, without moves and thresholds: cost and carbon."""
    return compute_usd(runs) + carbon_usd(runs)
