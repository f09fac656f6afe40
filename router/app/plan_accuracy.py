"""Read from the state what plans predicted and what came of their orders."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from pricing.problems import InvalidInputError
from router.controller.run_records import is_interrupted
from router.ledger.entry import CostItem, LedgerEntryKind
from router.planning.plan import Plan
from router.planning.plan_json import plan_from_json
from router.showback.plan_accuracy import Accuracy, JobMeasurement, compare, predict, sum_accuracy
from router.state.records import Attempt
from router.state.store import StateStore

_LONGEST_PLAN = timedelta(days=31)
_Key = tuple[str, str]


def plan_accuracy(store: StateStore, since: datetime, until: datetime) -> tuple[Accuracy, ...]:
    """Return predicted and measured figures by job and in sum, of orders of which the last gang ended in that time.

    Orders of which a gang still runs, whose plan is not stored, or whose machines have no price, are left out.
    """
    runs: dict[_Key, list[Attempt]] = {}
    for attempt in store.overview.runs(since - _LONGEST_PLAN, until)[0]:
        runs.setdefault((attempt.plan, attempt.job), []).append(attempt)
    ended = {key: found for key, found in runs.items() if _ended_between(found, since, until)}
    plans = _plans(store, {plan for plan, _ in ended})
    begun = min((a.made_at for found in ended.values() for a in found if a.made_at is not None), default=until)
    costs = _costs(store, set(ended), begun, until)
    rows = []
    for (plan, job), attempts in sorted(ended.items()):
        predicted = predict(plans[plan], job) if plan in plans else None
        steps, usd = costs.get((plan, job), (0, 0.0))
        measured = JobMeasurement(steps, _hours(attempts), usd, sum(is_interrupted(a) for a in attempts))
        row = None if predicted is None else compare(job, predicted, measured)
        if row is not None:
            rows.append(row)
    return sum_accuracy(rows)


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


def _costs(store: StateStore, wanted: set[_Key], since: datetime, until: datetime) -> dict[_Key, tuple[int, float]]:
    """Return the steps saved and the dollars metered for machines by plan and job; none where a price is unknown."""
    found: dict[_Key, tuple[int, float]] = {}
    unpriced: set[_Key] = set()
    for entry in store.ledger.entries(since=since, until=until, kind=LedgerEntryKind.METERED):
        key = (entry.plan, entry.job)
        if key in wanted and entry.what is CostItem.MACHINE:
            steps, usd = found.get(key, (0, 0.0))
            found[key] = (steps + entry.steps, usd + entry.usd.dollars())
            if entry.unpriced:
                unpriced.add(key)
    return {key: sums for key, sums in found.items() if key not in unpriced}


def _hours(attempts: Iterable[Attempt]) -> float:
    """Return the hours from when all ranks met first until the training ended, order by order."""
    orders: dict[tuple[str, datetime], list[Attempt]] = {}
    for attempt in attempts:
        if attempt.met_at is not None:
            orders.setdefault((attempt.gang, attempt.start), []).append(attempt)
    total = timedelta(0)
    for found in orders.values():
        ends = [end for a in found if (end := a.result_at or a.gone_at) is not None]
        total += max(ends) - min(a.met_at for a in found if a.met_at is not None)
    return total / timedelta(hours=1)
