"""Report what became of jobs, of quotes, and of the orders of plans beside what these predicted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pricing.money import ZERO
from pricing.problems import InvalidInputError
from router.config.plan_files import QuoteAcceptance
from router.controller.history.lifecycle import RESUMABLE_REASONS
from router.controller.history.run_records import is_interrupted
from router.ledger.entry import CostItem, LedgerEntryKind
from router.ledger.month import Month
from router.planning.document.plan import Plan
from router.planning.document.plan_json import plan_from_json
from router.quotes.outcomes import JobEnding
from router.quotes.quote import Quote
from router.showback.plan_accuracy import Accuracy, PlanAccuracy, StepFigures, compare, predict, sum_accuracy
from router.showback.report.query import JobDue, QuoteResult, ReportQuery
from router.state.records import Attempt
from router.state.store import StateStore

if TYPE_CHECKING:
    from router.showback.report.rollup_tables import PlannedJob

_FINISHED, _STOPPED = "finished", "stopped"
_NANO = Decimal("0.000000001")


def job_deadlines(store: StateStore, query: ReportQuery) -> dict[str, JobDue]:
    """Return by job its last run's deadline, and when that was done, of jobs that had machines in the month.

    A run is what one plan ordered of a job. Events after ``query.as_of`` do not count, nor attempts of teams that are
    not admitted.
    """
    month, as_of = query.month, query.as_of
    runs: dict[str, dict[str, list[Attempt]]] = {}
    for attempt in store.attempts.find():
        if not query.admits(attempt.team) or (as_of is not None and attempt.created_at > as_of):
            continue
        if attempt.created_at < month.ends and (attempt.gone_at is None or attempt.gone_at >= month.begins):
            of_job = runs.setdefault(attempt.job, {})
            # The plan of the latest attempt stands last.
            of_job[attempt.plan] = [*of_job.pop(attempt.plan, ()), attempt]
    specs = store.plans.jobs({run[-1].job_digest for of_job in runs.values() for run in of_job.values()})

    @cache
    def planned_at(plan: str) -> datetime | None:
        text = store.plans.plan(plan)
        return None if text is None else datetime.fromisoformat(json.loads(text)["as_of"]).astimezone(UTC)

    def due(run: list[Attempt]) -> JobDue:
        last = run[-1]
        deadline = _deadline(specs.get(last.job_digest), planned_at(last.plan) or last.created_at)
        done = [a.result_at for a in run if a.result == _FINISHED and _had_happened(a.result_at, as_of) and a.result_at]
        # A run that waits for machines may still be in time until its deadline.
        is_done_known = (
            bool(done) or _has_ended(run, as_of) or (deadline is not None and deadline < (as_of or query.now))
        )
        return JobDue(job=last.job, deadline=deadline, done_at=min(done, default=None), is_done_known=is_done_known)

    outcomes = {}
    for job, of_job in runs.items():
        *earlier, last = map(due, of_job.values())
        late = sum(each.done_at is not None and each.met is False for each in earlier)
        runs_now = any(ran_at(attempt, as_of) for run in of_job.values() for attempt in run)
        outcomes[job] = replace(last, late_before=late, runs_now=runs_now)
    return outcomes


def ran_at(attempt: Attempt, as_of: datetime | None) -> bool:
    """Return whether machines of the attempt were there at that moment; None is now."""
    if attempt.made_at is None:
        return False
    if as_of is None:
        return not attempt.phase.is_over
    return attempt.made_at <= as_of and (attempt.gone_at is None or attempt.gone_at > as_of)


def ended_of_plans(store: StateStore, planned: Collection[PlannedJob], as_of: datetime | None) -> frozenset[PlannedJob]:
    """Return those of the planned jobs that finished by ``as_of``, or ended so that no attempt follows."""
    attempts: dict[PlannedJob, list[Attempt]] = {}
    for attempt in store.attempts.named({plan for plan, _ in planned}):
        attempts.setdefault((attempt.plan, attempt.job), []).append(attempt)
    return frozenset(job for job, of_job in attempts.items() if job in planned and _has_ended(of_job, as_of))


def _has_ended(attempts: list[Attempt], as_of: datetime | None) -> bool:
    if any(each.result == _FINISHED and _had_happened(each.result_at, as_of) for each in attempts):
        return True
    last = attempts[-1]
    return last.phase.is_over and last.reason not in RESUMABLE_REASONS and _had_happened(last.gone_at, as_of)


def _had_happened(moment: datetime | None, as_of: datetime | None) -> bool:
    return as_of is None or (moment is not None and moment <= as_of)


def _deadline(spec: str | None, as_of: datetime) -> datetime | None:
    from router.jobs.spec import Job  # takes longer to import than most reports to make

    try:
        deadline = None if spec is None else Job.model_validate_json(spec).deadline
    except ValueError:  # written by a version with another form
        return None
    return None if deadline is None else deadline.at(as_of)


def quote_results(
    store: StateStore,
    folder: Path,
    month: Month,
    as_of: datetime | None = None,
    admits: Callable[[str], bool] = lambda _: True,
) -> tuple[QuoteResult, ...]:
    """Return accepted quotes of jobs that were over in the month, and by ``as_of``, by quote; of admitted teams.

    InvalidInputError for a damaged file.
    """
    if not any(folder.glob("quote-*.json")) and not store.quotes.find(count=1):
        return ()
    return tuple(
        each
        for each in _all(store, folder, admits)
        if month.begins <= (at := each.done_at or each.deadline) < month.ends and _had_happened(at, as_of)
    )


def _all(store: StateStore, folder: Path, admits: Callable[[str], bool]) -> Iterable[QuoteResult]:
    from router.app.stored_quotes import list_stored_quotes

    for stored in reversed(list_stored_quotes(folder, store)):
        name, quote, accepted = stored.name, stored.quote, stored.acceptance
        if accepted is None or not all(admits(a.team) for a in store.attempts.find(plan=accepted.plan, job=quote.job)):
            continue
        outcome = quote_ending(quote, accepted, store)
        if outcome is not None:
            p50, p90 = quote.usd.p50, quote.usd.p90
            yield QuoteResult(
                quote=name,
                job=quote.job,
                deadline=quote.deadline,
                promised=Decimal(repr(quote.on_time)),
                p50=None if p50 is None else p50.nanos * _NANO,
                p90=None if p90 is None else p90.nanos * _NANO,
                cost=outcome.usd.nanos * _NANO,
                p50_at=quote.finish_p50,
                p90_at=quote.finish_p90,
                done_at=outcome.done_at,
            )


def quote_ending(quote: Quote, accepted: QuoteAcceptance, store: StateStore) -> JobEnding | None:
    """Return the ending of a quote's plan: the cost of all its metered machines, and when the training was done.

    None where the plan was not applied, is still running, or was stopped by a person. Raises StateError.
    """
    attempts = store.attempts.find(plan=accepted.plan, job=quote.job)
    if not attempts or any(not a.phase.is_over for a in attempts):
        return None
    done = [a.result_at for a in attempts if a.result == _FINISHED and a.result_at is not None]
    if not done and (attempts[-1].reason in RESUMABLE_REASONS or any(a.reason == _STOPPED for a in attempts)):
        return None
    entries = store.ledger.entries(kind=LedgerEntryKind.METERED, job=quote.job)
    usd = sum((entry.usd for entry in entries if entry.plan == accepted.plan), ZERO)
    return JobEnding(usd, min(done, default=None))


# Why an order that ended is not compared.
_NO_STEPS, _NO_PLAN, _NO_PRICE = "reported no steps", "have no plan with steps", "have no price"
_LONGEST_PLAN = timedelta(days=31)
_Key = tuple[str, str]


def plan_accuracy(store: StateStore, since: datetime, until: datetime) -> PlanAccuracy:
    """Return predicted and measured figures by job and in sum, of a job's orders that ended in that time.

    Orders of which a gang still runs are no part of it. Those that cannot be compared are counted by the reason.
    """
    runs: dict[_Key, list[Attempt]] = {}
    for attempt in store.overview.runs(since - _LONGEST_PLAN, until)[0]:
        runs.setdefault((attempt.plan, attempt.job), []).append(attempt)
    ended = {key: found for key, found in runs.items() if _ended_between(found, since, until)}
    plans = _plans(store, {plan for plan, _ in ended})
    begun = min((a.made_at for found in ended.values() for a in found if a.made_at is not None), default=until)
    costs = _costs(store, set(ended), begun, until)
    rows: list[Accuracy] = []
    left_out: Counter[str] = Counter()
    for (plan, job), attempts in sorted(ended.items()):
        predicted = predict(plans[plan], job) if plan in plans else None
        cost = costs.get((plan, job), (0, 0.0))
        if predicted is None or cost is None:
            left_out[_NO_PLAN if predicted is None else _NO_PRICE] += 1
            continue
        steps, usd = cost
        measured = StepFigures(steps, _hours(attempts), usd, sum(is_interrupted(a) for a in attempts))
        row = compare(job, predicted, measured)
        if row is None:
            left_out[_NO_STEPS] += 1
        else:
            rows.append(row)
    return PlanAccuracy(sum_accuracy(rows), left_out)


def _ended_between(attempts: Iterable[Attempt], since: datetime, until: datetime) -> bool:
    ends = [attempt.gone_at if attempt.phase.is_over else None for attempt in attempts]
    known = [end for end in ends if end is not None]
    return len(known) == len(ends) and since <= max(known) <= until


def _plans(store: StateStore, digests: Iterable[str]) -> dict[str, Plan]:
    """Return the stored plans of these digests; none of a plan that this version cannot read."""
    plans = {}
    for digest in sorted(digests):
        text = store.plans.plan(digest)
        try:
            if text is not None:
                plans[digest] = plan_from_json(text)
        except InvalidInputError:
            continue
    return plans


def _costs(
    store: StateStore, keys: set[_Key], since: datetime, until: datetime
) -> dict[_Key, tuple[int, float] | None]:
    """Return the steps saved and the dollars metered for machines by plan and job; None where a price is unknown."""
    found: dict[_Key, tuple[int, float]] = {}
    unpriced: set[_Key] = set()
    for entry in store.ledger.entries(since=since, until=until, kind=LedgerEntryKind.METERED):
        key = (entry.plan, entry.job)
        if key in keys and entry.what is CostItem.MACHINE:
            steps, usd = found.get(key, (0, 0.0))
            found[key] = (steps + entry.steps, usd + entry.usd.dollars())
            if entry.unpriced:
                unpriced.add(key)
    return {key: None if key in unpriced else sums for key, sums in found.items()}


def _hours(attempts: Iterable[Attempt]) -> float:
    """Return the hours that machines ran until the training ended, without the first start of each order."""
    orders: dict[tuple[str, datetime], list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.number):
        if attempt.met_at is not None or (attempt.gang, attempt.start) in orders:
            orders.setdefault((attempt.gang, attempt.start), []).append(attempt)
    total = timedelta(0)
    for first, *later in orders.values():
        spans = [(first.met_at, first), *((each.made_at, each) for each in later)]
        for begun, attempt in spans:
            ended = attempt.result_at or attempt.gone_at
            if begun is not None and ended is not None:
                total += max(ended - begun, timedelta(0))
    return total / timedelta(hours=1)
