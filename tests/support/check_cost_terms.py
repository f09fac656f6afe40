"""Checks of the terms of each job's cost, from the words of design note costs-and-estimates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from fractions import Fraction

from router.jobs.spec import Checkpoint, Job
from router.planning.document.plan import Line
from router.planning.document.plan_usage import JobCostTerms
from tests.support.plan_view import View

_WORDS = (
    "compute_usd",
    "lost_work_usd",
    "checkpoints_usd",
    "restarts_usd",
    "startups_usd",
    "moves_usd",
    "stream_usd",
    "idle_usd",
    "fallback_usd",
)
HOUR = timedelta(hours=1)


def check_cost_terms(view: View) -> Iterator[str]:
    """Each placed job has its terms, or none has (plans made by hand); they are not negative and add up to its
    cost; moves and starts are as planned."""
    usage = view.plan.usage
    if not usage.cost_terms:
        return
    terms = {item.job: item for item in usage.cost_terms}
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
            starts = sum(_start_nanos(line, job.startup) for line in lines)
            if abs(amounts["startups_usd"] - starts) > len(lines) * 1000:
                yield f"{summary.job}: starts for {amounts['startups_usd']}, its lines say {float(starts)}"
            if job.checkpoint is None and amounts["checkpoints_usd"]:
                yield f"{summary.job}: pays for checkpoints that it does not make"


def check_stated_quantities(view: View) -> Iterator[str]:
    """Terms are what costs-and-estimates.md makes of the quantities that a job file states, and say which these are.

    On one gang with λ interruptions an hour, of the running time that is billed λR/(1+λR) is restarts of R hours and
    λL/(1+λR) lost work of L hours each; of the rest δ/(τ+δ) is checkpoints of δ hours every τ hours of compute.
    """
    for item in view.plan.usage.cost_terms:
        job = view.job(item.job)
        if job is None:
            continue
        lines = [line for line in view.plan.lines if line.job == item.job]
        known = {(each.term, each.field) for each in item.stated}
        wanted = set(_stated_of(job, spot=any(line.market == "spot" for line in lines)))
        if wanted != {pair for pair in known if pair[1].startswith(("interruptions", "idle", "checkpoint.stall"))}:
            yield f"{job.name}: says that {sorted(known)} are stated, its file states {sorted(wanted)}"
        yield from _idle_problems(job, item, lines)
        stated = job.interruptions
        if stated is None or stated.per_hour is None or any(line.market != "spot" for line in lines):
            continue
        if job.checkpoint is not None:  # A guarded run: each interruption costs one restart and what it loses.
            if stated.lost_work is not None and stated.lost_work:
                whole = (job.idle or timedelta(0)) + (job.startup if stated.restart is None else stated.restart)
                again = item.restarts_usd.nanos + item.idle_usd.nanos - _idle_at_starts(job, item, lines)
                yield from _differs(job, "restarts", again, item.lost_work_usd.nanos * (whole / stated.lost_work))
            yield from _checkpoint_problems(job, job.checkpoint, item)
            continue
        running: float = sum(line.cost_usd.nanos for line in lines) - item.startups_usd.nanos
        idle = (job.idle or timedelta(0)) / HOUR
        restart = (job.startup if stated.restart is None else stated.restart) / HOUR
        starts = item.startups_usd.nanos * (idle / (job.startup / HOUR)) if job.startup else None
        if starts is None:
            continue
        running -= starts
        times = running * stated.per_hour / (1 + stated.per_hour * (restart + idle))
        yield from _differs(job, "restarts", item.restarts_usd.nanos, times * restart)
        yield from _differs(job, "idle", item.idle_usd.nanos, times * idle + starts)
        if stated.lost_work is None:
            continue
        yield from _differs(job, "lost work", item.lost_work_usd.nanos, times * (stated.lost_work / HOUR))


def _checkpoint_problems(job: Job, saved: Checkpoint, item: JobCostTerms) -> Iterator[str]:
    """Checkpoints cost at least what their stated stall and interval make of the time that is worked."""
    if saved.stall is None or saved.interval is None:
        return
    both = item.compute_usd.nanos + item.checkpoints_usd.nanos
    least = saved.stall / (saved.stall + max(saved.interval, saved.size_gib / saved.write_gib_per_s * HOUR / 3600))
    if item.checkpoints_usd.nanos < both * least * (1 - 1e-6) - 1000:
        yield f"{job.name}: checkpoints cost {item.checkpoints_usd.nanos}, at least {both * least} are stated"


def _stated_of(job: Job, *, spot: bool) -> Iterator[tuple[str, str]]:
    """Term and field of what the job's file states of interruptions, stalls and idle time."""
    stated = job.interruptions
    if stated is not None:
        if spot and stated.per_hour is not None:
            yield "lost_work_usd", "interruptions.per_hour"
            yield "restarts_usd", "interruptions.per_hour"
        if stated.lost_work is not None:
            yield "lost_work_usd", "interruptions.lost_work"
        if stated.restart is not None:
            yield "restarts_usd", "interruptions.restart"
    if job.idle is not None:
        yield "idle_usd", "idle"
    if job.checkpoint is not None and job.checkpoint.stall is not None:
        yield "checkpoints_usd", "checkpoint.stall"


def _idle_problems(job: Job, item: JobCostTerms, lines: Sequence[Line]) -> Iterator[str]:
    if job.idle is None:
        if item.idle_usd.nanos:
            yield f"{job.name}: pays {item.idle_usd} for idle machines and states none"
        return
    if all(line.kind == "order" for line in lines):
        least = sum(_start_nanos(line, job.idle) for line in lines)
        if item.idle_usd.nanos < least - len(lines) * 1000:
            yield f"{job.name}: idle machines cost {item.idle_usd}, its starts alone {float(least)}"


def _idle_at_starts(job: Job, item: JobCostTerms, lines: Sequence[Line]) -> float:
    """Nano-dollars of waiting for the whole gang at the starts that the plan makes itself."""
    if job.idle is None:
        return 0.0
    if not job.startup:
        return float(sum(_start_nanos(line, job.idle) for line in lines))
    return item.startups_usd.nanos * (job.idle / job.startup)


def _differs(job: Job, what: str, found: float, wanted: float) -> Iterator[str]:
    if abs(found - wanted) > 1e-6 * abs(wanted) + 10_000:
        yield f"{job.name}: {what} cost {found:.0f} nano-dollars, what is stated makes {wanted:.0f}"


def _streams(job: str, what: str, name: str) -> bool:
    return job == name and what == "stream"


def _start_nanos(line: Line, each: timedelta) -> Fraction:
    if not line.startup:
        return Fraction(0)
    return Fraction(line.usd_per_hour.nanos) * Fraction(each / timedelta(hours=1))
