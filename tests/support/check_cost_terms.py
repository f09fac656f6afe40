"""Checks of the terms of each job's cost, from the words of design note 041."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction

from router.jobs.spec import Job
from router.planning.plan import Line
from tests.support.plan_view import View

_WORDS = (
    "compute_usd",
    "lost_work_usd",
    "checkpoints_usd",
    "restarts_usd",
    "startups_usd",
    "moves_usd",
    "stream_usd",
)


def check_cost_terms(view: View) -> Iterator[str]:
    """Each placed job has its terms; they are not negative and add up to its cost; moves and starts are as planned."""
    usage = view.plan.usage
    terms = {} if usage is None else {item.job: item for item in usage.cost_terms}
    for summary in view.plan.jobs:
        lines = [line for line in view.plan.lines if line.job == summary.job]
        item = terms.get(summary.job)
        if item is None:
            if lines:
                yield f"{summary.job}: is placed and has no terms"
            continue
        amounts = {word: getattr(item, word).nanos for word in _WORDS}
        if sum(amounts.values()) != summary.cost_usd.nanos:
            yield f"{summary.job}: terms add up to {sum(amounts.values()) / 1e9}, it costs {summary.cost_usd}"
        if min(amounts.values()) < 0:
            yield f"{summary.job}: a term is below zero: {amounts}"
        streamed = sum(move.cost_usd.nanos for move in view.plan.moves if _streams(move.job, move.what, summary.job))
        if amounts["stream_usd"] != streamed:
            yield f"{summary.job}: streams for {amounts['stream_usd']}, its moves say {streamed}"
        job = view.job(summary.job)
        if job is not None and all(line.kind == "order" for line in lines):
            starts = sum(_start_nanos(line, job) for line in lines)
            if abs(amounts["startups_usd"] - starts) > len(lines) * 1000:
                yield f"{summary.job}: starts for {amounts['startups_usd']}, its lines say {float(starts)}"
            if job.checkpoint is None and amounts["checkpoints_usd"]:
                yield f"{summary.job}: pays for checkpoints that it does not make"


def _streams(job: str, what: str, name: str) -> bool:
    return job == name and what == "stream"


def _start_nanos(line: Line, job: Job) -> Fraction:
    if not line.startup:
        return Fraction(0)
    return Fraction(line.usd_per_hour.nanos) * Fraction(job.startup / timedelta(hours=1))
