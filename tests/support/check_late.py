"""Checks of jobs that end after their deadline, from the words of design note rules-of-the-plan."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from tests.support.plan_view import HOUR, View

MICRO = timedelta(microseconds=1)


def check_lateness(view: View) -> Iterator[str]:
    """A job ends after its deadline only where its file allows that, and the plan says by how much, to the lines."""
    for job in view.jobs:
        summary = next((each for each in view.plan.jobs if each.job == job.name), None)
        told = summary.late if summary is not None else None
        deadline = job.deadline.at(view.now) if job.deadline is not None else None
        if summary is not None and summary.deadline != deadline:
            yield f"{job.name}: its deadline is {deadline}, the plan says {summary.deadline}"
        if view.is_late(job) != (told is not None):
            yield f"{job.name}: ends after its deadline {view.is_late(job)}, the plan says {told}"
        if told is None or deadline is None or not view.is_late(job):
            continue
        if job.late != "allowed":
            yield f"{job.name}: is late, and its file does not allow that"
        finish = max(line.end for line in view.lines_of(job))
        if abs(told.by_hours - (finish - deadline) / HOUR) > 1e-6:
            yield f"{job.name}: late by {told.by_hours} h, its lines end {(finish - deadline) / HOUR} h after"
        if finish > told.planned_deadline + MICRO:
            yield f"{job.name}: ends at {finish}, planned until {told.planned_deadline}"
        slots = (told.planned_deadline - view.now) / view.slot if view.slot is not None else 0.0
        if abs(slots - round(slots)) > 1e-9:
            yield f"{job.name}: planned until {told.planned_deadline}, which is no edge of a slot"
        if not told.why:
            yield f"{job.name}: late without a reason"
        chance = summary.on_time_probability if summary is not None else None
        before = sum(max(0.0, (deadline - line.start) / HOUR) for line in view.lines_of(job))
        if chance is None or not 0 <= chance <= 1 or (before == 0 and chance > 0):
            yield f"{job.name}: {chance} sure to be in time, with {before} h before its deadline"
