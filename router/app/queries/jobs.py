"""Gangs, jobs and attempts: where each runs, until when, and what it has cost, for the teams that may be seen."""

from __future__ import annotations

from collections.abc import Sequence

from pricing.money import Usd
from router.access.identity import Permission
from router.app.queries.context import QueryContext
from router.controller.report.report import (
    AttemptReport,
    JobReport,
    JobsReport,
    StatusReport,
    build_attempt_report,
    build_outlooks,
    build_status_report,
    run_key,
)
from router.ledger.entry import LedgerEntryKind

LONGEST_NAME = 400


def report_status(context: QueryContext, names: Sequence[str] = (), *, everything: bool = False) -> StatusReport:
    """Return the gangs of these jobs, attempts or plans (none: all) and what they cost.

    Of attempts that are over only the last of each job is included, unless ``everything``.
    """
    teams = context.identity.require(Permission.READ_JOBS)
    deploy = context.settings.deploy
    return build_status_report(
        context.store,
        names,
        context.clock(),
        deploy.timeouts,
        everything=everything,
        standstill=deploy.standstill,
        admits=teams.admits,
    )


def report_jobs(context: QueryContext) -> JobsReport:
    """Return the live gangs and the last one of each job that is over, with deadlines and expected ends."""
    teams = context.identity.require(Permission.READ_JOBS)
    deploy = context.settings.deploy
    status = build_status_report(
        context.store, (), context.clock(), deploy.timeouts, everything=False, standstill=deploy.standstill
    )
    outlooks = build_outlooks(context.store, status.gangs, status.now)
    seen = tuple(each for each in outlooks if teams.admits(each.gang.attempt.team))
    gangs = tuple(each.gang for each in seen)
    return JobsReport(StatusReport(gangs, Usd.total(gang.spent_usd for gang in gangs), status.now), seen)


def has_run(context: QueryContext, name: str) -> bool:
    """Return whether a job of this name was ever ordered, for who may see it."""
    teams = context.identity.require(Permission.READ_JOBS)
    return _is_name(name) and any(teams.admits(attempt.team) for attempt in context.store.attempts.find(job=name))


def find_job(context: QueryContext, name: str) -> JobReport | None:
    """Return all attempts of a job; None where there are none, or none that may be seen.

    Notices and journal are those of the last attempt's run, since a job may have run for hundreds of nights.
    """
    store = context.store
    if not has_run(context, name):
        return None
    status = report_status(context, (name,), everything=True)
    outlooks = build_outlooks(store, [gang for gang in status.gangs if gang.attempt.job == name], status.now)
    entries = store.ledger.entries(job=name, kind=LedgerEntryKind.METERED)
    last = outlooks[-1].gang.attempt
    reports = []
    for outlook in outlooks:
        one = outlook.gang.attempt
        is_new = run_key(one) == run_key(last)
        notices, journal = (store.notices.find(one.id), store.journal.entries(one.id)) if is_new else ((), ())
        reports.append(build_attempt_report(outlook, notices, journal, entries))
    return JobReport(name, tuple(reports), status.now)


def find_attempt(context: QueryContext, name: str) -> AttemptReport | None:
    """Return an attempt; None where there is none, or where it may not be seen."""
    teams = context.identity.require(Permission.READ_JOBS)
    store = context.store
    attempt = store.attempts.get(name) if _is_name(name) else None
    if attempt is None or not teams.admits(attempt.team):
        return None
    gang = next(each for each in report_status(context, (name,), everything=True).gangs if each.attempt.id == name)
    (outlook,) = build_outlooks(store, (gang,), context.clock())
    entries = store.ledger.entries(attempt=name, kind=LedgerEntryKind.METERED)
    return build_attempt_report(outlook, store.notices.find(name), store.journal.entries(name), entries)


def _is_name(name: str) -> bool:
    """Return whether a name can be stored at all; databases refuse some characters even in a comparison."""
    return name.isprintable() and len(name) <= LONGEST_NAME
