"""Find the machines that other jobs hold or are planned to hold: applied, accepted as quotes, planned for tonight."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime

from pricing.places import Market
from router.app.queries.context import QueryContext
from router.app.queries.plans import whole_plan
from router.controller.accept.accept import APPLY
from router.controller.history.lifecycle import RESUMABLE_REASONS
from router.planning.document.plan import Line, LineFallback, Plan
from router.planning.document.plan_names import QUOTE
from router.planning.problem.current_use import PromisedMachines, RunningMachines

_ACCEPTED = 50  # plans of accepted quotes that are looked at, the latest first
_NOTHING = 1e-9


def find_promised_machines(context: QueryContext, job: str, now: datetime) -> tuple[PromisedMachines, ...]:
    """Return what other jobs than this one hold now, or are planned to, whoever asks.

    A job that runs holds its machines until its planned end. Any other one has the lines of the last quote of it that
    was accepted, else of the last plan for tonight; those of the outlook hold their share of machines. A plan that was
    not applied while it was good holds nothing, and no gang does that is over for good.
    """
    found = list(_running(context, now))
    applied = {entry.digest for entry in context.store.audit.entries(APPLY)}
    for name, count in ((QUOTE, _ACCEPTED), (context.night, 1)):
        for row in context.store.made_plans.newest(count, name=name):
            plan = whole_plan(context.store, row.digest)
            if plan is not None and (now <= plan.expires_at or row.digest in applied):
                known = {each.job for each in found}
                over = _gangs_over(context, row.digest) if row.digest in applied else frozenset()
                found += (each for each in _planned(plan, over) if each.job not in known)
    return tuple(each for each in found if each.job != job)


def _gangs_over(context: QueryContext, digest: str) -> frozenset[tuple[str, str]]:
    """Return job and gang of those orders of a plan whose last attempt is over, and will not be made again."""
    last = {(each.job, each.gang): each for each in context.store.attempts.find(plan=digest, skipped=[])}
    return frozenset(key for key, each in last.items() if each.phase.is_over and each.reason not in RESUMABLE_REASONS)


def _running(context: QueryContext, now: datetime) -> Iterator[PromisedMachines]:
    attempts, nodes = context.store.overview.alive()
    for attempt in attempts:
        pools = Counter((n.zone, n.instance_type, n.market) for n in nodes if n.attempt == attempt.id)
        for pool, machines in pools.items():
            held = RunningMachines(attempt.cloud, attempt.region, *pool, machines, attempt.team)
            yield PromisedMachines(attempt.job, held, now, max(attempt.end, now))


def _planned(plan: Plan, over: Collection[tuple[str, str]]) -> Iterable[PromisedMachines]:
    team = {job.job: job.team for job in plan.jobs}
    return (
        PromisedMachines(
            line.job,
            _machines_of(line, math.ceil(line.machines * line.share - _NOTHING), team[line.job]),
            line.start,
            line.end,
            None
            if line.fallback is None or not line.fallback.reserved
            else _machines_of(line.fallback, line.fallback.machines, team[line.job]),
        )
        for line in plan.lines
        if (line.job, line.gang) not in over
    )


def _machines_of(place: Line | LineFallback, machines: int, team: str) -> RunningMachines:
    market = Market(place.market)
    return RunningMachines(place.cloud, place.region, place.zone, place.instance_type, market, machines, team)
